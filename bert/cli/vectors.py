"""Vectors of texts as the files of sentence-transformers in a folder state."""

from collections.abc import Sequence
import dataclasses
from typing import Any

from bert.cli import model_folder, output_folder, shared_flags
from bert.data import progress, text_vectors
from bert.export import trained_models
from bert.training import same_run


def read_flags(settings: Any, more: Sequence[str] = ()) -> dict[str, Any]:
  """Returns the flags that are stated and not given, and `PREPARATION`.

  With --pooling, nothing of what depends on it. A ValueError if --prompt_name
  is not the name of a prompt of the model.
  """
  asked = getattr(settings, "prompt_name", None)
  names = {"pooling", "normalize", "max_seq_length", *more} - settings.given
  for folder in settings.start().folders:
    found = text_vectors.read(folder, "pooling" not in settings.given)
    if not found:
      continue
    flags = {name: found[name] for name in found if name in names}
    shown = " ".join(f"--{n}={same_run.show(v)}" for n, v in flags.items())
    if shown:
      progress.note(f"{shown}, as sentence-transformers' files in {folder} say")
    texts = {name: found[name] for name in text_vectors.PREPARATION}
    if asked is not None:
      texts["default_prompt_name"] = asked
    name = texts["default_prompt_name"]
    prompt = text_vectors.find_prompt(texts["prompts"], name, "--prompt_name")
    if prompt:
      default = ", the default" if asked is None else ""
      line = f"{prompt!r} precedes every text: the prompt {name}{default}"
      progress.note(line)
    texts["lower_case"] &= not settings.do_lower_case  # Which does that, too.
    if texts["lower_case"]:
      progress.note(f"texts are lower-cased, as the files in {folder} say")
    return flags | texts
  if asked is not None:
    text_vectors.find_prompt(None, asked, "--prompt_name")
  return {}


def follow_start(settings: Any) -> Any:
  """Gives a run that begins with --model the flags that are stated.

  A ValueError says that the model prepares its texts as no training does.
  """
  begins = settings.do_train and settings.init_checkpoint
  if begins or output_folder.starts_elsewhere(settings):
    flags = read_flags(settings)
    texts = {name: flags.pop(name, None) for name in text_vectors.PREPARATION}
    if texts["lower_case"] or texts["default_prompt_name"]:
      raise ValueError(
        f"--model={settings.model}: its files ask for a prompt before every "
        "text, or for lower case with accents, which this program has not: "
        "remove default_prompt_name and do_lower_case from a copy of it"
      )
    return dataclasses.replace(settings, **flags)
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


def load_folder(path: str) -> tuple[trained_models.TrainedModel, str]:
  """Loads the encoder in a folder without flags, and finds its vocabulary."""
  settings = shared_flags.InferenceSettings(model=path)
  settings = model_folder.find_files(settings)
  return load(settings, "features"), settings.vocab_file
