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

  Returns:
    accuracy; labels, by name; macro, micro, weighted; confusion: a matrix, true
    labels in rows, or None. Of more than 200 labels it is the counts that are
    not 0, by the names of the true and of the predicted label.
  """
  columns = report.precision, report.recall, report.f1, report.support
  rows = zip(*(column.tolist() for column in columns), strict=True)
  keys = (*metrics.Average._fields, "support")
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
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns a table of the scores of each label, the averages, the accuracy."""
  rows = [["", *metrics.Average._fields, "support"]]
  columns = report.precision, report.recall, report.f1
  for name, *scores, support in zip(
    label_names, *columns, report.support, strict=True
  ):
    rows.append([name, *_four_decimals(scores), str(support)])
  total = str(report.support.sum())
  rows.append([""] * 5)
  # The micro average of single labels is the accuracy.
  micro = [] if report.confusion else ["micro"]
  for name in ("macro", *micro, "weighted"):
    rows.append([name, *_four_decimals(getattr(report, name)), total])
  rows.append(["accuracy", "", "", *_four_decimals([report.accuracy]), ""])
  return _align(rows)


def _four_decimals(scores) -> list[str]:
  return [f"{score:.4f}" for score in scores]


def format_confusion(
  report: metrics.ClassificationReport, label_names: Sequence[str]
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
