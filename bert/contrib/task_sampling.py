"""Decides which of several tasks makes which update, and its weight.

One task makes an update. Which one is a function of seed and step: nothing has
to be saved to resume.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert.data import progress

# A weight of a task: a number, or [step, weight] pairs, linear in between.
Weight = float | Sequence[tuple[int, float]]


class TaskSteps(NamedTuple):
  """The updates that one task makes; a `training_plan.Phase` for its rows."""

  is_mine: np.ndarray  # Bool [steps].
  batch_size: int

  def record_at(self, step: int) -> int:
    """Returns how many rows of the task the updates before a step took."""
    return int(self.is_mine[:step].sum()) * self.batch_size


def weights_by_step(weight: Weight, num_steps: int) -> np.ndarray:
  """Returns the weights of all steps, float32 [num_steps].

  >>> weights_by_step([(1, 1.0), (3, 0.0)], 5)
  array([1. , 1. , 0.5, 0. , 0. ], dtype=float32)
  """
  knots = [(0, weight)] if isinstance(weight, (int, float)) else weight
  steps, weights = zip(*knots, strict=True)
  return np.interp(np.arange(num_steps), steps, weights).astype(np.float32)


def rates(counts: Sequence[int], limit: int, temperature: float) -> np.ndarray:
  """Returns the share of each task by its number of examples, float64 [N].

  A task with more counts as one with `limit` (Raffel et al., section 3.5.2 of
  https://arxiv.org/abs/1910.10683). The higher the temperature, the more even;
  1 is in proportion.

  >>> rates([100, 400, 5000], limit=1600, temperature=2)
  array([0.14285714, 0.28571429, 0.57142857])
  """
  sizes = np.minimum(np.array(counts, np.float64), limit)
  sizes = (sizes / sizes.max()) ** (1 / temperature)
  return sizes / sizes.sum()


def anneal(shares: np.ndarray, num_steps: int) -> np.ndarray:
  """Makes shares more even from step to step, float64 [num_steps, N].

  Stickland & Murray, https://arxiv.org/abs/1902.02671, section 4.1: they are
  raised to a power that falls from 1 to 0.2; here by the step, not the epoch.
  """
  done = np.arange(num_steps)[:, None] / max(1, num_steps - 1)
  return shares ** (1.0 - 0.8 * done)


class TaskSchedule(NamedTuple):
  """Which of N tasks makes which update, and what the update counts."""

  shares: np.ndarray  # Float64 [N], at the first step.
  weights: np.ndarray  # Float32 [steps, N].
  task_of_step: np.ndarray  # The number of the task, int [steps].


def sample_tasks(
  weights: Sequence[Weight],
  given: Sequence[float | None],
  counts: Sequence[int],
  num_steps: int,
  settings: Any,
) -> TaskSchedule:
  """Weighs and draws the tasks of all steps; see `rates` and `anneal`.

  Args:
    weights: of each task, [N]; by it the losses of the task are multiplied.
    given: the rate of each task, [N]; None: by its number of examples.
    counts: the number of examples of each task, [N].
    num_steps: the updates of the whole training.
    settings: examples_limit, temperature, schedule and seed.

  Raises:
    ValueError: all tasks have a weight of 0 at some step.
  """
  by_step = np.stack([weights_by_step(w, num_steps) for w in weights], 1)
  idle = np.flatnonzero(~(by_step > 0).any(1))
  if len(idle):
    raise ValueError(
      f"--tasks_file: at step {idle[0]} all weights are 0; expected one above"
    )

  # A share that the file gives takes the place of the one by examples.
  by_count = rates(counts, settings.examples_limit, settings.temperature)
  pairs = zip(by_count, given, strict=True)
  shares = np.array([s if rate is None else rate for s, rate in pairs])
  shares /= shares.sum()

  is_annealed = settings.schedule == "annealed"
  drawn = anneal(shares, num_steps) if is_annealed else shares
  task_of_step = draw_tasks(drawn, by_step, settings.seed)
  return TaskSchedule(shares, by_step, task_of_step)


def check_draws(
  schedule: TaskSchedule, names: Sequence[str], idle: Collection[str] = ()
) -> None:
  """Refuses tasks that make no update, whose heads would stay untrained.

  Args:
    schedule: of a whole training.
    names: of the tasks, [N].
    idle: those that shall make none: their weight is the number 0.

  Raises:
    ValueError: names the first of such tasks.
  """
  num_steps = len(schedule.task_of_step)
  for number in np.setdiff1d(np.arange(len(names)), schedule.task_of_step):
    if names[number] in idle:
      progress.note(f"note: task {names[number]}: its weight is 0: no update")
      continue
    fault = (
      f"--tasks_file: task {names[number]!r} would make none of the "
      f"{num_steps:,} updates"
    )
    if not schedule.weights[:, number].any():
      raise ValueError(
        f"{fault}, its weight is 0 at all of them; expected one above, or "
        "leave the task out"
      )
    raise ValueError(
      f"{fault}, it is drawn with a rate of {schedule.shares[number]:.2g}; "
      "expected more updates, a larger rate or a larger --temperature"
    )


def draw_tasks(
  shares: np.ndarray, weights: np.ndarray, seed: int
) -> np.ndarray:
  """Draws the task of every update, int [steps].

  Args:
    shares: of the tasks, float [steps, N] or [N]. They need not add up to 1.
    weights: of the tasks, float [steps, N]. A task makes no update where its
      weight is 0.
    seed: of the draws.
  """
  # Task i owns the numbers from limit i - 1 to limit i.
  limits = np.cumsum(shares * (weights > 0), axis=1)
  # The n-th number of a Philox generator is a function of its key and of n.
  random = np.random.Generator(np.random.Philox(key=seed))
  points = random.random(len(limits)) * limits[:, -1]
  return (points[:, None] >= limits).sum(1)
