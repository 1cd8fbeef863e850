"""Questions with choices as feature files; scores, predictions, the report."""

import numpy as np
import pytest
import tensorflow as tf

from bert.inputs import feature_sets
from bert.tasks import multiple_choice, multiple_choice_data
import report_tables
import tiny


def make_example(context, question, choices, label=None):
  return multiple_choice.Example("0", context, question, choices, label, "")


def test_absent_choices_have_no_probability():
  logits = np.float32([[0, np.log(3), 9], [1, 1, 1]])
  found = multiple_choice_data.probabilities(
    logits, np.array([[1, 1, 0], [1, 1, 1]])
  )
  expected = [[0.25, 0.75, 0], [1 / 3, 1 / 3, 1 / 3]]
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_scores():
  shares = np.float32([[0.5, 0.25, 0.25], [0.125, 0.875, 0]])
  scores = multiple_choice_data.score(shares, [1, 1])
  assert scores == {
    "accuracy": 0.5,
    "loss": pytest.approx((np.log(4) - np.log(0.875)) / 2),
  }


def test_predictions_as_a_table(tmp_path):
  examples = [
    make_example("a\tb", "q", ("c", "d"), label=0),
    make_example("a", "", ("c", "d", "e")),
  ]
  shares = np.float32([[0.25, 0.75, 0], [0.5, 0.25, 0.25]])
  path = tmp_path / "p.tsv"
  multiple_choice_data.write_predictions(str(path), examples, shares)
  assert [line.split("\t") for line in path.read_text().splitlines()] == [
    ["id", "context", "question", "label", "predicted", "choice"]
    + [f"probability_{n}" for n in range(3)],
    ["0", "a b", "q", "0", "1", "d", "0.25", "0.75", ""],
    ["0", "a", "", "", "0", "c", "0.5", "0.25", "0.25"],
  ]


def test_report_of_choices():
  examples = [
    make_example(f"Context {i}.", "Who?", choices)
    for i, choices in enumerate([("a", "b"), ("c", "<d>"), ("e", "f", "g")])
  ]
  shares = np.array([[0.75, 0.25, 0], [0.125, 0.875, 0], [0.5, 0.25, 0.25]])
  labels = np.array([0, 0, 2])
  text = multiple_choice_data.describe(examples, shares, labels)
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["Context 1. Who?", "c", "&lt;d&gt;", "0.8750"],
    ["Context 2. Who?", "g", "e", "0.5000"],
  ]
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["choice 0", "1", "1", "0"],
    ["choice 1", "0", "0", "0"],
    ["choice 2", "1", "0", "0"],
  ]
  assert '<td dir="auto">accuracy</td><td dir="auto">0.3333</td>' in text


def open_set(folder, kind, limit=None):
  """Returns a set whose features are made."""
  tiny.write_model(folder)
  path = folder / f"{kind}.csv"
  tiny.write_swag(path, range(20))
  settings = feature_sets.FeatureSettings(str(folder / "vocab.txt"), True, 16)
  examples = multiple_choice_data.find_set(kind, str(path), settings, limit)
  multiple_choice_data.make_features(examples, str(folder))
  return examples


def test_records_are_padded_in_tokens_and_choices(tmp_path):
  words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"]
  (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
  header = "sent1,sent2,ending0,ending1,ending2,label\n"
  path = tmp_path / "train.csv"
  path.write_text(header + "a,,b,c c,,1\na,,b,b,b,0\n")
  settings = feature_sets.FeatureSettings(str(tmp_path / "vocab.txt"), True, 6)
  examples = multiple_choice_data.find_set("train", str(path), settings)
  multiple_choice_data.make_features(examples, str(tmp_path))
  [record] = examples.features.read([0])
  found = tf.train.Example.FromString(record).features.feature
  values = {name: list(v.int64_list.value) for name, v in found.items()}
  assert values == {
    "input_ids": [2, 4, 3, 5, 3, 0] + [2, 4, 3, 6, 6, 3] + [0] * 6,
    "input_mask": [1, 1, 1, 1, 1, 0] + [1] * 6 + [0] * 6,
    "segment_ids": [0, 0, 0, 1, 1, 0] + [0, 0, 0, 1, 1, 1] + [0] * 6,
    "choice_mask": [1, 1, 0],
    "label_ids": [1],
  }


def test_training_can_be_limited_to_the_first_questions(tmp_path):
  examples = open_set(tmp_path, "train", 3)
  assert len(examples.features) == examples.features.facts["labelled"] == 3
  assert examples.describe(2).endswith("train.csv:4")
  whole = open_set(tmp_path, "train")
  assert len(whole.features) == 20 and whole.key != examples.key
  assert len(open_set(tmp_path, "eval", 3).features) == 20
