"""Pictures of results, for which matplotlib has to be installed."""

from collections.abc import Sequence
import io
import math
import warnings

import numpy as np

from data import files

_LARGEST_WITH_COUNTS = 20  # Labels; the cells of more are too small.
_LARGEST_SIDE = 30.0  # Inches, with memory for the picture in mind.
_SMALL_CELL = 0.22  # Inches, the height of a label's name.
_LONGEST_NAME = 40  # Characters.
_DOTS_PER_INCH = 120

# Fonts with Chinese, Japanese and Korean characters, of Linux, macOS, Windows.
_CJK_FONTS = (
  "Noto Sans CJK SC",
  "Source Han Sans SC",
  "WenQuanYi Micro Hei",
  "WenQuanYi Zen Hei",
  "Droid Sans Fallback",
  "PingFang SC",
  "Hiragino Sans GB",
  "Arial Unicode MS",
  "Microsoft YaHei",
  "SimHei",
)


def write_confusion_matrix(
  path: str, confusion: np.ndarray, label_names: Sequence[str]
) -> None:
  """Draws a confusion matrix into a PNG file.

  The colour of a cell is its share of the row, that is of the true label.
  Counts are written into the cells of at most 20 labels.

  Raises:
    ImportError: matplotlib is not installed.
  """
  try:
    import matplotlib.figure  # Optional, and half a second.
  except ImportError as error:
    raise ImportError(
      f"matplotlib draws it: pip install -r requirements/plots.txt ({error})"
    ) from None
  side = _side_in_inches(confusion)
  # pyplot would keep the figure and choose a backend for the whole process.
  figure = matplotlib.figure.Figure(figsize=(side, side), dpi=_DOTS_PER_INCH)
  # All of the figure is cells; the names are outside and enlarge the picture.
  axes = figure.add_axes((0, 0, 1, 1))
  shares = confusion / np.maximum(confusion.sum(1, keepdims=True), 1)
  image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
  scale = figure.add_axes((1 + 0.15 / side, 0, 0.15 / side, 1))
  figure.colorbar(image, cax=scale, label="share of the true label")
  _name_rows_and_columns(axes, label_names, side)
  if len(label_names) <= _LARGEST_WITH_COUNTS:
    _write_counts(axes, confusion, shares)
  _write_png(path, figure)


def _side_in_inches(confusion: np.ndarray) -> float:
  """Returns the length of a matrix whose cells hold the largest count."""
  cell = _SMALL_CELL
  if len(confusion) <= _LARGEST_WITH_COUNTS:
    cell = max(0.5, 0.2 + 0.1 * len(str(confusion.max())))
  return min(max(cell * len(confusion), 2.0), _LARGEST_SIDE)


def _name_rows_and_columns(axes, names: Sequence[str], side: float) -> None:
  # Where the cells are lower than a name, only every second, third... has one.
  step = math.ceil(len(names) * _SMALL_CELL / side - 1e-6)
  places = range(0, len(names), step)
  shown = [_shorten(names[place]) for place in places]
  # A dollar sign in a name is plain text.
  style = {"fontsize": 9, "fontfamily": _font_families(), "parse_math": False}
  slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
  axes.set_xticks(places, shown, **style, **slanted)
  axes.set_yticks(places, shown, **style)
  axes.set_xlabel("predicted")
  axes.set_ylabel("true")


def _shorten(name: str) -> str:
  if len(name) <= _LONGEST_NAME:
    return name
  return name[: _LONGEST_NAME - 1] + "…"


def _font_families() -> list[str]:
  """Returns the user's fonts, then installed fonts for CJK."""
  import matplotlib
  import matplotlib.font_manager

  installed = set(matplotlib.font_manager.get_font_names())
  fallbacks = [name for name in _CJK_FONTS if name in installed]
  return [*matplotlib.rcParams["font.family"], *fallbacks]


def _write_counts(axes, confusion: np.ndarray, shares: np.ndarray) -> None:
  for (row, column), count in np.ndenumerate(confusion):
    axes.text(
      column,
      row,
      str(count),
      ha="center",
      va="center",
      fontsize=9,
      color="white" if shares[row, column] > 0.5 else "black",
    )


def _write_png(path: str, figure) -> None:
  picture = io.BytesIO()
  with warnings.catch_warnings():
    # A character without a glyph is drawn as a box; no warning is needed.
    warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
    figure.savefig(picture, format="png", bbox_inches="tight", pad_inches=0.15)
  with files.replace_on_success(path) as temporary:
    with files.open_for_writing(temporary) as output:
      output.write(picture.getvalue())
