"""A BiLSTM: layers that read in both directions in the place of attention.

Hochreiter & Schmidhuber, "Long Short-Term Memory" (1997), with forget gates
(Gers et al., 2000). It has BERT's embeddings, residuals, LayerNorm and pooler.
Shapes: B batch, S sequence, I input size, U units of a direction.
"""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from bert import modeling
from bert.encoders import compiled


@dataclasses.dataclass(frozen=True)
class BiLstmConfig(modeling.EncoderConfig):
  """The architecture of a `BiLstmModel`; half of hidden_size reads each way."""

  encoder_type: ClassVar[str] = "bilstm"

  num_hidden_layers: int = 2

  @property
  def intermediate_size(self) -> int:
    """The width of the widest tensor of a layer: the gates."""
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
    self.forward_lstm, self.backward_lstm = (
      Lstm(input_size, units, name=name, dtype=self.dtype_policy)
      for name in ("forward", "backward")
    )

  def build(self, input_shape=None):
    self.forward_lstm.build()
    self.backward_lstm.build()

  def call(self, x, input_mask):
    x = tf.transpose(x, [1, 0, 2])  # [S, B, I]
    mask = tf.transpose(input_mask)[:, :, None]

    # Reversed, a row begins with its padding. The mask keeps the state at 0
    # there, so that the last token is read first in short rows, too.
    turned = self.backward_lstm(tf.reverse(x, [0]), tf.reverse(mask, [0]))
    both = [self.forward_lstm(x, mask), tf.reverse(turned, [0])]
    return tf.transpose(tf.concat(both, -1), [1, 0, 2])  # [B, S, 2 * units]


class Lstm(keras.layers.Layer):
  """A long short-term memory, from left to right.

  Call with x [S, B, I] and mask, [S, B, 1], which is 0 where the state is to be
  cleared, else 1; returns [S, B, units]. The columns of the weights are of the
  input gate, the forget gate, the candidate and the output gate.
  """

  def __init__(self, input_size: int, units: int, **kwargs):
    super().__init__(**kwargs)
    self.input_size = input_size
    self.units = units

  def build(self, input_shape=None):
    def add(name, initializer, *shape):
      return self.add_weight([*shape, 4 * self.units], initializer, name=name)

    self.input_weights = add("input_weights", "glorot_uniform", self.input_size)
    self.recurrent_weights = add("recurrent_weights", "orthogonal", self.units)
    self.bias = add("bias", "zeros")

  def call(self, x, mask):
    # All steps at once: only the recurrent product is sequential.
    gates = tf.tensordot(x, tf.convert_to_tensor(self.input_weights), 1)
    gates += tf.convert_to_tensor(self.bias)  # [S, B, 4 * units]
    weights = tf.convert_to_tensor(self.recurrent_weights)

    def step(state, inputs):
      hidden, memory = state
      gates, mask = inputs

      # Products may be of bfloat16. The memory adds up over the whole sequence:
      # it and the gates are float32.
      gates += tf.matmul(tf.cast(hidden, gates.dtype), weights)
      gates = tf.cast(gates, tf.float32)

      write, forget, candidate, output = tf.split(gates, 4, -1)
      # The 1 keeps the memory in early training (Jozefowicz et al., 2015).
      memory *= tf.sigmoid(forget + 1.0)
      memory += tf.sigmoid(write) * tf.tanh(candidate)
      memory *= mask
      return tf.sigmoid(output) * tf.tanh(memory), memory

    zeros = tf.zeros([tf.shape(x)[1], self.units])
    steps = (gates, tf.cast(mask, tf.float32))
    hidden, _ = tf.scan(step, steps, (zeros, zeros))
    return tf.cast(hidden, x.dtype)


CONFIG_CLASS, MODEL_CLASS = BiLstmConfig, BiLstmModel
