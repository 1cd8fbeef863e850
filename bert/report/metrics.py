"""Standard metrics in numpy, under their usual names, and as JSON for files.

Shapes: N examples, at least one; L labels. `targets` are the true labels, and
`predictions` are like them: int [N], or, for several labels an example, 0 or 1
[N, L].

An undefined ratio, such as the precision of a label never predicted, is 0, as
in scikit-learn, and so is Matthews' correlation, as in GLUE; other correlations
are NaN, which `model_selection.History` never prefers.
"""

from collections.abc import Mapping, Sequence
import math
import os
from typing import Any, NamedTuple

import numpy as np

from bert.data import files

# Labels up to which a confusion matrix is written to files; that of 3,000 has 9
# million cells, almost all of them 0.
LARGEST_MATRIX = 200
AVERAGES = ("macro", "micro", "weighted")
# What to try if a model gives every example the same prediction.
COLLAPSE_CURES = (
  "it can help to pass --bias_correction, to lower --learning_rate, to raise "
  "--warmup_proportion or --num_train_epochs, or to take another --seed"
)


def mean_of_batch_means(values: np.ndarray, batch_size: int) -> float:
  """Averages the means of consecutive batches, as the original's `loss` does.

  >>> mean_of_batch_means(np.array([1.0, 3.0, 5.0]), batch_size=2)
  3.5
  """
  starts = range(0, len(values), batch_size)
  means = [values[s : s + batch_size].mean(dtype=float) for s in starts]
  return float(np.mean(means))


def is_collapsed(targets: np.ndarray, predictions: np.ndarray) -> bool:
  """Returns whether all examples get the same prediction, wrong for some."""
  # One example alone proves nothing.
  is_one = len(predictions) > 1 and (predictions == predictions[:1]).all()
  return bool(is_one) and not np.array_equal(targets, predictions)


def accuracy(targets: np.ndarray, predictions: np.ndarray) -> float:
  """Returns the share of predictions that are right; both are int [N]."""
  return float(np.mean(np.equal(targets, predictions)))


def softmax(logits: np.ndarray) -> np.ndarray:
  """Computes the softmax over the last axis; -inf has no probability."""
  # In place: with many labels each copy is large.
  result = logits - logits.max(-1, keepdims=True)
  np.exp(result, out=result)
  result /= result.sum(-1, keepdims=True)
  return result


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
  """Divides counts; 0 where there is nothing to divide by."""
  result = np.zeros(np.shape(numerator))
  return np.divide(numerator, denominator, out=result, where=denominator > 0)


def matthews_correlation(targets: np.ndarray, predictions: np.ndarray) -> float:
  """Computes Matthews' correlation of any number of classes, from -1 to 1.

  With two classes it is Matthews (1975), with more R_K of Gorodkin, "Comparing
  two K-category assignments by a K-category correlation coefficient" (2004). It
  is 0 if the targets or the predictions are all the same.
  """
  classes, codes = np.unique([targets, predictions], return_inverse=True)
  true, predicted = codes.reshape(2, -1)

  # How often each class is true, and how often it is predicted.
  trues = np.bincount(true, minlength=len(classes))
  guesses = np.bincount(predicted, minlength=len(classes))

  # Python's integers: the squares of a million examples multiply to 1e24.
  total = len(true)
  right = int((true == predicted).sum())
  covariance = right * total - int(trues @ guesses)
  spread = (total**2 - int(trues @ trues)) * (total**2 - int(guesses @ guesses))
  return covariance / math.sqrt(spread) if spread else 0.0


def pearson(x: np.ndarray, y: np.ndarray) -> float:
  """Computes Pearson's correlation of two [N]; NaN if one is constant.

  Then it is not defined, and 0 would be better than a real one below it.
  """
  x, y = _center(x), _center(y)
  product = (x @ x) * (y @ y)
  if not product:
    return np.nan
  return float(np.clip(x @ y / np.sqrt(product), -1, 1))


def _center(values: np.ndarray) -> np.ndarray:
  """Moves the mean to 0 and the extreme to -1 or 1; a constant becomes 0."""
  values = np.asarray(values, np.float64)
  # Not left to the rounding of the mean, which makes noise of a constant.
  if values.min() == values.max():
    return np.zeros_like(values)
  centered = values - values.mean()
  return centered / np.abs(centered).max()  # Or tiny squares would become 0.


def spearman(x: np.ndarray, y: np.ndarray) -> float:
  """Computes Spearman's correlation of two [N], that of their ranks.

  Equal values share the mean of their ranks.
  """
  return pearson(_ranks(x), _ranks(y))


def _ranks(values: np.ndarray) -> np.ndarray:
  _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts - 1) / 2)[places]


def regression_scores(
  targets: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
  """Computes mean_squared_error, pearson, spearman and their mean, corr."""
  errors = np.subtract(targets, predictions, dtype=np.float64)
  linear = pearson(targets, predictions)
  ranked = spearman(targets, predictions)
  return {
    "mean_squared_error": float(np.mean(errors**2)),
    "pearson": linear,
    "spearman": ranked,
    "corr": (linear + ranked) / 2,
  }


class Average(NamedTuple):
  """Precision, recall and F1 of several labels together."""

  precision: float
  recall: float
  f1: float


COLUMNS = (*Average._fields, "support")  # A label has these scores.


class Confusion(NamedTuple):
  """How often a true label gets which predicted one: the P pairs that occur."""

  true: np.ndarray  # Int [P].
  predicted: np.ndarray  # Int [P].
  count: np.ndarray  # Int [P], at least 1.

  def as_matrix(self, num_labels: int) -> np.ndarray:
    """Returns all counts, int [L, L], true labels in rows."""
    matrix = np.zeros((num_labels, num_labels), np.int64)
    matrix[self.true, self.predicted] = self.count
    return matrix


class ClassificationReport(NamedTuple):
  """How well each label is predicted.

  `macro` is the mean over labels, without those that occur neither in the truth
  nor in the predictions, as in scikit-learn. `micro` is of all decisions
  together; with single labels it is the accuracy three times. `weighted` is the
  mean weighted by `support`.
  """

  accuracy: float  # The share of exactly right sets, for multi-label.
  precision: np.ndarray  # Float [L].
  recall: np.ndarray  # Float [L].
  f1: np.ndarray  # Float [L].
  support: np.ndarray  # Int [L], how many examples truly have the label.
  macro: Average
  micro: Average
  weighted: Average
  confusion: Confusion | None  # None of multi-label.

  def rows(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns the name of each label with its COLUMNS."""
    columns = self.precision, self.recall, self.f1, self.support
    return list(zip(names, *(c.tolist() for c in columns), strict=True))


def classification_report(
  targets: np.ndarray, predictions: np.ndarray, num_labels: int
) -> ClassificationReport:
  """Scores predictions of one label an example.

  Args:
    targets: int [N], from 0 on.
    predictions: int [N].
    num_labels: L; some of them may not occur.
  """
  # Each pair of a true and a predicted label as one number, to count them.
  pairs = targets.astype(np.int64) * num_labels + predictions
  pairs, counts = np.unique(pairs, return_counts=True)

  return make_report(
    right=np.bincount(targets[targets == predictions], minlength=num_labels),
    support=np.bincount(targets, minlength=num_labels),
    predicted=np.bincount(predictions, minlength=num_labels),
    accuracy=accuracy(targets, predictions),
    confusion=Confusion(*np.divmod(pairs, num_labels), counts),
  )


def multi_label_report(
  targets: np.ndarray, predictions: np.ndarray
) -> ClassificationReport:
  """Scores predictions of any number of labels an example."""
  true, predicted = targets.astype(bool), predictions.astype(bool)
  return make_report(
    right=(true & predicted).sum(0),
    support=true.sum(0),
    predicted=predicted.sum(0),
    accuracy=float((true == predicted).all(1).mean()),
  )


def make_report(
  right: np.ndarray,
  support: np.ndarray,
  predicted: np.ndarray,
  accuracy: float,
  confusion: Confusion | None = None,
) -> ClassificationReport:
  """Makes a report from the counts of each label.

  Args:
    right: int [L], how many examples have the label and are predicted so.
    support: int [L], how many have it.
    predicted: int [L], how many are predicted to have it.
    accuracy: the share of examples that are exactly right.
    confusion: None if an example can have several labels.
  """
  scores = _scores(right, support, predicted)
  micro = _scores(right.sum(), support.sum(), predicted.sum())
  return ClassificationReport(
    accuracy=accuracy,
    **scores,
    support=support,
    macro=_average(scores, support + predicted > 0),
    micro=Average(**{name: float(value) for name, value in micro.items()}),
    weighted=_average(scores, support),
    confusion=confusion,
  )


def _scores(right, support, predicted) -> dict[str, np.ndarray]:
  """Makes scores from counts: each [L], or each a number."""
  return {
    "precision": _ratio(right, predicted),
    "recall": _ratio(right, support),
    "f1": _ratio(2 * right, support + predicted),
  }


def _average(scores, weights: np.ndarray) -> Average:
  total = weights.sum()
  return Average(
    **{name: float(_ratio(s @ weights, total)) for name, s in scores.items()}
  )


def tune_thresholds(
  targets: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
  """Finds the probability from which to predict each label for the best F1.

  Args:
    targets: 0 or 1 [N, L].
    probabilities: float [N, L].

  Returns:
    Float64 [L]. A threshold is midway between two neighbouring probabilities,
    or between the lowest and 0. Of equally good ones it is the one nearest to
    0.5; for a label that no example has, 0.5.
  """
  return np.array(list(map(_best_threshold, targets.T, probabilities.T)))


def _best_threshold(targets: np.ndarray, probabilities: np.ndarray) -> float:
  if not targets.any():
    return 0.5

  # At each place: F1 if the examples up to there are predicted to have the
  # label.
  order = np.argsort(-probabilities)
  falling = probabilities[order].astype(np.float64)
  next_lower = np.append(falling[1:], 0.0)
  right = np.cumsum(targets[order])
  scores = 2 * right / (targets.sum() + np.arange(1, len(targets) + 1))

  # No threshold separates equal probabilities; one may be below all of them.
  is_cut = falling > next_lower
  is_cut[-1] = True

  best = np.flatnonzero(is_cut & (scores == scores[is_cut].max()))
  thresholds = (falling[best] + next_lower[best]) / 2
  return float(thresholds[np.abs(thresholds - 0.5).argmin()])


def precision_recall(
  targets: np.ndarray, scores: np.ndarray
) -> list[tuple[float, float]]:
  """Computes (recall, precision) at about a hundred rising recalls.

  `targets` are 0 or 1 [N], `scores` float [N]; without a 1 there are no
  recalls.

  >>> precision_recall(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.8]))
  [(0.5, 1.0), (1.0, 0.6666666666666666)]
  """
  if not targets.any():
    return []

  # A point for each different score, since no threshold separates equal ones.
  order = np.argsort(-scores, kind="stable")
  last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
  right = np.cumsum(targets[order])[last]
  recall = right / right[-1]
  precision = right / (last + 1)

  # A chart shows no more than a hundred.
  points = np.unique(np.searchsorted(recall, np.linspace(0, 1, 101)))
  return [(float(recall[i]), float(precision[i])) for i in points]


def average_groups(groups: np.ndarray, *scores: np.ndarray) -> list[tuple]:
  """Averages scores of examples, [N] each, by the group of each, [N].

  Returns, for every group, itself, its number of examples and its means.

  >>> average_groups(np.array([9, 1, 1]), np.array([1, 0, 1]))
  [(1, 2, 0.5), (9, 1, 1.0)]
  """
  rows = []
  for group in np.unique(groups).tolist():
    in_group = groups == group
    means = (float(values[in_group].mean(dtype=float)) for values in scores)
    rows.append((group, int(in_group.sum()), *means))
  return rows


def find_worst(errors: np.ndarray) -> np.ndarray:
  """Returns the numbers of up to 20 errors above 0, the largest first.

  >>> find_worst(np.array([0.0, 0.3, 0.9])).tolist()
  [2, 1]
  """
  order = np.argsort(-errors, kind="stable")[:20]
  return order[errors[order] > 0]


def scores_by_size(
  sizes: np.ndarray, scores: np.ndarray
) -> list[tuple[str, int, float]]:
  """Averages scores, float [N], by size, int [N].

  Returns about five groups of equal counts, the smallest sizes first: sizes in
  words, count and mean.

  >>> scores_by_size(np.array([1, 1, 9]), np.array([1, 0, 1]))
  [('1 to 1', 2, 0.5), ('9 to 9', 1, 1.0)]
  """
  edges = np.unique(np.quantile(sizes, [0.2, 0.4, 0.6, 0.8], method="lower"))
  groups = np.searchsorted(edges, sizes)
  rows = []
  for group, *averages in average_groups(groups, scores):
    of_group = sizes[groups == group]
    rows.append((f"{of_group.min()} to {of_group.max()}", *averages))
  return rows


def write_metrics(
  folder: str, stem: str, scores: Mapping[str, float], **content: Any
) -> None:
  """Writes scores to <stem>_metrics.json, and prints them.

  Args:
    folder: the --output_dir.
    stem: the beginning of the file's name, such as "eval" or "eval_mismatched".
    scores: by name; NaN, which JSON lacks, is written as null.
    **content: JSON values to write beside the scores.
  """
  path = os.path.join(folder, f"{stem}_metrics.json")
  values = {n: None if math.isnan(v) else v for n, v in scores.items()}
  files.write_json(path, {"metrics": values, **content})
  listing = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
  print(f"wrote {path}: {listing}")


def report_as_dict(
  report: ClassificationReport, label_names: Sequence[str]
) -> dict[str, Any]:
  """Returns a report as `json.dumps` takes it.

  `confusion` is a matrix, true labels in rows, or None; of more than 200 labels
  the counts that are not 0, by the names of the true and predicted label.
  """
  labels = {
    name: dict(zip(COLUMNS, row, strict=True))
    for name, *row in report.rows(label_names)
  }
  averages = {name: getattr(report, name)._asdict() for name in AVERAGES}

  confusion: Any = None
  if report.confusion and len(label_names) <= LARGEST_MATRIX:
    confusion = report.confusion.as_matrix(len(label_names)).tolist()
  elif report.confusion:
    confusion = {}
    for true, predicted, count in zip(*report.confusion, strict=True):
      row = confusion.setdefault(label_names[true], {})
      row[label_names[predicted]] = int(count)

  return {
    "accuracy": report.accuracy,
    "labels": labels,
    **averages,
    "confusion": confusion,
  }
