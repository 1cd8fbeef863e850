"""Trains one BERT on several tasks at once, each with a head of its own.

  python run_multitask.py --tasks_file=tasks.json --model=$BERT \\
    --do_train=true --do_eval=true --eval_every_epochs=1 --output_dir=/tmp/out
"""

from absl import flags

from cli import fine_tuning_flags
from cli import program


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  program.group("Data")
  flags.DEFINE_string(
    "tasks_file",
    None,
    "The tasks: a JSON list of objects with name, kind, the flags of the "
    "kind's own program, and maybe rate and weight; see docs/multitask.md.",
    required=True,
  )
  program.group("Training")
  flags.DEFINE_integer(
    "num_train_steps",
    None,
    "Updates in all; by default those of --num_train_epochs of all the tasks' "
    "examples together.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "examples_limit",
    2**21,
    "A task with more examples is drawn like one with this many.",
    lower_bound=1,
  )
  flags.DEFINE_float(
    "temperature",
    1.0,
    "1 draws tasks in proportion to their examples; more, more evenly.",
    lower_bound=1e-3,
  )
  flags.DEFINE_enum(
    "schedule",
    "constant",
    ["constant", "annealed"],
    "Whether tasks are drawn at their rates to the end, or ever more evenly.",
  )
  fine_tuning_flags.define_evaluation_flags()


if __name__ == "__main__":
  program.start(define_flags)

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cli import causal_lm
from cli import devices
from cli import fine_tuning
from cli import flag_values
from cli import model_folder
from cli import models
from cli import run_records
from cli import run_report
from cli import task_files
from cli import task_training
from data import files
import heads
from inputs import records
import run_classifier
import run_multiple_choice
import run_pretraining
import run_squad
import run_tagging
from training import loop
from training import model_selection
from training import turns
from weights import checkpoints

_PRETRAINING_METRICS = (
  "masked_lm_accuracy",
  "masked_lm_loss",
  "next_sentence_accuracy",
  "next_sentence_loss",
  "loss",
)
_FLAGS = ("schedule", "temperature", "examples_limit", "best_metric")


class Records(NamedTuple):
  """Pre-training records, with what a run needs of a `feature_files.Split`."""

  key: str
  features: range  # As many as there are records.

  @property
  def rows_per_epoch(self) -> int:
    return len(self.features)


def make_masked_lm(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of run_pretraining.py's task; see `fine_tuning.follow`."""
  metric = fine_tuning.best_metric(
    settings, _PRETRAINING_METRICS[0], _PRETRAINING_METRICS
  )

  def open_inputs(settings, folder):
    config = model_folder.read_config(settings)
    data = run_pretraining.read_data(settings, config)
    train = Records(
      data.source.identity, range(records.count_records(data.train_files))
    )
    evaluated = Records(records.describe_files(data.eval_files), range(0))
    problem = {"problem": "masked_lm"}
    return fine_tuning.Inputs(data, metric, problem, train, [evaluated])

  return fine_tuning.Recipe(
    settings,
    open_inputs,
    lambda config, inputs, dtype: heads.PretrainingModel(config, dtype),
    run_pretraining.compare,
    lambda run: run_pretraining.loss_fn,
    lambda run: run_pretraining.evaluate(
      run.predictor, run.inputs.settings, settings
    ),
    fine_tuning.finish_with_scores,
    lambda run, batch_size: run.inputs.settings.source,
  )


def make_squad(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of run_squad.py, which scores what it predicts."""
  predicts = settings.do_predict or settings.do_eval
  return run_squad.make_recipe(
    dataclasses.replace(settings, do_predict=predicts)
  )


# The flags of each kind's program, and its recipe.
KINDS = {
  "classifier": (run_classifier.define_flags, run_classifier.make_recipe),
  "tagging": (run_tagging.define_flags, run_tagging.make_recipe),
  "multiple_choice": (
    run_multiple_choice.define_flags,
    run_multiple_choice.make_recipe,
  ),
  "squad": (run_squad.define_flags, make_squad),
  "masked_lm": (run_pretraining.define_flags, make_masked_lm),
  "causal_lm": (causal_lm.define_flags, causal_lm.make_recipe),
}


def make_recipes(
  settings: flag_values.Settings, entries: Sequence[task_files.Entry]
) -> dict[str, fine_tuning.Recipe]:
  """Makes the recipe of every task.

  Raises:
    ValueError: a task is wrong, or --best_metric names none of their scores.
  """
  task, _, metric = (settings.best_metric or task_files.MEAN).partition("/")
  names = [entry.name for entry in entries]
  if task not in names and (task != task_files.MEAN or metric):
    raise ValueError(
      f"--best_metric={settings.best_metric}: expected {task_files.MEAN}, or a "
      f"task and its score, such as {names[0]}/loss"
    )
  recipes = {}
  for entry in entries:
    define, make_recipe = KINDS[entry.kind]
    chosen = metric if entry.name == task and metric else None
    given = dataclasses.replace(settings, best_metric=chosen)
    given = task_files.make_settings(entry, given, define)
    try:
      recipes[entry.name] = make_recipe(given)
    except ValueError as error:
      raise ValueError(f"{entry.place}: {error}") from None
  return recipes


def share_encoder(runs: Sequence[fine_tuning.Run]) -> None:
  """Makes all models use the encoder of the first, variable by variable.

  What a task trains of it stays the task's own: a tagger does not update the
  pooler, which it does not use.
  """
  first, *others = [run.model.bert.variables for run in runs]
  for variables in others:
    for mine, shared in zip(variables, first, strict=True):
      mine._value = shared.value


def make_plan(
  settings: flag_values.Settings, steps_per_epoch: float
) -> loop.TrainingPlan:
  """Makes the plan of the run; see `fine_tuning.make_plan`."""
  if settings.num_train_steps:
    epochs = (settings.num_train_steps + 0.5) / steps_per_epoch
    settings = dataclasses.replace(settings, num_train_epochs=epochs)
  return fine_tuning.make_plan(settings, steps_per_epoch)


def evaluate(runs: Mapping[str, fine_tuning.Run]) -> dict[str, float]:
  """Scores all tasks: their scores by <task>/<score>, and the mean.

  Percentages count as fractions in the mean.
  """
  scores, chosen = {}, []
  for name, run in runs.items():
    found = run.recipe.evaluate(run)
    scores |= {f"{name}/{key}": value for key, value in found.items()}
    chosen.append(found[run.inputs.metric] / run.recipe.perfect)
  return {**scores, task_files.MEAN: float(np.mean(chosen))}


def best_metric(
  settings: flag_values.Settings, runs: Mapping[str, fine_tuning.Run]
) -> str:
  """Returns the name of the score that decides which weights are best.

  Raises:
    ValueError: it is a mean of scores of which some are better if lower.
  """
  task = (settings.best_metric or task_files.MEAN).partition("/")[0]
  if task != task_files.MEAN:
    return f"{task}/{runs[task].inputs.metric}"
  for name, run in runs.items():
    if model_selection.is_better_if_lower(run.inputs.metric):
      raise ValueError(
        f"task {name!r}: best_metric is {run.inputs.metric}: a mean needs "
        "scores that are better if higher; or pass --best_metric=<task>/<score>"
      )
  return task_files.MEAN


def check_earlier(
  settings: flag_values.Settings,
  entries: Sequence[task_files.Entry],
  runs: Mapping[str, fine_tuning.Run],
  plan: loop.TrainingPlan,
) -> None:
  """Compares the run with that in its folder, which it goes on with.

  Raises:
    ValueError: it was trained in another way.
  """
  facts = {name: getattr(settings, name) for name in _FLAGS}
  facts["num_train_steps"] = plan.num_train_steps
  for entry in entries:
    run = runs[entry.name]
    mine = run_records.of_training(run.settings, run.inputs) | entry._asdict()
    del mine["place"]
    facts |= {f"{entry.name}.{key}": value for key, value in mine.items()}
  facts["tasks"] = ", ".join(entry.name for entry in entries)
  path = os.path.join(settings.output_dir, "training.json")
  if checkpoints.latest_checkpoint(settings.output_dir):
    models.check_settings(path, facts)
    task_training.check_evaluations(settings)
  if next(iter(runs.values())).is_chief:
    files.write_json(path, {**files.read_json_if_any(path), **facts})


def train(
  settings: flag_values.Settings,
  strategy: tf.distribute.Strategy,
  entries: Sequence[task_files.Entry],
  runs: Mapping[str, fine_tuning.Run],
) -> None:
  """Trains or resumes; saves the model of each task in the task's folder."""
  share_encoder(list(runs.values()))
  counts = [run.inputs.train.rows_per_epoch for run in runs.values()]
  sizes = [run.settings.train_batch_size for run in runs.values()]
  epoch = sum(n / size for n, size in zip(counts, sizes, strict=True))
  plan = make_plan(settings, epoch)
  course = turns.plan_course(
    [entry.weight for entry in entries],
    [entry.rate for entry in entries],
    flag_values.fill(turns.Settings, settings, num_steps=plan.num_train_steps),
    counts,
  )
  for name, share, count in zip(runs, course.shares, counts, strict=True):
    print(f"task {name}: {count:,} examples, rate {share:.4f}")
  metric = best_metric(settings, runs)
  check_earlier(settings, entries, runs, plan)
  tasks: dict[str, loop.TrainingTask] = {}
  for i, (name, run) in enumerate(runs.items()):
    mine = dataclasses.replace(
      plan,
      train_batch_size=sizes[i],
      max_seq_length=run.settings.max_seq_length,
      phase=turns.Turns(course.draws == i, sizes[i]),
    )
    task = run.make_task(mine, epoch)
    for other in tasks.values():
      task.optimizer.share_moments(other.optimizer)
    tasks[name] = task._replace(weights=course.weights[:, i])
  step, score = task_training.train(
    settings,
    strategy,
    tasks,
    course.draws,
    plan,
    lambda: evaluate(runs),
    metric,
  )
  for run in runs.values():
    run.step, run.score = step, score
    if run.is_chief:
      variables = loop.model_variables(run.model)
      checkpoints.save(run.folder, step, variables, keep=1)


def main() -> None:
  start = time.monotonic()
  settings = fine_tuning.read_settings()
  fine_tuning.check_work(settings)
  if settings.num_train_steps and flags.FLAGS["num_train_epochs"].present:
    raise ValueError("--num_train_steps and --num_train_epochs: pass only one")
  entries = task_files.read(settings.tasks_file, KINDS)
  recipes = make_recipes(settings, entries)
  strategy = devices.make_strategy(settings)
  config = model_folder.read_config(settings)
  with contextlib.ExitStack() as stack:
    stack.enter_context(models.claim_output_dir(settings, config, strategy))
    runs = {
      name: stack.enter_context(fine_tuning.open_run(recipe, strategy))
      for name, recipe in recipes.items()
    }
    if settings.do_train:
      train(settings, strategy, entries, runs)
    for run in runs.values():
      run.recipe.finish(run)
  if settings.report and strategy.extended.should_checkpoint:
    scores = {name: run.score for name, run in runs.items()}
    run_report.write_tasks(settings, start, scores)


if __name__ == "__main__":
  program.run_program(main)
