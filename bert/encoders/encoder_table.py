"""The table of encoders, and those beside BERT's: a TextCNN and a BiLSTM.

A config file names one by its `encoder_type`.

Both have BERT's embeddings, residuals and LayerNorm, and every position keeps a
vector of its own, so that a masked word is guessed from where it stood.

Kim, "Convolutional Neural Networks for Sentence Classification",
https://arxiv.org/abs/1408.5882; Hochreiter & Schmidhuber, "Long Short-Term
Memory" (1997), with forget gates (Gers et al., 2000). Shapes: B batch, S
sequence, H hidden, F filters of a width, I input size, U units of a direction.
"""

import dataclasses
import importlib
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from bert import modeling
from bert.encoders import compiled


@dataclasses.dataclass(frozen=True)
class TextCnnConfig(modeling.EncoderConfig):
  """The architecture of a `TextCnnModel`."""

  encoder_type: ClassVar[str] = "text_cnn"
  pooler_input: ClassVar[str] = "max"

  num_hidden_layers: int = 2
  filter_sizes: tuple[int, ...] = (2, 3, 4, 5)  # Widths, in tokens.
  num_filters: int = 128  # Filters of each width, F.

  @property
  def intermediate_size(self) -> int:
    """The width of the widest tensor of a layer: all filters."""
    return len(self.filter_sizes) * self.num_filters

  def __post_init__(self) -> None:
    super().__post_init__()
    sizes = self.filter_sizes
    is_list = isinstance(sizes, (list, tuple)) and sizes
    is_valid = is_list and all(type(s) is int and s > 0 for s in sizes)
    if not is_valid or len(set(sizes)) < len(sizes):
      raise ValueError(
        f"filter_sizes is {sizes!r:.80}; expected different integers above 0"
      )
    object.__setattr__(self, "filter_sizes", tuple(sizes))  # JSON has lists.


class TextCnnLayer(compiled.Layer):
  """Convolutions side by side, then BERT's "Add & Norm"; called like a layer.

  Padding is 0 for the convolutions, as are positions outside of the sequence.
  """

  def __init__(self, config: TextCnnConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.convolutions = [
      keras.layers.Conv1D(
        config.num_filters,
        width,
        padding="same",
        kernel_initializer=modeling.make_initializer(config),
        name=f"width_{width}",
        dtype=self.dtype_policy,
      )
      for width in config.filter_sizes
    ]
    shape = [None, None, config.hidden_size]
    self.parts += [(layer, shape) for layer in self.convolutions]
    self.output_block = self.make(
      modeling.ResidualOutput, "output", config.intermediate_size
    )

  def call(self, hidden, input_mask, seed=None):
    masked = hidden * tf.cast(input_mask, hidden.dtype)[:, :, None]
    filtered = tf.concat([layer(masked) for layer in self.convolutions], -1)
    filtered = modeling.ACTIVATIONS[self.config.hidden_act](filtered)
    return self.output_block(filtered, hidden, seed), None


class MaxPooler(compiled.Pooler):
  """Dense and tanh on the largest values of all tokens: [B, S, H] to [B, H]."""

  def call(self, hidden, input_mask):
    is_token = tf.cast(input_mask, tf.bool)[:, :, None]
    lowest = tf.constant(modeling.MASKED_SCORE, hidden.dtype)
    return self.dense(tf.reduce_max(tf.where(is_token, hidden, lowest), 1))


@keras.saving.register_keras_serializable("bert")
class TextCnnModel(compiled.BertModel):
  """BERT's embeddings and layers of convolutions; pools by their maximum."""

  config_class = TextCnnConfig
  block_class = TextCnnLayer
  pooler_class = MaxPooler


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
    self.parts.append((self.lstm,))
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
    self.input_size, self.units = input_size, units

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
      (hidden, memory), (gates, mask) = state, inputs
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


class EncoderClasses(NamedTuple):
  """The two classes of an encoder; docs/encoders.md says what they need."""

  config_class: type[modeling.EncoderConfig]
  model_class: type[modeling.BertModel]


ENCODERS = {
  "transformer": EncoderClasses(modeling.BertConfig, compiled.BertModel),
  "text_cnn": EncoderClasses(TextCnnConfig, TextCnnModel),
  "bilstm": EncoderClasses(BiLstmConfig, BiLstmModel),
}
_POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")
# Those of contrib: `CONFIG_CLASS` and `MODEL_CLASS` of modules of these names.
_OF_CONTRIB = ("variant",)
# Fields that name the encoder of an old config, which has no encoder_type.
_OLD_CONFIGS = {
  "causal_attention": "variant",
  "embedding_layer_norm": "variant",
}


def find_encoder(name: str) -> EncoderClasses:
  """Returns the classes of an encoder; a ValueError if it does not exist."""
  if isinstance(name, str) and name in ENCODERS:
    return ENCODERS[name]
  if name in _OF_CONTRIB:
    module = importlib.import_module(f"bert.contrib.{name}")
    return EncoderClasses(module.CONFIG_CLASS, module.MODEL_CLASS)
  raise ValueError(
    f"encoder_type is {name!r:.80}; known: {', '.join(ENCODERS)}"
  )


def make_config(fields: dict[str, Any]) -> modeling.EncoderConfig:
  """Makes the config of any encoder; a ValueError names what is wrong.

  This is the door for configs from before each but BERT's named its encoder.
  """
  old = (name for field, name in _OLD_CONFIGS.items() if field in fields)
  name = fields.get("encoder_type", next(old, "transformer"))
  kind = find_encoder(name).config_class
  return kind.from_dict(fields | {"encoder_type": kind.encoder_type})


def make_encoder(
  config: modeling.EncoderConfig, dtype: str | None = None, name: str = "bert"
) -> modeling.BertModel:
  """Makes the encoder of a config; arguments as of `modeling.BertModel`."""
  policy = keras.dtype_policies.get(dtype).name
  if policy not in _POLICIES:
    raise ValueError(f"dtype is {policy}; known: {', '.join(_POLICIES)}")
  encoder = find_encoder(config.encoder_type or "transformer")
  return encoder.model_class(config, dtype, name)
