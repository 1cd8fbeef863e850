"""Calculates a training on many devices from one update: --dry_run.

With N devices, A micro-batches a step, t seconds for an update of one
micro-batch, P trained parameters and W bytes a second over the slowest link
between devices, a step takes

  A t + 2 (N - 1) / N x 4 P / W

seconds. The second term is the all-reduce in a ring: each device sends P
gradients of 4 bytes twice, but for its own Nth part (Patarasuk and Yuan, 2009,
https://doi.org/10.1016/j.jpdc.2008.09.002). It begins when the last gradient is
computed, as in bert/training/step.py; its latency is left out.
"""

import dataclasses
import math
import statistics
import timeit
from typing import NamedTuple

import tensorflow as tf

from bert import heads, optimization
from bert.cli import pretraining, training_run
from bert.inputs import training_input
from bert.training import loop, memory, training_plan

_HEADER = (
  "  accumulation    batch      steps     hours  communication"
  "   linear  square root"
)
_ROW = "{:14,}{:9,}{:11,}{:10,.1f}{:15.1%}{:9.3g}{:13.3g}"
_RULES = """\
  learning rates: rules of thumb, for k times the batch of --learning_rate
    linear       k times the rate: Goyal et al. 2017,
                 https://arxiv.org/abs/1706.02677
    square root  sqrt(k) times the rate: Krizhevsky 2014,
                 https://arxiv.org/abs/1404.5997; You et al. 2019 (LAMB),
                 https://arxiv.org/abs/1904.00962"""


class Plan(NamedTuple):
  """A training with some number of micro-batches a step, all of one size."""

  accumulation: int
  batch: int
  steps: int  # Which see as many examples as the steps asked for.
  hours: float
  communication: float  # Its share of a step.
  linear: float  # The learning rate by either rule.
  square_root: float


def all_reduce_seconds(
  parameters: int, num_devices: int, gigabits: float
) -> float:
  """Returns how long devices take to add up their gradients.

  >>> all_reduce_seconds(110_000_000, num_devices=16, gigabits=100)
  0.066
  """
  sent = 2 * (num_devices - 1) / num_devices * 4 * parameters
  return sent / (gigabits * 1e9 / 8)


def smallest_accumulation(update: float, all_reduce: float) -> int:
  """Returns the fewest micro-batches with less than 10 % communication.

  >>> smallest_accumulation(update=0.3, all_reduce=0.2)
  7
  """
  # The smallest A with 9 all_reduce < A update.
  return math.floor(9 * all_reduce / update) + 1


def make_plan(
  given: training_plan.TrainingPlan,
  rate: float,
  update: float,
  all_reduce: float,
  accumulation: int,
) -> Plan:
  """Returns the plan of a training with another accumulation.

  Args:
    given: the training that was asked for.
    rate: its learning rate.
    update: seconds for an update of one micro-batch on one device.
    all_reduce: seconds for an all-reduce.
    accumulation: the micro-batches a step, of the size of those of `given`.
  """
  k = accumulation / given.gradient_accumulation_steps
  steps = math.ceil(given.num_train_steps / k)
  seconds = accumulation * update + all_reduce
  return Plan(
    accumulation,
    round(k * given.train_batch_size),
    steps,
    steps * seconds / 3600,
    all_reduce / seconds,
    k * rate,
    math.sqrt(k) * rate,
  )


def show(
  settings: pretraining.DryRunSettings,
  model: heads.PretrainingModel,
  loss: training_plan.Loss,
  source: training_input.TrainingInput,
  strategy: tf.distribute.Strategy,
) -> None:
  """Times an update, and prints how the training of --dry_run would go.

  Args:
    settings: the flags.
    model: new; the updates change it.
    loss: what is minimised.
    source: the records.
    strategy: of one device.
  """
  num_devices, gigabits = settings.dry_run, settings.bandwidth_gbit
  assert num_devices and gigabits  # The settings' `check` has asked for both.
  rate = settings.learning_rate
  given = training_run.make_plan(settings, settings.num_train_steps)

  # What a device would compute at a time: a micro-batch of its share.
  parts = given.gradient_accumulation_steps
  rows = given.train_batch_size // (num_devices * parts)

  # The optimizer is that of a training: its update is a part of the time.
  optimizer = optimization.create_optimizer(
    model.trainable_variables,
    rate,
    given.num_train_steps,
    settings.num_warmup_steps,
  )
  task = training_plan.TrainingTask(model, optimizer, loss, source, given)

  # Time and communication are of one micro-batch; the memory is of a share.
  update = _time_update(strategy, task, rows)
  size = _size_of_update(settings, task, rows * parts)
  needed = memory.estimate(model.bert.config, size) / memory.GIGABYTE
  all_reduce = all_reduce_seconds(size.trained, num_devices, gigabits)
  print(
    f"--dry_run={num_devices} at {gigabits:g} Gb/s: nothing was trained or "
    f"written\n  each device: {needed:,.1f} GB for {rows} x {size.length} "
    f"tokens at a time; {rows / update:,.3g} examples/s, as measured here\n"
    f"  each step: an all-reduce of {size.trained:,} gradients, "
    f"{all_reduce:,.3g} s\n{_HEADER}"
  )

  # More micro-batches mean a larger batch and fewer steps. The rows begin with
  # what the flags ask for; one of them is the first with little communication.
  enough = smallest_accumulation(update, all_reduce)
  for n in sorted({parts, 2 * parts, 4 * parts, 8 * parts, enough}):
    print(_ROW.format(*make_plan(given, rate, update, all_reduce, n)))
  print(
    "  communication is below 10 % from --gradient_accumulation_steps="
    f"{enough} --train_batch_size={enough * num_devices * rows} on\n{_RULES}"
  )


def _time_update(strategy, task, rows):
  """Returns the seconds of an update of the training loop, of some rows."""
  plan = dataclasses.replace(
    task.plan, train_batch_size=rows, gradient_accumulation_steps=1
  )
  step = tf.Variable(tf.constant(0, tf.int64), trainable=False)
  update = loop.make_runner(strategy, "", task._replace(plan=plan), step)
  # The first updates also record and compile what they do.
  seconds = timeit.repeat(lambda: update(1), number=1, repeat=7)
  return statistics.median(seconds[2:])


def _size_of_update(settings, task, rows):
  """Returns the size of a device's share of an update."""
  lengths = {
    "input_ids": settings.max_seq_length,
    "masked_lm_positions": settings.max_predictions_per_seq,
  }
  signature = {n: tf.TensorSpec([rows, size]) for n, size in lengths.items()}
  return memory.size_of_update(task, signature)
