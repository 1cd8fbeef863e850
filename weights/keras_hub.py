"""Folders of KerasHub: BertBackbone, and BertTextClassifier on top of it.

A folder holds config.json, model.weights.h5 (or shards, with an index),
assets/tokenizer/vocabulary.txt and, with a classifier, task.json and
task.weights.h5. KerasHub's masked-LM head stays unread: its GELU and the
epsilon of its LayerNorm differ from BERT's.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import functools
import math
import os
import sys
from typing import Any, NamedTuple

import h5py
import numpy as np

from data import files
import modeling
from weights import architecture
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
# From Google's names of the encoder's variables to the places in the file.
_NAMES = (
  ("^bert/(embeddings|encoder|pooler)/", "layers/"),
  ("layer_0/", "transformer_encoder/"),
  (r"layer_(\d+)/", r"transformer_encoder_\1/"),
  ("/attention/self/(query|key|value)", r"/_self_attention_layer/\1_dense"),
  ("/attention/output/dense", "/_self_attention_layer/output_dense"),
  ("/attention/output/LayerNorm", "/_self_attention_layer_norm"),
  ("/intermediate/dense", "/_feedforward_intermediate_dense"),
  (r"(encoder\w*)/output/dense", r"\1/_feedforward_output_dense"),
  (r"(encoder\w*)/output/LayerNorm", r"\1/_feedforward_layer_norm"),
  ("/LayerNorm", "/layer_normalization"),
  ("word_embeddings$", "reversible_embedding/kernel"),
  ("position_embeddings$", "position_embedding/kernel"),
  ("token_type_embeddings$", "embedding/kernel"),
  ("(kernel|gamma)$", "vars/0"),
  ("(bias|beta)$", "vars/1"),
)
_CLASSIFIER = {
  "layers/dense/vars/0": "output_weights",
  "layers/dense/vars/1": "output_bias",
}


def is_folder(path: str) -> bool:
  """Tells whether a path is a folder of KerasHub's."""
  return any(files.exists(os.path.join(path, n)) for n in (WEIGHTS, _INDEX))


def open_folder(folder: str) -> readers.Reader:
  """Opens a folder's weights; raises as `formats.open_folder` does."""
  config = _read_config(os.path.join(folder, CONFIG))
  stored = [x for path in _find_files(folder) for x in _list_datasets(path)]
  readers.check_layers(folder, config, len(stored))
  known = _names(config)
  readers.refuse_unknown(
    folder, [x.name for x in stored if x.name not in known]
  )
  places = {}
  for dataset in stored:
    google = known[dataset.name]
    if google in places:
      raise ValueError(f"{folder}: {dataset.name} is in two shards")
    heads = [config.num_attention_heads]
    if google.endswith("query/kernel") and list(dataset.shape[1:-1]) != heads:
      raise ValueError(
        f"{folder}: {dataset.name} has the shape {dataset.shape}; num_heads in "
        f"{CONFIG} is {heads[0]}"
      )
    places[google] = readers.make_place(google, dataset.shape, dataset.read)
  unread = _add_head(folder, places)
  casing = _read_lowercase(folder)
  return readers.Reader("KerasHub", places, config, (), casing, unread)


def _add_head(folder: str, places: dict[str, readers.Place]) -> list[str]:
  """Adds the head of a BertTextClassifier; returns the names in another."""
  path, unread = os.path.join(folder, _TASK_WEIGHTS), []
  if not files.exists(path):
    return []
  task = files.read_json_if_any(os.path.join(folder, "task.json"))
  is_known = task.get("class_name") == "BertTextClassifier"
  known = _CLASSIFIER if is_known else {}
  for name, shape, read in _list_datasets(path):
    if name in known:
      is_matrix = len(shape) == 2
      place = readers.make_place(known[name], shape, read, is_matrix)
      places[known[name]] = place
    else:
      unread.append(f"{_TASK_WEIGHTS}: {name}")
  return unread


def _names(config: modeling.BertConfig) -> dict[str, str]:
  """Returns Google's names of all variables by their places in the file."""
  names = architecture.variables(config, "encoder")
  return {readers.rename(name, _NAMES): name for name in names}


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
  fields = files.read_json_if_any(path).get("config")
  if not isinstance(fields, dict) or "lowercase" not in fields:
    return None
  value = fields["lowercase"]
  if not fields.get("split_on_cjk", True):
    raise ValueError(
      f"{path}: split_on_cjk is false: this tokenizer splits Chinese characters"
    )
  if fields.get("strip_accents", value) != value:  # KerasHub's default.
    print(
      f"note: {path}: strip_accents is {fields['strip_accents']}; here accents "
      "are stripped if and only if text is lower-cased, as by the original",
      file=sys.stderr,
    )
  return value if isinstance(value, bool) else None


def _find_files(folder: str) -> list[str]:
  """Returns the files of the backbone's weights."""
  path = os.path.join(folder, WEIGHTS)
  if files.exists(path):
    return [path]
  return sorted(readers.find_shards(folder, _INDEX, ".weights.h5"))


class _Dataset(NamedTuple):
  """An array in an HDF5 file."""

  name: str
  shape: tuple[int, ...]
  read: Callable[[], np.ndarray]


@contextlib.contextmanager
def _open_hdf5(path: str) -> Iterator[Any]:
  """Opens a file of HDF5; whatever goes wrong in the body is its fault."""
  try:
    with files.open_bytes(path) as stream, h5py.File(stream, "r") as file:
      yield file
  # The library says in many ways that a file is damaged.
  except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
    reason = " ".join(str(error).split())
    raise ValueError(f"{path}: not a whole HDF5 file: {reason:.200}") from None


def _list_datasets(path: str) -> list[_Dataset]:
  """Lists the model's arrays.

  Raises:
    ValueError: the file is damaged, or does not hold the numbers it promises:
      chunks, compression and links to other files, which Keras does not write,
      would let a small file ask for any memory, or read another.
  """
  found, faults = [], []

  def visit(name, item):
    if name.startswith(("optimizer/", "metrics/")) or not hasattr(
      item, "shape"
    ):
      return
    dtype, shape = item.dtype, tuple(item.shape or ())
    found.append(_Dataset(name, shape, functools.partial(_read, path, name)))
    is_plain = not (item.chunks or item.external or item.is_virtual)
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind != "f":
      faults.append(
        f"{name!r:.80} has the dtype {dtype}; expected float16, float32 or "
        "float64"
      )
    elif not is_plain or item.id.get_storage_size() != size:
      faults.append(
        f"{name!r:.80} of shape {shape!r:.80} is not stored as Keras stores "
        "weights"
      )

  with _open_hdf5(path) as file:
    file.visititems(visit)
  if faults:
    raise ValueError(f"{path}: {faults[0]}")
  return found


def _read(path: str, name: str) -> np.ndarray:
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

  Returns:
    The names that KerasHub has no place for.

  Raises:
    ValueError: KerasHub cannot say what the config says.
  """
  _check_representable(config)
  backbone = {}
  for theirs, ours in _names(config).items():
    value = values[ours]
    if "/attention/self/" in ours:
      value = value.reshape(*value.shape[:-1], config.num_attention_heads, -1)
    elif ours.endswith("/attention/output/dense/kernel"):
      value = value.reshape(config.num_attention_heads, -1, value.shape[-1])
    backbone[theirs] = value
  _write_datasets(os.path.join(folder, WEIGHTS), backbone)
  used, labels = set(_names(config).values()), None
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
  fields = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
  dropout = config.hidden_dropout_prob
  backbone = _object("bert_backbone.BertBackbone", **fields, dropout=dropout)
  tokenizer = _object(
    "bert_tokenizer.BertTokenizer",
    lowercase=do_lower_case,
    # BERT strips accents when it lower-cases; KerasHub does not by default.
    strip_accents=do_lower_case,
    config_file="tokenizer.json",
  )
  preprocessor = _object(
    "bert_text_classifier_preprocessor.BertTextClassifierPreprocessor",
    tokenizer=tokenizer,
    config_file="preprocessor.json",
    sequence_length=config.max_position_embeddings,
    truncate="round_robin",
  )
  contents = {
    CONFIG: backbone,
    "tokenizer.json": tokenizer,
    "preprocessor.json": preprocessor,
  }
  if labels is not None:
    contents["task.json"] = _object(
      "bert_text_classifier.BertTextClassifier",
      backbone=backbone,
      preprocessor=preprocessor,
      num_classes=labels,
      activation="linear",
      dropout=dropout,
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


def _object(name: str, **config: Any) -> dict[str, Any]:
  """Returns what KerasHub writes of an object of `bert/<module>.<class>`."""
  module, _, class_name = name.partition(".")
  return {
    "module": f"keras_hub.src.models.bert.{module}",
    "class_name": class_name,
    "config": config,
    "registered_name": f"keras_hub>{class_name}",
  }


def _write_datasets(path: str, arrays: Mapping[str, np.ndarray]) -> None:
  with files.open_for_writing(path) as stream, h5py.File(stream, "w") as file:
    for name, value in arrays.items():
      file.create_dataset(name, data=value)
