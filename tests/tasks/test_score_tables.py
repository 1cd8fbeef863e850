"""Scores as text and as JSON."""

import json
import tracemalloc

import numpy as np
import pytest

from tasks import metrics, score_tables

# Three labels, of which the fourth never occurs:
#   a is predicted 4 times, 2 of them right, and true 3 times;
#   b 2, 2 and 5 times; c 2, 0 and 0 times.
LABELS = np.array([0, 0, 0, 1, 1, 1, 1, 1])
PREDICTIONS = np.array([0, 0, 2, 1, 1, 0, 0, 2])


@pytest.fixture
def report():
  return metrics.classification_report(LABELS, PREDICTIONS, num_labels=4)


def test_report_as_json():
  report = metrics.classification_report(
    np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), num_labels=2
  )
  written = json.loads(
    json.dumps(score_tables.report_as_dict(report, ["a", "b"]))
  )
  assert written == {
    "accuracy": 0.75,
    "labels": {
      "a": {"precision": 2 / 3, "recall": 1.0, "f1": 0.8, "support": 2},
      "b": {"precision": 1.0, "recall": 0.5, "f1": 2 / 3, "support": 2},
    },
    "macro": {
      "precision": pytest.approx(5 / 6),
      "recall": 0.75,
      "f1": pytest.approx(11 / 15),
    },
    "micro": {"precision": 0.75, "recall": 0.75, "f1": 0.75},
    "weighted": {
      "precision": pytest.approx(5 / 6),
      "recall": 0.75,
      "f1": pytest.approx(11 / 15),
    },
    "confusion": [[2, 0], [1, 1]],
  }


def test_the_memory_of_a_report_does_not_grow_with_the_square_of_the_labels():
  labels = np.array([0, 29_999, 29_999])
  predictions = np.array([0, 7, 29_999])
  names = [f"n{number}" for number in range(30_000)]
  tracemalloc.start()
  report = metrics.classification_report(labels, predictions, len(names))
  assert score_tables.format_confusion(report, names).endswith(
    "n29999 -> n7: 1"
  )
  assert metrics.matthews_correlation(labels, predictions) > 0
  written = score_tables.report_as_dict(report, names)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert written["confusion"] == {
    "n0": {"n0": 1},
    "n29999": {"n7": 1, "n29999": 1},
  }
  assert peak < 50e6  # A matrix would have 900 million cells.


def test_report_of_label_sets_as_json():
  report = metrics.multi_label_report(np.eye(2), np.eye(2))
  written = score_tables.report_as_dict(report, ["a", "b"])
  assert written["confusion"] is None
  assert written["labels"]["b"]["support"] == 1


def test_table_of_a_report(report):
  table = score_tables.format_report(report, ["好评", "b", "cafe\u0301", "d"])
  assert (
    table
    == """\
          precision  recall      f1  support
好评         0.5000  0.6667  0.5714        3
b            1.0000  0.4000  0.5714        5
cafe\u0301         0.0000  0.0000  0.0000        0
d            0.0000  0.0000  0.0000        0

macro        0.5000  0.3556  0.3810        8
weighted     0.8125  0.5000  0.5714        8
accuracy                     0.5000"""
  )


def test_confusion_as_a_matrix(report):
  matrix = score_tables.format_confusion(report, ["好评", "b", "c", "other"])
  assert (
    matrix
    == """\
true \\ predicted  好评  b  c  other
好评                 2  0  1      0
b                    2  2  1      0
c                    0  0  0      0
other                0  0  0      0"""
  )


def test_wide_matrix_has_numbers_for_names():
  names = ["x" * 40, "y" * 40]
  report = metrics.classification_report(
    np.array([0, 1, 1]), np.array([1, 1, 1]), num_labels=2
  )
  assert score_tables.format_confusion(report, names) == (
    "true \\ predicted" + " " * 27 + "  1  2\n"
    f" 1 {names[0]}  0  1\n"
    f" 2 {names[1]}  0  2"
  )


def test_many_labels_show_frequent_confusions():
  names = [f"n{number}" for number in range(21)]
  labels = np.array([0] * 9 + [20] * 3 + [7] * 3 + [7])
  predictions = np.array([0] * 9 + [19] * 3 + [8] * 3 + [0])
  report = metrics.classification_report(labels, predictions, num_labels=21)
  assert score_tables.format_confusion(report, names).splitlines() == [
    "most frequent confusions, true -> predicted:",
    "n7 -> n8: 3",
    "n20 -> n19: 3",
    "n7 -> n0: 1",
  ]


def test_only_twenty_confusions_are_shown():
  names = [f"n{number}" for number in range(30)]
  labels = np.repeat(np.arange(25), np.arange(1, 26))
  report = metrics.classification_report(labels, labels + 1, num_labels=30)
  lines = score_tables.format_confusion(report, names).splitlines()[1:]
  assert len(lines) == 20
  assert (lines[0], lines[-1]) == ("n24 -> n25: 25", "n5 -> n6: 6")


def test_many_labels_without_a_confusion():
  report = metrics.classification_report(LABELS, LABELS, num_labels=21)
  text = score_tables.format_confusion(report, ["n"] * 21)
  assert text == "no label is taken for another"
