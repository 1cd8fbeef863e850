"""Reads whole models to convert or to change them.

A model that was opened, Google's or another library's, becomes a `Model`;
functions that change it return a new one.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import NamedTuple

import numpy as np

from convert import architecture, huggingface, readers, tokenizer_files
from data import label_files
from encoders import encoder_table
import modeling
from vocabularies import vocabulary_table
from weights import fitting

_POSITIONS = "bert/embeddings/position_embeddings"
# Variables that have a row, or an element, for each token.
BY_TOKEN = ("bert/embeddings/word_embeddings", "cls/predictions/output_bias")


class Model(NamedTuple):
  """A checkpoint, and what its users need besides."""

  source: str  # The prefix, or another library's folder.
  config: modeling.BertConfig
  values: dict[str, np.ndarray]  # By Google's names.
  head: str  # A key of `architecture.HEADS`.
  problem: str | None  # The task of the head, if that is known.
  labels: list[str]  # Empty if unknown.
  vocabulary: list[str]
  do_lower_case: bool
  library: str = readers.GOOGLE  # Whose format it had, in words.
  unread: tuple[str, ...] = ()  # The library's names of what BERT lacks.
  assumed: tuple[str, ...] = ()  # Fields of the config that it did not state.
  vocab_file: str | None = None  # None for WordPieces.


def read(
  folder: readers.ModelFolder,
  vocab_file: str | None = None,
  labels_file: str | None = None,
  do_lower_case: bool | None = None,
  head: str = "auto",
) -> Model:
  """Reads all weights of an opened model, and the files beside them.

  Args:
    vocab_file, labels_file, do_lower_case, head: count instead of its files.

  Raises:
    ValueError: a file is not found, or does not fit the others.
  """
  source, config = folder.source, folder.config
  _check_is_transformer(folder)
  weights = folder.weights
  values = {n: np.asarray(weights.read(n)) for n in sorted(weights.shapes)}
  for name, value in values.items():
    if value.dtype.name == "bfloat16":  # Which numpy lacks.
      values[name] = value.astype(np.float32)
  _check_encoder(source, config, values)
  labels = label_files.read(labels_file) if labels_file else folder.labels
  other_vocab = vocab_file or folder.vocab_file
  # WordPieces are read with the tokens that were added to them later.
  if other_vocab and vocabulary_table.is_word_pieces(other_vocab):
    other_vocab = None
  if other_vocab:
    vocab = vocabulary_table.load_vocab(other_vocab)
    tokens = {index: token for token, index in vocab.items()}
    vocabulary = [tokens[index] for index in sorted(tokens)]
  else:
    vocabulary = _read_word_pieces(folder.folders, vocab_file)
  if do_lower_case is None:
    do_lower_case = folder.do_lower_case
  if do_lower_case is None:
    do_lower_case = not vocabulary_table.is_cased(vocabulary)
  if head == "auto":
    head = _find_head(values, folder.problem)
  else:
    values = _keep_head(values, head)
  _check_labels(source, labels, values)
  # Labels without their head would only stop whoever trains another.
  has_labels = "output_weights" in values or labels_file
  return Model(
    source,
    config,
    values,
    head,
    folder.problem,
    list(labels) if has_labels else [],
    vocabulary,
    do_lower_case,
    folder.library,
    folder.unread,
    folder.assumed,
    other_vocab,
  )


def _check_labels(source, labels, values) -> None:
  """Refuses labels that are not as many as the head's outputs."""
  count = len(values.get("output_bias", labels))
  if labels and len(labels) != count:
    raise ValueError(
      f"{source}: {len(labels)} labels, but the head has {count}: "
      "pass its --labels_file"
    )


def _check_is_transformer(folder: readers.ModelFolder) -> None:
  if not folder.config:
    raise ValueError(
      f"{folder.folders[0]}: holds no bert_config.json: add it, or pass "
      "--bert_config_file"
    )
  name = folder.config.encoder_type
  if name not in (None, "variant"):
    raise ValueError(
      f"{folder.source}: encoder_type is {name!r}: other libraries have models "
      "of Transformers, but no class for this encoder's layers"
    )


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
    and not fitting.is_training_state(name, values)
  ]
  # Hugging Face stores no pooler with a head that does not use it.
  wanted = {
    n: s for n, s in expected.items() if n in values or "/pool" not in n
  }
  check_shapes(source, wanted, values, unknown)


def check_shapes(
  source: str,
  expected: Mapping[str, tuple[int | None, ...]],
  values: Mapping[str, np.ndarray],
  faults: Sequence[str] = (),
) -> None:
  """Refuses values that are not of the expected shapes, or have other faults.

  Args:
    expected: by name; None is the number of labels.
  """
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
      f"{source} does not fit its config: {fitting.listing(faults)}"
    )


def _read_word_pieces(folders, vocab_file: str | None) -> list[str]:
  known = None
  for folder in folders:
    known = known or tokenizer_files.read_vocabulary(folder)
  if not vocab_file:
    if not known:
      raise ValueError(f"{folders[0]}: holds no vocab.txt: pass --vocab_file")
    return known
  tokens = tokenizer_files.read_tokens(vocab_file)
  for number, token in enumerate(known or [], 1):
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
    known = set(huggingface.PROBLEMS.values())
    return problem if problem in known else "classifier"
  has_words = "cls/predictions/output_bias" in values
  has_next = "cls/seq_relationship/output_weights" in values
  if has_words:
    return "pretraining" if has_next else "masked_lm"
  return "next_sentence" if has_next else "encoder"


def _keep_head(values, head: str) -> dict[str, np.ndarray]:
  """Leaves out the variables of all heads but one."""
  kept = ("bert/", *architecture.HEADS[head].prefixes)
  return {
    name: value
    for name, value in values.items()
    if name.startswith(kept) or name == "global_step"
  }


def strip(model: Model) -> Model:
  """Leaves out the state of the training: the optimizer's slots, the step."""
  values = {
    name: value
    for name, value in model.values.items()
    if not fitting.is_training_state(name, model.values)
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
  table, bias = (model.values.get(name) for name in BY_TOKEN)
  shape = (size - old, table.shape[1])
  rows = _draw(np.random.default_rng(seed), shape)
  rows = (rows * model.config.initializer_range).astype(table.dtype)
  values = _append(model.values, BY_TOKEN[0], rows)
  if bias is not None:
    values = _append(values, BY_TOKEN[1], np.zeros(size - old, bias.dtype))
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
