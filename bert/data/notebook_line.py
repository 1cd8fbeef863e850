"""The live line of `progress`, below the cell of a notebook.

It is an output of the cell, which the next one replaces: a widget if ipywidgets
is installed. A line of standard error with carriage returns would not do:
JupyterLab leaves the end of a longer line, and a notebook that nbconvert has
executed keeps all lines. `progress` imports this file only in a notebook.
"""

import html
import importlib
from typing import Any

_cell = 0  # The number of the cell that has the line.
_output: Any = None  # The line's place below that cell.
_widget: Any = None  # For that place; None without ipywidgets.
_content: Any = None  # What the place holds now.


def show(text: str, part: float) -> None:
  """Shows a line below the running cell, in the place of the one before.

  Args:
    text: stands behind a bar. Without it, the line is erased.
    part: of the bar that is filled, 0 to 1.
  """
  global _cell, _output, _widget, _content
  ipython = importlib.import_module("IPython")  # Each notebook has it.
  content = nothing = ipython.display.Pretty("")

  # A cell that an error ends keeps its line until the next cell erases it, so
  # erasing makes no new place.
  cell = ipython.get_ipython().execution_count
  if text and cell != _cell:
    _cell, _widget = cell, _make_widget()
    _output = ipython.display.display(nothing, display_id=True)

  line = f"<progress value='{part:.3f}'></progress> {html.escape(text)}"
  if text and _widget:
    content = _widget
    content.value = line
  elif text:
    content = ipython.display.HTML(line)

  # A widget that is shown renews itself.
  if content is not _content:
    _output.update(content)
  _content = content


def _make_widget():
  try:
    return importlib.import_module("ipywidgets").HTML()
  except ImportError:
    return None
