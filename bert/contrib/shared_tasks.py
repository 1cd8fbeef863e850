"""The tasks that run_multitask.py trains together, of four programs.

Each `prepare_...` checks the flags of one task as the program of its kind does,
before anything is written, and says which functions of that program do the
parts of the work.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import functools
from typing import Any, NamedTuple

import tensorflow as tf

from bert import run_classifier, run_multiple_choice, run_squad, run_tagging
from bert.cli import classifier_tasks, fine_tuning, model_folder
from bert.tasks import (
  classification_data,
  multiple_choice_data,
  squad_data,
  tagging_data,
)
from bert.training import training_plan


class SharedTask(NamedTuple):
  """One of several tasks: its flags, checked, and what its program does."""

  settings: Any  # An instance of its program's class of settings.
  # The functions of its program. `open` uses the first four.
  open_data: Callable[[], fine_tuning.Data]
  make_features: Callable[[Any, str], Any]
  create_model: Callable[..., Any]  # As `predict`: see `Run.make_model`.
  predict: training_plan.Predict
  make_loss: Callable[[fine_tuning.Run], training_plan.Loss]
  evaluate: Callable[[fine_tuning.Run], Mapping[str, float]]  # Scores by name.
  write_evaluation: Callable[[fine_tuning.Run], Any] | None = None
  write_predictions: Callable[[fine_tuning.Run], Any] | None = None
  max_score: float = 1.0  # SQuAD's scores are percentages.
  # The `TrainingInput`, if that is no feature file.
  source: Callable[[fine_tuning.Run], Any] | None = None
  forward: training_plan.Forward = training_plan.DEFAULT_FORWARD
  # Refuses what only the weights show, before any task computes.
  check_run: Callable[[fine_tuning.Run], None] | None = None

  @contextlib.contextmanager
  def open(self, strategy: tf.distribute.Strategy) -> Iterator[fine_tuning.Run]:
    """Opens the run of the task, for devices that all tasks share."""
    # As in every program of a fine-tuning: the data, the run in its folder, the
    # features, the model.
    data = self.open_data()
    with fine_tuning.open_run(self.settings, data, strategy) as run:
      for examples in data.sets:
        self.make_features(examples, run.local_folder)
      run.make_model(self.create_model, self.predict, self.forward)
      if self.check_run:
        self.check_run(run)
      yield run

  def finish(self, run: fine_tuning.Run) -> None:
    """Evaluates and predicts as flags say."""
    if self.write_evaluation and self.settings.do_eval:
      self.write_evaluation(run)
    if self.write_predictions and self.settings.do_predict:
      self.write_predictions(run)


def write_scores(
  evaluate: Callable[[fine_tuning.Run], Mapping[str, float]],
  run: fine_tuning.Run,
) -> None:
  """Evaluates, and writes the scores and nothing else."""
  scores = evaluate(run)  # On all workers; the chief writes.
  if run.is_chief:
    run.write_eval_results(scores)


def prepare_classifier(
  settings: run_classifier.ClassifierSettings,
) -> SharedTask:
  """Checks the flags of a classifier."""
  # The program's functions take the GLUE task, or the own one, besides the run.
  task = classifier_tasks.read(settings)
  return SharedTask(
    settings=settings,
    open_data=functools.partial(run_classifier.open_data, settings, task),
    make_features=classification_data.make_features,
    create_model=run_classifier.create_model,
    predict=run_classifier.predict,
    make_loss=lambda run: run_classifier.make_loss(settings, run.data),
    evaluate=lambda run: (
      run_classifier.evaluate(run, run.data.dev[0], task).metrics
    ),
    write_evaluation=lambda run: run_classifier.write_evaluation(run, task),
    write_predictions=lambda run: run_classifier.write_predictions(run, task),
  )


def prepare_tagging(settings: run_tagging.TaggingSettings) -> SharedTask:
  """Checks the flags of a tagger, and opens its files."""
  sources = run_tagging.inspect_files(settings)
  return SharedTask(
    settings=settings,
    open_data=functools.partial(run_tagging.open_data, settings, sources),
    make_features=tagging_data.make_features,
    create_model=run_tagging.create_model,
    predict=functools.partial(
      run_tagging.predict, max_seq_length=settings.max_seq_length
    ),
    make_loss=lambda run: run_tagging.make_loss(settings, run.data),
    evaluate=run_tagging.evaluate,
    write_evaluation=run_tagging.write_evaluation,
    write_predictions=run_tagging.write_predictions,
  )


def prepare_multiple_choice(
  settings: run_multiple_choice.ChoiceSettings,
) -> SharedTask:
  """Checks the flags of multiple choice."""
  paths = run_multiple_choice.find_files(settings)
  return SharedTask(
    settings=settings,
    open_data=functools.partial(run_multiple_choice.open_data, settings, paths),
    make_features=multiple_choice_data.make_features,
    create_model=run_multiple_choice.create_model,
    forward=run_multiple_choice.forward,
    predict=run_multiple_choice.predict,
    make_loss=lambda run: run_multiple_choice.loss,
    evaluate=run_multiple_choice.evaluate,
    write_evaluation=run_multiple_choice.write_evaluation,
    write_predictions=run_multiple_choice.write_predictions,
  )


def _check_threshold(run: fine_tuning.Run, plan: run_squad.ThresholdPlan):
  """Refuses auto without a threshold, and without answers to tune one on.

  Its prediction would refuse it, too, but after that of other tasks.
  """
  if plan.keeps_tuned and plan.tuning_file:
    [dataset] = run.data.dev or run.data.test
    if not dataset.is_labelled:
      run_squad.choose_tuning(run, plan)


def prepare_squad(settings: run_squad.SquadSettings) -> SharedTask:
  """Checks the flags of questions and answers."""
  run_squad.check(settings, model_folder.read_config(settings))
  plan = run_squad.plan_threshold(settings)
  loss = functools.partial(run_squad.loss, settings=settings)

  # No `write_evaluation`: SQuAD's scores are those of the written predictions.
  return SharedTask(
    settings=settings,
    open_data=functools.partial(run_squad.open_data, settings, plan),
    make_features=squad_data.make_features,
    create_model=run_squad.create_model,
    predict=functools.partial(run_squad.predict, settings=settings),
    make_loss=lambda run: loss,
    evaluate=run_squad.evaluate,
    write_predictions=lambda run: run_squad.write_predictions(run, plan),
    max_score=100.0,
    check_run=lambda run: _check_threshold(run, plan),
  )
