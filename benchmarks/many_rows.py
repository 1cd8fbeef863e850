"""Measures time and memory of programs on more and more rows. Linux only.

  python benchmarks/many_rows.py --output_dir=rows

Sentences of SST-2 (13.3 tokens on average), again and again: run_classifier.py
makes their features, trains for 100 steps and predicts all of them, then
extract_features.py pools their vectors, with a BERT of 2 x 128. A row has the
seconds and the most memory that the program's process has had. 100,000 rows
and ten times as many take five minutes on two cores; a million rows are 13
million tokens.
"""

import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import time

import contest


def write_rows(path: pathlib.Path, count: int, with_label: bool) -> None:
  """Writes the first `count` sentences, a label and a tab before each."""
  source = contest.DATA / "glue" / "SST-2" / "train.tsv"
  lines = source.read_text("utf-8").rstrip("\n").split("\n")[1:]
  pairs = [line.split("\t") for line in lines]
  rows = [f"{label}\t{text}" if with_label else text for text, label in pairs]
  with open(path, "w", encoding="utf-8") as file:
    for row in itertools.islice(itertools.cycle(rows), count):
      file.write(row + "\n")


def measure(log: pathlib.Path, program: str, **flags) -> str:
  """Runs a program; returns its seconds and its peak memory, as cells."""
  command = [sys.executable, str(contest.ROOT / program)]
  command += [f"--{name}={value}" for name, value in flags.items()]

  # `wait4` returns what the kernel has counted of this one process.
  start = time.perf_counter()
  with open(log, "w") as file:
    process = subprocess.Popen(command, stdout=file, stderr=file)
    _, status, usage = os.wait4(process.pid, 0)
  if status:
    sys.exit(f"{program} failed: see the end of {log}")

  # Linux counts in KB: the result is in GB.
  seconds = time.perf_counter() - start
  return f"{seconds:.0f} | {usage.ru_maxrss / 2**20:.2f}"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--output_dir", type=pathlib.Path, required=True)
  parser.add_argument(
    "--rows", nargs="+", type=int, default=[100_000, 1_000_000]
  )
  options = parser.parse_args()
  folder = options.output_dir
  folder.mkdir(parents=True, exist_ok=True)
  model = {
    "bert_config_file": contest.ROOT / "configs" / "bert_tiny.json",
    "vocab_file": contest.DATA / "vocab" / "uncased_vocab.txt",
  }

  print(f"on {contest.describe_machine()}")
  print("| rows | program | seconds | GB |\n|---|---|---|---|", flush=True)
  for count in options.rows:
    labelled = folder / "rows.tsv"
    texts = folder / "rows.txt"
    write_rows(labelled, count, with_label=True)
    write_rows(texts, count, with_label=False)

    # 100 updates of 32 rows, whatever the number of rows is. The half keeps
    # rounding from losing an update.
    out = folder / f"classifier-{count}"
    cells = measure(
      folder / f"classifier-{count}.log",
      "run_classifier.py",
      **model,
      task_name="file",
      train_file=labelled,
      predict_file=labelled,
      header="no",
      label_column=0,
      text_column=1,
      do_train="true",
      do_predict="true",
      num_train_epochs=3200.5 / count,
      output_dir=out,
      report="false",
    )
    print(f"| {count:,} | run_classifier.py | {cells} |", flush=True)

    cells = measure(
      folder / f"features-{count}.log",
      "extract_features.py",
      model=out,
      input_file=texts,
      output_file=folder / "vectors.npz",
      output_format="npz",
      layers="-1",
      pooling="mean",
    )
    print(f"| {count:,} | extract_features.py | {cells} |", flush=True)


if __name__ == "__main__":
  main()
