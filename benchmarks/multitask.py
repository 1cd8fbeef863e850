"""What a second task gains: tasks alone, with masked words beside, together.

python benchmarks/multitask.py --output_dir=multitask --model=pretrained \
  --records=examples.tfrecord

A row of --rows is what is trained together; `words` is masked LM of --records.
Each task has --steps updates in every row. Rates and seeds as in transfer.py,
so no row has a rate that was tuned for another. A score is that of the
evaluation with the best mean on the development sets, of which there are five.
"""

import argparse
import functools
import json
import pathlib
import statistics
import sys

import contest
import transfer

METRICS = {"mrpc": "accuracy", "rte": "accuracy", "sts-b": "pearson"}
EVALUATIONS = 5
ROWS = [
  *(row for task in METRICS for row in (task, f"{task}+words")),
  *("mrpc+rte+sts-b", "mrpc+rte+sts-b+words"),
]


def make_entries(row: str, options: argparse.Namespace) -> list[dict]:
  """Returns the entries of tasks.json."""
  entries = []
  for name in row.split("+"):
    if name == "words":
      # Its losses count half by default; its evaluation is short, because its
      # scores are not reported.
      fields = {"kind": "masked_lm", "input_file": str(options.records)}
      fields |= {"weight": options.words_weight, "max_eval_steps": 10}
      length, predictions = options.records_shape
      fields |= {
        "max_seq_length": length,
        "max_predictions_per_seq": predictions,
      }
    else:
      folder = contest.DATA / "glue" / name.upper()
      fields = {"kind": "classifier", "task_name": name}
      fields |= {"data_dir": str(folder), "best_metric": METRICS[name]}
    entries.append({"name": name, "rate": 1.0, **fields})
  return entries


def train(
  row: str, options: argparse.Namespace, rate: float, seed: int
) -> list[dict[str, float]]:
  """Trains once, unless that is done; returns the scores at each evaluation."""
  tasks = [name for name in row.split("+") if name != "words"]
  folder = options.output_dir / f"{row}-{rate:g}-{seed}"
  if not (folder / "done").exists():
    print(f"{folder.name} ...", file=sys.stderr, flush=True)
    folder.mkdir(exist_ok=True)
    entries = make_entries(row, options)
    (folder / "tasks.json").write_text(json.dumps(entries))

    # As many updates of a task, whatever is trained beside it.
    steps = options.steps * len(entries)
    flags = {"tasks_file": folder / "tasks.json", "output_dir": folder / "run"}
    flags |= {"model": options.model, "learning_rate": rate, "seed": seed}
    every = steps // EVALUATIONS
    flags |= {"num_train_steps": steps, "eval_every_steps": every}
    flags |= {"do_train": "true", "do_eval": "true", "report": "false"}
    flags |= {"keep_checkpoint_max": 1, "precision": options.precision}
    transfer.run(folder / "log.txt", flags, "run_multitask.py")
    (folder / "done").touch()

  lines = (folder / "run" / "evaluations.jsonl").read_text().splitlines()
  return [
    {name: json.loads(line)[f"eval_{name}/{METRICS[name]}"] for name in tasks}
    for line in lines
  ]


def mean(scores: dict[str, float]) -> float:
  """Returns the mean of the tasks' scores."""
  return statistics.mean(scores.values())


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--output_dir", type=pathlib.Path, required=True)
  add("--model", type=pathlib.Path, required=True)
  add("--records", type=pathlib.Path, help="For the rows with words.")
  add("--records_shape", nargs=2, type=int, default=[128, 20])
  add("--rows", nargs="+", default=ROWS)
  add("--rates", nargs="+", type=float, default=[1e-4, 3e-4, 1e-3])
  add("--seeds", nargs="+", type=int, default=[1, 2, 3])
  add("--steps", type=int, default=345)
  add("--words_weight", type=float, default=0.5)
  add("--precision", choices=contest.PRECISIONS, default="float32")
  options = parser.parse_args()

  # The paths stand in files and flags of other programs.
  for name in ("output_dir", "model", "records"):
    if path := getattr(options, name):
      setattr(options, name, path.resolve())
  options.output_dir.mkdir(parents=True, exist_ok=True)

  print("| trained together | rate | scores |\n|---|---|---|", flush=True)
  for row in options.rows:
    run = functools.partial(train, row, options)
    tuned = transfer.tune(
      lambda rate, seed, run=run: list(map(mean, run(rate, seed))),
      *(None, options.rates, options.seeds),
    )

    # The runs of the best learning rate are there already: `run` reads them.
    best = [max(run(tuned.rate, seed), key=mean) for seed in options.seeds]
    cells = [
      f"{name} {transfer.percent([scores[name] for scores in best])}"
      for name in best[0]
    ]
    print(f"| {row} | {tuned.rate:g} | {', '.join(cells)} |", flush=True)


if __name__ == "__main__":
  main()
