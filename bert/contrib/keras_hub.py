"""Folders of KerasHub: BertBackbone, and BertTextClassifier on top of it.

KerasHub itself reads and writes the weights. Its masked-LM head stays unread:
its GELU and the epsilon of its LayerNorm differ from BERT's.
"""

from collections.abc import Mapping
import functools
import math
import os
from typing import Any
import warnings

import numpy as np

from bert import modeling
from bert.convert import models
from bert.data import files, imports, remote
from bert.weights import checkpoints

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
INDEX = "model.weights.json"
_TASK_WEIGHTS = "task.weights.h5"
_FIELDS = {
  "vocabulary_size": "vocab_size",
  "num_layers": "num_hidden_layers",
  "num_heads": "num_attention_heads",
  "hidden_dim": "hidden_size",
  "intermediate_dim": "intermediate_size",
  "max_sequence_length": "max_position_embeddings",
  "num_segments": "type_vocab_size",
}
# From Google's names of variables to their paths in KerasHub's models.
_NAMES = (
  ("^bert/(embeddings|encoder|pooler)/", ""),
  (r"layer_(\d+)/", r"transformer_layer_\1/"),
  ("/attention/self/", "/self_attention_layer/"),
  ("/attention/output/dense", "/self_attention_layer/attention_output"),
  ("/attention/output/LayerNorm", "/self_attention_layer_norm"),
  ("/intermediate/dense", "/feedforward_intermediate_dense"),
  ("/output/dense", "/feedforward_output_dense"),
  ("/output/LayerNorm", "/feedforward_layer_norm"),
  ("^LayerNorm", "embeddings_layer_norm"),
  ("^dense", "pooled_dense"),
  ("^word_embeddings$", "token_embedding/embeddings"),
  ("^position_embeddings$", "position_embedding/embeddings"),
  ("^token_type_embeddings$", "segment_embedding/embeddings"),
  ("^output_weights$", "logits/kernel"),
  ("^output_bias$", "logits/bias"),
)


def import_library() -> Any:
  """Imports keras_hub; an ImportError says how to install it."""
  return imports.load("keras_hub", "models of KerasHub")


def open_model(folder: str) -> models.ModelFolder:
  """Opens a folder; its weights are loaded when the first is read."""
  # A missing library is said before any file is read.
  import_library()
  path = os.path.join(folder, CONFIG)
  config = _read_config(path, files.read_json(path))
  dtype = _check_sizes(folder, config)
  labels, unread = _read_task(folder)

  # KerasHub only loads whole models: the first variable loads all of them.
  load = functools.cache(lambda: _load(folder, config, dtype, labels))
  variables = {
    name: models.StoredVariable(lambda name=name: load()[name], shape)
    for name, shape in _shapes(config, labels).items()
  }

  assets = os.path.join(folder, "assets", "tokenizer")
  vocab_file = os.path.join(assets, "vocabulary.txt")
  return models.ModelFolder(
    models.make_weights(folder, variables, unread, load.cache_clear),
    (assets, folder),
    config,
    vocab_file if files.exists(vocab_file) else None,
    library="KerasHub",
  )


def _naming_damage(path: str):
  # Keras and h5py say in many ways that a file is damaged. A data set in the
  # place of a group lacks its methods.
  errors = (LookupError, TypeError, AttributeError)
  return checkpoints.naming_damage(
    f"{path}: not the weights of {CONFIG}", *errors
  )


def _read_config(path: str, contents: dict[str, Any]) -> modeling.BertConfig:
  name, fields = contents.get("class_name"), contents.get("config")
  if name != "BertBackbone" or not isinstance(fields, dict):
    raise ValueError(
      f"{path}: class_name is {name!r:.80}; expected KerasHub's BertBackbone"
    )

  # KerasHub has one rate of dropout for both places.
  dropout = fields.get("dropout", 0.1)
  try:
    return modeling.BertConfig(
      **{ours: fields.get(theirs) for theirs, ours in _FIELDS.items()},
      hidden_dropout_prob=dropout,
      attention_probs_dropout_prob=dropout,
    )
  except ValueError as error:
    # The message shall use the names that stand in the file.
    names = {**_FIELDS, "dropout": "hidden_dropout_prob"}
    theirs = ((rf"\b{ours}\b", name) for name, ours in names.items())
    message = models.rename(str(error), theirs)
    raise ValueError(f"{path}: {message}") from None


def _check_sizes(folder: str, config: modeling.BertConfig) -> str:
  """Compares a config with the files; returns the dtype of their numbers.

  Keras would ignore layers that the model lacks, and might take all memory.
  """
  import h5py

  sizes = []
  dtypes = []

  def add_size(_, item):
    # Integers are the states of random numbers. h5py shows
    # bfloat16 as bytes without a type, NumPy's kind V.
    if isinstance(item, h5py.Dataset) and item.dtype.kind in "fV":
      sizes.append(item.size)
      dtypes.append("bfloat16" if item.dtype.kind == "V" else item.dtype.name)

  for path in models.find_shards(folder, WEIGHTS, INDEX, ".weights.h5"):
    with _naming_damage(path), h5py.File(remote.local_copy(path)) as file:
      file["layers"].visititems(add_size)

  models.check_layers(folder, config, len(sizes))
  expected = sum(map(math.prod, _shapes(config, 0).values()))
  if sum(sizes) != expected:
    raise ValueError(
      f"{folder}: {CONFIG} is of {expected:,} numbers, the weights are "
      f"{sum(sizes):,}"
    )

  return dtypes[0]


def _read_task(folder: str) -> tuple[int, list[str]]:
  """Returns the labels of a BertTextClassifier, or 0, and files left out."""
  if not files.exists(os.path.join(folder, _TASK_WEIGHTS)):
    return 0, []

  # Any other task has a head that this program does not know: its encoder is
  # read, and the file of its head is named as left out.
  task = files.read_json_if_any(os.path.join(folder, "task.json"))
  fields = task.get("config")
  labels = fields.get("num_classes") if isinstance(fields, dict) else None
  is_classifier = task.get("class_name") == "BertTextClassifier"
  is_count = type(labels) is int and 0 < labels < 1 << 20
  if not (is_classifier and is_count):
    return 0, [_TASK_WEIGHTS]
  return labels, []


def _shapes(config: modeling.BertConfig, labels: int) -> dict[str, tuple]:
  """Returns the shapes of all variables, by Google's names."""
  head = "classifier" if labels else "encoder"
  return models.variables(config, head, labels)


def _make(config, dtype, labels) -> tuple[Any, dict[str, Any]]:
  """Makes KerasHub's model; returns it and its variables by Google's names."""
  theirs = import_library().models
  settings = {"dropout": config.hidden_dropout_prob, "dtype": dtype}
  fields = {name: getattr(config, ours) for name, ours in _FIELDS.items()}
  model = theirs.BertBackbone(**fields, **settings, name="bert_backbone")
  if labels:
    settings |= {"activation": "linear", "name": "bert_text_classifier"}
    model = theirs.BertTextClassifier(model, labels, **settings)

  paths = {variable.path: variable for variable in model.variables}
  names = _shapes(config, labels)
  return model, {name: paths[models.rename(name, _NAMES)] for name in names}


def _load(folder, config, dtype, labels) -> dict[str, np.ndarray]:
  """Loads the weights; whatever goes wrong is a fault of the file."""
  model, variables = _make(config, dtype, labels)

  # Large models are cut into several files, which the index lists.
  path = os.path.join(folder, WEIGHTS)
  shards = ()
  if not files.exists(path):
    path = os.path.join(folder, INDEX)
    shards = models.find_shards(folder, WEIGHTS, INDEX, ".weights.h5")

  # A classifier's head stands in a second file.
  with _naming_damage(path), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    backbone = model.backbone if labels else model
    backbone.load_weights(remote.local_copy(path, *shards))
  if labels:
    path = os.path.join(folder, _TASK_WEIGHTS)
    with _naming_damage(path):
      model.load_task_weights(remote.local_copy(path))

  # Keras multiplies by the kernel, Google's head by its transpose.
  values = {name: np.asarray(variable) for name, variable in variables.items()}
  if labels:
    values["output_weights"] = values["output_weights"].T
  return values


def write(
  folder: str, source: models.Model, values: Mapping[str, np.ndarray]
) -> None:
  """Writes a model: the encoder alone, or a classifier.

  Args:
    folder: to write, local or remote.
    source: the model's config, casing and vocabulary.
    values: of the variables, by Google's names. `output_bias` among them makes
      it a classifier.

  Raises:
    ValueError: KerasHub's models cannot compute the same.
  """
  config = source.config
  rates = config.hidden_dropout_prob, config.attention_probs_dropout_prob
  if config.hidden_act != "gelu" or len(set(rates)) > 1:
    raise ValueError(
      "--output_format=keras_hub: KerasHub has hidden_act='gelu' and one rate "
      f"of dropout; this config has {config.hidden_act!r} and {rates}: pass "
      "another format"
    )

  # Kernels of attention are [H, H] at Google, [H, N, D] in KerasHub.
  dtype = values["bert/embeddings/word_embeddings"].dtype.name
  labels = len(values.get("output_bias", ()))
  model, variables = _make(config, dtype, labels)
  for name, variable in variables.items():
    value = values[name].T if name == "output_weights" else values[name]
    variable.assign(value.reshape(variable.shape))

  # In the original, lower-casing includes accents.
  theirs = import_library().models
  lower = source.do_lower_case
  tokenizer = theirs.BertTokenizer(
    source.vocabulary, lowercase=lower, strip_accents=lower
  )
  preprocessor = theirs.BertTextClassifierPreprocessor(
    tokenizer, sequence_length=config.max_position_embeddings
  )

  with remote.written_locally(folder) as local:
    if labels:
      model.preprocessor = preprocessor
    else:
      preprocessor.save_to_preset(local)
    model.save_to_preset(local)
