"""How well a classifier did, as a section of report.html.

Shapes are those of `classification_results`.
"""

from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from tasks import classification
from tasks import classification_results
from tasks import metrics
from tasks import plots

_CURVES = 6  # Labels with a curve of their own, the most frequent ones.
_DOTS = 500  # Of a scatter plot, the first examples.


def describe(
  examples: Iterable[classification.Example],
  outputs: tuple[np.ndarray, np.ndarray],
  scores: classification_results.Scores,
  problem: str,
  labels: Sequence[str],
) -> str:
  """Describes predictions in HTML, for report.html.

  Args:
    examples: N, in order; read one by one.
    outputs: logits and targets, see the head of `classification_results`.
    labels: [L], their names.
  """
  logits, targets = outputs
  shares = classification_results.probabilities(logits, problem)
  guesses = classification_results.decide(shares, problem, scores.thresholds)
  wrong = guesses != targets
  if problem == "regression":
    goodness = surprise = np.abs(guesses - targets)
  elif problem == "multi_label":
    goodness = 1.0 - wrong.any(1)
    surprise = np.max(np.abs(shares - targets) * wrong, 1)
  else:
    goodness, surprise = 1.0 - wrong, shares.max(1) * wrong
  worst = metrics.find_worst(surprise)
  lengths, texts = _read_texts(examples, len(logits), set(worst.tolist()))
  parts = [plots.number_table(scores.metrics)]
  if problem == "regression":
    parts.append(_draw_numbers(targets, guesses))
  else:
    if scores.report.confusion:
      parts.append(plots.confusions(scores.report.confusion, labels))
    parts.append(plots.label_table(scores.report, labels))
    parts.append(_draw_curves(shares, targets, guesses, problem, labels))
  name = "mean error" if problem == "regression" else "accuracy"
  header = ("characters", "examples", name)
  rows = metrics.scores_by_size(lengths, goodness)
  make = plots.table if problem == "regression" else plots.score_table
  parts += ["<h3>By length of the text</h3>", make(header, rows)]
  true, predicted = (
    _name(values[worst], problem, labels) for values in (targets, guesses)
  )
  worst_texts = (texts[row] for row in worst.tolist())
  errors = surprise[worst].tolist()
  rows = zip(worst_texts, true, predicted, errors, strict=True)
  name = "error" if problem == "regression" else "probability"
  parts.append(plots.mistake_table(("true", "predicted", name), rows))
  return "\n".join(parts)


def _read_texts(examples, count, wanted):
  """Returns the length of all texts and, by its number, each wanted one."""
  lengths, texts = np.zeros(count, np.int64), {}
  for i, example in enumerate(examples):
    pair = (example.text_a, example.text_b)
    lengths[i] = sum(len(text) for text in pair if text)
    if i in wanted:
      texts[i] = " | ".join(text for text in pair if text)
  return lengths, texts


def _name(values, problem, labels) -> list[str]:
  answers = classification_results.Answers(
    values, values, labels, problem, None
  )
  if problem == "single_label":
    return answers.as_labels()
  if problem == "regression":
    return [f"{value:.4g}" for value in answers.as_labels()]
  return [", ".join(names) or "none" for names in answers.as_labels()]


def _draw_numbers(targets, guesses) -> str:
  dots = np.stack([targets, guesses], 1)[:_DOTS].tolist()
  return plots.line_chart(
    "Predicted and true numbers",
    ("true", "predicted"),
    {"example": dots},
    joined=False,
  )


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
