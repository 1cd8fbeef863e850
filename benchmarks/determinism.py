"""Compares the checkpoints of equal trainings on other cores and instructions.

  python benchmarks/determinism.py

Pre-trains and fine-tunes models/mini for a few updates with dropout: as it is,
again, with one core, and with the instructions of a processor without AVX512.
Prints a table in Markdown: whether all bytes of the final checkpoint are the
first run's, and else the distance of its weights, |difference| / |weights|.
Everything it needs is in this repository; takes about five minutes. On a
processor without AVX512 the last row says only that the run was repeated.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from bert.data import processor
from bert.weights import checkpoints

MODEL = ROOT / "models" / "mini"
STEPS = 30

# The name of a row: cores, and what the environment has in addition.
VARIANTS = {
  "again": (None, {}),
  "one core": (1, {}),
  "two cores": (2, {}),
  "instructions up to AVX2": (None, {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
}
PRECISIONS = ("float32", "bfloat16")


def make_commands(folder: pathlib.Path) -> dict[str, list[str]]:
  """Writes the data; returns the commands without precision and output_dir."""
  vocabulary = f"--vocab_file={MODEL / 'vocab.txt'}"
  records = folder / "examples.tfrecord"
  _run(
    [
      "create_pretraining_data.py",
      f"--input_file={ROOT / 'sample_text.txt'}",
      f"--output_file={records}",
      vocabulary,
      "--max_seq_length=64",
    ]
  )
  lines = (ROOT / "sample_text.txt").read_text(encoding="utf-8").splitlines()
  texts = [line.replace("\t", " ") for line in lines if line.strip()]
  # Long texts against short ones: something that can be learnt.
  rows = [f"{'long' if len(text) > 80 else 'short'}\t{text}" for text in texts]
  (folder / "train.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")

  shared = [f"--model={MODEL}", "--do_train=true", "--train_batch_size=8"]
  shared += ["--max_seq_length=64", "--report=false"]
  return {
    "run_pretraining.py": [
      *shared[:-1],
      f"--input_file={records}",
      f"--num_train_steps={STEPS}",
      "--num_warmup_steps=3",
    ],
    "run_classifier.py": [
      *shared,
      "--task_name=file",
      f"--data_dir={folder}",
      "--num_train_epochs=5",
    ],
  }


def train(command: list[str], output_dir: pathlib.Path, cores, environment):
  """Runs a training; returns the bytes of its last checkpoint, and weights."""
  _run([*command, f"--output_dir={output_dir}"], cores, environment)
  prefix = checkpoints.latest_checkpoint(str(output_dir))
  assert prefix
  data = pathlib.Path(f"{prefix}.data-00000-of-00001").read_bytes()
  values = [
    np.ravel(value)
    for name, value in checkpoints.read(prefix)
    if name != "global_step" and "/adam_" not in name
  ]
  return data, np.concatenate(values).astype(np.float64)


def _run(command, cores=None, environment=None):
  """Runs a program of this project on so many cores."""
  program, *flags = command
  available = sorted(os.sched_getaffinity(0))
  if cores:
    available = available[:cores]
  subprocess.run(
    [sys.executable, str(ROOT / program), *flags],
    check=True,
    stdout=sys.stderr,
    env={**os.environ, **(environment or {})},
    preexec_fn=lambda: os.sched_setaffinity(0, available),
  )


def main() -> None:
  parser = argparse.ArgumentParser(description="See the top of the file.")
  parser.add_argument(
    "--precisions", default=",".join(PRECISIONS), help="such as float32"
  )
  precisions = parser.parse_args().precisions.split(",")
  print(processor.describe())
  print(
    "| program | precision | compared with the first run | bytes | weights |"
  )
  print("|---|---|---|---|---|")
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for program, flags in make_commands(folder).items():
      for precision in precisions:
        command = [program, *flags, f"--precision={precision}"]
        first, weights = train(
          command, folder / f"{program}-{precision}", 0, {}
        )
        for variant, (cores, environment) in VARIANTS.items():
          # TensorFlow asks the real processor whether it has bfloat16; oneDNN,
          # held to AVX2, then ends the process.
          if environment and precision == "bfloat16":
            continue
          out = folder / f"{program}-{precision}-{variant}"
          data, others = train(command, out, cores, environment)
          equal = "equal" if data == first else "other"
          distance = np.linalg.norm(others - weights) / np.linalg.norm(weights)
          row = [program, precision, variant, equal, f"{distance:.1e}"]
          print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
  main()
