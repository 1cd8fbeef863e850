"""Trains several tasks that share an encoder, and scores them together."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from bert.cli import (
  fine_tuning,
  output_folder,
  run_report,
  shared_flags,
  training_run,
)
from bert.contrib import shared_tasks, task_files, task_sampling
from bert.report import plots, score_kinds
from bert.training import same_run, training_plan
from bert.weights import checkpoints

Tasks = Mapping[str, shared_tasks.SharedTask]
Runs = Mapping[str, fine_tuning.Run]  # By the tasks' names.


def share_encoder(runs: Runs) -> None:
  """Makes all models use the encoder of the first, variable by variable."""
  # The models are made one by one, as their programs make them. Afterwards,
  # the variables of Keras in all of them wrap the same variables of TensorFlow.
  encoders = [run.model.bert.variables for run in runs.values()]
  for variables in encoders[1:]:
    for mine, shared in zip(variables, encoders[0], strict=True):
      mine._value = shared.value


def evaluate(tasks: Tasks, runs: Runs) -> dict[str, float]:
  """Scores all tasks, by <task>/<score>; in their mean, 80 % counts as 0.8."""
  scores = {}
  chosen = []
  for name, run in runs.items():
    own = tasks[name].evaluate(run)
    scores |= {f"{name}/{key}": value for key, value in own.items()}

    # SQuAD's scores are percentages: they would outweigh all other tasks'.
    chosen.append(own[run.data.metric] / tasks[name].max_score)
  return {**scores, task_files.MEAN: float(np.mean(chosen))}


def choose_metric(best_metric: str | None, runs: Runs) -> str:
  """Returns the name of the score that decides which weights are best."""
  chosen = (best_metric or task_files.MEAN).partition("/")[0]
  if chosen != task_files.MEAN:
    return f"{chosen}/{runs[chosen].data.metric}"

  # A mean of losses and accuracies has no direction that is better.
  for name, run in runs.items():
    if score_kinds.find(run.data.metric).is_better_if_lower:
      raise ValueError(
        f"task {name!r}: best_metric is {run.data.metric}: a mean needs scores "
        "that are better if higher; or pass --best_metric=<task>/<score>"
      )
  return task_files.MEAN


def _describe_training(settings, entries, runs, num_train_steps):
  """Returns what a run that resumes the training must agree with."""
  described = {
    "schedule": settings.schedule,
    "temperature": settings.temperature,
    "examples_limit": settings.examples_limit,
    "best_metric": settings.best_metric,
    "num_train_steps": num_train_steps,
    "tasks": ", ".join(runs),
  }

  # What each program records of its training, and what the file says of it.
  for entry in entries:
    mine = {**(runs[entry.name].record.training or {}), **entry._asdict()}
    del mine["place"]
    described |= {f"{entry.name}.{key}": value for key, value in mine.items()}
  return described


def _sample_tasks(
  settings, entries, counts, num_steps
) -> task_sampling.TaskSchedule:
  """Draws the tasks of all steps, prints their rates, and checks the draws."""
  schedule = task_sampling.sample_tasks(
    [entry.weight for entry in entries],
    [entry.rate for entry in entries],
    counts,
    num_steps,
    settings,
  )
  names = [entry.name for entry in entries]
  for name, share, count in zip(names, schedule.shares, counts, strict=True):
    print(f"task {name}: {count:,} examples, rate {share:.4f}")

  # A training that an earlier version began without this check may go on.
  if output_folder.begins_anew(settings):
    idle = [entry.name for entry in entries if entry.weight == 0]
    task_sampling.check_draws(schedule, names, idle)
  return schedule


def train(
  settings: Any,
  strategy: tf.distribute.Strategy,
  entries: Sequence[task_files.Entry],
  tasks: Tasks,
  runs: Runs,
) -> str:
  """Trains or resumes; saves the model of each task in the task's folder.

  Returns:
    The best score of all tasks in words, as `training_run.train_to_best`.
  """
  share_encoder(runs)

  # In one epoch the tasks together make as many updates as they have batches.
  counts = [run.data.train.rows_per_epoch for run in runs.values()]
  sizes = [run.settings.train_batch_size for run in runs.values()]
  epoch = sum(n / size for n, size in zip(counts, sizes, strict=True))

  # `plan_of_epochs` multiplies by the epoch and truncates: the half keeps
  # rounding from losing a step.
  if settings.num_train_steps:
    epochs = (settings.num_train_steps + 0.5) / epoch
    settings = dataclasses.replace(settings, num_train_epochs=epochs)
  plan = fine_tuning.plan_of_epochs(settings, epoch)

  # Which task makes which update is fixed before the first one.
  schedule = _sample_tasks(settings, entries, counts, plan.num_train_steps)

  # A training in this folder is resumed if it is the same one.
  metric = choose_metric(settings.best_metric, runs)
  training = _describe_training(settings, entries, runs, plan.num_train_steps)
  output_folder.check_evaluations(settings)
  is_chief = strategy.extended.should_checkpoint
  flags = settings.flags_by_name()
  same_run.resume_training(settings.output_dir, training, is_chief, flags)

  step, score_text = training_run.train_to_best(
    settings,
    strategy,
    _make_tasks(tasks, runs, plan, epoch, schedule),
    plan,
    lambda step: fine_tuning.name_for_evaluation(evaluate(tasks, runs)),
    metric,
    schedule.task_of_step,
  )

  # Each task's folder becomes one that its own program could have written:
  # prediction and export read it.
  for run in runs.values():
    run.step = step
    run.score_text = score_text
    if run.is_chief:
      variables = checkpoints.model_variables(run.model)
      checkpoints.save(run.folder, step, variables, keep=1)
  return score_text


def _make_tasks(tasks, runs, plan, steps_per_epoch, schedule):
  """Makes the inputs and optimizers, which share the encoder's moments."""
  made: dict[str, training_plan.TrainingTask] = {}
  for i, (name, run) in enumerate(runs.items()):
    task = tasks[name]
    size = run.settings.train_batch_size

    # The plan of all, with the batches of this one and the steps that it makes.
    own = run.make_task(
      task.make_loss(run),
      dataclasses.replace(
        plan,
        train_batch_size=size,
        max_seq_length=run.settings.max_seq_length,
        phase=task_sampling.TaskSteps(schedule.task_of_step == i, size),
      ),
      steps_per_epoch,
      task.source(run) if task.source else None,
    )

    # The encoder's variables are the same: so must be their moments.
    for other in made.values():
      own.optimizer.share_moments(other.optimizer)
    made[name] = own._replace(loss_factors=schedule.weights[:, i])

  _count_updates(
    [task.optimizer for task in made.values()], schedule.task_of_step
  )
  return made


def _count_updates(optimizers, task_of_step) -> None:
  """Tells optimizers which steps updated a variable: its tasks' alone.

  A function of the plan, so a run that resumes has the same counts. There is
  one for all variables of the same tasks, and none for those of all tasks.
  """
  owners: dict[int, tuple[int, ...]] = {}  # The tasks by the id of a variable.
  for number, optimizer in enumerate(optimizers):
    for variable in optimizer.variables:
      owners[id(variable)] = (*owners.get(id(variable), ()), number)

  # The sum includes the step itself, which is not before it.
  counts = {}
  for tasks in set(owners.values()):
    is_updated = np.isin(task_of_step, tasks)
    if not is_updated.all():
      counts[tasks] = np.cumsum(is_updated) - is_updated

  for optimizer in optimizers:
    optimizer.updates_before = [
      counts.get(owners[id(variable)]) for variable in optimizer.variables
    ]


def write_report(
  settings: shared_flags.ModelSettings,
  start: float,
  score_texts: Mapping[str, str],
  best: str = "",
) -> None:
  """Writes the report of several tasks.

  Args:
    settings: of the run; the report goes to its output folder.
    start: when the program began, from `time.monotonic`.
    score_texts: a sentence with the best score, by the tasks' names.
    best: that of all tasks, from `train`: it stands at the top, and not in
      every row, where a task may have its own before it.
  """
  rows = [
    (
      plots.Link(name, f"tasks/{name}/report.html"),
      text.removesuffix(best).removesuffix("; "),
    )
    for name, text in score_texts.items()
  ]
  listed = plots.table(("report", "score"), rows)
  run_report.write(settings, start, "several tasks", {"Tasks": listed}, best)
