"""Progress of training: lines on the terminal, curves in files.

The curves are in TensorBoard's files, which are only written, and in
`curves.jsonl`, which a resumed run continues and report.html is drawn from. A
line of it is {"step": 100, "loss": 2.3, ...}: means over the steps since the
line before, or the results of an evaluation as {"step": 100, "eval/loss": ...}.
"""

import collections
from collections.abc import Callable, Mapping
import contextvars
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

# The loop reports nothing within a call, and looks for signals only after it. A
# call of the compiled loop aims at this many seconds: short enough to print
# and to notice a signal, long enough to cost nothing.
_SECONDS_PER_CALL = 2.0
_CURVES = "curves.jsonl"
_MOST_COLUMNS = 120  # A line is shorter.
_SHORT_NAMES = {"examples_per_second": "examples/s"}
MOST_POINTS = 2000  # Points of training; above, every second one is deleted.

# A call from Python sets it (on_log=): a function that gets what TensorBoard
# gets, as {"step": 100, "loss": 2.3, ...}.
ON_LOG: contextvars.ContextVar[Callable[[dict[str, float]], object] | None] = (
  contextvars.ContextVar("on_log", default=None)
)


def read_curves(
  folder: str, last: float = math.inf, name: str = _CURVES
) -> list[dict[str, float]]:
  """Reads a run's curves; notes a damaged file, and takes it for empty.

  Args:
    folder: the run's.
    last: later steps are left out.
    name: of the file in the folder.

  Returns:
    The points, in their order: values by name, among them "step".
  """
  # Curves are only for looking at: a damaged file must not stop a training.
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

    # One of several workers prints and writes.
    self._progress = progress.Progress(plan.num_train_steps, step)
    self._is_chief = strategy.extended.should_checkpoint
    self._writer = tf.summary.create_noop_writer()
    if self._is_chief:
      self._writer = tf.summary.create_file_writer(plan.output_dir)
    self._called = 0.0  # When the current call began.
    self._seconds_per_step = None
    self._on_log_warning = ""  # The last one that was printed.

    # The first call compiles the loop, so the speed is of the later ones: the
    # step they began at, and their examples.
    self._first = step
    self._examples = 0

    # Means that no line has shown yet, with the number of their steps.
    self._pending: list[tuple[int, dict[str, float]]] = []
    # Later points are of updates that will be made again.
    self._points = read_curves(plan.output_dir, step) if self._is_chief else []

  def choose_count(self, most: int) -> int:
    """Returns how many steps the next call should make, at most `most`."""
    self._called = time.monotonic()

    # The speed is unknown before the first call, so that one makes one update.
    if self._seconds_per_step is None:
      return 1

    # For a tiny update, the clock may show 0 seconds.
    count = int(_SECONDS_PER_CALL / max(self._seconds_per_step, 1e-6))
    return max(1, min(count, most, self._plan.iterations_per_loop))

  def add(
    self, step: int, count: int, means: dict[str, float], batch_size: int
  ) -> None:
    """Takes the means of a call; prints them when a line is due.

    Args:
      step: the number of updates made so far.
      count: updates of the call.
      means: by name, over the steps of the call.
      batch_size: rows per update.
    """
    self._examples += count * batch_size
    is_first_call = self._seconds_per_step is None
    self._seconds_per_step = (time.monotonic() - self._called) / count
    self._pending.append((count, means))
    self._points.append({"step": step, **means})

    # Such as `loss_watch.LossWatch`, once it has seen enough steps.
    if self._plan.watch and (warning := self._plan.watch(step, count, means)):
      self._print(f"warning: {warning}")

    # The time of the first call would make the speed too low for long.
    if is_first_call:
      self._progress.restart(step)
      self._first = step
      self._examples = 0

    is_last = step == self._plan.num_train_steps
    if is_first_call or is_last or self._progress.is_due():
      self._flush(step)

  def _flush(self, step):
    """Writes the means since the last line, and prints them if it is time."""
    if not self._pending:
      return

    # With several tasks, the calls give other names by their task.
    numbers: dict[str, list[float]] = {}
    counts: dict[str, list[int]] = {}
    for count, means in self._pending:
      for name, mean in means.items():
        numbers.setdefault(name, []).append(mean)
        counts.setdefault(name, []).append(count)
    self._pending = []

    # A number that belongs to a step, such as the learning rate, is reported as
    # it was last; all other numbers by their means.
    values = {}
    for name, series in numbers.items():
      is_of_step = score_kinds.find(name).is_of_step
      mean = np.average(series, weights=counts[name])
      values[name] = series[-1] if is_of_step else mean

    # Steps per second, divided by the steps, is one over the seconds that they
    # took. A first call has no examples yet; see `add`.
    if self._examples:
      speed = self._progress.units_per_second(step) / (step - self._first)
      values["examples_per_second"] = speed * self._examples
    self._write(step, values)

    # Before an evaluation the means are written, but a line of them may not be
    # due yet.
    last = self._plan.num_train_steps
    if step == last or self._progress.is_due():
      line = f"step {step}/{last}  ETA {self._progress.eta(step)}"
      names = sorted(values, key=lambda name: score_kinds.find(name).place)
      values = {name: values[name] for name in names}
      # A terminal keeps the last line.
      self._print(_join(line, values), step if step < last else None)

  def add_evaluation(self, step: int, results: Mapping[str, float]) -> None:
    """Writes the results of an evaluation."""
    # The means of training come first, as curves are in the order of the steps.
    self._flush(step)

    # Programs name their scores eval_accuracy; the curves eval/accuracy.
    results = {k.removeprefix("eval_"): float(v) for k, v in results.items()}
    values = {f"eval/{k}": v for k, v in results.items()}
    self._write(step, values)
    self._points.append({"step": step, **values})

    # The scores of all tasks together come first; a task's have its name and a
    # slash.
    names = sorted(results, key=lambda name: "/" in name)
    line = f"evaluation at step {step}:"
    self._print(_join(line, {name: results[name] for name in names}))
    self.save()

  def save(self) -> None:
    """Writes the curves, thinned out.

    Call it after the checkpoint was saved: if the disk is full, the message
    about the checkpoint is of more use.
    """
    # Half of them stays, evenly spread; all evaluations do.
    training = [p for p in self._points if not _is_evaluation(p)]
    for point in training[::2] if len(training) > MOST_POINTS else ():
      self._points.remove(point)
    if self._is_chief:
      path = os.path.join(self._plan.output_dir, _CURVES)
      files.write_lines(path, map(json.dumps, self._points))

  def close(self, step: int, is_finished: bool) -> None:
    """Prints pending means and the place of the results."""
    # Ctrl-C also ends a program that reads the output; this one must not fail
    # when it writes the last lines.
    progress.leave_broken_streams()
    self._flush(step)
    self._writer.close()
    self.save()
    if not self._is_chief:
      return

    progress.clear()
    folder = self._plan.output_dir
    last = self._plan.num_train_steps
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
    if self._is_chief and (on_log := ON_LOG.get()):
      self._call(on_log, step, values)

  def _call(self, on_log, step, values):
    """Calls the user's function; prints an error of it, and continues."""
    # What the function prints must not stand behind the live line.
    progress.clear()
    try:
      on_log({"step": step, **{k: float(v) for k, v in values.items()}})
    except Exception as error:
      # A server that receives the curves may be away for a minute of a night.
      # While it is away, all calls fail in the same way.
      warning = f"warning: on_log raised {error!r}; training continues"
      if warning != self._on_log_warning:
        self._print(warning)
      self._on_log_warning = warning

  def _print(self, line, done=None):
    if self._is_chief:
      # A terminal may be closed in the night: what else prints must not fail.
      progress.leave_broken_streams()
      self._progress.print_line(line, done)


def _join(line: str, values: Mapping[str, float]) -> str:
  """Adds the values that a line has room for, under short names.

  >>> _join("step 1", {"loss": 2.5, "span_loss": 2.5, "learning_rate": 1e-4})
  'step 1  loss 2.5  learning_rate 0.0001'
  """
  # With several tasks, a name begins with the task: `squad/span_loss`.
  losses = [name for name in values if name.endswith("_loss")]
  tasks = collections.Counter(map(os.path.dirname, losses))
  for name, value in values.items():
    task, own = os.path.split(name)
    if name in losses and tasks[task] == 1:
      continue  # It is the loss of its task.
    own = _SHORT_NAMES.get(own, own.removesuffix("_loss"))
    part = f"  {os.path.join(task, own)} {value:.4g}"
    if len(line + part) < _MOST_COLUMNS:
      line += part
  return line
