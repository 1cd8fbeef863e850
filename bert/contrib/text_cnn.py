"""A TextCNN: layers of convolutions in the place of attention.

Kim, "Convolutional Neural Networks for Sentence Classification",
https://arxiv.org/abs/1408.5882. It has BERT's embeddings, residuals and
LayerNorm, and every position keeps a vector of its own, so that a masked word
is guessed from where it stood. Shapes: B batch, S sequence, H hidden.
"""

import dataclasses
from typing import ClassVar

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

    # Two convolutions of one width would have the same name.
    sizes = self.filter_sizes
    is_list = isinstance(sizes, (list, tuple)) and sizes
    is_valid = is_list and all(type(s) is int and s > 0 for s in sizes)
    if not is_valid or len(set(sizes)) < len(sizes):
      raise ValueError(
        f"filter_sizes is {sizes!r:.80}; expected different integers above 0"
      )

    # JSON has lists. A frozen dataclass can only be changed in this way.
    object.__setattr__(self, "filter_sizes", tuple(sizes))


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
        data_format="channels_last",  # Whatever a user's keras.json says.
        kernel_initializer=modeling.make_initializer(config),
        name=f"width_{width}",
        dtype=self.dtype_policy,
      )
      for width in config.filter_sizes
    ]

    # [B, S, H]: with their input's shape, they can be built before any call.
    shape = [None, None, config.hidden_size]
    self.parts += [(layer, shape) for layer in self.convolutions]
    self.output_block = self.make(
      modeling.ResidualOutput, "output", config.intermediate_size
    )

  def call(self, hidden, input_mask, seed=None):
    # Windows at the end of a text reach into its padding: it must be 0 there,
    # or the answer would depend on the other rows of the batch.
    masked = hidden * tf.cast(input_mask, hidden.dtype)[:, :, None]
    filtered = tf.concat([layer(masked) for layer in self.convolutions], -1)
    filtered = modeling.ACTIVATIONS[self.config.hidden_act](filtered)

    # The dense layer brings all filters, [B, S, widths * F], back to H.
    return self.output_block(filtered, hidden, seed), None


class MaxPooler(compiled.Pooler):
  """Dense and tanh on the largest values of all tokens: [B, S, H] to [B, H]."""

  def call(self, hidden, input_mask):
    # Padding has vectors, too. A very small number keeps them from being the
    # maximum.
    is_token = tf.cast(input_mask, tf.bool)[:, :, None]
    lowest = tf.constant(modeling.MASKED_SCORE, hidden.dtype)
    return self.dense(tf.reduce_max(tf.where(is_token, hidden, lowest), 1))


@keras.saving.register_keras_serializable("bert")
class TextCnnModel(compiled.BertModel):
  """BERT's embeddings and layers of convolutions; pools by their maximum."""

  config_class = TextCnnConfig
  block_class = TextCnnLayer
  pooler_class = MaxPooler


CONFIG_CLASS, MODEL_CLASS = TextCnnConfig, TextCnnModel
