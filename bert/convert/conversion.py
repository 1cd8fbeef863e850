"""Reads whole models to convert or to change them.

A model that was opened, Google's or another library's, becomes a `Model`;
functions that change it return a new one.
"""

from collections.abc import Sequence
import dataclasses

import keras
import numpy as np

from bert import modeling
from bert.convert import models, tokenizer_files
from bert.data import label_files
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints, fitting

_LAYER = "bert/encoder/layer_"  # Begins the names of a layer's variables.
_POSITIONS = "bert/embeddings/position_embeddings"
# The variables that have a row, or an element, for each token.
_TABLE = "bert/embeddings/word_embeddings"
_BIAS = "cls/predictions/output_bias"


def read(
  folder: models.ModelFolder,
  vocab_file: str | None = None,
  do_lower_case: bool | None = None,
  head: str = "auto",
  labels_file: str | None = None,
) -> models.Model:
  """Reads all weights of an opened model, and the files beside them.

  Args:
    folder: the model.
    vocab_file: counts instead of its own; more tokens may be at its end.
    do_lower_case: counts instead of what its files say.
    head: a key of `models.HEADS`, to leave out the others; "auto" leaves out
      nothing.
    labels_file: counts instead of its own labels.

  Returns:
    The model. A ValueError says that a file is missing, or that one does not
    fit the others.
  """
  config = _config_of_transformer(folder)
  values = _read_values(folder, config)
  other_vocab, vocabulary = _read_vocabulary(folder, vocab_file)
  if do_lower_case is None:
    do_lower_case = folder.do_lower_case
  if do_lower_case is None:
    do_lower_case = not vocabulary_table.is_cased(vocabulary)

  if head == "auto":
    head = _find_head(values, folder.problem)
  else:
    kept = ("bert/", "global_step", *models.HEADS[head].prefixes)
    values = {name: x for name, x in values.items() if name.startswith(kept)}
  _check_arrays(folder, config, values)
  return models.Model(
    opened=folder,
    config=config,
    values=values,
    head=head,
    vocabulary=vocabulary,
    vocab_file=other_vocab,
    do_lower_case=do_lower_case,
    problem=folder.problem if "output_weights" in values else None,
    labels=_choose_labels(folder, values, labels_file),
  )


def _config_of_transformer(folder: models.ModelFolder) -> modeling.BertConfig:
  """Returns the config; a ValueError if it is missing or no Transformer's."""
  if not folder.config:
    raise ValueError(
      f"{folder.folders[0]}: holds no bert_config.json: pass --bert_config_file"
    )
  if not isinstance(folder.config, modeling.BertConfig):
    raise ValueError(
      f"{folder.source}: encoder_type is {folder.config.encoder_type!r}: no "
      "other library has this"
    )
  return folder.config


def _read_values(
  folder: models.ModelFolder, config: modeling.BertConfig
) -> dict[str, np.ndarray]:
  """Reads the weights, and compares those of BERT itself with its config."""
  weights, values = folder.weights, {}
  for name in sorted(weights.shapes):
    value = np.asarray(weights.read(name))
    if value.dtype.name == "bfloat16":  # Which numpy lacks.
      value = value.astype(np.float32)
    values[name] = value

  models.check_layers(folder.source, config, len(values))
  fitting.compare(
    folder.source,
    {name: value.shape for name, value in values.items()},
    models.variables(config, "encoder"),
    checkpoints.is_above_layers,
    "its config",
  )
  return values


def _check_arrays(folder: models.ModelFolder, config, values) -> None:
  """Refuses variables of BERT and its heads that are not arrays of floats."""
  expected = models.variables(config)
  for name in sorted(set(expected) & set(values)):
    value, axes = values[name], len(expected[name])
    if value.dtype.kind != "f" or value.ndim != axes:
      raise ValueError(
        f"{folder.source}: {name} holds {value.dtype} with {value.ndim} axes; "
        f"expected floats with {axes}"
      )


def _read_vocabulary(
  folder: models.ModelFolder, vocab_file: str | None
) -> tuple[str | None, list[str]]:
  """Returns the file of a vocabulary unless it is WordPieces, and its tokens.

  The folder's WordPieces are read with the tokens that were added to them
  later. A `vocab_file` may add more at their end; a ValueError if it changes
  one of them.
  """
  other = vocab_file or folder.vocab_file
  if other and not vocabulary_table.is_word_pieces(other):
    ids = vocabulary_table.load_vocab(other)
    tokens = {id_: token for token, id_ in ids.items()}
    return other, [tokens[id_] for id_ in sorted(tokens)]

  found = map(tokenizer_files.read_vocabulary, folder.folders)
  known = next(filter(None, found), [])
  if not vocab_file:
    if not known:
      raise ValueError(
        f"{folder.folders[0]}: holds no vocab.txt: pass --vocab_file"
      )
    return None, known
  given = tokenizer_files.read_tokens(vocab_file)
  for number, token in enumerate(known, 1):
    if given[number - 1 : number] != [token]:
      raise ValueError(
        f"--vocab_file={vocab_file}:{number}: expected {token!r:.80}, as in "
        f"the vocabulary in {folder.folders[0]}; add tokens at the end"
      )
  return None, given


def _find_head(values, problem: str | None) -> str:
  if "cls/squad/output_weights" in values:
    return "question_answering"
  if "output_weights" in values:
    return problem if problem in models.HEADS else "classifier"
  has_next = "cls/seq_relationship/output_weights" in values
  if _BIAS in values:
    return "pretraining" if has_next else "masked_lm"
  return "next_sentence" if has_next else "encoder"


def _choose_labels(
  folder: models.ModelFolder, values, labels_file: str | None
) -> tuple[str, ...]:
  """Returns the labels of the head; a ValueError if it has another number."""
  labels = folder.labels
  if labels_file:
    labels = tuple(label_files.read(labels_file))
  # Without a head there is nothing to compare them with.
  count = len(values.get("output_bias", labels))
  if labels and len(labels) != count:
    raise ValueError(
      f"{folder.source}: {len(labels)} labels, but the head has {count}: "
      "pass its --labels_file"
    )
  # Labels without their head would only stop whoever trains another.
  return labels if "output_weights" in values or labels_file else ()


def choose_layers(
  folder: models.ModelFolder, layers: Sequence[int]
) -> models.ModelFolder:
  """Returns a model with some layers of another one, and the rest of it.

  Args:
    folder: the model, as it was opened.
    layers: the numbers of its layers, from 0, in their new order.
  """
  config, weights = _config_of_transformer(folder), folder.weights
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
  config = dataclasses.replace(config, num_hidden_layers=len(layers))
  return dataclasses.replace(folder, weights=shallow, config=config)


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
    for field in model.opened.assumed
  ]
  if without := model.config.vocab_size - len(model.vocabulary):
    lines.append(f"rows of embeddings without a token: {without}")
  weights = model.opened.weights
  there = {*weights.shapes, *weights.unread}
  names = there - set(model.values)
  state = {name for name in names if fitting.is_training_state(name, there)}
  state |= set(filter(fitting.is_foreign_state, weights.unread))
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
