"""Tests of a task as feature files: labels, records, batches, logits."""

import numpy as np
import pytest
import tensorflow as tf

from inputs import feature_files
from tasks import (
  classification,
  classification_data,
  classification_results,
  classification_tasks,
)
import tiny

TABLE = classification.Table("train.tsv", 1, label=0)


def make_settings(folder, **fields):
  defaults = {
    "vocab_file": str(folder / "vocab.txt"),
    "do_lower_case": True,
    "max_seq_length": 8,
    "doc_stride": None,
    "label_separator": ",",
    "labels": ("neg", "pos"),
    "problem": "single_label",
  }
  return classification_data.FeatureSettings(**{**defaults, **fields})


def open_train(folder, **fields):
  tiny.write_model(folder)
  task = classification_tasks.file_task(str(folder))
  settings = make_settings(folder, **fields)
  [train] = classification_data.find_sets(task, "train", settings)
  classification_data.make_features(train, str(folder))
  return train


def make_task(path=None, **fields):
  train = (TABLE._replace(path=str(path)),) if path else ()
  task = classification.ClassificationTask(
    "file", (), "single_label", train, (), (), ("accuracy",)
  )
  return task._replace(**fields)


def test_labels_come_from_the_training_file(tmp_path):
  path = tmp_path / "train.tsv"
  path.write_text("b\tx\na\ty\n")
  labels = classification_data.choose_labels(
    make_task(path), str(tmp_path / "labels.txt"), (), ","
  )
  assert labels == ("a", "b")


def test_labels_of_an_earlier_run_come_first(tmp_path):
  path = tmp_path / "train.tsv"
  path.write_text("b\tx\na\ty\n")
  (tmp_path / "labels.txt").write_text("c\na\nb\n")
  labels = classification_data.choose_labels(
    make_task(path), str(tmp_path / "labels.txt"), (), ","
  )
  assert labels == ("c", "a", "b")


def test_given_labels_keep_their_order(tmp_path):
  labels = classification_data.choose_labels(
    make_task(), str(tmp_path / "labels.txt"), ["pos", "neg"], ","
  )
  assert labels == ("pos", "neg")


def test_labels_that_contradict_are_refused(tmp_path):
  (tmp_path / "labels.txt").write_text("a\nb\n")
  with pytest.raises(ValueError, match="use another --output_dir"):
    classification_data.choose_labels(
      make_task(labels=("b", "c")), str(tmp_path / "labels.txt"), (), ","
    )


def test_labels_that_nobody_knows_are_refused(tmp_path):
  with pytest.raises(ValueError, match="pass --labels, or the --output_dir of"):
    classification_data.choose_labels(
      make_task(), str(tmp_path / "labels.txt"), (), ","
    )


def test_labels_have_the_order_of_the_head_to_start_from(tmp_path, capsys):
  path = tmp_path / "train.tsv"
  path.write_text("b\tx\na\ty\n")
  missing = str(tmp_path / "labels.txt")
  choose = classification_data.choose_labels
  assert choose(make_task(path), missing, (), ",", ["b", "a"]) == ("b", "a")
  assert "labels in the order of --init_checkpoint" in capsys.readouterr().out
  # Without any other source they are the head's.
  assert choose(make_task(), missing, (), ",", ["b", "a"]) == ("b", "a")


def test_labels_of_another_head_are_refused(tmp_path):
  path = tmp_path / "train.tsv"
  path.write_text("b\tx\na\ty\n")
  with pytest.raises(ValueError, match="has a head for the labels a, c; those"):
    classification_data.choose_labels(
      make_task(path), str(tmp_path / "labels.txt"), (), ",", ["a", "c"]
    )


def test_features_are_refused_if_the_file_changes_meanwhile(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  train = open_train(tmp_path)
  tiny.write_tsv(tmp_path / "train.tsv", range(1, 5))
  answers = classification_results.answer(
    np.zeros([4, 2]), "single_label", ["neg", "pos"], None
  )
  with pytest.raises(ValueError, match="train.tsv: changed while the program"):
    classification_data.write_answers(str(tmp_path), train, answers)
  with pytest.raises(ValueError, match="train.tsv: changed while the program"):
    list(train.examples())
  assert not list(tmp_path.glob("*predictions*"))
  assert not list(tmp_path.glob("test_results*"))


def test_training_can_be_limited_to_the_first_examples(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(20))
  tiny.write_tsv(tmp_path / "dev.tsv", range(20))
  whole = open_train(tmp_path)
  assert len(whole.features) == 20
  task, folder = classification_tasks.file_task(str(tmp_path)), str(tmp_path)
  [train], [dev] = (
    classification_data.find_sets(task, kind, whole.settings, 3)
    for kind in ("train", "eval")
  )
  for examples in (train, dev):
    classification_data.make_features(examples, folder)
  assert (len(train.features), train.features.counts["examples"]) == (3, 3)
  assert train.key != whole.key
  assert len(dev.features) == 20


def test_a_regression_has_no_labels(tmp_path):
  task = make_task(problem="regression")
  assert classification_data.choose_labels(task, "labels.txt", (), ",") == ()
  with pytest.raises(ValueError, match="--labels: a regression has none"):
    classification_data.choose_labels(task, "labels.txt", ["0", "1"], ",")


def test_records_are_those_of_the_original(tmp_path):
  (tmp_path / "train.tsv").write_text("label\ttext\npos\tthe Good film\n")
  features = open_train(tmp_path).features
  example = tf.train.Example.FromString(features.read([0])[0])
  found = {
    name: list(feature.int64_list.value)
    for name, feature in example.features.feature.items()
  }
  ids = [tiny.VOCABULARY.index(w) for w in ("the", "good", "film")]
  assert found == {
    "input_ids": [2, *ids, 3, 0, 0, 0],
    "input_mask": [1] * 5 + [0] * 3,
    "segment_ids": [0] * 8,
    "label_ids": [1],
    "is_real_example": [1],
  }


def test_counts_count_labels_and_cut_texts(tmp_path):
  (tmp_path / "train.tsv").write_text(
    "label\ttext\npos\tgood\nneg\tbad\npos\t" + "the " * 9 + "\n"
  )
  features = open_train(tmp_path).features
  assert features.counts == {
    "examples": 3,
    "cut": 1,
    "labelled": 3,
    "label_sums": [1, 2],
  }
  assert features.lengths.tolist() == [3, 3, 8]


def test_counts_sum_the_numbers_of_a_regression(tmp_path):
  (tmp_path / "train.tsv").write_text("label\ttext\n2.5\tgood\n-4\tbad\n")
  features = open_train(tmp_path, labels=(), problem="regression").features
  assert features.counts["label_sums"] == [-1.5]


def test_windows_belong_to_their_example(tmp_path):
  (tmp_path / "train.tsv").write_text(
    "label\ttext\npos\tgood\nneg\t" + "the " * 12 + "\npos\tfine\n"
  )
  features = open_train(tmp_path, doc_stride=3).features
  assert features.examples.tolist() == [0, 1, 1, 1, 2]
  assert features.counts["cut"] == 0
  # Class weights balance windows.
  assert features.counts["label_sums"] == [3, 2]


@pytest.mark.parametrize(
  "change",
  [
    {"max_seq_length": 7},
    {"doc_stride": 2},
    {"do_lower_case": False},
    {"labels": ("pos", "neg")},
  ],
)
def test_features_are_made_again_for_other_flags(tmp_path, capsys, change):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  open_train(tmp_path)
  open_train(tmp_path)
  assert "unchanged" in capsys.readouterr().out
  open_train(tmp_path, **change)
  assert "unchanged" not in capsys.readouterr().out


def test_features_are_made_again_for_other_data(tmp_path, capsys):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  open_train(tmp_path)
  tiny.write_tsv(tmp_path / "train.tsv", range(5, 9))
  open_train(tmp_path)
  assert "unchanged" not in capsys.readouterr().out


def test_a_row_is_described_by_its_line(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  train = open_train(tmp_path)
  source = feature_files.training_source(train, None, 2, 1)
  assert source.describe_row(2) == f"{tmp_path / 'train.tsv'}:4"


@pytest.mark.parametrize("is_static", [False, True])
def test_logits_are_in_the_order_of_the_file(tmp_path, is_static):
  tiny.write_tsv(tmp_path / "train.tsv", range(11))
  train = open_train(tmp_path, max_seq_length=16)
  features = train.features

  def count_tokens(batches, total):
    # Stands for a model: its logit is the number of tokens.
    parts = list(batches.as_numpy_iterator())
    return {
      "logits": np.concatenate([p["input_mask"].sum(1) for p in parts])[
        :, None
      ].astype(np.float32),
      "label_ids": np.concatenate([p["label_ids"] for p in parts]),
    }

  parse = feature_files.make_parser(
    train.layout, len(tiny.VOCABULARY), 2, is_static
  )
  order = (
    feature_files.equal_batches(11, 4)
    if is_static
    else feature_files.batches_by_tokens(features.lengths, 40)
  )
  results = feature_files.predict(count_tokens, features, order, parse)
  logits, targets = classification_data.pool_outputs(train, results, "mean")
  assert logits[:, 0].tolist() == features.lengths.tolist()
  assert targets.tolist() == [n % 2 for n in range(11)]
