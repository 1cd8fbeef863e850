"""Fine-tunes BERT to answer questions: SQuAD v1.1, v2.0 and your own texts.

  python run_squad.py --do_train=true --train_file=train-v1.1.json \
    --do_predict=true --predict_file=dev-v1.1.json --output_dir=/tmp/squad \
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
    --init_checkpoint=$BERT/bert_model.ckpt --learning_rate=3e-5
"""

import contextlib
import dataclasses

from absl import flags

from cli import flag_values
from cli import program  # Before TensorFlow: it quietens its log.

# isort: split
import keras
import numpy as np
import tensorflow as tf

from cli import fine_tuning
from cli import squad_flags
import heads
import modeling
from tasks import squad_inputs

FLAGS = flags.FLAGS

_NEVER = -1e9  # Far below any logit.


def create_model(config: modeling.BertConfig, dtype: str) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns a `heads.SpanOutput`.
  """
  return heads.SpanModel(config, dtype)


def compute_logits(model, features, seed=None) -> heads.SpanOutput:
  """Computes the logits of a batch, float32 [B, S]."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)
  if FLAGS.padding_competes:
    return logits
  padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
  return heads.SpanOutput(*(values + _NEVER * padding for values in logits))


def predict(model, features) -> dict[str, tf.Tensor]:
  """Computes the logits of a batch, float32 [B, max_seq_length]."""
  missing = FLAGS.max_seq_length - tf.shape(features["input_ids"])[1]
  return {
    name: tf.pad(logits, [[0, 0], [0, missing]], constant_values=_NEVER)
    for name, logits in compute_logits(model, features)._asdict().items()
  }


def loss_fn(model, features, seed):
  """Sums the losses over a batch; see `loop.LossFn`.

  The loss of a window is the mean cross entropy of its start and its end.
  """
  logits = compute_logits(model, features, seed)
  losses = [
    tf.nn.sparse_softmax_cross_entropy_with_logits(features[labels], values)
    for labels, values in (
      ("start_positions", logits.start_logits),
      ("end_positions", logits.end_logits),
    )
  ]
  losses = tf.add_n(losses) / 2.0  # [B]
  weights = tf.ones_like(losses)
  return {"span_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def all_logits(run: fine_tuning.Run, split: squad_inputs.Split) -> np.ndarray:
  """Computes the logits of every window, float32 [2, windows, S]."""
  return squad_inputs.compute_logits(
    run.predictor,
    split,
    run.parser(split),
    run.batch_order(split, run.settings.predict_batch_size),
    run.private,
  )


def evaluate(
  run: fine_tuning.Run, split: squad_inputs.Split
) -> dict[str, float]:
  """Scores the model on questions with answers."""
  return squad_flags.score(split, all_logits(run, split))


def write_predictions(run: fine_tuning.Run) -> None:
  """Answers all questions, writes the answers, and scores them if it can."""
  [split] = run.inputs.predict
  logits = all_logits(run, split)

  def tune(on):
    values = logits if on is split else all_logits(run, on)
    return squad_flags.score(on, values)

  threshold = squad_flags.choose_threshold(
    run.folder, run.strategy, run.inputs, tune
  )
  if run.is_chief:
    squad_flags.write_answers(run.folder, split, logits, threshold)


def open_run() -> contextlib.AbstractContextManager[fine_tuning.Run]:
  """Makes the run of the flags; see `fine_tuning.open_run`."""
  settings = flag_values.read()
  if settings.padding_competes:
    settings = dataclasses.replace(settings, pad_to_max_length=True)
  return fine_tuning.open_run(
    settings,
    fine_tuning.make_strategy(settings),
    squad_flags.open_inputs,
    lambda config, inputs, dtype: create_model(config, dtype),
    predict,
  )


def main() -> None:
  squad_flags.check_flags()
  with open_run() as run:
    settings = run.settings
    if settings.do_train:
      run.train(loss_fn, lambda: evaluate(run, run.inputs.eval[0]))
    if settings.do_predict:
      write_predictions(run)


if __name__ == "__main__":
  program.run_program(main, squad_flags.define_flags)
