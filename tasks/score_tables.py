"""Scores as text for the terminal and as JSON for files."""

from collections.abc import Mapping, Sequence
import os
from typing import Any
import unicodedata

import numpy as np

from data import files
from tasks import metrics

# Labels up to which a confusion matrix is written to files; that of 3,000 has 9
# million cells, almost all of them 0.
LARGEST_MATRIX = 200
# Likewise on the terminal, which shows only the frequent confusions of more.
LARGEST_SHOWN = 20
_COLUMNS = (*metrics.Average._fields, "support")
_AVERAGES = ("macro", "micro", "weighted")
_LINE_LENGTH = 100  # Columns; in a wider matrix numbers stand for the names.


def write_metrics(
  folder: str, kind: str, scores: Mapping[str, float], **others: Any
) -> None:
  """Writes scores, and others as JSON values, to <kind>_metrics.json."""
  path = os.path.join(folder, f"{kind}_metrics.json")
  files.write_json(path, {"metrics": scores, **others})
  listing = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
  print(f"wrote {path}: {listing}")


def report_as_dict(
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> dict[str, Any]:
  """Returns a report as `json.dumps` takes it.

  `confusion` is a matrix, true labels in rows, or None; of more than 200 labels
  the counts that are not 0, by the names of the true and predicted label.
  """
  columns = report.precision, report.recall, report.f1, report.support
  rows = zip(*(column.tolist() for column in columns), strict=True)
  labels = {
    name: dict(zip(_COLUMNS, row, strict=True))
    for name, row in zip(label_names, rows, strict=True)
  }
  averages = {name: getattr(report, name)._asdict() for name in _AVERAGES}
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


def format_report(
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns a table of the scores of each label, the averages, the accuracy."""

  def make_row(name, scores, support=""):
    return [name, *(f"{score:.4f}" for score in scores), str(support)]

  columns = report.precision, report.recall, report.f1
  scores = zip(*columns, strict=True)
  total = report.support.sum()
  # The micro average of single labels is the accuracy.
  averages = [n for n in _AVERAGES if not (report.confusion and n == "micro")]
  return _align(
    [
      ["", *_COLUMNS],
      *map(make_row, label_names, scores, report.support),
      [""] * 5,
      *(make_row(name, getattr(report, name), total) for name in averages),
      ["accuracy", "", *make_row("", [report.accuracy])],
    ]
  )


def format_confusion(
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns which labels are taken for which others.

  It is a matrix, true labels in rows; of more than 20 labels, a list of the 20
  most frequent confusions.
  """
  assert report.confusion is not None
  if len(label_names) > LARGEST_SHOWN:
    lines = ["most frequent confusions, true -> predicted:"]
    for true, other, count in frequent_confusions(
      report.confusion, label_names
    ):
      lines.append(f"{true} -> {other}: {count}")
    empty = "no label is taken for another"
    return "\n".join(lines) if len(lines) > 1 else empty
  matrix = report.confusion.as_matrix(len(label_names))
  rows = [["true \\ predicted", *label_names]]
  for name, counts in zip(label_names, matrix, strict=True):
    rows.append([name, *map(str, counts)])
  if sum(_column_widths(rows)) + 2 * len(label_names) > _LINE_LENGTH:
    for number, row in enumerate(rows[1:], start=1):
      rows[0][number] = str(number)
      row[0] = f"{number:>2} {row[0]}"
  return _align(rows)


def frequent_confusions(
  confusion: metrics.Confusion, label_names: Sequence[str]
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
  # Some are drawn over the character before, or not at all.
  shown = [c for c in text if unicodedata.category(c) not in ("Mn", "Me", "Cf")]
  wide = sum(unicodedata.east_asian_width(c) in "WF" for c in shown)
  return len(shown) + wide
