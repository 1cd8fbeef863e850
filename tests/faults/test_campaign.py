"""The campaign of faults, with few rounds: FAULT_ROUNDS=20 makes the table."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

CAMPAIGN = pathlib.Path(__file__).with_name("campaign.py")
ROUNDS = os.environ.get("FAULT_ROUNDS", "3")


@pytest.mark.slow
@pytest.mark.parametrize(
  "kind",
  [
    "training",
    "saving",
    "records",
    "disk",
    "readonly",
    "checkpoints",
    "tfrecords",
    "power",
    "sharing",
    "workers",
    "clock",
  ],
)
def test_nothing_that_was_saved_is_lost(kind, tmp_path):
  output = tmp_path / "rows.json"
  # In a process of its own: it forks, for which this one has too many threads.
  result = subprocess.run(
    [
      sys.executable,
      str(CAMPAIGN),
      f"--rounds={ROUNDS}",
      f"--kinds={kind}",
      f"--output={output}",
    ],
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr[-5000:]
  for row in json.loads(output.read_text()):
    assert row["lost"] == 0
    assert row["recovered"] == row["rounds"]
