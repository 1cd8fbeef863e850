"""Losses between the rows of a batch: its parts update as the whole."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, optimization
from bert.training import gradient_cache, training_plan
from replicas import strategy_of
import tiny
import tiny_training

SEED = tf.constant([1, 2])
IDS = "masked_lm_ids"  # By which rows are compared.


def forward(model, features, seed):
  rows = tf.gather(model.table.value, features[IDS])
  return modeling.dropout(tf.reduce_sum(rows, 1), model.dropout_rate, seed)


def compare(vectors, ids):
  """Every row's loss depends on the vectors of all rows."""
  products = tf.matmul(vectors, vectors, transpose_b=True)
  own = tf.range(tf.shape(products)[0])
  return tf.nn.sparse_softmax_cross_entropy_with_logits(
    own, products + tf.cast(ids[:, :1], tf.float32)
  )


def loss(vectors, features):
  ids = features[IDS]
  weight = tf.cast(tf.shape(ids)[0], tf.float32)
  return {"word_loss": (tf.reduce_sum(compare(vectors, ids)), weight)}


make_passes = functools.partial(gradient_cache.make_passes, compares=[IDS])
TASK = {"loss": loss, "forward": forward, "make_passes": make_passes}


@pytest.fixture(name="alone", scope="module")
def train_in_one_part(tmp_path_factory):
  folder = tmp_path_factory.mktemp("alone")
  tiny_training.run(folder, 6, dropout_rate=0, **TASK)
  return tiny_training.saved(folder)


@pytest.mark.parametrize(("count", "parts"), [(1, 2), (1, 8), (2, 1), (2, 2)])
def test_devices_and_parts_make_the_same_update(count, parts, alone, tmp_path):
  options = {"strategy": strategy_of(count), "dropout_rate": 0, **TASK}
  options["gradient_accumulation_steps"] = parts
  tiny_training.run(tmp_path, 6, **options)
  found = tiny_training.saved(tmp_path)
  assert np.abs(alone["words/table/adam_m"]).max() > 0.01
  for name, value in alone.items():
    np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_gradients_are_those_of_a_large_batch_with_the_same_dropout():
  """A BERT's, in four parts, beside a tape over all of them."""
  config = modeling.BertConfig.from_dict(
    {**tiny.PRETRAINING_CONFIG, "hidden_dropout_prob": 0.5}
  )
  model = heads.ClassifierModel(config, 0, "float32", pooling="mean")
  optimizer = optimization.create_optimizer(
    model.trainable_variables, 1e-3, 10, 0
  )
  rows = tiny_training.random_rows(8)
  features = {
    name: tf.constant(rows[name])
    for name in (*heads.HeadModel.input_names, IDS)
  }
  task = training_plan.TrainingTask(
    model,
    optimizer,
    loss,
    tiny_training.make_input(rows),
    training_plan.TrainingPlan("", 1, 8, gradient_accumulation_steps=4),
  )
  passes = make_passes(task, counts_rows=True)
  weights = {"word_loss": tf.constant(8.0)}
  found = tf.function(passes, autograph=False)(features, SEED, weights)
  with tf.GradientTape() as tape:
    parts = [
      heads.forward(
        model,
        {name: value[2 * i : 2 * i + 2] for name, value in features.items()},
        modeling.fold_in(SEED, i),
      )
      for i in range(4)
    ]
    losses = compare(tf.concat(parts, 0), features[IDS])
    mean = tf.reduce_mean(losses)
  expected = tape.gradient(mean, optimizer.variables)
  total = found.loss_sums["word_loss"]
  np.testing.assert_allclose(total, tf.reduce_sum(losses), rtol=1e-5)
  for path, ours, theirs in zip(
    optimizer.paths, found.gradients, expected, strict=True
  ):
    theirs = tf.convert_to_tensor(theirs)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=path)
