"""An LSTM by hand, and two that read in both directions."""

import numpy as np
import tensorflow as tf

from bert.contrib import bilstm


def test_lstm_by_hand():
  lstm = bilstm.Lstm(1, 1, name="lstm")
  lstm.build()
  lstm.input_weights.assign([[0.5, 0.1, 2.0, 1.0]])
  lstm.recurrent_weights.assign([[1.0, -1.0, 0.5, 0.3]])
  lstm.bias.assign([0.1, 0.2, 0.3, 0.4])

  def sigmoid(x):
    return 1 / (1 + np.exp(-x))

  hidden = memory = 0.0
  expected = []
  for x in (1.0, -2.0):
    memory *= sigmoid(0.1 * x - hidden + 0.2 + 1)
    memory += sigmoid(0.5 * x + hidden + 0.1) * np.tanh(
      2 * x + 0.5 * hidden + 0.3
    )
    hidden = sigmoid(x + 0.3 * hidden + 0.4) * np.tanh(memory)
    expected.append(hidden)
  found = lstm(tf.constant([[[1.0]], [[-2.0]]]), tf.ones([2, 1, 1]))
  np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-5)


def test_the_second_lstm_reads_from_the_right():
  layer = bilstm.BiLstm(3, 2, name="lstm")
  layer.build()
  layer.backward_lstm.input_weights.assign(layer.forward_lstm.input_weights)
  layer.backward_lstm.recurrent_weights.assign(
    layer.forward_lstm.recurrent_weights
  )
  x = np.random.default_rng(0).normal(size=[1, 4, 3]).astype(np.float32)
  found = layer(x, tf.constant([[1, 1, 1, 0]])).numpy()
  turned = layer(x[:, [2, 1, 0]], tf.ones([1, 3], tf.int32)).numpy()
  np.testing.assert_allclose(found[0, :3, 2:], turned[0, ::-1, :2], atol=1e-6)
