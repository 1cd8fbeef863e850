"""Tests of bert/data/progress.py."""

import os
import pty
import subprocess
import sys

from bert.data import progress
import paths

# Fifty units of work, and a line that stays.
WORK = """
from bert.data import progress
work = progress.Progress(50)
progress._SECONDS_PER_LIVE_LINE = 0
for done in range(1, 51):
  work.print_line(f"unit {done} " + "x" * 200 * (done == 25), done)
work.print_line("half way")
work.print_line("unit 50", 50)
progress.clear()
progress.clear()
"""


def run_on_terminal(code, columns):
  """Returns what a program writes to a terminal of so many columns."""
  parent, child = pty.openpty()
  command = [sys.executable, "-c", code]
  environment = {**os.environ, "COLUMNS": str(columns)}
  subprocess.run(command, cwd=paths.ROOT, stderr=child, env=environment)
  os.close(child)
  written = b""
  try:
    while part := os.read(parent, 65536):
      written += part
  except OSError:  # Linux's way to say that a terminal is closed.
    pass
  os.close(parent)
  return written.decode()


def test_a_terminal_shows_one_line_with_a_bar_that_fits():
  shown = run_on_terminal(WORK, columns=120)
  assert shown.count("\n") == 1
  lines = shown.split("\r\x1b[K")
  assert lines[1] == "[" + "-" * 20 + "] unit 1 "
  assert lines[20] == "[" + "#" * 8 + "-" * 12 + "] unit 20 "
  assert lines[25] == "[##########----------] unit 25 " + "x" * 69
  # The live line is erased before one that stays, and at the end.
  assert lines[51] == "half way\r\n"
  assert lines[52:] == ["[####################] unit 50", ""]
  lines = run_on_terminal(WORK, columns=40).split("\r\x1b[K")
  assert max(map(len, lines)) == 39


def test_a_pipe_that_nobody_reads_ends_no_work():
  # A pipe gets a line after each `_SECONDS_PER_LINE`, so that is set to 0 here.
  code = WORK.replace("_LIVE_LINE", "_LINE") + "print('done', flush=True)\n"
  command = [sys.executable, "-c", "import time; time.sleep(1)\n" + code]
  pipe = subprocess.PIPE
  with subprocess.Popen(
    command, cwd=paths.ROOT, stdout=pipe, stderr=pipe, text=True
  ) as process:
    process.stderr.close()
    assert process.stdout.read() == "done\n"
  assert process.returncode == 0


def test_the_time_left_is_told_from_the_second_batch_on(monkeypatch):
  seconds = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: seconds[0])
  work = progress.Progress(100)
  found = []
  # The first batch waits for a compilation of 60 s.
  for now, done in ((61, 10), (62, 20), (64, 40), (70, 100)):
    seconds[0] = now
    found.append(work.eta(done))
  assert found == ["?", "0:00:08", "0:00:06", "0:00:00"]
  assert progress.Progress(100).eta(100) == "0:00:00"
  # A loop that has been compiled says so.
  work.restart(50)
  seconds[0] = 75
  assert work.eta(60) == "0:00:20"


def test_time_is_shown_and_the_part_and_what_is_left_if_known(
  monkeypatch, capsys
):
  seconds = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: seconds[0])
  work = progress.Progress(1)
  work.print_part("counting", 0.1)  # Too soon.
  for now, part in ((90, 0.25), (3700, None)):
    seconds[0] = now
    work.print_part("counting", part)
  assert capsys.readouterr().err.splitlines() == [
    "counting, 0:01:30 elapsed, 25%, 0:04:30 to go",
    "counting, 1:01:40 elapsed",
  ]


def test_a_pipe_gets_plain_lines():
  result = subprocess.run(
    [sys.executable, "-c", WORK], cwd=paths.ROOT, capture_output=True, text=True
  )
  lines = result.stderr.splitlines()
  assert lines[0] == "unit 1 "
  assert lines[50:] == ["half way", "unit 50"]
  assert "\x1b" not in result.stderr
