"""Folders of KerasHub: BertBackbone, and BertTextClassifier on top of it.

A folder holds config.json, model.weights.h5 (or shards, with an index),
assets/tokenizer/vocabulary.txt and, with a classifier, task.json and
task.weights.h5. KerasHub's masked-LM head stays unread: its GELU and the
epsilon of its LayerNorm are not those of BERT's.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import math
import os
import re
from typing import Any, NamedTuple

import numpy as np

from data import files
import modeling
from weights import readers

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
_INDEX = "model.weights.json"
_TASK_WEIGHTS = "task.weights.h5"
ASSETS = os.path.join("assets", "tokenizer")  # With vocabulary.txt in it.
_FIELDS = {
  "vocabulary_size": "vocab_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "hidden_dim": "hidden_size",
  "intermediate_dim": "intermediate_size",
  "max_sequence_length": "max_position_embeddings",
  "num_segments": "type_vocab_size",
}
_EMBEDDINGS = {
  "reversible_embedding/vars/0": "word_embeddings",
  "position_embedding/vars/0": "position_embeddings",
  "embedding/vars/0": "token_type_embeddings",
  "layer_normalization/vars/0": "LayerNorm/gamma",
  "layer_normalization/vars/1": "LayerNorm/beta",
}
_IN_LAYER = {
  "_self_attention_layer/query_dense": "attention/self/query",
  "_self_attention_layer/key_dense": "attention/self/key",
  "_self_attention_layer/value_dense": "attention/self/value",
  "_self_attention_layer/output_dense": "attention/output/dense",
  "_self_attention_layer_norm": "attention/output/LayerNorm",
  "_feedforward_intermediate_dense": "intermediate/dense",
  "_feedforward_output_dense": "output/dense",
  "_feedforward_layer_norm": "output/LayerNorm",
}

_CLASSIFIER = {
  "layers/dense/vars/0": "output_weights",
  "layers/dense/vars/1": "output_bias",
}


def is_folder(path: str) -> bool:
  """Tells whether a path is a folder of KerasHub's."""
  return any(files.exists(os.path.join(path, n)) for n in (WEIGHTS, _INDEX))


def open_folder(folder: str) -> readers.Reader:
  """Opens a folder's weights.

  Raises:
    ValueError: a file is missing, damaged, or not of a BERT.
    OSError: a file cannot be read.
    ImportError: h5py is missing.
  """
  config = _read_config(os.path.join(folder, CONFIG))
  known = _names(config)
  places, unknown = {}, []
  for file in _find_files(folder):
    for name, shape in _list_datasets(file):
      google = known.get(name)
      if google is None:
        unknown.append(name)
        continue
      if google in places:
        raise ValueError(f"{folder}: {name} is in two shards")
      places[google] = readers.Place(
        functools.partial(_read_dataset, file, name),
        readers.flatten(google, shape),
      )
  readers.refuse_unknown(folder, unknown)
  unread = _add_head(folder, places)
  casing = _read_lowercase(folder)
  return readers.Reader("KerasHub", places, config, (), casing, unread)


def _add_head(folder: str, places: dict[str, readers.Place]) -> list[str]:
  """Adds the head of a BertTextClassifier; returns the names in another."""
  path, unread = os.path.join(folder, _TASK_WEIGHTS), []
  if not files.exists(path):
    return []
  task = _class(os.path.join(folder, "task.json"))
  known = _CLASSIFIER if task == "BertTextClassifier" else {}
  for name, shape in _list_datasets(path):
    if name in known:
      read = functools.partial(_read_dataset, path, name)
      places[known[name]] = readers.Place(read, shape[::-1], len(shape) == 2)
    else:
      unread.append(f"{_TASK_WEIGHTS}: {name}")
  return unread


def _names(config: modeling.BertConfig) -> dict[str, str]:
  """Returns Google's names of all variables by their places in the file."""
  names = {
    f"layers/{k}": f"bert/embeddings/{v}" for k, v in _EMBEDDINGS.items()
  }
  names["layers/dense/vars/0"] = "bert/pooler/dense/kernel"
  names["layers/dense/vars/1"] = "bert/pooler/dense/bias"
  for layer in range(config.num_hidden_layers):
    number = f"_{layer}" if layer else ""
    for theirs, ours in _IN_LAYER.items():
      is_norm = ours.endswith("LayerNorm")
      leaves = ("gamma", "beta") if is_norm else ("kernel", "bias")
      for index, leaf in enumerate(leaves):
        names[f"layers/transformer_encoder{number}/{theirs}/vars/{index}"] = (
          f"bert/encoder/layer_{layer}/{ours}/{leaf}"
        )
  return names


def _class(path: str) -> str | None:
  return files.read_json(path).get("class_name") if files.exists(path) else None


def _read_config(path: str) -> modeling.BertConfig:
  contents = files.read_json(path)
  name, fields = contents.get("class_name"), contents.get("config")
  if name != "BertBackbone" or not isinstance(fields, dict):
    raise ValueError(
      f"{path}: class_name is {name!r:.80}; of KerasHub's models only "
      "BertBackbone is a BERT"
    )
  missing = sorted(set(_FIELDS) - set(fields))
  if missing:
    raise ValueError(f"{path}: config has no {missing[0]}")
  dropout = fields.get("dropout", 0.1)
  try:
    return modeling.BertConfig(
      **{ours: fields[theirs] for theirs, ours in _FIELDS.items()},
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=dropout,
    )
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from None


def _read_lowercase(folder: str) -> bool | None:
  path = os.path.join(folder, "tokenizer.json")
  if not files.exists(path):
    return None
  fields = files.read_json(path).get("config")
  value = fields.get("lowercase") if isinstance(fields, dict) else None
  return value if isinstance(value, bool) else None


def _find_files(folder: str) -> list[str]:
  """Returns the files of the backbone's weights."""
  path = os.path.join(folder, WEIGHTS)
  if files.exists(path):
    return [path]
  index = os.path.join(folder, _INDEX)
  places = files.read_json(index).get("weight_map")
  if not isinstance(places, dict) or not places:
    raise ValueError(f"{index}: has no weight_map")
  names = set()
  for place in places.values():
    names.update(map(str, place if isinstance(place, list) else [place]))
  for name in sorted(names):
    # A name such as ../../x would lead out of the folder.
    if not re.fullmatch(r"[\w.-]+\.weights\.h5", name):
      raise ValueError(f"{index}: {name!r:.80} is not the name of a shard")
    if not files.exists(os.path.join(folder, name)):
      raise ValueError(f"{index}: {name} is missing in the folder")
  return [os.path.join(folder, name) for name in sorted(names)]


def _import_h5py():
  try:
    import h5py
  except ImportError:
    raise ImportError(
      "KerasHub's folders need the package h5py, which comes with keras: pip "
      "install -r requirements.txt"
    ) from None
  return h5py


class _Dataset(NamedTuple):
  """What an HDF5 file says of an array."""

  name: str
  shape: tuple[int, ...]
  dtype: np.dtype
  is_plain: bool  # Not in chunks, compressed, or in another file.
  size: int  # Bytes stored.


@contextlib.contextmanager
def _open_hdf5(path: str) -> Iterator[Any]:
  """Opens a file of HDF5; whatever goes wrong in the body is its fault."""
  h5py = _import_h5py()
  try:
    with files.open_bytes(path) as stream, h5py.File(stream, "r") as file:
      yield file
  # The library says in many ways that a file is damaged.
  except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
    reason = " ".join(str(error).split())
    raise ValueError(f"{path}: not a whole HDF5 file: {reason:.200}") from None


def _list_datasets(path: str) -> Iterator[tuple[str, tuple[int, ...]]]:
  """Yields names and shapes of the model's arrays.

  Raises:
    ValueError: the file is damaged, or does not hold the numbers it promises:
      chunks, compression and links to other files, which Keras does not write,
      would let a small file ask for any memory, or read another.
  """
  found = []

  def visit(name, item):
    is_ours = not name.startswith(("optimizer/", "metrics/"))
    if is_ours and hasattr(item, "shape"):
      plain = not (item.chunks or item.external or item.is_virtual)
      size, shape = item.id.get_storage_size(), tuple(item.shape or ())
      found.append(_Dataset(name, shape, item.dtype, plain, size))

  with _open_hdf5(path) as file:
    file.visititems(visit)
  for name, shape, dtype, is_plain, size in found:
    if dtype.kind != "f":
      raise ValueError(
        f"{path}: {name!r:.80} has the dtype {dtype}; expected float16, "
        "float32 or float64"
      )
    if not is_plain or size != math.prod(shape) * dtype.itemsize:
      raise ValueError(
        f"{path}: {name!r:.80} of shape {shape!r:.80} is not stored as Keras "
        "stores weights"
      )
    yield name, shape


def _read_dataset(path: str, name: str) -> np.ndarray:
  with _open_hdf5(path) as file:
    return np.asarray(file[name][()])


def write(
  folder: str,
  config: modeling.BertConfig,
  values: Mapping[str, np.ndarray],
  do_lower_case: bool,
) -> list[str]:
  """Writes a folder for KerasHub: everything but the vocabulary.

  Args:
    folder: there already.
    config: the architecture; its activation is GELU in its tanh form.
    values: by Google's names; a classifier's too, if it has `output_weights`.
    do_lower_case: for the tokenizer.

  Returns:
    The names that KerasHub has no place for.

  Raises:
    ValueError: KerasHub cannot say what the config says.
  """
  _check_representable(config)
  names = _names(config)
  arrays = {
    theirs: _split_heads(ours, values[ours], config.num_attention_heads)
    for theirs, ours in names.items()
  }
  _write_datasets(os.path.join(folder, WEIGHTS), arrays)
  used, labels = set(names.values()), None
  if "output_weights" in values:
    used |= set(_CLASSIFIER.values())
    labels = len(values["output_bias"])
    head = {theirs: values[ours].T for theirs, ours in _CLASSIFIER.items()}
    _write_datasets(os.path.join(folder, _TASK_WEIGHTS), head)
  for name, contents in _describe(config, do_lower_case, labels).items():
    files.write_json(os.path.join(folder, name), contents)
  return sorted(set(values) - used)


def _describe(
  config: modeling.BertConfig, do_lower_case: bool, labels: int | None
) -> dict[str, Any]:
  """Returns the contents of the JSON files, by name of the file."""
  backbone = _object(
    "bert.bert_backbone",
    "BertBackbone",
    {
      **{theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()},
      "dropout": config.hidden_dropout_prob,
    },
  )
  tokenizer = _object(
    "bert.bert_tokenizer",
    "BertTokenizer",
    {
      "lowercase": do_lower_case,
      # Which goes with lower-casing in BERT, but not in KerasHub's default.
      "strip_accents": do_lower_case,
      "config_file": "tokenizer.json",
    },
  )
  preprocessor = _object(
    "bert.bert_text_classifier_preprocessor",
    "BertTextClassifierPreprocessor",
    {
      "tokenizer": tokenizer,
      "config_file": "preprocessor.json",
      "sequence_length": config.max_position_embeddings,
      "truncate": "round_robin",
    },
  )
  contents = {
    CONFIG: backbone,
    "tokenizer.json": tokenizer,
    "preprocessor.json": preprocessor,
  }
  if labels is not None:
    contents["task.json"] = _object(
      "bert.bert_text_classifier",
      "BertTextClassifier",
      {
        "backbone": backbone,
        "preprocessor": preprocessor,
        "num_classes": labels,
        "activation": "linear",
        "dropout": config.hidden_dropout_prob,
      },
    )
  return contents


def _check_representable(config: modeling.BertConfig) -> None:
  differing = []
  if config.hidden_act != "gelu":
    differing.append(f"hidden_act={config.hidden_act!r}, KerasHub has 'gelu'")
  if config.embedding_width != config.hidden_size:
    differing.append("embedding_size, KerasHub has hidden_size")
  if config.hidden_dropout_prob != config.attention_probs_dropout_prob:
    differing.append("two rates of dropout, KerasHub has one")
  if differing:
    raise ValueError(
      f"--output_format=keras_hub: this config has {'; '.join(differing)}"
    )


def _split_heads(name: str, value: np.ndarray, heads: int) -> np.ndarray:
  if "/attention/self/" in name:
    return value.reshape(*value.shape[:-1], heads, -1)
  if name.endswith("/attention/output/dense/kernel"):
    return value.reshape(heads, -1, value.shape[-1])
  return value


def _object(module: str, name: str, config: dict[str, Any]) -> dict[str, Any]:
  return {
    "module": f"keras_hub.src.models.{module}",
    "class_name": name,
    "config": config,
    "registered_name": f"keras_hub>{name}",
  }


def _write_datasets(path: str, arrays: Mapping[str, np.ndarray]) -> None:
  h5py = _import_h5py()
  with files.open_for_writing(path) as stream, h5py.File(stream, "w") as file:
    for name, value in arrays.items():
      file.create_dataset(name, data=np.asarray(value, np.float32))
