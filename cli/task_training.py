"""Trains tasks as the flags say, and keeps the best weights."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import os
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cli import flag_values
from training import loop
from training import model_selection
from training import workers


def evaluates(settings: flag_values.Settings) -> bool:
  """Tells whether training is interrupted by evaluations."""
  return bool(
    settings.do_train
    and (settings.eval_every_steps or settings.eval_every_epochs)
  )


def check_evaluations(settings: flag_values.Settings) -> None:
  """Raises a ValueError if the flags of evaluations contradict each other.

  So do best weights of an earlier training, which programs would use instead of
  those of one without evaluations.
  """
  if settings.eval_every_steps and settings.eval_every_epochs:
    raise ValueError(
      "--eval_every_steps and --eval_every_epochs: pass only one"
    )
  patience = settings.early_stopping_patience
  if settings.do_train and patience and not evaluates(settings):
    raise ValueError(
      f"--early_stopping_patience={patience} needs --eval_every_epochs or "
      "--eval_every_steps"
    )
  best = model_selection.best_step(settings.output_dir)
  if settings.do_train and best is not None and not evaluates(settings):
    raise ValueError(
      f"--output_dir={settings.output_dir}: its best weights, of step {best}, "
      "would be used instead of those of a training without evaluations: pass "
      "--eval_every_epochs or --eval_every_steps, or move the folder best away"
    )


def settings_by_seed(
  settings: flag_values.Settings,
) -> dict[int, flag_values.Settings]:
  """Returns the settings of each run: one run, or one for each seed."""
  if not settings.seeds:
    return {settings.seed: settings}
  are_numbers = all(seed.isdecimal() for seed in settings.seeds)
  if not are_numbers or len({*map(int, settings.seeds)}) < len(settings.seeds):
    raise ValueError(
      f"--seeds={','.join(settings.seeds)}: expected different numbers, such "
      "as 1,2,3"
    )
  by_seed = {}
  for seed in map(int, settings.seeds):
    folder = os.path.join(settings.output_dir, f"seed-{seed}")
    by_seed[seed] = dataclasses.replace(settings, seed=seed, output_dir=folder)
  return by_seed


def named_for_evaluation(scores: Mapping[str, float]) -> dict[str, float]:
  """Renames scores as the original names those of evaluations."""
  return {f"eval_{name}": value for name, value in scores.items()}


class Trained(NamedTuple):
  """What training ended with."""

  step: int  # Of the weights.
  score: str  # The best one, in words; "" if there was no evaluation.


def train(
  settings: flag_values.Settings,
  strategy: tf.distribute.Strategy,
  tasks: Mapping[str, loop.TrainingTask],
  draws: np.ndarray,
  plan: loop.TrainingPlan,
  evaluate: Callable[[], Mapping[str, float]],
  metric: str,
) -> Trained:
  """Trains or resumes; restores the best weights if any were kept.

  SIGINT and SIGTERM save, then exit with status 128 + signal number.

  Args:
    strategy, tasks, draws, plan: see `loop.train_tasks`.
    evaluate: scores the weights, by name.
    metric: the score that decides which weights are best.
  """
  history = None
  if evaluates(settings):
    history = model_selection.History(
      settings.output_dir,
      f"eval_{metric}",
      settings.early_stopping_patience,
      writes=strategy.extended.should_checkpoint,
    )

  def evaluate_at(step):
    return named_for_evaluation(evaluate())

  step, interrupted_by = loop.train_tasks(
    strategy, tasks, draws, plan, evaluate_at, history
  )
  if interrupted_by:
    sys.exit(128 + interrupted_by)
  if history:
    workers.wait_for_all(strategy)
    variables, _ = loop.name_variables(tasks)
    best = model_selection.restore_best(settings.output_dir, variables)
    if best is not None:
      print(f"weights from the best evaluation: {history.summary()}")
      return Trained(best, history.summary())
  return Trained(step, "")
