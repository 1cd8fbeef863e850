"""Pre-trains BERT on masked words and next sentences.

  python run_pretraining.py --input_file=examples.tfrecord --do_train=true \\
    --bert_config_file=configs/bert_tiny.json --output_dir=/tmp/pretrained \\
    --train_batch_size=32 --num_train_steps=20 --num_warmup_steps=10
"""

from absl import flags

from cli import devices
from cli import flag_values
from cli import model_folder
from cli import models
from cli import program
from cli import run_summary


def define_flags() -> None:
  """Declares the flags of this program."""
  program.group("Data")
  flags.DEFINE_string(
    "input_file",
    None,
    "TFRecord files of create_pretraining_data.py: comma-separated globs.",
    required=True,
  )
  flags.DEFINE_string(
    "eval_input_file", None, "Those to evaluate on; default --input_file."
  )
  for name, default, text in (
    ("max_seq_length", 128, "Tokens per record, as it was made."),
    ("max_predictions_per_seq", 20, "Masked tokens per record, at most."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=1)
  models.define_model_flags()
  flags.DEFINE_string(
    "vocab_file",
    None,
    "The vocab.txt of the records: vocab_size in the config becomes its size, "
    "and it is copied to --output_dir.",
  )
  program.group("Training")
  flags.DEFINE_bool("do_train", False, "Whether to train.")
  for name, default, least, text in (
    ("num_train_steps", 100000, 1, "Updates in all."),
    ("num_warmup_steps", 10000, 0, "Updates with a rising learning rate."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=least)
  models.define_training_flags()
  flags.DEFINE_bool(
    "group_by_length",
    False,
    "Whether batches hold records of similar length, padded to the longest: "
    "faster where many are short. The original's order is random.",
  )
  flags.DEFINE_bool(
    "new_phase",
    False,
    "Whether settings may differ from those that --output_dir was trained with "
    "so far: training then continues from its newest checkpoint with the new "
    "ones. The records continue where they were, or begin anew if --input_file "
    "or --seed is another.",
  )
  program.group("Evaluation")
  flags.DEFINE_bool("do_eval", False, "Whether to evaluate, after training.")
  for name, default, least, text in (
    ("eval_batch_size", 8, 1, "Examples per evaluation batch."),
    (
      "max_eval_steps",
      100,
      0,
      "Batches to evaluate, starting over where the records end; 0 evaluates "
      "every record once.",
    ),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=least)
  devices.define_device_flags()


if __name__ == "__main__":
  program.start(define_flags)

from collections.abc import Callable
import dataclasses
import functools
import os
import time
from typing import NamedTuple

import keras
import tensorflow as tf

from cli import run_report
from data import files
from encoders import encoder_table
import heads
from inputs import records
from inputs import training_input
import modeling
import optimization
from tasks import masked_labels
from tasks import metrics
from tasks import pretraining_report
from training import loop
from training import phases
from training import prediction
from training import workers

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


def compare(model, features, seed=None) -> dict[str, tf.Tensor]:
  """Compares predictions with the truth, per masked token and example.

  Returns:
    masked_lm_loss, masked_lm_correct and masked_lm_weights, float32 [B, P];
    next_sentence_loss and next_sentence_correct, float32 [B]; the truth:
    masked_lm_ids, int32 [B, P], and next_sentence_labels, int32 [B].
  """
  inputs = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
  output = model(*map(features.get, inputs), seed)
  masked_lm_loss, masked_lm_correct = _compare_guesses(
    output.masked_lm_logits, features["masked_lm_ids"]
  )
  labels = features["next_sentence_labels"][:, 0]
  next_sentence_loss, next_sentence_correct = _compare_guesses(
    output.next_sentence_logits, labels
  )
  return {
    "masked_lm_loss": masked_lm_loss,
    "masked_lm_correct": masked_lm_correct,
    "masked_lm_weights": features["masked_lm_weights"],
    "next_sentence_loss": next_sentence_loss,
    "next_sentence_correct": next_sentence_correct,
    "masked_lm_ids": features["masked_lm_ids"],
    "next_sentence_labels": labels,
  }


def _compare_guesses(logits, labels):
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  guesses = tf.argmax(logits, -1, output_type=labels.dtype)
  return losses, tf.cast(guesses == labels, tf.float32)


def loss_fn(model, features, seed):
  """Sums the losses of section 3.1 over a batch; see `loop.LossFn`."""
  rows = compare(model, features, seed)
  weights = rows["masked_lm_weights"]
  tokens = tf.reduce_sum(weights)
  examples = tf.cast(tf.shape(weights)[0], tf.float32)
  correct = tf.reduce_sum(rows["masked_lm_correct"] * weights)
  next_correct = tf.reduce_sum(rows["next_sentence_correct"])
  return {
    "masked_lm_loss": (tf.reduce_sum(rows["masked_lm_loss"] * weights), tokens),
    "masked_lm_accuracy": (correct, tokens),
    "next_sentence_loss": (tf.reduce_sum(rows["next_sentence_loss"]), examples),
    "next_sentence_accuracy": (next_correct, examples),
  }


def evaluate(
  predictor, data, settings, note=lambda *_: None
) -> dict[str, float]:
  """Scores the model on --max_eval_steps batches.

  `note` takes what `compare` returned, of all rows, and the scores.
  """
  rows = records.sequential_dataset(data.eval_files)
  rows = rows.map(lambda row_id, row: row)
  total = settings.max_eval_steps * settings.eval_batch_size or None
  if total:
    # The original starts over after the last record, which affects scores.
    rows = rows.repeat().take(total)
  batches = rows.batch(settings.eval_batch_size).map(data.parse)
  with training_input.naming_bad_record(data.source):
    rows = predictor(training_input.prefetch(batches, 2), total)
  scores = metrics.pretraining_metrics(rows, settings.eval_batch_size)
  note(rows, scores)
  return scores


class Data(NamedTuple):
  """The records of a run."""

  eval_files: list[str]
  parse: Callable[[tf.Tensor], training_input.Features]
  source: training_input.TrainingInput
  train_files: list[str]


def read_data(
  settings: flag_values.Settings, config: modeling.EncoderConfig
) -> Data:
  """Finds and checks the input files."""
  if settings.group_by_length and devices.uses_tpu(settings):
    raise ValueError("--group_by_length=true: a TPU takes batches of one shape")
  if settings.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={settings.max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  train_files = files.expand_patterns(settings.input_file, "input_file")
  patterns = settings.eval_input_file or settings.input_file
  eval_files = files.expand_patterns(patterns, "eval_input_file")
  spec = records.pretraining_spec(
    settings.max_seq_length, settings.max_predictions_per_seq
  )
  limits = records.pretraining_limits(
    settings.max_seq_length, config.vocab_size, config.type_vocab_size
  )
  paths = list(dict.fromkeys(train_files + eval_files))
  records.check_files(paths, spec, limits)
  parse = functools.partial(records.parse_batch, spec=spec, limits=limits)
  source = training_input.TrainingInput(
    rows=functools.partial(
      records.training_dataset, train_files, settings.seed
    ),
    parse=parse,
    describe_row=lambda row: f"{train_files[row.file]}:{row.record}",
    find_fault=lambda: records.find_fault(paths, spec, limits),
    identity=records.describe_files(train_files),
  )
  if settings.group_by_length:
    sizes = settings.max_seq_length, settings.train_batch_size
    source = records.group_by_length(source, train_files, *sizes, settings.seed)
  return Data(eval_files, parse, source, train_files)


def enter_phase(
  settings: flag_values.Settings, strategy, step: int, data: Data
) -> phases.Phase:
  """Compares the settings with those of the run that is resumed."""
  return phases.enter(
    os.path.join(settings.output_dir, "training.json"),
    step,
    {
      "input_file": data.source.identity,
      **{name: getattr(settings, name) for name in _PHASE_FLAGS},
    },
    settings.new_phase,
    writes=strategy.extended.should_checkpoint,
  )


def main() -> int | None:
  start = time.monotonic()
  model_folder.find_files()
  settings = flag_values.read()
  if not settings.do_train and not settings.do_eval:
    raise ValueError("nothing to do: pass --do_train=true or --do_eval=true")
  devices.check_tpu_paths(settings, "input_file", "eval_input_file")
  strategy = devices.make_strategy(settings)
  config = model_folder.fit_vocabulary(
    settings, model_folder.read_config(settings)
  )
  data = read_data(settings, config)
  devices.check_workers(
    strategy,
    settings,
    {
      "--input_file": data.source.identity,
      "--eval_input_file": records.describe_files(data.eval_files),
      "--bert_config_file": config,
      "--precision": settings.precision,
    },
  )
  with models.claim_output_dir(settings, config, strategy):
    return run(settings, strategy, config, data, start)


def run(
  settings: flag_values.Settings,
  strategy,
  config: modeling.EncoderConfig,
  data: Data,
  start: float,
) -> int | None:
  """Trains and evaluates; `start` is when, by `time.monotonic`."""
  folder = settings.output_dir
  keras.utils.set_random_seed(settings.seed)
  with strategy.scope():
    model = heads.PretrainingModel(config, devices.compute_dtype(settings))
  step = models.load_weights(settings, loop.model_variables(model))
  phase = None
  if settings.do_train:
    phase = enter_phase(settings, strategy, step, data)
  models.write_config(folder, config, strategy, settings.vocab_file)
  predictor = prediction.Predictor(strategy, model, compare)
  scores, report = {}, {}

  def describe(*results):
    if settings.report and strategy.extended.should_checkpoint:
      with run_report.failures_told():
        found = pretraining_report.describe(*results, settings.vocab_file)
        report["Evaluation"] = found

  def evaluate_at(step):
    if step not in scores:  # The last one is requested twice.
      scores[step] = evaluate(predictor, data, settings, describe)
    return scores[step]

  if settings.do_train:
    with strategy.scope():
      optimizer = optimization.create_optimizer(
        model.trainable_variables,
        settings.learning_rate,
        settings.num_train_steps,
        settings.num_warmup_steps,
      )
    plan = flag_values.fill(loop.TrainingPlan, settings, phase=phase)
    is_causal = encoder_table.is_causal(config)
    if strategy.extended.should_checkpoint and not is_causal:
      rate, warmup = settings.learning_rate, settings.num_warmup_steps
      watch = masked_labels.watch(data.train_files, data.source, rate, warmup)
      plan = dataclasses.replace(plan, watch=watch)
    step, interrupted_by = loop.train(
      strategy, model, optimizer, loss_fn, data.source, plan, evaluate_at
    )
    records.check_unchanged(data.train_files, data.source.identity)
    if interrupted_by:
      return 128 + interrupted_by
  if settings.do_eval:
    results = evaluate_at(step)  # All evaluate; chief writes.
    if strategy.extended.should_checkpoint:
      models.write_eval_results(folder, step, results)
  if strategy.extended.should_checkpoint:
    if settings.report:
      run_report.write(settings, start, "pre-training", report)
    run_summary.print_pretraining(settings, step, scores, phase, start)
  workers.wait_for_all(strategy)


if __name__ == "__main__":
  program.run_program(main)
