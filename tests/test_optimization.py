"""BERT's AdamW on values worked out by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import optimization


def rates(num_train_steps, num_warmup_steps, steps):
  return [
    float(
      optimization.learning_rate_at(
        tf.constant(step, tf.int64), 1.0, num_train_steps, num_warmup_steps
      )
    )
    for step in steps
  ]


def test_rate_rises_then_falls_to_zero():
  # After the warm-up the decay has run from step 0: 0.6 at step 4, not 1.0.
  expected = [0.0, 0.25, 0.75, 0.6, 0.1, 0.0, 0.0]
  assert rates(10, 4, [0, 1, 3, 4, 9, 10, 11]) == pytest.approx(expected)


def test_rate_without_warmup():
  assert rates(4, 0, [0, 1, 4]) == pytest.approx([1.0, 0.75, 0.0])


class Model(keras.layers.Layer):
  def __init__(self):
    super().__init__(name="bert")
    self.kernel = self.add_weight(name="kernel", shape=[2], initializer="ones")
    self.bias = self.add_weight(name="bias", shape=[1], initializer="ones")


def test_one_update_by_hand():
  model = Model()
  optimizer = optimization.create_optimizer(
    model.trainable_variables, 0.1, num_train_steps=10, num_warmup_steps=0
  )
  optimizer.apply([tf.constant([3.0, 0.0]), None], tf.constant(0.1))
  # m = 0.1 * 3, v = 0.001 * 9; p = 1 - 0.1 (m / (sqrt(v) + 1e-6) + 0.01 * 1)
  update = 0.3 / (np.sqrt(0.009) + 1e-6)
  expected = [1 - 0.1 * (update + 0.01), 1 - 0.1 * 0.01]
  np.testing.assert_allclose(model.kernel, expected, rtol=1e-6)
  np.testing.assert_allclose(optimizer.adam_m[0], [0.3, 0.0], rtol=1e-6)
  np.testing.assert_allclose(optimizer.adam_v[0], [0.009, 0.0], rtol=1e-6)
  assert model.bias.numpy() == 1.0  # No gradient, no decay.


def test_norms_and_biases_do_not_decay():
  optimizer = optimization.create_optimizer(
    [Named(path) for path in PATHS], 0.1, 10, 0
  )
  assert optimizer.decay_rates == [0.01, 0.0, 0.0, 0.0, 0.01]


PATHS = [
  "bert/encoder/layer_0/output/dense/kernel",
  "bert/encoder/layer_0/output/dense/bias",
  "bert/encoder/layer_0/output/LayerNorm/gamma",
  "cls/predictions/output_bias",
  "cls/seq_relationship/output_weights",
]


class Named:
  """A variable with a path."""

  def __init__(self, path):
    self.path, self.value = path, tf.Variable([0.0])


def test_slots_have_googles_names():
  optimizer = optimization.create_optimizer([Named("a/b")], 0.1, 10, 0)
  assert sorted(optimizer.slots) == ["a/b/adam_m", "a/b/adam_v"]
