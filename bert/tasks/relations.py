"""A model that is pre-trained learns from a teacher how tokens relate, too.

MiniLM, Wang et al. 2020, https://arxiv.org/abs/2002.10957, in the form of its
second version, https://arxiv.org/abs/2012.15828 (section 3): the queries of the
last layer, its keys and its values are each compared with themselves, so that
teacher and student may be of any sizes. Shapes: see modeling.py; R relation
heads, into which Q, K and V are split anew.
"""

from collections.abc import Sequence
import math
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert import heads, modeling
from bert.inputs import records
from bert.training import prediction, training_plan


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
      name="teacher_projection",
    )


def relate(x: tf.Tensor, input_mask: tf.Tensor, num_heads: int) -> tf.Tensor:
  """Scores how tokens of x, [B, S, H], relate; float32 [B, R, S, S].

  These are logits of attention, those of padding as in `modeling`.
  """
  size = x.shape[-1] // num_heads
  x = tf.reshape(x, [*tf.unstack(tf.shape(x)[:2]), num_heads, size])
  x = tf.transpose(x, [0, 2, 1, 3])
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

  Queries, keys and values, the teacher's and the student's, are [B, S, its H];
  each counts with its mean over heads and tokens. R divides both sizes.
  """
  mask = tf.cast(input_mask, tf.float32)[:, None]  # [B, 1, S]
  total = tf.zeros(tf.shape(mask)[0])
  compare = tf.nn.softmax_cross_entropy_with_logits
  for their_part, our_part in zip(theirs, ours, strict=True):
    wanted = relate(their_part, input_mask, num_heads)
    targets = tf.nn.softmax(wanted)
    found = relate(our_part, input_mask, num_heads)
    divergences = compare(targets, found) - compare(targets, wanted)
    sums = tf.reduce_sum(divergences * mask, [1, 2])
    total += sums / tf.reduce_sum(mask, [1, 2]) / num_heads
  return total


def vector_loss(
  theirs: tf.Tensor,
  ours: tf.Tensor,
  input_mask: tf.Tensor,
  projection: tf.Tensor,
) -> tf.Tensor:
  """Returns 1 - cosine of the vectors of sequences; float32 [B].

  They are means of last hidden states, each [B, S, its H]; the projection is
  float32 [H, the teacher's H].
  """
  wanted, found = (
    heads.pool(tf.cast(states, tf.float32), input_mask, "mean")
    for states in (theirs, ours)
  )
  found = heads.normalize(tf.matmul(found, projection))
  return 1.0 - tf.reduce_sum(heads.normalize(wanted) * found, -1)


def project_last(bert: modeling.BertModel, states: Any) -> list[tf.Tensor]:
  """Returns queries, keys and values of the last layer, each [B, S, H].

  `states` are all hidden states. TensorFlow merges equal products.
  """
  attention = bert.encoder.blocks[-1].attention.self_attention
  layers = attention.query, attention.key, attention.value
  return [layer(states[-2]) for layer in layers]


class TaughtOutput(NamedTuple):
  """What a model and its teacher return of the same tokens."""

  guesses: heads.PretrainingOutput | None  # None: words are not masked.
  # Queries, keys and values of the teacher and of the model, each [B, S, H].
  relations: tuple[list[tf.Tensor], list[tf.Tensor]]
  states: tuple[tf.Tensor, tf.Tensor]  # The last of both, [B, S, H].
  projection: tf.Tensor | None  # That of a `VectorModel`.


def make_forward(
  teacher: modeling.BertModel, guesses_words: bool
) -> prediction.Forward:
  """Builds the forward pass of a model and of its teacher."""

  def forward(model, features, seed):
    inputs = [features[name] for name in records.INPUT_NAMES]
    ours = model.bert(*inputs, seed, return_hidden_states=True)
    theirs = teacher(*inputs, return_hidden_states=True)
    guesses = projection = None
    if guesses_words:
      guesses = model.guess(ours, features["masked_lm_positions"])
    if isinstance(model, VectorModel):
      projection = model.projection.value
    return TaughtOutput(
      guesses,
      (
        project_last(teacher, theirs.hidden_states),
        project_last(model.bert, ours.hidden_states),
      ),
      (theirs.sequence_output, ours.sequence_output),
      projection,
    )

  return forward


def add_teacher(
  loss: training_plan.Loss | None, num_heads: int
) -> training_plan.Loss:
  """Adds those of a teacher to the losses of guessing words, None for none.

  The losses take a `TaughtOutput`.
  """

  def wrapped(outputs, features):
    mask = features["input_mask"]
    count = tf.cast(tf.shape(mask)[0], tf.float32)
    losses = loss(outputs.guesses, features) if loss else {}
    divergences = relation_loss(*outputs.relations, mask, num_heads)
    losses["relation_loss"] = tf.reduce_sum(divergences), count
    if outputs.projection is not None:
      distances = vector_loss(*outputs.states, mask, outputs.projection)
      losses["vector_loss"] = tf.reduce_sum(distances), count
    return losses

  return wrapped
