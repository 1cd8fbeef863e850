"""A Transformer that may be causal, as GPT: Radford et al. (2018).

"Improving Language Understanding by Generative Pre-Training",
https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
A token of a causal model sees itself and the tokens before it.
"""

import dataclasses
from typing import ClassVar

import keras
import tensorflow as tf

from bert import modeling
from bert.encoders import compiled


@dataclasses.dataclass(frozen=True)
class VariantConfig(modeling.BertConfig):
  """A BERT's fields and those that its relatives differ in."""

  encoder_type: ClassVar[str | None] = "variant"

  _: dataclasses.KW_ONLY
  # Whether tokens see those before them only. The pooled token is the last one
  # then, and the word embeddings alone are the decoder.
  causal_attention: bool = False
  embedding_layer_norm: bool = True  # Whether embeddings are normalised.
  # Written always: a run compares its config with what earlier ones wrote.
  layer_norm_eps: float | None = modeling.LAYER_NORM_EPSILON

  @property
  def is_bidirectional(self) -> bool:
    """Whether tokens see those after them."""
    return not self.causal_attention

  has_lm_transform = is_bidirectional

  @property
  def pooler_input(self) -> str:
    """Which token the pooler reads."""
    return "last" if self.causal_attention else "cls"

  @property
  def has_embedding_norm(self) -> bool:
    """Whether embeddings are normalised."""
    return self.embedding_layer_norm

  def __post_init__(self) -> None:
    super().__post_init__()

    # JSON's "false" in quotes would count as true.
    for name in ("causal_attention", "embedding_layer_norm"):
      value = getattr(self, name)
      if type(value) is not bool:
        raise ValueError(f"{name} is {value!r:.80}; expected true or false")

    # The decoder has no dense layer from H to the embeddings' width.
    if self.causal_attention and self.embedding_width != self.hidden_size:
      raise ValueError(
        f"embedding_size is {self.embedding_size}; with causal_attention, "
        f"expected none or the hidden_size, {self.hidden_size}"
      )


class VariantEmbeddings(compiled.Embeddings):
  """Embeddings that may not be normalised."""

  def make_norm(self, size=None):
    if self.config.has_embedding_norm:
      return super().make_norm(size)
    return keras.layers.Identity(name="LayerNorm", dtype=self.dtype_policy)


class VariantLayer(compiled.EncoderLayer):
  """A Transformer block that may be causal."""

  def call(self, hidden, input_mask, seed=None):
    if not self.config.is_bidirectional:
      length = tf.shape(input_mask)[1]
      before = tf.linalg.band_part(tf.ones([length, length], tf.int32), -1, 0)
      # [B, S, S]: a row for each token.
      input_mask = tf.cast(input_mask, tf.int32)[:, None] * before
    return super().call(hidden, input_mask, seed)


class VariantPooler(compiled.Pooler):
  """Dense and tanh on the first token; of a causal model, on the last one."""

  def call(self, hidden, input_mask=None):
    if self.config.pooler_input == "cls":
      return super().call(hidden)
    last = tf.maximum(tf.reduce_sum(input_mask, -1) - 1, 0)  # [B]
    return self.dense(tf.gather(hidden, last, batch_dims=1))


@keras.saving.register_keras_serializable("bert")
class VariantModel(compiled.BertModel):
  """The encoder of a `VariantConfig`."""

  config_class = VariantConfig
  embeddings_class = VariantEmbeddings
  block_class = VariantLayer
  pooler_class = VariantPooler


CONFIG_CLASS, MODEL_CLASS = VariantConfig, VariantModel
