"""Reads and writes checkpoints in Google's TF1 format, under Google's names.

A checkpoint is a prefix (`out/model.ckpt-1000`) with an index file and data
files behind it. `variables` is, here and in the training loop, a dict from a
name in the checkpoint to the variable that holds its value.
"""

from collections.abc import (
  Callable,
  Container,
  Iterable,
  Iterator,
  Mapping,
  Sequence,
)
import contextlib
import functools
import re
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert import modeling
from bert.data import atomic, files, progress
from bert.encoders import encoder_table
from bert.weights import fitting, tensor_bundles

_TEMPORARY = ".writing"
# The errors of TensorFlow's readers at damaged files.
_READ_ERRORS = (
  tf.errors.OpError,
  OSError,
  RuntimeError,
  ValueError,
  IndexError,
)
_INDEX, _DATA = ".index", ".data-00000-of-00001"
_SAVED = re.compile(r"model\.ckpt-(\d+)\.index")
_SAVED_DATA = re.compile(r"model\.ckpt-(\d+)\.data-00000-of-00001")
# The files that an interrupted `save` leaves.
_LEFT = re.compile(
  r"\.?checkpoint\.\w+\.tmp|(model\.ckpt-\d+|bert_model\.ckpt)\.writing\..*"
)
_reported: set[str] = set()  # Prefixes that are known to be damaged.


def read_config(path: str) -> modeling.EncoderConfig:
  """Reads a bert_config.json of any encoder; a ValueError names the path."""
  fields = files.read_json(path)
  try:
    return encoder_table.make_config(fields)
  except (ValueError, RecursionError) as error:  # Deeply nested lists.
    raise ValueError(f"{path}: {error}") from error


class DamagedCheckpointError(ValueError):
  """A checkpoint that cannot be read, wholly or in part."""


@contextlib.contextmanager
def naming_damage(place: str, *others: type[Exception]) -> Iterator[None]:
  """Turns errors of readers, and `others`, into DamagedCheckpointErrors."""
  try:
    yield
  except DamagedCheckpointError:
    raise
  except (*_READ_ERRORS, *others) as error:
    reason = " ".join(plain_message(error).split())
    raise DamagedCheckpointError(f"{place}: {reason:.500}") from error


def find_checkpoint(path: str) -> str:
  """Finds the checkpoint that a path means; a ValueError without one.

  A path is a prefix, one of its files, an unpacked release, or the output of a
  training, whose newest checkpoint that is not damaged counts: it is read whole
  if there are older ones to fall back to.
  """
  prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.rstrip("/"))
  if _exists(prefix):
    return prefix
  if path.endswith(".zip"):
    raise ValueError(f"{path}: unzip it and give the folder")
  if not tf.io.gfile.isdir(path):
    raise ValueError(
      f"{path}: no checkpoint there (no {path}.index, no folder)"
    )
  if newest := latest_checkpoint(path):
    # The only one is not read: there is nothing to fall back to.
    is_choice = len(saved_steps(path)) > 1
    step = _use_newest(path, _read_all if is_choice else lambda prefix: None)
    return newest if step is None else checkpoint_prefix(path, step)
  found = tf.io.gfile.glob(tf.io.gfile.join(path, "*.index"))
  found += tf.io.gfile.glob(tf.io.gfile.join(path, "*", "*.index"))
  # What an interrupted `save` left was never a checkpoint.
  found = [name for name in found if not name.endswith(_TEMPORARY + _INDEX)]
  if len(found) == 1:
    return found[0].removesuffix(".index")
  if found:
    raise ValueError(f"{path}: several checkpoints, name one: {sorted(found)}")
  entries = sorted(tf.io.gfile.listdir(path))[:10]
  raise ValueError(f"{path}: no checkpoint there; the folder holds {entries}")


def _exists(prefix: str) -> bool:
  # A V1 checkpoint is one file, or shards, without an index.
  return tf.io.gfile.exists(prefix + ".index") or (
    bool(tf.io.gfile.glob(prefix)) and not tf.io.gfile.isdir(prefix)
  )


def saved_steps(folder: str) -> list[int]:
  """Lists the steps of the whole checkpoints in an output folder, ascending."""
  found = map(_SAVED.fullmatch, list_folder(folder))
  return sorted(int(match[1]) for match in found if match)


def list_folder(folder: str) -> list[str]:
  """Returns the names in a folder; [] without a folder."""
  return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def checkpoint_prefix(folder: str, step: int) -> str:
  """Returns the prefix under which `save` writes a step."""
  return tf.io.gfile.join(folder, f"model.ckpt-{step}")


def latest_checkpoint(folder: str) -> str | None:
  """Returns the newest checkpoint of an output folder, or None."""
  # A run killed before it rewrote the `checkpoint` file has a newer one.
  if steps := saved_steps(folder):
    return checkpoint_prefix(folder, steps[-1])
  # `tf.train.latest_checkpoint` would log an error where that file names one
  # that a kill left without an index.
  state = tf.train.get_checkpoint_state(folder)
  named = state and state.model_checkpoint_path
  return named if named and _exists(named) else None


def saved_prefix(folder: str, step: int) -> str | None:
  """Returns the prefix of the step that `restore` returned."""
  if step in saved_steps(folder):
    return checkpoint_prefix(folder, step)
  return latest_checkpoint(folder)


def _use_newest(folder: str, use: Callable[[str], None]) -> int | None:
  """Uses the newest checkpoint that is not damaged; returns its step."""
  steps = saved_steps(folder)
  _check_indices(folder, steps)
  for number, step in reversed(list(enumerate(steps))):
    try:
      use(checkpoint_prefix(folder, step))
      return step
    except DamagedCheckpointError as error:
      if not number:
        raise
      _fall_back(folder, step, str(error), steps[number - 1])
  return None


def _read_all(prefix: str, but: Container[str] = ()) -> None:
  """Reads, and so verifies, all variables but some."""
  weights = open_weights(prefix)
  for name in sorted(weights.shapes):
    if name not in but:
      weights.read(name)


def _check_indices(folder: str, steps: list[int]) -> None:
  """Reports data files newer than all complete checkpoints without an index.

  A killed training also leaves such a file, but with the index beside it under
  its temporary name; that checkpoint was never complete.
  """
  names = set(list_folder(folder))
  last = steps[-1] if steps else -1
  for match in map(_SAVED_DATA.fullmatch, sorted(names)):
    if not match or int(match[1]) <= last:
      continue
    name = match[0].removesuffix(_DATA)
    if name + _TEMPORARY + _INDEX in names:
      continue
    fault = f"{tf.io.gfile.join(folder, name)}{_INDEX} is missing"
    if not steps:
      raise DamagedCheckpointError(
        f"{fault}, and there is no older checkpoint: put it back, or delete "
        f"{name}{_DATA} to begin anew"
      )
    _fall_back(folder, int(match[1]), fault, last)


def _fall_back(folder: str, step: int, fault: str, to_step: int) -> None:
  """Reports a damaged step, once in the life of the process."""
  prefix = checkpoint_prefix(folder, step)
  if prefix not in _reported:
    _reported.add(prefix)
    prefix = checkpoint_prefix(folder, to_step)
    progress.note(f"{fault}; trying {prefix}")


def model_variables(model: keras.Model) -> dict[str, tf.Variable]:
  """Returns a model's variables under their names in a checkpoint."""
  return {variable.path: variable.value for variable in model.variables}


class Weights(NamedTuple):
  """The variables of a checkpoint by Google's names, read one at a time."""

  source: str  # Where they are: a prefix, or another library's folder.
  shapes: Mapping[str, tuple[int, ...]]
  read: Callable[[str], np.ndarray]  # By name; raises a ValueError.
  unread: Sequence[str] = ()  # Another library's variables that BERT lacks.
  # Frees what a reader keeps that has to read all variables at once.
  release: Callable[[], None] = lambda: None


def open_weights(prefix: str) -> Weights:
  """Opens a checkpoint; a DamagedCheckpointError if it cannot be read."""
  with naming_damage(f"{prefix}: not a readable checkpoint"):
    reader = (
      tensor_bundles.TensorBundle(prefix)
      if files.exists(prefix + _INDEX)
      # The V1 format; unlike `load_checkpoint`, this takes no folder.
      else tf.compat.v1.train.NewCheckpointReader(prefix)
    )
  shapes = reader.get_variable_to_shape_map()
  return Weights(
    prefix,
    {name: tuple(shape) for name, shape in shapes.items()},
    functools.partial(_read_value, reader, prefix),
  )


def _read_value(reader, prefix: str, name: str) -> np.ndarray:
  # TypeError: an unknown dtype.
  with naming_damage(f"{prefix}: {name} is damaged", TypeError):
    try:
      return reader.get_tensor(name)
    except tf.errors.UnimplementedError:
      # The reader cannot put a partitioned variable of the V1 format together.
      dtype = reader.get_variable_to_dtype_map()[name]
      return tf.raw_ops.Restore(
        file_pattern=prefix, tensor_name=name, dt=dtype
      ).numpy()


def read_step(prefix: str) -> int:
  """Returns the `global_step` of a checkpoint, 0 if it has none."""
  weights = open_weights(prefix)
  if "global_step" not in weights.shapes:
    return 0
  value = np.asarray(weights.read("global_step"))
  if value.shape or value.dtype.kind not in "iu":
    found = f"shape {value.shape} and dtype {value.dtype}"
    raise ValueError(f"{prefix}: global_step has {found}; expected an integer")
  return int(value)


def has_slots(folder: str, step: int) -> bool:
  """Returns whether training can go on from a checkpoint, which has Adam's.

  That of one of several tasks has the weights alone.
  """
  names = open_weights(checkpoint_prefix(folder, step)).shapes
  return any(name.endswith("/adam_m") for name in names)


def read(prefix: str) -> Iterator[tuple[str, np.ndarray]]:
  """Yields the names and values of a checkpoint, V1 or V2, in order of name."""
  weights = open_weights(prefix)
  for name in sorted(weights.shapes):
    yield name, weights.read(name)


def load(
  prefix: str,
  variables: Mapping[str, tf.Variable],
  optional: Callable[[str], bool] = lambda name: False,
) -> fitting.Loaded:
  """Assigns a checkpoint's values to variables; see `assign`."""
  return assign(open_weights(prefix), variables, optional)


def assign(
  weights: Weights,
  variables: Mapping[str, tf.Variable],
  optional: Callable[[str], bool] = lambda name: False,
) -> fitting.Loaded:
  """Assigns values to variables, all of them or none.

  The state of training that a checkpoint carries (Adam's slots, global_step) is
  skipped where `variables` does not ask for it. float16 is widened. A
  ValueError says which variable is missing (-) or not used (+), unless its name
  is `optional`, which shapes differ, or that the checkpoint is damaged.
  """
  source = weights.source
  shapes = {name: tuple(np.shape(v)) for name, v in variables.items()}
  found = fitting.compare(source, weights.shapes, shapes, optional)
  # Everything is read, and its checksum proved, before anything is assigned.
  shared = sorted(set(variables) & set(weights.shapes))
  values = {name: weights.read(name) for name in shared}
  weights.release()
  for name, value in values.items():
    kinds = "fV" if variables[name].dtype.is_floating else "biufV"
    if (dtype := np.asarray(value).dtype).kind not in kinds:  # V: bfloat16.
      raise ValueError(
        f"{source}: {name} holds {dtype}; expected floating-point numbers"
      )
    if kinds == "fV" and np.isnan(np.asarray(value, np.float32)).any():
      raise DamagedCheckpointError(
        f"{source}: {name} holds NaN: its training diverged, or the file is "
        "damaged: take an earlier checkpoint"
      )
  for name, value in values.items():
    variables[name].assign(tf.cast(value, variables[name].dtype))
  unread = [n for n in weights.unread if not fitting.is_foreign_state(n)]
  return fitting.Loaded(found.missing, found.unused + unread)


def check_masked_lm(weights: Weights, names: Iterable[str]) -> None:
  """Raises a ValueError if weights lack some of a model's masked-LM head."""
  missing = sorted(set(names) - set(weights.shapes))
  if missing := [n for n in missing if n.startswith("cls/predictions/")]:
    raise ValueError(
      f"--init_checkpoint={weights.source} has no masked-LM head, it lacks "
      f"{', '.join(missing)}: give one that was pre-trained and not fine-tuned "
      "since"
    )


def is_above_layers(name: str) -> bool:
  """Returns whether a variable is a head's or the pooler's, by its name."""
  # Hugging Face stores no pooler with a head that does not use it.
  return not name.startswith("bert/") or "/pooler/" in name


def restore(
  folder: str, variables: Mapping[str, tf.Variable], reads_all: bool = False
) -> int | None:
  """Loads the newest whole checkpoint of an output folder; returns its step.

  A damaged one, or one that lost its index, is reported in a line on standard
  error, and the one before it is tried; a ValueError says that all are damaged,
  or that the newest is of another model. One without a step in its name
  (`model.ckpt`) counts if it is the only one. `reads_all` also verifies
  variables that the model does not use.
  """

  def use(prefix, optional=lambda name: False):
    if reads_all:
      _read_all(prefix, but=variables)  # Loading reads these.
    try:
      load(prefix, variables, optional)
    except DamagedCheckpointError:
      raise
    except ValueError as error:
      raise ValueError(
        f"{folder} belongs to another model; choose another --output_dir: "
        f"{error}"
      ) from error

  step = _use_newest(folder, use)
  if step is None and (newest := latest_checkpoint(folder)):
    # Not saved by a training: it may hold the heads of other tasks, too.
    use(newest, lambda n: n not in variables and not n.startswith("bert/"))
    return read_step(newest)
  return step


def save(
  folder: str, step: int, variables: Mapping[str, tf.Variable], keep: int
) -> str:
  """Writes `folder/model.ckpt-<step>` of a training; see `write`."""
  values = {name: v.read_value() for name, v in variables.items()}
  return write(folder, values, step, keep)


def write(
  folder: str,
  values: Mapping[str, np.ndarray | tf.Tensor],
  step: int | None = None,
  keep: int = 0,
) -> str:
  """Writes a checkpoint whole or not at all; returns its prefix.

  The index gets its final name last: without it, a checkpoint does not exist.
  Then the `checkpoint` file is rewritten, and all but the newest `keep` are
  deleted, if that is not 0. Later steps are not among them: a run saves an
  earlier step only after it has found the later ones damaged. Without a step,
  `bert_model.ckpt` is written, as in a release. A ValueError says that it
  cannot be written; older ones are untouched.
  """
  prefix = tf.io.gfile.join(folder, "bert_model.ckpt")
  if step is not None:
    prefix = checkpoint_prefix(folder, step)
  steps, kept = [], []
  try:
    _write_files(prefix, values)
    if step is not None:
      steps = [saved for saved in saved_steps(folder) if saved <= step]
      kept = steps[-keep:] if keep else steps
      _write_state(folder, kept)
  except (tf.errors.OpError, OSError) as error:
    with contextlib.suppress(tf.errors.OpError):  # No file can be removed.
      remove_temporary_files(folder)
    reason = plain_message(error)
    raise ValueError(f"{prefix}: cannot be written: {reason}") from error
  for old in set(steps) - set(kept):
    delete(folder, old)
  return prefix


def _write_state(folder: str, steps: Sequence[int]) -> None:
  """Writes the file that TensorFlow's own tools look for."""
  lines = [f'model_checkpoint_path: "model.ckpt-{steps[-1]}"']
  lines += [f'all_model_checkpoint_paths: "model.ckpt-{s}"' for s in steps]
  files.write_lines(tf.io.gfile.join(folder, "checkpoint"), lines)


def _write_files(
  prefix: str, values: Mapping[str, np.ndarray | tf.Tensor]
) -> None:
  """Writes the data and the index, each under its name when it is whole."""
  temporary, names = prefix + _TEMPORARY, sorted(values)
  tf.raw_ops.SaveV2(
    prefix=temporary,
    tensor_names=names,
    shape_and_slices=[""] * len(names),
    tensors=[values[name] for name in names],
  )
  for suffix in (_DATA, _INDEX):
    atomic.publish(temporary + suffix, prefix + suffix)


def remove_temporary_files(folder: str) -> None:
  """Deletes what an interrupted `save` left behind."""
  names = list_folder(folder)
  # The data file is removed first, as its name sorts before: the temporary
  # index marks the checkpoint as never completed.
  for name in sorted(names):
    path = tf.io.gfile.join(folder, name)
    # Data without an index: killed between two renames, or two deletions.
    orphan = _SAVED_DATA.fullmatch(name) and (
      name.removesuffix(_DATA) + _INDEX not in names
    )
    is_left = _LEFT.fullmatch(name) or orphan
    if is_left and not tf.io.gfile.isdir(path):
      tf.io.gfile.remove(path)


def delete(folder: str, step: int) -> None:
  """Deletes the checkpoint of a step."""
  # The index first: an interrupted deletion leaves no checkpoint.
  prefix = f"model.ckpt-{step}."
  names = [name for name in list_folder(folder) if name.startswith(prefix)]
  for name in sorted(names, key=lambda name: not name.endswith(".index")):
    tf.io.gfile.remove(tf.io.gfile.join(folder, name))


def delete_before(folder: str, step: int) -> None:
  """Deletes the checkpoints of steps before one that is whole."""
  older = [saved for saved in saved_steps(folder) if saved < step]
  for old in older:
    delete(folder, old)
  if older:
    _write_state(folder, saved_steps(folder))


def plain_message(error: Exception) -> str:
  """Returns an error's message without the names of operations around it."""
  message = getattr(error, "message", str(error))
  return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", message)
