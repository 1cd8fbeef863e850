"""Progress of training: lines on the terminal, curves in files.

The curves are in TensorBoard's files, which are only written, and in
`curves.jsonl`, which a resumed run continues and report.html is drawn from. A
line of it is {"step": 100, "loss": 2.3, ...}: means over the steps since the
line before, or the results of an evaluation as {"step": 100, "eval/loss": ...}.
"""

import collections
from collections.abc import Mapping
import json
import math
import os
import time

import numpy as np
import tensorflow as tf

from bert.data import files, progress
from bert.report import score_kinds
from bert.training import training_plan
from bert.weights import checkpoints

# A call of the compiled loop aims at this many seconds: short enough to print
# and to notice a signal, long enough to cost nothing.
_SECONDS_PER_CALL = 2.0
_CURVES = "curves.jsonl"
_MOST_COLUMNS = 120  # A line is shorter.
_SHORT_NAMES = {
  "examples_per_second": "examples/s",
  "gradient_norm": "gradient",
  "learning_rate": "rate",
}
MOST_POINTS = 2000  # Points of training; above, every second one is deleted.


def read_curves(
  folder: str, last: float = math.inf, name: str = _CURVES
) -> list[dict[str, float]]:
  """Reads a run's curves up to a step; [] without any. Notes a damaged file."""
  path = os.path.join(folder, name)
  try:
    lines = list(files.read_lines(path)) if files.exists(path) else []
    points = map(json.loads, lines)
    return [point for point in points if float(point["step"]) <= last]
  except (ValueError, KeyError, TypeError) as error:
    progress.note(f"note: {path} is not read, damaged: {error!r}")
    return []


def was_evaluated(folder: str, step: int) -> bool:
  """Returns whether the curves of a run hold an evaluation of a step."""
  points = read_curves(folder, step)
  return any(p["step"] == step for p in points if _is_evaluation(p))


def _is_evaluation(point: Mapping[str, float]) -> bool:
  return any(name.startswith("eval/") for name in point)


class Reporter:
  """Prints and records the loop's means; sets the length of its calls."""

  def __init__(
    self,
    plan: training_plan.TrainingPlan,
    step: int,
    strategy: tf.distribute.Strategy,
  ):
    self._plan = plan
    self._progress = progress.Progress(plan.num_train_steps, step)
    self._is_chief = strategy.extended.should_checkpoint
    self._writer = tf.summary.create_noop_writer()
    if self._is_chief:
      self._writer = tf.summary.create_file_writer(plan.output_dir)
    self._called = 0.0  # When the current call began.
    self._seconds_per_step = None
    # The speed is of the updates after the first, and of their examples.
    self._first, self._examples = step, 0
    self._pending: list[tuple[int, dict[str, float]]] = []
    # Later points are of updates that will be made again.
    self._points = read_curves(plan.output_dir, step) if self._is_chief else []

  def choose_count(self, most: int) -> int:
    """Returns how many steps the next call should make, at most `most`."""
    self._called = time.monotonic()
    if self._seconds_per_step is None:
      return 1
    count = int(_SECONDS_PER_CALL / max(self._seconds_per_step, 1e-6))
    return max(1, min(count, most, self._plan.iterations_per_loop))

  def add(
    self, step: int, count: int, means: dict[str, float], batch_size: int
  ) -> None:
    """Takes the means of a call; prints them when a line is due."""
    self._examples += count * batch_size
    first_call = self._seconds_per_step is None
    self._seconds_per_step = (time.monotonic() - self._called) / count
    self._pending.append((count, means))
    self._points.append({"step": step, **means})
    if self._plan.watch and (warning := self._plan.watch(step, count, means)):
      self._print(f"warning: {warning}")
    if first_call:  # It compiled the loop: do not time it.
      self._progress.restart(step)
      self._first, self._examples = step, 0
    last = step == self._plan.num_train_steps
    if first_call or last or self._progress.is_due():
      self._flush(step)

  def _flush(self, step):
    if not self._pending:
      return
    pending, self._pending = self._pending, []
    values = {}
    # The calls differ in their task; those of one give the same names.
    for name in dict.fromkeys(name for _, means in pending for name in means):
      found = [(means[name], n) for n, means in pending if name in means]
      numbers, counts = zip(*found, strict=True)
      is_last = score_kinds.find(name).is_of_step
      mean = np.average(numbers, weights=counts)
      values[name] = numbers[-1] if is_last else mean
    if self._examples:
      speed = self._progress.units_per_second(step) / (step - self._first)
      values["examples_per_second"] = speed * self._examples
    self._write(step, values)
    last = self._plan.num_train_steps
    if step == last or self._progress.is_due():
      line = f"step {step}/{last}  ETA {self._progress.eta(step)}"
      names = sorted(values, key=lambda name: score_kinds.find(name).place)
      values = {name: values[name] for name in names}
      # A terminal keeps the last line.
      self._print(_join(line, values), step if step < last else None)

  def add_evaluation(self, step: int, results: Mapping[str, float]) -> None:
    """Writes the results of an evaluation."""
    self._flush(step)
    results = {k.removeprefix("eval_"): float(v) for k, v in results.items()}
    values = {f"eval/{k}": v for k, v in results.items()}
    self._write(step, values)
    self._points.append({"step": step, **values})
    # First what is of all tasks.
    shown = {n: results[n] for n in sorted(results, key=lambda n: "/" in n)}
    self._print(_join(f"evaluation at step {step}:", shown))
    self.save()

  def save(self) -> None:
    """Writes the curves; after a checkpoint, whose faults tell more."""
    training = [p for p in self._points if not _is_evaluation(p)]
    for point in training[::2] if len(training) > MOST_POINTS else ():
      self._points.remove(point)
    if self._is_chief:
      path = os.path.join(self._plan.output_dir, _CURVES)
      files.write_lines(path, map(json.dumps, self._points))

  def close(self, step: int, is_finished: bool) -> None:
    """Prints pending means and the place of the results."""
    progress.leave_closed_pipes()
    self._flush(step)
    self._writer.close()
    self.save()
    if not self._is_chief:
      return
    progress.clear()
    folder, last = self._plan.output_dir, self._plan.num_train_steps
    if not is_finished:
      again = "run the same command again to resume"
      print(f"stopped at step {step} of {last}; {again}")
    print(f"wrote {checkpoints.checkpoint_prefix(folder, step)}")
    print(f"curves: tensorboard --logdir={folder}", flush=True)

  def _write(self, step, values):
    try:
      with self._writer.as_default(step=step):
        for name, value in values.items():
          tf.summary.scalar(name, value)
      self._writer.flush()
    except tf.errors.OpError as error:  # A full disk; there may be room later.
      self._print(f"TensorBoard's curves are not written: {error.message}")

  def _print(self, line, done=None):
    if self._is_chief:
      self._progress.print_line(line, done)


def _join(line: str, values: Mapping[str, float]) -> str:
  """Adds the values that a line has room for, under short names.

  >>> _join("step 1", {"loss": 2.5, "span_loss": 2.5, "learning_rate": 1e-4})
  'step 1  loss 2.5  rate 0.0001'
  """
  losses = [name for name in values if name.endswith("_loss")]
  tasks = collections.Counter(map(os.path.dirname, losses))
  for name, value in values.items():
    task, own = os.path.split(name)
    if name in losses and tasks[task] == 1:
      continue  # It is the loss of its task.
    own = _SHORT_NAMES.get(own, own.removesuffix("_loss"))
    part = f"  {os.path.join(task, own)} {value:.4g}"
    line += part * (len(line + part) < _MOST_COLUMNS)
  return line
