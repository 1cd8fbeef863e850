"""A bidirectional LSTM as an encoder, and the layer that tagging puts on BERT.

Hochreiter & Schmidhuber, "Long Short-Term Memory" (1997), with forget gates
(Gers et al., 2000). Shapes: B batch, S sequence, H hidden, I input size, U
units of each direction (in the encoder, H / 2).
"""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from encoders import compiled
import modeling


@dataclasses.dataclass(frozen=True)
class BiLstmConfig(modeling.EncoderConfig):
  """The architecture of a `BiLstmModel`; half of hidden_size reads each way."""

  encoder_type: ClassVar[str] = "bilstm"

  num_hidden_layers: int = 2

  @property
  def intermediate_size(self) -> int:
    """The width of what a layer computes between: the gates."""
    return 4 * self.hidden_size

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.hidden_size % 2:
      raise ValueError(f"hidden_size is {self.hidden_size}; expected it even")


class BiLstmLayer(compiled.Layer):
  """A BiLSTM, dropout, the residual and LayerNorm; called like a BERT layer."""

  def __init__(self, config: BiLstmConfig, **kwargs):
    super().__init__(config, **kwargs)
    size = config.hidden_size
    self.lstm = BiLstm(size, size // 2, name="lstm", dtype=self.dtype_policy)
    self.parts.append((self.lstm, None))
    self.layer_norm = self.make_norm()

  def call(self, hidden, input_mask, seed=None):
    read = self.lstm(hidden, input_mask)
    read = modeling.dropout(read, self.config.hidden_dropout_prob, seed)
    return self.layer_norm(read + hidden), None


@keras.saving.register_keras_serializable("bert")
class BiLstmModel(compiled.BertModel):
  """BERT's embeddings and pooler around layers of BiLSTMs."""

  config_class = BiLstmConfig
  block_class = BiLstmLayer


class BiLstm(keras.layers.Layer):
  """Two LSTMs, one left to right and one right to left.

  Call with x [B, S, I] and input_mask, int [B, S]; returns [B, S, 2 * units], 0
  at padding, which does not affect the rest.
  """

  def __init__(self, input_size: int, units: int, **kwargs):
    super().__init__(**kwargs)
    self.input_size, self.units = input_size, units
    policy = self.dtype_policy
    self.forward_lstm = Lstm(units, name="forward", dtype=policy)
    self.backward_lstm = Lstm(units, name="backward", dtype=policy)

  def build(self, input_shape=None):
    self.forward_lstm.build([None, None, self.input_size])
    self.backward_lstm.build([None, None, self.input_size])

  def call(self, x, input_mask):
    x = tf.transpose(x, [1, 0, 2])  # [S, B, I]
    mask = tf.transpose(input_mask)[:, :, None]
    turned = self.backward_lstm(tf.reverse(x, [0]), tf.reverse(mask, [0]))
    both = [self.forward_lstm(x, mask), tf.reverse(turned, [0])]
    return tf.transpose(tf.concat(both, -1), [1, 0, 2])  # [B, S, 2 * units]


class Lstm(keras.layers.Layer):
  """A long short-term memory, from left to right.

  Call with x [S, B, I] and mask, [S, B, 1], which is 0 where the state is to be
  cleared, else 1; returns [S, B, units]. The columns of the weights are of the
  input gate, the forget gate, the candidate and the output gate.
  """

  def __init__(self, units: int, **kwargs):
    super().__init__(**kwargs)
    self.units = units

  def build(self, input_shape):
    self.input_weights = self.add_weight(
      name="input_weights",
      shape=[input_shape[-1], 4 * self.units],
      initializer="glorot_uniform",
    )
    self.recurrent_weights = self.add_weight(
      name="recurrent_weights",
      shape=[self.units, 4 * self.units],
      initializer="orthogonal",
    )
    self.bias = self.add_weight(
      name="bias", shape=[4 * self.units], initializer="zeros"
    )

  def call(self, x, mask):
    length = x.shape[0] or tf.shape(x)[0]  # XLA needs a constant.
    rows = tf.reshape(x, [-1, x.shape[-1]])
    # All steps at once: only the recurrent product is sequential.
    gates = tf.matmul(rows, tf.convert_to_tensor(self.input_weights))
    gates += tf.convert_to_tensor(self.bias)
    gates = tf.reshape(gates, [length, -1, 4 * self.units])
    weights = tf.convert_to_tensor(self.recurrent_weights)
    return _run(gates, weights, tf.cast(mask, tf.float32))


@tf.custom_gradient
def _run(inputs, weights, mask):
  """Runs an LSTM, with one product a step.

  The gradient is written out because TensorFlow's own would compute that of the
  weights in every step; here, a step computes only what depends on another.

  Args:
    inputs: what the gates get from the input, [S, B, 4 * units].
    weights: recurrent ones, [units, 4 * units].
    mask: see `Lstm`; float32.

  Returns:
    [S, B, units], in the dtype of the inputs.
  """
  length = inputs.shape[0] or tf.shape(inputs)[0]
  units, dtype = weights.shape[0], inputs.dtype
  zeros = tf.zeros([tf.shape(inputs)[1], units])

  def step(t, hidden, memory):
    gates = inputs[t] + tf.matmul(tf.cast(hidden, dtype), weights)
    write, forget, candidate, output = _activate(gates)
    memory = (forget * memory + write * candidate) * mask[t]
    return output * tf.tanh(memory), memory

  hidden, memory = _loop(step, (zeros, zeros), length)

  def gradient(upstream):
    upstream = tf.cast(upstream, tf.float32)
    before, memory_before = (
      tf.concat([zeros[None], x[:-1]], 0) for x in (hidden, memory)
    )
    before = tf.reshape(tf.cast(before, dtype), [-1, units])
    gates = tf.reshape(tf.matmul(before, weights), tf.shape(inputs)) + inputs
    write, forget, candidate, output = _activate(gates)
    seen = tf.tanh(memory)
    by_memory = output * (1.0 - seen * seen)
    slopes = [
      candidate * write * (1.0 - write),
      memory_before * forget * (1.0 - forget),
      write * (1.0 - candidate * candidate),
      seen * output * (1.0 - output),
    ]

    def step_back(t, by_gates, by_later):
      t = length - 1 - t
      by_hidden = tf.matmul(by_gates, weights, transpose_b=True)
      by_hidden = tf.cast(by_hidden, tf.float32) + upstream[t]
      by_now = (by_hidden * by_memory[t] + by_later) * mask[t]
      parts = [by_now, by_now, by_now, by_hidden]
      parts = [x * y[t] for x, y in zip(parts, slopes, strict=True)]
      return tf.cast(tf.concat(parts, -1), dtype), by_now * forget[t]

    none = tf.zeros_like(inputs[0])
    by_gates = tf.reverse(_loop(step_back, (none, zeros), length)[0], [0])
    flat = tf.reshape(by_gates, [-1, 4 * units])
    return by_gates, tf.matmul(before, flat, transpose_a=True), None

  return tf.cast(hidden, dtype), gradient


def _activate(gates):
  """Splits [..., 4 * units] into the four gates, float32 [..., units]."""
  write, forget, candidate, output = tf.split(tf.cast(gates, tf.float32), 4, -1)
  # The 1 keeps the memory in early training (Jozefowicz et al., 2015).
  forget = tf.sigmoid(forget + 1.0)
  return tf.sigmoid(write), forget, tf.tanh(candidate), tf.sigmoid(output)


def _loop(step, state, length):
  """Calls `state = step(t, *state)` for t from 0 to length - 1.

  Returns:
    The states of all steps: of each part [B, ...] of it, [S, B, ...].
  """
  arrays = [
    tf.TensorArray(x.dtype, length, element_shape=x.shape) for x in state
  ]

  def body(t, state, arrays):
    state = step(t, *state)
    arrays = [a.write(t, x) for a, x in zip(arrays, state, strict=True)]
    return t + 1, state, arrays

  *_, arrays = tf.while_loop(
    lambda t, *_: t < length,
    body,
    (tf.constant(0), state, arrays),
    maximum_iterations=length,
  )
  return [array.stack() for array in arrays]
