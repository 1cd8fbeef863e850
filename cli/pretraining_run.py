"""A pre-training run, which run_pretraining.py opens and trains.

with pretraining_run.open_run(settings, config, data, strategy) as run:
  run.make_model(create_model, predict)
  run.train(loss_fn, evaluate)
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import os
import sys
import time
from typing import Any

import keras
import tensorflow as tf

from cli import output_folder, pretraining_settings, run_report
from inputs import training_input
import modeling
import optimization
from tasks import pretraining_data
from training import loop, phases, prediction, same_run, workers

# The updates depend on these. A resumed run must have the same values unless
# --new_phase is given.
_PHASE_FLAGS = (
  "max_seq_length",
  "max_predictions_per_seq",
  "train_batch_size",
  "learning_rate",
  "num_train_steps",
  "num_warmup_steps",
  "precision",
  "seed",
)


@dataclasses.dataclass
class Run:
  """A model and its records; `open_run` makes it."""

  settings: pretraining_settings.PretrainingSettings
  config: modeling.EncoderConfig
  data: pretraining_data.PretrainingData
  strategy: tf.distribute.Strategy
  step: int = 0  # The number of updates behind the weights.
  phase: phases.Phase | None = None  # For a training.
  # The evaluations of this process, by step.
  scores: dict[int, Mapping[str, float]] = dataclasses.field(
    default_factory=dict
  )
  # Sections of report.html: HTML by the title.
  report: dict[str, str] = dataclasses.field(default_factory=dict)
  model: keras.Model = dataclasses.field(init=False)
  predictor: prediction.Predictor = dataclasses.field(init=False)

  @property
  def is_chief(self) -> bool:
    """Whether this worker writes to the output folder."""
    return self.strategy.extended.should_checkpoint

  def make_model(
    self,
    create_model: Callable[[modeling.EncoderConfig, str], keras.Model],
    predict: Callable[
      [keras.Model, training_input.Features], dict[str, tf.Tensor]
    ],
  ) -> None:
    """Makes the model, loads its weights, and enters the phase of the run.

    Args:
      create_model: takes config and Keras dtype policy.
      predict: see `prediction.Predictor`.
    """
    settings = self.settings
    keras.utils.set_random_seed(settings.seed)
    with self.strategy.scope():
      self.model = create_model(self.config, settings.compute_dtype)
    variables = loop.model_variables(self.model)
    self.step = output_folder.load_weights(settings, variables)
    if settings.do_train:
      self.phase = self._enter_phase()
    if self.is_chief:
      output_folder.write_model_files(
        settings.output_dir, self.config, settings.vocab_file
      )
    self.predictor = prediction.Predictor(self.strategy, self.model, predict)

  def _enter_phase(self):
    settings = self.settings
    return phases.enter(
      os.path.join(settings.output_dir, "training.json"),
      self.step,
      {
        "input_file": self.data.source.identity,
        **{name: getattr(settings, name) for name in _PHASE_FLAGS},
      },
      settings.new_phase,
      writes=self.is_chief,
    )

  def train(
    self,
    loss_fn: loop.LossFn,
    evaluate: Callable[[int], Mapping[str, float]],
    watch: Any = None,
  ) -> None:
    """Trains or resumes.

    SIGINT and SIGTERM save, then exit with status 128 + signal number.

    Args:
      evaluate: takes the step; scores the weights, by name.
      watch: see `loop.TrainingPlan`.
    """
    settings = self.settings
    with self.strategy.scope():
      optimizer = optimization.create_optimizer(
        self.model.trainable_variables,
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
      )
    plan = loop.TrainingPlan(
      output_dir=settings.output_dir,
      num_train_steps=settings.num_train_steps,
      train_batch_size=settings.train_batch_size,
      gradient_accumulation_steps=settings.gradient_accumulation_steps,
      save_checkpoints_steps=settings.save_checkpoints_steps,
      keep_checkpoint_max=settings.keep_checkpoint_max,
      eval_every_steps=settings.eval_every_steps,
      iterations_per_loop=settings.iterations_per_loop,
      seed=settings.seed,
      recompute=settings.recompute,
      max_seq_length=settings.max_seq_length,
      phase=self.phase,
      watch=watch,
    )
    self.step, interrupted_by = loop.train(
      self.strategy,
      self.model,
      optimizer,
      loss_fn,
      self.data.source,
      plan,
      evaluate,
    )
    self.data.check_unchanged()
    if interrupted_by:
      sys.exit(128 + interrupted_by)

  def write_evaluation(self, scores: Mapping[str, float]) -> None:
    """Prints scores and writes them to eval_results.txt."""
    if self.is_chief:
      output_folder.write_eval_results(
        self.settings.output_dir, self.step, scores
      )

  def report_on(self, describe: Callable[..., str], *values: Any) -> None:
    """Adds the section on an evaluation to report.html, if there will be one.

    Args:
      describe: makes the section's HTML from the values.
    """
    if self.is_chief and self.settings.report:
      with run_report.report_errors_as_notes():
        self.report["Evaluation"] = describe(*values)


@contextlib.contextmanager
def open_run(
  settings: pretraining_settings.PretrainingSettings,
  config: modeling.EncoderConfig,
  data: pretraining_data.PretrainingData,
  strategy: tf.distribute.Strategy,
) -> Iterator[Run]:
  """Compares the workers and claims the output folder.

  At the end it prints a summary and waits for the other workers.
  """
  start = time.monotonic()
  same_run.check_workers(
    strategy,
    {
      **settings.flags_of_workers(),
      "--input_file": data.source.identity,
      "--eval_input_file": data.eval_identity,
      "--bert_config_file": config,
    },
  )
  folder, trains = settings.output_dir, settings.do_train
  with output_folder.claim(folder, config, strategy, trains):
    run = Run(settings, config, data, strategy)
    yield run
    if run.is_chief:
      run_report.finish_pretraining(
        settings, start, run.step, run.scores, run.phase, run.report
      )
    workers.wait_for_all(strategy)
