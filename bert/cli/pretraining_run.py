"""A pre-training run, which run_pretraining.py opens, trains and evaluates.

settings = pretraining_records.read_settings(PretrainingSettings)
config = pretraining_records.read_config(settings)
data = pretraining_records.open_data(settings, config)
with pretraining_run.open_run(settings, config, data, strategy) as run:
  run.make_model(create_model, predict)
  run.sample_labels()
  run.train(loss)
  run.write_scores_file(run.evaluate(run.step))
"""

from collections.abc import Callable, Iterator
import contextlib
import dataclasses
import math
import time
from typing import Any

import keras
import tensorflow as tf

from bert import modeling, optimization
from bert.cli import output_folder, pretraining, program, training_run
from bert.tasks import pretraining_scores
from bert.training import (
  loop,
  loss_watch,
  reporting,
  same_run,
  training_plan,
  workers,
)
from bert.weights import checkpoints

# The updates of pre-training depend on these. A resumed run must have the same
# values unless --new_phase is given.
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


@dataclasses.dataclass(kw_only=True)
class Run(training_run.TrainingRun):
  """A model and its records; `open_run` makes it."""

  settings: pretraining.PretrainingSettings
  data: pretraining_scores.PretrainingData
  # Where in the training the run is; None without --do_train.
  phase: training_plan.Phase | None = None
  # The scores of the evaluations of this process, by step.
  scores: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
  # The right answers of the records to train on, if `sample_labels` counted
  # them.
  labels: loss_watch.Labels | None = None

  def make_model(
    self,
    create_model: Callable[[modeling.EncoderConfig, str], keras.Model],
    predict: Callable[..., dict[str, tf.Tensor]],
    **agreed: Any,
  ) -> None:
    """Makes the model, loads its weights, and enters the phase of the run.

    Args:
      create_model: takes the config and a Keras dtype policy.
      predict: what `evaluate` computes of a batch.
      **agreed: JSON values that a resumed training must share with the
        training before, besides the flags.
    """
    settings = self.settings
    dtype = settings.compute_dtype
    # `use_model` of the base class, in training_run.py, calls the function in
    # the scope of the strategy, so that each device gets a copy of a variable.
    self.use_model(lambda: create_model(self.config, dtype), predict)

    # Without the flag, an evaluation that finds no weights is an error.
    if settings.score_random_weights:
      variables = checkpoints.model_variables(self.model)
      self.step = output_folder.load_weights(settings, variables)
    else:
      self.step = output_folder.load_weights_of_run(
        settings,
        self.model,
        () if settings.next_sentence else ("/pooler/", "/seq_relationship/"),
      )

    # AdamW's decay would shrink weights that no loss uses. The optimizer gets
    # only variables that are not frozen.
    if not (self.data.is_masked and settings.next_sentence):
      self.model.freeze_next_sentence()
    if not self.data.is_masked:
      self.model.heads.trainable = False

    # A training is compared with the one that the folder records, so that it
    # resumes with the same updates.
    if settings.do_train:
      flags = {name: getattr(settings, name) for name in _PHASE_FLAGS}
      self.phase = same_run.enter_phase(
        self.folder,
        self.step,
        settings={"input_file": self.data.source.identity, **flags, **agreed},
        is_new_phase=settings.new_phase,
        writes=self.is_chief,
      )

    # With these files the folder can be the --model of a fine-tuning.
    if self.is_chief:
      self.write_model_files(self.settings.vocab_file)

  def sample_labels(self) -> None:
    """Counts words to guess, for scores to be compared with their frequency.

    There is nothing to compare if no words are masked, or if they are guessed
    from the words before them alone.
    """
    is_cloze = self.data.is_masked and self.config.is_bidirectional
    if self.is_chief and is_cloze:
      data = self.data
      self.labels = loss_watch.sample_training(data.source, data.train_files)
      self.guesses |= loss_watch.guess(
        self.labels, self.labels, self.config.vocab_size
      )

  def evaluate(self, step: int) -> dict[str, float]:
    """Scores a step, and describes the results in the report."""
    # The last step is asked for twice: at the end of training and by --do_eval.
    if step in self.scores:
      return self.scores[step]

    settings = self.settings
    rows, scores = pretraining_scores.evaluate(
      self.predictor,
      self.data,
      settings.eval_batch_size,
      settings.max_eval_steps,
    )
    self.scores[step] = scores

    # Guesses learn the frequencies from the training records, and answer the
    # same rows as the model.
    guesses = {}
    if self.labels:
      guesses = loss_watch.guess(
        self.labels, loss_watch.count(rows), self.config.vocab_size
      )
      self.guesses |= {f"eval/{name}": g for name, g in guesses.items()}

    self.add_section(
      "Evaluation",
      pretraining_scores.describe,
      rows,
      scores,
      settings.vocab_file,
      guesses,
    )
    return scores

  def train(self, loss: training_plan.Loss, **fields: Any) -> None:
    """Trains or resumes, and evaluates meanwhile; see `loop.train`.

    Args:
      loss: what is minimised.
      **fields: further fields of `training_plan.TrainingTask` by name.
    """
    settings = self.settings
    num_steps = settings.num_train_steps

    # Warns during the training if the loss is no better than guessing.
    watch = None
    if self.labels and settings.learning_rate:
      watch = loss_watch.LossWatch(self.labels.words, settings.num_warmup_steps)
    elif self.labels:
      print("warning: --learning_rate=0 changes no weight")

    # Large or compressed files would have to be read to be counted: no line.
    number = self.data.count_at_once()
    if number and self.is_chief:
      steps = num_steps - (self.phase.first_step if self.phase else 0)
      batch = settings.train_batch_size
      print(pretraining.describe_epochs(steps, batch, number))

    # Adam's moments are variables: each device needs its copy.
    with self.strategy.scope():
      optimizer = optimization.create_optimizer(
        self.model.trainable_variables,
        settings.learning_rate,
        num_steps,
        settings.num_warmup_steps,
      )

    plan = training_run.make_plan(
      settings, num_steps, phase=self.phase, watch=watch
    )
    task = training_plan.TrainingTask(
      self.model, optimizer, loss, self.data.source, plan, **fields
    )
    self.step, signal = loop.train(
      self.strategy, {"": task}, plan, self.evaluate
    )

    # If a file was changed meanwhile, the model has learned from both contents.
    self.data.check_unchanged()

    if signal:
      raise loop.Stopped(signal)


@contextlib.contextmanager
def open_run(
  settings: pretraining.PretrainingSettings,
  config: modeling.EncoderConfig,
  data: pretraining_scores.PretrainingData,
  strategy: tf.distribute.Strategy,
) -> Iterator[Run]:
  """Compares the workers, claims the output folder, and sums up at the end.

  Args:
    settings: the flags of run_pretraining.py, or of a program that has them.
    config: of the model.
    data: the records.
    strategy: the devices; the same kind on all workers.

  Yields:
    The run, still without a model. After the body it writes the report and
    prints the summary, unless the body raised.

  Raises:
    ValueError: workers have different flags or records, or the output folder
      is of another config.
    OSError: another process is training in the output folder.
  """
  start = time.monotonic()

  # Workers with different records or configs would train one model wrongly, and
  # nothing else would notice.
  workers.compare_workers(
    strategy,
    {
      **settings.flags_of_workers(),
      "--input_file": data.source.identity,
      "--eval_input_file": data.eval_identity,
      "--bert_config_file": config,
    },
  )
  with output_folder.claim(settings, config, strategy):
    run = Run(settings=settings, data=data, strategy=strategy, config=config)
    yield run

    if run.is_chief:
      run.first_scores = run.scores.get(run.step, {})
      run.write_report(start, "pre-training")
      print_summary(run, start)

    # A worker that ends early would make the others fail.
    workers.wait_for_all(strategy)


def print_summary(run: Run, start: float) -> None:
  """Prints how a run ended that began at a time of `time.monotonic`."""
  lines = []
  if run.settings.do_train:
    lines.append(f"wrote {run.folder}: the weights of step {run.step}")

  # The losses by step: also of earlier processes, if the run was resumed. The
  # evaluations of an earlier phase may be of other data, and do not compare.
  first_step = run.phase.first_step if run.phase else run.step
  losses = {
    point["step"]: point["eval/loss"]
    for point in reporting.read_curves(run.folder, run.step)
    if "eval/loss" in point and point["step"] > first_step
  }
  losses |= {step: scores["loss"] for step, scores in run.scores.items()}
  if losses:
    best = min(losses, key=lambda step: losses[step])
    lines.append(
      f"best of {len(losses)} evaluations: step {best}, loss {losses[best]:.4g}"
    )

  # What to do next: evaluate, if that was not asked for; go on training, if
  # the model is no better than guessing; or fine-tune it.
  command = "the same command with --do_train=false --do_eval=true"
  if run.settings.do_eval or not run.data.is_masked:
    fault = _describe_lack_of_learning(run)
    if fault:
      lines.append(fault)
    command = "" if fault else _describe_fine_tuning(run)

  program.print_end(start, *lines, command=command)


def _describe_lack_of_learning(run: Run) -> str:
  """Says why the weights are not worth a fine-tuning, "" if they are."""
  advice = "train for more steps before you fine-tune, see docs/loss.md"

  # Without labels to guess, or without an evaluation, nothing is compared.
  guess = run.guesses.get("eval/masked_lm_loss")
  loss = run.scores.get(run.step, {}).get("masked_lm_loss", -math.inf)
  if guess and loss >= guess.score:
    return (
      f"no better than {guess.name} alone, whose masked-LM loss is "
      f"{guess.score:.4g}: {advice}"
    )

  is_random = not run.step and not run.settings.init_checkpoint
  return f"the weights are random: {advice}" if is_random else ""


def _describe_fine_tuning(run: Run) -> str:
  """Returns a command that fine-tunes the weights, with gaps to fill in."""
  # A run that only evaluated other weights has none in its folder.
  model = run.folder
  if output_folder.starts_elsewhere(run.settings):
    model = run.settings.model or "..."
  start = program.command("run_classifier.py", model=model)
  flags = "--data_dir=... --do_train=true --do_eval=true --output_dir=..."
  command = f"{start} --task_name=... {flags}"

  # Without --vocab_file none was copied to the folder.
  return command if run.settings.vocab_file else f"{command} --vocab_file=..."
