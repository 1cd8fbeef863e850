"""The tasks that run_multitask.py trains together, of four programs."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import functools
from typing import Any, NamedTuple

import tensorflow as tf

from cli import classifier_settings, fine_tuning
from inputs import training_input
import run_classifier
import run_multiple_choice
import run_squad
import run_tagging
from tasks import (
  classification_data,
  multiple_choice_data,
  squad_data,
  tagging_data,
)
from training import loop


class SharedTask(NamedTuple):
  """One of several tasks, ready to train and to predict."""

  run: fine_tuning.Run
  loss_fn: loop.LossFn | None  # None if the run does not train.
  evaluate: Callable[[], Mapping[str, float]]  # Scores, by name.
  finish: Callable[[], Any]  # Evaluates and predicts as flags say.
  max_score: float = 1.0  # SQuAD's scores are percentages.
  source: training_input.TrainingInput | None = (
    None  # If it is no feature file.
  )


# Opens a task, for devices that all tasks share.
Opener = Callable[
  [tf.distribute.Strategy], contextlib.AbstractContextManager[SharedTask]
]


def prepare_classifier(
  settings: classifier_settings.ClassifierSettings,
) -> Opener:
  """Checks the flags of a classifier; returns the function that opens it."""
  task = classifier_settings.read_task(settings)

  @contextlib.contextmanager
  def open_task(strategy) -> Iterator[SharedTask]:
    data = run_classifier.open_data(settings, task)
    with fine_tuning.open_run(settings, data, strategy) as run:
      for examples in data.sets:
        classification_data.make_features(examples, run.local_folder)
      run.make_model(run_classifier.create_model, run_classifier.predict)
      loss = run_classifier.make_loss(settings, data) if data.train else None

      def evaluate():
        return run_classifier.evaluate(run, data.dev[0], task)[1].metrics

      def finish():
        if settings.do_eval:
          run_classifier.write_evaluation(run, task)
        if settings.do_predict:
          run_classifier.write_predictions(run, task)

      yield SharedTask(run, loss, evaluate, finish)

  return open_task


def prepare_tagging(settings: run_tagging.TaggingSettings) -> Opener:
  """Checks the flags of a tagger; returns the function that opens it."""
  sources = run_tagging.find_files(settings)

  @contextlib.contextmanager
  def open_task(strategy) -> Iterator[SharedTask]:
    data = run_tagging.open_data(settings, sources)
    with fine_tuning.open_run(settings, data, strategy) as run:
      for examples in data.sets:
        tagging_data.make_features(examples, run.local_folder)
      run.make_model(*run_tagging.model_functions(settings))

      def evaluate():
        return run_tagging.evaluate(run, data.dev[0]).metrics

      def finish():
        if settings.do_eval:
          run_tagging.write_evaluation(run)
        if settings.do_predict:
          run_tagging.write_predictions(run)

      yield SharedTask(run, run_tagging.loss_fn, evaluate, finish)

  return open_task


def prepare_multiple_choice(
  settings: run_multiple_choice.ChoiceSettings,
) -> Opener:
  """Checks the flags of a task; returns the function that opens it."""
  run_multiple_choice.choose_metric(settings)
  paths = run_multiple_choice.find_files(settings)

  @contextlib.contextmanager
  def open_task(strategy) -> Iterator[SharedTask]:
    data = run_multiple_choice.open_data(settings, paths)
    with fine_tuning.open_run(settings, data, strategy) as run:
      for examples in data.sets:
        multiple_choice_data.make_features(examples, run.local_folder)
      run.make_model(
        run_multiple_choice.create_model, run_multiple_choice.predict
      )

      def finish():
        if settings.do_eval:
          run_multiple_choice.write_evaluation(run)
        if settings.do_predict:
          run_multiple_choice.write_predictions(run)

      yield SharedTask(
        run,
        run_multiple_choice.loss_fn,
        lambda: run_multiple_choice.evaluate(run, data.dev[0]),
        finish,
      )

  return open_task


def prepare_squad(settings: run_squad.SquadSettings) -> Opener:
  """Checks the flags of a task; returns the function that opens it."""
  settings = run_squad.check(settings)

  @contextlib.contextmanager
  def open_task(strategy) -> Iterator[SharedTask]:
    data = run_squad.open_data(settings)
    with fine_tuning.open_run(settings, data, strategy) as run:
      run_squad.check_no_answer(settings, run.config)
      for examples in data.sets:
        squad_data.make_features(examples, run.local_folder)
      run.make_model(
        run_squad.create_model,
        functools.partial(run_squad.predict, settings=settings),
      )

      def finish():
        if settings.do_predict:
          run_squad.write_predictions(run)

      yield SharedTask(
        run,
        functools.partial(run_squad.loss_fn, settings=settings),
        lambda: run_squad.evaluate(run, data.dev[0]),
        finish,
        max_score=100.0,
      )

  return open_task
