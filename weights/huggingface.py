"""The folders of Hugging Face's transformers: names, weights, vocabulary.

A folder holds config.json, model.safetensors (or several, with an index), and
the tokenizer's files. Here its weights have the names and the layout of
Google's checkpoints: a dense kernel is [in, out], Hugging Face's [out, in].

What transformers has no place for (Adam's slots, the global step, a pooler that
a head does not use) travels in a file of its own, google_only.safetensors,
under Google's names.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import functools
import json
import os
import re
from typing import Any, NamedTuple

import numpy as np

from data import files
from encoders import huggingface_config
import modeling
from weights import readers
from weights import relatives
from weights import safetensors_files

WEIGHTS = "model.safetensors"
GOOGLE_ONLY = "google_only.safetensors"
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_BELONGS_TO = "sha256 of model.safetensors"
# Weights that only running code could read.
_PICKLES = re.compile(r"pytorch_model.*\.bin|.*\.(pt|pth|pkl)")
_IGNORED = re.compile(r"(.*\.)?embeddings\.(position_ids|token_type_ids)")
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS = "cls.predictions.decoder.bias"
_ENCODER = ("embeddings.", "encoder.", "pooler.")


class Head(NamedTuple):
  """What is on top of BERT in a class of transformers."""

  architecture: str  # The name of the class.
  prefixes: tuple[str, ...]  # Of its variables in Google's checkpoints.
  has_pooler: bool


HEADS = {
  "encoder": Head("BertModel", (), True),
  "pretraining": Head(
    "BertForPreTraining", ("cls/predictions/", "cls/seq_relationship/"), True
  ),
  "masked_lm": Head("BertForMaskedLM", ("cls/predictions/",), False),
  "next_sentence": Head(
    "BertForNextSentencePrediction", ("cls/seq_relationship/",), True
  ),
  "classifier": Head("BertForSequenceClassification", ("output_",), True),
  "multiple_choice": Head("BertForMultipleChoice", ("output_",), True),
  "tagging": Head("BertForTokenClassification", ("output_",), False),
  "question_answering": Head(
    "BertForQuestionAnswering", ("cls/squad/",), False
  ),
}


class Variable(NamedTuple):
  """A variable under both of its names."""

  google: str
  hugging_face: str
  shape: tuple[int | None, ...]  # Google's; None is the number of labels.
  is_transposed: bool


def variables(config: modeling.BertConfig) -> list[Variable]:
  """Lists the variables of BERT and of all heads that transformers has."""
  size = config.hidden_size
  transform = "cls/predictions/transform"
  rows = [
    *_encoder(config),
    *_dense("bert/pooler/dense", size, size),
    *_dense(f"{transform}/dense", size, config.embedding_width),
    *_layer_norm(transform, config.embedding_width),
  ]
  for google, hugging_face, *shape in (
    ("cls/predictions/output_bias", "cls.predictions.bias", config.vocab_size),
    (
      "cls/seq_relationship/output_weights",
      "cls.seq_relationship.weight",
      2,
      size,
    ),
    ("cls/seq_relationship/output_bias", "cls.seq_relationship.bias", 2),
    ("cls/squad/output_weights", "qa_outputs.weight", 2, size),
    ("cls/squad/output_bias", "qa_outputs.bias", 2),
    ("output_weights", "classifier.weight", None, size),
    ("output_bias", "classifier.bias", None),
  ):
    rows.append(Variable(google, hugging_face, tuple(shape), False))
  return rows


def _encoder(config: modeling.BertConfig) -> Iterator[Variable]:
  """Yields the variables of the embeddings and of all layers."""
  size, inner = config.hidden_size, config.intermediate_size
  width = config.embedding_width
  for kind, rows in (
    ("word", config.vocab_size),
    ("position", config.max_position_embeddings),
    ("token_type", config.type_vocab_size),
  ):
    name = f"bert/embeddings/{kind}_embeddings"
    yield Variable(name, f"{_dotted(name)}.weight", (rows, width), False)
  yield from _layer_norm("bert/embeddings", width)
  if width != size:
    yield from _dense("bert/embeddings/project", width, size)
  for layer in range(config.num_hidden_layers):
    path = f"bert/encoder/layer_{layer}"
    for part in ("query", "key", "value"):
      yield from _dense(f"{path}/attention/self/{part}", size, size)
    yield from _dense(f"{path}/attention/output/dense", size, size)
    yield from _layer_norm(f"{path}/attention/output", size)
    yield from _dense(f"{path}/intermediate/dense", size, inner)
    yield from _dense(f"{path}/output/dense", inner, size)
    yield from _layer_norm(f"{path}/output", size)


def _dense(path: str, size_in: int, size_out: int) -> Iterator[Variable]:
  name = _dotted(path)
  yield Variable(f"{path}/kernel", f"{name}.weight", (size_in, size_out), True)
  yield Variable(f"{path}/bias", f"{name}.bias", (size_out,), False)


def _layer_norm(path: str, size: int) -> Iterator[Variable]:
  path = f"{path}/LayerNorm"
  name = _dotted(path)
  yield Variable(f"{path}/gamma", f"{name}.weight", (size,), False)
  yield Variable(f"{path}/beta", f"{name}.bias", (size,), False)


def _dotted(path: str) -> str:
  return path.replace("layer_", "layer.").replace("/", ".")


def head_variables(config: modeling.BertConfig, head: str) -> list[Variable]:
  """Lists those of `variables` that a class of transformers has."""
  prefixes = ("bert/", *HEADS[head].prefixes)
  return [
    variable
    for variable in variables(config)
    if variable.google.startswith(prefixes)
    and (HEADS[head].has_pooler or "/pooler/" not in variable.google)
  ]


def is_folder(path: str) -> bool:
  """Tells whether a path is a folder with weights that `Folder` reads."""
  return any(files.exists(os.path.join(path, n)) for n in (WEIGHTS, _INDEX))


def refuse_pickles(path: str, entries: Iterable[str]) -> None:
  """Refuses a folder, or a file, whose weights are Python objects.

  Args:
    path: of it.
    entries: the names in the folder, or that of the file.

  Raises:
    ValueError: it is one.
  """
  found = sorted(filter(_PICKLES.fullmatch, entries))
  if found:
    raise ValueError(
      f"{path}: {found[0]} is a pickle: reading one runs the code it holds; "
      f"make {WEIGHTS} of it where PyTorch is, in its folder: python -c "
      '"import torch, safetensors.torch as s; '
      f"w = torch.load('{found[0]}', weights_only=True); "
      "s.save_file({k: v.clone() for k, v in w.items()}, "
      f"'{WEIGHTS}', {{'format': 'pt'}})\""
    )


class Folder(readers.Reader):
  """The weights of a Hugging Face folder, under Google's names.

  A variable that BERT's classes in transformers do not have keeps its name;
  with a relative of BERT it stays unread.

  Raises:
    ValueError: a file is missing, damaged, or not of a BERT.
    OSError: a file cannot be read.
  """

  def __init__(self, path: str):
    self.path = path
    settings = read_settings(path)
    config = read_config(path)
    super().__init__(
      "a Hugging Face folder",
      {},
      config,
      do_lower_case=read_do_lower_case(path),
    )
    self._model_type = settings["model_type"]
    if self._model_type == "bert":
      self.config_file = os.path.join(path, CONFIG)
    stored = self._open_shards()
    # By Google's names: the file, the name in it, whether it is transposed.
    self._places = self._match(stored)
    self._check_tied(stored)
    self._add_google_only()
    for name, (file, theirs, is_transposed) in self._places.items():
      shape = file.entries[theirs].shape
      self.places[name] = readers.Place(
        functools.partial(file.read, theirs),
        shape[::-1] if is_transposed else shape,
        is_transposed,
      )
    if self._model_type == "distilbert":
      # It has no segments: every one is the same, which zeros are.
      shape = (config.type_vocab_size, config.hidden_size)
      self.places.setdefault(
        "bert/embeddings/token_type_embeddings",
        readers.Place(lambda: np.zeros(shape, np.float32), shape),
      )

  def _open_shards(self) -> dict[str, safetensors_files.SafetensorsFile]:
    """Returns the file of each tensor, by its name there."""
    weights = os.path.join(self.path, WEIGHTS)
    if files.exists(weights):
      file = safetensors_files.SafetensorsFile(weights)
      return dict.fromkeys(file.entries, file)
    index = os.path.join(self.path, _INDEX)
    places = files.read_json(index).get("weight_map")
    if not isinstance(places, dict) or not places:
      raise ValueError(f"{index}: has no weight_map")
    opened = {}
    for name in sorted(set(map(str, places.values()))):
      # A name such as ../../x would lead out of the folder.
      if not re.fullmatch(r"[\w.-]+\.safetensors", name):
        raise ValueError(f"{index}: {name!r:.80} is not the name of a shard")
      if not files.exists(os.path.join(self.path, name)):
        raise ValueError(f"{index}: {name} is missing in the folder")
      shard = os.path.join(self.path, name)
      opened[name] = safetensors_files.SafetensorsFile(shard)
    for tensor, name in places.items():
      if tensor not in opened[name].entries:
        raise ValueError(f"{index}: {name} does not hold {tensor!r:.80}")
    return {tensor: opened[name] for tensor, name in places.items()}

  def _match(self, stored: Mapping[str, Any]) -> dict[str, tuple]:
    if self.config.num_hidden_layers > len(stored):
      raise ValueError(
        f"{self.path}: num_hidden_layers is {self.config.num_hidden_layers} in "
        f"{CONFIG}, the weights are {len(stored)}"
      )
    known = {v.hugging_face: v for v in variables(self.config)}
    places, unknown = {}, []
    is_relative = self._model_type in relatives.RELATIVES
    for name in sorted(stored):
      current = _current_name(relatives.to_bert_name(self._model_type, name))
      if _IGNORED.fullmatch(name) or current == _TIED_WEIGHT:
        continue
      if current == _TIED_BIAS:
        if "cls.predictions.bias" in stored:
          continue
        current = "cls.predictions.bias"
      variable = known.get(current)
      if variable is None and current.startswith("bert."):
        unknown.append(name)
        continue
      if is_relative and (
        variable is None or _is_on_another_pooler(current, stored)
      ):
        self.unread.append(name)
        continue
      google = variable.google if variable else name
      if google in places:
        raise ValueError(
          f"{self.path}: {places[google][1]} and {name} are the same variable"
        )
      is_transposed = bool(variable and variable.is_transposed)
      places[google] = (stored[name], name, is_transposed)
    if unknown:
      raise ValueError(
        f"{self.path}: not the weights of the BERT in its {CONFIG}: "
        f"{'; '.join(f'+ {name}' for name in unknown[:10])}"
        f"{f'; and {len(unknown) - 10} more' if unknown[10:] else ''}"
      )
    return places

  def _check_tied(self, stored: Mapping[str, Any]) -> None:
    """Checks that the masked-LM head has the matrix of the embeddings."""
    table = self._places.get("bert/embeddings/word_embeddings")
    tied = [
      name
      for name in stored
      if relatives.to_bert_name(self._model_type, name) == _TIED_WEIGHT
    ]
    if not tied or table is None:
      return
    matrix = stored[tied[0]].read(tied[0])
    if not np.array_equal(matrix, table[0].read(table[1])):
      raise ValueError(
        f"{self.path}: {tied[0]} is not the table of the word embeddings, "
        "as it is in BERT (section A.2 of the paper)"
      )

  def _add_google_only(self) -> None:
    path = os.path.join(self.path, GOOGLE_ONLY)
    if not files.exists(path):
      return
    file = safetensors_files.SafetensorsFile(path)
    weights = os.path.join(self.path, WEIGHTS)
    found = files.exists(weights) and files.hash_file(weights)
    if file.metadata.get(_BELONGS_TO) != found:
      raise ValueError(
        f"{path}: does not belong to the {WEIGHTS} beside it, which is another "
        "since; delete it, or move it away"
      )
    for name in file.entries:
      if name not in self._places:
        self._places[name] = (file, name, False)


def _is_on_another_pooler(name: str, stored: Mapping[str, Any]) -> bool:
  """Tells whether a head is on a dense layer that BERT lacks."""
  return name.startswith("classifier.") and any(
    other.startswith(("pre_classifier.", "sequence_summary."))
    for other in stored
  )


def _current_name(name: str) -> str:
  """Returns what transformers calls a variable today.

  A BertModel saved by itself has no "bert." before its names; weights converted
  years ago have LayerNorm.gamma and .beta.
  """
  if name.startswith(_ENCODER):
    name = f"bert.{name}"
  name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
  return re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)


def read_settings(folder: str) -> dict[str, Any]:
  """Reads config.json.

  Raises:
    ValueError: it is missing, or does not name its model.
  """
  path = os.path.join(folder, CONFIG)
  if not files.exists(path):
    raise ValueError(f"{folder}: holds weights, but no {CONFIG}")
  settings = files.read_json(path)
  relatives.refuse(path, settings.get("model_type"))
  if "model_type" not in settings:
    # Google's and Hugging Face's "gelu" differ: whose file it is must be said.
    raise ValueError(
      f'{path}: no model_type; add "model_type": "bert" if it is of a BERT'
    )
  return settings


def read_config(folder: str) -> modeling.BertConfig:
  """Returns the architecture in a config.json.

  Raises:
    ValueError: it is not that of a BERT, or of a relative of it.
  """
  settings = relatives.to_bert_settings(read_settings(folder))
  try:
    return huggingface_config.to_bert_config(settings)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{os.path.join(folder, CONFIG)}: {error}") from None


def read_labels(settings: Mapping[str, Any]) -> list[str]:
  """Returns the names of labels in a config.json; none if they are numbers.

  Raises:
    ValueError: they are not numbered from 0.
  """
  names = settings.get("id2label") or {}
  try:
    labels = [str(names[str(number)]) for number in range(len(names))]
  except (KeyError, TypeError):
    raise ValueError(
      f'{CONFIG}: id2label is {names!r:.80}; expected {{"0": "name", ...}}'
    ) from None
  is_default = labels == [f"LABEL_{number}" for number in range(len(labels))]
  return [] if is_default else labels


def read_tokens(path: str) -> list[str]:
  """Reads a vocab.txt: one token a line.

  Raises:
    ValueError: it is empty or not UTF-8.
  """
  tokens = [line.removesuffix("\r") for line in files.read_lines(path)]
  if not any(tokens):
    raise ValueError(f"{path}: empty; expected one token a line")
  tokens[0] = tokens[0].removeprefix("\ufeff")
  return tokens


def read_vocabulary(folder: str) -> list[str] | None:
  """Returns the tokens of vocab.txt or, without it, of tokenizer.json.

  Returns:
    The tokens by id; None if there is neither file.

  Raises:
    ValueError: tokenizer.json is not that of a WordPiece vocabulary.
  """
  for name in ("vocab.txt", "vocabulary.txt"):  # The latter is KerasHub's.
    path = os.path.join(folder, name)
    if files.exists(path):
      return read_tokens(path)
  path = os.path.join(folder, "tokenizer.json")
  if not files.exists(path):
    return None
  contents = files.read_json(path)
  model = contents.get("model")
  try:
    ids = dict(model["vocab"])
    ids |= {t["content"]: t["id"] for t in contents.get("added_tokens") or []}
    tokens = {id_: token for token, id_ in ids.items()}
    # An id without a token gets a name that no text has: it holds spaces.
    return [
      tokens.get(id_, f"[no token {id_}]") for id_ in range(_table_size(tokens))
    ]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (model.vocab: tokens "
      "and their ids)"
    ) from None


def _table_size(tokens: Mapping[int, str]) -> int:
  """Returns the size of a table of tokens by id.

  Raises:
    ValueError: the ids are not those of a table.
  """
  size = max(tokens) + 1
  if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
    raise ValueError(f"ids from {min(tokens)} to {size - 1}")
  return size


def read_do_lower_case(folder: str) -> bool | None:
  """Returns do_lower_case of tokenizer_config.json; None if absent.

  Raises:
    ValueError: it asks for words that BERT's original tokenizer cannot make.
  """
  path = os.path.join(folder, "tokenizer_config.json")
  settings = files.read_json(path) if files.exists(path) else {}
  value = settings.get("do_lower_case")
  for name, usual in (
    ("strip_accents", True if value is None else value),
    ("tokenize_chinese_chars", True),
  ):
    if settings.get(name) not in (None, usual):
      raise ValueError(
        f"{path}: {name} is {settings[name]}: this tokenizer strips accents if "
        "and only if it lower-cases, and always splits Chinese characters; "
        f"remove {name} to accept other tokens than the model was trained on"
      )
  return value if isinstance(value, bool) else None


def make_settings(
  config: modeling.BertConfig, head: str, **others: Any
) -> dict[str, Any]:
  """Makes the contents of a config.json.

  Args:
    config: the architecture.
    head: a key of HEADS.
    others: what to add.
  """
  names = {
    "gelu": "gelu_pytorch_tanh",
    "gelu_erf": "gelu",
    "gelu_exact": "gelu",
  }
  fields = json.loads(config.to_json_string())
  return {
    "architectures": [HEADS[head].architecture],
    "model_type": "bert",
    **fields,
    "hidden_act": names.get(config.hidden_act, config.hidden_act),
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    **others,
  }


def make_tokenizer_settings(
  do_lower_case: bool, max_length: int
) -> dict[str, Any]:
  """Makes the contents of a tokenizer_config.json."""
  special = ("unk", "sep", "pad", "cls", "mask")
  return {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": do_lower_case,
    "model_max_length": max_length,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    **{f"{name}_token": f"[{name.upper()}]" for name in special},
  }


def write_weights(
  folder: str,
  config: modeling.BertConfig,
  head: str,
  values: Mapping[str, np.ndarray],
) -> list[str]:
  """Writes model.safetensors and, if need be, google_only.safetensors.

  Args:
    folder: there already.
    config: the architecture.
    head: a key of HEADS: what goes to model.safetensors.
    values: by Google's names.

  Returns:
    The names in google_only.safetensors.
  """
  tensors = {}
  # A BertModel by itself has no "bert." before its names.
  prefix = "bert." if head == "encoder" else ""
  for variable in head_variables(config, head):
    value = values[variable.google]
    name = variable.hugging_face.removeprefix(prefix)
    tensors[name] = value.T if variable.is_transposed else value
  path = os.path.join(folder, WEIGHTS)
  # transformers asks for the format before it reads.
  safetensors_files.write(path, tensors, {"format": "pt"})
  known = {variable.google for variable in head_variables(config, head)}
  rest = {name: values[name] for name in sorted(set(values) - known)}
  if rest:
    belongs_to = {_BELONGS_TO: files.hash_file(path)}
    path = os.path.join(folder, GOOGLE_ONLY)
    safetensors_files.write(path, rest, belongs_to)
  return list(rest)
