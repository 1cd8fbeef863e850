"""Reads gigabytes of pre-training records from a cold disk. Linux only.

  python benchmarks/large_data.py --output_dir=large

It writes 16 files of records, 128 tokens each, below the folder, and deletes
them at the end. Everything is read by what run_pretraining.py reads with, in
new processes, after the files have left the page cache:

- the start of the program, which checks all files,
- a fourth of the files and all of them, by one of 16 workers, and all of them
  by one that is alone, with the most memory that each process had, and the
  bytes that came from the disk,
- updates of a model, in turns with updates of one batch that stays in memory.
  The ratio is the share of the step's speed that reading leaves.

Speeds are by the clock, and by the processor time of all threads: other
programs of the machine change the latter less.

The records are random and come again every 20,000. The default model is the
smallest one, whose step is the shortest and leaves reading the least time.
"""

import argparse
import os
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time
from typing import NamedTuple

import contest
import numpy as np
import training

FILES = 16
RECORDS = 20_000  # Different ones.
WORKERS = 16
SECONDS = 3  # For a turn of updates, about.
STEPS = 1000  # Between two looks at the clock.


class Reading(NamedTuple):
  """What a process reports of reading files once."""

  opened: float  # Seconds for the checks at the start.
  share: float  # How much was read: less than 1 if the time was up.
  examples: int
  seconds: float
  processor: float  # Seconds of all threads together.
  disk_bytes: int  # What did not come from the page cache.
  peak_memory: float  # In GB.


def make_chunk(workload: training.Workload) -> bytes:
  """Returns different records, framed as in a file."""
  from bert.data import record_writer

  columns = training.make_features(workload)
  weights = columns.pop("masked_lm_weights").tolist()
  tables = {name: column.tolist() for name, column in columns.items()}

  frames = []
  for row in range(workload.batch_size):
    features = {
      name: record_writer.int64_feature(table[row])
      for name, table in tables.items()
    }
    features["masked_lm_weights"] = record_writer.float_feature(weights[row])
    record = record_writer.encode_example(features)
    frames.append(record_writer.frame_record(record))
  return b"".join(frames)


def write_files(
  folder: pathlib.Path, chunk: bytes, size: float
) -> tuple[list[str], int]:
  """Writes files of about `size` bytes together.

  Returns:
    The paths, and how many times each of them has the chunk.
  """
  repeats = max(1, round(size / FILES / len(chunk)))
  paths = [str(folder / f"{n:02}.tfrecord") for n in range(FILES)]
  for path in paths:
    with open(path, "wb") as file:
      for _ in range(repeats):
        file.write(chunk)
  return paths, repeats


def forget(paths: list[str]) -> None:
  """Takes files out of the page cache, so that the next reader needs a disk."""
  for path in paths:
    with open(path, "rb") as file:
      os.fsync(file.fileno())  # The system keeps pages that are not written.
      os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def open_source(paths: list[str], bert_config_file: str, batch_size: int):
  """Opens records as run_pretraining.py does.

  Returns:
    The source of rows, the plan of a training of one device, the config.
  """
  from bert import run_pretraining
  from bert.cli import pretraining_records
  from bert.training import training_plan

  settings_class = run_pretraining.PretrainingSettings
  contest.set_flags(
    settings_class,
    input_file=",".join(paths),
    bert_config_file=bert_config_file,
    output_dir="unused",
    do_train="true",
    train_batch_size=batch_size,
  )
  settings = pretraining_records.read_settings(settings_class)
  config = pretraining_records.read_config(settings)
  source = pretraining_records.open_data(settings, config).source
  return source, training_plan.TrainingPlan("", 100_000, batch_size), config


def read(
  paths: list[str],
  bert_config_file: str,
  share: int,
  count: int,
  workers: int,
  most_seconds: float,
) -> Reading:
  """Reads all records of files once, in the process that it is called in.

  Args:
    paths: of the files.
    bert_config_file: of the model, which limits ids.
    share: the rows of a batch that one worker parses.
    count: of all records.
    workers: how many there are; this process is the first of them.
    most_seconds: when to stop, if not all are read.
  """
  import tensorflow as tf

  from bert.training import loop

  start = time.perf_counter()
  source, plan, _ = open_source(paths, bert_config_file, share * workers)
  opened = time.perf_counter() - start

  context = tf.distribute.InputContext(workers, 0, workers)
  batches = loop._replica_batches(source, plan, workers, context, 0)
  steps = count // plan.train_batch_size
  before = resource.getrusage(resource.RUSAGE_SELF).ru_inblock

  @tf.function
  def count_tokens(iterator, number):
    total = tf.constant(0)
    for _ in tf.range(number):
      total += tf.reduce_sum(next(iterator)["input_mask"])
    return total

  iterator = iter(batches)
  done, seconds = 0, 0.0
  start, used = time.perf_counter(), time.process_time()
  while done < steps and seconds < most_seconds:
    number = min(STEPS, steps - done)
    # All records are full.
    assert count_tokens(iterator, tf.constant(number)) == number * share * 128
    done += number
    seconds = time.perf_counter() - start

  blocks = resource.getrusage(resource.RUSAGE_SELF).ru_inblock - before
  return Reading(
    opened,
    done / steps,
    done * plan.train_batch_size,
    seconds,
    time.process_time() - used,
    512 * blocks,  # Linux counts in these, whatever the disk's own are.
    contest.peak_memory(),
  )


def train(
  paths: list[str], bert_config_file: str, batch_size: int, rounds: int
) -> list[np.ndarray]:
  """Times updates, in the process that it is called in.

  Returns:
    For each round: examples per second by the clock and by processor time, with
    one batch that stays in memory, and the same with batches of the files.
  """
  import tensorflow as tf

  from bert import heads, optimization, run_pretraining
  from bert.training import loop, training_plan

  source, plan, config = open_source(paths, bert_config_file, batch_size)
  model = heads.PretrainingModel(config, "float32")
  optimizer = optimization.create_optimizer(
    model.trainable_variables, training.LEARNING_RATE, 100_000, 10_000
  )
  strategy = tf.distribute.get_strategy()
  batches = loop._replica_batches(
    source, plan, 1, tf.distribute.InputContext(), 0
  )
  update = loop._make_train_steps(
    strategy,
    training_plan.TrainingTask(
      model, optimizer, run_pretraining.loss, source, plan
    ),
    loop._make_global_step(strategy),
    batches.element_spec,
  )

  stored = iter(batches)
  kept = iter(tf.data.Dataset.from_tensors(next(stored)).repeat())

  def time_updates(iterator, count):
    start = np.array([time.perf_counter(), time.process_time()])
    update(iterator, count)
    end = np.array([time.perf_counter(), time.process_time()])
    return count * batch_size / (end - start)

  # The first updates compile.
  time_updates(stored, 2)
  speed, _ = time_updates(kept, 10)
  count = max(1, round(SECONDS * speed / batch_size))
  speeds = []
  for _ in range(rounds):
    forget(paths)
    speeds.append(
      np.array([time_updates(kept, count), time_updates(stored, count)])
    )
  return speeds


def run_alone(function, *arguments):
  """Returns what a function returns in a new process."""
  with contest.start_process() as process:
    return process.submit(function, *arguments).result()


def print_readings(
  paths: list[str], records: int, options: argparse.Namespace
) -> float:
  """Reads some files and all, alone and as one worker; returns examples/s."""
  print(
    "| GB | workers | start, s | examples/s | MB/s | by processor second "
    "| GB from disk | peak GB |\n|---|---|---|---|---|---|---|---|"
  )
  speed = 0.0
  for number, workers in ((FILES // 4, WORKERS), (FILES, WORKERS), (FILES, 1)):
    chosen = paths[:number]
    size = sum(map(os.path.getsize, chosen)) / 1e9
    forget(chosen)
    found = run_alone(
      read,
      chosen,
      options.bert_config_file,
      options.train_batch_size,
      records * number,
      workers,
      options.most_seconds,
    )
    size *= found.share
    speed = found.examples / found.seconds
    print(
      f"| {size:.1f} | {workers} | {found.opened:.1f} | {speed:,.0f} "
      f"| {1000 * size / found.seconds:.0f} "
      f"| {found.examples / found.processor:,.0f} "
      f"| {found.disk_bytes / 1e9:.1f} "
      f"| {found.peak_memory:.2f} |",
      flush=True,
    )
  return speed


def measure(folder: pathlib.Path, options: argparse.Namespace) -> None:
  """Writes the files, reads them, and trains on them."""
  workload = training.Workload(options.bert_config_file, RECORDS, 128, 20)
  chunk = make_chunk(workload)
  start = time.perf_counter()
  paths, repeats = write_files(folder, chunk, options.gigabytes * 1e9)
  print(
    f"{FILES * repeats * RECORDS:,} records of {len(chunk) / RECORDS:.0f} bytes"
    f" in {FILES} files, written in {time.perf_counter() - start:.0f} s",
    flush=True,
  )

  reading = print_readings(paths, repeats * RECORDS, options)
  if need := options.examples_per_second:
    print(f"a step of {need:,.0f} examples/s, as given, needs", end=" ")
  else:
    speeds = run_alone(
      train,
      paths,
      options.bert_config_file,
      options.train_batch_size,
      options.rounds,
    )
    need = statistics.median(kept for (kept, _), _ in speeds)
    shares = np.median([stored / kept for kept, stored in speeds], axis=0)
    name = pathlib.Path(options.bert_config_file).stem
    print(
      f"{name}, {options.train_batch_size} x 128 tokens: {need:,.0f} examples/s"
      f" with a batch in memory; from the files it keeps {shares[0]:.1%}"
      f", {shares[1]:.1%} by processor time\nthe step needs",
      end=" ",
    )
  print(f"{need / reading:.1%} of what was read")


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--output_dir", type=pathlib.Path, required=True)
  parser.add_argument("--gigabytes", type=float, default=20)
  config_file = str(contest.ROOT / "configs" / "bert_tiny.json")
  parser.add_argument("--bert_config_file", default=config_file)
  parser.add_argument("--train_batch_size", type=int, default=32)
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--most_seconds", type=float, default=600, help="a row")
  parser.add_argument(
    "--examples_per_second",
    type=float,
    help="of a step, which is then not trained: that of another machine",
  )
  options = parser.parse_args()
  options.output_dir.mkdir(parents=True, exist_ok=True)

  # A gigabyte remains for others who use the disk.
  free = shutil.disk_usage(options.output_dir).free / 1e9 - 1
  if not 0 < options.gigabytes < free:
    sys.exit(
      f"large_data.py: --gigabytes={options.gigabytes:g}: {options.output_dir} "
      f"has room for {max(free, 0):.1f}"
    )
  print(f"on {contest.describe_machine()}")
  with tempfile.TemporaryDirectory(dir=options.output_dir) as folder:
    measure(pathlib.Path(folder), options)


if __name__ == "__main__":
  main()
