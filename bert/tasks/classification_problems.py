"""What a classification task asks for: one label, several, or a number.

A class of PROBLEMS holds most differences: how labels are read and stored, the
bias that training starts with, the loss, the meaning of logits, the scores and
the report. Its name is the value of `--problem`, also in settings.json and
exports. Another problem is another class, and it works once it is in PROBLEMS,
but these places know problems or their scores by name, so look at each:

  classification_data.check_metric     the scores that some sets cannot give
  classification_data.choose_labels    the order of labels
  distillation.LOSSES                  without a row, --teacher is refused
  bert/report/score_kinds.py           the scores that are better if lower
  bert/export/saved_model.py           `decide` once more, in TensorFlow
  bert/convert/huggingface.py          PROBLEM_TYPES, for other libraries
  bert/serving/page.js                 without a picture, answers are JSON

There are as many logits as labels, or one without labels, as
`ClassificationFeatureSettings.num_outputs` and `heads.ClassifierModel` say.

Shapes: B a batch, N examples, L labels, or 1 if answers are numbers. Targets
are int [N] for "single_label", 0 or 1 [N, L] for "multi_label", and float [N]
for "regression".
"""

import abc
from collections.abc import Callable, Mapping, Sequence
import math
from typing import Any, NamedTuple

import numpy as np

from bert.data import messages
from bert.report import charts, metrics, plots

Label = int | list[int] | float
# As a file has it: None if it is not known; several for a list in JSON.
Cell = str | tuple[str, ...] | None

LARGEST_FLOAT = 3.4e38  # Records and models have 32 bits for a number.
_POSITIVE = "1"  # The label whose F1 is "f1".
UNTUNED = 0.5  # The threshold of every label if none are tuned.
_CURVES = 6  # Labels with a curve in the report, the most frequent ones.
_DOTS = 500  # The first examples, in a scatter plot.


class Answers(NamedTuple):
  """Predictions and the logits and probabilities that they are made of."""

  logits: np.ndarray  # [N, L]
  probabilities: np.ndarray  # [N, L]; of a regression, the logits.
  predictions: np.ndarray  # They have the form of targets.
  labels: Sequence[str]  # [L]; of a regression, none.
  problem: "Problem"
  thresholds: np.ndarray | None  # [L], for "multi_label".
  # What divides the logits before the softmax; None: nothing, as trained.
  temperature: float | None = None

  def as_labels(self) -> list[str] | list[float] | list[list[str]]:
    """Returns the label or labels of each example; of a regression, numbers."""
    return self.problem.name_labels(self.predictions, self.labels)


class Problem(abc.ABC):
  """A kind of labels.

  An object has no state, and all runs share it. So the value of a flag, such as
  `separator` or `thresholds`, is an argument of the methods that need it.
  """

  name: str
  has_labels = True  # Otherwise answers are numbers.
  least_labels = 1
  empty_is_label = False  # Whether an empty cell says that no label applies.
  label_type: type = int  # The numbers in records.
  has_thresholds = False  # Whether a label applies from a probability on.
  # What makes probabilities of logits in exports, "softmax" or "sigmoid"; ""
  # only where answers are numbers.
  activation = ""
  answer_name = "label"  # The name of an answer in JSON.
  can_rank = True  # Whether answers order texts; see `rank`.
  score_names: tuple[str, ...]  # The names of the scores that `score` returns.
  # The scores that may choose weights, for files of the user's own; the first
  # does by default.
  selecting: tuple[str, ...]
  # The two results of `judge`, in words.
  goodness = "accuracy"
  surprise = "probability"
  goodness_is_share = True  # From 0 to 1, and 1 is best: the report shades it.

  # Labels, in files and records.

  def split(self, cell: Cell, separator: str) -> list[str]:
    """Returns the labels of a cell; a ValueError if they are too few.

    Only of a problem that `has_labels`.
    """
    raise TypeError(f"{self.name} has no labels to read")

  @abc.abstractmethod
  def encode(
    self, cell: Cell, numbers: Mapping[str, int], separator: str
  ) -> Label:
    """Returns the label_ids of a row for a cell.

    Args:
      cell: of the label; None, if it is not known, gives zeros.
      numbers: the number of each label, by name.
      separator: between several labels of a cell.

    Raises:
      ValueError: the cell has an unknown label, or should be a number.
    """

  def width(self, num_labels: int) -> int:
    """Returns how many numbers a row has for the label of an example."""
    return 1

  def targets(self, label_ids: np.ndarray) -> np.ndarray:
    """Returns the targets that rows have as `label_ids`, [N, width]."""
    return label_ids[:, 0]

  # Training.

  def count(self, sums: np.ndarray, label: Any) -> None:
    """Adds a label to the sums of a set, [L]."""
    sums += label

  def first_bias(self, sums: Sequence[float], total: int) -> list[float] | None:
    """Returns the constant logits with the least loss, or None for zeros.

    From zeros, the first updates of several labels or of a number make every
    label rare or every number larger. They saturate the pooler's tanh, and a
    small model learns nothing else: see "Where the bias starts" in
    docs/results.md. A single label starts from zeros, as in the original.

    Args:
      sums: what `count` made of the training set, [L].
      total: the rows of that set.
    """
    return None

  @abc.abstractmethod
  def loss(self, logits: Any, label_ids: Any, class_weights: Any) -> Any:
    """Computes the losses of a batch in TensorFlow.

    Args:
      logits: float32 [B, L].
      label_ids: those of the rows, [B, width].
      class_weights: the weight of each label, float32 [L].

    Returns:
      The loss of each example, float32 [B], and the factor of its weight,
      float32 [B] or a number.
    """

  # Answers.

  @abc.abstractmethod
  def activate(self, logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities that logits mean, [N, L]."""

  @abc.abstractmethod
  def decide(
    self, probabilities: np.ndarray, thresholds: np.ndarray | None
  ) -> np.ndarray:
    """Returns the predictions, in the form of targets.

    `serving_default` of a SavedModel decides in TensorFlow, without this code:
    `_make_string_server` in bert/export/saved_model.py has to give the same.
    """

  @abc.abstractmethod
  def name_labels(self, values: np.ndarray, labels: Sequence[str]) -> list[Any]:
    """Returns the label or labels of predictions or targets, or the numbers."""

  # Scores.

  @abc.abstractmethod
  def losses(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Computes each example's loss, as `loss` without class weights.

    It is the cross entropy in nats, its mean over labels, or the squared error.
    """

  @abc.abstractmethod
  def score(
    self, answers: Answers, targets: np.ndarray
  ) -> tuple[metrics.ClassificationReport | None, dict[str, float]]:
    """Returns how well each label is predicted, and the scores by name."""

  def rank(
    self, answers: Answers, targets: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers to order texts by and their relevance, [N] each.

    Only of a problem that `can_rank`.
    """
    raise TypeError(f"answers of {self.name} do not order texts")

  # The report.

  @abc.abstractmethod
  def judge(
    self, answers: Answers, targets: np.ndarray
  ) -> tuple[np.ndarray, np.ndarray]:
    """Returns two numbers for each answer, [N] each.

    The report averages the first by the length of texts, under the name
    `goodness`; a regression has its error there. The second says how wrong an
    answer is, 0 if it is right, and finds the worst mistakes.
    """

  @abc.abstractmethod
  def draw(
    self, answers: Answers, targets: np.ndarray, report: Any
  ) -> list[str]:
    """Draws tables and charts of answers, in HTML.

    Args:
      answers: of N examples.
      targets: the right answers.
      report: from `score`.
    """


class SingleLabel(Problem):
  """Exactly one of several labels."""

  name = "single_label"
  least_labels = 2
  activation = "softmax"
  # No micro-averaged F1: for single labels it is the accuracy.
  score_names = ("accuracy", "macro_f1")
  selecting = ("accuracy", "macro_f1")

  def split(self, cell, separator):
    if not cell:
      raise ValueError("no label")
    if not isinstance(cell, str):
      raise ValueError(
        "a list of labels; expected one (several need --problem=multi_label)"
      )
    return [cell]

  def encode(self, cell, numbers, separator):
    if cell is None:
      return 0
    [label] = self.split(cell, separator)
    return _find_number(label, numbers)

  def count(self, sums, label):
    sums[label] += 1

  def loss(self, logits, label_ids, class_weights):
    import tensorflow as tf  # Serving has none.

    labels = label_ids[:, 0]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return losses, tf.gather(class_weights, labels)

  def activate(self, logits):
    return metrics.softmax(logits)

  def decide(self, probabilities, thresholds):
    return probabilities.argmax(-1)

  def name_labels(self, values, labels):
    return [labels[value] for value in values]

  def losses(self, logits, targets):
    # The softmax's logarithm; without the shift, exp might overflow.
    shifted = logits - logits.max(-1, keepdims=True)
    target_logits = shifted[np.arange(len(targets)), targets]
    np.exp(shifted, out=shifted)
    return np.log(shifted.sum(-1)) - target_logits

  def score(self, answers, targets):
    report = metrics.classification_report(
      targets, answers.predictions, len(answers.labels)
    )
    return report, {"accuracy": report.accuracy, "macro_f1": report.macro.f1}

  def rank(self, answers, targets):
    positive = find_positive(answers.labels)
    return answers.probabilities[:, positive], targets == positive

  def judge(self, answers, targets):
    wrong = answers.predictions != targets
    return 1.0 - wrong, answers.probabilities.max(1) * wrong

  def draw(self, answers, targets, report):
    curves = _draw_curves(answers, report, lambda label: targets == label)
    is_right = answers.predictions == targets
    curves += plots.calibration_chart(answers.probabilities.max(1), is_right)
    return [
      plots.confusions(report.confusion, answers.labels),
      plots.label_table(report, answers.labels),
      f'<div class="charts">{curves}</div>',
    ]


class MultiLabel(Problem):
  """Any number of labels, or none of them."""

  name = "multi_label"
  empty_is_label = True
  has_thresholds = True
  activation = "sigmoid"
  answer_name = "labels"
  can_rank = False
  # Accuracy is the share of examples whose labels are all right. Untuned scores
  # are at the threshold 0.5, for comparison with other programs.
  score_names = (
    "accuracy",
    "macro_f1",
    "micro_f1",
    "untuned_micro_f1",
    "untuned_macro_f1",
  )
  selecting = ("micro_f1", "macro_f1")

  def split(self, cell, separator):
    if cell is None:
      raise ValueError("no label")
    if isinstance(cell, str):
      cell = map(str.strip, cell.split(separator))
    return list(filter(None, cell))

  def encode(self, cell, numbers, separator):
    is_set = [0] * len(numbers)
    if cell is not None:
      for label in self.split(cell, separator):
        is_set[_find_number(label, numbers)] = 1
    return is_set

  def width(self, num_labels):
    return num_labels

  def targets(self, label_ids):
    return label_ids

  def first_bias(self, sums, total):
    # The log-odds, as if there were one more example with and one without it.
    return [math.log((count + 1) / (total - count + 1)) for count in sums]

  def loss(self, logits, label_ids, class_weights):
    import tensorflow as tf  # Serving has none.

    labels = tf.cast(label_ids, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)

    # As for single labels, only the ratios of the weights count.
    losses = tf.reduce_mean(losses * class_weights, -1)
    return losses / tf.reduce_mean(class_weights), 1.0

  def activate(self, logits):
    # The sigmoid, 1 / (1 + exp(-x)), which does not overflow in this form.
    return np.exp(-np.logaddexp(0, -logits))

  def decide(self, probabilities, thresholds):
    return (probabilities >= thresholds).astype(np.int64)

  def name_labels(self, values, labels):
    return [[labels[i] for i in row.nonzero()[0].tolist()] for row in values]

  def losses(self, logits, targets):
    # The cross entropy with a sigmoid, which has this simple form.
    return (np.logaddexp(0, logits) - logits * targets).mean(-1)

  def score(self, answers, targets):
    report = metrics.multi_label_report(targets, answers.predictions)
    guesses = answers.probabilities >= UNTUNED
    untuned = metrics.multi_label_report(targets, guesses)
    return report, {
      "accuracy": report.accuracy,
      "macro_f1": report.macro.f1,
      "micro_f1": report.micro.f1,
      "untuned_micro_f1": untuned.micro.f1,
      "untuned_macro_f1": untuned.macro.f1,
    }

  def judge(self, answers, targets):
    wrong = answers.predictions != targets
    distance = np.abs(answers.probabilities - targets)
    return 1.0 - wrong.any(1), np.max(distance * wrong, 1)

  def draw(self, answers, targets, report):
    curves = _draw_curves(answers, report, lambda label: targets[:, label])
    probabilities = answers.probabilities.ravel()
    curves += plots.calibration_chart(probabilities, targets.ravel())
    return [
      plots.label_table(report, answers.labels),
      f'<div class="charts">{curves}</div>',
    ]


class Regression(Problem):
  """A number."""

  name = "regression"
  has_labels = False
  label_type = float
  answer_name = "value"
  score_names = ("mean_squared_error", "pearson", "spearman", "corr")
  selecting = ("corr", "pearson", "spearman")
  goodness = "mean error"
  surprise = "error"
  goodness_is_share = False

  def encode(self, cell, numbers, separator):
    if cell is None:
      return 0.0
    try:
      # Not as Python reads it: to float(), 1_0 is 10.
      value = float(str(cell).replace("_", "?"))
    except ValueError:
      value = math.nan
    if not abs(value) <= LARGEST_FLOAT:  # NaN fails, too.
      text = repr(cell)[:99] if cell else "nothing"
      raise ValueError(f"expected a number, found {text}")
    return value

  def first_bias(self, sums, total):
    return [sums[0] / total]

  def loss(self, logits, label_ids, class_weights):
    import tensorflow as tf  # Serving has none.

    return tf.square(logits - label_ids)[:, 0], 1.0

  def activate(self, logits):
    return logits

  def decide(self, probabilities, thresholds):
    return probabilities[:, 0]

  def name_labels(self, values, labels):
    return values.tolist()

  def losses(self, logits, targets):
    return np.square(logits[:, 0] - targets)

  def score(self, answers, targets):
    return None, metrics.regression_scores(targets, answers.predictions)

  def rank(self, answers, targets):
    return answers.predictions, targets

  def judge(self, answers, targets):
    errors = np.abs(answers.predictions - targets)
    return errors, errors

  def draw(self, answers, targets, report):
    pairs = np.stack([targets, answers.predictions], 1)[:_DOTS].tolist()
    dots = {"example": pairs}
    scale = charts.Scale("Predicted and true numbers", "predicted", dots)
    return [charts.line_chart("true", scale, joined=False)]


PROBLEMS: dict[str, Problem] = {
  problem.name: problem
  for problem in (SingleLabel(), MultiLabel(), Regression())
}


def find_positive(labels: Sequence[str]) -> int:
  """Returns the number of the label whose F1 is "f1", or of relevant texts.

  It is the label "1", or else the second.
  """
  return labels.index(_POSITIVE) if _POSITIVE in labels else 1


def _find_number(label: str, numbers: Mapping[str, int]) -> int:
  if label not in numbers:
    raise ValueError(
      f"unknown label {label[:99]!r}; known: {messages.list_names(numbers)}"
    )
  return numbers[label]


def _draw_curves(
  answers: Answers,
  report: metrics.ClassificationReport,
  is_true: Callable[[int], np.ndarray],
) -> str:
  """Draws precision over recall of frequent labels.

  Args:
    answers: of N examples.
    report: from `Problem.score`.
    is_true: returns whether each example has the label of a number, [N].
  """
  curves = {}
  frequent = np.argsort(-report.support, kind="stable")[:_CURVES]
  for label in frequent.tolist():
    curves[answers.labels[label]] = metrics.precision_recall(
      is_true(label), answers.probabilities[:, label]
    )
  scale = charts.Scale("Precision and recall", "precision", curves)
  return charts.line_chart("recall", scale, limits=(0, 1))
