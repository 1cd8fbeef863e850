"""Losses that compare all vectors of a batch, however many parts it has.

Gradient caching: the vectors of all parts are computed first, without
gradients; then come the gradients of the loss in the vectors, and from these
those of the weights, part by part again. This takes the memory of a part and
makes the update of the batch, for the same dropout is drawn twice. Gao et al.,
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"
(2021).
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from bert import modeling
from bert.inputs import training_input

Features = training_input.Features
_ADDED = ("vector_gradients", "row_losses")


class BatchLoss(NamedTuple):
  """A loss function of a program; see bert/training/step.py."""

  # (model, features, seed) -> vectors, float32 [B, ...].
  encode: Callable[[keras.Model, Features, tf.Tensor | None], tf.Tensor]
  # (vectors, feature) of a whole batch -> a loss for each row, float32 [B].
  compare: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
  feature: str  # The name of the one that is compared.

  def __call__(self, model, features, seed):
    """Sums the losses of a batch, or of a part that `add_gradients` made."""
    vectors = self.encode(model, features, seed)
    if _ADDED[0] in features:
      gradients, losses = (features[name] for name in _ADDED)
      # It is 0, but its gradient is that of the whole batch's loss.
      slope = tf.reduce_sum((vectors - tf.stop_gradient(vectors)) * gradients)
    else:
      losses, slope = self.compare(vectors, features[self.feature]), 0.0
    weight = tf.cast(tf.shape(vectors)[0], tf.float32)
    return {"embedding_loss": (tf.reduce_sum(losses) + slope, weight)}

  def add_gradients(
    self, model: keras.Model, features: Features, seed: tf.Tensor, parts: int
  ) -> Features:
    """Adds what parts need to know of the others, those of replicas too.

    Call it in replica context; seeds of parts are those of `step.accumulate`.
    """

    def encode(i):
      part = {name: split(value, parts)[i] for name, value in features.items()}
      own_seed = modeling.fold_in(seed, i) if parts > 1 else seed
      return self.encode(model, part, own_seed)

    vectors = tf.map_fn(
      encode, tf.range(parts), None, 1, fn_output_signature=tf.float32
    )
    vectors = tf.reshape(vectors, [-1, *vectors.shape[2:]])
    context, count = tf.distribute.get_replica_context(), tf.shape(vectors)[0]
    number = context.replica_id_in_sync_group

    def gather(value):
      # With several hosts all_gather fails (TensorFlow 2.21).
      replicas = context.num_replicas_in_sync
      place = tf.one_hot(number, replicas, dtype=value.dtype)
      place = tf.reshape(place, [-1, *[1] * value.shape.rank])
      whole = context.all_reduce("SUM", place * value)
      return tf.reshape(whole, [-1, *value.shape[1:]])

    vectors, compared = gather(vectors), gather(features[self.feature])
    with tf.GradientTape() as tape:
      tape.watch(vectors)
      losses = self.compare(vectors, compared)
    first = number * count
    added = (tf.convert_to_tensor(tape.gradient(losses, vectors)), losses)
    own = (value[first : first + count] for value in added)
    return {**features, **dict(zip(_ADDED, own, strict=True))}


def split(value: tf.Tensor, parts: int) -> tf.Tensor:
  """Splits a batch into parts: [parts * B, ...] to [parts, B, ...]."""
  return tf.reshape(value, tf.concat([[parts, -1], tf.shape(value)[1:]], 0))
