"""Reads and writes checkpoints in Google's TF1 format, under Google's names.

A checkpoint is a prefix (`out/model.ckpt-1000`) to which the names of an index
file and of data files are appended. `variables` is, here and in the training
loop, a dict from a name in the checkpoint to the variable that holds its value.

The file has four parts: finding a checkpoint in a folder, opening and reading
one, assigning its values to a model, and writing.
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
import os
import re
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert import modeling
from bert.data import atomic, files, progress, remote
from bert.encoders import compiled, encoder_table
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
_RELEASED = "bert_model.ckpt"  # The prefix in every release of Google's.
_INDEX, _DATA = ".index", ".data-00000-of-00001"
_SAVED = re.compile(r"model\.ckpt-(\d+)\.index")
_SAVED_DATA = re.compile(r"model\.ckpt-(\d+)\.data-00000-of-00001")
# The files that an interrupted `save` leaves behind. The file `checkpoint` is
# written by `atomic.replace_on_success`, whose temporary names begin with a dot
# in a local folder only.
_LEFT_BEHIND = re.compile(
  r"\.?checkpoint\.\w+\.tmp|(model\.ckpt-\d+|bert_model\.ckpt)\.writing\..*"
)
# Damaged prefixes that were reported: several calls meet the same one.
_reported: set[str] = set()


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
def naming_damage(place: str, *errors: type[Exception]) -> Iterator[None]:
  """Turns errors of readers, and `errors`, into DamagedCheckpointErrors.

  The files of JSON that belong to a checkpoint are read under it, too.
  """
  try:
    yield
  except DamagedCheckpointError:
    # An inner one names the place more closely.
    raise
  except (*_READ_ERRORS, *errors) as error:
    # The message of an error must fit into one line.
    reason = " ".join(plain_message(error).split())
    raise DamagedCheckpointError(f"{place}: {reason:.500}") from error


def find_checkpoint(path: str) -> str:
  """Finds the checkpoint that a path means; a ValueError without one.

  A path is a prefix, one of its files, an unpacked release, or the output
  folder of a training. In an output folder, the newest checkpoint that is not
  damaged counts: to know, this reads all its variables if there are older
  checkpoints to fall back to.
  """
  # The path is a prefix, or one of the files of a checkpoint.
  prefix = re.sub(r"\.(index|meta|data-\d{5}-of-\d{5})$", "", path.rstrip("/"))
  if _exists(prefix):
    return prefix
  if path.endswith(".zip"):
    raise ValueError(f"{path}: unzip it and give the folder")
  if not tf.io.gfile.isdir(path):
    raise ValueError(
      f"{path}: no checkpoint there (no {path}.index, no folder)"
    )

  # The path is the output folder of a training.
  if newest := latest_checkpoint(path):
    # A single checkpoint is not read: there is nothing to fall back to.
    is_choice = len(saved_steps(path)) > 1
    step = _use_newest(path, _read_all if is_choice else lambda prefix: None)
    return newest if step is None else checkpoint_prefix(path, step)

  # The path is a release, whose zip may have been unpacked into a folder of its
  # own. The files that an interrupted `save` left were never a checkpoint.
  indices = find_indices(path) + find_indices(path, "*")
  indices = [name for name in indices if not name.endswith(_TEMPORARY + _INDEX)]
  if len(indices) == 1:
    return indices[0].removesuffix(".index")
  if indices:
    raise ValueError(
      f"{path}: several checkpoints, name one: {sorted(indices)}"
    )

  # In the V1 format it has no index; every release has this name.
  if _exists(release := tf.io.gfile.join(path, _RELEASED)):
    return release
  entries = sorted(tf.io.gfile.listdir(path))[:10]
  raise ValueError(
    f"{path}: no checkpoint there; the folder holds {entries}; expected "
    "model.ckpt-<step> or bert_model.ckpt, each with .index and .data-..."
  )


def find_indices(folder: str, *below: str) -> list[str]:
  """Returns the indices in a folder, or in those of a pattern `below` it."""
  pattern = tf.io.gfile.join(_escape(folder), *below, "*.index")
  return sorted(tf.io.gfile.glob(pattern))


def _escape(path: str) -> str:
  r"""Returns the pattern that stands for this path alone in TensorFlow's globs.

  >>> print(_escape("g[1]/model.ckpt"))  # As it is, it would stand for g1.
  g\[1]/model.ckpt
  """
  return re.sub(r"[*?[\\]", r"\\\g<0>", path)


def _exists(prefix: str) -> bool:
  return tf.io.gfile.exists(prefix + ".index") or (
    bool(tf.io.gfile.glob(_v1_pattern(prefix)))
    and not tf.io.gfile.isdir(prefix)
  )


def _v1_pattern(prefix: str) -> str:
  """Returns the pattern by which TensorFlow finds a checkpoint of V1."""
  # It has no index. It is one file, or shards; the last part of their prefix is
  # a pattern, such as model.ckpt-?????-of-00002.
  folder, name = os.path.split(prefix)
  is_file = tf.io.gfile.exists(prefix)
  return os.path.join(_escape(folder), _escape(name) if is_file else name)


def saved_steps(folder: str) -> list[int]:
  """Lists the steps of the whole checkpoints in an output folder, ascending."""
  matches = map(_SAVED.fullmatch, list_folder(folder))
  return sorted(int(match[1]) for match in matches if match)


def list_folder(folder: str) -> list[str]:
  """Returns the names in a folder; [] without a folder."""
  return tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []


def checkpoint_prefix(folder: str, step: int) -> str:
  """Returns the prefix under which `save` writes a step."""
  return tf.io.gfile.join(folder, f"model.ckpt-{step}")


def latest_checkpoint(folder: str) -> str | None:
  """Returns the newest checkpoint of an output folder, or None."""
  # The names of the files count more than the `checkpoint` file, which a run
  # that was killed may not have rewritten after it saved.
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
  """Uses the newest checkpoint that is not damaged; returns its step.

  Damaged is a checkpoint at which `use` raises a DamagedCheckpointError; if all
  are, the error of the oldest one goes to the caller. None means that the
  folder holds no checkpoint with a step in its name.
  """
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


def _read_all(prefix: str, skipped: Container[str] = ()) -> None:
  """Reads all variables but the skipped ones, which proves their checksums."""
  weights = open_weights(prefix)
  for name in sorted(weights.shapes):
    if name not in skipped:
      weights.read(name)


def _check_indices(folder: str, steps: list[int]) -> None:
  """Reports data files newer than all complete checkpoints without an index.

  A killed training also leaves such a file, but with the index beside it under
  its temporary name; that checkpoint was never complete.
  """
  names = set(list_folder(folder))
  last = steps[-1] if steps else -1
  for match in map(_SAVED_DATA.fullmatch, sorted(names)):
    # Only a training that lost its newest state is worth a message.
    if not match or int(match[1]) <= last:
      continue
    name = match[0].removesuffix(_DATA)
    if name + _TEMPORARY + _INDEX in names:
      continue

    # Its index was lost: begin with the checkpoint before it, if there is one.
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


# The context in which to make a model whose weights are loaded next.
values_follow = compiled.values_follow


def model_variables(model: keras.Model) -> dict[str, tf.Variable]:
  """Returns a model's variables under their names in a checkpoint."""
  return {variable.path: variable.value for variable in model.variables}


class Weights(NamedTuple):
  """The variables of a checkpoint by Google's names, read one at a time.

  `read` returns another library's variables as Google stores them: renamed and,
  where that library stores them otherwise, transposed or joined.
  """

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
      else tf.compat.v1.train.NewCheckpointReader(_v1_pattern(prefix))
    )
  shapes = reader.get_variable_to_shape_map()
  return Weights(
    prefix,
    {name: tuple(shape) for name, shape in shapes.items()},
    functools.partial(_read_value, reader, prefix),
  )


def _read_value(reader, prefix: str, name: str) -> np.ndarray:
  # TensorFlow's reader raises a TypeError at an unknown dtype.
  with naming_damage(f"{prefix}: {name} is damaged", TypeError):
    try:
      return reader.get_tensor(name)
    except tf.errors.UnimplementedError:
      # The reader cannot put a partitioned variable of the V1 format together.
      dtype = reader.get_variable_to_dtype_map()[name]
      return tf.raw_ops.Restore(
        file_pattern=_v1_pattern(prefix), tensor_name=name, dt=dtype
      ).numpy()


def read_step(prefix: str) -> int:
  """Returns the `global_step` of a checkpoint, 0 if it has none."""
  weights = open_weights(prefix)
  if "global_step" not in weights.shapes:
    return 0

  value = np.asarray(weights.read("global_step"))
  if value.shape or value.dtype.kind not in "iu":
    raise ValueError(
      f"{prefix}: global_step has shape {value.shape} and dtype {value.dtype}; "
      "expected an integer"
    )
  return int(value)


def has_slots(folder: str, step: int) -> bool:
  """Returns whether a checkpoint has Adam's slots, with which it resumes.

  A checkpoint that holds one of several tasks has the weights alone.
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
) -> fitting.Differences:
  """Assigns a checkpoint's values to variables, all of them or none.

  Args:
    prefix: as `find_checkpoint` returns it.
    variables: see `assign`.
    optional: see `assign`.

  Returns:
    The names that only one of the two has.
  """
  return assign(open_weights(prefix), variables, optional)


def assign(
  weights: Weights,
  variables: Mapping[str, tf.Variable],
  optional: Callable[[str], bool] = lambda name: False,
) -> fitting.Differences:
  """Assigns values to variables, all of them or none.

  The state of training that a checkpoint carries (Adam's slots, global_step) is
  skipped where `variables` does not ask for it. float16 is widened.

  Args:
    weights: as they were opened. They are released after this.
    variables: to be assigned, by their names in the checkpoint.
    optional: returns whether a name may be missing in one of the two.

  Returns:
    The names that only one of the two has, without the state of a training.

  Raises:
    ValueError: if a variable is missing (-) or not used (+) that is not
      optional, or if shapes or types differ. No variable was changed then.
    DamagedCheckpointError: if a value cannot be read or is NaN.
  """
  source = weights.source
  shapes = {name: tuple(np.shape(v)) for name, v in variables.items()}
  differences = fitting.compare(source, weights.shapes, shapes, optional)

  # Everything is read, and its checksum proved, before anything is assigned.
  # Then it is read again: so one value at a time is in memory beside the
  # variables, and not all of them. What comes over a network is kept instead.
  read = weights.read
  if remote.is_remote(source):
    read = functools.cache(read)
  shared = sorted(set(variables) & set(weights.shapes))
  for name in shared:
    _check_numbers(source, name, read(name), variables[name].dtype)
  for name in shared:
    variables[name].assign(tf.cast(read(name), variables[name].dtype))

  # A reader that holds all variables in memory may now forget them.
  weights.release()
  unread = [n for n in weights.unread if not fitting.is_foreign_state(n)]
  return fitting.Differences(differences.missing, differences.unused + unread)


def _check_numbers(
  source: str, name: str, value: np.ndarray, expected: tf.DType
) -> None:
  """Raises a ValueError unless a stored value can become a variable's."""
  # numpy calls bfloat16 a type of kind V. A weight takes no integers: the
  # numbers of a quantized model mean nothing without their scale.
  kinds = "fV" if expected.is_floating else "biufV"
  if (dtype := np.asarray(value).dtype).kind not in kinds:
    raise ValueError(
      f"{source}: {name} holds {dtype}; expected floating-point numbers"
    )
  if kinds == "fV" and np.isnan(np.asarray(value, np.float32)).any():
    raise DamagedCheckpointError(
      f"{source}: {name} holds NaN: its training diverged, or the file is "
      "damaged: take an earlier checkpoint"
    )


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
  """Loads the newest whole checkpoint of an output folder.

  A damaged one, or one that lost its index, is reported in a line on standard
  error, and the one before it is tried. A checkpoint without a step in its name
  (`model.ckpt`) counts if it is the only one.

  Args:
    folder: the --output_dir of a training.
    variables: to be assigned, by their names in the checkpoint.
    reads_all: whether damage also counts in variables that the model lacks.

  Returns:
    The step of the checkpoint, None if there is no checkpoint.

  Raises:
    ValueError: if all are damaged, or the newest belongs to another model.
  """

  def use(prefix, optional=lambda name: False):
    if reads_all:
      _read_all(prefix, skipped=variables)  # `load` reads these.
    try:
      load(prefix, variables, optional)
    except DamagedCheckpointError:
      raise
    except ValueError as error:
      raise ValueError(
        _describe_untrained(folder, prefix, variables)
        or f"{folder} belongs to another model; choose another --output_dir: "
        f"{error}"
      ) from error

  step = _use_newest(folder, use)
  if step is None and (newest := latest_checkpoint(folder)):
    # Not saved by a training: it may hold the heads of other tasks, too.
    use(newest, lambda n: n not in variables and not n.startswith("bert/"))
    return read_step(newest)
  return step


def _describe_untrained(folder, prefix, variables) -> str:
  """Says that a checkpoint lacks the optimizer's state of some variables alone.

  They were frozen, as the pooler is without next-sentence prediction. "" if the
  checkpoint is of another model.
  """
  stored = open_weights(prefix).shapes
  lacking = sorted(name for name in variables if name not in stored)
  fits = all(
    stored.get(name, variable.shape) == tuple(variable.shape)
    for name, variable in variables.items()
  )
  is_state = functools.partial(fitting.is_training_state, names=variables)
  if not (fits and lacking and all(map(is_state, lacking))):
    return ""
  return (
    f"{prefix} has no {lacking[0]} ({len(lacking)} such variables): the "
    "training there left some weights as they were, so one that changes them "
    f"cannot resume it: begin it with --model={folder} and another --output_dir"
  )


def save(
  folder: str, step: int, variables: Mapping[str, tf.Variable], keep: int
) -> str:
  """Writes `folder/model.ckpt-<step>` of a training; returns its prefix.

  Args:
    folder: the --output_dir.
    step: the number of updates made.
    variables: of the model and its optimizer, with `global_step`.
    keep: see `write`.
  """
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
  Then the `checkpoint` file is rewritten, and old checkpoints are deleted.

  Args:
    folder: an existing one.
    values: by name, in the types that are to be stored.
    step: the number of updates made. None writes `bert_model.ckpt`, as in a
      release.
    keep: the number of newest checkpoints to keep; 0 keeps all. Checkpoints of
      later steps are neither counted nor deleted: a run saves an earlier step
      only after it has found the later ones damaged.

  Raises:
    ValueError: if it cannot be written; older checkpoints are untouched then.
  """
  prefix = tf.io.gfile.join(folder, _RELEASED)
  if step is not None:
    prefix = checkpoint_prefix(folder, step)

  steps = []
  kept = []
  try:
    _write_files(prefix, values)
    if step is not None:
      steps = [saved for saved in saved_steps(folder) if saved <= step]
      kept = steps[-keep:] if keep else steps
      _write_state(folder, kept)
  except (tf.errors.OpError, OSError) as error:
    # A half-written file is of no use, and on a full disk it is in the way. A
    # folder that allows no removal either must not hide the first error.
    with contextlib.suppress(tf.errors.OpError):
      remove_temporary_files(folder)
    reason = plain_message(error)
    raise ValueError(f"{prefix}: cannot be written: {reason}") from error

  # The new checkpoint is complete: only now may old ones go.
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
  # The operation takes any names. TensorFlow's own savers do not write Google's
  # names of Keras variables, and v1's fails with mirrored variables.
  temporary = prefix + _TEMPORARY
  names = sorted(values)
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
  # An index is removed last, so that a kill in between leaves no data alone:
  # the temporary index marks the checkpoint as never completed.
  for name in sorted(names, key=lambda name: (name.endswith(_INDEX), name)):
    path = tf.io.gfile.join(folder, name)
    # Data without an index: killed between two renames, or two deletions. If an
    # index was lost in any other way, `_check_indices` has reported it, because
    # a training calls `restore` before this.
    is_orphan = _SAVED_DATA.fullmatch(name) and (
      name.removesuffix(_DATA) + _INDEX not in names
    )
    is_left_behind = _LEFT_BEHIND.fullmatch(name) or is_orphan
    if is_left_behind and not tf.io.gfile.isdir(path):
      tf.io.gfile.remove(path)


def delete(folder: str, step: int) -> None:
  """Deletes the checkpoint of a step."""
  prefix = f"model.ckpt-{step}."
  names = [name for name in list_folder(folder) if name.startswith(prefix)]

  # The index first: an interrupted deletion leaves no checkpoint.
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
  if isinstance(error, FileNotFoundError):
    return f"lacks {error.filename}: copy it there, too"
  message = getattr(error, "message", str(error))
  if "not an sstable" in message:  # TensorFlow asks for a "restore operator".
    return (
      "no checkpoint of TensorFlow; expected a folder with one, or the name of "
      "an .index file without its ending"
    )
  return re.sub(r"\{\{.*?\}\} ?| \[Op:.*", "", message)
