"""Tables of scores for the terminal; charts, tables and the page of a report.

Data in, text out. In a report, a chart is an SVG picture, a table is HTML; both
take their colours from report.css. All text that comes from data is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
import html
import math
import pathlib
from typing import NamedTuple
import unicodedata

import numpy as np

from tasks import metrics

Point = tuple[float, float]

# A chart's units, which are a phone's pixels.
_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 26, 8, 40
_COLOURS = 6  # They stand in report.css, each with its own dashes.
_MOST_POINTS = 200  # A line of more has averages of neighbours.
_MOST_DOTS = 25  # The points of a longer line are hidden.
_LONGEST_TEXT = 400  # Characters.
_TICKS = 5
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


def number(value: float) -> str:
  """Writes a number as people read it.

  >>> number(12000), number(0.30000000000000004), number(2e-05), number(1.0)
  ('12,000', '0.3', '2e-05', '1')
  """
  if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
    return f"{int(value):,}"
  return f"{value:.4g}"


def round_step(low: float, high: float) -> float:
  """Returns the round distance of about five numbers in a range.

  >>> round_step(0, 1), round_step(3, 49)
  (0.2, 10.0)
  """
  least = (high - low) / _TICKS
  power = 10.0 ** math.floor(math.log10(least))
  step = next(n * power for n in (1, 2, 5, 10) if n * power >= least * 0.999)
  return float(f"{step:.3g}")


class _Axis(NamedTuple):
  """The round numbers of an axis, and the pixels of the first and the last."""

  ticks: list[float]
  start: float
  end: float

  def to_pixel(self, value: float) -> float:
    low, high = self.ticks[0], self.ticks[-1]
    share = (value - low) / (high - low)
    return round(self.start + share * (self.end - self.start), 1)


def line_chart(
  title: str,
  axes: tuple[str, str],
  series: Mapping[str, Sequence[Point]],
  limits: tuple[float, float] | None = None,
  joined: bool = True,
) -> str:
  """Draws lines, or only their points, of which all that are finite.

  Args:
    axes: names of the x and the y axis.
    series: points by the name of their line.
    limits: of both axes; None for those of the points.

  Returns:
    HTML; of more than six lines, several charts; without points, nothing.
  """
  averaged = {
    name: _average([p for p in points if all(map(math.isfinite, p))], joined)
    for name, points in series.items()
  }
  lines = [(name, points) for name, points in averaged.items() if points]
  if len(lines) > _COLOURS:
    parts = (lines[:_COLOURS], lines[_COLOURS:])
    return "".join(
      line_chart(title, axes, dict(part), limits, joined) for part in parts
    )
  if not lines:
    return ""
  values = np.array([point for _, points in lines for point in points])
  x = _make_axis(values[:, 0], limits, _LEFT, _WIDTH - _RIGHT)
  y = _make_axis(values[:, 1], limits, _HEIGHT - _BOTTOM, _TOP)
  drawn, keys = _draw_axes(x, y, axes), ""
  for i, (name, points) in enumerate(lines):
    drawn += _draw(i, name, points, x, y, joined)
    keys += (
      f'<span><svg class="key" viewBox="0 0 26 6"><path class="line c{i}" '
      f'd="M0 3H26"/></svg> {html.escape(name)}</span> '
    )
  title = html.escape(title)
  return (
    f'<figure><figcaption>{title}</figcaption><div class="keys">{keys}</div>'
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
    f"{drawn}</svg></figure>"
  )


def _average(points, joined) -> list[Point]:
  """Averages neighbours, so that few enough are left."""
  size = math.ceil(len(points) / _MOST_POINTS) if joined else 1
  groups = (points[i : i + size] for i in range(0, len(points), size or 1))
  return [(g[-1][0], sum(p[1] for p in g) / len(g)) for g in groups]


def _make_axis(values, limits, start, end) -> _Axis:
  """Makes an axis with round ends; with 0, if the numbers are not far."""
  low, high = limits or (float(values.min()), float(values.max()))
  if high - low <= 1e-12 * max(abs(low), abs(high)):  # But for rounding.
    low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
  if 0 < low < high / 2:
    low = 0
  step = round_step(low, high)
  first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
  ticks = [float(f"{n * step:.15g}") for n in range(first, last + 1)]
  return _Axis(ticks, start, end)


def _draw_axes(x: _Axis, y: _Axis, names: tuple[str, str]) -> str:
  """Draws lines at round numbers, the numbers, and the names of the axes."""
  right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
  parts = []
  for value in y.ticks:
    pixel = y.to_pixel(value)
    parts.append(f'<path class="grid" d="M{_LEFT} {pixel}H{right}"/>')
    parts.append(_text_at(_LEFT - 5, pixel + 4, "end", number(value)))
  for value in x.ticks:
    pixel = x.to_pixel(value)
    parts.append(f'<path class="grid" d="M{pixel} {_TOP}V{bottom}"/>')
    parts.append(_text_at(pixel, bottom + 15, "middle", number(value)))
  middle_x, middle_y = (_LEFT + right) / 2, (_TOP + bottom) / 2
  parts.append(_text_at(middle_x, _HEIGHT - 6, "middle name", names[0]))
  turned = f'transform="translate(11 {middle_y}) rotate(-90)"'
  parts.append(_text_at(0, 0, "middle name", names[1], turned))
  return "".join(parts)


def _text_at(x: float, y: float, kind: str, text: str, other: str = "") -> str:
  text = html.escape(text)
  return f'<text x="{x}" y="{y}" {other} class="{kind}">{text}</text>'


def _draw(index, name, points, x: _Axis, y: _Axis, joined) -> str:
  """Draws one line; hovering over a point shows its values."""
  pixels = [(x.to_pixel(a), y.to_pixel(b)) for a, b in points]
  path = ""
  if joined:
    path = "L".join(f"{a} {b}" for a, b in pixels)
    path = f'<path class="line c{index}" d="M{path}"/>'
  kind = "dot" if not joined or len(points) <= _MOST_DOTS else "dot hidden"
  return path + "".join(
    f'<circle class="{kind} c{index}" cx="{px}" cy="{py}" r="3">'
    f"<title>{html.escape(name)}: {number(a)}, {number(b)}</title></circle>"
    for (px, py), (a, b) in zip(pixels, points, strict=True)
  )


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


def number_table(values: Mapping[str, float]) -> str:
  """Makes a table of numbers by name."""
  rows = ([name, number(value)] for name, value in values.items())
  return table(("score", "value"), rows)


def score_table(
  header: Sequence[str], rows: Iterable[Sequence[Cell]], best: float = 1.0
) -> str:
  """Makes a table whose floats are scores, shaded from 0 to the best one."""

  def shade(cell):
    return Shaded(cell, cell / best) if isinstance(cell, float) else cell

  return table(header, (map(shade, row) for row in rows))


def confusions(confusion: metrics.Confusion, names: Sequence[str]) -> str:
  """Shows which labels are taken for which: a matrix, shaded by row.

  Of many labels, a table of the most frequent errors.
  """
  if len(names) > _LARGEST_SHOWN:
    rows = frequent_confusions(confusion, names)
    listed = table(("true", "predicted", "count"), rows)
    return f"<h3>Most frequent confusions</h3>{listed or '<p>None.</p>'}"
  counts = confusion.as_matrix(len(names))
  shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
  rows = (
    [name, *map(Shaded, row.tolist(), share)]
    for name, row, share in zip(names, counts, shares, strict=True)
  )
  listed = table(["true ↓ predicted →", *names], rows)
  return f"<h3>Confusion matrix</h3>{listed}"


def label_table(
  report: metrics.ClassificationReport, names: Sequence[str]
) -> str:
  """Shows the scores of each label, of many those of the most frequent."""
  labels = np.argsort(-report.support, kind="stable")[:_MOST_LABELS].tolist()
  columns = report.precision, report.recall, report.f1, report.support
  rows = [[names[i], *(c[i].item() for c in columns)] for i in labels]
  title = "By label"
  if len(names) > _MOST_LABELS:
    title += f": the {_MOST_LABELS} most frequent"
  header = ("label", "precision", "recall", "F1", "count")
  return f"<h3>{title}</h3>{score_table(header, rows)}"


def calibration_chart(probabilities: np.ndarray, right: np.ndarray) -> str:
  """Draws how often predictions of some probability are right."""
  bins = metrics.calibration(probabilities, right)
  error = sum(n * abs(p - r) for p, r, n in bins) / len(probabilities)
  name = f"observed (expected error {error:.3f})"
  lines = {name: [(p, r) for p, r, _ in bins], "ideal": [(0, 0), (1, 1)]}
  axes = ("predicted probability", "share right")
  return line_chart("Calibration", axes, lines, limits=(0, 1))


def mistake_table(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
  """Lists mistakes, each with its text first."""
  listed = table(("text", *header), rows) or "<p>None.</p>"
  return f"<h3>Most confident mistakes</h3>{listed}"


def page(title: str, subtitle: str, sections: Mapping[str, str]) -> str:
  """Makes a page that needs no other file; empty sections are left out."""
  style = pathlib.Path(__file__).with_name("report.css").read_text()
  filled = [name for name, body in sections.items() if body]
  links, parts = "", ""
  for i, name in enumerate(filled):
    title_of_part = _text(name)
    links += f'<a href="#s{i}">{title_of_part}</a> '
    parts += f'<section id="s{i}"><h2>{title_of_part}</h2>\n{sections[name]}'
    parts += "</section>\n"
  text = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    f'<link rel="icon" href="data:,"><title>{_text(title)}</title>\n'
    f"<style>\n{style}</style></head>\n<body><h1>{_text(title)}</h1>\n"
    f"<p>{_text(subtitle)}</p>\n<nav>{links}</nav>\n{parts}</body></html>\n"
  )
  # JSON can hold halves of characters, which a file cannot.
  return text.encode("utf-8", "replace").decode()


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
  averages = [
    n for n in metrics.AVERAGES if not (report.confusion and n == "micro")
  ]
  return _align(
    [
      ["", *metrics.COLUMNS],
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
  if len(label_names) > _LARGEST_SHOWN:
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
    for pair in order[:_LARGEST_SHOWN]
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
