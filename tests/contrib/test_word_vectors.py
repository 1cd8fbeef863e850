"""Word vectors in word2vec's text format."""

import numpy as np
import pytest
import tensorflow as tf

from bert.contrib import word_vectors


@pytest.fixture(name="vocab_file")
def write_vocabulary(tmp_path):
  (tmp_path / "vocab.txt").write_text("[PAD]\ncat\ndog\n##s\n")
  return str(tmp_path / "vocab.txt")


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_replaces_the_rows_of_known_words(header, tmp_path, vocab_file, capsys):
  path = tmp_path / "vectors.txt"
  path.write_text(f"{header}dog 1.5 -2 \nbird 3 3\ndog 9 9\n")
  table = tf.Variable(np.zeros([4, 2], np.float32))
  word_vectors.use(str(path), vocab_file, table)
  assert "vectors of 1 tokens; 3 tokens stay" in capsys.readouterr().out
  assert table.numpy().tolist() == [[0, 0], [0, 0], [1.5, -2], [0, 0]]


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"2 3\ncat 1 2 3\n", ":2: 'cat' has 3 numbers; expected 2 finite ones"),
    (b"cat 1 2\ndog 1\n", ":2: 'dog' has 1 numbers; expected 2 finite ones"),
    (b"cat 1 nan\n", ":1: 'cat' has 2 numbers; expected 2 finite ones"),
    (b"cat one two\n", ":1: could not convert string to float"),
    (b"cat 1 2\n\xe7at 1 2\n", r":2: not UTF-8: b'\xe7at"),
  ],
)
def test_other_files_are_refused(content, message, tmp_path, vocab_file):
  path = tmp_path / "vectors.txt"
  path.write_bytes(content)
  with pytest.raises(ValueError) as caught:
    table = tf.Variable(np.zeros([4, 2], np.float32))
    word_vectors.use(str(path), vocab_file, table)
  assert str(caught.value).startswith(f"{path}{message}")
