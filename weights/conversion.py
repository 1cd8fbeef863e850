"""Converts checkpoints and the files that belong to them.

A checkpoint that is read, Google's or Hugging Face's, becomes a
`Model`; functions that change it return a new one.
"""

from collections.abc import Sequence
import dataclasses
import os
import re
from typing import Any, NamedTuple
import warnings

import numpy as np

from data import atomic
from data import files
from data import label_files
from encoders import encoder_table
import modeling
import tokenization
from vocabularies import vocabulary_table
from weights import architecture
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
  architecture.HEADS[head].architecture: head
  for head in ("multiple_choice", "tagging")
}
GOOGLE = "a TF1 checkpoint"


class Model(NamedTuple):
  """A checkpoint, and what its users need besides."""

  source: str  # The prefix, or Hugging Face's folder.
  config: modeling.BertConfig
  values: dict[str, np.ndarray]  # By Google's names.
  head: str  # A key of `architecture.HEADS`.
  problem: str | None  # What the head is trained for, if that is known.
  labels: list[str]  # Empty if unknown.
  vocabulary: list[str]
  do_lower_case: bool
  library: str = GOOGLE  # Whose format it had, in words.
  unread: tuple[str, ...] = ()  # What had no place, by names of the library.
  assumed: tuple[str, ...] = ()  # Fields of the config that it did not state.
  vocab_file: str | None = None  # Of the vocabulary, unless of WordPieces.


@dataclasses.dataclass(frozen=True)
class Given:
  """What a user says about a checkpoint instead of leaving it to be found."""

  bert_config_file: str | None = None
  vocab_file: str | None = None
  labels_file: str | None = None
  do_lower_case: bool | None = None
  head: str = "auto"


def read(path: str, given: Given) -> Model:
  """Reads a checkpoint and the files beside it.

  Args:
    path: see `checkpoints.find_checkpoint`.

  Raises:
    ValueError: something is not found, or does not fit the rest.
  """
  source = checkpoints.find_checkpoint(path)
  reader = checkpoints.open_reader(source)
  folders = formats.folders_of(source)
  config = _read_config(reader, folders, given)
  values = {name: np.asarray(v) for name, v in checkpoints.read(source)}
  for name, value in values.items():
    if value.dtype.name == "bfloat16":  # Which numpy lacks.
      values[name] = value.astype(np.float32)
  _check_encoder(source, config, values)
  problem, labels = _read_labels(source, folders, given)
  vocab_file = given.vocab_file or vocabulary_table.find(folders)
  if vocab_file and "vocab.txt" in vocabulary_table.saved_names(vocab_file):
    vocab_file = None
  vocabulary = _read_vocabulary(folders, given, vocab_file)
  is_given = given.head != "auto"
  model = Model(
    source,
    config,
    values,
    given.head if is_given else _find_head(values, problem),
    problem,
    labels,
    vocabulary,
    _find_do_lower_case(reader, folders, given, vocabulary),
    vocab_file=vocab_file,
  )
  if reader:
    assumed = reader.assumed if config is reader.config else ()
    model = model._replace(
      library=reader.library, unread=tuple(reader.unread), assumed=assumed
    )
  if is_given:
    model = _keep_head(model)
  # Labels without their head would only stop whoever trains another.
  has_labels = "output_weights" in model.values or given.labels_file
  _check_labels(model)
  return model if has_labels else model._replace(labels=[])


def _check_labels(model: Model) -> None:
  """Refuses labels that are not as many as the head's outputs."""
  count = len(model.values.get("output_bias", model.labels))
  if model.labels and len(model.labels) != count:
    raise ValueError(
      f"{model.source}: {len(model.labels)} labels, but the head has {count}: "
      "pass its --labels_file"
    )


def load_encoder(path: str, dtype: str = "float32") -> modeling.BertModel:
  """Makes an encoder with the weights of a checkpoint, without the heads.

  Warns if it has no pooler, which then starts at random.

  Args:
    path: see `checkpoints.find_checkpoint`: Google's folder, Hugging Face's and
      others.
    dtype: see `modeling.BertModel`.

  Raises:
    ValueError: there is no checkpoint, or it does not fit its config.
  """
  source = checkpoints.find_checkpoint(path)
  reader = checkpoints.open_reader(source)
  config = _read_config(reader, formats.folders_of(source), Given())
  bert = encoder_table.make_encoder(config, dtype)
  variables = {variable.path: variable.value for variable in bert.variables}
  found = checkpoints.load(source, variables, checkpoints.is_above_layers)
  if found.missing:
    warnings.warn(f"{source} lacks {', '.join(found.missing)}", stacklevel=3)
  if reader and config is reader.config and reader.assumed:
    taken = ", ".join(f"{n}={getattr(config, n)!r}" for n in reader.assumed)
    warnings.warn(f"{source} does not state, taken: {taken}", stacklevel=3)
  return bert


def _read_config(reader, folders, given: Given) -> modeling.BertConfig:
  """Reads the config given or found, or infers it from the weights."""
  path = given.bert_config_file or _find(folders, "bert_config.json")
  own = reader.config if reader else None
  if own and not given.bert_config_file and (not path or not reader.assumed):
    return own
  if not path:
    raise ValueError(
      f"{folders[0]}: holds no bert_config.json: add it, or pass "
      "--bert_config_file"
    )
  config = encoder_table.read_config(path)
  if config.encoder_type not in (None, "variant"):
    raise ValueError(
      f"{path}: encoder_type is {config.encoder_type!r}: other libraries have "
      "models of Transformers, but no class for this encoder's layers"
    )
  if own:
    reader.check_config(path, config)
  return config


def _find(folders: Sequence[str], name: str) -> str | None:
  paths = [os.path.join(folder, name) for folder in folders]
  return next(filter(files.exists, paths), None)


def _check_encoder(source, config, values) -> None:
  """Compares the variables of BERT itself with its config."""
  readers.check_layers(source, config, len(values))
  if config.encoder_type:
    made = encoder_table.make_encoder(config).variables
    expected = {variable.path: tuple(variable.shape) for variable in made}
  else:
    expected = architecture.variables(config, "encoder")
  unknown = [
    f"+ {name}"
    for name in values
    if name.startswith("bert/")
    and name not in expected
    and not checkpoints.is_training_state(name, values)
  ]
  # Hugging Face stores no pooler with a head that does not use it.
  wanted = {
    n: s for n, s in expected.items() if n in values or "/pool" not in n
  }
  _check_shapes(source, wanted, values, unknown)


def _check_shapes(source, expected, values, faults=()) -> None:
  """Refuses values with other faults, or that are not as expected."""
  faults = list(faults)
  for name, shape in expected.items():
    if name not in values:
      faults.append(f"- {name}")
      continue
    found, dtype = values[name].shape, values[name].dtype
    labels = found[:1] if shape[:1] == (None,) else shape[:1]
    if found != (*labels, *shape[1:]):
      wanted = str(shape).replace("None", "labels")
      faults.append(f"{name}: shape {found}, the config's is {wanted}")
    elif dtype.kind != "f":
      faults.append(f"{name}: {dtype}, expected floating point")
  if faults:
    raise ValueError(
      f"{source} does not fit its config: {readers.listing(faults)}"
    )


def _read_settings(folders: Sequence[str]) -> dict[str, Any]:
  """Returns the settings of the run that left the checkpoint, if any."""
  path = _find(folders, "settings.json")
  return files.read_json(path) if path else {}


def _read_labels(source, folders, given: Given):
  """Returns what the head is trained for, None if unknown, and its labels."""
  if huggingface.is_folder(source):
    settings = huggingface.read_settings(source)
    names = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
    problem = names.get(str(settings.get("problem_type")))
    classes = settings.get("architectures")
    for architecture in classes if isinstance(classes, list) else ():
      architecture = re.sub("^(DistilBert|Electra)", "Bert", str(architecture))
      problem = _PROBLEMS.get(architecture, problem)
  else:
    problem = _read_settings(folders).get("problem")
  if given.labels_file:
    return problem, label_files.read(given.labels_file)
  return problem, read_labels(source)


def read_problem(source: str) -> tuple[str | None, list[str]]:
  """Returns the problem of a checkpoint's head, if known, and its labels."""
  return _read_labels(source, formats.folders_of(source), Given())


def read_labels(source: str) -> list[str]:
  """Returns the labels of a checkpoint's head, [] if they are not known.

  They come from the labels.txt that training wrote, or from the id2label in
  Hugging Face's config.json.
  """
  if huggingface.is_folder(source):
    return huggingface.read_labels(huggingface.read_settings(source))
  path = _find(formats.folders_of(source), "labels.txt")
  return label_files.read(path) if path else []


def _read_vocabulary(folders, given: Given, vocab_file=None) -> list[str]:
  if vocab_file:
    vocab = vocabulary_table.load_vocab(vocab_file)
    tokens = {index: token for token, index in vocab.items()}
    return [tokens[index] for index in sorted(tokens)]
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
    if found is None:
      found, _ = vocabulary_table.read_casing(folder) or (None, "")
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
  prefixes = ("bert/", *architecture.HEADS[model.head].prefixes)
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
  config = dataclasses.replace(model.config, max_position_embeddings=size)
  return model._replace(config=config, values=values)


def resize_vocabulary(model: Model, size: int, seed: int) -> Model:
  """Adds rows for new tokens at the end of the vocabulary.

  They are drawn as new weights are: from a normal distribution of the config's
  initializer_range, cut off at two deviations. The bias of a new token in the
  masked-LM head is 0.

  Args:
    size: the tokens from now on.

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
  config = dataclasses.replace(model.config, vocab_size=size)
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


def check_vocabulary(model: Model) -> None:
  """Raises a ValueError if vocabulary and word embeddings differ in size."""
  size, rows = len(model.vocabulary), model.config.vocab_size
  if not vocabulary_table.fits(size, rows):
    cure = f", or to add tokens, --resize_vocab={size}" if size > rows else ""
    raise ValueError(
      f"{model.source}: {rows} word embeddings, but {size} tokens in the "
      f"vocabulary: pass the --vocab_file of the model{cure}"
    )


class _Written(NamedTuple):
  """What a folder of some format holds besides the vocabulary."""

  weights: str  # The name of the file.
  users: str = ""  # The class that loads it.
  rest: Sequence[str] = ()  # Variables in no file of that class.
  lines: Sequence[str] = ()  # About other files.
  vocabulary: str = "vocab.txt"  # Where it goes.


def write(output_format: str, folder: str, model: Model) -> list[str]:
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
  weights = set(strip(model).values)
  with atomic.new_folder(folder) as temporary:
    written = writers[output_format](temporary, model)
    if model.vocab_file:
      vocabulary_table.copy(model.vocab_file, temporary)
    else:
      path = os.path.join(temporary, written.vocabulary)
      files.write_lines(path, model.vocabulary)
    left_out = [n for n in model.unread if not readers.STATE.search(n)]
    if output_format == "keras_hub":
      left_out += [name for name in written.rest if name in weights]
    text = model_cards.make(
      model, output_format, left_out, written.weights, written.users
    )
    files.write_text(os.path.join(temporary, "README.md"), text)
  count = len(model.values) - len(written.rest)
  whose = f", for {written.users}" if written.users else " of the model"
  lines = [f"{written.weights}: {count} variables{whose}", *written.lines]
  casing = f"do_lower_case={model.do_lower_case}"
  name, *_ = vocabulary_table.saved_names(model.vocab_file or "vocab.txt")
  lines.append(f"{name}: {len(model.vocabulary)} tokens, {casing}")
  if model.labels:
    lines.append(f"labels: {', '.join(model.labels)}")
  return lines


def _write_google(folder: str, model: Model) -> _Written:
  state = set(model.values) - set(strip(model).values)
  step = None
  if state - {"global_step"}:
    step = int(model.values.get("global_step", 0))
  prefix = checkpoints.write(folder, model.values, step)
  path = os.path.join(folder, "bert_config.json")
  files.write_text(path, model.config.to_json_string())
  if model.labels:
    label_files.write(os.path.join(folder, "labels.txt"), model.labels)
  if model.do_lower_case != (not tokenization.is_cased(model.vocabulary)):
    # Readers would guess the other casing.
    path = os.path.join(folder, "tokenizer_config.json")
    files.write_json(path, {"do_lower_case": model.do_lower_case})
  name, lines = os.path.basename(prefix), []
  if state:
    lines = [f"{name}: {len(state)} variables of the state of its training"]
  lines.append("bert_config.json")
  return _Written(name, rest=sorted(state), lines=lines)


def _write_hugging_face(folder: str, model: Model) -> _Written:
  _refuse_others(model)
  users = architecture.HEADS[model.head].architecture
  expected = architecture.variables(model.config, model.head)
  if missing := sorted(set(expected) - set(model.values)):
    raise ValueError(
      f"{model.source}: {users} (--head={model.head}) needs "
      f"{', '.join(missing)}, which it lacks"
    )
  _check_shapes(model.source, expected, model.values)
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
    lines = [
      f"{huggingface.GOOGLE_ONLY}: {_describe_rest(rest, model)}; {users} has "
      "no place for that, a conversion back reads it",
      *lines,
    ]
  return _Written(huggingface.WEIGHTS, users, rest, lines)


def _write_keras_hub(folder: str, model: Model) -> _Written:
  _refuse_others(model)
  users = "BertBackbone"
  values = {k: v for k, v in model.values.items() if k.startswith("bert/")}
  if model.head == "classifier":
    users, values = "BertTextClassifier", model.values
  _check_shapes(
    model.source, architecture.variables(model.config, "encoder"), values
  )
  rest = keras_hub.write(folder, model.config, values, model.do_lower_case)
  rest = sorted({*rest, *(set(model.values) - set(values))})
  lines = []
  if rest:
    lines = [f"left out, KerasHub has no place: {_describe_rest(rest, model)}"]
  vocabulary = os.path.join(keras_hub.ASSETS, "vocabulary.txt")
  return _Written(keras_hub.WEIGHTS, users, rest, lines, vocabulary)


def _describe_rest(names: Sequence[str], model: Model) -> str:
  others = [n for n in names if n.rpartition("/")[0] not in model.values]
  slots = len(names) - len(others)
  return ", ".join([*([f"{slots} slots"] if slots else []), *others])


def _refuse_others(model: Model) -> None:
  if model.config.encoder_type or model.vocab_file:
    raise ValueError(
      f"{model.source}: its encoder or its vocabulary is not BERT's, which no "
      "class of another library has here: pass --output_format=google"
    )


def _head_settings(model: Model) -> dict[str, Any]:
  """Returns what a config.json says about the head and its precision."""
  dtype = model.values[_BY_TOKEN[0]].dtype.name
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
  if model.problem in _PROBLEM_TYPES:
    settings["problem_type"] = _PROBLEM_TYPES[model.problem]
  return settings
