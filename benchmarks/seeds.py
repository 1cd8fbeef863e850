"""How scores of fine-tuning spread over seeds, and what changes their spread.

python benchmarks/seeds.py --output_dir=seeds --model=minilm --tasks mrpc rte

Fine-tunes with each seed in each of these ways:

  default    as run_classifier.py does: batches of similar length, rows shuffled
             over the whole file, a head whose bias fits the labels' frequencies
  bias 0     the head's bias starts at 0, as in the original
  mixed      batches of any length
  buffer     rows leave a buffer of 100 at random, as in the original, whose
             batches therefore follow the order of the file
  original   the last three together

The model must be able to learn the task. models/mini ends near 68 % of MRPC (21
seeds at 3e-4: 66.7 to 72.5), which is the share of its larger class, and shows
no difference. all-MiniLM-L6-v2 ends near 80 %.

A row has the mean of the dev scores after the last epoch, their standard
deviation and, behind each, the interval that holds 95 % of what samples drawn
from these scores give (bootstrap). Every core trains with a seed of its own.
What is finished is not made again, so a killed table resumes.
"""

import argparse
from collections.abc import Callable
import os
import pathlib
import sys
from unittest import mock

# Before numpy is imported: see there.
sys.path.append(str(pathlib.Path(__file__).resolve().parent / "faults"))
import processes  # isort: split

import contest
import numpy as np
import transfer

from bert.inputs import batch_order
from bert.tasks import classification_problems
import program_flags

_BUFFER = 100  # Rows, in the original.
HEADS = ("task", "way", "seeds", "mean", "deviation", "lowest", "highest")


def zero_bias() -> None:
  """Lets every head begin with a bias of 0."""
  for problem in classification_problems.PROBLEMS.values():
    mock.patch.object(
      type(problem), "first_bias", lambda *arguments: None
    ).start()


def mix_lengths() -> None:
  """Sorts rows by length within a batch only."""
  mock.patch.object(batch_order, "_BATCHES_PER_CHUNK", 1).start()


def use_buffer() -> None:
  """Shuffles as `tf.data.Dataset.shuffle(100)` does."""

  def epoch_order(lengths, batch_size, seed, epoch):
    random = np.random.default_rng([seed % 2**64, epoch])
    buffer, order = [], []
    for row in range(len(lengths)):
      if len(buffer) == _BUFFER:
        place = random.integers(_BUFFER)
        order.append(buffer[place])
        buffer[place] = row
      else:
        buffer.append(row)
    return np.array([*order, *random.permutation(buffer)])

  mock.patch.object(batch_order, "epoch_order", epoch_order).start()


# What is changed in the process before it trains.
WAYS: dict[str, list[Callable[[], None]]] = {
  "default": [],
  "bias 0": [zero_bias],
  "mixed": [mix_lengths],
  "buffer": [use_buffer],
  "original": [zero_bias, use_buffer],
}


class Runs:
  """The trainings of a task in one way, a folder for each seed."""

  def __init__(self, task: str, way: str, options: argparse.Namespace):
    self.name = task
    self.task = transfer.make_tasks(pathlib.Path())[task]
    self.way = way
    self.options = options

  def folder(self, seed: int) -> pathlib.Path:
    name = f"{self.name}-{self.way.replace(' ', '')}-{seed}"
    return self.options.output_dir / name

  def start(self, seed: int, core: int) -> processes.Child:
    """Starts a training on a core."""
    options = self.options
    command = program_flags.command(
      "run_classifier",
      **self.task.flags,
      model=options.model,
      output_dir=self.folder(seed),
      do_train=True,
      do_eval=True,
      max_seq_length=128,
      learning_rate=options.rate,
      precision=options.precision,
      num_train_epochs=options.epochs,
      seed=seed,
      keep_checkpoint_max=1,
      report=False,
    )

    def prepare():
      os.sched_setaffinity(0, [core])
      for change in WAYS[self.way]:
        change()

    log = self.folder(seed).with_name(f"{self.folder(seed).name}.log")
    return processes.Child(command, log, prepare)

  def score(self, seed: int) -> float | None:
    """Returns the score of a training that has ended, in per cent."""
    if not (self.folder(seed) / "eval_results.txt").exists():
      return None
    name = f"eval_{self.task.metric}"
    return 100 * transfer.read_score(self.folder(seed), name)


def train_all(runs: list[tuple[Runs, int]]) -> None:
  """Makes the trainings of which there is no score, one on each core."""
  waiting = [one for one in runs if one[0].score(one[1]) is None]
  free = sorted(os.sched_getaffinity(0))
  busy = {}
  while waiting or busy:
    while waiting and free:
      run, seed = waiting.pop(0)
      core = free.pop()
      busy[core] = run.start(seed, core)
      name = run.folder(seed).name
      print(f"{name}, {len(waiting)} more", file=sys.stderr, flush=True)

    processes.wait_until(
      lambda: any(child.poll() is not None for child in busy.values()),
      seconds=float("inf"),
      pause=0.2,
    )
    for core, child in list(busy.items()):
      if child.poll() is not None:
        assert child.status == 0, child.text()[-2000:]
        free.append(core)
        del busy[core]


def make_row(run: Runs) -> list[str]:
  """Returns the cells of a row, whose trainings have all ended."""
  scores = np.array([run.score(n) for n in range(1, run.options.seeds + 1)])
  drawn = np.random.default_rng(contest.SEED).choice(
    scores, [10_000, len(scores)]
  )
  cells = [run.name, run.way, str(len(scores))]
  for value, samples in (
    (scores.mean(), drawn.mean(1)),
    (scores.std(ddof=1), drawn.std(1, ddof=1)),
  ):
    least, most = np.percentile(samples, [2.5, 97.5])
    cells.append(f"{value:.1f} ({least:.1f} to {most:.1f})")
  return [*cells, f"{scores.min():.1f}", f"{scores.max():.1f}"]


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--output_dir", type=pathlib.Path, required=True)
  add("--model", type=pathlib.Path, required=True)
  add("--rate", type=float, default=5e-5, help="of learning")
  add("--epochs", type=int, default=4)
  add("--precision", choices=contest.PRECISIONS, default="float32")
  add("--tasks", nargs="+", default=["mrpc", "rte"])
  add("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
  add("--seeds", type=int, default=20, help="of each task and way")
  options = parser.parse_args()
  options.model = options.model.resolve()
  transfer.start_table(options, HEADS, {})

  rows = [Runs(t, way, options) for t in options.tasks for way in options.ways]
  # All ways get a seed before the next one, so that a table that is stopped
  # early compares equal numbers of them.
  seeds = range(1, options.seeds + 1)
  train_all([(row, seed) for seed in seeds for row in rows])
  for row in rows:
    print(f"| {' | '.join(make_row(row))} |", flush=True)


if __name__ == "__main__":
  main()
