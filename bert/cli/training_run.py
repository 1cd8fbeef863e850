"""What all runs that train share; see `fine_tuning` and `pretraining_run`."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert import modeling
from bert.cli import model_folder, run_report, shared_flags
from bert.data import files, label_files
from bert.training import (
  loop,
  model_selection,
  prediction,
  training_plan,
  workers,
)
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints


@dataclasses.dataclass(kw_only=True)
class TrainingRun:
  """A model, its data, and the devices it runs on."""

  settings: shared_flags.TrainingSettings
  data: Any
  strategy: tf.distribute.Strategy
  config: modeling.EncoderConfig
  # The number of updates behind the weights.
  step: int = 0
  # The sections of report.html: HTML by the title.
  report_sections: dict[str, str] = dataclasses.field(default_factory=dict)
  # The scores to show first, the most important one at their head.
  first_scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
  # The scores of answers without a model, by the name of the curve to compare.
  guesses: dict[str, Any] = dataclasses.field(default_factory=dict)
  model: keras.Model = dataclasses.field(init=False)
  predictor: prediction.Predictor = dataclasses.field(init=False)

  @property
  def folder(self) -> str:
    """The output folder."""
    return self.settings.output_dir

  @property
  def is_chief(self) -> bool:
    """Whether this worker writes to the output folder."""
    return self.strategy.extended.should_checkpoint

  def write_model_files(
    self, vocab_file: str | None, labels: Sequence[str] = ()
  ) -> None:
    """Writes what a folder needs besides weights, so that --model can be it."""
    path = os.path.join(self.folder, "bert_config.json")
    if not files.exists(path):
      files.write_text(path, self.config.to_json_string())
    if vocab_file:
      vocabulary_table.copy(vocab_file, self.folder)
    if labels:
      label_files.write(os.path.join(self.folder, "labels.txt"), labels)

    # A fine-tuning records its flag in settings.json.
    if "do_lower_case" not in self.settings.flags_by_name():
      model_folder.write_casing(self.settings)

  def write_scores_file(
    self, scores: Mapping[str, float], name: str = "eval_results.txt"
  ) -> None:
    """Prints scores and writes them to a file, sorted by name."""
    # The original wrote float32 numbers, which have fewer digits than Python's.
    numbers = {name: np.float32(value) for name, value in scores.items()}
    rows = sorted({**numbers, "global_step": self.step}.items())
    lines = [f"{name} = {value!s}" for name, value in rows]

    path = os.path.join(self.folder, name)
    files.write_text(path, "\n".join(lines) + "\n")
    print("\n".join([f"wrote {path}:", *(f"  {line}" for line in lines)]))

  def use_model(
    self,
    create_model: Callable[[], keras.Model],
    predict: prediction.Predict,
    forward: training_plan.Forward = training_plan.DEFAULT_FORWARD,
  ) -> None:
    """Makes the model, for weights to be loaded, and its predictor.

    Args:
      create_model: makes it; called under the scope of the strategy, so that
        each device gets a copy of the variables.
      predict: makes the predictions of a batch.
      forward: calls the model on a batch.
    """
    # Initial weights depend on --seed alone. Keras takes 32 bits of it.
    keras.utils.set_random_seed(self.settings.seed % 2**32)

    # `output_folder.load_weights` loads the weights next, if there are any.
    start = self.settings.init_checkpoint
    follow = bool(start or checkpoints.latest_checkpoint(self.folder))
    with self.strategy.scope(), checkpoints.values_follow(follow):
      self.model = create_model()

    self.predictor = prediction.Predictor(
      self.strategy, self.model, predict, forward
    )

  def add_section(
    self, title: str, describe: Callable[..., str], *values: Any
  ) -> None:
    """Adds a section to report.html.

    Args:
      title: the heading. A section of the same title is replaced.
      describe: takes `values`; returns HTML. It is not called if no report is
        asked for.
      *values: such as predictions and scores.
    """
    if self.is_chief and self.settings.report:
      with run_report.report_errors_as_notes():
        self.report_sections[title] = describe(*values)

  def write_report(
    self, start: float, purpose: str, score_text: str = ""
  ) -> None:
    """Writes report.html; see `run_report.write`.

    Args:
      start: when the program began, by `time.monotonic`.
      purpose: what the model is for, such as "pre-training".
      score_text: the best score in words, or "".
    """
    run_report.write(
      self.settings,
      start,
      purpose,
      self.report_sections,
      score_text,
      self.first_scores,
      self.guesses,
    )


def make_plan(
  settings: Any, num_train_steps: int, **fields: Any
) -> training_plan.TrainingPlan:
  """Makes the plan of a training from its flags.

  Args:
    settings: a `shared_flags.TrainingSettings`, of texts or of records.
    num_train_steps: updates in all.
    **fields: of the plan; they replace what the flags say.
  """
  plan = training_plan.TrainingPlan(
    output_dir=settings.output_dir,
    num_train_steps=num_train_steps,
    train_batch_size=settings.train_batch_size,
    gradient_accumulation_steps=settings.gradient_accumulation_steps,
    save_checkpoints_steps=settings.save_checkpoints_steps,
    keep_checkpoint_max=settings.keep_checkpoint_max,
    eval_every_steps=settings.eval_every_steps,
    iterations_per_loop=settings.iterations_per_loop,
    seed=settings.seed,
    recompute=settings.recompute,
    max_seq_length=settings.max_seq_length,
  )
  return dataclasses.replace(plan, **fields)


def train_to_best(
  settings: shared_flags.FineTuningSettings,
  strategy: tf.distribute.Strategy,
  tasks: Mapping[str, training_plan.TrainingTask],
  plan: training_plan.TrainingPlan,
  evaluate: Callable[[int], Mapping[str, float]],
  metric: str,
  task_of_step: np.ndarray | None = None,
) -> tuple[int, str]:
  """Trains or resumes by `loop.train`; restores the best weights if any.

  SIGINT and SIGTERM save, then exit with status 128 + signal number. When the
  training is complete, its last checkpoint remains, from which it can be made
  longer, and the best weights; older checkpoints are deleted unless the user
  chose --keep_checkpoint_max.

  Args:
    settings: the flags.
    strategy: the devices.
    tasks: by name; "" is that of a single one.
    plan: of all tasks together.
    evaluate: takes the step; returns the scores, each with "eval_" before it.
    metric: the score that decides which weights are best, without "eval_".
    task_of_step: of several tasks, the number of the one that makes each
      update, int [steps]; None for a single task.

  Returns:
    The step of the weights, and the best score in words: "" if no evaluation
    interrupted the training.
  """
  folder = settings.output_dir
  is_chief = strategy.extended.should_checkpoint
  history = None
  if settings.evaluates_in_training:
    history = model_selection.History(
      folder,
      f"eval_{metric}",
      settings.early_stopping_patience,
      writes=is_chief,
    )
  step, signal = loop.train(
    strategy, tasks, plan, evaluate, history, task_of_step
  )
  if signal:
    raise loop.Stopped(signal)

  # The chief may mend the folder of the best weights: only when all workers
  # have ended their training, and before any of them continues.
  best = None
  if history:
    workers.wait_for_all(strategy)
    variables, _ = loop.name_variables(tasks)
    best = model_selection.restore_best(folder, variables, mends=is_chief)
    # Another worker may still read the checkpoint of damaged best weights.
    workers.wait_for_all(strategy)

  # By default a complete training keeps one checkpoint: each is three times the
  # size of the weights.
  if is_chief and "keep_checkpoint_max" not in settings.given:
    checkpoints.delete_before(folder, step)

  # Without a history there is no best: both are asked for the type checker.
  if best is None or history is None:
    if history and history.results:
      print(f"weights of step {step}, the last: {history.summary()}")
    return step, ""
  print(f"weights of step {best}; {history.summary()}")
  return best, history.summary()
