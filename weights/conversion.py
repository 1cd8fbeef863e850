"""Converts checkpoints and the files that belong to them.

A checkpoint that is read, Google's or Hugging Face's, becomes a
`Model`; functions that change it return a new one.
"""

from collections.abc import Container
from collections.abc import Sequence
import os
import re
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data import files
from data import label_files
from encoders import encoder_table
import modeling
import tokenization
from weights import checkpoints
from weights import formats
from weights import huggingface
from weights import keras_hub
from weights import model_cards
from weights import readers

_POSITIONS = "bert/embeddings/position_embeddings"
# What has a row, or an element, for each token.
_BY_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")
# Hugging Face's words for the problems of run_classifier.py.
_PROBLEM_TYPES = {
  "single_label": "single_label_classification",
  "multi_label": "multi_label_classification",
  "regression": "regression",
}
# Classes whose heads have the variables of a classifier.
_PROBLEMS = {
  huggingface.HEADS[head].architecture: head
  for head in ("multiple_choice", "tagging")
}


GOOGLE = "a TF1 checkpoint"


class Model(NamedTuple):
  """A checkpoint, and what its users need besides."""

  source: str  # The prefix, or Hugging Face's folder.
  config: modeling.BertConfig
  values: dict[str, np.ndarray]  # By Google's names.
  head: str  # A key of `huggingface.HEADS`.
  problem: str | None  # What the head is trained for, if that is known.
  labels: list[str]  # Empty if unknown.
  vocabulary: list[str]
  do_lower_case: bool
  library: str = GOOGLE  # Whose format it had, in words.
  unread: tuple[str, ...] = ()  # What had no place, by names of the library.
  assumed: tuple[str, ...] = ()  # Fields of the config that it did not state.


class Given(NamedTuple):
  """What a user says about a checkpoint instead of leaving it to be found."""

  config_file: str | None = None
  vocab_file: str | None = None
  labels_file: str | None = None
  do_lower_case: bool | None = None
  head: str | None = None


def read(path: str, given: Given) -> Model:
  """Reads a checkpoint and the files beside it.

  Args:
    path: see `checkpoints.find_checkpoint`.
    given: what not to look for.

  Raises:
    ValueError: something is not found, or does not fit the rest.
  """
  source = checkpoints.find_checkpoint(path)
  reader = checkpoints.open_reader(source)
  folders = formats.folders_of(source)
  config = _read_config(reader, folders, given)
  values = dict(checkpoints.read(source))
  _check_encoder(source, config, values)
  problem, labels = _read_labels(source, folders, given)
  vocabulary = _read_vocabulary(folders, given)
  model = Model(
    source,
    config,
    values,
    given.head or _find_head(values, problem),
    problem,
    labels,
    vocabulary,
    _find_do_lower_case(reader, folders, given, vocabulary),
  )
  if reader:
    assumed = reader.assumed if config is reader.config else ()
    model = model._replace(
      library=reader.library, unread=tuple(reader.unread), assumed=assumed
    )
  return _keep_head(model) if given.head else model


def _read_config(reader, folders, given: Given) -> modeling.BertConfig:
  """Reads the config given or found, or infers it from the weights."""
  path = given.config_file or _find(folders, "bert_config.json")
  own = reader.config if reader else None
  if own and not given.config_file and (not path or not reader.assumed):
    return own
  if not path:
    raise ValueError(
      f"{folders[0]}: holds no bert_config.json: pass --bert_config_file"
    )
  config = encoder_table.read_config(path)
  if own and config.num_attention_heads != own.num_attention_heads:
    raise ValueError(
      f"{path}: num_attention_heads is {config.num_attention_heads}, the "
      f"weights are of {own.num_attention_heads}"
    )
  return config


def _find(folders: Sequence[str], name: str) -> str | None:
  paths = [os.path.join(folder, name) for folder in folders]
  return next(filter(files.exists, paths), None)


def _check_encoder(source, config, values) -> None:
  """Compares the variables of BERT itself with its config."""
  expected = {
    variable.google: variable.shape
    for variable in huggingface.head_variables(config, "encoder")
  }
  faults = _misfits(expected, values)
  faults += [
    f"+ {name}"
    for name in sorted(values)
    if name.startswith("bert/")
    and name not in expected
    and not checkpoints.is_training_state(name, values)
  ]
  _raise_misfits(source, faults)


def _misfits(expected, values) -> list[str]:
  faults = []
  for name, shape in expected.items():
    if name not in values:
      # Hugging Face stores no pooler with a head that does not use it.
      if "/pooler/" not in name:
        faults.append(f"- {name}")
    elif not _fits(values[name].shape, shape):
      wanted = str(shape).replace("None", "labels")
      found = values[name].shape
      faults.append(f"{name}: shape {found}, the config's is {wanted}")
    elif values[name].dtype.kind != "f":
      faults.append(f"{name}: {values[name].dtype}, expected floating point")
  return sorted(faults)


def _fits(found, expected) -> bool:
  return len(found) == len(expected) and all(
    there is None or here == there
    for here, there in zip(found, expected, strict=True)
  )


def _raise_misfits(source: str, faults: list[str]) -> None:
  if faults:
    more = f"; and {len(faults) - 10} more" if faults[10:] else ""
    listing = "; ".join(faults[:10])
    raise ValueError(f"{source} does not fit its config: {listing}{more}")


def _read_settings(folders: Sequence[str]) -> dict[str, Any]:
  """Returns the settings of the run that left the checkpoint, if any."""
  path = _find(folders, "settings.json")
  return files.read_json(path) if path else {}


def _read_labels(source, folders, given: Given):
  """Returns what the head is trained for, None if unknown, and its labels."""
  if huggingface.is_folder(source):
    settings = huggingface.read_settings(source)
    labels = huggingface.read_labels(settings)
    names = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
    problem = names.get(settings.get("problem_type"))
    for architecture in settings.get("architectures") or []:
      architecture = re.sub("^(DistilBert|Electra)", "Bert", str(architecture))
      problem = _PROBLEMS.get(architecture, problem)
  else:
    problem = _read_settings(folders).get("problem")
    path = _find(folders, "labels.txt")
    labels = label_files.read(path) if path else []
  if given.labels_file:
    labels = label_files.read(given.labels_file)
  return problem, labels


def _read_vocabulary(folders, given: Given) -> list[str]:
  known = None
  for folder in folders:
    known = known or huggingface.read_vocabulary(folder)
  if not given.vocab_file:
    if not known:
      raise ValueError(f"{folders[0]}: holds no vocab.txt: pass --vocab_file")
    return known
  tokens = huggingface.read_tokens(given.vocab_file)
  for number, token in enumerate(known or [], 1):
    if tokens[number - 1 : number] != [token]:
      raise ValueError(
        f"--vocab_file={given.vocab_file}:{number}: expected {token!r:.80}, as "
        f"in the vocabulary in {folders[0]}; add tokens at the end"
      )
  return tokens


def _find_do_lower_case(reader, folders, given: Given, vocabulary) -> bool:
  found = given.do_lower_case
  if found is None and reader:
    found = reader.do_lower_case
  for folder in folders:
    if found is None:
      found = _read_settings([folder]).get("do_lower_case")
  if found is not None:
    return bool(found)
  return not tokenization.is_cased(vocabulary)


def _find_head(values, problem: str | None) -> str:
  if "cls/squad/output_weights" in values:
    return "question_answering"
  if "output_weights" in values:
    known = set(_PROBLEMS.values())
    return problem if problem in known else "classifier"
  has_words = "cls/predictions/output_bias" in values
  has_next = "cls/seq_relationship/output_weights" in values
  if has_words:
    return "pretraining" if has_next else "masked_lm"
  return "next_sentence" if has_next else "encoder"


def _keep_head(model: Model) -> Model:
  """Leaves out the variables of all heads but the model's."""
  prefixes = ("bert/", *huggingface.HEADS[model.head].prefixes)
  values = {
    name: value
    for name, value in model.values.items()
    if name.startswith(prefixes) or name == "global_step"
  }
  return model._replace(values=values)


def strip(model: Model) -> Model:
  """Leaves out the state of the training: the optimizer's slots, the step."""
  values = {
    name: value
    for name, value in model.values.items()
    if not checkpoints.is_training_state(name, model.values)
  }
  return model._replace(values=values)


def to_float16(model: Model) -> Model:
  """Rounds the weights to float16; the state of the training stays as it is.

  Adam's second moments would mostly be zero in float16.

  Raises:
    ValueError: a weight is too large for it.
  """
  values = dict(strip(model).values)
  for name, value in values.items():
    if value.dtype.kind != "f":
      continue
    with np.errstate(over="ignore"):
      values[name] = value.astype(np.float16)
    lost = np.isinf(values[name]) & np.isfinite(value)
    if lost.any():
      raise ValueError(
        f"--float16: {name} holds {value[lost].flat[0]}; the largest number in "
        "float16 is 65504"
      )
  return model._replace(values={**model.values, **values})


def grow_positions(model: Model, size: int) -> Model:
  """Lengthens the table of positions by repeating it from its beginning.

  This is how Longformer begins (Beltagy et al., 2020,
  https://arxiv.org/abs/2004.05150, section 5): what the first positions know
  about their neighbours is worth more than random rows. Train it further.

  Args:
    size: the longest sequence from now on, in tokens.

  Raises:
    ValueError: the table is not shorter than that.
  """
  old = model.config.max_position_embeddings
  if size <= old:
    raise ValueError(
      f"--grow_positions={size}: expected more than the {old} positions there "
      "are"
    )
  table = model.values[_POSITIONS]
  rows = np.take(table, np.arange(old, size) % old, axis=0)
  values = _append(model.values, _POSITIONS, rows)
  config = _replace(model.config, max_position_embeddings=size)
  return model._replace(config=config, values=values)


def resize_vocabulary(model: Model, size: int, seed: int) -> Model:
  """Adds rows for new tokens at the end of the vocabulary.

  They are drawn as new weights are: from a normal distribution of the config's
  initializer_range, cut off at two deviations. The bias of a new token in the
  masked-LM head is 0.

  Args:
    size: the tokens from now on.
    seed: decides the rows.

  Raises:
    ValueError: there are that many already.
  """
  old = model.config.vocab_size
  if size <= old:
    raise ValueError(
      f"--resize_vocab={size}: expected more than the {old} tokens there are"
    )
  table, bias = (model.values.get(name) for name in _BY_TOKEN)
  shape = (size - old, table.shape[1])
  rows = _draw(np.random.default_rng(seed), shape)
  rows = (rows * model.config.initializer_range).astype(table.dtype)
  values = _append(model.values, _BY_TOKEN[0], rows)
  if bias is not None:
    values = _append(values, _BY_TOKEN[1], np.zeros(size - old, bias.dtype))
  config = _replace(model.config, vocab_size=size)
  return model._replace(config=config, values=values)


def _draw(source: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
  """Draws from a normal distribution truncated at two deviations."""
  drawn = source.standard_normal(shape)
  while (beyond := np.abs(drawn) > 2).any():
    drawn[beyond] = source.standard_normal(int(beyond.sum()))
  return drawn


def _append(values, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
  """Returns values with more rows of a variable, and zeros in its slots."""
  longer = {}
  for found, value in values.items():
    is_slot = found.rpartition("/")[0] == name
    if found == name or (is_slot and value.shape == values[name].shape):
      added = rows if found == name else np.zeros_like(rows)
      longer[found] = np.concatenate([value, added.astype(value.dtype)])
  return {**values, **longer}


def _replace(config: modeling.BertConfig, **fields: int) -> modeling.BertConfig:
  return modeling.BertConfig(**{**vars(config), **fields})


def check_vocabulary(model: Model) -> None:
  """Compares the size of the vocabulary with the table of word embeddings.

  Raises:
    ValueError: they differ by more than rounding up.
  """
  size, rows = len(model.vocabulary), model.config.vocab_size
  if not size <= rows < size + 128:
    cure = f", or to add tokens, --resize_vocab={size}" if size > rows else ""
    raise ValueError(
      f"{model.source}: {rows} word embeddings, but {size} tokens in the "
      f"vocabulary: pass the --vocab_file of the model{cure}"
    )


def write_google(folder: str, model: Model) -> list[str]:
  """Writes a checkpoint like Google's releases, or to resume from.

  With an optimizer's slots it is that of a training: `model.ckpt-<step>`.

  Args:
    folder: must not exist, or be empty.
    model: what to write.

  Returns:
    Lines about what was written.

  Raises:
    ValueError, OSError: it cannot be written.
  """
  state = set(model.values) - set(strip(model).values)
  step = None
  if state - {"global_step"}:
    step = int(model.values.get("global_step", 0))
  with files.new_folder(folder) as temporary:
    prefix = checkpoints.write(temporary, model.values, step)
    path = os.path.join(temporary, "bert_config.json")
    files.write_text(path, model.config.to_json_string())
    _write_tokens(temporary, model)
    if model.labels:
      path = os.path.join(temporary, "labels.txt")
      label_files.write(path, model.labels)
    name = os.path.basename(prefix)
    _write_card(temporary, model, "google", weights=name)
  lines = [f"{name}: {len(model.values) - len(state)} variables of the model"]
  if state:
    lines.append(f"{name}: {len(state)} variables of the state of its training")
  return lines + _describe_tokens(model) + ["bert_config.json"]


def write_hugging_face(folder: str, model: Model) -> list[str]:
  """Writes a folder for a class of transformers; see `write_google`."""
  _check_head(model)
  if model.config.embedding_width != model.config.hidden_size:
    raise ValueError(
      "--output_format=hugging_face: the BERT of transformers has no "
      "embedding_size, as this config has"
    )
  with files.new_folder(folder) as temporary:
    rest = huggingface.write_weights(
      temporary, model.config, model.head, model.values
    )
    settings = huggingface.make_settings(
      model.config, model.head, **_head_settings(model)
    )
    tokenizer = huggingface.make_tokenizer_settings(
      model.do_lower_case, model.config.max_position_embeddings
    )
    for name, contents in (
      (huggingface.CONFIG, settings),
      ("tokenizer_config.json", tokenizer),
    ):
      files.write_json(os.path.join(temporary, name), contents)
    _write_tokens(temporary, model)
    architecture = huggingface.HEADS[model.head].architecture
    _write_card(temporary, model, "hugging_face", architecture=architecture)
  count = len(model.values) - len(rest)
  lines = [f"{huggingface.WEIGHTS}: {count} variables, for {architecture}"]
  if rest:
    described = _describe_rest(rest, model.values)
    lines.append(
      f"{huggingface.GOOGLE_ONLY}: {described}; {architecture} has no place "
      "for that, a conversion back reads it"
    )
  activation = settings["hidden_act"]
  lines.append(f"{huggingface.CONFIG}: hidden_act is {activation}")
  return lines + _describe_tokens(model)


def write_keras_hub(folder: str, model: Model) -> list[str]:
  """Writes a folder for KerasHub's BertBackbone; see `write_google`.

  A classifier is written for BertTextClassifier. Its masked-LM head computes
  something else than BERT's (an exact GELU, an epsilon of 1e-5), so that the
  head of a BERT is left out, as is the next-sentence head.
  """
  architecture = "BertBackbone"
  values = {k: v for k, v in model.values.items() if k.startswith("bert/")}
  if model.head == "classifier":
    architecture, values = "BertTextClassifier", model.values
  faults = [f"- {n}" for n in _expected(model.config) if n not in values]
  _raise_misfits(model.source, faults)
  with files.new_folder(folder) as temporary:
    rest = keras_hub.write(temporary, model.config, values, model.do_lower_case)
    rest = sorted({*rest, *(set(model.values) - set(values))})
    assets = os.path.join(temporary, keras_hub.ASSETS)
    tf.io.gfile.makedirs(assets)
    path = os.path.join(assets, "vocabulary.txt")
    files.write_lines(path, model.vocabulary)
    _write_card(temporary, model, "keras_hub", rest, architecture=architecture)
  count = len(model.values) - len(rest)
  lines = [f"{keras_hub.WEIGHTS}: {count} variables, for {architecture}"]
  if rest:
    lines.append(
      f"left out, KerasHub has no place: {_describe_rest(rest, model.values)}"
    )
  return lines + _describe_tokens(model)


def _expected(config: modeling.BertConfig) -> list[str]:
  return [v.google for v in huggingface.head_variables(config, "encoder")]


def _write_card(folder, model, output_format, rest=(), **names) -> None:
  left_out = [name for name in model.unread if not readers.STATE.search(name)]
  left_out += [name for name in rest if name in strip(model).values]
  text = model_cards.make(model, output_format, left_out, **names)
  files.write_text(os.path.join(folder, "README.md"), text)


def _describe_rest(names: Sequence[str], values: Container[str]) -> str:
  others = [name for name in names if name.rpartition("/")[0] not in values]
  slots = len(names) - len(others)
  return ", ".join([*([f"{slots} slots"] if slots else []), *others])


def _describe_tokens(model: Model) -> list[str]:
  return [
    f"vocab.txt: {len(model.vocabulary)} tokens, "
    f"do_lower_case={model.do_lower_case}"
  ] + ([f"labels: {', '.join(model.labels)}"] if model.labels else [])


def _check_head(model: Model) -> None:
  expected = {
    variable.google: variable.shape
    for variable in huggingface.head_variables(model.config, model.head)
  }
  missing = sorted(set(expected) - set(model.values))
  if missing:
    raise ValueError(
      f"{model.source}: {huggingface.HEADS[model.head].architecture} "
      f"(--head={model.head}) needs {', '.join(missing)}, which it lacks"
    )
  _raise_misfits(model.source, _misfits(expected, model.values))


def _head_settings(model: Model) -> dict[str, Any]:
  """Returns what a config.json says about the head and its precision."""
  dtype = model.values[_BY_TOKEN[0]].dtype.name
  settings: dict[str, Any] = {"dtype": dtype}
  if "[PAD]" in model.vocabulary:
    settings["pad_token_id"] = model.vocabulary.index("[PAD]")
  if "output_" not in huggingface.HEADS[model.head].prefixes:
    return settings
  count = len(model.values["output_bias"])
  labels = model.labels or [f"LABEL_{number}" for number in range(count)]
  if len(labels) != count:
    raise ValueError(
      f"{model.source}: {len(labels)} labels, but the head has {count}: pass "
      "its --labels_file"
    )
  settings["classifier_dropout"] = 0.1  # As in heads.py.
  if model.head != "multiple_choice":
    settings["id2label"] = {str(i): label for i, label in enumerate(labels)}
    settings["label2id"] = {label: i for i, label in enumerate(labels)}
  if model.problem in _PROBLEM_TYPES:
    settings["problem_type"] = _PROBLEM_TYPES[model.problem]
  return settings


def _write_tokens(folder: str, model: Model) -> None:
  files.write_lines(os.path.join(folder, "vocab.txt"), model.vocabulary)


def check_free(path: str) -> None:
  """Checks that a folder can be made.

  Raises:
    ValueError: it is a folder that is not empty, or a file.
  """
  if not files.exists(path):
    return
  if not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path):
    raise ValueError(
      f"--output={path}: is there already; name a folder that is new or empty"
    )
