"""The campaign of faults, with few rounds: FAULT_ROUNDS=20 makes the table."""

import json
import os
import subprocess
import sys

import pytest

import paths

KINDS = "training saving records disk readonly checkpoints tfrecords power"
KINDS += " sharing workers clock"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.split())
def test_nothing_that_was_saved_is_lost(kind, tmp_path):
  output = tmp_path / "rows.json"
  # In a process of its own: it forks, for which this one has too many threads.
  command = [sys.executable, paths.ROOT / "benchmarks/faults/campaign.py"]
  command += [f"--kinds={kind}", f"--output={output}"]
  command += [f"--rounds={os.environ.get('FAULT_ROUNDS', '3')}"]
  result = subprocess.run(command, capture_output=True, text=True)
  assert result.returncode == 0, result.stderr[-5000:]
  for row in json.loads(output.read_text()):
    assert row["lost"] == 0
    assert row["recovered"] == row["rounds"]
