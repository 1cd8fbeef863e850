"""Trains small BERTs on a text, and tabulates how their scores rise.

  python benchmarks/pretraining_curves.py --corpus=novels.txt --models=tiny \\
    --steps=2000 --seeds=1,2,3 --output_dir=curves

Every twentieth document is held out; the scores are of it. Runs that are in
--output_dir already go on or are read again, so that a run can be added later.
"""

import argparse
from collections.abc import Iterable
import json
import os
import pathlib
import statistics
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "examples")]
import pretrain_pydoc

POINTS = (100, 200, 500, 1000, 2000, 5000, 10000)
SCORES = ("masked_lm_loss", "masked_lm_accuracy", "next_sentence_accuracy")
CORPUS = ROOT.parent / "shared" / "data" / "corpus" / "corpus_en_gutenberg.txt"
LENGTHS = {"max_seq_length": 64, "max_predictions_per_seq": 10}

Curve = dict[int, list[float]]  # The SCORES, by the step.


def run(program: str, **flags) -> None:
  """Runs a program of this project; what it prints goes to standard error."""
  arguments = [f"--{name}={value}" for name, value in flags.items()]
  command = [sys.executable, str(ROOT / program), *arguments]
  subprocess.run(command, check=True, stdout=sys.stderr)


def make_records(corpus: pathlib.Path, folder: pathlib.Path) -> None:
  """Writes vocab.txt, train.tfrecord and eval.tfrecord."""
  documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")
  parts = {
    "train": [d for i, d in enumerate(documents) if i % 20],
    "eval": documents[::20],
  }
  for name, part in parts.items():
    (folder / f"{name}.txt").write_text("\n\n".join(part) + "\n", "utf-8")
  run(
    "create_vocab.py",
    input_file=folder / "train.txt",
    output_file=folder / "vocab.txt",
    vocab_size=8000,
  )
  for name, dupe_factor in (("eval", 1), ("train", 5)):
    run(
      "create_pretraining_data.py",
      input_file=folder / f"{name}.txt",
      output_file=folder / f"{name}.tfrecord",
      vocab_file=folder / "vocab.txt",
      dupe_factor=dupe_factor,
      **LENGTHS,
    )


def train(folder, model, seed, arguments) -> Curve:
  """Trains a model; returns what its evaluations found, every 100 steps."""
  # For text as short as this.
  pretrain_pydoc.write_config(folder, ROOT / "configs" / f"bert_{model}.json")
  out = folder / f"{model}-{arguments.learning_rate:g}-{arguments.steps}-{seed}"
  run(
    "run_pretraining.py",
    input_file=folder / "train.tfrecord",
    eval_input_file=folder / "eval.tfrecord",
    bert_config_file=folder / "bert_config.json",
    vocab_file=folder / "vocab.txt",
    output_dir=out,
    do_train="true",
    train_batch_size=arguments.batch_size,
    learning_rate=arguments.learning_rate,
    num_train_steps=arguments.steps,
    num_warmup_steps=arguments.steps // 20,
    eval_every_steps=100,
    eval_batch_size=64,
    max_eval_steps=8,
    keep_checkpoint_max=1,
    seed=seed,
    **LENGTHS,
  )
  return read_curve(out)


def read_curve(folder: pathlib.Path) -> Curve:
  """Reads the evaluations from the curves of a run."""
  curve = {}
  for line in (folder / "curves.jsonl").read_text().splitlines():
    point = json.loads(line)
    if f"eval/{SCORES[0]}" in point:
      found = [round(point[f"eval/{name}"], 4) for name in SCORES]
      curve[point["step"]] = found
  return curve


def table(curves: dict[str, list[Curve]]) -> Iterable[str]:
  """Yields the lines of a table: means and deviations over the seeds."""
  yield "| model | steps | masked-LM loss | its accuracy | next sentence |"
  yield "|---|---|---|---|---|"
  for model, runs in curves.items():
    for step in POINTS:
      found = [run[step] for run in runs if step in run]
      if found:
        cells = map(_cell, zip(*found, strict=True), (2, 3, 3))
        yield f"| {model} | {step:,} | {' | '.join(cells)} |"


def _cell(values, digits):
  text = f"{statistics.mean(values):.{digits}f}"
  if len(values) > 1:
    text += f" ± {statistics.stdev(values):.{digits}f}"
  return text


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--corpus", type=pathlib.Path, default=CORPUS)
  parser.add_argument(
    "--models", default="tiny", help="such as tiny,mini,small"
  )
  parser.add_argument("--steps", type=int, default=1000)
  parser.add_argument("--seeds", default="1")
  parser.add_argument("--batch_size", type=int, default=32)
  parser.add_argument("--learning_rate", type=float, default=1e-3)
  parser.add_argument("--output_dir", type=pathlib.Path, default="curves")
  parser.add_argument(
    "--json", type=pathlib.Path, help="to write the curves to"
  )
  arguments = parser.parse_args()
  if not arguments.corpus.exists():
    print(f"skipped: no --corpus={arguments.corpus}")
    return
  folder = arguments.output_dir
  folder.mkdir(parents=True, exist_ok=True)
  if not (folder / "train.tfrecord").exists():
    make_records(arguments.corpus, folder)
  curves = {
    model: [
      train(folder, model, seed, arguments)
      for seed in arguments.seeds.split(",")
    ]
    for model in arguments.models.split(",")
  }
  print("\n".join(table(curves)))
  if arguments.json:
    known = arguments.json.exists() and json.loads(arguments.json.read_text())
    text = json.dumps({**(known or {}), **curves})
    arguments.json.write_text(text.replace('{"100"', '\n{"100"') + "\n")


if __name__ == "__main__":
  main()
