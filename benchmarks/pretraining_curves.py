"""Trains small BERTs on a text, and tabulates how their scores rise.

  python benchmarks/pretraining_curves.py --corpus=novels.txt --models=tiny \\
    --steps=2000 --seeds=1,2,3 --output_dir=curves

Every twentieth document is held out, and the scores are measured on these.
Prints a table in Markdown: the masked-LM loss and two accuracies after 100 to
10,000 steps, with means and deviations over the seeds; the programs print to
standard error. Runs that are in --output_dir already are resumed or read again,
so that a run can be added later.

Needs a text with an empty line between documents; without --corpus, novels of
../shared/data. 10,000 steps of tiny took 23 to 40 minutes on a core that also
did other work.
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
  """Writes vocab.txt, train.tfrecord and eval.tfrecord.

  Args:
    corpus: a text with an empty line between documents.
    folder: to write to.
  """
  # Whole documents are held out, not lines of them.
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

  # Each training document is used five times, with other masks each time.
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
  """Trains a model; returns what its evaluations found, every 100 steps.

  Args:
    folder: of the records and the vocabulary.
    model: such as tiny, for configs/bert_tiny.json.
    seed: of the weights and the order.
    arguments: of the command line.
  """
  # Without dropout, and with larger initial weights: `write_config` says why.
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
      scores = [round(point[f"eval/{name}"], 4) for name in SCORES]
      curve[point["step"]] = scores
  return curve


def table(curves: dict[str, list[Curve]]) -> Iterable[str]:
  """Yields the lines of a table: means and deviations over the seeds."""
  yield "| model | steps | masked-LM loss | its accuracy | next sentence |"
  yield "|---|---|---|---|---|"
  for model, runs in curves.items():
    for step in POINTS:
      by_seed = [run[step] for run in runs if step in run]
      if by_seed:
        # The loss has two digits, an accuracy three.
        cells = map(_cell, zip(*by_seed, strict=True), (2, 3, 3))
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

  curves = {}
  for model in arguments.models.split(","):
    curves[model] = [
      train(folder, model, seed, arguments)
      for seed in arguments.seeds.split(",")
    ]
  print("\n".join(table(curves)))

  # The curves of other models stay in the file; a run has a line of its own.
  if arguments.json:
    others = {}
    if arguments.json.exists():
      others = json.loads(arguments.json.read_text())
    text = json.dumps({**others, **curves})
    arguments.json.write_text(text.replace('{"100"', '\n{"100"') + "\n")


if __name__ == "__main__":
  main()
