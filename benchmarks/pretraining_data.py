"""Times create_pretraining_data.py as a whole process, and its peak memory.

  python benchmarks/pretraining_data.py

The ways to run it take turns for several rounds. Memory is measured in runs of
its own, as the sum over all processes with shared pages counted once, also for
a corpus several times as large. Takes about a minute.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from absl import app, flags

FLAGS = flags.FLAGS
ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
CORPUS = DATA / "corpus" / "corpus_en_wikitext2_validtest.txt"
# The original on TensorFlow 1.15, whole process, on another machine of this
# kind with two cores: quoted, not measured here.
ORIGINAL_SECONDS = 24.9
WAYS = {
  "default": [],
  "blocks": ["--documents_per_block=8"],
  "blocks, 2 processes": ["--documents_per_block=8", "--num_processes=2"],
}


def define_flags() -> None:
  """Declares the flags."""
  flags.DEFINE_string("input_file", str(CORPUS), "A sentence a line.")
  flags.DEFINE_string(
    "vocab_file", str(DATA / "vocab" / "uncased_vocab.txt"), "Its vocabulary."
  )
  flags.DEFINE_integer("rounds", 5, "Runs of each way.")
  flags.DEFINE_integer("copies", 4, "Size of the larger corpus.")


def command(way: str, folder: str, copies: int = 1) -> list[str]:
  """Returns the command line of a run."""
  return [
    sys.executable,
    str(ROOT / "create_pretraining_data.py"),
    f"--input_file={','.join([FLAGS.input_file] * copies)}",
    f"--vocab_file={FLAGS.vocab_file}",
    f"--output_file={folder}/records",
    *WAYS[way],
  ]


def run(arguments: list[str]) -> tuple[float, int]:
  """Returns the wall time in seconds and the number of records."""
  start = time.perf_counter()
  done = subprocess.run(
    arguments, check=True, text=True, stdout=subprocess.PIPE
  )
  seconds = time.perf_counter() - start
  (line,) = [x for x in done.stdout.splitlines() if " records (" in x]
  return seconds, int(line.split()[0].replace(",", ""))


def peak_memory(arguments: list[str]) -> float:
  """Returns the peak of the process tree in megabytes."""
  process = subprocess.Popen(
    arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
  )
  peak = 0
  while process.poll() is None:
    peak = max(peak, sum(map(proportional_kilobytes, tree(process.pid))))
    time.sleep(0.02)
  return peak / 1024


def tree(pid: int) -> list[int]:
  """Returns a process and those it started."""
  try:
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
  except OSError:  # It has just ended.
    return []
  return [pid, *(p for child in children.split() for p in tree(int(child)))]


def proportional_kilobytes(pid: int) -> int:
  """Returns a process's memory; pages it shares count in part."""
  try:
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
  except OSError:
    return 0
  lines = (line.split() for line in rollup.splitlines())
  return sum(int(line[1]) for line in lines if line[0] == "Pss:")


def main(argv: list[str]) -> None:
  """Measures and prints a table."""
  del argv
  for path in (FLAGS.input_file, FLAGS.vocab_file):
    if not os.path.exists(path):
      print(f"skipped: {path} is absent; see --input_file and --vocab_file")
      return
  seconds = {way: [] for way in WAYS}
  records = {}
  with tempfile.TemporaryDirectory() as folder:
    for _ in range(FLAGS.rounds):
      for way in WAYS:
        elapsed, records[way] = run(command(way, folder))
        seconds[way].append(elapsed)
    memory = {way: peak_memory(command(way, folder)) for way in WAYS}
    larger = {
      way: peak_memory(command(way, folder, FLAGS.copies)) for way in WAYS
    }
  is_published = FLAGS.input_file == str(CORPUS)
  print(
    f"medians of {FLAGS.rounds} runs; memory of 1 and {FLAGS.copies} copies"
  )
  base = statistics.median(seconds["default"])
  for way in WAYS:
    median = statistics.median(seconds[way])
    original = f", {ORIGINAL_SECONDS / median:.1f}x the original*"
    print(
      f"{way:20} {median:.2f} s, {records[way] / median:,.0f} records/s,"
      f" {base / median:.2f}x the default{original if is_published else ''};"
      f" {memory[way]:.0f} MB ({memory['default'] / memory[way]:.1f}x less),"
      f" {larger[way]:.0f} MB ({larger['default'] / larger[way]:.1f}x less)"
    )
  if is_published:
    print(f"* {ORIGINAL_SECONDS} s, measured on another machine of this kind")


if __name__ == "__main__":
  define_flags()
  app.run(main)
