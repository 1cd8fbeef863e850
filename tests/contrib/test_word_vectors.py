"""Word vectors in word2vec's text format, as the start of a model."""

import json
import sys

import keras
import numpy as np
import pytest

from bert.contrib import word_vectors
from bert.weights import checkpoints
import paths
import program_flags
import tiny
import tiny_models

TABLE = "bert/embeddings/word_embeddings"
WIDTH = 16  # The width of tiny's models.


@pytest.fixture(name="vocab_file")
def write_vocabulary(tmp_path):
  (tmp_path / "vocab.txt").write_text("[PAD]\ncat\ndog\n##s\n")
  return str(tmp_path / "vocab.txt")


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_replaces_the_rows_of_known_words(header, tmp_path, vocab_file):
  path = tmp_path / "vectors.txt"
  path.write_text(f"{header}dog 1.5 -2 \nbird 3 3\ndog 9 9\n")
  table = np.zeros([4, 2], np.float32)
  found = word_vectors.replace_rows(str(path), vocab_file, table)
  assert found == f"{path}: vectors of 1 tokens; 3 tokens stay as they were"
  assert table.tolist() == [[0, 0], [0, 0], [1.5, -2], [0, 0]]


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
    table = np.zeros([4, 2], np.float32)
    word_vectors.replace_rows(str(path), vocab_file, table)
  assert str(caught.value).startswith(f"{path}{message}")


def run(folder, **flags):
  """Writes a model into folder/start whose "good" is the numbers from 1."""
  numbers = " ".join(map(str, range(1, WIDTH + 1)))
  (folder / "vectors.txt").write_text(f"good {numbers}\n")
  program = str(paths.ROOT / "bert/contrib/word_vectors.py")
  flags = {"vectors": folder / "vectors.txt", **flags}
  flags = {"output": folder / "start", **flags}
  return program_flags.run_here(
    [sys.executable, program, *program_flags.arguments(flags)]
  )


def assert_only_good_changed(ours, theirs):
  expected = theirs.copy()
  expected[tiny.VOCABULARY.index("good")] = np.arange(1, WIDTH + 1)
  np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
  "config",
  [
    tiny.CONFIG,
    # All encoders have the same table.
    pytest.param(
      {
        "encoder_type": "text_cnn",
        "vocab_size": len(tiny.VOCABULARY),
        "hidden_size": WIDTH,
        "num_hidden_layers": 1,
        "filter_sizes": [2],
        "num_filters": 4,
      },
      marks=pytest.mark.slow,
    ),
  ],
)
def test_a_training_starts_with_the_vectors(config, tmp_path):
  (tmp_path / "a.json").write_text(json.dumps(config))
  tiny.write_tsv(tmp_path / "train.tsv", range(8))
  flags = {"learning_rate": 0, "num_train_epochs": 1, "do_train": True}
  flags |= {"train_file": tmp_path / "train.tsv", "output_dir": tmp_path / "a"}
  flags |= {"bert_config_file": tmp_path / "a.json"}
  result = tiny.succeed("run_classifier", tmp_path, **flags)
  assert "no checkpoint given: the weights are random" in result.stdout

  start = {"bert_config_file": tmp_path / "a.json", "do_lower_case": False}
  result = run(tmp_path, **start, vocab_file=tmp_path / "vocab.txt")
  assert result.returncode == 0, result.stderr
  known = len(tiny.VOCABULARY) - 1
  assert f"vectors of 1 tokens; {known} tokens stay" in result.stdout

  flags |= {"output_dir": tmp_path / "b", "task_name": "file"}
  flags |= {"model": tmp_path / "start", "max_seq_length": tiny.SEQUENCE}
  del flags["bert_config_file"]
  result = program_flags.succeed(
    program_flags.command("run_classifier", **flags, train_batch_size=8)
  )
  path = tmp_path / "start/tokenizer_config.json"
  assert f"--do_lower_case=false, as {path} says" in result.stderr
  # All else is as the training would have drawn it, its head included.
  ours, theirs = (
    dict(checkpoints.read(str(tmp_path / f"{name}/model.ckpt-1")))
    for name in ("b", "a")
  )
  assert ours.keys() == theirs.keys()
  assert_only_good_changed(ours.pop(TABLE), theirs.pop(TABLE))
  for name, value in ours.items():
    if "/adam_" not in name:
      np.testing.assert_array_equal(value, theirs[name], name)


def test_a_trained_model_keeps_its_other_weights(tmp_path):
  tiny_models.write_trained(tmp_path / "trained")
  keras.config.set_floatx("float16")  # As a user's keras.json may say.
  try:
    result = run(tmp_path, model=tmp_path / "trained")
  finally:
    keras.config.set_floatx("float32")
  assert result.returncode == 0, result.stderr
  theirs = dict(checkpoints.read(str(tmp_path / "trained/model.ckpt-7")))
  ours = dict(checkpoints.read(str(tmp_path / "start/bert_model.ckpt")))
  assert ours.keys() == theirs.keys() and "output_weights" in ours
  assert_only_good_changed(ours.pop(TABLE), theirs.pop(TABLE))
  for name, value in ours.items():
    np.testing.assert_array_equal(value, theirs[name], name)
  labels = (tmp_path / "start/labels.txt").read_text()
  assert labels == (tmp_path / "trained/labels.txt").read_text()


def test_what_does_not_fit_is_refused_in_a_line(tmp_path):
  tiny_models.write_trained(tmp_path / "trained")
  (tmp_path / "other.json").write_text(
    (tmp_path / "trained/config.json")
    .read_text()
    .replace('"hidden_size": 16', '"hidden_size": 8')
  )
  flags = {"model": tmp_path / "trained"}
  result = run(tmp_path, **flags, bert_config_file=tmp_path / "other.json")
  program_flags.assert_refused(result, "hidden_size")
  result = run(tmp_path, **flags, vocab_file=tmp_path / "v.json")
  program_flags.assert_refused(result, "--vocab_file=")
  result = run(tmp_path, **flags, output=tmp_path / "trained")
  program_flags.assert_refused(result, "is there already")
