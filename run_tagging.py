"""Fine-tunes BERT to label words: named entities, parts of speech, any tags.

  python run_tagging.py --data_dir=conll2003 --output_dir=/tmp/ner \
    --do_train=true --do_eval=true --do_predict=true --do_lower_case=false \
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
    --init_checkpoint=$BERT/bert_model.ckpt --document_context=true
"""

from collections.abc import Callable
from typing import NamedTuple

from absl import flags

from cli import devices
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
from training import loop
from training import prediction

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


class Run(NamedTuple):
  """A model and its data."""

  strategy: tf.distribute.Strategy
  model: keras.Model
  inputs: tagging_flags.Inputs
  parse: Callable[[tf.Tensor], loop.Features]
  predictor: prediction.Predictor
  folder: str
  seed: int


def prepare(strategy, config, sources, private) -> Run:
  """Reads and checks all data, then makes the model: no work is lost."""
  folder = FLAGS.output_dir
  models.claim_output_dir(folder, config)
  inputs = tagging_flags.open_inputs(sources, folder, private)
  tagging_flags.best_metric(inputs.options.scheme)
  parse = tagging_flags.make_parser(inputs.options, config)
  keras.utils.set_random_seed(FLAGS.seed % 2**32)
  with strategy.scope():
    dtype = devices.compute_dtype()
    model = create_model(config, len(inputs.options.labels), dtype)
  predictor = prediction.Predictor(strategy, model, predict)
  return Run(strategy, model, inputs, parse, predictor, folder, FLAGS.seed)


def train(run: Run) -> loop.TrainingResult:
  """Trains, or goes on with it; ends with the best weights, if some are."""
  return fine_tuning.fine_tune(
    run,
    loss_fn,
    run.inputs.train,
    run.parse,
    tagging_flags.best_metric(run.inputs.options.scheme),
    lambda step: evaluate(run).metrics,
  )


def label_words(run: Run, split, batch_size) -> tagging_inputs.Outputs:
  """Predicts the labels of all words of a split."""
  order = fine_tuning.batch_order(split.features.lengths, batch_size)
  return tagging_inputs.predict_split(run.predictor, split, run.parse, order)


def evaluate(run: Run) -> tagging_results.Scores:
  """Scores the model on the evaluation data."""
  outputs = label_words(run, run.inputs.eval, FLAGS.eval_batch_size)
  return tagging_flags.score(run.inputs.eval, run.inputs.options, outputs)


def write_evaluation(run: Run, step: int) -> None:
  """Scores the model, prints and writes the scores."""
  scores = evaluate(run)
  if run.strategy.extended.should_checkpoint:
    models.write_eval_results(run.folder, step, scores.metrics)
    tagging_results.write_scores(run.folder, "eval", scores)


def write_predictions(run: Run) -> None:
  """Predicts, writes the predictions, and scores them if there are tags."""
  split, options = run.inputs.predict, run.inputs.options
  outputs = label_words(run, split, FLAGS.predict_batch_size)
  if not run.strategy.extended.should_checkpoint:
    return
  tagging_flags.write_outputs(run.folder, split, options, outputs)
  if split.source.is_tagged:
    scores = tagging_flags.score(split, options, outputs)
    tagging_results.write_scores(run.folder, "predict", scores)


def main() -> int | None:
  fine_tuning.check_tpu_flags()
  sources = tagging_flags.find_sources()
  strategy = devices.make_strategy()
  config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
  fine_tuning.check_fine_tuning_flags(config)
  with models.private_folder(FLAGS.output_dir, strategy) as private:
    run = prepare(strategy, config, sources, private)
    step = fine_tuning.load_trained_weights(
      run.folder, run.model, FLAGS.do_train
    )
    tagging_flags.write_settings(run.folder, config, strategy, run.inputs)
    if FLAGS.do_train:
      step, interrupted_by = train(run)
      if interrupted_by:
        return 128 + interrupted_by
    if FLAGS.do_eval:
      write_evaluation(run, step)
    if FLAGS.do_predict:
      write_predictions(run)
    loop.wait_for_workers(strategy)


if __name__ == "__main__":
  program.run_program(main, tagging_flags.define_flags)
