"""A model, rows and a run that take the training loop a second."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert import heads, modeling, optimization, run_pretraining
from bert.inputs import training_input
from bert.training import loop, training_plan
from bert.weights import checkpoints
import tiny

CONFIG = modeling.BertConfig.from_dict(tiny.PRETRAINING_CONFIG)
NO_DROPOUT = dataclasses.replace(CONFIG, **tiny.NO_DROPOUT)


def random_rows(count):
  """Examples whose numbers of masked words differ, as in real records."""
  rows = [tiny.make_values(number) for number in range(count)]
  return {
    name: np.array(
      [row[name] for row in rows],
      np.float32 if name == "masked_lm_weights" else np.int32,
    )
    for name in rows[0]
  }


class WordModel(keras.layers.Layer):
  """Guesses words from themselves: a third of the time that a BERT takes.

  It is for what the loop does with any model that has dropout.
  """

  def __init__(self, dropout_rate=0.1):
    super().__init__(name="words")
    self.dropout_rate = dropout_rate
    self.table = self.add_weight(name="table", shape=[tiny.RECORD_IDS, 8])
    self.bias = self.add_weight(name="bias", shape=[tiny.RECORD_IDS])
    self.bert = keras.layers.Identity()  # It has no products to cast.

  def call(self, ids, seed=None):
    rows = tf.gather(self.table.value, ids)
    rows = modeling.dropout(rows, self.dropout_rate, seed)
    return tf.matmul(rows, self.table.value, transpose_b=True) + self.bias


def word_forward(model, features, seed):
  """Calls a `WordModel`."""
  return model(features["masked_lm_ids"], seed)


def word_loss(logits, features):
  """Sums the loss of a `WordModel`."""
  ids, weights = features["masked_lm_ids"], features["masked_lm_weights"]
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
  return {
    "masked_lm_loss": (tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
  }


def make_input(table):
  """Rows 0, 1, 2, ... of a table, over and over."""
  count = len(table["input_ids"])

  def rows(skip):
    indices = tf.data.Dataset.range(count).repeat().skip(skip)
    return indices.map(lambda i: (i, tf.strings.as_string(i)))

  def parse(serialized):
    index = tf.strings.to_number(serialized, tf.int32)
    return {name: tf.gather(value, index) for name, value in table.items()}

  return training_input.TrainingInput(
    rows=rows,
    parse=parse,
    describe_row=lambda row: f"row {row}",
    find_fault=lambda: None,
  )


def run(
  folder,
  steps,
  config=None,
  strategy=None,
  source=None,
  rate=1e-2,
  evaluate=None,
  history=None,
  loss=word_loss,
  forward=word_forward,
  make_passes=None,
  dropout_rate=0.1,
  **options,
):
  """Trains a new WordModel, or a BERT if there is a config.

  Args:
    folder: for checkpoints; a run that finds one there resumes.
    steps: the updates to make.
    config: of a BERT; `loss` and `forward` are then its own.
    strategy: TensorFlow's default one if None.
    source: of the rows; 20 random ones if None.
    rate: the learning rate after warmup.
    evaluate: see `loop.train`.
    history: see `loop.train`.
    loss: see `training_plan.TrainingTask`.
    forward: see `training_plan.TrainingTask`.
    make_passes: see `training_plan.TrainingTask`.
    dropout_rate: of the WordModel.
    **options: fields of the `TrainingPlan`.

  Returns:
    How it ended.
  """
  strategy = strategy or tf.distribute.get_strategy()
  keras.utils.set_random_seed(1)
  with strategy.scope():
    if config:
      model = heads.PretrainingModel(config)
      loss, forward = run_pretraining.loss, heads.forward
    else:
      model = WordModel(dropout_rate)

    # The schedule is of 6 updates whatever `steps` says: a run that stops
    # earlier and is resumed must have the learning rates of the whole one.
    optimizer = optimization.create_optimizer(
      model.trainable_variables, rate, num_train_steps=6, num_warmup_steps=2
    )
  plan = training_plan.TrainingPlan(
    output_dir=str(folder), num_train_steps=steps, train_batch_size=8, **options
  )
  source = source or make_input(random_rows(20))
  task = training_plan.TrainingTask(
    model, optimizer, loss, source, plan, forward, make_passes
  )
  return loop.train(strategy, {"": task}, plan, evaluate, history)


def saved(folder, step=6):
  return dict(checkpoints.read(str(folder / f"model.ckpt-{step}")))
