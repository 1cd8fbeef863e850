"""Lines of text as batches for prediction.

Only a block of lines is in memory. They are sorted by length, so that batches
hold little padding, and their results return in the order of the lines.
"""

from collections.abc import Callable, Iterable, Iterator
import functools
import re
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from bert import tokenization
from bert.data import packing

_Item = TypeVar("_Item")

# The last of several separators counts, as in the original.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")


class InputLine(NamedTuple):
  """A line of text."""

  number: int  # From 0, over all files.
  text: str
  source: str  # Where it is, for error messages.


# An input of the model: lists of integers by the name of the feature. The lists
# of `packing.INPUT_NAMES` are as long as the input; any other list has the same
# length in all inputs.
Row = dict[str, list[int]]


class RowMaker:
  """Turns lines into rows: [CLS] a [SEP]; of `a ||| b` [CLS] a [SEP] b [SEP].

  Long inputs are truncated: a pair's longer text, token by token. Of all lines
  so far, `tokens` is the number of their tokens in rows, without [CLS] and
  [SEP], and `truncated` the number of lines that were truncated.
  """

  def __init__(
    self, tokenizer: tokenization.FullTokenizer, max_seq_length: int
  ):
    self._tokenizer = tokenizer
    self._max_seq_length = max_seq_length

    # The ids of the two special tokens are the same for all lines.
    cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    self._pack = functools.partial(packing.pack, cls_id=cls_id, sep_id=sep_id)
    self.tokens = 0
    self.truncated = 0

  def __call__(self, line: str) -> Row:
    """Encodes a line; one that holds no token becomes [CLS] [SEP]."""
    # The separator has a text on each side; else it is part of the only text.
    line = line.strip()
    pair = _PAIR.fullmatch(line)
    texts = pair.groups() if pair else (line, "")
    ids_a, ids_b = map(self._tokenizer.encode, texts)

    # [CLS] and one or two [SEP] take room, too.
    whole = len(ids_a) + len(ids_b)
    room = self._max_seq_length - (3 if ids_b else 2)
    packing.truncate_pair(ids_a, ids_b, room)

    left = len(ids_a) + len(ids_b)
    self.tokens += left
    if left < whole:
      self.truncated += 1
    return self.pack(ids_a, ids_b)

  def pack(self, ids_a: list[int], ids_b: list[int] | None = None) -> Row:
    """Makes a row of tokens that fit."""
    return self._pack(ids_a, ids_b)._asdict()


def split_into_blocks(
  items: Iterable[_Item],
  most_items: int,
  cost: Callable[[_Item], int] = lambda item: 0,
  most_cost: int = 0,
) -> Iterator[list[_Item]]:
  """Cuts a stream into lists; reads it no further than needed.

  A list costs more than `most_cost` only if it holds a single item.

  Args:
    items: the stream.
    most_items: the most items of a list.
    cost: of an item, 0 or more, in any unit.
    most_cost: of a list; 0: no limit.

  >>> list(split_into_blocks([3, 3, 3, 9, 1], 2, lambda n: n, 8))
  [[3, 3], [3], [9], [1]]
  """
  # The item that would cost too much begins the next list.
  block = []
  total = 0
  for item in items:
    if block and total + cost(item) > most_cost > 0:
      yield block
      block = []
      total = 0

    block.append(item)
    total += cost(item)
    if len(block) == most_items:
      yield block
      block = []
      total = 0
  if block:
    yield block


# Takes rows; returns the results of each by name.
Predict = Callable[[list[Row]], list[dict[str, np.ndarray]]]


def predict(
  predictor: Any,
  make_order: Callable[[np.ndarray], list[np.ndarray]],
  rows: list[Row],
  *,
  width: int | None = None,
  of_tokens: bool = False,
) -> list[dict[str, np.ndarray]]:
  """Predicts rows; returns the results of each by name, in the rows' order.

  Args:
    predictor: a `bert.training.prediction.Predictor`.
    make_order: takes the lengths of rows, int [N]; returns the batches, by the
      rows' indices.
    rows: the inputs.
    width: the length that batches are padded to; None: their longest row's.
    of_tokens: whether results are [B, S, ...], to be cut to a row's length.
  """
  # The order of the batches is by length; results go back to their rows.
  batches = _Batches(rows, make_order, width)
  results = {}
  predicted = predictor.iterate(batches)
  for indices, batch in zip(batches.order, predicted, strict=True):
    for place, index in enumerate(indices):
      result = {name: values[place] for name, values in batch.items()}
      if of_tokens:
        # Copies: a view would keep the whole batch in memory.
        length = len(rows[index]["input_ids"])
        result = {name: value[:length].copy() for name, value in result.items()}
      results[index] = result
  return [results[index] for index in range(len(rows))]


class _Batches:
  """Batches of rows, with the parts of `tf.data.Dataset` that Predictors use.

  Making a dataset would take 0.1 s, as long as a batch does.
  """

  def __init__(self, rows, make_order, width):
    self._rows = rows
    self._width = width
    self.order = make_order(np.array([len(row["input_ids"]) for row in rows]))

    # The width None says that it differs from batch to batch.
    self.element_spec = {}
    for name, values in rows[0].items():
      size = self._width if name in packing.INPUT_NAMES else len(values)
      self.element_spec[name] = tf.TensorSpec([None, size], tf.int32)

  def __iter__(self) -> Iterator[dict[str, tf.Tensor]]:
    for indices in self.order:
      batch = pad([self._rows[index] for index in indices], self._width)
      yield {name: tf.constant(values) for name, values in batch.items()}


def pad(rows: list[Row], width: int | None = None) -> dict[str, np.ndarray]:
  """Stacks rows, padded with zeros on the right, as int32 [B, S] by name.

  `width` is S; None: the length of the longest row.
  """
  # Only features with an integer per token may differ in length.
  batch = {}
  for name in rows[0]:
    lists = [row[name] for row in rows]
    size = max(map(len, lists))
    if width and name in packing.INPUT_NAMES:
      size = width
    batch[name] = np.zeros([len(rows), size], np.int32)
    for padded, values in zip(batch[name], lists, strict=True):
      padded[: len(values)] = values
  return batch
