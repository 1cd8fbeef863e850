"""Charts as SVG pictures, in the colours of report.css.

Data in, HTML out. All text that comes from data is escaped.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
import html
import math
import types
from typing import NamedTuple

import numpy as np

Point = tuple[float, float]
Series = Mapping[str, Sequence[Point]]

# A chart's units, which are a phone's pixels.
_WIDTH, _HEIGHT = 420, 260
# The margins around the axes: numbers and names stand in them.
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 26, 8, 40
MOST_LINES = 6  # Their colours stand in report.css, each with its own dashes.
_MOST_POINTS = 200  # A line of more has averages of neighbours.
_MOST_DOTS = 25  # The points of a longer line are hidden.
_SMOOTHED = 20  # The points that a line needs to be smoothed.
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

  def to_pixels(self, values: Sequence[float] | np.ndarray) -> list[float]:
    """Returns the places of values, to a tenth of a pixel."""
    shares = (np.asarray(values) - self.low) / (self.high - self.low)
    return (self.start + shares * (self.end - self.start)).round(1).tolist()

  def numbers(self) -> Iterator[tuple[float, str]]:
    """Yields the places of the round numbers, and these as text."""
    return zip(self.to_pixels(self.ticks), map(number, self.ticks), strict=True)


class Scale(NamedTuple):
  """The lines of one y axis."""

  title: str
  axis: str  # The name of the axis.
  lines: Series
  # Values to compare with, by name: dotted lines from side to side.
  levels: Mapping[str, float] = types.MappingProxyType({})


def line_chart(
  x: str,
  *scales: Scale,
  limits: tuple[float, float] | None = None,
  joined: bool = True,
  smoothed: Collection[str] = (),
) -> str:
  """Draws lines, or only their points, of which all that are finite.

  Args:
    x: the name of the x axis.
    scales: one, or two that share a chart if they have at most six lines.
    limits: of all axes; None: as far as the points of each go.
    joined: whether points are joined by lines.
    smoothed: names of lines that are drawn as averages over their pale points.

  Returns:
    HTML: of more than six lines several charts, "" without points.
  """
  finite = [s._replace(lines=_finite_lines(s.lines, joined)) for s in scales]

  # One chart, if both scales have lines and the colours suffice.
  counts = [len(scale.lines) for scale in finite]
  charts = [finite]
  if not all(counts) or sum(counts) > MOST_LINES:
    charts = [[part] for scale in finite for part in _split(scale)]
  return "".join(
    _draw_chart(x, chart, limits, joined, smoothed) for chart in charts
  )


def _split(scale: Scale) -> Iterator[Scale]:
  """Yields parts of a scale that have no more lines than there are colours."""
  lines = list(scale.lines.items())
  for start in range(0, len(lines), MOST_LINES):
    yield scale._replace(lines=dict(lines[start : start + MOST_LINES]))


def _finite_lines(series: Series, joined: bool) -> dict[str, np.ndarray]:
  """Returns the lines that have finite points, [P, 2]; of many, averages."""
  finite = {}
  for name, values in series.items():
    points = np.array(values, float).reshape(-1, 2)
    points = points[np.isfinite(points).all(1)]

    # A long line: averages of neighbours, each at the last of their places.
    if joined and len(points) > _MOST_POINTS:
      size = -(-len(points) // _MOST_POINTS)
      parts = np.split(points, range(size, len(points), size))
      points = np.array([(part[-1, 0], part[:, 1].mean()) for part in parts])

    if len(points):
      finite[name] = points
  return finite


def _draw_chart(x_name, scales, limits, joined, smoothed) -> str:
  """Draws a chart of one y axis, or of two: the second one at the right."""
  # The axes: levels, too, must have room on theirs.
  edge = _WIDTH - (_RIGHT if len(scales) == 1 else _LEFT)
  points = [np.concatenate([*scale.lines.values()]) for scale in scales]
  x = _make_axis(np.concatenate(points)[:, 0], limits, _LEFT, edge)
  ys = []
  for scale, points_of_scale in zip(scales, points, strict=True):
    heights = np.append(points_of_scale[:, 1], list(scale.levels.values()))
    # A picture's pixels count from its top.
    ys.append(_make_axis(heights, limits, _HEIGHT - _BOTTOM, _TOP))
  drawn = _draw_axes(x, ys, [x_name, *(scale.axis for scale in scales)])

  # The lines, and above the picture a key for each; → marks the right axis.
  keys = ""
  colours = (f"c{i}" for i in range(MOST_LINES))
  for y, scale in zip(ys, scales, strict=True):
    arrow = "" if y is ys[0] else " →"
    for name, line in scale.lines.items():
      colour = next(colours)
      drawn += _draw_line(colour, name, line, x, y, joined, name in smoothed)
      keys += (
        '<span><svg class="key" viewBox="0 0 26 6"><path class="line '
        f'{colour}" d="M0 3H26"/></svg> {html.escape(name)}{arrow}</span> '
      )

  # The levels last: their names stand over the lines.
  for y, scale in zip(ys, scales, strict=True):
    drawn += _draw_levels(scale.levels, y, edge, is_left=y is ys[0])

  # "Losses and scores".
  first, *more = (scale.title for scale in scales)
  title = html.escape(" and ".join([first, *map(str.lower, more)]))
  return (
    f'<figure><figcaption>{title}</figcaption><div class="keys">{keys}</div>'
    f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{title}">'
    f"{drawn}</svg></figure>"
  )


def _make_axis(values, limits, start, end) -> _Axis:
  """Makes an axis that ends near the numbers; at 0, if they are not far.

  `start` and `end` are pixels. `limits` replace the range of the values.
  """
  low, high = limits or (float(values.min()), float(values.max()))

  # Equal values, up to rounding, get an axis around them.
  if high - low <= 1e-12 * max(abs(low), abs(high)):
    low, high = low - (abs(low) / 2 or 0.5), high + (abs(high) / 2 or 0.5)
  if 0 < low < high / 2:
    low = 0

  # Round numbers, from the last one below the data to the first one above. The
  # 1e-6 let rounding errors of a division not add another one; 15 digits make
  # 0.3 of 3 * 0.1.
  step = round_step(low, high)
  first = math.floor(low / step + 1e-6)
  last = math.ceil(high / step - 1e-6)
  ticks = [float(f"{n * step:.15g}") for n in range(first, last + 1)]

  # An axis ends at a round number only if there is one near the data.
  room = _ROOM * (high - low)
  low = ticks[0] if low - ticks[0] <= room else low
  high = ticks[-1] if ticks[-1] - high <= room else high
  return _Axis([t for t in ticks if low <= t <= high], low, high, start, end)


def _draw_axes(x: _Axis, ys: Sequence[_Axis], names: Sequence[str]) -> str:
  """Draws lines at round numbers, the numbers, and the names of the axes."""
  bottom = _HEIGHT - _BOTTOM
  middle_x = (_LEFT + x.end) / 2
  parts = [_text_at(middle_x, _HEIGHT - 6, "middle name", names[0])]

  # The lines of the first y axis only: two grids would cross.
  grid = "".join(f"M{_LEFT} {pixel}H{x.end}" for pixel, _ in ys[0].numbers())
  for pixel, text in x.numbers():
    grid += f"M{pixel} {_TOP}V{bottom}"
    parts.append(_text_at(pixel, bottom + 15, "middle", text))

  # The left and the right side: where a text is held, the x of its numbers and
  # of its name.
  sides = (("end", _LEFT - 5, 11), ("start", x.end + 5, _WIDTH - 4))
  for y, name, (kind, edge, place) in zip(ys, names[1:], sides, strict=False):
    for pixel, text in y.numbers():
      parts.append(_text_at(edge, pixel + 4, kind, text))
    turned = f"translate({place} {(_TOP + bottom) / 2}) rotate(-90)"
    parts.append(_text_at(0, 0, "middle name", name, turned))
  return f'<path class="grid" d="{grid}"/>' + "".join(parts)


def _text_at(x: float, y: float, kind: str, text: str, move: str = "") -> str:
  place = f'transform="{move}" x="{x}" y="{y}"'
  return f'<text {place} class="{kind}">{html.escape(text)}</text>'


def _draw_levels(levels, y: _Axis, edge: float, is_left: bool) -> str:
  """Draws dotted lines whose names stand at the side of their axis."""
  kind = "" if is_left else "end"
  place = _LEFT + 4 if is_left else edge - 4
  drawn = ""
  for name, value in levels.items():
    [pixel] = y.to_pixels([value])
    drawn += f'<path class="level" d="M{_LEFT} {pixel}H{edge}"/>'

    # The name stands above its line, but below it at the top of the chart.
    height = pixel - 4 if pixel > _TOP + 16 else pixel + 13
    text = f"{name}: {value:.3g}"
    drawn += _text_at(place, height, f"level-name {kind}".strip(), text)
  return drawn


def _draw_line(colour, name, points, x, y, joined, smoothed) -> str:
  """Draws one line; hovering over a point shows its values."""
  left = x.to_pixels(points[:, 0])
  top = y.to_pixels(points[:, 1])

  # Paths by their class in report.css.
  smoothed = smoothed and len(points) >= _SMOOTHED
  paths = {"line": top} if joined else {}
  if smoothed:
    paths = {"raw": top, "line": _smooth(np.array(top))}
  drawn = ""
  for kind, heights in paths.items():
    places = "L".join(map("{} {}".format, left, heights))
    drawn += f'<path class="{kind} {colour}" d="M{places}"/>'

  # Dots carry the values. On a long line they would hide it, so only hovering
  # shows them.
  is_hidden = joined and (smoothed or len(points) > _MOST_DOTS)
  kind = f"dot hidden {colour}" if is_hidden else f"dot {colour}"
  return drawn + "".join(
    f'<circle class="{kind}" cx="{px}" cy="{py}" r="3">'
    f"<title>{html.escape(name)}: {number(a)}, {number(b)}</title></circle>"
    for px, py, (a, b) in zip(left, top, points.tolist(), strict=True)
  )


def _smooth(heights: np.ndarray) -> list[float]:
  """Averages each height and those of its neighbours, a tenth of all."""
  # At the ends the window has fewer heights, hence the division by their count.
  window = np.ones(2 * (len(heights) // _SMOOTHED) + 1)
  counts = np.convolve(np.ones(len(heights)), window, "same")
  return (np.convolve(heights, window, "same") / counts).round(1).tolist()
