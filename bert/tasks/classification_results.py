"""Scores of a classifier's logits, the files and the report that show them.

Shapes: N examples, L labels (1 for regression). Targets are int [N] for
"single_label", 0 or 1 [N, L] for "multi_label", float [N] for "regression".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import os
from typing import Any, NamedTuple

import numpy as np

from bert.data import label_files, progress
from bert.report import charts, metrics, plots, retrieval_scores
from bert.tasks import classification

_F1S = ("micro_f1", "macro_f1")
_METRICS = {
  # Their micro-averaged F1 is the accuracy.
  "single_label": ("accuracy", "macro_f1"),
  "multi_label": ("accuracy", *_F1S, *(f"untuned_{name}" for name in _F1S)),
  "regression": ("mean_squared_error", "pearson", "spearman", "corr"),
}
_OTHER_METRICS = ("f1", "matthews_correlation", *retrieval_scores.NAMES)
_POSITIVE = "1"  # The label that F1 is of.
_UNTUNED = 0.5  # The threshold of every label if none are tuned.
_CURVES = 6  # Labels with a curve in the report, the most frequent ones.
_DOTS = 500  # The first examples, in a scatter plot.


def pool_windows(
  logits: np.ndarray, examples: np.ndarray, pooling: str
) -> np.ndarray:
  """Pools logits of windows, float32 [R, L], to those of examples, [N, L].

  `examples` has the example of each row, int [R], ascending; `pooling` is
  "mean" or "max".
  """
  starts = np.flatnonzero(np.diff(examples, prepend=-1))
  if pooling == "max":
    return np.maximum.reduceat(logits, starts)
  counts = np.diff(np.append(starts, len(examples)))
  return np.add.reduceat(logits, starts) / counts[:, None].astype(np.float32)


def probabilities(logits: np.ndarray, problem: str) -> np.ndarray:
  """Returns the softmax or sigmoid of logits; of a regression, the logits."""
  if problem == "regression":
    return logits
  if problem == "multi_label":
    return np.exp(-np.logaddexp(0, -logits))
  return metrics.softmax(logits)


class Answers(NamedTuple):
  """Predictions and the logits and probabilities that they are made of."""

  logits: np.ndarray  # [N, L]
  scores: np.ndarray  # [N, L], from `probabilities`.
  predictions: np.ndarray  # They have the form of targets.
  labels: Sequence[str]  # [L]; of a regression, none.
  problem: str
  thresholds: np.ndarray | None  # [L], for "multi_label".

  def as_labels(self) -> list[str] | list[float] | list[list[str]]:
    """Returns the label or labels of each example; of a regression, numbers."""
    values, labels = self.predictions, self.labels
    if self.problem == "regression":
      return values.tolist()
    if self.problem == "multi_label":
      return [[labels[i] for i in np.flatnonzero(row)] for row in values]
    return [labels[value] for value in values]


def answer(
  logits: np.ndarray,
  problem: str,
  labels: Sequence[str],
  thresholds: np.ndarray | None = None,
  tuning: np.ndarray | None = None,
) -> Answers:
  """Turns logits into answers.

  The thresholds of "multi_label", [L], are by default 0.5, or the best for the
  targets `tuning`; scores of other examples will be a little lower.
  """
  scores = probabilities(logits, problem)
  if problem == "regression":
    predictions = scores[:, 0]
  elif problem == "multi_label":
    if tuning is not None:
      thresholds = metrics.tune_thresholds(tuning, scores)
    elif thresholds is None:
      thresholds = np.full(len(labels), _UNTUNED)
    predictions = (scores >= thresholds).astype(np.int64)
  else:
    predictions = scores.argmax(-1)
  return Answers(logits, scores, predictions, labels, problem, thresholds)


def losses(logits: np.ndarray, targets: np.ndarray, problem: str) -> np.ndarray:
  """Computes each example's loss, as it was minimised without class weights.

  It is the cross entropy in nats, its mean over labels, or the squared error.
  """
  if problem == "regression":
    return np.square(logits[:, 0] - targets)
  if problem == "multi_label":
    return (np.logaddexp(0, logits) - logits * targets).mean(-1)
  shifted = logits - logits.max(-1, keepdims=True)
  target_logits = shifted[np.arange(len(targets)), targets]
  np.exp(shifted, out=shifted)
  return np.log(shifted.sum(-1)) - target_logits


class Scores(NamedTuple):
  """How good answers are."""

  answers: Answers
  targets: np.ndarray
  metrics: dict[str, float]  # `loss` is the mean over examples.
  original_loss: float  # The mean over batches of their mean losses.
  report: metrics.ClassificationReport | None  # None for regression.
  is_collapsed: bool  # The same prediction for every example.


def score(
  answers: Answers,
  targets: np.ndarray,
  names: Iterable[str],
  batch_size: int,
  groups: Sequence[str] = (),
) -> Scores:
  """Scores answers by the task's own metrics, too; see `metric_names`.

  "f1" is of the label "1" or else the second. `batch_size` is that of
  `original_loss`. The groups of examples, such as languages, have accuracies,
  too; of a task with the scores of rankings, they are the queries.
  """
  logits, shares, predictions, labels, problem, _ = answers
  report, values = None, {}
  if problem == "regression":
    values = metrics.regression_scores(targets, predictions)
  elif problem == "multi_label":
    report = metrics.multi_label_report(targets, predictions)
    untuned = metrics.multi_label_report(targets, shares >= _UNTUNED)
    values["micro_f1"] = report.micro.f1
    values["untuned_micro_f1"] = untuned.micro.f1
    values["untuned_macro_f1"] = untuned.macro.f1
  else:
    report = metrics.classification_report(targets, predictions, len(labels))
  if report:
    averages = {"accuracy": report.accuracy, "macro_f1": report.macro.f1}
    values = averages | values
  positive = find_positive(labels)
  if retrieval_scores.NAMES[0] in names:
    order, relevance = predictions, targets
    if report:
      order, relevance = shares[:, positive], targets == positive
    values |= retrieval_scores.score_queries(groups, order, relevance)
  else:
    right = np.equal(targets, predictions)
    for group, _, share in metrics.average_groups(np.array(groups), right):
      values[f"accuracy_{group}"] = share
  if report and "f1" in names:
    values["f1"] = float(report.f1[positive])
  if "matthews_correlation" in names:
    correlation = metrics.matthews_correlation(targets, predictions)
    values["matthews_correlation"] = correlation
  each = losses(logits, targets, problem)
  values["loss"] = float(each.mean())
  original_loss = metrics.mean_of_batch_means(each, batch_size)
  collapsed = metrics.is_collapsed(targets, predictions)
  return Scores(answers, targets, values, original_loss, report, collapsed)


def find_positive(labels: Sequence[str]) -> int:
  """Returns the number of the label that F1 is of, and relevant texts have."""
  return labels.index(_POSITIVE) if _POSITIVE in labels else 1


def metric_names(problem: str, names: Iterable[str]) -> list[str]:
  """Lists the names of the scores that `score` returns."""
  others = [name for name in names if name in _OTHER_METRICS]
  return [*_METRICS[problem], *others, "loss"]


def warn_if_collapsed(scores: Scores) -> None:
  """Warns of a model that ignores its input, with possible remedies."""
  if scores.is_collapsed:
    progress.note(
      "collapsed: every example gets the same prediction; "
      f"{metrics.COLLAPSE_CURES}"
    )


def write_scores(folder: str, kind: str, scores: Scores) -> None:
  """Prints the scores of every class; writes all to <kind>_metrics.json."""
  content: dict[str, Any] = {}
  labels = scores.answers.labels
  if scores.report:
    content["report"] = metrics.report_as_dict(scores.report, labels)
    print(plots.format_report(scores.report, labels))
  metrics.write_metrics(folder, kind, scores.metrics, **content)
  if scores.report and scores.report.confusion:
    print(plots.format_confusion(scores.report, labels))


def write_thresholds(
  folder: str, answers: Answers, identify_weights: Callable[[], str]
) -> None:
  """Writes the thresholds of answers, if they have any, for later runs."""
  if answers.thresholds is not None:
    path = os.path.join(folder, label_files.LABEL_THRESHOLDS)
    pairs = zip(answers.labels, answers.thresholds.tolist(), strict=True)
    label_files.write_thresholds(path, identify_weights(), dict(pairs))


def read_thresholds(
  folders: Iterable[str],
  labels: Sequence[str],
  identify_weights: Callable[[], str],
) -> np.ndarray | None:
  """Reads what an evaluation tuned, float64 [L], if it was for these weights.

  See `label_files.read_thresholds`.
  """
  tuned = label_files.read_thresholds(
    folders, label_files.LABEL_THRESHOLDS, labels, identify_weights
  )
  return np.array(tuned.values) if tuned else None


def format_seeds(
  results: Mapping[int, Scores], metric: str, lower_is_better: bool
) -> str:
  """Returns a table of runs that differ in their seeds, and their mean."""
  values = np.array([scores.metrics[metric] for scores in results.values()])
  deviation = values.std(ddof=1) if len(values) > 1 else 0.0
  order = values if lower_is_better else -values
  best = int(np.argmin(np.where(np.isnan(order), np.inf, order)))
  rows: dict[str | int, str] = {"seed": metric}
  for seed, scores in results.items():
    note = "  collapsed: one class only" if scores.is_collapsed else ""
    rows[seed] = f"{scores.metrics[metric]:.4f}{note}"
  rows["mean"], rows["std"] = f"{values.mean():.4f}", f"{deviation:.4f}"
  rows["best"] = f"{values[best]:.4f}  seed {list(results)[best]}"
  return "\n".join(f"{name:>8}  {text}" for name, text in rows.items())


# The section of report.html.


def describe(examples: Iterable[classification.Example], scores: Scores) -> str:
  """Describes answers in HTML, for report.html; reads examples one by one."""
  answers, targets = scores.answers, scores.targets
  shares, guesses, labels = answers.scores, answers.predictions, answers.labels
  parts = [plots.number_table(scores.metrics)]
  make_table, names = plots.score_table, ("accuracy", "probability")
  if answers.problem == "regression":
    goodness = surprise = np.abs(guesses - targets)
    make_table, names = plots.table, ("mean error", "error")
    dots = {"example": np.stack([targets, guesses], 1)[:_DOTS].tolist()}
    scale = charts.Scale("Predicted and true numbers", "predicted", dots)
    parts.append(charts.line_chart("true", scale, joined=False))
  else:
    wrong = guesses != targets
    if answers.problem == "multi_label":
      goodness = 1.0 - wrong.any(1)
      surprise = np.max(np.abs(shares - targets) * wrong, 1)
    else:
      goodness, surprise = 1.0 - wrong, shares.max(1) * wrong
      parts.append(plots.confusions(scores.report.confusion, labels))
    parts.append(plots.label_table(scores.report, labels))
    parts.append(_draw_curves(scores))
  worst = metrics.find_worst(surprise).tolist()
  lengths, texts = np.zeros(len(targets), np.int64), {}
  for i, example in enumerate(examples):
    pair = [text for text in (example.text_a, example.text_b) if text]
    lengths[i] = sum(map(len, pair))
    if i in worst:
      texts[i] = " | ".join(pair)
  rows = metrics.scores_by_size(lengths, goodness)
  parts.append("<h3>By length of the text</h3>")
  parts.append(make_table(("characters", "examples", names[0]), rows))
  true, predicted = (
    map(_write_label, answers._replace(predictions=values[worst]).as_labels())
    for values in (targets, guesses)
  )
  errors = surprise[worst].tolist()
  rows = zip(map(texts.get, worst), true, predicted, errors, strict=True)
  parts.append(plots.mistake_table(("true", "predicted", names[1]), rows))
  return "\n".join(parts)


def _write_label(label: str | float | list[str]) -> str:
  if isinstance(label, list):
    return ", ".join(label) or "none"
  return label if isinstance(label, str) else f"{label:.4g}"


def _draw_curves(scores: Scores) -> str:
  """Draws precision over recall of frequent labels, and the calibration."""
  answers, targets = scores.answers, scores.targets
  shares, is_multi_label = answers.scores, answers.problem == "multi_label"
  if is_multi_label:
    sure, right = shares.ravel(), targets.ravel()
  else:
    sure, right = shares.max(1), answers.predictions == targets
  curves = {}
  frequent = np.argsort(-scores.report.support, kind="stable")[:_CURVES]
  for i in frequent.tolist():
    is_true = targets[:, i] if is_multi_label else targets == i
    curves[answers.labels[i]] = metrics.precision_recall(is_true, shares[:, i])
  scale = charts.Scale("Precision and recall", "precision", curves)
  drawn = charts.line_chart("recall", scale, limits=(0, 1))
  drawn += plots.calibration_chart(sure, right)
  return f'<div class="charts">{drawn}</div>'
