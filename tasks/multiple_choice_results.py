"""Scores of choices, the file of predictions, and the section of the report."""

from collections.abc import Iterable, Sequence

import numpy as np

from data import tables
from tasks import metrics, multiple_choice, plots


def probabilities(logits: np.ndarray, is_choice: np.ndarray) -> np.ndarray:
  """Returns the softmax of scores [N, C] over real choices, 0 or 1 [N, C]."""
  return metrics.softmax(np.where(is_choice > 0, logits, -np.inf))


def score(shares: np.ndarray, labels: Sequence[int]) -> dict[str, float]:
  """Computes accuracy and loss, in nats, of probabilities [N, C]."""
  labels = np.asarray(labels)
  right = shares[np.arange(len(labels)), labels].astype(np.float64)
  smallest = np.finfo(np.float32).tiny  # A share of 0 would cost infinity.
  return {
    "accuracy": float(np.mean(shares.argmax(-1) == labels)),
    "loss": float(-np.log(np.maximum(right, smallest)).mean()),
  }


def describe(
  examples: Iterable[multiple_choice.Example],
  shares: np.ndarray,
  labels: np.ndarray,
) -> str:
  """Describes choices in HTML, for report.html; reads examples one by one."""
  chosen, sure = shares.argmax(-1), shares.max(-1)
  count = shares.shape[-1]
  report = metrics.classification_report(labels, chosen, count)
  names = [f"choice {number}" for number in range(count)]
  worst = metrics.find_worst(sure * (chosen != labels))
  rows: dict[int, list[str | float]] = dict.fromkeys(worst.tolist(), [])
  for i, example in enumerate(examples):
    if i in rows:
      right, wrong = (example.choices[c[i]] for c in (labels, chosen))
      text = f"{example.context} {example.question}"
      rows[i] = [text, right, wrong, sure[i].item()]
  parts = [
    plots.number_table(score(shares, labels)),
    plots.confusions(report.confusion, names),
    plots.calibration_chart(sure, chosen == labels),
    plots.mistake_table(("right", "chosen", "probability"), rows.values()),
  ]
  return "\n".join(parts)


def write_predictions(
  path: str, examples: Iterable[multiple_choice.Example], shares: np.ndarray
) -> None:
  """Writes the chosen answer of each example and the probabilities as TSV."""
  names = [f"probability_{number}" for number in range(shares.shape[-1])]

  def describe_rows():
    for example, row_shares in zip(examples, shares, strict=True):
      predicted = int(row_shares.argmax())
      # An example of fewer choices has empty cells.
      rounded = [float(f"{s:.6g}") for s in row_shares[: len(example.choices)]]
      yield {
        **example._asdict(),
        "id": example.example_id,
        "label": "" if example.label is None else example.label,
        "predicted": predicted,
        "choice": example.choices[predicted],
        **dict(zip(names, rounded, strict=False)),
      }

  columns = ["id", "context", "question", "label", "predicted", "choice"]
  tables.write_rows(path, describe_rows(), columns + names)
