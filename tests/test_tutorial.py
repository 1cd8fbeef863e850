"""The tutorial and the demo run, and the notebook shows what it prints."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import bert
import paths

EXAMPLES = paths.ROOT / "examples"


def read_cells(kind):
  text = (EXAMPLES / "tutorial.ipynb").read_text(encoding="utf-8")
  return [c for c in json.loads(text)["cells"] if c["cell_type"] == kind]


def test_the_notebook_shows_what_its_cells_print():
  """If not: requirements/notebook.txt has the command."""
  text = (EXAMPLES / "tutorial.ipynb").read_text(encoding="utf-8")
  assert len(text) < 200_000 and str(paths.ROOT) not in text
  kinds, pictures = [], 0
  for cell in read_cells("code"):
    starts = ("print(", "run(", "  run(", "pretraining = ", "  results[")
    prints = any(line.startswith(starts) for line in cell["source"])
    assert cell["outputs"] or not prints, cell["source"]
    kinds += [output["output_type"] for output in cell["outputs"]]
    pictures += sum("image/png" in o.get("data", {}) for o in cell["outputs"])
  assert pictures == 2 and "error" not in kinds
  assert "from models/mini:" in text and "CUDA" not in text
  assert "from all-MiniLM-L6-v2:   " in text
  # Unused variables are counted, not listed.
  assert "in it, but not used: 7 variables of the pre-training heads" in text
  shown = re.findall(r"(?:largest part|scratch|pre-trained): +([\d.]+)%", text)
  largest, scratch, pretrained = map(float, shown)
  assert pretrained > scratch + 10 > largest + 20
  assert len(re.findall(r"always random [\d.]+%, the model [\d.]+%", text)) == 2


def test_the_demo_has_what_the_notebook_calls():
  code = "".join("".join(cell["source"]) for cell in read_cells("code"))
  demo = (EXAMPLES / "pretrain_pydoc.py").read_text(encoding="utf-8")
  for name in set(re.findall(r"pretrain_pydoc\.(\w+)", code)):
    assert re.search(rf"(?m)^(def )?{name}\b", demo), name


SLOW_TO_LEAVE = """
import sys, time
try:
  print("ready", flush=True)
  time.sleep(60)
except KeyboardInterrupt:
  time.sleep(1)  # As long as a checkpoint may take.
  print("saved")
  sys.exit(130)
"""
RUN_IT = "import pretrain_pydoc as demo, sys; demo.run(sys.argv[1])"


def test_ctrl_c_lets_the_program_of_the_demo_end(tmp_path):
  program = tmp_path / "slow_to_leave.py"
  program.write_text(SLOW_TO_LEAVE)
  with subprocess.Popen(
    [sys.executable, "-c", RUN_IT, program],
    cwd=EXAMPLES,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    start_new_session=True,
  ) as process:
    assert process.stdout and process.stderr
    while process.stdout.readline() != "ready\n":
      assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # As a terminal does.
    assert process.stdout.read() == "saved\n"
    assert process.stderr.read() == ""
  assert process.returncode == 130


def test_ctrl_c_in_the_demo_itself_is_a_line(tmp_path):
  """As while it imports."""
  code = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r})\n"
  code += "import pretrain_pydoc as demo, sys\n"
  code += "sys.excepthook = demo.end_in_a_line\nraise KeyboardInterrupt"
  command = [sys.executable, "-c", code]
  result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert result.stderr == "interrupted: the same command resumes it\n"


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path):
  """In a process of its own, in a folder beside the clone."""
  (tmp_path / "bert").symlink_to(paths.ROOT)
  code = "\n".join("".join(cell["source"]) for cell in read_cells("code"))
  command = [sys.executable, "-c", code]
  subprocess.run(command, cwd=tmp_path, check=True, timeout=3600)
  found = json.loads((tmp_path / "tutorial_output/numbers.json").read_text())
  assert found["masked_word_accuracy"] > 0.25
  # Always the largest of five: 32.0 %. From scratch may learn no more.
  assert found["accuracy_pretrained"] > 0.55
  assert found["accuracy_pretrained"] > found["accuracy_scratch"] >= 0.32
  assert found["accuracy_mini"] > 0.6


@pytest.mark.slow
def test_the_demo_ends_with_a_classifier_to_ask(tmp_path):
  command = [sys.executable, str(EXAMPLES / "pretrain_pydoc.py")]
  command += [f"--output_dir={tmp_path}", "--num_train_steps=60"]
  said = subprocess.run(command, check=True, capture_output=True, text=True)
  # The table of the README, after fewer updates.
  title, rows = said.stdout.partition("Masked words, on text")[1:]
  assert title and re.search(
    r"accuracy +loss\nbefore pre-training +0\.\d% +\d\.\d\d\n"
    r"after pre-training +\d\.\d% +\d\.\d\d\nword frequencies alone \('",
    rows,
  )
  export = tmp_path / "manual_parts"
  assert f"predict.py --export_dir={export} --serve" in said.stdout
  model = bert.load(export)
  parts = ["classes", "containers", "debugger", "statements", "strings"]
  assert list(model.labels) == parts
  assert model("Return a copy of the string.")["label"] in parts
