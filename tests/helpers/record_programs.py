"""Runs the programs that make pre-training records, in the current folder."""

import gzip
import os
import signal
import subprocess
import time

import program_flags
import tiny

PLAIN, BEAM = "create_pretraining_data", "create_pretraining_data_beam"


def command(program, **flags):
  """Returns the command that makes `out` of text.txt; flags override."""
  defaults = {
    "input_file": "text.txt",
    "output_file": "out",
    "vocab_file": "vocab.txt",
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
  }
  return program_flags.command(program, **{**defaults, **flags})


def write_bad_texts(folder):
  """Writes texts that no records can be made of."""
  (folder / "empty.txt").write_text("\n \n")
  (folder / "one.txt").write_text("a b\nc d\n")
  (folder / "latin.txt").write_bytes(b"a\n\nb \xe9\n")
  compressed = gzip.compress(tiny.make_corpus(9).encode())
  (folder / "cut.txt.gz").write_bytes(compressed[:-9])
  (folder / "folder").mkdir()


def run(program, **flags):
  """Runs a program in a process of its own."""
  return program_flags.run_command(command(program, **flags))


def interrupt(program, stop, is_working, **flags):
  """Stops a program at work; checks that it leaves nothing behind.

  Args:
    stop: the signal; only Ctrl-C gives it time to remove its temporary files.
    is_working: takes the id of the process.
  """
  before = sorted(os.listdir())
  process = subprocess.Popen(
    command(program, **flags),
    stderr=subprocess.PIPE,
    text=True,
    # A shell that started the tests with "&" made them ignore Ctrl-C.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )
  try:
    deadline = time.monotonic() + 60
    while not is_working(process.pid):
      assert time.monotonic() < deadline and process.poll() is None
      time.sleep(0.01)
    process.send_signal(stop)
    stderr = process.communicate(timeout=30)[1]
  finally:
    process.kill()  # One that hangs, too.
  assert not os.path.exists("out")
  if stop == signal.SIGINT:
    assert process.returncode == 130
    assert stderr == f"{program}.py: error: interrupted\n"
    assert sorted(os.listdir()) == before
