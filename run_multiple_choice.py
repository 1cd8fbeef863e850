"""Fine-tunes BERT to choose among answers: SWAG, and your own questions.

  python run_multiple_choice.py --data_dir=swag --output_dir=/tmp/swag \
    --do_train=true --do_eval=true --train_batch_size=16 --learning_rate=2e-5 \
    --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
    --init_checkpoint=$BERT/bert_model.ckpt --num_train_epochs=3
"""

from typing import NamedTuple

from absl import flags

from cli import devices
from cli import models
from cli import program  # Before TensorFlow: it quietens its log.

# isort: split
import keras
import tensorflow as tf

from cli import fine_tuning
from cli import multiple_choice_flags
import heads
import modeling
from tasks import multiple_choice
from tasks import multiple_choice_inputs
from training import loop
from training import prediction

FLAGS = flags.FLAGS

_NEVER = -1e9  # Far below any logit.


def create_model(config: modeling.BertConfig, dtype: str) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B*C, S],
    and a seed for its dropout, int32 [2] or None; returns the score of each
    choice, float32 [B*C, 1].
  """
  return heads.ClassifierModel(config, 1, dtype)


def compute_logits(model, features, seed=None) -> tf.Tensor:
  """Scores the choices of a batch, float32 [B, C]."""
  shape = tf.shape(features["input_ids"])
  names = ["input_ids", "input_mask", "segment_ids"]
  inputs = [tf.reshape(features[name], [-1, shape[2]]) for name in names]
  logits = model(*inputs, seed)  # [B*C, 1]
  logits = tf.reshape(logits, shape[:2])
  is_choice = tf.cast(features["choice_mask"], tf.float32)
  return logits + _NEVER * (1.0 - is_choice)


def predict(model, features) -> dict[str, tf.Tensor]:
  """Scores the choices of a batch; keeps the labels."""
  kept = {name: features[name] for name in ("choice_mask", "label_ids")}
  return {"logits": compute_logits(model, features), **kept}


def loss_fn(model, features, seed):
  """Sums the losses over a batch; see `loop.LossFn`."""
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    features["label_ids"][:, 0], compute_logits(model, features, seed)
  )
  weight = tf.reduce_sum(tf.ones_like(features["label_ids"]))
  return {"choice_loss": (tf.reduce_sum(losses), tf.cast(weight, tf.float32))}


class Run(NamedTuple):
  """A model and its data."""

  strategy: tf.distribute.Strategy
  config: modeling.BertConfig
  model: keras.Model
  inputs: multiple_choice_flags.Inputs
  predictor: prediction.Predictor
  folder: str
  seed: int


def prepare(strategy, config, paths, private) -> Run:
  """Reads and checks all data, then makes the model: no work is lost."""
  folder = FLAGS.output_dir
  models.claim_output_dir(folder, config)
  inputs = multiple_choice_flags.open_inputs(paths, folder, private)
  keras.utils.set_random_seed(FLAGS.seed % 2**32)
  with strategy.scope():
    model = create_model(config, devices.compute_dtype())
  predictor = prediction.Predictor(strategy, model, predict)
  return Run(strategy, config, model, inputs, predictor, folder, FLAGS.seed)


def train(run: Run) -> loop.TrainingResult:
  """Trains, or goes on with it; ends with the best weights, if some are."""
  split = run.inputs.train
  return fine_tuning.fine_tune(
    run,
    loss_fn,
    split,
    multiple_choice_flags.make_parser(split, run.config),
    multiple_choice_flags.best_metric(),
    lambda step: evaluate(run),
  )


def choose(run: Run, split, batch_size) -> multiple_choice_inputs.Outputs:
  """Computes the probabilities of the choices of a split."""
  order = fine_tuning.batch_order(split.features.lengths, batch_size)
  parse = multiple_choice_flags.make_parser(split, run.config)
  return multiple_choice_inputs.predict_split(
    run.predictor, split, parse, order
  )


def evaluate(run: Run) -> dict[str, float]:
  """Scores the model on the evaluation data."""
  outputs = choose(run, run.inputs.eval, FLAGS.eval_batch_size)
  return multiple_choice.score(*outputs)


def write_evaluation(run: Run, step: int) -> None:
  """Scores the model, prints and writes the scores."""
  scores = evaluate(run)
  if run.strategy.extended.should_checkpoint:
    models.write_eval_results(run.folder, step, scores)


def write_predictions(run: Run) -> None:
  """Predicts and writes the predictions."""
  outputs = choose(run, run.inputs.predict, FLAGS.predict_batch_size)
  if run.strategy.extended.should_checkpoint:
    multiple_choice_flags.write_outputs(run.folder, run.inputs.predict, outputs)


def main() -> int | None:
  fine_tuning.check_tpu_flags()
  paths = multiple_choice_flags.find_files()
  strategy = devices.make_strategy()
  config = modeling.BertConfig.from_json_file(FLAGS.bert_config_file)
  fine_tuning.check_fine_tuning_flags(config)
  with models.private_folder(FLAGS.output_dir, strategy) as private:
    run = prepare(strategy, config, paths, private)
    step = fine_tuning.load_trained_weights(
      run.folder, run.model, FLAGS.do_train
    )
    multiple_choice_flags.write_settings(
      run.folder, config, strategy, run.inputs
    )
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
  program.run_program(main, multiple_choice_flags.define_flags)
