"""Tests of export/tf_tokenization.py."""

import json
import random

import pytest
import tensorflow as tf

from export import tf_tokenization
import hard_strings
import paths
from tasks import squad_features
from tasks import tagging
import tokenization

VOCAB = hard_strings.VOCAB
GOLDEN = paths.SHARED / "golden" / "tokenization"


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  return hard_strings.write_vocab(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
  return tf_tokenization.TfTokenizer(vocab_file)


def ids_of(tokenizer, *texts):
  return tokenizer.encode(tf.constant(list(texts))).to_list()


def test_ids(tokenizer):
  assert ids_of(tokenizer, "UNwant\xe9d, running", "", " \0 ") == [
    [10, 7, 8, 13, 11, 12],
    [],
    [],
  ]
  assert ids_of(tokenizer, b"the\xff the") == [[5, 5]]
  assert ids_of(tokenizer, "a\u4e2dxx", "want" + 197 * "w") == [[1, 17, 1], [1]]


def test_no_text(tokenizer):
  assert tokenizer.encode(tf.constant([], tf.string)).to_list() == []


def test_kept_tokens(vocab_file):
  tokenizer = tf_tokenization.TfTokenizer(vocab_file, True, ["[MASK]", "[SEP]"])
  assert ids_of(tokenizer, "the [MASK]want[SEP] [MASK]", "", "[mask]") == [
    [5, 4, 6, 3, 4],
    [],
    [1, 1, 1],
  ]


def test_words_that_cannot_fit_are_left_out(tokenizer):
  ids = tokenizer.encode(tf.constant(["the want the", "the"]), most_words=2)
  assert ids.to_list() == [[5, 6], [5]]


def test_places(tokenizer):
  text = "  e\u0301 \x07UNw\xe1nted,\U0001f600 the"
  tokens = tokenizer.encode_with_places(tf.constant(["", text]))
  assert tokens.ids.to_list() == [[], [15, 10, 7, 8, 13, 1, 5]]
  pairs = zip(tokens.starts.to_list()[1], tokens.ends.to_list()[1], strict=True)
  cut = [text[start:end] for start, end in pairs]
  assert cut == ["e\u0301", "UN", "w\xe1nt", "ed", ",", "\U0001f600", "the"]


@pytest.mark.parametrize("casing", ["lower", "keep"])
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese", "multi_cased"])
def test_ids_and_places_equal_the_golden_ones(name, casing):
  path = GOLDEN / f"golden.{name}.{casing}.jsonl"
  vocab = GOLDEN.parent.parent / "data" / "vocab" / f"{name}_vocab.txt"
  if not (path.exists() and vocab.exists()):
    pytest.skip(f"{path} or {vocab} is absent")
  with open(path, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  texts = tf.constant([row["text"] for row in rows])
  tokenizer = tf_tokenization.TfTokenizer(str(vocab), casing == "lower")
  tokens = tokenizer.encode_with_places(texts)
  expected = [row["ids"] for row in rows]
  assert len(rows) == 778
  assert tokenizer.encode(texts).to_list() == expected
  assert tokens.ids.to_list() == expected
  python = tokenization.FullTokenizer(str(vocab), casing == "lower")
  differ = 0
  for row, *places in zip(
    rows, tokens.starts.to_list(), tokens.ends.to_list(), strict=True
  ):
    found = python.tokenize_with_offsets(row["text"])
    expected = [[t.start for t in found], [t.end for t in found]]
    differ += places != expected
  # In random Unicode marks are many, and change places among themselves.
  assert differ <= 14


@pytest.mark.parametrize("lower", [True, False])
def test_odd_strings_equal_those_of_the_python_tokenizer(vocab_file, lower):
  texts = list(hard_strings.random_strings(300, seed=5))
  texts = [t.encode("utf-8", "ignore").decode() for t in texts]
  tokenizer = tf_tokenization.TfTokenizer(vocab_file, lower)
  python = tokenization.FullTokenizer(vocab_file, lower)
  words = tokenizer.split_words(tf.constant(texts)).to_list()
  for text, found in zip(texts, words, strict=True):
    expected = python.basic_tokenizer.tokenize(text)
    assert [word.decode() for word in found] == expected, ascii(text)


def test_words_of_plain_text():
  texts = ["The U.S., \u4e2d\u6587!", "", "...", "--a--b--", "\n", "x\u3000(y)"]
  words = tf_tokenization.split_text(tf.constant(texts))
  assert [[w.decode() for w in row] for row in words.words.to_list()] == [
    ["The", "U.S", ".", ",", "\u4e2d", "\u6587", "!"],
    [],
    [".", ".", "."],
    ["-", "-", "a--b", "-", "-"],
    [],
    ["x", "(", "y", ")"],
  ]
  for text, starts, ends in zip(
    texts, words.starts.to_list(), words.ends.to_list(), strict=True
  ):
    pairs = list(zip(starts, ends, strict=True))
    assert pairs == list(tagging.split_text(text))


@pytest.mark.parametrize("by_character", [False, True])
def test_words_of_odd_text_equal_those_of_the_tagger(by_character):
  texts = ["ab c, \u4e2d1"] + list(hard_strings.random_strings(300, seed=6))
  texts = [t.encode("utf-8", "ignore").decode() for t in texts]
  words = tf_tokenization.split_text(tf.constant(texts), by_character)
  for text, starts, ends in zip(
    texts, words.starts.to_list(), words.ends.to_list(), strict=True
  ):
    pairs = list(zip(starts, ends, strict=True))
    expected = list(tagging.split_text(text, by_character))
    assert pairs == expected, ascii(text)


def test_pairs_are_cut_and_packed_like_those_of_the_python_tokenizer():
  source = random.Random(1)
  pairs = [
    ([7] * source.randrange(9), [8] * source.randrange(9)) for _ in range(100)
  ]
  packed = tf_tokenization.pack(
    tf.ragged.constant([a for a, _ in pairs], tf.int32),
    tf.ragged.constant([b for _, b in pairs], tf.int32),
    1,
    2,
    9,
  )
  rows = zip(*(part.numpy().tolist() for part in packed), strict=True)
  for (a, b), row in zip(pairs, rows, strict=True):
    whole = len(a) + len(b)
    tokenization.truncate_pair(a, b, 9 - (3 if b else 2))
    expected = tokenization.pack(a, b, cls_id=1, sep_id=2, max_seq_length=9)
    assert row == (*expected, len(a) + len(b) < whole)


@pytest.mark.parametrize("length", [0, 1, 7, 8, 17, 30])
def test_windows_equal_those_of_squad(length):
  query = tf.ragged.constant([[7, 7, 7], [7]], tf.int32)
  context = tf.ragged.constant([[8] * length, [9, 9]], tf.int32)
  windows = tf_tokenization.windows(query, context, 1, 2, 12, 2, 3)
  expected = squad_features.make_windows(length, 7, 3)
  count = len(expected)
  found = zip(windows.starts.numpy(), windows.sizes.numpy(), strict=True)
  assert list(found) == [*map(tuple, expected), (0, 2)]
  assert windows.rows.numpy().tolist() == [0] * count + [1]
  assert windows.offsets.numpy().tolist() == [4] * count + [3]
  assert windows.packed.was_cut.numpy().tolist() == [True] * count + [False]
  ids = windows.packed.input_ids.numpy()[-1].tolist()
  assert ids[:7] == [1, 7, 2, 9, 9, 2, 0][: len(ids)]
