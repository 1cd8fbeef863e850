"""Fine-tunes BERT to classify texts and pairs: GLUE, XNLI and your own files.

  python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC \
    --do_train=true --do_eval=true --vocab_file=$BERT/vocab.txt \
    --bert_config_file=$BERT/bert_config.json --output_dir=/tmp/mrpc \
    --init_checkpoint=$BERT/bert_model.ckpt --num_train_epochs=3
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

from cli import classifier_flags
from cli import fine_tuning
import heads
import modeling
from tasks import classification_inputs
from tasks import classification_results
from training import loop
from training import prediction

FLAGS = flags.FLAGS


def create_model(
  config: modeling.BertConfig, num_labels: int, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns logits, float32 [B, L].
  """
  return heads.ClassifierModel(config, num_labels, dtype)


def predict(model, features, seed=None) -> dict[str, tf.Tensor]:
  """Computes the logits of a batch, float32 [B, L]; keeps the labels."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)
  return {"logits": logits, "label_ids": features["label_ids"]}


def loss_fn(model, features, seed, problem, class_weights):
  """Sums the losses over a batch; see `loop.LossFn`.

  Args:
    model, features, seed: see there.
    problem: one of classification.PROBLEMS.
    class_weights: float32 [L].
  """
  logits, labels = predict(model, features, seed).values()
  if problem == "regression":
    losses = tf.square(logits - labels)[:, 0]
    weights = tf.ones_like(losses)
  elif problem == "multi_label":
    labels = tf.cast(labels, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    losses = tf.reduce_mean(losses * class_weights, -1)
    weights = tf.ones_like(losses)
  else:
    labels = labels[:, 0]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    weights = tf.gather(class_weights, labels)
  return {
    "classification_loss": (
      tf.reduce_sum(losses * weights),
      tf.reduce_sum(weights),
    )
  }


class Run(NamedTuple):
  """A model and its data: one seed, and a folder for it."""

  strategy: tf.distribute.Strategy
  model: keras.Model
  inputs: classification_inputs.Inputs
  parse: Callable[[tf.Tensor], loop.Features]
  predictor: prediction.Predictor
  folder: str
  seed: int


def prepare(strategy, config, task, folder, private, seed) -> Run:
  """Reads and checks all data, then makes the model: no work is lost."""
  models.claim_output_dir(folder, config)
  inputs = classifier_flags.open_inputs(task, folder, private)
  parse = classifier_flags.make_parser(inputs.options, config)
  keras.utils.set_random_seed(seed % 2**32)
  with strategy.scope():
    dtype = devices.compute_dtype()
    model = create_model(config, inputs.options.num_outputs, dtype)
  predictor = prediction.Predictor(strategy, model, predict)
  return Run(strategy, model, inputs, parse, predictor, folder, seed)


def train(run: Run) -> loop.TrainingResult:
  """Trains, or goes on with it; ends with the best weights, if some are."""
  data = run.inputs.train
  weights = classifier_flags.class_weights(data.features.facts["label_counts"])
  loss = functools.partial(
    loss_fn, problem=data.problem, class_weights=tf.constant(weights)
  )
  return fine_tuning.fine_tune(
    run,
    loss,
    data,
    run.parse,
    classifier_flags.best_metric(run.inputs.task),
    lambda step: evaluate(run, run.inputs.eval[0]).metrics,
  )


def compute_logits(
  run: Run, split, batch_size
) -> classification_inputs.Outputs:
  """Computes the logits of a split, one row an example."""
  order = fine_tuning.batch_order(split.features.lengths, batch_size)
  return classification_inputs.predict_split(
    run.predictor, split, run.parse, order, FLAGS.window_pooling
  )


def evaluate(run: Run, split) -> classification_results.Scores:
  """Scores the model on a split."""
  outputs = compute_logits(run, split, FLAGS.eval_batch_size)
  return classification_results.score(
    *outputs,
    split.problem,
    run.inputs.task.metrics,
    FLAGS.eval_batch_size,
    groups=split.groups(),
  )


def write_evaluations(run: Run, step: int) -> classification_results.Scores:
  """Scores every set, prints and writes it; returns the first one's scores."""
  all_scores = [evaluate(run, split) for split in run.inputs.eval]
  if run.strategy.extended.should_checkpoint:
    for split, scores in zip(run.inputs.eval, all_scores, strict=True):
      classifier_flags.write_scores(run.folder, run.inputs, split, scores, step)
  return all_scores[0]


def write_predictions(run: Run) -> None:
  """Predicts every set and writes it as the original did, and readably."""
  for split in run.inputs.predict:
    outputs = compute_logits(run, split, FLAGS.predict_batch_size)
    if run.strategy.extended.should_checkpoint:
      classifier_flags.write_outputs(run.folder, run.inputs, split, outputs)


def main() -> int | None:
  fine_tuning.check_tpu_flags()
  task = classifier_flags.read_task()
  metric = classifier_flags.best_metric(task)
  strategy = devices.make_strategy()
  config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
  fine_tuning.check_fine_tuning_flags(config)
  scores = {}
  for seed, folder in classifier_flags.seeds_and_folders():
    with models.private_folder(folder, strategy) as private:
      run = prepare(strategy, config, task, folder, private, seed)
      step = fine_tuning.load_trained_weights(folder, run.model, FLAGS.do_train)
      classifier_flags.write_settings(folder, config, run.inputs, strategy)
      if FLAGS.do_train:
        step, interrupted_by = train(run)
        if interrupted_by:
          return 128 + interrupted_by
      if FLAGS.do_eval:
        scores[seed] = write_evaluations(run, step)
      if FLAGS.do_predict:
        write_predictions(run)
      loop.wait_for_workers(strategy)
  if FLAGS.seeds and scores:
    print(classification_results.format_seeds(scores, metric))


if __name__ == "__main__":
  program.run_program(main, classifier_flags.define_flags)
