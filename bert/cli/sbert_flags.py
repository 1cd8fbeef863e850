"""Flags that the files of sentence-transformers in a folder state."""

from collections.abc import Sequence
import dataclasses
from typing import Any, TypeVar

from bert import modeling
from bert.cli import output_folder, shared_flags
from bert.data import progress, sbert_files, text_prompts
from bert.training import same_run

_Settings = TypeVar("_Settings", bound=shared_flags.FineTuningSettings)


def read(settings: Any, more: Sequence[str] = ()) -> dict[str, Any]:
  """Returns the flags that are stated and not given, and `PREPARATION`.

  With --pooling, nothing of what depends on it. A ValueError if --prompt_name
  is not the name of a prompt of the model.
  """
  asked = getattr(settings, "prompt_name", None)
  names = {"pooling", "normalize", "max_seq_length", *more} - settings.given
  for folder in settings.open_model().folders:
    found = sbert_files.read(folder, "pooling" not in settings.given)
    if not found:
      continue
    flags = {name: found[name] for name in found if name in names}
    shown = " ".join(f"--{n}={same_run.show(v)}" for n, v in flags.items())
    if shown:
      progress.note(f"{shown}, as sentence-transformers' files in {folder} say")
    texts = {name: found[name] for name in text_prompts.PREPARATION}
    if asked is not None:
      texts["default_prompt_name"] = asked
    name = texts["default_prompt_name"]
    prompt = text_prompts.find_prompt(texts["prompts"], name, "--prompt_name")
    if prompt:
      default = ", the default" if asked is None else ""
      line = f"{prompt!r} precedes every text: the prompt {name}{default}"
      progress.note(line)
    texts["lower_case"] &= not settings.do_lower_case  # Which does that, too.
    if texts["lower_case"]:
      progress.note(f"texts are lower-cased, as the files in {folder} say")
    return flags | texts
  if asked is not None:
    text_prompts.find_prompt(None, asked, "--prompt_name")
  return {}


def follow_start(settings: _Settings) -> _Settings:
  """Gives a run that begins with --model the flags that are stated.

  A ValueError says that the model prepares its texts as no training does.
  """
  begins = settings.do_train and settings.init_checkpoint
  if begins or output_folder.starts_elsewhere(settings):
    flags = read(settings)
    texts = {name: flags.pop(name, None) for name in text_prompts.PREPARATION}
    if texts["lower_case"] or texts["default_prompt_name"]:
      raise ValueError(
        f"--model={settings.model}: its files ask for a prompt before every "
        "text, or for lower case with accents, which this program has not: "
        "remove default_prompt_name and do_lower_case from a copy of it"
      )
    return dataclasses.replace(settings, **flags)
  return settings


def write_files(settings: Any, config: modeling.EncoderConfig) -> None:
  """Writes sentence-transformers' files, so that it makes the same vectors."""
  sbert_files.write(
    settings.output_dir,
    config.hidden_size,
    settings.pooling,
    settings.normalize,
    settings.max_seq_length,
  )
