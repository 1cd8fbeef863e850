"""Writes models, with the files that belong to them, in three formats."""

from collections.abc import Sequence
import os
from typing import Any, NamedTuple

from convert import architecture, conversion, huggingface, keras_hub
from data import atomic, files, label_files
from vocabularies import vocabulary_table
from weights import checkpoints, fitting

_LOADING = {
  "google": "python fill_mask.py --model=FOLDER --text=...\n",
  "hugging_face": """\
from transformers import AutoTokenizer, {users}
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {users}.from_pretrained("FOLDER")
""",
  "keras_hub": """\
import keras_hub
model = keras_hub.models.{users}.from_preset("FOLDER")
""",
}


class _Written(NamedTuple):
  """The contents of a folder of some format."""

  weights: str  # The name of the file.
  users: str = ""  # The class that loads it.
  rest: Sequence[str] = ()  # Variables in no file of that class.
  lines: Sequence[str] = ()  # About other files.


def write(
  output_format: str, folder: str, model: conversion.Model
) -> list[str]:
  """Writes a model in a format; returns lines about what was written.

  Args:
    output_format: "google": a checkpoint as in Google's releases or, with an
      optimizer's slots, to resume from. "hugging_face": a folder for a class of
      transformers. "keras_hub": for BertBackbone or BertTextClassifier; its
      masked-LM head computes something else than BERT's (an exact GELU, an
      epsilon of 1e-5), so that this head and that of the next sentence are left
      out.
    folder: must not exist, or be empty.

  Raises:
    ValueError, OSError: it cannot be written.
  """
  writers = {
    "google": _write_google,
    "hugging_face": _write_hugging_face,
    "keras_hub": _write_keras_hub,
  }
  with atomic.new_folder(folder) as temporary:
    written = writers[output_format](temporary, model)
    if model.vocab_file:
      vocabulary_table.copy(model.vocab_file, temporary)
    elif output_format != "keras_hub":  # It writes its own.
      files.write_lines(os.path.join(temporary, "vocab.txt"), model.vocabulary)
    text = _make_card(model, output_format, written)
    files.write_text(os.path.join(temporary, "README.md"), text)
  count = len(model.values) - len(written.rest)
  whose = f", for {written.users}" if written.users else " of the model"
  lines = [f"{written.weights}: {count} variables{whose}", *written.lines]
  casing = f"do_lower_case={model.do_lower_case}"
  lines.append(
    f"{_vocabulary(model)}: {len(model.vocabulary)} tokens, {casing}"
  )
  if model.labels:
    lines.append(f"labels: {', '.join(model.labels)}")
  return lines


def _vocabulary(model: conversion.Model) -> str:
  """Returns the name of the vocabulary in the folder."""
  return next(iter(vocabulary_table.saved_names(model.vocab_file or "")))


def _write_google(folder: str, model: conversion.Model) -> _Written:
  state = sorted(set(model.values) - set(conversion.strip(model).values))
  step = None
  if set(state) - {"global_step"}:
    step = int(model.values.get("global_step", 0))
  name = os.path.basename(checkpoints.write(folder, model.values, step))
  path = os.path.join(folder, "bert_config.json")
  files.write_text(path, model.config.to_json_string())
  if model.labels:
    label_files.write(os.path.join(folder, "labels.txt"), model.labels)
  if model.do_lower_case != (not vocabulary_table.is_cased(model.vocabulary)):
    # Readers would guess the other casing.
    path = os.path.join(folder, "tokenizer_config.json")
    files.write_json(path, {"do_lower_case": model.do_lower_case})
  lines = ["bert_config.json"]
  if state:
    kept = f"{name}: {len(state)} variables of the state of its training"
    lines.insert(0, kept)
  return _Written(name, rest=state, lines=lines)


def _write_hugging_face(folder: str, model: conversion.Model) -> _Written:
  users = architecture.HEADS[model.head].architecture
  _check_representable(model, model.head, f"{users} (--head={model.head})")
  if model.config.embedding_width != model.config.hidden_size:
    raise ValueError(
      "--output_format=hugging_face: the BERT of transformers has no "
      "embedding_size, as this config has"
    )
  rest = huggingface.write(
    folder,
    model.config,
    model.head,
    model.values,
    model.do_lower_case,
    **_head_settings(model),
  )
  activation = model.config.hidden_act
  activation = huggingface.ACTIVATIONS.get(activation, activation)
  lines = [f"{huggingface.CONFIG}: hidden_act is {activation}"]
  if rest:
    kept = f"{huggingface.GOOGLE_ONLY}: {_describe_rest(rest, model)}; {users} "
    kept += "has no place for that, a conversion back reads it"
    lines.insert(0, kept)
  return _Written(huggingface.WEIGHTS, users, rest, lines)


def _write_keras_hub(folder: str, model: conversion.Model) -> _Written:
  users, head, values = "BertBackbone", "encoder", model.values
  if model.head == "classifier":
    users, head = "BertTextClassifier", "classifier"
  else:
    values = {k: v for k, v in values.items() if k.startswith("bert/")}
  _check_representable(model, head, users)
  rest = keras_hub.write(
    folder, model.config, values, model.vocabulary, model.do_lower_case
  )
  rest = sorted({*rest, *(set(model.values) - set(values))})
  lines = []
  if rest:
    lines = [f"left out, KerasHub has no place: {_describe_rest(rest, model)}"]
  return _Written(keras_hub.WEIGHTS, users, rest, lines)


def _describe_rest(names: Sequence[str], model: conversion.Model) -> str:
  others = [n for n in names if n.rpartition("/")[0] not in model.values]
  slots = len(names) - len(others)
  return ", ".join([*([f"{slots} slots"] if slots else []), *others])


def _check_representable(
  model: conversion.Model, head: str, users: str
) -> None:
  """Raises a ValueError if a class of another library lacks parts, or more."""
  if model.config.encoder_type or model.vocab_file:
    raise ValueError(
      f"{model.source}: its encoder or its vocabulary is not BERT's, which no "
      "class of another library has here: pass --output_format=google"
    )
  labels = len(model.values.get("output_bias", ()))
  expected = architecture.variables(model.config, head, labels)
  shapes = {name: value.shape for name, value in model.values.items()}
  fitting.compare(
    model.source, shapes, expected, lambda name: name in shapes, users
  )


def _head_settings(model: conversion.Model) -> dict[str, Any]:
  """Returns the fields of a config.json about the head and its precision."""
  dtype = model.values[conversion.TABLE].dtype.name
  settings: dict[str, Any] = {"dtype": dtype}
  if "[PAD]" in model.vocabulary:
    settings["pad_token_id"] = model.vocabulary.index("[PAD]")
  if "output_" not in architecture.HEADS[model.head].prefixes:
    return settings
  count = len(model.values["output_bias"])
  labels = model.labels or [f"LABEL_{number}" for number in range(count)]
  settings["classifier_dropout"] = 0.1  # As in heads.py.
  if model.head != "multiple_choice":
    settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
    settings["label2id"] = {label: i for i, label in enumerate(labels)}
  if model.problem in huggingface.PROBLEM_TYPES:
    settings["problem_type"] = huggingface.PROBLEM_TYPES[model.problem]
  return settings


def _make_card(
  model: conversion.Model, output_format: str, written: _Written
) -> str:
  """Makes the text of README.md, the model card."""
  config, weights = model.config, conversion.strip(model).values
  parameters = sum(value.size for value in weights.values())
  left_out = [
    n for n in model.weights.unread if not fitting.is_training_state(n)
  ]
  if output_format == "keras_hub":
    left_out += [name for name in written.rest if name in weights]
  casing = "lower-cased, without accents" if model.do_lower_case else "as it is"
  lines = [
    "# BERT",
    "",
    f"Made by `convert_checkpoint.py` from {model.library}, `{model.source}`.",
    f"{config.num_hidden_layers} layers of {config.hidden_size}, "
    f"{parameters:,} parameters in `{written.weights}`; on top: {model.head}.",
    f"{len(model.vocabulary)} tokens in `{_vocabulary(model)}`; text is taken "
    f"{casing}.",
    "",
  ]
  for field in model.assumed:
    lines.append(f"- not in it, taken: {field}={getattr(config, field)!r}")
  if left_out:
    lines.append(f"- left out: {', '.join(left_out)}")
  if model.labels:
    lines.append(f"- labels: {', '.join(model.labels)}")
  lines += ["", "Programs of this project take it as `--model=FOLDER`.", ""]
  code = _LOADING[output_format].format(users=written.users)
  lines += [f"    {line}" for line in code.splitlines()]
  return "\n".join([*lines, ""])
