"""Charts, tables and the page of a run's report, as HTML: data in, text out.

A chart is an SVG picture, a table is HTML; both take their colours from
report.css. All text that comes from data is escaped.
"""

from collections.abc import Iterable, Mapping, Sequence
import html
import math
import pathlib
from typing import NamedTuple

import numpy as np

from tasks import metrics, score_tables

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
  """The pixels of numbers in a picture."""

  low: float
  high: float
  start: float  # The pixel of the lowest number.
  end: float

  def ticks(self) -> list[float]:
    """Returns the round numbers to show."""
    step = round_step(self.low, self.high)
    first, last = math.ceil(self.low / step - 1e-6), self.high / step + 1e-6
    return [
      float(f"{n * step:.10g}") for n in range(first, math.floor(last) + 1)
    ]

  def to_pixel(self, value: float) -> float:
    share = (value - self.low) / (self.high - self.low)
    return round(self.start + share * (self.end - self.start), 1)


def line_chart(
  title: str,
  axes: tuple[str, str],
  series: Mapping[str, Sequence[Point]],
  limits: tuple[float, float] | None = None,
  joined: bool = True,
) -> str:
  """Draws lines, or only their points.

  Args:
    axes: names of the x and the y axis.
    series: points by the name of their line; those with a number that is not
      finite are left out.
    limits: of both axes; None for those of the points.
    joined: whether to draw lines between the points.

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
  x, y = (
    _make_axis([p[i] for _, points in lines for p in points], limits, *ends)
    for i, ends in enumerate(
      ((_LEFT, _WIDTH - _RIGHT), (_HEIGHT - _BOTTOM, _TOP))
    )
  )
  drawn = [
    _draw(i, name, points, (x, y), joined)
    for i, (name, points) in enumerate(lines)
  ]
  keys = "".join(
    f'<span><svg class="key" viewBox="0 0 26 6"><path class="line c{i}" '
    f'd="M0 3H26"/></svg> {html.escape(name)}</span> '
    for i, (name, _) in enumerate(lines)
  )
  return (
    f"<figure><figcaption>{html.escape(title)}</figcaption>"
    f'<div class="keys">{keys}</div>'
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
    f'aria-label="{html.escape(title)}">{_draw_axes(x, y, axes)}'
    f"{''.join(drawn)}</svg></figure>"
  )


def _average(points, joined) -> list[Point]:
  """Averages neighbours, so that few enough are left."""
  size = math.ceil(len(points) / _MOST_POINTS) if joined else 1
  groups = (points[i : i + size] for i in range(0, len(points), size or 1))
  return [(g[-1][0], sum(p[1] for p in g) / len(g)) for g in groups]


def _make_axis(values, limits, start, end) -> _Axis:
  """Makes an axis with round ends; with 0, if the numbers are not far."""
  low, high = limits or (min(values), max(values))
  if high - low <= 1e-12 * max(abs(low), abs(high)):  # But for rounding.
    low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
  if 0 < low < high / 2:
    low = 0
  step = round_step(low, high)
  low, high = (
    math.floor(low / step + 1e-6) * step,
    math.ceil(high / step - 1e-6) * step,
  )
  return _Axis(low, high, start, end)


def _draw_axes(x: _Axis, y: _Axis, names) -> str:
  parts = []
  for value in y.ticks():
    pixel = y.to_pixel(value)
    parts.append(
      f'<path class="grid" d="M{_LEFT} {pixel}H{_WIDTH - _RIGHT}"/>'
      f'<text x="{_LEFT - 5}" y="{pixel + 4}" class="end">{number(value)}'
      "</text>"
    )
  for value in x.ticks():
    pixel = x.to_pixel(value)
    parts.append(
      f'<path class="grid" d="M{pixel} {_TOP}V{_HEIGHT - _BOTTOM}"/>'
      f'<text x="{pixel}" y="{_HEIGHT - _BOTTOM + 15}" '
      f'class="middle">{number(value)}</text>'
    )
  middle = (_TOP + _HEIGHT - _BOTTOM) / 2
  return "".join(parts) + (
    f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" '
    f'class="middle name">{html.escape(names[0])}</text>'
    f'<text transform="translate(11 {middle}) rotate(-90)" '
    f'class="middle name">{html.escape(names[1])}</text>'
  )


def _draw(index, name, points, axes, joined) -> str:
  """Draws one line; hovering over a point shows its values."""
  pixels = [
    tuple(axis.to_pixel(v) for axis, v in zip(axes, point, strict=True))
    for point in points
  ]
  path = ""
  if joined:
    path = "L".join(f"{x} {y}" for x, y in pixels)
    path = f'<path class="line c{index}" d="M{path}"/>'
  kind = "dot" if not joined or len(points) <= _MOST_DOTS else "dot hidden"
  return path + "".join(
    f'<circle class="{kind} c{index}" cx="{x}" cy="{y}" r="3">'
    f"<title>{html.escape(name)}: {number(a)}, {number(b)}</title></circle>"
    for (x, y), (a, b) in zip(pixels, points, strict=True)
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


def _make_cell(cell) -> str:
  if isinstance(cell, Link):
    address = html.escape(cell.address)
    return f'<td><a href="{address}">{_text(cell.text)}</a></td>'
  if isinstance(cell, str):
    return f'<td dir="auto">{_text(cell)}</td>'
  style = ""
  if isinstance(cell, Shaded):
    style = f' style="--share:{cell.share:.3g}"'
    cell = cell.value
  is_whole = isinstance(cell, (int, np.integer))
  return (
    f'<td class="n"{style}>{f"{cell:,}" if is_whole else f"{cell:.4f}"}</td>'
  )


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
  return table(
    header,
    (
      [Shaded(c, c / best) if isinstance(c, float) else c for c in row]
      for row in rows
    ),
  )


def confusions(confusion: metrics.Confusion, names: Sequence[str]) -> str:
  """Shows which labels are taken for which: a matrix, shaded by row.

  Of many labels, a table of the most frequent errors.
  """
  if len(names) > score_tables.LARGEST_SHOWN:
    rows = score_tables.frequent_confusions(confusion, names)
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
  title = "By label" + f": the {_MOST_LABELS} most frequent" * (
    len(names) > _MOST_LABELS
  )
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
  """Makes a page that needs no other file.

  Args:
    subtitle: a line below it.
    sections: HTML by the title of its section; empty ones are left out.
  """
  filled = [(name, body) for name, body in sections.items() if body]
  style = pathlib.Path(__file__).with_name("report.css").read_text()
  links = " ".join(
    f'<a href="#s{i}">{_text(name)}</a>' for i, (name, _) in enumerate(filled)
  )
  parts = "".join(
    f'<section id="s{i}"><h2>{_text(name)}</h2>\n{body}</section>\n'
    for i, (name, body) in enumerate(filled)
  )
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
