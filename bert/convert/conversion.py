"""Reads whole models to convert or to change them.

A model that was opened, Google's or another library's, becomes a `Model`;
functions that change it return a new one.
"""

from collections.abc import Sequence
import dataclasses
from typing import Any

import keras
import numpy as np

from bert import modeling
from bert.convert import models, tokenizer_files
from bert.data import label_files
from bert.vocabularies import vocabulary_table
from bert.weights import fitting

_LAYER = "bert/encoder/layer_"  # Begins the names of a layer's variables.
_POSITIONS = "bert/embeddings/position_embeddings"
# The variables that have a row, or an element, for each token.
_TABLE = "bert/embeddings/word_embeddings"
_BIAS = "cls/predictions/output_bias"


def read(folder: models.ModelFolder, settings: Any) -> models.Model:
  """Reads all weights of an opened model, and the files beside them.

  The settings, those of convert_checkpoint.py, count instead of its files. A
  ValueError if a file is not found, or does not fit the others.
  """
  _check_is_transformer(folder)
  weights = folder.weights
  values = {n: np.asarray(weights.read(n)) for n in sorted(weights.shapes)}
  for name, value in values.items():
    if value.dtype.name == "bfloat16":  # Which numpy lacks.
      values[name] = value.astype(np.float32)
  _check_encoder(folder, values)
  other_vocab = settings.vocab_file or folder.vocab_file
  # WordPieces are read with the tokens that were added to them later.
  if not other_vocab or vocabulary_table.is_word_pieces(other_vocab):
    other_vocab = None
    vocabulary = _read_word_pieces(folder.folders, settings.vocab_file)
  else:
    vocab = vocabulary_table.load_vocab(other_vocab)
    tokens = {index: token for token, index in vocab.items()}
    vocabulary = [tokens[index] for index in sorted(tokens)]
  do_lower_case = settings.do_lower_case
  if do_lower_case is None:
    do_lower_case = folder.do_lower_case
  if do_lower_case is None:
    do_lower_case = not vocabulary_table.is_cased(vocabulary)
  head, labels = settings.head, folder.labels
  if head == "auto":
    head = _find_head(values, folder.problem)
  else:
    kept = ("bert/", "global_step", *models.HEADS[head].prefixes)
    values = {name: x for name, x in values.items() if name.startswith(kept)}
  _check_arrays(folder, values)
  if settings.labels_file:
    labels = label_files.read(settings.labels_file)
  count = len(values.get("output_bias", labels))
  if labels and len(labels) != count:
    raise ValueError(
      f"{folder.source}: {len(labels)} labels, but the head has {count}: "
      "pass its --labels_file"
    )
  # Labels without their head would only stop whoever trains another.
  has_labels = "output_weights" in values or settings.labels_file
  changed = {
    "problem": folder.problem if "output_weights" in values else None,
    "vocab_file": other_vocab,
    "do_lower_case": do_lower_case,
    "labels": tuple(labels) if has_labels else (),
  }
  return models.Model(
    **(vars(folder) | changed), values=values, head=head, vocabulary=vocabulary
  )


def choose_layers(
  folder: models.ModelFolder, layers: Sequence[int]
) -> models.ModelFolder:
  """Returns a model with some layers of another one, and the rest of it.

  Args:
    folder: the model, as it was opened.
    layers: the numbers of its layers, from 0, in their new order.
  """
  _check_is_transformer(folder)
  weights = folder.weights
  # Stored names by their new ones; an optimizer's slots move with their layer.
  stored = {n: n for n in weights.shapes if not n.startswith(_LAYER)}
  for place, layer in enumerate(layers):
    old, new = f"{_LAYER}{layer}/", f"{_LAYER}{place}/"
    names = [name for name in weights.shapes if name.startswith(old)]
    if not names:
      raise ValueError(f"--layers: no layer {layer} in {folder.source}")
    stored |= {name.replace(old, new): name for name in names}

  shallow = weights._replace(
    source=f"{folder.source}, layers {', '.join(map(str, layers))}",
    shapes={new: weights.shapes[old] for new, old in stored.items()},
    read=lambda name: weights.read(stored[name]),
  )
  config = dataclasses.replace(folder.config, num_hidden_layers=len(layers))
  return dataclasses.replace(folder, weights=shallow, config=config)


def _check_is_transformer(folder: models.ModelFolder) -> None:
  if not folder.config:
    raise ValueError(
      f"{folder.folders[0]}: holds no bert_config.json: pass --bert_config_file"
    )
  if not isinstance(folder.config, modeling.BertConfig):
    raise ValueError(
      f"{folder.source}: encoder_type is {folder.config.encoder_type!r}: no "
      "other library has this"
    )


def _check_encoder(folder: models.ModelFolder, values) -> None:
  """Compares the variables of BERT itself with its config."""
  models.check_layers(folder.source, folder.config, len(values))
  expected = models.variables(folder.config, "encoder")
  fitting.compare(
    folder.source,
    {name: value.shape for name, value in values.items()},
    expected,
    # Hugging Face stores no pooler with a head that does not use it.
    lambda name: not name.startswith("bert/") or "/pooler/dense/" in name,
    "its config",
  )


def _check_arrays(folder: models.ModelFolder, values) -> None:
  """Refuses variables of BERT and its heads that are not arrays of floats."""
  expected = models.variables(folder.config)
  for name in sorted(set(expected) & set(values)):
    value, axes = values[name], len(expected[name])
    if value.dtype.kind != "f" or value.ndim != axes:
      raise ValueError(
        f"{folder.source}: {name} holds {value.dtype} with {value.ndim} axes; "
        f"expected floats with {axes}"
      )


def _read_word_pieces(folders, vocab_file: str | None) -> list[str]:
  known = next(filter(None, map(tokenizer_files.read_vocabulary, folders)), [])
  if not (known or vocab_file):
    raise ValueError(f"{folders[0]}: holds no vocab.txt: pass --vocab_file")
  if not vocab_file:
    return known
  tokens = tokenizer_files.read_tokens(vocab_file)
  for number, token in enumerate(known, 1):
    if tokens[number - 1 : number] != [token]:
      raise ValueError(
        f"--vocab_file={vocab_file}:{number}: expected {token!r:.80}, as in "
        f"the vocabulary in {folders[0]}; add tokens at the end"
      )
  return tokens


def _find_head(values, problem: str | None) -> str:
  if "cls/squad/output_weights" in values:
    return "question_answering"
  if "output_weights" in values:
    return problem if problem in models.HEADS else "classifier"
  has_words = "cls/predictions/output_bias" in values
  has_next = "cls/seq_relationship/output_weights" in values
  if has_words:
    return "pretraining" if has_next else "masked_lm"
  return "next_sentence" if has_next else "encoder"


def strip(model: models.Model) -> models.Model:
  """Leaves out the state of the training: the optimizer's slots, the step."""
  values = {
    name: value
    for name, value in model.values.items()
    if not fitting.is_training_state(name, model.values)
  }
  return dataclasses.replace(model, values=values)


def to_float16(model: models.Model) -> models.Model:
  """Rounds the weights to float16; a ValueError if one is too large for it.

  The state of a training stays: Adam's second moments would mostly be zero.
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
        f"--float16: {name} holds {value[lost].flat[0]}; float16 ends at 65504"
      )
  return dataclasses.replace(model, values={**model.values, **values})


def grow_positions(model: models.Model, size: int) -> models.Model:
  """Lengthens the table of positions to `size` rows by repeating it.

  As Longformer begins (https://arxiv.org/abs/2004.05150, section 5): what
  positions know about their neighbours is worth more than random rows.
  """
  old = model.config.max_position_embeddings
  if size <= old:
    raise ValueError(f"--grow_positions={size}: expected more than {old}")
  rows = np.take(model.values[_POSITIONS], np.arange(old, size) % old, axis=0)
  values = _append(model.values, _POSITIONS, rows)
  config = dataclasses.replace(model.config, max_position_embeddings=size)
  return dataclasses.replace(model, config=config, values=values)


def resize_vocabulary(
  model: models.Model, size: int, seed: int
) -> models.Model:
  """Adds random rows for new tokens, up to `size`, and biases of 0."""
  old, config = model.config.vocab_size, model.config
  if size <= old:
    raise ValueError(f"--resize_vocab={size}: expected more than {old}")
  deviation = config.initializer_range
  draw = keras.initializers.TruncatedNormal(stddev=deviation, seed=seed)
  rows = np.asarray(draw([size - old, config.embedding_width]))
  values = _append(model.values, _TABLE, rows)
  if _BIAS in values:
    values = _append(values, _BIAS, np.zeros(size - old))
  config = dataclasses.replace(config, vocab_size=size)
  return dataclasses.replace(model, config=config, values=values)


def _append(values, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
  """Returns values with more rows of a variable, and zeros in its slots."""
  longer = {}
  for found, value in values.items():
    is_slot = found.rpartition("/")[0] == name
    if found == name or (is_slot and value.shape == values[name].shape):
      added = rows if found == name else np.zeros_like(rows)
      longer[found] = np.concatenate([value, added.astype(value.dtype)])
  return {**values, **longer}


def check_vocabulary(model: models.Model) -> None:
  """Raises a ValueError if there are more tokens than word embeddings."""
  size, rows = len(model.vocabulary), model.config.vocab_size
  if size > rows:
    raise ValueError(
      f"{model.source}: {rows} word embeddings, but {size} tokens in the "
      f"vocabulary: pass the model's --vocab_file, of {rows} tokens, or to add "
      f"tokens, --resize_vocab={size}"
    )


def describe_differences(model: models.Model) -> list[str]:
  """Returns lines about what the source lacks, or the model."""
  lines = [
    f"not in it, taken: {field}={getattr(model.config, field)!r}; else "
    "--bert_config_file"
    for field in model.assumed
  ]
  if without := model.config.vocab_size - len(model.vocabulary):
    lines.append(f"rows of embeddings without a token: {without}")
  there = {*model.weights.shapes, *model.weights.unread}
  names = there - set(model.values)
  state = {name for name in names if fitting.is_training_state(name, there)}
  state |= set(filter(fitting.is_foreign_state, model.weights.unread))
  if state:
    count = len(state)
    lines.append(f"left out: {count} variables of the state of the training")
  if names - state:
    lines.append(f"left out: {', '.join(sorted(names - state))}")
  expected = models.variables(model.config, model.head)
  missing = [name for name in expected if name not in model.values]
  if missing and not model.config.encoder_type:
    lines.append(f"not in it: {', '.join(missing)}")
  return lines
