"""Writes examples/tutorial.ipynb from tutorial.py, with what its cells show.

python examples/make_notebook.py keeps the outputs of the cells that are as they
were; with --run, which needs requirements/notebook.txt, it runs all in five
minutes on two cores.
"""

import base64
import io
import json
import pathlib
import re
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().with_name("tutorial.py")
_MOST_LINES = 24  # The middle of a longer output is left out.


def make_notebook(source: str) -> dict:
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
  return notebook | {"nbformat": 4, "nbformat_minor": 5}


def keep_outputs(notebook: dict, older: dict) -> None:
  """Gives the cells the outputs that an older notebook has of the same code."""
  outputs = {"".join(c["source"]): c.get("outputs") for c in older["cells"]}
  for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
      cell["outputs"] = outputs.get("".join(cell["source"]), [])


def run(notebook: dict) -> None:
  """Runs the cells as Jupyter does, in an empty folder; stores what they show.

  A cell that fails raises nbclient's CellExecutionError.
  """
  import nbclient
  import nbformat

  root = SOURCE.parents[1]
  with tempfile.TemporaryDirectory(dir=root) as folder:
    ran = nbformat.reads(json.dumps(notebook), as_version=4)
    nbclient.NotebookClient(
      ran,
      timeout=None,
      record_timing=False,
      coalesce_streams=True,
      resources={"metadata": {"path": folder}},
    ).execute()
  for cell, source in zip(ran["cells"], notebook["cells"], strict=True):
    if source["cell_type"] == "code":
      source["outputs"] = [_shorten(o, f"{root}/") for o in cell["outputs"]]


def _shorten(output: dict, root: str) -> dict:
  """Returns a small output, which does not name this computer.

  What a command prints is at most _MOST_LINES, a picture has 32 colours.
  """
  output = {**output}
  if "text" in output:
    parts = re.split(r"^(?=\$ )", output["text"].replace(root, ""), flags=re.M)
    output["text"] = [line for part in parts for line in _shorten_text(part)]
  if picture := output.get("data", {}).get("image/png"):
    from PIL import Image

    file = io.BytesIO()
    image = Image.open(io.BytesIO(base64.b64decode(picture)))
    image.convert("RGB").quantize(32).save(file, "png", optimize=True)
    small = base64.b64encode(file.getvalue()).decode()
    output["data"] = {"image/png": small}
  return output


def _shorten_text(text: str) -> list[str]:
  """Returns the lines of a text, of a long one the first and the last."""
  lines = text.splitlines(keepends=True)
  if (left_out := len(lines) - _MOST_LINES) > 0:
    half = _MOST_LINES // 2
    lines[half:-half] = [f"[... {left_out} lines ...]\n"]
  return lines


if __name__ == "__main__":
  path = SOURCE.with_suffix(".ipynb")
  made = make_notebook(SOURCE.read_text(encoding="utf-8"))
  if "--run" in sys.argv:
    run(made)
  else:
    keep_outputs(made, json.loads(path.read_text(encoding="utf-8")))
  text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
  path.write_text(text, encoding="utf-8")
