"""Scores of predictions, in numpy; what the field publishes, by its names.

Shapes: N examples, at least one; L labels. `labels` are the true ones: int [N],
as `predictions` are, or 0 or 1 [N, L] for several labels an example. An
undefined ratio, such as the precision of a label never predicted, is 0.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
from typing import Any, NamedTuple
import unicodedata

import numpy as np

from data import files

# Labels up to which a confusion matrix is written to files; that of 3,000 has 9
# million cells, almost all of them 0.
LARGEST_MATRIX = 200
# Likewise on the terminal; of more only the frequent confusions are shown.
LARGEST_SHOWN = 20
_LINE_LENGTH = 100  # Columns; in a wider matrix numbers stand for the names.


def pretraining_metrics(
  rows: Mapping[str, np.ndarray], batch_size: int
) -> dict[str, float]:
  """Scores masked-LM and next-sentence predictions.

  Args:
    rows: N examples, by name:
      masked_lm_loss, float32 [N, P]: negative log-likelihood of each masked
        token; masked_lm_correct, [N, P]: 1 where the best guess is right;
        masked_lm_weights, float32 [N, P]: 0 for unused positions;
      next_sentence_loss, float32 [N]; next_sentence_correct, [N].
    batch_size: of the batches whose mean losses `loss` averages.

  Returns:
    loss, masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and
    next_sentence_loss. Masked positions of all batches count alike in the
    second and third; in `loss`, as the original defines it, batches do.
  """
  weights = rows["masked_lm_weights"].astype(np.float64)
  token_losses = rows["masked_lm_loss"] * weights
  batch_losses = []
  for start in range(0, len(weights), batch_size):
    batch = slice(start, start + batch_size)
    # The 1e-5 is the original's guard against a batch without a masked token.
    masked = token_losses[batch].sum() / (weights[batch].sum() + 1e-5)
    batch_losses.append(masked + rows["next_sentence_loss"][batch].mean())
  masked_total = max(weights.sum(), 1e-5)
  return {
    "loss": float(np.mean(batch_losses)),
    "masked_lm_accuracy": float(
      (rows["masked_lm_correct"] * weights).sum() / masked_total
    ),
    "masked_lm_loss": float(token_losses.sum() / masked_total),
    "next_sentence_accuracy": float(rows["next_sentence_correct"].mean()),
    "next_sentence_loss": float(rows["next_sentence_loss"].mean()),
  }


def mean_of_batch_means(values: np.ndarray, batch_size: int) -> float:
  """Averages the means of consecutive batches, as the original's `loss` does.

  The examples of a smaller last batch count for more than the others.

  >>> mean_of_batch_means(np.array([1.0, 3.0, 5.0]), batch_size=2)
  3.5
  """
  starts = range(0, len(values), batch_size)
  means = [values[s : s + batch_size].mean(dtype=float) for s in starts]
  return float(np.mean(means))


def is_collapsed(labels: np.ndarray, predictions: np.ndarray) -> bool:
  """Returns whether all examples get the same prediction, wrong for some.

  >>> is_collapsed(np.array([1, 0, 1]), np.array([1, 1, 1]))
  True
  >>> is_collapsed(np.array([1, 1, 1]), np.array([1, 1, 1]))
  False
  """
  is_one = len(predictions) > 1 and (predictions == predictions[:1]).all()
  return bool(is_one) and not np.array_equal(labels, predictions)


def accuracy(labels: np.ndarray, predictions: np.ndarray) -> float:
  """Returns the share of predictions that are right; both are int [N]."""
  return float(np.mean(np.equal(labels, predictions)))


def f1(labels: np.ndarray, predictions: np.ndarray) -> float:
  """Computes the harmonic mean of precision and recall of class 1.

  >>> f1(np.array([1, 1, 1, 0]), np.array([1, 0, 0, 0]))
  0.5
  """
  true, predicted = labels == 1, predictions == 1
  right = (true & predicted).sum()
  return float(_ratio(2 * right, true.sum() + predicted.sum()))


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
  """Divides counts; 0 where there is nothing to divide by."""
  result = np.zeros(np.shape(numerator))
  return np.divide(numerator, denominator, out=result, where=denominator > 0)


def matthews_correlation(labels: np.ndarray, predictions: np.ndarray) -> float:
  """Computes Matthews' correlation of any number of classes.

  With two classes it is Matthews (1975), with more R_K of Gorodkin, "Comparing
  two K-category assignments by a K-category correlation coefficient" (2004).

  Returns:
    -1 to 1; 0 if the labels or the predictions are all the same.

  >>> matthews_correlation(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1]))
  -1.0
  """
  classes, codes = np.unique([labels, predictions], return_inverse=True)
  true, predicted = codes.reshape(2, -1)
  trues = np.bincount(true, minlength=len(classes))
  guesses = np.bincount(predicted, minlength=len(classes))
  # Python's integers: the squares of a million examples multiply to 1e24.
  total, right = len(true), int((true == predicted).sum())
  covariance = right * total - int(trues @ guesses)
  spread = (total**2 - int(trues @ trues)) * (total**2 - int(guesses @ guesses))
  return covariance / math.sqrt(spread) if spread else 0.0


def pearson(x: np.ndarray, y: np.ndarray) -> float:
  """Computes Pearson's correlation of two [N]; 0 if one of them is constant."""
  x, y = _center(x), _center(y)
  product = (x @ x) * (y @ y)
  return float(np.clip(x @ y / np.sqrt(product), -1, 1)) if product else 0.0


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

  >>> spearman(np.array([1, 2, 3]), np.array([1, 10, 100]))
  1.0
  """
  return pearson(_ranks(x), _ranks(y))


def _ranks(values: np.ndarray) -> np.ndarray:
  _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
  return (np.cumsum(counts) - (counts - 1) / 2)[places]


def regression_scores(
  targets: np.ndarray, predictions: np.ndarray
) -> dict[str, float]:
  """Scores predicted numbers.

  Returns:
    mean_squared_error, pearson, spearman, and corr, the mean of the last two.
  """
  errors = np.subtract(targets, predictions, dtype=np.float64)
  linear, ranked = pearson(targets, predictions), spearman(targets, predictions)
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


class Confusion(NamedTuple):
  """How often a true label gets which predicted one: the P pairs that occur.

  They are in ascending order of the true label, then of the predicted one.
  """

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

  `macro` is the mean over labels. One that occurs neither in the truth nor in
  the predictions says nothing and is left out of it, as scikit-learn does for
  single labels. `micro` is of all decisions together, and with single labels
  the accuracy three times. `weighted` is the mean weighted by `support`.
  """

  accuracy: float  # Of multi-label: the share of exactly right sets.
  precision: np.ndarray  # Float [L].
  recall: np.ndarray  # Float [L].
  f1: np.ndarray  # Float [L].
  support: np.ndarray  # Int [L], how many examples truly have the label.
  macro: Average
  micro: Average
  weighted: Average
  confusion: Confusion | None  # None of multi-label.


def classification_report(
  labels: np.ndarray, predictions: np.ndarray, num_labels: int
) -> ClassificationReport:
  """Scores predictions of one label an example."""
  pairs = labels.astype(np.int64) * num_labels + predictions
  pairs, counts = np.unique(pairs, return_counts=True)
  return _report(
    right=np.bincount(labels[labels == predictions], minlength=num_labels),
    support=np.bincount(labels, minlength=num_labels),
    predicted=np.bincount(predictions, minlength=num_labels),
    accuracy=accuracy(labels, predictions),
    confusion=Confusion(*np.divmod(pairs, num_labels), counts),
  )


def multi_label_report(
  labels: np.ndarray, predictions: np.ndarray
) -> ClassificationReport:
  """Scores predictions of any number of labels an example."""
  true, predicted = labels.astype(bool), predictions.astype(bool)
  return _report(
    right=(true & predicted).sum(0),
    support=true.sum(0),
    predicted=predicted.sum(0),
    accuracy=float((true == predicted).all(1).mean()),
    confusion=None,
  )


def _report(right, support, predicted, accuracy, confusion):
  """Makes a report from counts of each label, int [L]."""
  scores = _scores(right, support, predicted)
  micro = _scores(right.sum(), support.sum(), predicted.sum())
  return ClassificationReport(
    accuracy=accuracy,
    **scores._asdict(),
    support=support,
    macro=_average(scores, support + predicted > 0),
    micro=Average(*map(float, micro)),
    weighted=_average(scores, support),
    confusion=confusion,
  )


def _scores(right, support, predicted):
  """Makes scores from counts: each [L], or each a number."""
  return Average(
    precision=_ratio(right, predicted),
    recall=_ratio(right, support),
    f1=_ratio(2 * right, support + predicted),
  )


def _average(scores, weights: np.ndarray) -> Average:
  total = weights.sum()
  return Average(*(float(_ratio(s @ weights, total)) for s in scores))


class Entity(NamedTuple):
  """Consecutive words that name one thing, such as a person."""

  type: str  # "" where tags have none.
  start: int  # Its first word.
  end: int  # The word after its last one.


def find_entities(tags: Iterable[str]) -> list[Entity]:
  """Reads the entities of a sentence from its tags, as `conlleval` does.

  A tag is O, or a prefix and a type: B-LOC. Of all prefixes only these tell: an
  entity begins with B or S, and after E or S. It also begins after O and where
  the type changes, whatever the prefix. So any sequence of tags can be read, of
  IOB1, IOB2, IOBES and BMES alike.

  >>> find_entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
  ... # doctest: +NORMALIZE_WHITESPACE
  [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4),
   Entity(type='LOC', start=4, end=5)]
  """
  entities: list[Entity] = []
  last_prefix, last_type = "O", ""
  for index, tag in enumerate(tags):
    prefix, _, type = tag.partition("-")
    if prefix != "O":
      if (
        prefix in ("B", "S")
        or last_prefix in ("E", "S", "O")
        or type != last_type
      ):
        entities.append(Entity(type, index, index + 1))
      else:
        entities[-1] = entities[-1]._replace(end=index + 1)
    last_prefix, last_type = prefix, type
  return entities


def entity_report(
  true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> tuple[ClassificationReport, list[str]]:
  """Scores predicted tags by whole entities, as the CoNLL shared tasks did.

  An entity is right if its type, its first and its last word are. `micro` is
  what `conlleval` prints as overall. Tjong Kim Sang & De Meulder,
  https://arxiv.org/abs/cs/0306050, section 2.3.

  Args:
    true: the tags of each sentence, see `find_entities`.
    predicted: as many tags of each.

  Returns:
    The report, one label a type; its accuracy is the share of words with the
    right tag. And the types, sorted; one without a name is "_".
  """
  support: collections.Counter[str] = collections.Counter()
  guesses: collections.Counter[str] = collections.Counter()
  right: collections.Counter[str] = collections.Counter()
  words = right_words = 0
  for true_tags, predicted_tags in zip(true, predicted, strict=True):
    found = set(find_entities(true_tags))
    guessed = set(find_entities(predicted_tags))
    support.update(entity.type for entity in found)
    guesses.update(entity.type for entity in guessed)
    right.update(entity.type for entity in found & guessed)
    words += len(true_tags)
    pairs = zip(true_tags, predicted_tags, strict=True)
    right_words += sum(a == b for a, b in pairs)
  types = sorted(support | guesses)
  counts = [
    np.array([counter[type] for type in types], np.int64)
    for counter in (right, support, guesses)
  ]
  report = _report(*counts, right_words / max(1, words), confusion=None)
  return report, [type or "_" for type in types]


def tune_thresholds(
  labels: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
  """Finds the probability from which to predict each label for the best F1.

  Returns:
    float64 [L], each midway between two neighbouring probabilities (below the
    lowest: 0 and it). Of equally good ones it is the nearest to 0.5, which is
    also the threshold of a label that is never true.
  """
  return np.array(
    [
      _best_threshold(labels[:, label], probabilities[:, label])
      for label in range(labels.shape[1])
    ]
  )


def _best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> float:
  if not labels.any():
    return 0.5
  order = np.argsort(-probabilities)
  falling = probabilities[order].astype(np.float64)
  next_lower = np.append(falling[1:], 0.0)
  right = np.cumsum(labels[order])
  scores = 2 * right / (labels.sum() + np.arange(1, len(labels) + 1))
  # No threshold separates equal probabilities; one may be below all of them.
  is_cut = falling > next_lower
  is_cut[-1] = True
  best = np.flatnonzero(is_cut & (scores == scores[is_cut].max()))
  thresholds = (falling[best] + next_lower[best]) / 2
  return float(thresholds[np.abs(thresholds - 0.5).argmin()])


def precision_recall(
  labels: np.ndarray, scores: np.ndarray
) -> list[tuple[float, float]]:
  """Computes the precision at rising recalls, as the threshold falls.

  Args:
    labels: 0 or 1 [N].
    scores: float [N], higher where a label is likelier to be 1.

  Returns:
    (recall, precision) at about a hundred recalls; nothing if no label is 1.

  >>> precision_recall(np.array([1, 0, 1]), np.array([0.9, 0.8, 0.8]))
  [(0.5, 1.0), (1.0, 0.6666666666666666)]
  """
  if not labels.any():
    return []
  order = np.argsort(-scores, kind="stable")
  # No threshold separates equal scores.
  last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
  right = np.cumsum(labels[order])[last]
  recall, precision = right / right[-1], right / (last + 1)
  kept = np.unique(np.searchsorted(recall, np.linspace(0, 1, 101)))
  return list(zip(recall[kept].tolist(), precision[kept].tolist(), strict=True))


def calibration(
  probabilities: np.ndarray, right: np.ndarray
) -> list[tuple[float, float, int]]:
  """Compares probabilities, in ten ranges, with how often they come true.

  Args:
    probabilities: float [N], 0 to 1.
    right: [N], whether what is predicted with them is so.

  Returns:
    Mean probability, share that is right and count of each range with any.

  >>> calibration(np.array([0.25, 0.75, 0.75]), np.array([0, 1, 0]))
  [(0.25, 0.0, 1), (0.75, 0.5, 2)]
  """
  ranges = np.minimum((probabilities * 10).astype(np.int8), 9)
  counts = np.bincount(ranges)
  sums = [np.bincount(ranges, values) for values in (probabilities, right)]
  return [
    (float(sums[0][i] / counts[i]), float(sums[1][i] / counts[i]), int(n))
    for i, n in enumerate(counts)
    if n
  ]


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
  """Averages scores by size, in about five groups of about as many examples.

  Args:
    sizes: int [N].
    scores: float [N].

  Returns:
    The sizes of each group in words, its number of examples, its mean score.

  >>> scores_by_size(np.array([1, 1, 1, 9]), np.array([1, 1, 0, 1]))
  [('1 to 1', 3, 0.6666666666666666), ('9 to 9', 1, 1.0)]
  """
  edges = np.unique(np.quantile(sizes, [0.2, 0.4, 0.6, 0.8], method="lower"))
  groups, rows = np.searchsorted(edges, sizes), []
  for group in np.unique(groups):
    own, found = sizes[groups == group], scores[groups == group]
    rows.append((f"{own.min()} to {own.max()}", len(own), float(found.mean())))
  return rows


def write_metrics(
  folder: str, kind: str, scores: Mapping[str, float], **others: Any
) -> None:
  """Writes scores, and others as JSON values, to <kind>_metrics.json."""
  path = os.path.join(folder, f"{kind}_metrics.json")
  files.write_json(path, {"metrics": scores, **others})
  listing = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
  print(f"wrote {path}: {listing}")


def report_as_dict(
  report: ClassificationReport, label_names: Sequence[str]
) -> dict[str, Any]:
  """Returns a report as `json.dumps` takes it.

  Returns:
    accuracy; labels, by name; macro, micro, weighted; confusion: a matrix, true
    labels in rows, or None. Of more than 200 labels it is the counts that are
    not 0, by the names of the true and of the predicted label.
  """
  columns = report.precision, report.recall, report.f1, report.support
  rows = zip(*(column.tolist() for column in columns), strict=True)
  keys = (*Average._fields, "support")
  return {
    "accuracy": report.accuracy,
    "labels": {
      name: dict(zip(keys, row, strict=True))
      for name, row in zip(label_names, rows, strict=True)
    },
    "macro": report.macro._asdict(),
    "micro": report.micro._asdict(),
    "weighted": report.weighted._asdict(),
    "confusion": _confusion_as_json(report.confusion, label_names),
  }


def _confusion_as_json(confusion, label_names):
  if confusion is None:
    return None
  if len(label_names) <= LARGEST_MATRIX:
    return confusion.as_matrix(len(label_names)).tolist()
  counts: dict[str, dict[str, int]] = {}
  for true, predicted, count in zip(*confusion, strict=True):
    row = counts.setdefault(label_names[true], {})
    row[label_names[predicted]] = int(count)
  return counts


def format_report(
  report: ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns a table of the scores of each label, the averages, the accuracy."""
  rows = [["", *Average._fields, "support"]]
  columns = report.precision, report.recall, report.f1
  for name, *scores, support in zip(
    label_names, *columns, report.support, strict=True
  ):
    rows.append([name, *_four_decimals(scores), str(support)])
  total = str(report.support.sum())
  rows.append([""] * 5)
  # Of single labels, the micro average is the accuracy.
  micro = [] if report.confusion else ["micro"]
  for name in ("macro", *micro, "weighted"):
    rows.append([name, *_four_decimals(getattr(report, name)), total])
  rows.append(["accuracy", "", "", *_four_decimals([report.accuracy]), ""])
  return _align(rows)


def _four_decimals(scores) -> list[str]:
  return [f"{score:.4f}" for score in scores]


def format_confusion(
  report: ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns which labels are taken for which others.

  Returns:
    A matrix with a row for each true label; of more than 20 labels the 20 most
    frequent confusions, each a line `true -> predicted: count`.
  """
  assert report.confusion is not None
  if len(label_names) > LARGEST_SHOWN:
    return _list_confusions(report.confusion, label_names)
  matrix = report.confusion.as_matrix(len(label_names))
  counts = [list(map(str, row)) for row in matrix]
  rows = [["true \\ predicted", *label_names]]
  rows += [[name, *row] for name, row in zip(label_names, counts, strict=True)]
  if sum(_column_widths(rows)) + 2 * len(label_names) > _LINE_LENGTH:
    rows[0][1:] = [str(number) for number in range(1, len(rows))]
    for number, row in enumerate(rows[1:], start=1):
      row[0] = f"{number:>2} {row[0]}"
  return _align(rows)


def frequent_confusions(
  confusion: Confusion, label_names: Sequence[str]
) -> list[tuple[str, str, int]]:
  """Returns the twenty most frequent errors: true label, predicted, count."""
  wrong = np.flatnonzero(confusion.true != confusion.predicted)
  order = wrong[np.argsort(-confusion.count[wrong], kind="stable")]
  return [
    (
      label_names[confusion.true[pair]],
      label_names[confusion.predicted[pair]],
      int(confusion.count[pair]),
    )
    for pair in order[:LARGEST_SHOWN]
  ]


def _list_confusions(confusion, label_names) -> str:
  lines = [
    f"{true} -> {predicted}: {count}"
    for true, predicted, count in frequent_confusions(confusion, label_names)
  ]
  if not lines:
    return "no label is taken for another"
  return "\n".join(["most frequent confusions, true -> predicted:", *lines])


def _align(rows: Sequence[Sequence[str]]) -> str:
  """Makes a table: the first column flush left, the others flush right."""
  widths = _column_widths(rows)
  lines = []
  for first, *others in rows:
    cells = [first + " " * (widths[0] - _width(first))]
    for cell, width in zip(others, widths[1:], strict=True):
      cells.append(" " * (width - _width(cell)) + cell)
    lines.append("  ".join(cells).rstrip())
  return "\n".join(lines)


def _column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
  return [max(map(_width, column)) for column in zip(*rows, strict=True)]


def _width(text: str) -> int:
  """Counts the terminal's columns: two for a Chinese character.

  >>> _width("ham"), _width("好评"), _width("Ｑ＆Ａ"), _width("e\u0301")
  (3, 4, 6, 1)
  """
  return sum(map(_character_width, text))


def _character_width(character: str) -> int:
  if unicodedata.category(character) in ("Mn", "Me", "Cf"):
    return 0  # Drawn over the character before, or not at all.
  return 2 if unicodedata.east_asian_width(character) in "WF" else 1
