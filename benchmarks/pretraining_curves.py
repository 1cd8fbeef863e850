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


def write_config(model: str, folder: pathlib.Path) -> pathlib.Path:
  """Writes configs/bert_<model>.json without dropout, with larger weights.

  A model so narrow needs an initializer_range above 0.02 to start within a few
  hundred steps, and sees too little text for dropout to help.
  """
  path = ROOT / "configs" / f"bert_{model}.json"
  config = json.loads(path.read_text())
  config |= {name: 0.0 for name in config if "dropout" in name}
  path = folder / f"{model}.json"
  path.write_text(json.dumps({**config, "initializer_range": 0.1}, indent=2))
  return path


def train(folder, model, seed, arguments) -> Curve:
  """Trains a model; returns what its evaluations found, every 100 steps."""
  out = folder / f"{model}-{arguments.learning_rate:g}-{arguments.steps}-{seed}"
  run(
    "run_pretraining.py",
    input_file=folder / "train.tfrecord",
    eval_input_file=folder / "eval.tfrecord",
    bert_config_file=write_config(model, folder),
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
  """Reads the evaluations in the event files of a folder."""
  import tensorflow as tf

  curve = {}
  for path in sorted(folder.glob("events.out.tfevents.*")):
    for record in tf.data.TFRecordDataset(str(path)):
      event = tf.compat.v1.Event.FromString(record.numpy())
      for value in event.summary.value:
        name = value.tag.removeprefix("eval/")
        if name != value.tag and name in SCORES:
          found = curve.setdefault(event.step, [0.0] * len(SCORES))
          found[SCORES.index(name)] = round(
            float(tf.make_ndarray(value.tensor)), 4
          )
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
