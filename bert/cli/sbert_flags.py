"""Flags that the files of sentence-transformers in a folder state."""

from collections.abc import Sequence
import dataclasses
from typing import Any, TypeVar

from bert import modeling
from bert.cli import model_folder, output_folder, shared_flags
from bert.data import progress, sbert_files, text_prompts
from bert.training import same_run

_Settings = TypeVar("_Settings", bound=shared_flags.FineTuningSettings)


def read(settings: Any, more: Sequence[str] = ()) -> dict[str, Any]:
  """Reads what the files of sentence-transformers state, and prints it.

  Args:
    settings: the flags of a program, with a model that `open_model` opens. A
      flag that the user gave counts more than a file, and with --pooling the
      settings that depend on the pooling are not read.
    more: names of flags that the program also takes from the files, such as
      "layers".

  Returns:
    The values by the name of the flag, together with the entries of
    `text_prompts.PREPARATION` and, if the model has one, the layer "dense", a
    `heads.VectorDense`; {} if no folder of the model has such files.

  Raises:
    ValueError: --prompt_name is not the name of a prompt of the model.
  """
  asked = getattr(settings, "prompt_name", None)
  names = {"pooling", "normalize", "max_seq_length", *more} - settings.given

  # The first folder of the model that has such files decides.
  for folder in settings.open_model().folders:
    stated = sbert_files.read(folder, "pooling" not in settings.given)
    if not stated:
      continue

    # The vector of a text: pooling, length, normalization.
    flags = {name: stated[name] for name in stated if name in names}
    listing = " ".join(f"--{n}={same_run.show(v)}" for n, v in flags.items())
    if listing:
      progress.note(
        f"{listing}, as sentence-transformers' files in {folder} say"
      )

    # The layer that the pooled vector goes through, if there is one.
    if stated.get("dense"):
      flags["dense"] = dense = model_folder.read_dense(stated["dense"])
      layer = f"the dense layer {dense.source}, {dense.describe()}"
      progress.note(f"after the pooling comes {layer}")

    # The text before it becomes tokens: the user's prompt, or the default one.
    texts = {name: stated[name] for name in text_prompts.PREPARATION}
    if asked is not None:
      texts["default_prompt_name"] = asked
    name = texts["default_prompt_name"]
    prompt = text_prompts.find_prompt(texts["prompts"], name, "--prompt_name")
    if prompt:
      default = ", the default" if asked is None else ""
      line = f"{prompt!r} precedes every text: the prompt {name}{default}"
      progress.note(line)

    # The tokenizer's --do_lower_case lower-cases, too (and strips accents):
    # then nothing is left to do.
    texts["lower_case"] &= not settings.do_lower_case
    if texts["lower_case"]:
      progress.note(f"texts are lower-cased, as the files in {folder} say")
    return flags | texts

  # No folder has such files: a model without prompts has no prompt to ask for.
  if asked is not None:
    text_prompts.find_prompt(None, asked, "--prompt_name")
  return {}


def follow_start(settings: _Settings) -> _Settings:
  """Gives a run that begins with --model the flags that are stated.

  A ValueError says that the model prepares its texts as no training does.
  """
  # A run with weights of its own follows what its folder records instead.
  begins = settings.do_train and settings.init_checkpoint
  if begins or output_folder.starts_elsewhere(settings):
    flags = read(settings)

    # The layer is no part of the model that is trained, nor of its checkpoints.
    if "dense" in flags:
      raise ValueError(
        f"--model={settings.model}: a Dense module follows its pooling, which "
        "this program does not train: to train the model without it, pass "
        f"--pooling={flags['pooling']}"
      )

    # Training takes texts as they are: the vectors would not be the model's.
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
