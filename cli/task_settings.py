"""Checks of the settings of fine-tuning programs, and what they stand for."""

from collections.abc import Sequence
import dataclasses
import os
import sys
from typing import TypeVar

import numpy as np

from cli import devices, model_folder, output_folder, shared_flags
from data import files
from inputs import feature_files
import modeling
import tokenization
from training import model_selection, same_run

_Settings = TypeVar("_Settings", bound=shared_flags.FineTuningSettings)
# The program or the vocabulary decides these, if the flags do not.
_NOT_FOLLOWED = ("problem", "do_lower_case")


def read(kind: type[_Settings]) -> _Settings:
  """Reads the flags, after checking that a remote TPU can work with them.

  A run that does not train predicts as the training of its weights: flags that
  are not given have the values that are recorded there.

  Raises:
    ValueError: a remote TPU cannot open a path or be trained from here; --model
      lacks a file; or --do_lower_case contradicts the model.
  """
  settings = kind.read()
  devices.check_tpu_paths(settings)  # Before any file is looked for.
  if settings.do_train and devices.uses_tpu_elsewhere(settings):
    raise ValueError(
      "--distribution=tpu: this program hands the training data to the TPU, "
      "which only one of the same machine can take: run on the TPU's own "
      "machine with --tpu_name=local"
    )
  model_folder.find_files()
  settings = kind.read()
  tokenization.validate_case_matches_checkpoint(
    settings.do_lower_case, settings.init_checkpoint
  )
  return settings if settings.do_train else _follow_training(settings)


def _follow_training(settings: _Settings) -> _Settings:
  """Gives flags that were not given the values that a training recorded."""
  folder, defaults = settings.output_dir, type(settings)
  if seeds := getattr(settings, "seeds", ()):  # One training made all of them.
    folder = os.path.join(folder, f"seed-{seeds[0]}")
  folder = output_folder.trained_folder(folder, settings.init_checkpoint)
  values = settings.flag_values()
  followed = {}
  for name, (value, path) in same_run.read_training(folder).items():
    if name in _NOT_FOLLOWED or name not in values or name in settings.given:
      continue
    if isinstance(value, list):
      value = tuple(value)
    if isinstance(getattr(defaults, name), str):
      value = str(value)  # A threshold, which may also be "auto".
    if followed.get(name, values[name]) != value:
      followed[name] = value
      shown = same_run.show(value)
      print(f"--{name}={shown}, as {path} says", file=sys.stderr)
  return dataclasses.replace(settings, **followed)


def check_evaluations(settings: shared_flags.FineTuningSettings) -> None:
  """Raises a ValueError if the flags of evaluations contradict each other.

  So do best weights of an earlier training, which programs would use instead of
  those of one without evaluations.
  """
  evaluates = settings.evaluates_in_training
  if settings.eval_every_steps and settings.eval_every_epochs:
    raise ValueError(
      "--eval_every_steps and --eval_every_epochs: pass only one"
    )
  patience = settings.early_stopping_patience
  if settings.do_train and patience and not evaluates:
    raise ValueError(
      f"--early_stopping_patience={patience} needs --eval_every_epochs or "
      "--eval_every_steps"
    )
  best = model_selection.best_step(settings.output_dir)
  if settings.do_train and best is not None and not evaluates:
    raise ValueError(
      f"--output_dir={settings.output_dir}: its best weights, of step {best}, "
      "would be used instead of those of a training without evaluations: pass "
      "--eval_every_epochs or --eval_every_steps, or move the folder best away"
    )


def find_data_files(
  settings: shared_flags.DataSettings,
  endings: Sequence[str],
  predicts: bool = True,
) -> dict[str, str]:
  """Finds the files of a program with three data files.

  Args:
    predicts: whether the task does anything at --do_predict.

  Returns:
    Their paths, by purpose: train, eval or predict.
  """
  shared_flags.check_work(settings)
  evaluates = settings.do_eval or settings.evaluates_in_training
  paths = {}
  for kind, is_asked, path, names in (
    ("train", settings.do_train, settings.train_file, ("train",)),
    ("eval", evaluates, settings.eval_file, ("dev", "valid", "val")),
    (
      "predict",
      settings.do_predict and predicts,
      settings.predict_file,
      ("test",),
    ),
  ):
    if is_asked:
      paths[kind] = path or _find_data_file(
        settings.data_dir, kind, names, endings
      )
  return paths


def _find_data_file(folder, kind, names, endings) -> str:
  if not folder:
    raise ValueError(f"--do_{kind} needs --{kind}_file or --data_dir")
  path = files.find_one(folder, names, endings)
  if not path:
    raise ValueError(
      f"--data_dir={folder}: no file for --do_{kind}; expected "
      f"{' or '.join(names)}, ending in {', '.join(endings)}, with or without "
      ".gz or .xz after it"
    )
  return path


def read_config(settings) -> modeling.EncoderConfig:
  """Reads the config; compares vocabulary, casing and lengths with it."""
  config = model_folder.read_config(settings)
  model_folder.check_vocabulary(settings.vocab_file, config)
  if settings.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={settings.max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  tokenization.validate_case_matches_checkpoint(
    settings.do_lower_case, settings.init_checkpoint
  )
  return config


def batch_order(
  settings, lengths: np.ndarray, batch_size: int
) -> list[np.ndarray]:
  """Returns the batches for prediction, as row indices.

  Args:
    lengths: int [N], tokens of each row.
    batch_size: rows of --max_seq_length per batch; more if they are shorter.
  """
  if uses_fixed_shapes(settings):
    return feature_files.equal_batches(len(lengths), batch_size)
  return feature_files.batches_by_tokens(
    lengths, batch_size * settings.max_seq_length
  )


def uses_fixed_shapes(settings) -> bool:
  """Returns whether all batches must have one shape."""
  return settings.pad_to_max_length or devices.uses_tpu(settings)


def labels_file(settings: shared_flags.FineTuningSettings) -> str:
  """Returns the path of a run's labels file."""
  return os.path.join(settings.output_dir, "labels.txt")


def initial_labels(init_checkpoint: str | None) -> tuple[str, ...]:
  """Returns the labels of the head in --init_checkpoint, () if not known."""
  if not init_checkpoint:
    return ()
  start = model_folder.open(init_checkpoint)
  # They may be of a head that is not read, such as DistilBERT's.
  return start.labels if "output_weights" in start.weights.shapes else ()
