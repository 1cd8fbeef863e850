"""A model, rows and a run that take the training loop a second."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

import heads
from inputs import training_input
import modeling
import optimization
import run_pretraining
from training import loop, training_plan
from weights import checkpoints

CONFIG = modeling.BertConfig(
  vocab_size=40,
  hidden_size=16,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=32,
  max_position_embeddings=12,
  type_vocab_size=2,
)
NO_DROPOUT = dataclasses.replace(
  CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)


def random_rows(count):
  """Examples whose numbers of masked words differ, as in real records."""
  random = np.random.default_rng(3)
  weights = (np.arange(3) < random.integers(1, 4, [count, 1])).astype("float32")
  return {
    "input_ids": random.integers(0, 40, [count, 12]).astype("int32"),
    "input_mask": np.ones([count, 12], "int32"),
    "segment_ids": np.repeat([[0, 1]], 6, 1).repeat(count, 0).astype("int32"),
    "masked_lm_positions": random.integers(0, 12, [count, 3]).astype("int32"),
    "masked_lm_ids": random.integers(0, 40, [count, 3]).astype("int32"),
    "masked_lm_weights": weights,
    "next_sentence_labels": random.integers(0, 2, [count, 1]).astype("int32"),
  }


class WordModel(keras.layers.Layer):
  """Guesses words from themselves: a third of the time that a BERT takes.

  It is for what the loop does with any model that has dropout.
  """

  def __init__(self, dropout_rate=0.1):
    super().__init__(name="words")
    self.dropout_rate = dropout_rate
    self.table = self.add_weight(name="table", shape=[40, 8])
    self.bias = self.add_weight(name="bias", shape=[40])
    self.bert = keras.layers.Identity()  # It has no products to cast.

  def call(self, ids, seed=None):
    rows = tf.gather(self.table.value, ids)
    rows = modeling.dropout(rows, self.dropout_rate, seed)
    return tf.matmul(rows, self.table.value, transpose_b=True) + self.bias


def word_loss(model, features, seed):
  """Sums the loss of a `WordModel`."""
  ids, weights = features["masked_lm_ids"], features["masked_lm_weights"]
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, model(ids, seed))
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
  loss_fn=word_loss,
  dropout_rate=0.1,
  **options,
):
  """Trains a new WordModel, or a BERT if there is a config.

  Returns:
    How it ended.
  """
  strategy = strategy or tf.distribute.get_strategy()
  keras.utils.set_random_seed(1)
  with strategy.scope():
    if config:
      model, loss_fn = heads.PretrainingModel(config), run_pretraining.loss_fn
    else:
      model = WordModel(dropout_rate)
    optimizer = optimization.create_optimizer(
      model.trainable_variables, rate, num_train_steps=6, num_warmup_steps=2
    )
  plan = training_plan.TrainingPlan(
    output_dir=str(folder),
    num_train_steps=steps,
    train_batch_size=8,
    **options,
  )
  source = source or make_input(random_rows(20))
  task = training_plan.TrainingTask(model, optimizer, loss_fn, source, plan)
  return loop.train(strategy, {"": task}, plan, evaluate, history)


def saved(folder, step=6):
  return dict(checkpoints.read(str(folder / f"model.ckpt-{step}")))
