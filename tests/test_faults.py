"""The campaign of faults, with few rounds: FAULT_ROUNDS=20 makes the table."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest

import paths

CAMPAIGN = paths.ROOT / "benchmarks" / "faults" / "campaign.py"


def find_kinds():
  """Returns the names of the public methods of `Campaign`.

  They are read from the source: an import would load TensorFlow and set
  variables of the environment for all tests that follow.
  """
  body = ast.parse(CAMPAIGN.read_text()).body
  [campaign] = [node for node in body if isinstance(node, ast.ClassDef)]
  methods = [n for n in campaign.body if isinstance(n, ast.FunctionDef)]
  return [node.name for node in methods if not node.name.startswith("_")]


def test_the_table_of_the_page_has_a_row_for_each_kind_of_round():
  page = (paths.ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
  table = page.partition("| kind | rounds | lost |")[2].partition("\n\n")[0]
  named = {line.split(" | ")[0].strip("| ") for line in table.splitlines()}
  titles = []
  for path in CAMPAIGN.parent.glob("*.py"):
    titles += re.findall(r'rows\.Row\("(.*)"\)', path.read_text())
  assert len(titles) > 10 and named.issuperset(titles)


@pytest.mark.slow
@pytest.mark.parametrize("kind", find_kinds())
def test_nothing_that_was_saved_is_lost(kind, tmp_path):
  output = tmp_path / "rows.json"
  # In a process of its own: it forks, for which this one has too many threads.
  command = [sys.executable, CAMPAIGN]
  command += [f"--kinds={kind}", f"--output={output}"]
  command += [f"--rounds={os.environ.get('FAULT_ROUNDS', '3')}"]
  result = subprocess.run(command, capture_output=True, text=True)
  assert result.returncode == 0, result.stderr[-5000:]
  for row in json.loads(output.read_text()):
    assert row["lost"] == 0
    assert row["recovered"] == row["rounds"]
