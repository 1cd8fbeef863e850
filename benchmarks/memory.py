"""Measures the memory of training, and the largest batches that fit into some.

  python benchmarks/memory.py

Fine-tunes a classifier with random weights, as run_classifier.py does. Each
measurement is the most memory that a new process has had after its updates,
TensorFlow's own 0.6 GB included; one process runs at a time, and is killed as
soon as it has more than it may. First BERT-Base on 8 x 512 tokens, with and
without --recompute: memory and time of an update. Then the largest batches: the
estimate of bert/training/memory.py is where the search begins, the batch found
has run, and the next larger one has not fitted. Batches above 16 are in steps
of an eighth.

What fits only with --recompute takes minutes per measurement; all cases that
the original published take hours:

  python benchmarks/memory.py --models=base,large \
    --lengths=64,128,256,320,384,512 --recompute=false,true

Linux only.
"""

import argparse
from concurrent import futures
from concurrent.futures import process as process_pool
import functools
import os
import pathlib
import re
import signal
import statistics
import sys
from typing import NamedTuple

import contest
import numpy as np

# What the original publishes: the largest batch in 12 GB of a GPU, by length.
PUBLISHED = {
  "base": {64: 64, 128: 32, 256: 16, 320: 14, 384: 12, 512: 6},
  "large": {64: 12, 128: 6, 256: 2, 320: 1, 384: 0, 512: 0},
}
PARTS = ["step", "batches"]


class Workload(NamedTuple):
  """An update."""

  model: str  # As in configs/bert_<model>.json.
  batch_size: int
  length: int
  precision: str
  recompute: bool

  def __str__(self) -> str:
    kind = ", --recompute" if self.recompute else ""
    shape = f"{self.batch_size} x {self.length}"
    return f"BERT-{self.model.title()} {shape}, {self.precision}{kind}"


class Search(NamedTuple):
  """The outcome of a search for the largest batch."""

  batch_size: int  # 0 if not even one sequence fits.
  peak: float  # In gigabytes; 0 if none fits.
  too_large: int  # The next larger batch, which does not fit.


def main() -> None:
  arguments = make_parser().parse_args()
  if "step" in arguments.parts:
    compare_steps(arguments)
  if "batches" in arguments.parts:
    find_batches(arguments)


def make_parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  listing = functools.partial(parser.add_argument, type=contest.split)
  listing("--parts", default=PARTS, help="step, batches or both")
  listing("--precisions", default=["float32"], help="float32, bfloat16")
  listing("--models", default=["base"], help="of the largest batches")
  listing("--lengths", default=["64", "128", "512"])
  listing("--gigabytes", default=["12"])
  listing("--recompute", default=["false"], help="false, true or both")
  parser.add_argument("--steps", type=int, default=2, help="timed, per update")
  parser.add_argument("--batch_size", type=int, default=8, help="of the update")
  parser.add_argument("--length", type=int, default=512, help="of the update")
  parser.add_argument("--model", default="base", help="of the update")
  return parser


# One update.


def make_step(workload: Workload) -> contest.Turn:
  """Makes the update of run_classifier.py, with random weights and tokens."""
  import tensorflow as tf

  from bert import heads, modeling, optimization, run_classifier
  from bert.training import loop, memory, training_plan

  dtype = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
  config = modeling.BertConfig.from_json_file(config_file(workload.model))
  model = heads.ClassifierModel(config, 2, dtype[workload.precision])
  if workload.recompute:
    memory.recompute_layers(model.bert)
  optimizer = optimization.create_optimizer(
    model.trainable_variables, 2e-5, 1000, 100
  )
  features = make_features(workload, config.vocab_size)
  batches = tf.data.Dataset.from_tensors(features).repeat()
  strategy = tf.distribute.get_strategy()
  loss = functools.partial(
    run_classifier.loss,
    problem_name="single_label",
    class_weights=tf.ones([2]),
  )
  plan = training_plan.TrainingPlan("", 1000, workload.batch_size)
  train_steps = loop._make_train_steps(
    strategy,
    training_plan.TrainingTask(model, optimizer, loss, None, plan),
    loop._make_global_step(strategy),
    batches.element_spec,
  )
  iterator = iter(batches)
  return contest.Turn(
    lambda: train_steps(iterator, 1)["loss"], workload.batch_size
  )


def make_features(workload: Workload, words: int) -> dict[str, np.ndarray]:
  """Makes a batch of full sequences."""
  random = np.random.default_rng(0)
  shape = [workload.batch_size, workload.length]
  features = {
    "input_ids": random.integers(0, words, shape),
    "input_mask": np.ones(shape),
    "segment_ids": np.zeros(shape),
    "label_ids": random.integers(0, 2, [workload.batch_size, 1]),
    "is_real_example": np.ones([workload.batch_size]),
  }
  return {name: value.astype(np.int32) for name, value in features.items()}


def config_file(model: str) -> str:
  return str(contest.ROOT / "configs" / f"bert_{model}.json")


def measure(
  workload: Workload, updates: int, limit: float
) -> list[contest.Timing] | None:
  """Makes updates in a new process.

  Args:
    workload: of each update.
    updates: their number.
    limit: in gigabytes.

  Returns:
    The timing of each; None if they take more memory than the limit.
  """
  timings = []
  with contest.start_process() as process:
    pid = process.submit(os.getpid).result()
    make = functools.partial(make_step, workload)
    for _ in range(updates):
      future = process.submit(contest.time_turn, "update", make)
      if not wait_below(future, pid, limit):
        return None
      timings.append(future.result())
  return timings if timings[-1].peak_memory <= limit else None


def wait_below(future: futures.Future, pid: int, limit: float) -> bool:
  """Returns whether a process stays below a limit, else kills it."""
  while not future.done():
    if read_memory(pid) > limit:
      os.kill(pid, signal.SIGKILL)
      return False
    futures.wait([future], timeout=0.02)
  error = future.exception()
  if isinstance(error, process_pool.BrokenProcessPool):
    return False  # Killed by the system: it had no more memory.
  return type(error).__name__ != "ResourceExhaustedError"


def read_memory(pid: int) -> float:
  """Returns the memory that a process has, in gigabytes."""
  try:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
  except OSError:
    return 0.0
  found = re.search(r"VmRSS:\s+(\d+) kB", status)
  return int(found[1]) / 2**20 if found else 0.0  # None of what has ended.


def estimate_peak(workload: Workload) -> float:
  """Returns what bert/training/memory.py says of an update, in gigabytes."""
  from bert import modeling
  from bert.training import memory

  config = modeling.BertConfig.from_json_file(config_file(workload.model))
  size = contest.make_update_size(
    config,
    "encoder",
    workload.precision,
    sequences=workload.batch_size,
    predictions=0,
    length=workload.length,
    recompute=workload.recompute,
  )
  return memory.estimate(config, size) / memory.GIGABYTE


def free_memory() -> float:
  """Returns the memory that processes could have now, in gigabytes."""
  import tensorflow as tf

  from bert.training import memory

  found = memory.available(tf.distribute.get_strategy())
  return found[0] / memory.GIGABYTE if found else 0.0


# What is measured.


def compare_steps(arguments: argparse.Namespace) -> None:
  """Prints memory and time of an update, with and without --recompute."""
  limit, rows = 0.9 * free_memory(), []
  for precision in arguments.precisions:
    for recompute in (False, True):
      workload = Workload(
        arguments.model,
        arguments.batch_size,
        arguments.length,
        precision,
        recompute,
      )
      timings = measure(workload, 1 + arguments.steps, limit)
      rows.append(describe_step(workload, timings, limit))
      print(rows[-1], flush=True)
  print("\n| update | peak GB | estimate | seconds |\n|---|---|---|---|")
  print("\n".join(rows), flush=True)


def describe_step(
  workload: Workload, timings: list[contest.Timing] | None, limit: float
) -> str:
  """Puts memory and time of an update into a row of a table."""
  guess = estimate_peak(workload)
  if not timings:
    return f"| {workload} | above {limit:.1f} | {guess:.2f} | |"
  timed = timings[1:] or timings  # The first one compiled the update.
  seconds = statistics.median(workload.batch_size / t.speed for t in timed)
  note = "; disturbed" * any(map(contest.is_disturbed, timed))
  peak = timings[-1].peak_memory
  return f"| {workload} | {peak:.2f} | {guess:.2f} | {seconds:.1f}{note} |"


def find_batches(arguments: argparse.Namespace) -> None:
  """Prints the largest batch that fits, for each cell that is asked for."""
  rows = []
  for size in map(float, arguments.gigabytes):
    if size > free_memory():
      print(f"skipped: {size:g} GB, of which {free_memory():.1f} are free")
      continue
    for model in arguments.models:
      for precision in arguments.precisions:
        for recompute in arguments.recompute:
          rows += find_row(
            model, precision, recompute == "true", arguments.lengths, size
          )
  lengths = "".join(f" {length} |" for length in arguments.lengths)
  print(f"\n| largest batch at length |{lengths}")
  print("|---|" + "---|" * len(arguments.lengths))
  print("\n".join(rows), flush=True)


def find_row(
  model: str, precision: str, recompute: bool, lengths: list[str], size: float
) -> list[str]:
  """Finds the largest batch of each length; returns rows of a table."""
  ours, theirs = [], []
  for length in map(int, lengths):
    workload = Workload(model, 1, length, precision, recompute)
    found = find_largest(workload, size)
    print(
      f"{size:g} GB, {workload._replace(batch_size=found.batch_size)}: "
      f"{found.peak:.2f} GB; {found.too_large} do not fit",
      flush=True,
    )
    ours.append(str(found.batch_size))
    theirs.append(str(PUBLISHED.get(model, {}).get(length, "")))
  kind = ", --recompute" if recompute else ""
  title = f"{size:g} GB, BERT-{model.title()}, {precision}{kind}"
  rows = [f"| {title} | {' | '.join(ours)} |"]
  if size == 12 and not recompute and precision == "float32":
    title = f"the original, BERT-{model.title()}, GPU of 12 GB"
    rows.append(f"| {title} | {' | '.join(theirs)} |")
  return rows


def find_largest(workload: Workload, limit: float) -> Search:
  """Finds the largest batch that fits, by updates that are really made.

  Memory grows by as much for every sequence: each measurement tells where to
  look next.
  """
  fits, too_large, peak = 0, 0, 0.0
  small, large = (
    estimate_peak(workload._replace(batch_size=size)) for size in (1, 101)
  )
  by_sequence = (large - small) / 100
  guess = round_down(1 + (limit - small) / by_sequence)
  while next_larger(fits) != too_large:
    size = max(guess, next_larger(fits))
    if too_large:
      size = min(size, next_smaller(too_large))
    timings = measure(workload._replace(batch_size=size), 1, limit)
    print(
      f"  {workload._replace(batch_size=size)}: "
      + (f"{timings[-1].peak_memory:.2f} GB" if timings else "does not fit"),
      flush=True,
    )
    if timings:
      fits, peak = size, timings[-1].peak_memory
      guess = round_down(fits + (limit - peak) / by_sequence)
    else:
      too_large = size
      guess = next_smaller(size)
  return Search(fits, peak, too_large)


def round_down(size: float) -> int:
  """Returns the next batch size at or below a number: of four binary digits.

  >>> [round_down(size) for size in (-3, 7.9, 17, 63, 100)]
  [0, 7, 16, 60, 96]
  """
  size = max(int(size), 0)
  step = step_of(size)
  return size // step * step


def step_of(size: int) -> int:
  return 2 ** max(0, size.bit_length() - 4)


def next_larger(size: int) -> int:
  return size + step_of(size)


def next_smaller(size: int) -> int:
  return round_down(size - 1)


if __name__ == "__main__":
  sys.exit(main())
