"""Reads whole models to convert or to change them.

A model that was opened, Google's or another library's, becomes a `Model`;
functions that change it return a new one.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import os

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
TABLE = "bert/embeddings/word_embeddings"
BIAS = "cls/predictions/output_bias"


def read(
  folder: models.ModelFolder,
  vocab_file: str | None = None,
  do_lower_case: bool | None = None,
  head: str = "auto",
  labels_file: str | None = None,
  strip_accents: bool | None = None,
) -> models.Model:
  """Reads all weights of an opened model, and the files beside them.

  Args:
    folder: the model.
    vocab_file: counts instead of its own; more tokens may be at its end.
    do_lower_case: counts instead of what its files say.
    head: a key of `models.HEADS`, to leave out the others; "auto" leaves out
      nothing.
    labels_file: counts instead of its own labels.
    strip_accents: False if lower-casing keeps accents; else as its files say.

  Returns:
    The model. A ValueError says that a file is missing, or that one does not
    fit the others.
  """
  config = _config_of_transformer(folder)
  values = _read_values(folder, config)
  other_vocab, vocabulary = _read_vocabulary(folder, vocab_file)

  # The casing: as given, else as a file states it, else by the vocabulary, but
  # tokens with accents look cased.
  path = _find_naming(folder, vocab_file)
  if do_lower_case is None:
    do_lower_case = folder.do_lower_case
  if do_lower_case is None and strip_accents is not None:
    do_lower_case = True
  if do_lower_case is None:
    kind = vocabulary_table.kind_of(path)
    lower = vocabulary_table.looks_lower(vocabulary, kind)
    do_lower_case = lower is not False

  # The head: by the variables that are there, or the only one to be kept.
  if head == "auto":
    head = _find_head(values, folder.problem)
  else:
    kept = ("bert/", "global_step", *models.HEADS[head].prefixes)
    values = {name: x for name, x in values.items() if name.startswith(kept)}
  _check_arrays(folder, config, values)

  asked = tokenizer_files.find_kind(path, folder.folders)
  return models.Model(
    opened=folder,
    config=config,
    values=values,
    head=head,
    vocabulary=vocabulary,
    vocab_file=other_vocab,
    kind=vocabulary_table.choose_kind(
      path, asked, do_lower_case, strip_accents
    ),
    do_lower_case=do_lower_case,
    problem=_find_problem(folder, head),
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
  weights = folder.weights
  values = {}
  for name in sorted(weights.shapes):
    value = np.asarray(weights.read(name))
    if value.dtype.name == "bfloat16":  # Which numpy lacks.
      value = value.astype(np.float32)
    values[name] = value

  # The layers are counted first: a config of a billion layers would otherwise
  # make as many names. What stands above the layers may be missing.
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
    value = values[name]
    axes = len(expected[name])
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
  one of them, or if the folder's own is not that of its training.
  """
  if folder.vocab_file and not vocab_file:
    parent = os.path.dirname(folder.vocab_file) or "."
    tokenizer_files.check_of_training(parent, folder.vocab_file)

  # A vocabulary of another kind is copied as it is.
  other = vocab_file or folder.vocab_file
  if other and not vocabulary_table.is_word_pieces(other):
    ids = vocabulary_table.load_vocab(other)
    tokens = {id_: token for token, id_ in ids.items()}
    return other, [tokens[id_] for id_ in sorted(tokens)]

  # The WordPieces of the first folder that has any.
  vocabularies = map(tokenizer_files.read_vocabulary, folder.folders)
  own = next(filter(None, vocabularies), [])
  if not vocab_file:
    if not own:
      raise ValueError(
        f"{folder.folders[0]}: holds no vocab.txt: pass --vocab_file"
      )
    return None, own

  # Each row of the embeddings must keep its token.
  given = tokenizer_files.read_tokens(vocab_file)
  for number, token in enumerate(own, 1):
    if given[number - 1 : number] != [token]:
      raise ValueError(
        f"--vocab_file={vocab_file}:{number}: expected {token!r:.80}, as in "
        f"the vocabulary in {folder.folders[0]}; add tokens at the end"
      )
  return None, given


def _find_naming(folder: models.ModelFolder, vocab_file: str | None) -> str:
  """Returns the path of the vocabulary whose name says the kind; "" if none."""
  # A vocab.txt with more tokens is of the kind of the old ones.
  plain = vocabulary_table.WORD_PIECES
  for path in filter(None, (vocab_file, folder.vocab_file)):
    if vocabulary_table.kind_of(path) is not plain:
      return path
  return ""


def _find_head(values, problem: str | None) -> str:
  """Returns the key of `models.HEADS` for the variables that are there."""
  # The head of a task counts before the heads of pre-training.
  if "cls/squad/output_weights" in values:
    return "question_answering"
  if "output_weights" in values:
    return problem if problem in models.HEADS else "classifier"

  # Pre-training has two heads: masked words and the next sentence.
  has_next = "cls/seq_relationship/output_weights" in values
  if BIAS in values:
    return "pretraining" if has_next else "masked_lm"
  return "next_sentence" if has_next else "encoder"


def _find_problem(folder: models.ModelFolder, head: str) -> str | None:
  """Returns the task of a head that is kept, if it is known."""
  # A classifier's may be one of several.
  if head == "classifier":
    return folder.problem
  answers = ("tagging", "multiple_choice", "question_answering")
  return head if head in answers else None


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

  # Whoever has trained it with transformers knows them by these names.
  if folder.problem and not labels and count > 1:
    labels = tuple(f"LABEL_{number}" for number in range(count))

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
  config = _config_of_transformer(folder)
  weights = folder.weights

  # Stored names by their new ones; an optimizer's slots move with their layer.
  stored = {n: n for n in weights.shapes if not n.startswith(_LAYER)}
  for place, layer in enumerate(layers):
    old, new = f"{_LAYER}{layer}/", f"{_LAYER}{place}/"
    names = [name for name in weights.shapes if name.startswith(old)]
    if not names:
      raise ValueError(
        f"--layers={','.join(map(str, layers))}: no layer {layer} in "
        f"{folder.source}: expected 0 to {config.num_hidden_layers - 1}"
      )
    stored |= {name.replace(old, new): name for name in names}

  # Nothing is read yet: the new names lead to the stored ones.
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

    # Too large a number becomes infinite; one that was infinite stays so.
    with np.errstate(over="ignore"):
      values[name] = value.astype(np.float16)
    lost = np.isinf(values[name]) & np.isfinite(value)
    if lost.any():
      raise ValueError(
        f"--float16: {name} holds {value[lost].flat[0]}; float16 ends at 65504"
      )
  return dataclasses.replace(model, values={**model.values, **values})


def grow_positions(
  model: models.Model, size: int, start: str = "repeated"
) -> models.Model:
  """Lengthens the table of positions to `size` rows.

  Args:
    model: to be changed.
    size: how many rows its table of positions has then.
    start: "repeated": row `old` is row 0 again, and so on, as Longformer begins
      its further training (https://arxiv.org/abs/2004.05150, section 5).
      Without that training, two places that share a row look alike to the
      model; texts of at most `old` tokens keep their outputs. "interpolated":
      the old rows are stretched over the new table, a row between two is their
      weighted mean, and so are its moments of Adam. All outputs change, and
      further training ends with a lower loss: docs/decisions.md.

  Raises:
    ValueError: if the table would not grow.
  """
  old = model.config.max_position_embeddings
  if size <= old:
    raise ValueError(f"--grow_positions={size}: expected more than {old}")

  if start == "interpolated":
    # The first and the last row stay the first and the last.
    places = np.linspace(0, old - 1, size)
    values = dict(model.values)
    for name in (_POSITIONS, *slots_of(values, _POSITIONS)):
      columns = [np.interp(places, range(old), c) for c in values[name].T]
      values[name] = np.stack(columns, axis=1).astype(values[name].dtype)
  else:
    # Row `old` is row 0 again, and so on; new rows have moments of 0.
    rows = np.take(model.values[_POSITIONS], np.arange(old, size) % old, axis=0)
    values = _append(model.values, _POSITIONS, rows)
  config = dataclasses.replace(model.config, max_position_embeddings=size)
  return dataclasses.replace(model, config=config, values=values)


def resize_vocabulary(
  model: models.Model, size: int, seed: int
) -> models.Model:
  """Adds random rows for new tokens, and biases of 0.

  Args:
    model: to be changed.
    size: how many rows its word embeddings have then.
    seed: of the random numbers.
  """
  config = model.config
  old = config.vocab_size
  if size <= old:
    raise ValueError(f"--resize_vocab={size}: expected more than {old}")

  rows = draw_rows(config, size - old, seed)
  values = _append(model.values, TABLE, rows)

  # The head of masked words has a bias for each token.
  if BIAS in values:
    values = _append(values, BIAS, np.zeros(size - old))
  config = dataclasses.replace(config, vocab_size=size)
  return dataclasses.replace(model, config=config, values=values)


def draw_rows(config: modeling.BertConfig, count: int, seed: int) -> np.ndarray:
  """Returns random word embeddings, float32 [count, embedding_width]."""
  # As a new model is initialised: a normal distribution, cut off at two
  # standard deviations.
  deviation = config.initializer_range
  draw = keras.initializers.TruncatedNormal(stddev=deviation, seed=seed)
  return np.asarray(draw([count, config.embedding_width]))


def slots_of(values: Mapping[str, np.ndarray], name: str) -> list[str]:
  """Returns the names of the optimizer's slots of a variable."""
  # Adam's slots of a variable are named after it, as in `x/adam_m`, and have
  # its shape.
  return [
    slot
    for slot, value in values.items()
    if slot.rpartition("/")[0] == name and value.shape == values[name].shape
  ]


def _append(values, name: str, rows: np.ndarray) -> dict[str, np.ndarray]:
  """Returns values with more rows of a variable, and zeros in its slots."""
  longer = {}
  for variable in (name, *slots_of(values, name)):
    value = values[variable]
    added = rows if variable == name else np.zeros_like(rows)
    longer[variable] = np.concatenate([value, added.astype(value.dtype)])
  return {**values, **longer}


def check_vocabulary(model: models.Model) -> None:
  """Raises a ValueError if there are more tokens than word embeddings."""
  size = len(model.vocabulary)
  rows = model.config.vocab_size
  if size > rows:
    raise ValueError(
      f"{model.source}: {rows} word embeddings, but {size} tokens in the "
      f"vocabulary: pass the model's --vocab_file, of {rows} tokens, or to add "
      f"tokens, --resize_vocab={size}"
    )


def describe_differences(model: models.Model) -> list[str]:
  """Returns lines about what the source lacks, or the model."""
  # The source may lack fields of the config, and tokens.
  lines = [
    f"not in it, taken: {field}={getattr(model.config, field)!r}; else "
    "--bert_config_file"
    for field in model.opened.assumed
  ]
  if without := model.config.vocab_size - len(model.vocabulary):
    lines.append(f"rows of embeddings without a token: {without}")

  # Stored variables that the model lacks. The state of a training, which is two
  # thirds of all variables, is counted; the rest is named.
  weights = model.opened.weights
  stored = {*weights.shapes, *weights.unread}
  names = stored - set(model.values)
  state = {name for name in names if fitting.is_training_state(name, stored)}
  state |= set(filter(fitting.is_foreign_state, weights.unread))
  if state:
    count = len(state)
    lines.append(f"left out: {count} variables of the state of the training")
  if names - state:
    lines.append(f"left out: {', '.join(sorted(names - state))}")

  # Variables of its class that the model lacks; another encoder than a BERT has
  # variables of its own.
  expected = models.variables(model.config, model.head)
  missing = [name for name in expected if name not in model.values]
  if missing and not model.config.encoder_type:
    lines.append(f"not in it: {', '.join(missing)}")
  return lines
