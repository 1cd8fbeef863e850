"""Pre-trains BERT on masked words and next sentences.

  python run_pretraining.py --input_file=examples.tfrecord --do_train=true \
    --bert_config_file=configs/bert_tiny.json --output_dir=/tmp/pretrained \
    --train_batch_size=32 --num_train_steps=20 --num_warmup_steps=10
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

from absl import flags

from cli import devices
from cli import models
from cli import program  # Before TensorFlow: it quietens its log.

# isort: split
import keras
import tensorflow as tf

from data import files
import heads
from inputs import records
import modeling
import optimization
from tasks import metrics
from training import loop
from training import prediction

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Declares the flags of this program."""
  models.define_model_flags()
  models.define_training_flags(learning_rate=5e-5)
  devices.define_device_flags()
  flags.DEFINE_string(
    "input_file",
    None,
    "TFRecord files of create_pretraining_data.py: comma-separated globs.",
    required=True,
  )
  flags.DEFINE_string(
    "eval_input_file", None, "Those to evaluate on; default --input_file."
  )
  flags.DEFINE_bool("do_train", False, "Whether to train.")
  flags.DEFINE_bool("do_eval", False, "Whether to evaluate, after training.")
  for name, default, least, text in (
    ("max_seq_length", 128, 1, "Tokens per record, as it was made."),
    ("max_predictions_per_seq", 20, 1, "Masked tokens per record, at most."),
    ("eval_batch_size", 8, 1, "Examples per evaluation batch."),
    ("num_train_steps", 100000, 1, "Updates in all."),
    ("num_warmup_steps", 10000, 0, "Updates with a rising learning rate."),
    (
      "max_eval_steps",
      100,
      0,
      "Batches to evaluate, starting over where the records end; 0 evaluates "
      "every record once.",
    ),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=least)


def compare(model, features, seed=None) -> dict[str, tf.Tensor]:
  """Compares a model's guesses with the truth, per masked token and example.

  Returns:
    masked_lm_loss, masked_lm_correct and masked_lm_weights, float32 [B, P];
    next_sentence_loss and next_sentence_correct, float32 [B].
  """
  inputs = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions")
  output = model(*map(features.get, inputs), seed)
  masked_lm_loss, masked_lm_correct = _compare_guesses(
    output.masked_lm_logits, features["masked_lm_ids"]
  )
  next_sentence_loss, next_sentence_correct = _compare_guesses(
    output.next_sentence_logits, features["next_sentence_labels"][:, 0]
  )
  return {
    "masked_lm_loss": masked_lm_loss,
    "masked_lm_correct": masked_lm_correct,
    "masked_lm_weights": features["masked_lm_weights"],
    "next_sentence_loss": next_sentence_loss,
    "next_sentence_correct": next_sentence_correct,
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


def evaluate(predictor, data) -> dict[str, float]:
  """Scores the model on --max_eval_steps batches."""
  rows = records.sequential_dataset(data.eval_files)
  rows = rows.map(lambda row_id, row: row)
  if FLAGS.max_eval_steps:
    # The original starts over where the records end; its scores depend on it.
    rows = rows.repeat().take(FLAGS.max_eval_steps * FLAGS.eval_batch_size)
  batches = rows.batch(FLAGS.eval_batch_size).map(data.parse).prefetch(2)
  with loop.explained_errors(data.source):
    rows = predictor(batches)
  return metrics.pretraining_metrics(rows, FLAGS.eval_batch_size)


class Data(NamedTuple):
  """The records of a run."""

  eval_files: list[str]
  parse: Callable[[tf.Tensor], loop.Features]
  source: loop.TrainingInput


def read_data(config: modeling.BertConfig) -> Data:
  """Finds and checks the input files."""
  if FLAGS.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={FLAGS.max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  train_files = files.expand_patterns(FLAGS.input_file, "input_file")
  patterns = FLAGS.eval_input_file or FLAGS.input_file
  eval_files = files.expand_patterns(patterns, "eval_input_file")
  spec = records.pretraining_spec(
    FLAGS.max_seq_length, FLAGS.max_predictions_per_seq
  )
  limits = records.pretraining_limits(
    FLAGS.max_seq_length, config.vocab_size, config.type_vocab_size
  )
  paths = list(dict.fromkeys(train_files + eval_files))
  records.check_files(paths, spec, limits)
  parse = functools.partial(records.parse_batch, spec=spec, limits=limits)
  source = loop.TrainingInput(
    rows=functools.partial(records.training_dataset, train_files, FLAGS.seed),
    parse=parse,
    describe_row=lambda row: f"{train_files[row.file]}:{row.record}",
    find_fault=lambda: records.find_fault(paths, spec, limits),
  )
  return Data(eval_files, parse, source)


def main() -> int | None:
  if not FLAGS.do_train and not FLAGS.do_eval:
    raise ValueError("nothing to do: pass --do_train=true or --do_eval=true")
  devices.check_tpu_paths("input_file", "eval_input_file")
  folder, strategy = FLAGS.output_dir, devices.make_strategy()
  config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
  data = read_data(config)
  models.claim_output_dir(folder, config)
  keras.utils.set_random_seed(FLAGS.seed)
  with strategy.scope():
    model = heads.PretrainingModel(config, devices.compute_dtype())
  step = models.load_weights(folder, loop.model_variables(model))
  models.write_config(folder, config, strategy)
  predictor = prediction.Predictor(strategy, model, compare)

  # Remembered: the last step may be asked for twice.
  evaluate_at = functools.lru_cache(1)(lambda step: evaluate(predictor, data))

  if FLAGS.do_train:
    with strategy.scope():
      optimizer = optimization.create_optimizer(
        model.trainable_variables,
        FLAGS.learning_rate,
        FLAGS.num_train_steps,
        FLAGS.num_warmup_steps,
      )
    plan = models.training_plan(folder, FLAGS.num_train_steps)
    step, interrupted_by = loop.train(
      strategy, model, optimizer, loss_fn, data.source, plan, evaluate_at
    )
    if interrupted_by:
      return 128 + interrupted_by
  if FLAGS.do_eval:
    results = evaluate_at(step)  # By all workers; the chief writes.
    if strategy.extended.should_checkpoint:
      models.write_eval_results(folder, step, results)
  loop.wait_for_workers(strategy)


if __name__ == "__main__":
  program.run_program(main, define_flags)
