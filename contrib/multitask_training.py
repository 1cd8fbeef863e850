"""Trains several tasks that share an encoder, and scores them together."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from cli import fine_tuning, task_settings
from contrib import shared_tasks, task_files, task_sampling
from training import loop, model_selection, same_run
from weights import checkpoints

Tasks = Mapping[str, shared_tasks.SharedTask]


def share_encoder(runs: Sequence[fine_tuning.Run]) -> None:
  """Makes all models use the encoder of the first, variable by variable.

  What a task trains of it stays the task's own: a tagger does not update the
  pooler, which it does not use.
  """
  first, *others = [run.model.bert.variables for run in runs]
  for variables in others:
    for mine, shared in zip(variables, first, strict=True):
      mine._value = shared.value


def make_plan(settings: Any, steps_per_epoch: float) -> loop.TrainingPlan:
  """Makes the plan of the run; see `fine_tuning.make_plan`."""
  if settings.num_train_steps:
    epochs = (settings.num_train_steps + 0.5) / steps_per_epoch
    settings = dataclasses.replace(settings, num_train_epochs=epochs)
  return fine_tuning.make_plan(settings, steps_per_epoch)


def evaluate(tasks: Tasks) -> dict[str, float]:
  """Scores all tasks: their scores by <task>/<score>, and the mean.

  Percentages count as fractions in the mean.
  """
  scores, chosen = {}, []
  for name, task in tasks.items():
    own = task.evaluate()
    scores |= {f"{name}/{key}": value for key, value in own.items()}
    chosen.append(own[task.run.data.metric] / task.max_score)
  return {**scores, task_files.MEAN: float(np.mean(chosen))}


def choose_metric(best_metric: str | None, tasks: Tasks) -> str:
  """Returns the name of the score that decides which weights are best.

  Raises:
    ValueError: it is a mean of scores of which some are better if lower.
  """
  chosen = (best_metric or task_files.MEAN).partition("/")[0]
  if chosen != task_files.MEAN:
    return f"{chosen}/{tasks[chosen].run.data.metric}"
  for name, task in tasks.items():
    metric = task.run.data.metric
    if model_selection.is_better_if_lower(metric):
      raise ValueError(
        f"task {name!r}: best_metric is {metric}: a mean needs scores that are "
        "better if higher; or pass --best_metric=<task>/<score>"
      )
  return task_files.MEAN


def describe_training(
  settings: Any,
  entries: Sequence[task_files.Entry],
  tasks: Tasks,
  num_train_steps: int,
) -> dict[str, Any]:
  """Returns what a run that resumes the training must agree with."""
  described = {
    "schedule": settings.schedule,
    "temperature": settings.temperature,
    "examples_limit": settings.examples_limit,
    "best_metric": settings.best_metric,
    "num_train_steps": num_train_steps,
  }
  for entry in entries:
    training = tasks[entry.name].run.record.training or {}
    mine = {**training, **entry._asdict()}
    del mine["place"]
    described |= {f"{entry.name}.{key}": value for key, value in mine.items()}
  described["tasks"] = ", ".join(entry.name for entry in entries)
  return described


def sample_tasks(
  settings: Any,
  entries: Sequence[task_files.Entry],
  counts: Sequence[int],
  num_train_steps: int,
) -> task_sampling.TaskSchedule:
  """Decides which task makes which update; prints the rates.

  Args:
    counts: of the tasks' examples.
  """
  schedule = task_sampling.sample_tasks(
    [entry.weight for entry in entries],
    [entry.rate for entry in entries],
    task_sampling.SamplingSettings(
      num_steps=num_train_steps,
      seed=settings.seed,
      examples_limit=settings.examples_limit,
      temperature=settings.temperature,
      schedule=settings.schedule,
    ),
    counts,
  )
  for entry, share, count in zip(entries, schedule.shares, counts, strict=True):
    print(f"task {entry.name}: {count:,} examples, rate {share:.4f}")
  return schedule


def train(
  settings: Any,
  strategy: tf.distribute.Strategy,
  entries: Sequence[task_files.Entry],
  tasks: Tasks,
) -> None:
  """Trains or resumes; saves the model of each task in the task's folder.

  Args:
    settings: of run_multitask.py.
  """
  runs = [task.run for task in tasks.values()]
  share_encoder(runs)
  counts = [run.data.train.rows_per_epoch for run in runs]
  sizes = [run.settings.train_batch_size for run in runs]
  epoch = sum(n / size for n, size in zip(counts, sizes, strict=True))
  plan = make_plan(settings, epoch)
  schedule = sample_tasks(settings, entries, counts, plan.num_train_steps)
  metric = choose_metric(settings.best_metric, tasks)
  training = describe_training(settings, entries, tasks, plan.num_train_steps)
  task_settings.check_evaluations(settings)
  same_run.resume_training(settings.output_dir, training, runs[0].is_chief)
  trained: dict[str, loop.TrainingTask] = {}
  for i, (name, task) in enumerate(tasks.items()):
    mine = dataclasses.replace(
      plan,
      train_batch_size=sizes[i],
      max_seq_length=task.run.settings.max_seq_length,
      phase=task_sampling.TaskSteps(schedule.draws == i, sizes[i]),
    )
    own = task.run.make_task(task.loss_fn, mine, epoch, task.source)
    for other in trained.values():
      own.optimizer.share_moments(other.optimizer)
    trained[name] = own._replace(weights=schedule.weights[:, i])
  step, score = fine_tuning.train_tasks(
    settings,
    strategy,
    trained,
    schedule.draws,
    plan,
    lambda: evaluate(tasks),
    metric,
  )
  for run in runs:
    run.step, run.score = step, score
    if run.is_chief:
      variables = loop.model_variables(run.model)
      checkpoints.save(run.folder, step, variables, keep=1)
