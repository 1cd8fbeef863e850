"""Scores of a classifier's logits, the files and the report that show them.

Shapes: N examples, L labels; see `classification_problems`, also for targets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import os
from typing import Any, NamedTuple

import numpy as np

from bert.data import label_files, progress
from bert.report import (
  calibration,
  metrics,
  plots,
  retrieval_scores,
  score_kinds,
)
from bert.tasks import classification, classification_problems

# The metrics that only some tasks have, besides the scores of their problem.
_OWN_METRICS = ("f1", "matthews_correlation", *retrieval_scores.NAMES)
Answers = classification_problems.Answers
_Report = metrics.ClassificationReport
# The names in temperature.json.
_SOFTMAX, _TEMPERATURE = "softmax", "temperature"
# What evaluation data are like that ask for such a temperature.
_BOUNDS = {
  calibration.LEAST: "its labels are predicted almost without a fault",
  calibration.MOST: "its labels are predicted no better than by chance",
}


def pool_windows(
  logits: np.ndarray, example_of_row: np.ndarray, window_pooling: str
) -> np.ndarray:
  """Pools the logits of the windows of each example.

  Args:
    logits: of the rows, which are windows, float32 [R, L].
    example_of_row: from 0, ascending, int [R].
    window_pooling: "mean" or "max".

  Returns:
    The logits of the examples, float32 [N, L].
  """
  starts = first_rows(example_of_row)
  if window_pooling == "max":
    return np.maximum.reduceat(logits, starts)
  counts = np.diff(np.append(starts, len(example_of_row)))
  return np.add.reduceat(logits, starts) / counts[:, None].astype(np.float32)


def first_rows(example_of_row: np.ndarray) -> np.ndarray:
  """Returns the first row of each example.

  >>> first_rows(np.array([0, 0, 1]))
  array([0, 2])
  """
  return np.flatnonzero(np.diff(example_of_row, prepend=-1))


def answer(
  logits: np.ndarray,
  problem_name: str,
  labels: Sequence[str],
  thresholds: np.ndarray | None = None,
  tuning: np.ndarray | None = None,
  temperature: float | None = None,
) -> Answers:
  """Turns logits into answers.

  Args:
    logits: float32 [N, L].
    problem_name: one of `classification_problems.PROBLEMS`.
    labels: in the order of the logits; () for a regression.
    thresholds: of "multi_label", the probability from which on each label
      applies, [L]; None for 0.5.
    tuning: targets, for which the best thresholds are found. Scores of other
      examples with these will be a little lower.
    temperature: of "single_label", what divides the logits; None for 1.
  """
  problem = classification_problems.PROBLEMS[problem_name]
  probabilities = problem.activate(logits / (temperature or 1))

  # Only an evaluation tunes thresholds: it knows the targets.
  if problem.has_thresholds and tuning is not None:
    thresholds = metrics.tune_thresholds(tuning, probabilities)
  elif problem.has_thresholds and thresholds is None:
    thresholds = np.full(len(labels), classification_problems.UNTUNED)

  predictions = problem.decide(probabilities, thresholds)
  return Answers(
    logits,
    probabilities,
    predictions,
    labels,
    problem,
    thresholds,
    temperature,
  )


class ClassificationScores(NamedTuple):
  """How good answers are."""

  answers: Answers
  targets: np.ndarray
  metrics: dict[str, float]  # `loss` is the mean over examples.
  losses: np.ndarray  # Those of the examples, [N].
  report: _Report | None  # None for regression.
  is_collapsed: bool  # The same prediction for every example.

  def original_loss(self, batch_size: int) -> float:
    """Averages the means of batches, as the original did."""
    return metrics.mean_of_batch_means(self.losses, batch_size)


def score(
  answers: Answers,
  targets: np.ndarray,
  names: Iterable[str],
  groups: Sequence[str] = (),
) -> ClassificationScores:
  """Scores answers by the task's own metrics, too; see `metric_names`.

  Args:
    answers: of N examples.
    targets: see `classification_problems`.
    names: the metrics of the task. Its "f1" is of the label "1" or else the
      second.
    groups: of the examples, such as languages, each of which gets an accuracy.
      For a task with the scores of rankings, they are the queries.
  """
  # The report of every class, and the scores that all tasks of a problem have.
  problem = answers.problem
  predictions = answers.predictions
  report, values = problem.score(answers, targets)

  # One of these names means that the task ranks texts.
  is_ranking = retrieval_scores.NAMES[0] in names
  if is_ranking:
    order, relevance = problem.rank(answers, targets)
    values |= retrieval_scores.score_queries(groups, order, relevance)
  else:
    right = np.equal(targets, predictions)
    for group, _, share in metrics.average_groups(np.array(groups), right):
      values[f"accuracy_{group}"] = share

  # Scores that a task asks for by name.
  if report and "f1" in names:
    positive = classification_problems.find_positive(answers.labels)
    values["f1"] = float(report.f1[positive])
  if "matthews_correlation" in names:
    correlation = metrics.matthews_correlation(targets, predictions)
    values["matthews_correlation"] = correlation

  # The mean over all examples; `original_loss` is another one. Both are of the
  # logits as they were trained, whatever the temperature.
  losses = problem.losses(answers.logits, targets)
  values["loss"] = float(losses.mean())
  if answers.temperature:
    values |= _score_calibration(answers, targets)
  is_collapsed = metrics.is_collapsed(targets, predictions)
  return ClassificationScores(
    answers, targets, values, losses, report, is_collapsed
  )


def _score_calibration(answers, targets) -> dict[str, float]:
  """Returns what a temperature does, by `calibration.NAMES`."""
  right = answers.predictions == targets
  trained = answers.problem.activate(answers.logits)
  values = (
    answers.temperature,
    calibration.expected_error(answers.probabilities.max(-1), right),
    calibration.expected_error(trained.max(-1), right),
  )
  return dict(zip(calibration.NAMES, values, strict=True))


def metric_names(problem_name: str, names: Iterable[str]) -> list[str]:
  """Lists the names of the scores that `score` returns, but for groups."""
  own = [name for name in names if name in _OWN_METRICS]
  problem = classification_problems.PROBLEMS[problem_name]
  return list(problem.score_names) + own + ["loss"]


def warn_if_collapsed(scores: ClassificationScores) -> None:
  """Warns of a model that ignores its input, with possible remedies."""
  if scores.is_collapsed:
    progress.note(
      "collapsed: every example gets the same prediction; "
      f"{metrics.COLLAPSE_CURES}"
    )


def write_scores(folder: str, stem: str, scores: ClassificationScores) -> None:
  """Prints the scores of every class; writes all to <stem>_metrics.json.

  Args:
    folder: gets the file.
    stem: "eval" or "predict", with the name of a further set after it.
    scores: from `score`.
  """
  # A regression has no classes, and so no report of them.
  content: dict[str, Any] = {}
  labels = scores.answers.labels
  if scores.report:
    content["report"] = metrics.report_as_dict(scores.report, labels)
    print(plots.format_report(scores.report, labels))
  metrics.write_metrics(folder, stem, scores.metrics, **content)

  # Several labels of a text have no matrix of confusions.
  if scores.report and scores.report.confusion:
    print(plots.format_confusion(scores.report, labels))


def write_thresholds(
  folder: str, answers: Answers, identify_weights: Callable[[], str]
) -> None:
  """Writes the thresholds of answers, if they have any, for later runs.

  Args:
    folder: gets the file.
    answers: with tuned thresholds, or None for a problem without.
    identify_weights: returns the checksum of the weights that answered.
  """
  if answers.thresholds is not None:
    path = os.path.join(folder, label_files.LABEL_THRESHOLDS)
    pairs = zip(answers.labels, answers.thresholds.tolist(), strict=True)
    label_files.write_tuned(path, identify_weights(), dict(pairs))


def read_thresholds(
  folders: Iterable[str],
  labels: Sequence[str],
  identify_weights: Callable[[], str],
) -> np.ndarray | None:
  """Reads the thresholds that an evaluation tuned for these weights.

  Args:
    folders: are searched one after the other.
    labels: in the order of the thresholds.
    identify_weights: returns the checksum of the weights.

  Returns:
    Float64 [L]; None if there are none; see `label_files.read_tuned`.
  """
  tuned = label_files.read_tuned(
    folders, label_files.LABEL_THRESHOLDS, labels, identify_weights
  )
  return np.array(tuned.values) if tuned else None


def calibrate(
  scores: ClassificationScores,
  temperature: float | None,
  names: Iterable[str],
  groups: Sequence[str] = (),
) -> ClassificationScores:
  """Scores the same logits with a temperature; None changes nothing.

  No prediction changes. Besides `calibration.NAMES` only a ranking by one of
  three or more labels may have other scores.

  Args:
    scores: of answers without a temperature.
    temperature: divides the logits.
    names: as `score` takes them.
    groups: as `score` takes them.
  """
  if not temperature:
    return scores
  answers = scores.answers
  probabilities = answers.problem.activate(answers.logits / temperature)
  answers = answers._replace(
    probabilities=probabilities, temperature=temperature
  )
  return score(answers, scores.targets, names, groups)


def write_temperature(
  folder: str,
  scores: ClassificationScores,
  identify_weights: Callable[[], str],
) -> None:
  """Fits a temperature; writes it for later runs with the weights and exports.

  Data that do not decide it leave it at 1, with a note.

  Args:
    folder: gets the file.
    scores: of the set to fit on, with one label for each text.
    identify_weights: returns the checksum of the weights that answered.
  """
  logits = scores.answers.logits
  temperature = calibration.fit_temperature(logits, scores.targets)
  if temperature in _BOUNDS:
    progress.note(
      "note: --calibrate: the loss on the evaluation file is least at the "
      f"bound {temperature:g}, since {_BOUNDS[temperature]}: the temperature "
      "is 1, which changes no probability"
    )
    temperature = 1.0
  path = os.path.join(folder, label_files.TEMPERATURE)
  values = {_TEMPERATURE: temperature}
  label_files.write_tuned(path, identify_weights(), values, _SOFTMAX)


def read_temperature(
  folders: Iterable[str], identify_weights: Callable[[], str]
) -> float | None:
  """Reads the temperature that an evaluation fitted for these weights.

  Args:
    folders: are searched one after the other.
    identify_weights: returns the checksum of the weights.

  Returns:
    The temperature; None without a file for these weights, see
    `label_files.read_tuned`.

  Raises:
    ValueError: a file has a number that `fit_temperature` does not return.
  """
  file_name = label_files.TEMPERATURE
  tuned = label_files.read_tuned(
    folders, file_name, [_TEMPERATURE], identify_weights, _SOFTMAX
  )
  if not tuned:
    return None
  [temperature] = tuned.values
  least, most = calibration.LEAST, calibration.MOST
  if not least <= temperature <= most:
    raise ValueError(
      f"{tuned.path}: temperature is {temperature}, expected {least:g} to "
      f"{most:g}; delete it and evaluate again"
    )
  return temperature


def format_seeds(
  results: Mapping[int, ClassificationScores], metric: str
) -> str:
  """Returns a table of runs that differ in their seeds, and their mean."""
  values = np.array([scores.metrics[metric] for scores in results.values()])
  deviation = values.std(ddof=1) if len(values) > 1 else 0.0

  # NaN, such as a correlation of equal answers, is never the best.
  is_lower_better = score_kinds.find(metric).is_better_if_lower
  order = values if is_lower_better else -values
  best = int(np.argmin(np.where(np.isnan(order), np.inf, order)))

  # A run that collapsed would pull the mean down without a word.
  rows: dict[str | int, str] = {"seed": metric}
  for seed, scores in results.items():
    note = "  collapsed: one class only" if scores.is_collapsed else ""
    rows[seed] = f"{scores.metrics[metric]:.4f}{note}"
  rows["mean"] = f"{values.mean():.4f}"
  rows["std"] = f"{deviation:.4f}"
  rows["best"] = f"{values[best]:.4f}  seed {list(results)[best]}"
  return "\n".join(f"{name:>8}  {text}" for name, text in rows.items())


# The section of report.html.


def describe(
  examples: Iterable[classification.Example], scores: ClassificationScores
) -> str:
  """Describes answers in HTML, for report.html; reads examples one by one."""
  # For each answer, how good it is and how wrong; the most wrong are shown.
  answers = scores.answers
  targets = scores.targets
  problem = answers.problem
  goodness, surprise = problem.judge(answers, targets)

  # Only the texts of the worst mistakes are kept.
  worst = metrics.find_worst(surprise).tolist()
  lengths = np.zeros(len(targets), np.int64)
  texts = {}
  for i, example in enumerate(examples):
    pair = [text for text in (example.text_a, example.text_b) if text]
    lengths[i] = sum(map(len, pair))
    if i in worst:
      texts[i] = " | ".join(pair)

  # Scores from 0 to 1 are shaded, other numbers are not.
  make_table = plots.table
  if problem.goodness_is_share:
    make_table = plots.score_table
  by_length = make_table(
    ("characters", "examples", problem.goodness),
    metrics.scores_by_size(lengths, goodness),
  )

  true = problem.name_labels(targets[worst], answers.labels)
  predicted = problem.name_labels(answers.predictions[worst], answers.labels)
  mistakes = zip(
    [texts.get(i, "") for i in worst],
    map(_write_label, true),
    map(_write_label, predicted),
    surprise[worst].tolist(),
    strict=True,
  )

  return "\n".join(
    [
      plots.number_table(scores.metrics),
      *problem.draw(answers, targets, scores.report),
      "<h3>By length of the text</h3>",
      by_length,
      plots.mistake_table(("true", "predicted", problem.surprise), mistakes),
    ]
  )


def _write_label(label: str | float | list[str]) -> str:
  if isinstance(label, list):
    return ", ".join(label) or "none"
  return label if isinstance(label, str) else f"{label:.4g}"
