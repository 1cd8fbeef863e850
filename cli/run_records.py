"""What a run records in its folder, for the runs after it to agree with.

settings.json ties it to its model, training.json to how that is trained, and
prediction.json to how it answers.
"""

import os
import sys
from typing import Any

from absl import flags
import tensorflow as tf

from cli import flag_values
from cli import model_folder
from cli import models
from cli import task_training
from data import files
from tasks import classification_results
from tasks import squad_results
from training import model_selection
from weights import checkpoints

_SETTINGS = "settings.json"  # What later runs in the folder must agree with.
_TRAINING = "training.json"  # What a resumed training must agree with, too.
_PREDICTION = "prediction.json"  # What predictions depend on.
_VOCABULARY = "vocab_file_sha256"  # What every settings.json has.
_WEIGHTS = "weights"  # `_identify` of them, if the folder has none of its own.
# The program or the vocabulary says these, if the flags do not.
_NOT_FOLLOWED = ("problem", "do_lower_case")
# Thresholds that an evaluation found for the weights of a moment.
_TUNED_FILES = (
  squad_results.TUNED_FILE,
  classification_results.THRESHOLDS_FILE,
)
# Besides the data, these must not change when training is resumed.
_TRAINING_FLAGS = (
  "train_batch_size",
  "learning_rate",
  "warmup_proportion",
  "layerwise_lr_decay",
  "freeze_layers",
  "precision",
  "seed",
)
# What evaluations do not depend on.
_OF_EXPORTS = ("has_text_pair", "by_character")


def follow_training(values: flags.FlagValues) -> None:
  """Gives flags that were not given the values that a training recorded.

  It is that of the weights: see `trained_folder`.
  """
  folder = values.output_dir
  if "seeds" in values and values.seeds:  # One training made all of them.
    folder = os.path.join(folder, f"seed-{values.seeds[0]}")
  start = values.init_checkpoint
  if values.model and not start:
    start = model_folder.find_weights(values.model)
  folder = trained_folder(folder, start)
  for name in (_SETTINGS, _PREDICTION):
    path = os.path.join(folder, name)
    for key, value in files.read_json_if_any(path).items():
      if key in _NOT_FOLLOWED or key not in values or values[key].present:
        continue
      if isinstance(values[key].default, str):
        value = str(value)  # A threshold, which may also be "auto".
      if values[key].value != value:
        print(f"--{key}={models.show(value)}, as {path} says", file=sys.stderr)
        setattr(values, key, value)


def trained_folder(output_dir: str, init_checkpoint: str | None) -> str:
  """Returns the folder of the training whose weights a run predicts with.

  It is --output_dir, unless only --init_checkpoint was trained for a task.
  """
  if init_checkpoint and not _holds_weights(output_dir):
    folders = model_folder.open(init_checkpoint).folders
    return next(filter(_is_of_training, folders), output_dir)
  return output_dir


def _holds_weights(folder):
  is_best = model_selection.best_step(folder) is not None
  return is_best or checkpoints.latest_checkpoint(folder) is not None


def _is_of_training(folder):
  try:
    return _VOCABULARY in files.read_json_if_any(
      os.path.join(folder, _SETTINGS)
    )
  except ValueError:
    if files.exists(os.path.join(folder, "bert_config.json")):
      raise
    return False  # It may be an editor's.


def tuned_folder(settings: flag_values.Settings) -> str | None:
  """Returns the folder whose thresholds are tuned for the very weights.

  It is --output_dir if these weights were trained or evaluated there, else that
  of their training, if it predicts with them itself; None if there is none.
  """
  folder, weights = settings.output_dir, _weights_of(settings)
  is_tuned = any(files.exists(os.path.join(folder, n)) for n in _TUNED_FILES)
  if _is_same(folder, weights) and (is_tuned or weights is None):
    return folder
  source = trained_folder(folder, settings.init_checkpoint)
  if source == folder:
    return None
  own = _identify(model_folder.find_weights(source))
  return source if own == weights else None


def _is_same(folder, weights):
  """Tells whether the last run in a folder had these weights, if it says so."""
  earlier = files.read_json_if_any(os.path.join(folder, _SETTINGS))
  return earlier.get(_WEIGHTS, weights) == weights


def _weights_of(settings):
  """Identifies the weights of a folder that has none of its own."""
  if settings.do_train or _holds_weights(settings.output_dir):
    return None
  return settings.init_checkpoint and _identify(settings.init_checkpoint)


def _identify(start):
  """Returns a hash of the index, which has all checksums, or else a path."""
  prefix = model_folder.open(start).source
  index = f"{prefix}.index"
  return files.hash_file(index) if files.exists(index) else prefix


def check(settings: flag_values.Settings, inputs: Any) -> None:
  """Compares a run with those before it, before any work.

  Args:
    inputs: a `fine_tuning.Inputs`.

  Raises:
    ValueError: it does not agree with what they recorded.
  """
  folder = settings.output_dir
  is_trained = checkpoints.latest_checkpoint(folder) is not None
  path = os.path.join(folder, _SETTINGS)
  expected = {path: of_model(settings, inputs)}
  if not inputs.train:
    source = trained_folder(folder, settings.init_checkpoint)
    expected[os.path.join(source, _SETTINGS)] = expected[path]
  elif is_trained:
    path = os.path.join(folder, _TRAINING)
    expected[path] = of_training(settings, inputs)
  for path, values in expected.items():
    models.check_settings(path, values)
    if is_trained and not files.exists(path):
      print(
        f"note: no {path}: how the checkpoint beside it was trained is not "
        f"known, so that none of {', '.join(values)} is compared",
        file=sys.stderr,
      )


def write(settings: flag_values.Settings, inputs: Any) -> None:
  """Stores in the run's folder what later runs in it must agree with.

  A run that trains also stores the settings that its predictions depend on, so
  that export_saved_model.py can predict as the run does.
  """
  folder = settings.output_dir
  path = os.path.join(folder, _SETTINGS)
  facts, weights = of_model(settings, inputs), _weights_of(settings)
  if not _is_same(folder, weights):
    remove_tuned(folder)
  files.write_json(path, facts | ({_WEIGHTS: weights} if weights else {}))
  if inputs.train:
    facts = of_training(settings, inputs)
    # A run that does not evaluate keeps an earlier run's evaluation data.
    path = os.path.join(folder, _TRAINING)
    files.write_json(path, {**files.read_json_if_any(path), **facts})
    path = os.path.join(folder, _PREDICTION)
    files.write_json(path, _of_prediction(settings, inputs))
  else:
    _tell_other_predictions(settings, inputs)


def _tell_other_predictions(settings, inputs):
  """Warns if exports of the folder will predict differently from this run."""
  folder = trained_folder(settings.output_dir, settings.init_checkpoint)
  path = os.path.join(folder, _PREDICTION)
  earlier = files.read_json_if_any(path)
  differing = [
    f"{name} {value} instead of {earlier[name]}"
    for name, value in _of_prediction(settings, inputs).items()
    if earlier.get(name, value) != value
  ]
  if differing:
    print(
      f"note: this run predicts with {', '.join(differing)}; the training and "
      f"exports of its folder have what is in {path}",
      file=sys.stderr,
    )


def of_model(settings: flag_values.Settings, inputs: Any) -> dict[str, Any]:
  """Returns what every run in a folder must agree with."""
  return {
    **inputs.model_settings,
    "do_lower_case": settings.do_lower_case,
    _VOCABULARY: files.hash_file(settings.vocab_file),
  }


def of_training(settings: flag_values.Settings, inputs: Any) -> dict[str, Any]:
  """Returns what a run that resumes the training must agree with."""
  selection = {}
  if task_training.evaluates(settings):
    # Scores of other data, or of other answers, cannot be compared with the
    # best score.
    selection = {
      **{
        name: value
        for name, value in inputs.prediction_settings.items()
        if name not in _OF_EXPORTS
      },
      "best_metric": f"eval_{inputs.metric}",
      "evaluation_features": inputs.eval[0].key,
    }
  return {
    **selection,
    "training_features": inputs.train.key,
    **{name: getattr(settings, name) for name in _TRAINING_FLAGS},
    **inputs.training_settings,
  }


def _of_prediction(settings, inputs) -> dict[str, Any]:
  return {
    "max_seq_length": settings.max_seq_length,
    **inputs.prediction_settings,
  }


def remove_tuned(folder: str) -> None:
  """Deletes the thresholds that were tuned for weights trained so far."""
  for name in _TUNED_FILES:
    path = os.path.join(folder, name)
    if files.exists(path):
      tf.io.gfile.remove(path)
      print(f"removed {path}, tuned for other weights")
