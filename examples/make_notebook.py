"""Writes examples/tutorial.ipynb, without outputs, from tutorial.py.

python examples/make_notebook.py
"""

import json
import pathlib
import re

SOURCE = pathlib.Path(__file__).with_name("tutorial.py")


def make_notebook(source: str) -> str:
  """Returns a notebook of the cells that `# %%` begins in a source."""
  cells = []
  pattern = r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)"
  for kind, text in re.findall(pattern, source, re.DOTALL | re.MULTILINE):
    cell = {"cell_type": "code", "execution_count": None, "outputs": []}
    if kind:
      text = re.sub("^# ?", "", text, flags=re.MULTILINE)
      cell = {"cell_type": "markdown"}
    lines = text.strip().splitlines(keepends=True)
    cells.append(
      {"id": f"cell-{len(cells)}", "metadata": {}, "source": lines, **cell}
    )
  kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
  notebook = {"cells": cells, "metadata": {"kernelspec": kernel}}
  notebook |= {"nbformat": 4, "nbformat_minor": 5}
  return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
  text = make_notebook(SOURCE.read_text(encoding="utf-8"))
  SOURCE.with_suffix(".ipynb").write_text(text, encoding="utf-8")
