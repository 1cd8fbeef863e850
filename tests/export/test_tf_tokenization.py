"""Tests of bert/export/tf_tokenization.py."""

import json
import random
import time

import pytest
import tensorflow as tf

from bert import tokenization
from bert.data import packing
from bert.export import tf_tokenization
from bert.vocabularies import vocabulary_table
import hard_strings
import paths
import tiny

GOLDEN = paths.SHARED / "golden" / "tokenization"


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  return hard_strings.write_vocab(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
  return tf_tokenization.make_tokenizer(vocab_file)


def test_ids(tokenizer):
  def encode(*texts):
    return tokenizer.encode(tf.constant(texts, tf.string)).to_list()

  assert encode("UNwant\xe9d, running", "") == [[10, 7, 8, 13, 11, 12], []]
  assert encode(" \0 ", b"the\xff the") == [[], [5, 5]]
  assert encode("a\u4e2dxx", "want" + 197 * "w") == [[1, 17, 1], [1]]
  assert encode() == []


def test_words_that_cannot_fit_are_left_out(tokenizer):
  ids = tokenizer.encode(tf.constant(["the want the", "the"]), most_words=2)
  assert ids.to_list() == [[5, 6], [5]]


@pytest.mark.parametrize("casing", ["lower", "keep"])
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese", "multi_cased"])
def test_ids_equal_the_golden_ones(name, casing):
  path = GOLDEN / f"golden.{name}.{casing}.jsonl"
  vocab = GOLDEN.parent.parent / "data" / "vocab" / f"{name}_vocab.txt"
  if not (path.exists() and vocab.exists()):
    pytest.skip(f"{path} or {vocab} is absent")
  with open(path, encoding="utf-8") as file:
    rows = [json.loads(line) for line in file]
  texts = tf.constant([row["text"] for row in rows])
  tokenizer = tf_tokenization.make_tokenizer(str(vocab), casing == "lower")
  assert len(rows) == 778
  assert tokenizer.encode(texts).to_list() == [row["ids"] for row in rows]


@pytest.mark.parametrize("lower", [True, False])
def test_odd_strings_equal_those_of_the_python_tokenizer(vocab_file, lower):
  texts = list(hard_strings.random_strings(300, seed=5))
  texts = [t.encode("utf-8", "ignore").decode() for t in texts]
  tokenizer = tf_tokenization.make_tokenizer(vocab_file, lower)
  python = tokenization.FullTokenizer(vocab_file, lower)
  words = tokenizer.split_words(tf.constant(texts)).to_list()
  for text, found in zip(texts, words, strict=True):
    expected = python.basic_tokenizer.tokenize(text)
    assert [word.decode() for word in found] == expected, ascii(text)


def test_runs_of_marks_take_no_longer_than_other_text(tokenizer):
  marks = ["\u0301\u0323", "\u302e\U0001d165", "\u0f73"]
  texts = [f"the{mark * 50_000} the" for mark in marks]
  start = time.monotonic()
  ids = tokenizer.encode(tf.constant(texts)).to_list()
  assert ids == [[5, 5], [1, 5], [5, 5]]
  assert time.monotonic() - start < 10  # Sorted by insertion: half a minute.
  for count in (199, 200, 201):
    texts = [f"{mark * count} the" for mark in ("\u302e", "\u302e\u0301")]
    assert tokenizer.encode(tf.constant(texts)).to_list() == [[1, 5]] * 2


def test_pairs_are_cut_and_packed_like_those_of_the_python_tokenizer():
  source = random.Random(1)
  pairs = [
    ([7] * source.randrange(9), [8] * source.randrange(9)) for _ in range(100)
  ]
  ids = [tf.ragged.constant([p[i] for p in pairs], tf.int32) for i in (0, 1)]
  packed = tf_tokenization.pack(*ids, 1, 2, 9)
  rows = zip(*(part.numpy().tolist() for part in packed), strict=True)
  for (a, b), row in zip(pairs, rows, strict=True):
    whole = len(a) + len(b)
    packing.truncate_pair(a, b, 9 - (3 if b else 2))
    packed = packing.pack(a, b, cls_id=1, sep_id=2)
    expected = ([*ids, *[0] * (9 - len(ids))] for ids in packed)
    assert row == (*expected, len(a) + len(b) < whole)


def test_ids_of_sentence_pieces(tmp_path):
  pytest.importorskip("sentencepiece")
  path = tiny.learn_sentence_pieces(tmp_path)
  texts = ["The fox ", "", "\u5317\u4eac, FOX", "\u0130 x"]
  texts += ["The\0 FOX\0", "A fox", "\0", "\0\0\u0391\u03a3\0X", "", "The"]
  for lowers in (True, False):
    graph = tf_tokenization.make_tokenizer(path, lowers)
    python = vocabulary_table.make_tokenizer(path, lowers)
    ids = graph.encode(tf.constant(texts)).to_list()
    assert ids == [python.encode(text) for text in texts]
