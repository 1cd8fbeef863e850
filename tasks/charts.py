"""Charts as SVG pictures, in the colours of report.css.

Data in, HTML out. All text that comes from data is escaped.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
import html
import math
from typing import NamedTuple

import numpy as np

Point = tuple[float, float]
Series = Mapping[str, Sequence[Point]]
_Lines = list[tuple[str, list[Point]]]

# A chart's units, which are a phone's pixels.
_WIDTH, _HEIGHT = 420, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 26, 8, 40
MOST_LINES = 6  # Their colours stand in report.css, each with its own dashes.
_MOST_POINTS = 200  # A line of more has averages of neighbours.
_MOST_DOTS = 25  # The points of a longer line are hidden.
_SMOOTHED = 20  # From so many points on, a line can be smoothed.
_ROOM = 0.06  # The share of an axis that may have no data.
_TICKS = 5


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
  """An axis, its round numbers, and the pixels of its ends."""

  ticks: list[float]
  low: float
  high: float
  start: float
  end: float

  def to_pixel(self, value: float) -> float:
    share = (value - self.low) / (self.high - self.low)
    return round(self.start + share * (self.end - self.start), 1)


def line_chart(
  title: str,
  axes: tuple[str, str],
  series: Series,
  limits: tuple[float, float] | None = None,
  joined: bool = True,
  smoothed: Collection[str] = (),
) -> str:
  """Draws lines, or only their points, of which all that are finite.

  Args:
    axes: names of the x and the y axis.
    series: points by the name of their line.
    limits: of both axes; None for those of the points.
    smoothed: names of lines that are drawn as averages over their pale points.

  Returns:
    HTML; of more than six lines, several charts; without points, nothing.
  """
  lines = _finite_lines(series, joined)
  return "".join(
    _draw_chart(
      title, axes, (lines[i : i + MOST_LINES], []), limits, joined, smoothed
    )
    for i in range(0, len(lines), MOST_LINES)
  )


def double_chart(
  titles: tuple[str, str],
  axes: tuple[str, str, str],
  left: Series,
  right: Series,
  smoothed: Collection[str] = (),
) -> str:
  """Draws lines of two scales in one chart, as `line_chart` does one's.

  Too many lines are in charts of their own. `axes` are the x and the two y.
  """
  parts = _finite_lines(left, True), _finite_lines(right, True)
  if all(parts) and sum(map(len, parts)) <= MOST_LINES:
    title = f"{titles[0]} and {titles[1].lower()}"
    return _draw_chart(title, axes, parts, None, True, smoothed)
  return line_chart(titles[0], axes[:2], left, smoothed=smoothed) + line_chart(
    titles[1], (axes[0], axes[2]), right
  )


def _finite_lines(series: Series, joined: bool) -> _Lines:
  """Returns the lines that have points, and of these the finite ones."""
  averaged = (
    (name, _average([p for p in points if all(map(math.isfinite, p))], joined))
    for name, points in series.items()
  )
  return [(name, points) for name, points in averaged if points]


def _draw_chart(title, axes, parts, limits, joined, smoothed) -> str:
  """Draws a chart of the lines of the left axis, and of those of the right."""
  lines, edge = [*parts[0], *parts[1]], _WIDTH - _RIGHT
  if parts[1]:
    edge = _WIDTH - _LEFT
  values = [np.array([p for _, line in part for p in line]) for part in parts]
  x = np.concatenate([part[:, 0] for part in values if len(part)])
  x = _make_axis(x, limits, _LEFT, edge)
  y, *others = (
    _make_axis(part[:, 1], limits, _HEIGHT - _BOTTOM, _TOP)
    for part in values
    if len(part)
  )
  drawn, keys = _draw_axes(x, y, axes, *others), ""
  for i, (name, points) in enumerate(lines):
    is_left = i < len(parts[0])
    axis, arrow = (y, "") if is_left else (others[0], " →")
    drawn += _draw(i, name, points, x, axis, joined, name in smoothed)
    keys += (
      f'<span><svg class="key" viewBox="0 0 26 6"><path class="line c{i}" '
      f'd="M0 3H26"/></svg> {html.escape(name)}{arrow}</span> '
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
  """Makes an axis that ends near the numbers; at 0, if they are not far."""
  low, high = limits or (float(values.min()), float(values.max()))
  if high - low <= 1e-12 * max(abs(low), abs(high)):  # But for rounding.
    low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
  if 0 < low < high / 2:
    low = 0
  step, room = round_step(low, high), _ROOM * (high - low)
  first, last = math.floor(low / step + 1e-6), math.ceil(high / step - 1e-6)
  ticks = [float(f"{n * step:.15g}") for n in range(first, last + 1)]
  # An axis ends at a round number only if there is one near the data.
  if low - ticks[0] <= room:
    low = ticks[0]
  if ticks[-1] - high <= room:
    high = ticks[-1]
  return _Axis([t for t in ticks if low <= t <= high], low, high, start, end)


def _draw_axes(x: _Axis, y: _Axis, names: Sequence[str], *others: _Axis) -> str:
  """Draws lines at round numbers, the numbers, and the names of the axes."""
  right, bottom = x.end, _HEIGHT - _BOTTOM
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
  places = (11, _WIDTH - 4)
  for name, place in zip(names[1:], places, strict=False):
    turned = f'transform="translate({place} {middle_y}) rotate(-90)"'
    parts.append(_text_at(0, 0, "middle name", name, turned))
  for axis in others:
    for value in axis.ticks:
      pixel = axis.to_pixel(value)
      parts.append(_text_at(right + 5, pixel + 4, "start", number(value)))
  return "".join(parts)


def _text_at(x: float, y: float, kind: str, text: str, other: str = "") -> str:
  text = html.escape(text)
  return f'<text x="{x}" y="{y}" {other} class="{kind}">{text}</text>'


def _draw(index, name, points, x: _Axis, y: _Axis, joined, smoothed) -> str:
  """Draws one line; hovering over a point shows its values."""
  pixels = [(x.to_pixel(a), y.to_pixel(b)) for a, b in points]
  path, few = "", len(points) <= _MOST_DOTS
  if smoothed and len(points) >= _SMOOTHED:
    path = _draw_path(f"raw c{index}", pixels)
    path += _draw_path(f"line c{index}", _smooth(pixels))
    few = False
  elif joined:
    path = _draw_path(f"line c{index}", pixels)
  kind = "dot" if few or not joined else "dot hidden"
  return path + "".join(
    f'<circle class="{kind} c{index}" cx="{px}" cy="{py}" r="3">'
    f"<title>{html.escape(name)}: {number(a)}, {number(b)}</title></circle>"
    for (px, py), (a, b) in zip(pixels, points, strict=True)
  )


def _draw_path(kind: str, pixels: Iterable[Point]) -> str:
  path = "L".join(f"{a} {b}" for a, b in pixels)
  return f'<path class="{kind}" d="M{path}"/>'


def _smooth(points: Sequence[Point]) -> list[Point]:
  """Averages the y of each point and of its neighbours, a tenth of all."""
  reach = len(points) // _SMOOTHED
  windows = (
    points[max(0, i - reach) : i + reach + 1] for i in range(len(points))
  )
  return [
    (point[0], round(sum(y for _, y in window) / len(window), 1))
    for point, window in zip(points, windows, strict=True)
  ]
