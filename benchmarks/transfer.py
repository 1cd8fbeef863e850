"""What pre-training gains, with a learning rate tuned for each arm.

python benchmarks/transfer.py --output_dir=transfer --tasks mrpc rte \
  --models mini=pretrained

A model is a folder of run_pretraining.py. A task is fine-tuned from it
(pretrained) and from random weights of the same config (scratch): with every
rate of --rates and the first seed, then with all seeds at the rate whose best
epoch on the development set was best. A row is the mean over the seeds and its
standard deviation, after 1, 2, 4 and 8 epochs, at the best epoch and, if there
are labels that nothing was chosen by, on the test set. Runs that are finished
are not made again, so a killed table resumes.

Needs the tasks' files in ../shared/data. With the default rates and seeds, a
row takes five trainings, each with its log in the output folder. Prints the
table in Markdown, a row as soon as it is complete.
"""

import argparse
from collections.abc import Callable
import csv
import json
import lzma
import pathlib
import random
import statistics
import subprocess
import sys
from typing import Any, NamedTuple

import contest

SHOWN_EPOCHS = (1, 2, 4, 8)
Flags = dict[str, Any]


class Task(NamedTuple):
  """A labelled set below ../shared/data, and how to train on it."""

  flags: Flags
  metric: str
  program: str = "run_classifier.py"
  test: Flags | None = None  # Flags that evaluate on the test set.
  max_seq_length: int = 128
  unit: float = 1.0  # The best score there is.


def classified(test_file: pathlib.Path, metric="accuracy", **flags) -> Task:
  """Returns a task whose train, dev and test file lie in a folder."""
  flags |= {"task_name": "file", "data_dir": test_file.parent}
  return Task(flags, metric, test={"eval_file": test_file})


def glue(name: str, metric: str = "accuracy") -> Task:
  folder = contest.DATA / "glue" / name
  return Task({"task_name": name.lower(), "data_dir": folder}, metric)


def tagged(*names: str, **flags) -> Task:
  train, dev, test = (contest.DATA / "ner" / name for name in names)
  flags |= {"train_file": train, "eval_file": dev}
  return Task(flags, "f1", "run_tagging.py", {"eval_file": test})


def answered(train: pathlib.Path, dev: pathlib.Path) -> Task:
  return Task(
    {"train_file": train, "predict_file": dev, "padding_competes": "false"},
    "f1",
    "run_squad.py",
    max_seq_length=256,
    unit=100.0,
  )


def make_tasks(written: pathlib.Path) -> dict[str, Task]:
  """Returns the tasks by name; a folder holds what `WRITERS` write."""
  squad = contest.DATA / "squad"
  return {
    # GLUE, scored on the dev sets alone.
    "mrpc": glue("MRPC"),
    "rte": glue("RTE"),
    "sts-b": glue("STS-B", "pearson"),
    "sst-2": glue("SST-2"),
    # Tables of texts, each with a test set.
    "imdb": classified(written / "imdb" / "test.csv"),
    "goemotions": classified(
      contest.DATA / "multilabel" / "test.tsv",
      "micro_f1",
      problem="multi_label",
      header="no",
      text_column=0,
      label_column=1,
      id_column=2,
    ),
    "chnsenticorp": classified(
      contest.DATA / "chnsenticorp" / "test.tsv", text_column="text_a"
    ),
    # Names in English news and in Chinese curricula vitae.
    "conll": tagged("eng.train", "eng.testa", "eng.testb"),
    "resume": tagged(
      *(f"resume_zh/{part}.char.bmes" for part in ("train", "dev", "test"))
    ),
    # Choices and questions, scored on the dev sets alone.
    "swag": Task(
      {"data_dir": contest.DATA / "swag"}, "accuracy", "run_multiple_choice.py"
    ),
    "squad": answered(
      squad / "train-v1.1-60articles.json", squad / "dev-v1.1.json"
    ),
    "cmrc": answered(
      *(written / "cmrc" / f"{n}.json" for n in ("train", "dev"))
    ),
  }


def write_imdb(folder: pathlib.Path) -> None:
  """Writes train, dev (1,000 of the training reviews) and test as CSV.

  They are in a drawn order: in the files, one label comes after the other.
  """
  parts = {}
  for name in ("train", "test"):
    path = contest.DATA / "imdb" / f"{name}.tsv.xz"
    with lzma.open(path, "rt", encoding="utf-8") as file:
      lines = file.read().strip("\n").split("\n")[1:]
    parts[name] = [line.split("\t")[1:] for line in lines]
    random.Random(contest.SEED).shuffle(parts[name])

  # Each 25th of the 25,000 training reviews.
  reviews = parts["train"]
  parts["dev"] = reviews[::25]
  parts["train"] = [row for i, row in enumerate(reviews) if i % 25]

  folder.mkdir(parents=True, exist_ok=True)
  for name, rows in parts.items():
    with open(folder / f"{name}.csv", "w", encoding="utf-8") as file:
      csv.writer(file).writerows([["label", "text"], *rows])


def write_cmrc(folder: pathlib.Path) -> None:
  """Writes train and dev of CMRC 2018, a Chinese SQuAD, as JSON.

  Its training set is not in ../shared/data: train is the trial set and two of
  three articles of the dev set, and dev is every third article.
  """
  source = contest.DATA / "cmrc2018"
  dev = json.loads((source / "cmrc2018_dev.json").read_text("utf-8"))["data"]
  trial = json.loads((source / "cmrc2018_trial.json").read_text("utf-8"))
  parts = {
    "train": [*map(as_squad, trial), *(a for i, a in enumerate(dev) if i % 3)],
    "dev": dev[::3],
  }

  folder.mkdir(parents=True, exist_ok=True)
  for name, articles in parts.items():
    (folder / f"{name}.json").write_text(json.dumps({"data": articles}))


def as_squad(article: dict[str, Any]) -> dict[str, Any]:
  """Returns an article of the trial set in SQuAD's form."""
  context = article["context_text"]
  questions = []
  for item in article["qas"]:
    # The trial set says no offsets; the first place of the text is taken.
    answers = [
      {"text": text, "answer_start": context.find(text)}
      for text in item["answers"]
      if text in context
    ]
    questions.append(
      {
        "id": item["query_id"],
        "question": item["query_text"],
        "answers": answers,
      }
    )
  return {"paragraphs": [{"context": context, "qas": questions}]}


WRITERS = {"imdb": write_imdb, "cmrc": write_cmrc}


def run(log: pathlib.Path, flags: Flags, program: str, *first: str) -> None:
  """Runs a program, some arguments before its flags; it prints to a log."""
  arguments = [*first, *(f"--{name}={value}" for name, value in flags.items())]
  with open(log, "a", encoding="utf-8") as output:
    command = [sys.executable, contest.ROOT / program, *arguments]
    result = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT)
  if result.returncode:
    sys.exit(f"{program} failed: see the end of {log}")


def read_score(folder: pathlib.Path, name: str) -> float:
  """Returns a score of the evaluation in a folder."""
  lines = (folder / "eval_results.txt").read_text("utf-8").splitlines()
  return float(dict(line.split(" = ") for line in lines)[name])


class Arm(NamedTuple):
  """One row: a task, and where its training starts."""

  task: Task
  name: str  # Names the row's folders too.
  start: Flags
  options: argparse.Namespace

  def run(self, folder: pathlib.Path, **flags) -> None:
    """Runs the task's program; its log is `folder`.log."""
    length = self.options.max_seq_length or self.task.max_seq_length
    flags |= {"max_seq_length": length, "report": "false"}

    # run_squad.py scores its predictions and has no --do_eval.
    is_squad = self.task.program == "run_squad.py"
    flags["do_predict" if is_squad else "do_eval"] = "true"

    log = folder.with_name(f"{folder.name}.log")
    run(log, self.task.flags | flags, self.task.program)

  def folder(self, rate: float, seed: int) -> pathlib.Path:
    return self.options.output_dir / f"{self.name}-{rate:g}-{seed}"

  def train(self, rate: float, seed: int) -> list[float]:
    """Fine-tunes once; returns the score after each epoch."""
    folder = self.folder(rate, seed)
    options = self.options

    # A training that was killed has no file "done", and is resumed.
    if not (folder / "done").exists():
      print(f"{folder.name} ...", file=sys.stderr, flush=True)
      limit = options.max_train_examples
      self.run(
        folder,
        **self.start,
        **({"max_train_examples": limit} if limit else {}),
        do_train="true",
        output_dir=folder,
        learning_rate=rate,
        seed=seed,
        num_train_epochs=options.epochs,
        eval_every_epochs=1,
        best_metric=self.task.metric,
        keep_checkpoint_max=1,
        precision=options.precision,
        bias_correction=options.bias_correction,
      )
      (folder / "done").touch()

    lines = (folder / "evaluations.jsonl").read_text().splitlines()
    name = f"eval_{self.task.metric}"
    return [json.loads(line)[name] / self.task.unit for line in lines]

  def test(self, rate: float, seed: int) -> float:
    """Returns the best weights' score on the test set."""
    folder = self.folder(rate, seed)
    out = folder / "test"

    # As a --model, the folder of a training gives its best weights.
    if not (out / "eval_results.txt").exists():
      self.run(folder, model=folder, output_dir=out, **self.task.test)

    return read_score(out, f"eval_{self.task.metric}")


class Row(NamedTuple):
  """The scores of an arm at its best rate, over the seeds."""

  rate: float
  epochs: list[list[float]]  # By seed, then by epoch.
  test: list[float]  # By seed; none without a test set.


def tune(train: Callable, test: Callable | None, rates, seeds) -> Row:
  """Trains with each rate, then with each seed at the best rate.

  Args:
    train: takes a rate and a seed; returns the score after each epoch.
    test: takes a rate and a seed; returns the score on the test set. None:
      without a test set.
    rates: of learning, to choose from.
    seeds: the first one chooses the rate.
  """
  first = {rate: max(train(rate, seeds[0])) for rate in rates}
  rate = max(first, key=first.get)
  epochs = [train(rate, seed) for seed in seeds]
  return Row(rate, epochs, [test(rate, seed) for seed in seeds] if test else [])


def percent(values: list[float]) -> str:
  """Returns the mean and standard deviation as a table's cell."""
  if not values:
    return ""
  spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
  return f"{100 * statistics.mean(values):.1f}{spread}"


def start_table(options, heads, writers) -> None:
  """Makes the output folder, with the tasks' data; prints the table's head."""
  options.output_dir = options.output_dir.resolve()
  options.output_dir.mkdir(parents=True, exist_ok=True)

  for name in writers.keys() & set(options.tasks):
    if not (options.output_dir / name).exists():
      writers[name](options.output_dir / name)

  print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|", flush=True)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--output_dir", type=pathlib.Path, required=True)
  add("--models", nargs="+", required=True, metavar="NAME=FOLDER")
  names = list(make_tasks(pathlib.Path()))
  add("--tasks", nargs="+", choices=names, default=names)
  arms = ["scratch", "pretrained"]
  add("--arms", nargs="+", choices=arms, default=arms)
  add("--rates", nargs="+", type=float, default=[1e-4, 3e-4, 1e-3])
  add("--seeds", nargs="+", type=int, default=[1, 2, 3])
  add("--epochs", type=int, default=4)
  add("--precision", choices=contest.PRECISIONS, default="float32")
  truth = {"choices": ["false", "true"], "default": "false"}
  add("--bias_correction", **truth, help="of Adam; BERT's has none")
  add("--max_train_examples", type=int, help="default: all")
  add("--max_seq_length", type=int, help="default: the task's, 128 or 256")
  add("--skip_test", action="store_true", help="no test sets")
  options = parser.parse_args()

  # The head of the table.
  shown = [epoch for epoch in SHOWN_EPOCHS if epoch <= options.epochs]
  heads = ["task", "model", "start", "rate"]
  heads += [f"epoch {epoch}" for epoch in shown] + ["best epoch", "test"]
  start_table(options, heads, WRITERS)

  # A row for each task, model and arm.
  tasks = make_tasks(options.output_dir)
  for name in options.tasks:
    for named_model in options.models:
      model, _, path = named_model.partition("=")
      folder = pathlib.Path(path).resolve()

      # Both arms have the same config and vocabulary.
      scratch = {
        "bert_config_file": folder / "bert_config.json",
        "vocab_file": folder / "vocab.txt",
      }
      starts = {"scratch": scratch, "pretrained": {"model": folder}}

      for start in options.arms:
        arm = Arm(
          tasks[name], f"{name}-{model}-{start}", starts[start], options
        )
        test = None if options.skip_test or not arm.task.test else arm.test
        row = tune(arm.train, test, options.rates, options.seeds)

        # The best epoch is chosen seed by seed, then averaged.
        by_epoch = list(zip(*row.epochs, strict=True))
        cells = [name, model, start, f"{row.rate:g}"]
        cells += [percent(by_epoch[epoch - 1]) for epoch in shown]
        cells += [percent([max(scores) for scores in row.epochs])]
        print(f"| {' | '.join([*cells, percent(row.test)])} |", flush=True)


if __name__ == "__main__":
  main()
