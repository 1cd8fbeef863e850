"""The section of a classifier in report.html: its numbers, in its tables."""

import numpy as np
import pytest

import report_tables
from tasks import classification
from tasks import classification_report
from tasks import classification_results


def describe(texts, shares, targets, problem, labels):
  logits = np.asarray(shares, np.float32)
  if problem == "single_label":
    logits = np.log(logits)
  elif problem == "multi_label":
    logits = np.log(logits) - np.log(1 - logits)
  targets = np.asarray(targets)
  scores = classification_results.score(
    logits, targets, problem, (), 8, thresholds=np.full(len(labels), 0.5)
  )
  examples = [
    classification.Example(str(i), text, None, None, "", None)
    for i, text in enumerate(texts)
  ]
  return classification_report.describe(
    examples, (logits, targets), scores, problem, labels
  )


def test_single_label():
  text = describe(
    ["a", "bb", "<b>", "dddd", "eeeee"],
    [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9], [0.6, 0.4]],
    [0, 1, 0, 0, 1],
    "single_label",
    ["ham", "spam"],
  )
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["ham", "1", "2"],
    ["spam", "1", "1"],
  ]
  assert report_tables.rows_of(text, "By label") == [
    ["ham", "0.5000", "0.3333", "0.4000", "3"],
    ["spam", "0.3333", "0.5000", "0.4000", "2"],
  ]
  assert report_tables.rows_of(text, "By length of the text") == [
    ["1 to 1", "1", "1.0000"],
    ["2 to 2", "1", "1.0000"],
    ["3 to 3", "1", "0.0000"],
    ["4 to 4", "1", "0.0000"],
    ["5 to 5", "1", "0.0000"],
  ]
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["dddd", "ham", "spam", "0.9000"],
    ["&lt;b&gt;", "ham", "spam", "0.7000"],
    ["eeeee", "spam", "ham", "0.6000"],
  ]
  assert "<title>ham: 0.3333, 1</title>" in text  # Recall and precision.
  # |0.6-0| + |0.7-0| + |0.8-1| + 2 |0.9-0.5|, a fifth of it.
  assert "observed (expected error 0.460): 0.6, 0</title>" in text


def test_multi_label():
  text = describe(
    ["a", "b", "c"],
    [[0.9, 0.2], [0.3, 0.4], [0.6, 0.7]],
    [[1, 0], [1, 0], [0, 1]],
    "multi_label",
    ["x", "y"],
  )
  assert "Confusion matrix" not in text
  assert report_tables.rows_of(text, "By label")[0] == ["x"] + [
    "0.5000"
  ] * 3 + ["2"]
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["b", "x", "none", "0.7000"],
    ["c", "y", "x, y", "0.6000"],
  ]
  assert report_tables.rows_of(text, "By length of the text") == [
    ["1 to 1", "3", "0.3333"]
  ]


def test_regression():
  text = describe(["a", "bb"], [[1.0], [2.5]], [1.0, 4.5], "regression", [])
  assert "<title>example: 4.5, 2.5</title>" in text
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["bb", "4.5", "2.5", "2.0000"]
  ]
  assert report_tables.rows_of(text, "By length of the text") == [
    ["1 to 1", "1", "0.0000"],
    ["2 to 2", "1", "2.0000"],
  ]


@pytest.mark.parametrize("count", [20, 21])
def test_matrix_of_few_labels_only(count):
  names = [f"n{i}" for i in range(count)]
  shares = np.full((3, count), 0.1)
  shares[:, 7] = 0.5
  text = describe(["a", "b", "c"], shares, [7, 2, 2], "single_label", names)
  assert ("<h3>Confusion matrix</h3>" in text) == (count == 20)
  if count > 20:
    found = report_tables.rows_of(text, "Most frequent confusions")
    assert found == [["n2", "n7", "2"]]


def test_nothing_is_wrong():
  text = describe(["a"], [[0.9, 0.1]], [0], "single_label", ["ham", "spam"])
  assert text.endswith("<h3>Most confident mistakes</h3><p>None.</p>")
