"""Lines become rows and batches; results come in the order of the lines."""

import itertools

import numpy as np
import pytest

from bert import tokenization
from bert.inputs import text_inputs

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "|"]


def make_encoder(folder, max_seq_length=8):
  path = folder / "vocab.txt"
  path.write_text("\n".join(VOCABULARY) + "\n")
  tokenizer = tokenization.FullTokenizer(str(path))
  return text_inputs.RowMaker(tokenizer, max_seq_length)


def in_batches(*order):
  return lambda lengths: list(map(np.array, order))


@pytest.mark.parametrize(
  "line,ids,segments",
  [
    ("a b", [2, 4, 5, 3], [0, 0, 0, 0]),
    ("", [2, 3], [0, 0]),
    ("\u200b", [2, 3], [0, 0]),  # Deleted: nothing is left.
    (" a ||| b\r", [2, 4, 3, 5, 3], [0, 0, 0, 1, 1]),
    ("a ||| \u200b", [2, 4, 3], [0, 0, 0]),
    # The last separator counts, and a line is stripped before it is split.
    ("a ||| b ||| c", [2, 4, 7, 7, 7, 5, 3, 6, 3], [0] * 7 + [1, 1]),
    ("a |||", [2, 4, 7, 7, 7, 3], [0] * 6),
    ("a b c a b c a b c", [2, 4, 5, 6, 4, 5, 6, 4, 3], [0] * 9),
    ("a b c a ||| b b b b", [2, 4, 5, 6, 3, 5, 5, 5, 3], [0] * 5 + [1] * 4),
  ],
)
def test_a_line_becomes_a_row(tmp_path, line, ids, segments):
  row = make_encoder(tmp_path, max_seq_length=9)(line)
  assert row == {
    "input_ids": ids,
    "input_mask": [1] * len(ids),
    "segment_ids": segments,
  }


def test_tokens_and_truncated_lines_are_counted(tmp_path):
  encode = make_encoder(tmp_path, max_seq_length=5)
  for line in ("a b c", "a b c a", "a ||| b", "a ||| b c"):
    encode(line)
  assert (encode.tokens, encode.truncated) == (3 + 3 + 2 + 2, 2)


def test_blocks_end_by_number_or_cost_and_read_no_further():
  split = text_inputs.split_into_blocks
  blocks = split([1, 1, 1, 5, 4, 9, 1], 3, lambda cost: cost, 8)
  assert list(blocks) == [[1, 1, 1], [5], [4], [9], [1]]
  assert list(map("".join, split("abcde", 2))) == ["ab", "cd", "e"]
  assert list(split("", 2)) == []
  endless = itertools.count()
  blocks = split(endless, 3)
  assert [next(blocks), next(blocks)] == [[0, 1, 2], [3, 4, 5]]
  assert next(endless) == 6


def make_rows(lengths):
  return [
    {"input_ids": [n] * length, "input_mask": [1] * length, "asked": [10 * n]}
    for n, length in enumerate(lengths, 1)
  ]


@pytest.mark.parametrize(("width", "zeros"), [(None, []), (4, [0])])
def test_rows_are_padded_to_the_longest_or_a_width(width, zeros):
  batch = text_inputs.pad(make_rows([1, 3]), width)
  assert {k: v.tolist() for k, v in batch.items()} == {
    "input_ids": [[1, 0, 0, *zeros], [2, 2, 2, *zeros]],
    "input_mask": [[1, 0, 0, *zeros], [1, 1, 1, *zeros]],
    "asked": [[10], [20]],
  }


class FakePredictor:
  """Notes the shapes of its batches; returns what a function makes of them."""

  def __init__(self, function):
    self.function, self.shapes = function, []

  def iterate(self, batches):
    for batch in batches:
      self.shapes.append(tuple(batch["input_ids"].shape))
      yield {"result": self.function(batch)}


def predict(function, lengths, order, of_tokens=False, width=None):
  """Returns the results of rows as lists, and the shapes of the batches."""
  predictor, rows = FakePredictor(function), make_rows(lengths)
  found = text_inputs.predict(
    predictor, order, rows, width=width, of_tokens=of_tokens
  )
  return [result["result"].tolist() for result in found], predictor.shapes


def test_results_are_in_the_order_of_the_rows():
  def add(b):
    return b["asked"].numpy()[:, 0] + b["input_mask"].numpy().sum(1)

  found = predict(add, [2, 6, 3, 6, 1], in_batches([1, 3], [2, 0, 4]))
  assert found == ([12, 26, 33, 46, 51], [(2, 6), (3, 3)])


def test_results_for_tokens_are_as_long_as_the_rows():
  order, lengths = in_batches([1], [2, 0], [3]), [2, 6, 3, 1]
  found = predict(lambda b: b["input_ids"].numpy() * 2, lengths, order, True)
  assert found[0] == [[2, 2], [4] * 6, [6] * 3, [8]]
  assert found[1] == [(1, 6), (2, 3), (1, 1)]


def test_static_batches_are_of_one_shape():
  order = in_batches([0, 1], [2, 2])  # Repeats a row.
  lengths = [1, 4, 2]
  found = predict(lambda b: b["asked"].numpy()[:, 0], lengths, order, width=4)
  assert found == ([10, 20, 30], [(2, 4), (2, 4)])
  found = predict(lambda b: b["input_ids"].numpy(), lengths, order, True, 4)
  assert found == ([[1], [2] * 4, [3, 3]], [(2, 4), (2, 4)])
