"""Scores of a classifier's logits, the files and the report that show them.

Shapes: N examples, L labels (1 for regression). Targets are int [N] for
"single_label", 0 or 1 [N, L] for "multi_label", float [N] for "regression".
"""

from collections.abc import Iterable, Mapping, Sequence
import os
import sys
from typing import Any, NamedTuple

import numpy as np

from data import files, tables, threshold_files
from tasks import classification, metrics, plots, score_tables

_DEFAULT_THRESHOLD = 0.5
_METRICS = {
  # Their micro-averaged F1 is the accuracy.
  "single_label": ("accuracy", "macro_f1"),
  "multi_label": (
    "accuracy",
    "micro_f1",
    "macro_f1",
    "untuned_micro_f1",
    "untuned_macro_f1",
  ),
  "regression": ("mean_squared_error", "pearson", "spearman", "corr"),
}
_OTHER_METRICS = ("f1", "matthews_correlation")  # Some tasks have them.
_POSITIVE = "1"  # The label that F1 is of.
_CURVES = 6  # Labels with a curve in the report, the most frequent ones.
_DOTS = 500  # The first examples, in a scatter plot.


def pool_windows(
  logits: np.ndarray, examples: np.ndarray, pooling: str
) -> np.ndarray:
  """Makes one row of logits an example from those of its windows.

  Args:
    logits: float32 [R, L], one row a window.
    examples: int [R], the example of each row, ascending.
    pooling: "mean" or "max".

  Returns:
    float32 [N, L].
  """
  starts = np.flatnonzero(np.diff(examples, prepend=-1))
  if len(starts) == len(examples):
    return logits
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
  # In place: with many labels each copy is large.
  shares = logits - logits.max(-1, keepdims=True)
  np.exp(shares, out=shares)
  shares /= shares.sum(-1, keepdims=True)
  return shares


def losses(logits: np.ndarray, targets: np.ndarray, problem: str) -> np.ndarray:
  """Computes each example's loss, as it was minimised without class weights.

  Returns:
    float32 [N]: cross entropy in nats; its mean over labels for "multi_label";
    the squared error for "regression".
  """
  if problem == "regression":
    return np.square(logits[:, 0] - targets)
  if problem == "multi_label":
    return (np.logaddexp(0, logits) - logits * targets).mean(-1)
  shifted = logits - logits.max(-1, keepdims=True)
  target_logits = shifted[np.arange(len(targets)), targets]
  np.exp(shifted, out=shifted)
  return np.log(shifted.sum(-1)) - target_logits


def decide(
  scores: np.ndarray, problem: str, thresholds: np.ndarray | None = None
) -> np.ndarray:
  """Turns probabilities into predictions of the form that targets have.

  Args:
    scores: [N, L], from `probabilities`.
    thresholds: [L], for "multi_label"; None is 0.5 for all.
  """
  if problem == "regression":
    return scores[:, 0]
  if problem == "multi_label":
    limits = _DEFAULT_THRESHOLD if thresholds is None else thresholds
    return (scores >= limits).astype(np.int64)
  return scores.argmax(-1)


class Scores(NamedTuple):
  """How good predictions are."""

  metrics: dict[str, float]  # `loss` is the mean over examples.
  original_loss: float  # The mean over batches of their mean losses.
  report: metrics.ClassificationReport | None  # None for regression.
  is_collapsed: bool  # The same prediction for every example.
  thresholds: np.ndarray | None  # [L], for "multi_label".


def score(
  logits: np.ndarray,
  targets: np.ndarray,
  problem: str,
  names: Iterable[str],
  batch_size: int,
  thresholds: np.ndarray | None = None,
  groups: Sequence[str] = (),
  labels: Sequence[str] = (),
) -> Scores:
  """Scores logits.

  Args:
    logits, targets, problem: see the head of this file.
    names: the task's own metrics, such as "matthews_correlation".
    batch_size: of the batches of `original_loss`.
    thresholds: for "multi_label", see `decide`; None tunes them on these very
      examples, so that scores of others are a little lower.
    groups: of each example, such as its language; accuracies are then given
      for each, too.
    labels: [L]; f1 is of the one called "1", or else of the second.
  """
  scores = probabilities(logits, problem)
  if problem == "multi_label" and thresholds is None:
    thresholds = metrics.tune_thresholds(targets, scores)
  predictions = decide(scores, problem, thresholds)
  if problem == "regression":
    report, values = None, metrics.regression_scores(targets, predictions)
  else:
    report = _report(predictions, targets, problem, logits.shape[1])
    values = {"accuracy": report.accuracy, "macro_f1": report.macro.f1}
  if problem == "multi_label":
    values["micro_f1"] = report.micro.f1
    untuned = _report(decide(scores, problem), targets, problem, None)
    values["untuned_micro_f1"] = untuned.micro.f1
    values["untuned_macro_f1"] = untuned.macro.f1
  if groups:
    for group in sorted(set(groups)):
      rows = np.equal(groups, group)
      accuracy = metrics.accuracy(targets[rows], predictions[rows])
      values[f"accuracy_{group}"] = accuracy
  if "f1" in names:
    positive = labels.index(_POSITIVE) if _POSITIVE in labels else 1
    values["f1"] = metrics.f1(targets == positive, predictions == positive)
  if "matthews_correlation" in names:
    correlation = metrics.matthews_correlation(targets, predictions)
    values["matthews_correlation"] = correlation
  each = losses(logits, targets, problem)
  values["loss"] = float(each.mean())
  original_loss = metrics.mean_of_batch_means(each, batch_size)
  collapsed = metrics.is_collapsed(targets, predictions)
  return Scores(values, original_loss, report, collapsed, thresholds)


def _report(predictions, targets, problem, num_labels):
  if problem == "multi_label":
    return metrics.multi_label_report(targets, predictions)
  return metrics.classification_report(targets, predictions, num_labels)


def metric_names(problem: str, names: Iterable[str]) -> list[str]:
  """Lists the names of the scores that `score` returns."""
  others = [name for name in names if name in _OTHER_METRICS]
  return [*_METRICS[problem], *others, "loss"]


def warn_if_collapsed(scores: Scores) -> None:
  """Warns of a model that ignores its input, with possible remedies."""
  if scores.is_collapsed:
    print(
      "collapsed: every example gets the same prediction; it can help to lower "
      "--learning_rate, to raise --warmup_proportion or --num_train_epochs, or "
      "to try other --seeds",
      file=sys.stderr,
    )


def write_scores(
  folder: str, kind: str, scores: Scores, labels: Sequence[str]
) -> None:
  """Prints the scores of every class; writes all to <kind>_metrics.json.

  Args:
    kind: "eval" or "predict", and the suffix of the set.
    labels: [L], their names.
  """
  content: dict[str, Any] = {}
  if scores.report:
    content["report"] = score_tables.report_as_dict(scores.report, labels)
    print(score_tables.format_report(scores.report, labels))
  score_tables.write_metrics(folder, kind, scores.metrics, **content)
  if scores.report and scores.report.confusion:
    print(score_tables.format_confusion(scores.report, labels))


def write_evaluation(
  folder: str, suffix: str, scores: Scores, labels: Sequence[str]
) -> None:
  """Writes the scores of an evaluation, and the thresholds that it tuned."""
  write_scores(folder, f"eval{suffix}", scores, labels)
  if scores.thresholds is not None:
    path = os.path.join(folder, threshold_files.CLASSIFIER)
    values = dict(zip(labels, scores.thresholds.tolist(), strict=True))
    files.write_json(path, values)
    print(f"wrote {path}")


def read_thresholds(folder: str, labels: Sequence[str]) -> np.ndarray | None:
  """Reads the thresholds that an evaluation tuned; None if there are none."""
  path = os.path.join(folder, threshold_files.CLASSIFIER)
  if not files.exists(path):
    return None
  try:
    values = files.read_json(path)
    return np.array([float(values[label]) for label in labels])
  except (ValueError, KeyError, TypeError) as error:
    raise ValueError(
      f"{path}: expected a number for each of the labels ({error!r}); evaluate "
      "again to write it anew"
    ) from None


def write_test_results(path: str, scores: np.ndarray) -> None:
  """Writes the original's test_results.tsv: a row of probabilities each."""
  # float32, whose digits the original printed.
  rows = ("\t".join(map(str, row)) for row in scores.astype(np.float32))
  files.write_lines(path, rows)


class Answers(NamedTuple):
  """Predictions and the probabilities that they are made of."""

  scores: np.ndarray  # [N, L], from `probabilities`.
  predictions: np.ndarray  # From `decide`.
  labels: Sequence[str]  # [L]; of a regression, none.
  problem: str
  thresholds: np.ndarray | None  # [L], for "multi_label".

  def as_labels(self) -> list[str] | list[float] | list[list[str]]:
    """Returns the label or labels of each example; of a regression, numbers."""
    if self.problem == "regression":
      return self.predictions.tolist()
    if self.problem == "multi_label":
      return [
        [self.labels[number] for number in np.flatnonzero(row)]
        for row in self.predictions
      ]
    return [self.labels[prediction] for prediction in self.predictions]


def answer(
  logits: np.ndarray,
  problem: str,
  labels: Sequence[str],
  thresholds: np.ndarray | None,
) -> Answers:
  """Turns logits into answers; see `decide`."""
  scores = probabilities(logits, problem)
  if problem == "multi_label" and thresholds is None:
    thresholds = np.full(len(labels), _DEFAULT_THRESHOLD)
  predictions = decide(scores, problem, thresholds)
  return Answers(scores, predictions, labels, problem, thresholds)


def write_predictions(
  path: str,
  examples: Iterable[classification.Example],
  answers: Answers,
  columns: Iterable[str] = (),
  separator: str = ",",
) -> None:
  """Writes the prediction and the probabilities of each example as TSV.

  Args:
    columns: text_pair and label, where they are wanted; they may be empty.
    separator: between the labels of an example.
  """
  is_regression = answers.problem == "regression"
  names = [f"probability_{label}" for label in answers.labels]

  def describe_rows():
    for example, predicted, scores in zip(
      examples, answers.as_labels(), answers.scores, strict=True
    ):
      row: dict[str, Any] = {"id": example.example_id, "text": example.text_a}
      row["text_pair"] = example.text_b or ""
      row["label"] = _join(example.label or "", separator)
      row["predicted"] = (
        _rounded(predicted) if is_regression else _join(predicted, separator)
      )
      shares = () if is_regression else map(_rounded, scores)
      yield row | dict(zip(names, shares, strict=True))

  header = ["id", "text", *columns, "predicted", *names]
  tables.write_rows(path, describe_rows(), header)


def _join(labels: str | Iterable[str], separator: str) -> str:
  return labels if isinstance(labels, str) else separator.join(labels)


def _rounded(number) -> float:
  return float(f"{number:.6g}")


def format_seeds(
  results: Mapping[int, Scores], metric: str, lower_is_better: bool
) -> str:
  """Returns a table of runs that differ in their seeds, and their mean."""
  values = np.array([scores.metrics[metric] for scores in results.values()])
  lines = [f"{'seed':>8}  {metric}"]
  for seed, scores in results.items():
    note = "  collapsed: one class only" if scores.is_collapsed else ""
    lines.append(f"{seed:>8}  {scores.metrics[metric]:.4f}{note}")
  deviation = values.std(ddof=1) if len(values) > 1 else 0.0
  best = int(values.argmin() if lower_is_better else values.argmax())
  lines += [
    f"{'mean':>8}  {values.mean():.4f}",
    f"{'std':>8}  {deviation:.4f}",
    f"{'best':>8}  {values[best]:.4f}  seed {list(results)[best]}",
  ]
  return "\n".join(lines)


# The section of report.html.


def describe(
  examples: Iterable[classification.Example],
  outputs: tuple[np.ndarray, np.ndarray],
  scores: Scores,
  problem: str,
  labels: Sequence[str],
) -> str:
  """Describes predictions in HTML, for report.html.

  Args:
    examples: N, in order; read one by one.
    outputs: logits and targets, see the head of this file.
    labels: [L], their names.
  """
  logits, targets = outputs
  shares = probabilities(logits, problem)
  guesses = decide(shares, problem, scores.thresholds)
  parts = [plots.number_table(scores.metrics)]
  if problem == "regression":
    goodness = surprise = np.abs(guesses - targets)
    dots = np.stack([targets, guesses], 1)[:_DOTS].tolist()
    title, axes = "Predicted and true numbers", ("true", "predicted")
    series = {"example": dots}
    parts.append(plots.line_chart(title, axes, series, joined=False))
    names = ("mean error", "error")
  else:
    wrong = guesses != targets
    if problem == "multi_label":
      goodness = 1.0 - wrong.any(1)
      surprise = np.max(np.abs(shares - targets) * wrong, 1)
    else:
      goodness, surprise = 1.0 - wrong, shares.max(1) * wrong
      parts.append(plots.confusions(scores.report.confusion, labels))
    parts.append(plots.label_table(scores.report, labels))
    parts.append(_draw_curves(shares, targets, guesses, problem, labels))
    names = ("accuracy", "probability")
  worst = metrics.find_worst(surprise)
  lengths, texts = _read_texts(examples, len(logits), set(worst.tolist()))
  make = plots.table if problem == "regression" else plots.score_table
  rows = metrics.scores_by_size(lengths, goodness)
  parts.append("<h3>By length of the text</h3>")
  parts.append(make(("characters", "examples", names[0]), rows))
  true, predicted = (
    _name(values[worst], problem, labels) for values in (targets, guesses)
  )
  worst_texts = (texts[row] for row in worst.tolist())
  errors = surprise[worst].tolist()
  rows = zip(worst_texts, true, predicted, errors, strict=True)
  parts.append(plots.mistake_table(("true", "predicted", names[1]), rows))
  return "\n".join(parts)


def _read_texts(examples, count, wanted):
  """Returns the lengths of all texts, and the wanted texts by their numbers."""
  lengths, texts = np.zeros(count, np.int64), {}
  for i, example in enumerate(examples):
    pair = (example.text_a, example.text_b)
    lengths[i] = sum(len(text) for text in pair if text)
    if i in wanted:
      texts[i] = " | ".join(text for text in pair if text)
  return lengths, texts


def _name(values, problem, labels) -> list[str]:
  answers = Answers(values, values, labels, problem, None)
  if problem == "single_label":
    return answers.as_labels()
  if problem == "regression":
    return [f"{value:.4g}" for value in answers.as_labels()]
  return [", ".join(names) or "none" for names in answers.as_labels()]


def _draw_curves(shares, targets, guesses, problem, labels) -> str:
  """Draws precision over recall of frequent labels, and the calibration."""
  if problem == "multi_label":
    sure, right = shares.ravel(), targets.ravel()
    counts = targets.sum(0)
  else:
    sure, right = shares.max(1), guesses == targets
    counts = np.bincount(targets, minlength=len(labels))
  curves = {}
  for i in np.argsort(-counts, kind="stable")[:_CURVES].tolist():
    is_true = targets[:, i] if problem == "multi_label" else targets == i
    curves[labels[i]] = metrics.precision_recall(is_true, shares[:, i])
  axes = ("recall", "precision")
  drawn = plots.line_chart("Precision and recall", axes, curves, limits=(0, 1))
  drawn += plots.calibration_chart(sure, right)
  return f'<div class="charts">{drawn}</div>'
