"""Scores worked out by hand, and how they are written: text and JSON."""

import json
import tracemalloc

import numpy as np
import pytest

from bert.report import metrics, plots

# Three labels, of which the fourth never occurs:
#   a is predicted 4 times, 2 of them right, and true 3 times;
#   b 2, 2 and 5 times; c 2, 0 and 0 times.
LABELS = np.array([0, 0, 0, 1, 1, 1, 1, 1])
PREDICTIONS = np.array([0, 0, 2, 1, 1, 0, 0, 2])


@pytest.fixture
def report():
  return metrics.classification_report(LABELS, PREDICTIONS, num_labels=4)


@pytest.mark.parametrize(
  ("labels", "predictions", "expected"),
  [
    (  # 6 true and 2 false positives, 3 true and 1 false negatives.
      [1] * 7 + [0] * 5,
      [1] * 6 + [0] + [1] * 2 + [0] * 3,
      (6 * 3 - 2 * 1) / (8 * 7 * 5 * 4) ** 0.5,
    ),
    (  # 4 of 6 right; 3, 2, 1 true and 2, 2, 2 predicted of each class.
      [5, 5, 5, 7, 7, 9],
      [5, 5, 7, 7, 9, 9],
      (4 * 6 - 12) / ((36 - 14) * (36 - 12)) ** 0.5,
    ),
    ([0, 1] * 500_000, [0, 1] * 500_000, 1.0),
    ([0, 1] * 500_000, [1, 0] * 500_000, -1.0),
    (LABELS, [0] * 8, 0.0),
    ([1] * 8, PREDICTIONS, 0.0),
  ],
)
def test_matthews_correlation(labels, predictions, expected):
  score = metrics.matthews_correlation(np.array(labels), np.array(predictions))
  assert score == pytest.approx(expected)


@pytest.mark.parametrize(
  ("x", "y", "pearson", "spearman"),
  [
    # Around the means: -1, 0, 1 and -1, -2, 3.
    ([1, 2, 3], [2, 1, 6], 4 / (2 * 14) ** 0.5, 0.5),
    ([1, 2, 3], [-20, -10, -60], -4 / (2 * 14) ** 0.5, -0.5),
    ([1e-200, 2e-200, 3e-200], [2, 1, 6], 4 / (2 * 14) ** 0.5, 0.5),
    # Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4; around their mean of 2.5:
    # -1.5, 0, 0, 1.5 and -1.5, 0.5, -0.5, 1.5.
    ([10, 20, 20, 90], [1, 3, 2, 4], 120 / 20500**0.5, 4.5 / (4.5 * 5) ** 0.5),
    # A constant; the mean of three 0.1 is not 0.1.
    ([0.1, 0.1, 0.1], [1, 2, 3], np.nan, np.nan),
    ([1, 2, 3], [0.1, 0.1, 0.1], np.nan, np.nan),
    ([1], [2], np.nan, np.nan),
  ],
)
@pytest.mark.filterwarnings("error")
def test_correlations(x, y, pearson, spearman):
  x, y = np.array(x, float), np.array(y, float)
  assert metrics.pearson(x, y) == pytest.approx(pearson, nan_ok=True)
  assert metrics.spearman(x, y) == pytest.approx(spearman, nan_ok=True)


def test_regression_scores():
  targets = np.array([0.0, 1.0, 2.0])
  predictions = np.float32([1, 2, 5])
  # Around the means: -1, 0, 1 and -5/3, -2/3, 7/3.
  pearson = 4 / (2 * 78 / 9) ** 0.5
  assert metrics.regression_scores(targets, predictions) == pytest.approx(
    {
      "mean_squared_error": (1 + 1 + 9) / 3,
      "pearson": pearson,
      "spearman": 1.0,
      "corr": (pearson + 1) / 2,
    }
  )


def test_report_and_averages_of_single_labels(report):
  assert report.confusion.as_matrix(4).tolist() == [
    [2, 0, 1, 0],
    [2, 2, 1, 0],
    [0, 0, 0, 0],
    [0, 0, 0, 0],
  ]
  assert report.accuracy == 4 / 8
  assert report.precision == pytest.approx([2 / 4, 1, 0, 0])
  assert report.recall == pytest.approx([2 / 3, 2 / 5, 0, 0])
  assert report.f1 == pytest.approx([4 / 7, 4 / 7, 0, 0])
  assert report.support.tolist() == [3, 5, 0, 0]
  # Over three labels: c is predicted, though never true; d is neither.
  assert report.macro == pytest.approx((1.5 / 3, (16 / 15) / 3, (8 / 7) / 3))
  assert report.micro == pytest.approx((4 / 8, 4 / 8, 4 / 8))
  assert report.weighted == pytest.approx((6.5 / 8, 4 / 8, 4 / 7))


def test_report_of_label_sets():
  labels = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
  guesses = np.array([[1, 0, 0, 0], [1, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0]])
  report = metrics.multi_label_report(labels, guesses)
  assert report.confusion is None
  assert report.accuracy == 1 / 4
  assert report.precision == pytest.approx([2 / 3, 1, 0, 0])
  assert report.recall == pytest.approx([1, 1 / 2, 0, 0])
  assert report.f1 == pytest.approx([4 / 5, 2 / 3, 0, 0])
  assert report.support.tolist() == [2, 2, 0, 0]
  assert report.macro == pytest.approx((5 / 9, 1.5 / 3, (22 / 15) / 3))
  assert report.micro == pytest.approx((3 / 5, 3 / 4, 6 / 9))
  assert report.weighted == pytest.approx((5 / 6, 3 / 4, 11 / 15))


@pytest.mark.filterwarnings("error")
def test_report_without_any_label_is_0():
  nothing = np.zeros((3, 2), int)
  report = metrics.multi_label_report(nothing, nothing)
  assert report.accuracy == 1.0
  assert report.macro == report.micro == report.weighted == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
  ("labels", "probabilities", "threshold"),
  [
    # All three true ones, and one wrong: F1 6/7. The best two: 4/5.
    ([1, 1, 0, 1, 0], [0.9, 0.8, 0.6, 0.4, 0.2], 0.3),
    ([1, 0, 0], [0.75, 0.25, 0.125], 0.5),  # The best one: F1 1.
    ([1, 0, 1], [0.5, 0.4, 0.2], 0.1),  # All: half of the lowest.
    ([1, 1], [0.5, 0.0], 0.0),
    ([0, 1, 0], [0.6, 0.6, 0.2], 0.4),  # None separates equal ones.
    # The best one or all three have F1 2/3; 0.8 is nearer to 0.5 than 0.05.
    ([1, 0, 0, 1], [0.9, 0.7, 0.2, 0.1], 0.8),
    # The same, mirrored: 0.25 is nearer than 0.9.
    ([1, 0, 0, 1], [0.95, 0.85, 0.8, 0.5], 0.25),
    ([0, 0], [0.9, 0.8], 0.5),  # Never true.
  ],
)
def test_threshold_with_the_best_f1(labels, probabilities, threshold):
  column = np.array(labels)[:, None]
  for order in slice(None), slice(None, None, -1):
    found = metrics.tune_thresholds(
      column[order], np.array(probabilities)[:, None][order]
    )
    assert found == pytest.approx([threshold])


def test_every_label_has_its_threshold():
  labels = np.array([[1, 0], [0, 0], [0, 1]])
  probabilities = np.float32([[0.75, 0.25], [0.5, 0.25], [0.25, 0.5]])
  thresholds = metrics.tune_thresholds(labels, probabilities)
  assert thresholds.tolist() == [0.625, 0.375]
  assert (probabilities >= thresholds).astype(int).tolist() == labels.tolist()


def test_mean_of_batch_means():
  values = np.float32([1, 2, 3, 4, 11])
  assert metrics.mean_of_batch_means(values, 2) == (1.5 + 3.5 + 11) / 3
  assert metrics.mean_of_batch_means(values, 8) == pytest.approx(21 / 5)


def test_is_collapsed():
  def is_collapsed(predictions, labels):
    return metrics.is_collapsed(np.array(labels, int), np.array(predictions))

  assert is_collapsed([2, 2, 2], [2, 0, 2])
  assert not is_collapsed([2, 2, 0], [0, 0, 0])
  assert is_collapsed([[0, 1], [0, 1]], [[0, 1], [1, 1]])
  assert not is_collapsed([[0, 1], [1, 0]], [[0, 0], [0, 0]])
  assert not is_collapsed([2, 2], [2, 2])  # There is only one class.
  assert not is_collapsed([2], [0])  # One example says nothing.
  assert not is_collapsed([], [])


def test_what_is_certain_is_in_the_last_range_of_a_calibration():
  probabilities = np.array([0.25, 0.95, 1.0])
  chart = plots.calibration_chart(probabilities, np.array([0, 0, 1]))
  name = "observed (expected error 0.400)"
  assert f"<title>{name}: 0.25, 0</title>" in chart
  assert f"<title>{name}: 0.975, 0.5</title>" in chart
  assert chart.count(f"<title>{name}") == 2


def test_only_the_worst_twenty_are_found():
  assert len(metrics.find_worst(np.ones(30))) == 20


# As text and as JSON.


def test_report_as_json():
  report = metrics.classification_report(
    np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), num_labels=2
  )
  written = json.loads(json.dumps(metrics.report_as_dict(report, ["a", "b"])))
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
  report = metrics.multi_label_report(np.eye(2), np.eye(2))
  written = metrics.report_as_dict(report, ["a", "b"])
  assert written["confusion"] is None
  assert written["labels"]["b"]["support"] == 1


def test_the_memory_of_a_report_does_not_grow_with_the_square_of_the_labels():
  labels = np.array([0, 29_999, 29_999])
  predictions = np.array([0, 7, 29_999])
  names = [f"n{number}" for number in range(30_000)]
  tracemalloc.start()
  report = metrics.classification_report(labels, predictions, len(names))
  assert plots.format_confusion(report, names).endswith("n29999 -> n7: 1")
  assert metrics.matthews_correlation(labels, predictions) > 0
  written = metrics.report_as_dict(report, names)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert written["confusion"] == {
    "n0": {"n0": 1},
    "n29999": {"n7": 1, "n29999": 1},
  }
  assert peak < 50e6  # A matrix would have 900 million cells.


def test_table_of_a_report(report):
  expected = """\
          precision  recall      f1  support
好评         0.5000  0.6667  0.5714        3
b            1.0000  0.4000  0.5714        5
cafe\u0301         0.0000  0.0000  0.0000        0
d            0.0000  0.0000  0.0000        0

macro        0.5000  0.3556  0.3810        8
weighted     0.8125  0.5000  0.5714        8
accuracy                     0.5000"""
  names = ["好评", "b", "cafe\u0301", "d"]
  assert plots.format_report(report, names) == expected


def test_confusion_as_a_matrix(report):
  expected = """\
true \\ predicted  好评  b  c  other
好评                 2  0  1      0
b                    2  2  1      0
c                    0  0  0      0
other                0  0  0      0"""
  names = ["好评", "b", "c", "other"]
  assert plots.format_confusion(report, names) == expected


def test_wide_matrix_has_numbers_for_names():
  names = ["x" * 40, "y" * 40]
  report = metrics.classification_report(
    np.array([0, 1, 1]), np.array([1, 1, 1]), num_labels=2
  )
  assert plots.format_confusion(report, names) == (
    "true \\ predicted" + " " * 27 + "  1  2\n"
    f" 1 {names[0]}  0  1\n"
    f" 2 {names[1]}  0  2"
  )


@pytest.mark.parametrize(
  ("labels", "predictions", "lines"),
  [
    (
      [0] * 9 + [20] * 3 + [7] * 3 + [7],
      [0] * 9 + [19] * 3 + [8] * 3 + [0],
      ["n7 -> n8: 3", "n20 -> n19: 3", "n7 -> n0: 1"],
    ),
    (  # Only twenty are shown.
      np.repeat(range(25), range(1, 26)),
      np.repeat(range(1, 26), range(1, 26)),
      [f"n{n - 1} -> n{n}: {n}" for n in range(25, 5, -1)],
    ),
    (LABELS, LABELS, []),
  ],
)
def test_many_labels_show_frequent_confusions(labels, predictions, lines):
  names = [f"n{number}" for number in range(max(21, max(predictions) + 1))]
  report = metrics.classification_report(
    np.array(labels), np.array(predictions), len(names)
  )
  title, *found = plots.format_confusion(report, names).splitlines()
  assert found == lines
  assert title == (
    "most frequent confusions, true -> predicted:"
    if lines
    else "no label is taken for another"
  )
