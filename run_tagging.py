"""Fine-tunes BERT to label words: named entities, parts of speech, any tags.

  python run_tagging.py --data_dir=conll2003 --output_dir=/tmp/ner \
    --do_train=true --do_eval=true --do_predict=true --do_lower_case=false \
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
    --init_checkpoint=$BERT/bert_model.ckpt --document_context=true
"""

import functools
from typing import NamedTuple

from absl import flags

from cli import flag_values
from cli import models
from cli import program  # Before TensorFlow: it quietens its log.

# isort: split
import keras
import tensorflow as tf

from cli import fine_tuning
from cli import tagging_flags
import heads
import modeling
from tasks import tagging_inputs
from tasks import tagging_results

FLAGS = flags.FLAGS


def create_model(
  config: modeling.BertConfig, num_labels: int, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns logits, float32
    [B, S, L].
  """
  if FLAGS.feature_based:
    return tagging_flags.make_feature_tagger(config, num_labels, dtype)
  return heads.TaggerModel(config, num_labels, dtype)


class WordLosses(NamedTuple):
  """What a model makes of each token, [B, S]; zero where no word begins."""

  predicted: tf.Tensor  # int32, the number of the likeliest label.
  losses: tf.Tensor  # float32, cross entropies in nats.
  known: tf.Tensor  # int32, 1 where the true label is one that the model has.


def compute_losses(model, features, seed=None) -> WordLosses:
  """Compares the labels of a batch with what the model says."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)  # [B, S, L]
  mask, labels = features["label_mask"], features["label_ids"]
  last = logits.shape[-1] - 1
  known = mask * tf.cast(labels <= last, tf.int32)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    tf.minimum(labels, last), logits
  )
  predicted = tf.argmax(logits, -1, tf.int32) * mask
  return WordLosses(predicted, losses * tf.cast(known, tf.float32), known)


def predict(model, features) -> dict[str, tf.Tensor]:
  """Computes `WordLosses` and the label_mask, [B, max_seq_length]."""
  results = compute_losses(model, features)._asdict()
  results["label_mask"] = features["label_mask"]
  missing = FLAGS.max_seq_length - tf.shape(features["input_ids"])[1]
  return {
    name: tf.pad(value, [[0, 0], [0, missing]])
    for name, value in results.items()
  }


def loss_fn(model, features, seed):
  """Sums the losses over the words of a batch; see `loop.LossFn`."""
  _, losses, known = compute_losses(model, features, seed)
  weights = tf.cast(known, tf.float32)
  return {"tagging_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def label_words(
  run: fine_tuning.Run, split: tagging_inputs.Split, batch_size: int
) -> tagging_inputs.Outputs:
  """Predicts the labels of all words of a split."""
  return tagging_inputs.read_outputs(run.predict(split, batch_size))


def evaluate(run: fine_tuning.Run) -> tagging_results.Scores:
  """Scores the model on the evaluation data."""
  [split] = run.inputs.eval
  outputs = label_words(run, split, run.settings.eval_batch_size)
  return tagging_flags.score(split, run.inputs.settings, outputs)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  scores = evaluate(run)
  if run.is_chief:
    models.write_eval_results(run.folder, run.step, scores.metrics)
    tagging_results.write_scores(run.folder, "eval", scores)


def write_predictions(run: fine_tuning.Run) -> None:
  """Predicts, writes the predictions, and scores them if there are tags."""
  [split], options = run.inputs.predict, run.inputs.settings
  outputs = label_words(run, split, run.settings.predict_batch_size)
  if not run.is_chief:
    return
  tagging_flags.write_outputs(run.folder, split, options, outputs)
  if split.source.is_tagged:
    scores = tagging_flags.score(split, options, outputs)
    tagging_results.write_scores(run.folder, "predict", scores)


def main() -> None:
  settings = flag_values.read()
  sources = tagging_flags.find_sources()
  with fine_tuning.open_run(
    settings,
    fine_tuning.make_strategy(settings),
    functools.partial(tagging_flags.open_inputs, sources=sources),
    lambda config, inputs, dtype: create_model(
      config, len(inputs.labels), dtype
    ),
    predict,
  ) as run:
    if settings.do_train:
      run.train(loss_fn, lambda: evaluate(run).metrics)
    if settings.do_eval:
      write_evaluation(run)
    if settings.do_predict:
      write_predictions(run)


if __name__ == "__main__":
  program.run_program(main, tagging_flags.define_flags)
