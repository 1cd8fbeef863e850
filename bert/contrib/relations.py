"""A model that is pre-trained learns from a teacher how tokens relate, too.

MiniLM, Wang et al. 2020, https://arxiv.org/abs/2002.10957, in the form of its
second version, https://arxiv.org/abs/2012.15828 (section 3): the queries of the
last layer, its keys and its values are each compared with themselves, so that
teacher and student may be of any sizes. Shapes: see modeling.py; R relation
heads, into which Q, K and V are split anew.
"""

from collections.abc import Sequence
import math
from typing import Any

import keras
import tensorflow as tf

from bert import heads, modeling


class VectorModel(heads.PretrainingModel):
  """A `PretrainingModel` that learns the vectors of a teacher, too.

  Its projection, [H, the teacher's H], is saved for a run to resume; nothing
  else loads it.
  """

  def __init__(self, config: Any, dtype: str | None, teacher_size: int):
    super().__init__(config, dtype)
    self.projection = keras.Variable(
      keras.initializers.Orthogonal(),
      shape=[config.hidden_size, teacher_size],
      dtype="float32",
      name="teacher_projection",
    )


def relate(x: tf.Tensor, input_mask: tf.Tensor, num_heads: int) -> tf.Tensor:
  """Scores how tokens of x, [B, S, H], relate; float32 [B, R, S, S].

  These are logits of attention, those of padding as in `modeling`.
  """
  size = x.shape[-1] // num_heads
  batch, length = tf.unstack(tf.shape(x)[:2])
  x = tf.reshape(x, [batch, length, num_heads, size])
  x = tf.transpose(x, [0, 2, 1, 3])  # [B, R, S, size]

  # As in attention: scaled, and without weight for the columns of padding.
  scores = tf.cast(tf.matmul(x, x, transpose_b=True), tf.float32)
  padding = 1.0 - tf.cast(input_mask, tf.float32)[:, None, None]
  return scores / math.sqrt(size) + modeling.MASKED_SCORE * padding


def relation_loss(
  theirs: Sequence[tf.Tensor],
  ours: Sequence[tf.Tensor],
  input_mask: tf.Tensor,
  num_heads: int,
) -> tf.Tensor:
  """Sums Kullback-Leibler divergences of relations, in nats; float32 [B].

  Queries, keys and values count alike, each with its mean over heads and
  tokens.

  Args:
    theirs: queries, keys and values of the teacher, each [B, S, its H].
    ours: the same of the student, each [B, S, its H].
    input_mask: int [B, S], 1 at tokens and 0 at padding.
    num_heads: R, which divides both sizes.
  """
  mask = tf.cast(input_mask, tf.float32)[:, None]  # [B, 1, S]
  total = tf.zeros(tf.shape(mask)[0])
  cross_entropy = tf.nn.softmax_cross_entropy_with_logits
  for their_part, our_part in zip(theirs, ours, strict=True):
    their_logits = relate(their_part, input_mask, num_heads)
    our_logits = relate(our_part, input_mask, num_heads)

    # Cross entropy minus the teacher's own entropy is the divergence: 0 where
    # both agree. [B, R, S].
    targets = tf.nn.softmax(their_logits)
    divergences = cross_entropy(targets, our_logits)
    divergences -= cross_entropy(targets, their_logits)

    # The rows of padding must not count, only its columns were masked out.
    sums = tf.reduce_sum(divergences * mask, [1, 2])
    total += sums / tf.reduce_sum(mask, [1, 2]) / num_heads
  return total


def pool(states: tf.Tensor, input_mask: tf.Tensor) -> tf.Tensor:
  """Makes vectors of sequences, float32 [B, H]: means of last hidden states."""
  return heads.pool(tf.cast(states, tf.float32), input_mask, "mean")


def vector_loss(theirs: tf.Tensor, ours: tf.Tensor) -> tf.Tensor:
  """Returns 1 - cosine of vectors, float32 [B, the teacher's H] each: [B]."""
  cosines = heads.normalize(theirs) * heads.normalize(ours)
  return 1.0 - tf.reduce_sum(cosines, -1)


def project_last(bert: modeling.BertModel, states: Any) -> list[tf.Tensor]:
  """Returns queries, keys and values of the last layer, each [B, S, H].

  `states` are all hidden states. The model has computed the same products. In
  a graph, TensorFlow merges equal ones: the teacher's, and the student's where
  its layers are not recorded once for all (bert/training/recorded_layer.py).
  """
  # The last layer's input is the state before the last.
  attention = bert.encoder.blocks[-1].attention.self_attention
  layers = attention.query, attention.key, attention.value
  return [layer(states[-2]) for layer in layers]
