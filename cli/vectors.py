"""Vectors of texts as the files of sentence-transformers in a folder state."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from cli import model_folder, output_folder, shared_flags
from data import progress, text_vectors
from export import trained_models
from training import same_run


def read_flags(
  settings: shared_flags.StartSettings, more: Sequence[str] = ()
) -> dict[str, Any]:
  """Returns the flags that are stated and not given; none with --pooling."""
  is_given = "pooling" in settings.given
  names = {"pooling", "normalize", "max_seq_length", *more} - settings.given
  for folder in () if is_given else settings.start().folders:
    found = text_vectors.read(folder).items()
    if flags := {name: value for name, value in found if name in names}:
      shown = " ".join(f"--{n}={same_run.show(v)}" for n, v in flags.items())
      progress.note(f"{shown}, as {folder}/modules.json says")
      return flags
  return {}


def follow_start(settings: Any) -> Any:
  """Gives a run that begins with --model the flags that are stated."""
  begins = settings.do_train and settings.init_checkpoint
  if begins or output_folder.starts_elsewhere(settings):
    return dataclasses.replace(settings, **read_flags(settings))
  return settings


def load(settings: Any, kind: str | None = None) -> trained_models.TrainedModel:
  """Loads a pre-trained model; its vectors are what its folder states."""
  config = model_folder.read_config(settings)
  weights, do_lower_case = settings.start().weights, settings.do_lower_case
  trained = trained_models.load_pretrained(weights, config, do_lower_case, kind)
  if "normalize" not in trained_models.setting_names(trained.kind):
    return trained
  flags = read_flags(settings)
  model_folder.check_length(flags.get("max_seq_length", 0), config)
  return trained_models.override(trained, flags)


def load_folder(path: str) -> trained_models.TrainedModel:
  """Loads the encoder in a folder, without flags."""
  settings = shared_flags.InferenceSettings(model=path)
  return load(model_folder.find_files(settings), "features")
