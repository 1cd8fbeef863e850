"""Scores of choices, the file of predictions, and the section of the report."""

from collections.abc import Iterable, Sequence

import numpy as np

from data import tables
from tasks import metrics, multiple_choice, plots


def probabilities(logits: np.ndarray, is_choice: np.ndarray) -> np.ndarray:
  """Returns the softmax of scores over the real choices, without padding.

  Args:
    logits: float32 [N, C].
    is_choice: 0 or 1 [N, C].
  """
  return metrics.softmax(np.where(is_choice > 0, logits, -np.inf))


def score(shares: np.ndarray, labels: Sequence[int]) -> dict[str, float]:
  """Scores probabilities by the right choices.

  Args:
    shares: float32 [N, C], from `probabilities`.
    labels: int [N].

  Returns:
    accuracy, and loss in nats.
  """
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
  """Describes choices in HTML, for report.html.

  Args:
    examples: N, in order; read one by one.
    shares: float32 [N, C], from `probabilities`.
    labels: int [N].
  """
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
      row = example._asdict()
      row["id"] = example.example_id
      row["label"] = "" if example.label is None else example.label
      row["predicted"] = predicted
      row["choice"] = example.choices[predicted]
      # An example of fewer choices has empty cells.
      for name, share, _ in zip(
        names, row_shares, example.choices, strict=False
      ):
        row[name] = float(f"{share:.6g}")
      yield row

  columns = ["id", "context", "question", "label", "predicted", "choice"]
  tables.write_rows(path, describe_rows(), columns + names)
