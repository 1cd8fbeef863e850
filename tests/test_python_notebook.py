"""The notebook on calls from Python runs, and shows what its cells print."""

import json
import re
import resource

import pytest

import paths

NOTEBOOK = paths.ROOT / "examples" / "python.ipynb"


def read_cells(notebook, kind):
  return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def printed(notebook):
  """Returns what all cells print, and the tables in plain text."""
  parts = []
  for cell in read_cells(notebook, "code"):
    for output in cell["outputs"]:
      plain = output.get("data", {}).get("text/plain", "")
      parts.append("".join(output.get("text", plain)))
  return "\n".join(parts)


def score(name, text):
  return float(re.search(rf"{name} = ([\d.]+)", text)[1])


def check(notebook):
  """Checks the outputs of the notebook; those of each run are alike."""
  cells = read_cells(notebook, "code")
  counts = [cell["execution_count"] for cell in cells]
  assert counts == list(range(1, len(cells) + 1))
  outputs = [output for cell in cells for output in cell["outputs"]]
  pictures = [o for o in outputs if "image/png" in o.get("data", {})]
  assert len(pictures) == 2
  assert "error" not in [output["output_type"] for output in outputs]

  # No path of one machine, nothing that TensorFlow logs, one line of progress.
  text = printed(notebook)
  errors = [o for o in outputs if o.get("name") == "stderr"]
  for found in (r"/(work|home|tmp|usr)/", "CUDA|oneDNN|WARNING|Warning"):
    assert not re.search(found, text), found
  assert all("ETA 0:00:00" in line for o in errors for line in step_lines(o))

  # The baselines: the largest area has a quarter of the texts, and a name that
  # is guessed among 810 has an MRR below 0.01.
  assert score("eval_accuracy", text) > 0.75
  assert score("eval_mrr_at_10", text) > 0.35
  assert "threading.join" in text and "engine=onnxruntime" in text
  [difference] = re.findall(r"difference of a probability: (\S+)", text)
  assert float(difference) < 1e-4


def step_lines(output):
  lines = "".join(output["text"]).splitlines()
  return [line for line in lines if line.startswith("step ")]


def test_the_notebook_shows_what_its_cells_print():
  """If not: requirements/notebook.txt has the command."""
  content = NOTEBOOK.read_text(encoding="utf-8")
  assert len(content) < 200_000 and str(paths.ROOT) not in content
  notebook = json.loads(content)
  check(notebook)
  # A number with a decimal point or a percent sign in the text is an output.
  cells = read_cells(notebook, "markdown")
  text = "\n".join("".join(cell["source"]) for cell in cells)
  for number in re.findall(r"\d+\.\d+|\d+(?= ?%)", text):
    assert number in printed(notebook) or number == "0.5", number


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
  """In a copy of links, so that it writes nothing into the clone."""
  needs = "needs requirements/notebook.txt"
  nbclient = pytest.importorskip("nbclient", reason=needs)
  nbformat = pytest.importorskip("nbformat", reason=needs)
  for package in ("ipykernel", "matplotlib", "onnxruntime", "pandas"):
    pytest.importorskip(package, reason=needs)
  for path in paths.ROOT.iterdir():
    if path.name != "python_output":
      (tmp_path / path.name).symlink_to(path)

  # The tests ask for more of TensorFlow's log than a user gets.
  monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
  notebook = nbformat.read(NOTEBOOK, as_version=4)
  resources = {"metadata": {"path": str(tmp_path)}}
  before = resource.getrusage(resource.RUSAGE_CHILDREN)
  nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
  after = resource.getrusage(resource.RUSAGE_CHILDREN)
  check(notebook)
  # Three minutes of two cores; other tests may run meanwhile.
  assert after.ru_utime - before.ru_utime < 360
  assert (tmp_path / "python_output/areas/report.html").exists()
