"""Tables of scores for the terminal; tables and the page of a report.

Data in, text out. In a report, a table is HTML and takes its colours from
report.css. All text that comes from data is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
import html
import pathlib
import types
from typing import NamedTuple
import unicodedata

import numpy as np

from bert.report import calibration, charts, metrics

_LONGEST_TEXT = 400  # Characters.
_MOST_LABELS = 50  # In a table.
# The labels of a confusion matrix on the terminal or a page, which show only
# the frequent confusions of more.
_LARGEST_SHOWN = 20
_LINE_LENGTH = 100  # Columns; in a wider matrix numbers stand for the names.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


class Link(NamedTuple):
  """A cell of a table that leads to a file."""

  text: str
  address: str


class Shaded(NamedTuple):
  """A cell of a table with a coloured ground."""

  value: int | float
  share: float  # From 0, no colour, to 1.


Cell = str | int | float | Link | Shaded


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
  """Makes a table; a float has four digits, a long text is shortened."""
  names = "".join(f'<th scope="col">{_text(name)}</th>' for name in header)
  body = "".join(f"<tr>{''.join(map(_make_cell, row))}</tr>\n" for row in rows)
  if not body:
    return ""
  return (
    f'<div class="wide" tabindex="0"><table><tr>{names}</tr>\n{body}'
    "</table></div>"
  )


def _make_cell(cell: Cell) -> str:
  if isinstance(cell, Link):
    address = html.escape(cell.address)
    return f'<td><a href="{address}">{_text(cell.text)}</a></td>'
  if isinstance(cell, str):
    return f'<td dir="auto">{_text(cell)}</td>'

  # Numbers are flush right. report.css mixes the colour from the share.
  style = ""
  if isinstance(cell, Shaded):
    style = f' style="--share:{cell.share:.3g}"'
    cell = cell.value
  format = "," if isinstance(cell, (int, np.integer)) else ".4f"
  return f'<td class="n"{style}>{cell:{format}}</td>'


def _text(text: str) -> str:
  if len(text) > _LONGEST_TEXT:
    text = text[:_LONGEST_TEXT] + "…"
  return html.escape(text)


def tiles(scores: Mapping[str, float]) -> str:
  """Shows a few scores large, the first one larger."""
  items = "".join(
    f"<div><dt>{_text(name.replace('_', ' '))}</dt><dd>{value:.3g}</dd></div>"
    for name, value in scores.items()
  )
  return items and f'<dl class="tiles">{items}</dl>\n'


def number_table(values: Mapping[str, float]) -> str:
  """Makes a table of numbers by name."""
  rows = ([name, charts.number(value)] for name, value in values.items())
  return table(("score", "value"), rows)


def score_table(
  header: Sequence[str], rows: Iterable[Sequence[Cell]], best: float = 1.0
) -> str:
  """Makes a table whose floats are scores, shaded by how near the best is.

  Args:
    header: the names of the columns.
    rows: the cells.
    best: the best possible score, such as 100 for percents.
  """

  def shade(cell):
    # Most scores are in the upper half: the power makes shades differ there.
    is_score = isinstance(cell, float)
    return Shaded(cell, (cell / best) ** 3) if is_score else cell

  return table(header, ([shade(cell) for cell in row] for row in rows))


def confusions(
  confusion: metrics.Confusion | None, names: Sequence[str]
) -> str:
  """Shows which labels are taken for which: a matrix, shaded by row.

  Of many labels, a table of the most frequent errors.
  """
  assert confusion is not None
  if len(names) > _LARGEST_SHOWN:
    rows = frequent_confusions(confusion, names)
    listed = table(("true", "predicted", "count"), rows)
    return f"<h3>Most frequent confusions</h3>{listed or '<p>None.</p>'}"

  # A row is shaded by its shares, so that rare labels show their errors, too.
  counts = confusion.as_matrix(len(names))
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  rows = (
    [name, *map(Shaded, row.tolist(), share)]
    for name, row, share in zip(names, counts, shares, strict=True)
  )
  listed = table(["true ↓ predicted →"] + list(names), rows)
  return f"<h3>Confusion matrix</h3>{listed}"


def label_table(
  report: metrics.ClassificationReport, names: Sequence[str]
) -> str:
  """Shows the scores of each label, of many those of the most frequent."""
  rows = sorted(report.rows(names), key=lambda row: -row[-1])[:_MOST_LABELS]
  title = "By label"
  if len(names) > _MOST_LABELS:
    title += f": the {_MOST_LABELS} most frequent"
  header = ("label", "precision", "recall", "F1", "count")
  return f"<h3>{title}</h3>{score_table(header, rows)}"


def calibration_chart(probabilities: np.ndarray, right: np.ndarray) -> str:
  """Draws how often predictions of some probability are right.

  `probabilities` are float [N], `right` is bool or 0 and 1 [N]; see
  `calibration`, also for the expected error, which is in the legend.
  """
  error = calibration.expected_error(probabilities, right)
  name = f"observed (expected error {error:.3f})"
  points = [
    (p, share) for *_, p, share in calibration.group(probabilities, right)
  ]
  lines = {name: points, "ideal": [(0, 0), (1, 1)]}
  scale = charts.Scale("Calibration", "share right", lines)
  return charts.line_chart("predicted probability", scale, limits=(0, 1))


def mistake_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
  """Lists mistakes, each with its text first."""
  listed = table(("text", *header), rows) or "<p>None.</p>"
  return f"<h3>Most confident mistakes</h3>{listed}"


def page(
  title: str,
  subtitle: str,
  sections: Mapping[str, str],
  scores: Mapping[str, float] = types.MappingProxyType({}),
) -> str:
  """Makes a page that needs no other file; empty sections are left out.

  Args:
    title: plain text, as the subtitle is.
    subtitle: a line below the title.
    sections: HTML by title, in their order.
    scores: shown large at the top, the first one larger.
  """
  style = pathlib.Path(__file__).with_name("report.css").read_text()

  # Each section has a link to it at the top.
  filled = [(_text(name), body) for name, body in sections.items() if body]
  links = ""
  parts = ""
  for i, (name, body) in enumerate(filled):
    links += f'<a href="#s{i}">{name}</a> '
    parts += f'<section id="s{i}"><h2>{name}</h2>\n{body}</section>\n'

  # The policy forbids scripts and anything from the net: texts of a report come
  # from data.
  text = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    f'<link rel="icon" href="data:,"><title>{_text(title)}</title>\n'
    f"<style>\n{style}</style></head>\n<body><h1>{_text(title)}</h1>\n"
    f"<p>{_text(subtitle)}</p>\n{tiles(scores)}<nav>{links}</nav>\n{parts}</body></html>\n"
  )

  # JSON can hold halves of characters, which a file cannot.
  return text.encode("utf-8", "replace").decode()


def format_report(
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns a table of the scores of each label, the averages, the accuracy."""

  def make_row(name, scores, support):
    return [name] + [f"{score:.4f}" for score in scores] + [str(support)]

  rows = [[""] + list(metrics.COLUMNS)]
  for name, *scores, support in report.rows(label_names):
    rows.append(make_row(name, scores, support))
  rows.append([""] * 5)

  # The micro average of single labels is the accuracy: no row of its own.
  averages = ["macro", "weighted"] if report.confusion else metrics.AVERAGES
  for name in averages:
    rows.append(make_row(name, getattr(report, name), report.support.sum()))
  rows.append(["accuracy", "", "", f"{report.accuracy:.4f}", ""])
  return _align(rows)


def format_confusion(
  report: metrics.ClassificationReport, label_names: Sequence[str]
) -> str:
  """Returns how often each label is taken for another one.

  It is a matrix, true labels in rows; of more than 20 labels, a list of the 20
  most frequent confusions.
  """
  assert report.confusion is not None
  if len(label_names) > _LARGEST_SHOWN:
    errors = frequent_confusions(report.confusion, label_names)
    if not errors:
      return "no label is taken for another"
    lines = [f"{true} -> {other}: {count}" for true, other, count in errors]
    title = "most frequent confusions, true -> predicted:"
    return "\n".join([title] + lines)

  matrix = report.confusion.as_matrix(len(label_names))
  rows = [["true \\ predicted"] + list(label_names)]
  for name, counts in zip(label_names, matrix, strict=True):
    rows.append([name] + [str(count) for count in counts])

  # Columns are two spaces apart. If the names of the columns make the lines too
  # long, numbers stand for them, which also precede the names of the rows.
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
  # A stable order: equal counts stay in the order of their labels.
  order = wrong[np.argsort(-confusion.count[wrong], kind="stable")]
  errors = []
  for i in order[:_LARGEST_SHOWN].tolist():
    true, predicted, count = (int(values[i]) for values in confusion)
    errors.append((label_names[true], label_names[predicted], count))
  return errors


def _align(rows: Sequence[Sequence[str]]) -> str:
  """Makes a table: the first column flush left, the others flush right."""
  widths = _column_widths(rows)
  lines = []
  for first, *numbers in rows:
    # Not `str.ljust`, which counts characters and not columns.
    cells = [first + " " * (widths[0] - _width(first))]
    for cell, width in zip(numbers, widths[1:], strict=True):
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
  # Accents that are drawn over the character before take no column, nor do
  # marks that only control the layout.
  takes_none = ("Mn", "Me", "Cf")
  visible = [c for c in text if unicodedata.category(c) not in takes_none]
  wide = sum(unicodedata.east_asian_width(c) in "WF" for c in visible)
  return len(visible) + wide
