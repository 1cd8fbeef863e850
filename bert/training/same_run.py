"""What a run is: recorded in its folder, and compared by the runs after it.

settings.json ties a folder to its model, training.json to how that is trained
(a pre-training to its phases), and prediction.json to how it answers. The
workers of a cluster compare theirs before they begin.
"""

from collections.abc import Collection, Mapping, Sequence
import hashlib
import json
import os
from typing import Any, NamedTuple
import zlib

import keras
import numpy as np
import tensorflow as tf

from bert.data import files, label_files, progress, run_files
from bert.inputs import held_out
from bert.training import training_plan
from bert.weights import checkpoints

_TRAINING = "training.json"
_PREDICTION = "prediction.json"
VOCABULARY = run_files.VOCABULARY
HELD_OUT = "held_out"  # In the names of settings of what was held out.
# Settings that decide which records a pre-training reads, and in which order.
_ORDER = ("input_file", "seed")
# For digests that differ, if a run recorded nothing of what they are made of.
_OTHER_DATA = "the {} data, or a flag that shapes its features, was another"
# Settings that are digests of features or files: the setting that holds what
# the digest is made of, and the word for it in messages.
_FEATURES = {
  "training_features": ("training_data", "training"),
  "evaluation_features": ("evaluation_data", "evaluation"),
  "held_out_lines": ("held_out_data", "held-out"),
}


class RunRecord(NamedTuple):
  """What a run is, as JSON values by name."""

  # settings.json: every run in the folder must agree with it.
  model: Mapping[str, Any]
  # prediction.json: predictions depend on it, besides the weights.
  answers: Mapping[str, Any]
  # training.json: a resumed training must agree with it; None if the run does
  # not train.
  training: Mapping[str, Any] | None = None
  flags: Collection[str] = ()  # The names of the program's flags.


def _find_changes(
  earlier: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
  """Returns recorded settings that differ now: both values by name."""
  settings = json.loads(json.dumps(settings))  # Tuples become lists.
  return {
    name: (earlier[name], value)
    for name, value in settings.items()
    # Older versions did not record all of them.
    if name in earlier and earlier[name] != value
  }


def _read(path: str) -> dict[str, Any]:
  """Reads what runs recorded in a file, also by older versions."""
  recorded = files.read_json_if_any(path)

  # Older versions recorded this setting as a pair, under another name.
  if values := recorded.pop("eval_share and seed", None):
    share, seed = values
    recorded["held_out"] = {"eval_share": share, "seed": seed}
  return recorded


def compare(
  path: str, settings: Mapping[str, Any], flags: Collection[str] = ()
) -> None:
  """Raises a ValueError if settings are not those recorded in a JSON file.

  The message names each flag, with its value and the earlier one.

  Args:
    path: of the file; if it does not exist, nothing is compared.
    settings: of this run, JSON values by name.
    flags: the names of the program's flags.
  """
  earlier = _read(path)
  changes: list[str] = []
  for name, (old, new) in _find_changes(earlier, settings).items():
    # Several tasks record theirs as `<task>.<setting>`.
    task, dot, setting = name.rpartition(".")

    # A digest says nothing to a reader. Of a vocabulary its flag is named, of
    # features what they were made of. That is recorded, too, as `..._data`, but
    # only for the message: it has the names of files, which may change.
    if setting == VOCABULARY:
      changes.append(f"{task}{dot}--vocab_file is another vocabulary")
    elif setting in _FEATURES:
      changes += _describe_features(name, earlier, settings, flags)
    elif not setting.endswith("_data"):
      changes += _describe_parts(name, old, new, flags)

  if changes:
    # A flag may shape the features and the answers, which both record it.
    listing = ", ".join(dict.fromkeys(changes))
    raise ValueError(
      f"{listing}: the runs of {path} had other settings: restore them, or "
      "choose another --output_dir"
    )


def _describe_features(name: str, earlier, settings, flags) -> list[str]:
  """Says why the digest of features, a setting of this name, differs."""
  task, dot, setting = name.rpartition(".")
  data_setting, whose = _FEATURES[setting]
  data_setting = f"{task}{dot}{data_setting}"
  changes = _compare_data(
    earlier.get(data_setting, {}), settings.get(data_setting, {}), flags
  )

  # Older versions recorded the digest alone.
  changes = changes or [_OTHER_DATA.format(whose)]
  return [f"{task}: {change}" if task else change for change in changes]


def _describe_parts(name: str, old: Any, new: Any, flags) -> list[str]:
  """Names what differs in a setting, which may hold several by name."""
  # Such as the share and the seed of examples that are held out.
  parts = {name: (old, new)}
  if isinstance(old, dict) and isinstance(new, dict):
    parts = _find_changes(old, new)
  return [
    _describe_change(part, *values, flags) for part, values in parts.items()
  ]


def _compare_data(old, new, flags) -> list[str]:
  """Returns how the data of features differ: their flags, and their files.

  Runs of older versions did not record them.
  """
  if not old or not new:
    return []

  changes = [
    _describe_change(name, *values, flags)
    for name, values in _find_changes(old, new).items()
    if name != "files"
  ]

  # Pairs of a file's name and the digest of its content. The same content under
  # another name changes nothing.
  files_then, files_now = old.get("files", []), new.get("files", [])
  if len(files_then) != len(files_now):
    changes.append(f"{len(files_now)} data files (was {len(files_then)})")
    return changes
  for (name_then, hash_then), (name, hash_now) in zip(
    files_then, files_now, strict=True
  ):
    if hash_then != hash_now:
      was = "other lines" if name == name_then else name_then
      changes.append(f"the data of {name} (was {was})")
  return changes


def _describe_change(name: str, old: Any, new: Any, flags) -> str:
  """Names a setting, as its flag if it is one, with both values."""
  # Columns and tags are recorded without the word that their flags have.
  for flag in (f"{name}_column", f"tag_{name}"):
    if flag in flags:
      name = flag
      break

  # A setting without a flag is called by its name.
  named = f"the {name.replace('_', ' ')} "
  if "." in name:  # It is of a file of tasks.
    named = f"{name}="
  elif name in flags:
    named = f"--{name}="

  # Scores are recorded as eval_accuracy; flags call them accuracy.
  value, earlier = (show(v).removeprefix("eval_") for v in (new, old))
  return f"{named}{value} (was {earlier})"


def show(value: Any) -> str:
  """Returns a setting as a command line has it."""
  if isinstance(value, (list, tuple)):
    return ",".join(map(str, value)) or "none"

  # Python writes True, a command line true.
  if isinstance(value, bool):
    return str(value).lower()
  return "none" if value is None else str(value)


def check_config(folder: str, config: Any) -> None:
  """Raises a ValueError if the model in a folder has another config."""
  path = os.path.join(folder, run_files.CONFIG)
  if not files.exists(path):
    return

  # Both as the fields of a file, to compare them by name.
  ours = json.loads(config.to_json_string())
  theirs = json.loads(checkpoints.read_config(path).to_json_string())

  listing = ", ".join(
    f"{name}: {theirs.get(name)}, not {ours.get(name)}"
    for name in theirs | ours
    if theirs.get(name) != ours.get(name)
  )
  if listing:
    raise ValueError(
      f"--output_dir={folder} belongs to another model ({listing}): choose "
      f"another folder, or pass --bert_config_file={path}"
    )


def check(folder: str, trained_folder: str, run: RunRecord) -> None:
  """Raises a ValueError if a run does not agree with the runs before it.

  Args:
    folder: the --output_dir of the run.
    trained_folder: the folder of the training whose weights it uses.
    run: the record of the run.
  """
  # A run that only predicts may write to another folder than the training. It
  # must agree with the model of both.
  is_trained = checkpoints.latest_checkpoint(folder) is not None
  expected = {os.path.join(folder, run_files.SETTINGS): run.model}
  if run.training is None:
    expected[os.path.join(trained_folder, run_files.SETTINGS)] = run.model
  elif is_trained:
    expected[os.path.join(folder, _TRAINING)] = run.training

  # Checkpoints without such a file are from another program, or older.
  for path, values in expected.items():
    compare(path, values, run.flags)
    if is_trained and not files.exists(path):
      _note_unknown(path, "the checkpoint beside it", values)


def _note_unknown(path, checkpoint, settings):
  progress.note(
    f"note: no {path}: how {checkpoint} was trained is not known, so that none "
    f"of {', '.join(settings)} is compared"
  )


def resume_training(
  folder: str,
  training: Mapping[str, Any],
  writes: bool,
  flags: Collection[str] = (),
) -> None:
  """Compares a training with the earlier one in its folder, and records it.

  Args:
    folder: the --output_dir.
    training: the settings that a resumed training must have the same.
    writes: whether to record it; one of several workers does.
    flags: the names of the program's flags.
  """
  # Without a checkpoint, the updates of an earlier run were lost: this one
  # begins anew, with any settings.
  if checkpoints.latest_checkpoint(folder):
    compare(os.path.join(folder, _TRAINING), training, flags)
  if writes:
    _write_training(folder, training)


def _write_training(folder, training) -> None:
  path = os.path.join(folder, _TRAINING)
  # A run that does not evaluate keeps an earlier run's evaluation data.
  files.write_json(path, {**files.read_json_if_any(path), **training})


def write(
  folder: str, trained_folder: str, run: RunRecord, sets: Sequence[Any] = ()
) -> None:
  """Records a run: later runs must agree with it, and exports answer alike.

  Args:
    folder: the --output_dir of the run.
    trained_folder: the folder of the training whose weights it uses.
    run: the record of the run.
    sets: its sets of examples, of which held-out ones are written.
  """
  for examples in sets:
    held_out.write(folder, examples)

  # A run that does not train leaves the records of the training as they are,
  # and with them what that held out.
  path = os.path.join(folder, run_files.SETTINGS)
  if run.training is None:
    model = {n: x for n, x in run.model.items() if HELD_OUT not in n}
    files.write_json(path, {**files.read_json_if_any(path), **model})
    _note_other_answers(trained_folder, run)
    return

  files.write_json(path, run.model)
  _write_training(folder, run.training)
  _remove_tuned(folder, run)
  files.write_json(os.path.join(folder, _PREDICTION), run.answers)


def _remove_tuned(folder: str, run: RunRecord) -> None:
  """Removes what was tuned for other answers than those of a training."""
  paths = [os.path.join(folder, name) for name in label_files.TUNED]
  others = ", ".join(find_other_answers(folder, run))
  for path in filter(files.exists, paths if others else ()):
    files.remove(path)
    progress.note(f"note: removed {path}: tuned with another {others}")


def find_other_answers(
  trained_folder: str, run: RunRecord
) -> dict[str, tuple[Any, Any]]:
  """Returns how a run answers otherwise than exports of its weights do.

  Args:
    trained_folder: the folder of the training whose weights it uses.
    run: the record of the run.

  Returns:
    By the name of a setting, its value in prediction.json and that of the run.
  """
  path = os.path.join(trained_folder, _PREDICTION)
  return _find_changes(files.read_json_if_any(path), run.answers)


def _note_other_answers(trained, run):
  """Warns if exports of the folder will answer differently from this run."""
  # No error: a user may want to predict with other settings once.
  differing = [
    f"{name} {show(new)} instead of {show(old)}"
    for name, (old, new) in find_other_answers(trained, run).items()
  ]
  if differing:
    path = os.path.join(trained, _PREDICTION)
    progress.note(
      f"note: this run predicts with {', '.join(differing)}; the training and "
      f"exports of its folder have what is in {path}, and keep what was tuned "
      "for that"
    )


def read_training(folder: str) -> dict[str, tuple[Any, str]]:
  """Returns what a training recorded for predictions: values and files.

  How it was trained, which training.json holds, does not matter for them.
  """
  recorded = {}
  for file_name in (run_files.SETTINGS, _PREDICTION):
    path = os.path.join(folder, file_name)
    for name, value in _read(path).items():
      recorded[name] = (value, path)
  return recorded


def read_precision(folder: str) -> tuple[str, str] | None:
  """Returns the --precision of a training to resume, and the file it is in."""
  # Without a checkpoint there is nothing to resume.
  path = os.path.join(folder, _TRAINING)
  steps = checkpoints.saved_steps(folder)
  recorded = files.read_json_if_any(path) if steps else {}

  # A pre-training resumes in its last phase.
  if "phases" in recorded:
    for phase in _read_phases(path, steps[-1]):
      recorded = phase.settings
  for name, value in recorded.items():
    if name.rpartition(".")[2] == "precision":  # Or `<task>.precision`.
      return str(value), path
  return None


def is_of_training(folder: str) -> bool:
  """Returns whether a training recorded itself in a folder."""
  return VOCABULARY in run_files.read_settings(folder)


def enter_phase(
  folder: str,
  step: int,
  settings: Mapping[str, Any],
  is_new_phase: bool,
  writes: bool,
) -> training_plan.Phase:
  """Returns the phase to pre-train in, after comparing it with the run so far.

  Settings that affect the updates must not change within a phase. A new phase,
  which has to be requested, keeps the step, the weights and Adam's moments; its
  records continue after the last one used if input and seed are the same.

  Args:
    folder: the --output_dir.
    step: the number of updates made so far.
    settings: JSON values by flag, among them train_batch_size.
    is_new_phase: whether --new_phase was given.
    writes: whether to record the phase; one of several workers does.

  Raises:
    ValueError: settings have changed without a new phase, or the folder's file
      is damaged.
  """
  # The first phase of a run begins with the first update and the first record.
  # A checkpoint without any is from another program, or older.
  path = os.path.join(folder, _TRAINING)
  recorded = _read_phases(path, step)
  phases = _without_idle_phase(recorded, step, settings)
  if not phases:
    phases = [training_plan.Phase(0, 0, settings)]
    if step:
      _note_unknown(path, f"the checkpoint of step {step}", settings)

  # With the same settings the last phase continues.
  last = phases[-1]
  if changes := _describe_changes(last.settings, settings):
    listing = ", ".join(changes)
    if not is_new_phase:
      raise ValueError(
        f"{listing}: the run of {path} cannot resume at step {step} "
        "with changed settings: restore them, choose another --output_dir, or "
        "start a new phase with --new_phase=true"
      )

    last = _phase_after(last, step, settings)
    print(
      f"new phase from step {step} and record {last.first_record}: {listing}"
    )
    phases.append(last)

  if writes and phases != recorded:
    entries = [
      {"first_step": first_step, "first_record": record, **values}
      for first_step, record, values in phases
    ]
    files.write_json(path, {"phases": entries})
  return last


def _without_idle_phase(
  recorded: Sequence[training_plan.Phase], step: int, settings
) -> list[training_plan.Phase]:
  """Leaves out a phase that was ended before its first update.

  It stays if these are its settings, to continue. Else the phase before it may
  continue, as if nobody had begun another one.
  """
  phases = list(recorded)
  while len(phases) > 1 and phases[-1].first_step == step:
    if not _describe_changes(phases[-1].settings, settings):
      break
    phases.pop()
  return phases


def _phase_after(
  last: training_plan.Phase, step: int, settings
) -> training_plan.Phase:
  """Returns the phase of other settings that begins at a step."""
  # Other files, or another seed, give another series of records: it is read
  # from its beginning.
  is_same_order = all(last.settings.get(k) == settings[k] for k in _ORDER)
  record = last.record_at(step) if is_same_order else 0
  return training_plan.Phase(step, record, settings)


def _describe_changes(old, new) -> list[str]:
  """Names what differs, also what only one of two programs records."""
  # A dict of both keeps the order of the settings, which a set would not.
  changes = []
  for name in {**new, **old}:
    if old.get(name) != new.get(name):
      was = show(old.get(name, "not recorded"))
      changes.append(f"--{name}={show(new.get(name))} (was {was})")
  return changes


def _read_phases(path: str, step: int) -> list[training_plan.Phase]:
  """Reads the phases up to a step; later updates will be made again."""
  # Without an update, a recorded phase is of a run that was lost.
  if not step or not files.exists(path):
    return []

  # What is left of an entry, without the two numbers, are its settings.
  try:
    phases = [
      training_plan.Phase(
        int(p.pop("first_step")), int(p.pop("first_record")), p
      )
      for p in files.read_json(path)["phases"]
    ]
    return [phase for phase in phases if phase.first_step <= step]
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{path}: not the phases of a run ({error!r}); delete it to go on with "
      "the settings given"
    ) from None


def digest_of_values(
  variables: Mapping[str, tf.Variable], dtype: tf.DType | None = None
) -> str:
  """Returns a checksum of the values of variables, for comparison.

  Args:
    variables: by name.
    dtype: what values are rounded to before; None: they stay as they are.
  """
  # In the order of the names: dicts of the same variables may differ in theirs.
  checksum = 0
  for name in sorted(variables):
    value = np.ascontiguousarray(variables[name].read_value())
    if dtype:
      value = value.astype(dtype.as_numpy_dtype)
    checksum = zlib.crc32(value.tobytes(), checksum)
  return f"{checksum:08x}"


def identify_weights(model: keras.layers.Layer) -> str:
  """Returns a checksum of the weights that decide a model's answers.

  Numbers that were tuned for some weights are stored with it, so that they are
  not used for other weights.
  """
  # A process that only predicts may hold a part of the same weights in bfloat16
  # (bert/encoders/compiled.py). It must find what a training or an export calls
  # them, so all are compared as bfloat16.
  return digest_of_values(_deciding(model), tf.bfloat16)


def hash_weights(model: keras.layers.Layer) -> str:
  """Returns the SHA-256 of the weights that decide a model's answers.

  An index of search.py stores it, to refuse the vectors of other weights.
  """
  variables = _deciding(model)
  digest = hashlib.sha256()
  for name in sorted(variables):
    # As bytes in place: `tobytes` would copy the largest table.
    value = np.ascontiguousarray(variables[name].read_value())
    digest.update(value.view(np.uint8).data)
  return digest.hexdigest()


def _deciding(model) -> dict[str, tf.Variable]:
  """Returns the variables on which answers depend.

  An encoder alone answers with vectors of its last layer, without its pooler.
  """
  # A model without this attribute is an encoder alone.
  has_pooler = getattr(model, "uses_pooler", False)
  return {
    name: variable
    for name, variable in checkpoints.model_variables(model).items()
    if has_pooler or "/pooler/" not in name
  }
