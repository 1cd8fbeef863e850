"""Gradient caching: parts of a batch update as the whole of it would.

A loss that compares the rows of a batch with each other, as the losses of
sentence vectors do, must see the rows that other replicas and micro-batches
hold. So the update has two rounds. The first computes the vectors of all rows,
part by part and without gradients, then the loss, and its gradient in each
vector. The second computes the vectors of each part again, and takes the
gradients of the parameters from the gradients of the vectors.

This takes the memory of a part, and makes the update of the whole batch: both
rounds draw the same dropout. Gao et al., "Scaling Deep Contrastive Learning
Batch Size under Memory Limited Setup" (2021).
"""

from collections.abc import Sequence

import tensorflow as tf

from bert import modeling
from bert.training import step, training_plan

# Endings of features that hand the loss of the whole batch to its parts: the
# share of a row in the loss, and its gradient in the row's vector. The name of
# the loss stands before them.
_SHARE, _GRADIENT = "/share", "/gradient"


def make_passes(
  task: training_plan.TrainingTask, counts_rows: bool, compares: Sequence[str]
) -> step.Passes:
  """Builds what `step.make_passes` does, for a loss that compares rows.

  Args:
    task: its forward pass returns one tensor, the vectors, float32 [B, ...].
    counts_rows: see `step.make_forward_backward`.
    compares: the names of the features that the loss reads.
  """
  # The second pass over a part does not compare rows: its loss has the gradient
  # that the whole batch's loss has in these rows.
  of_parts = step.make_passes(task._replace(loss=_part_loss), counts_rows)

  def passes(features, seed, divisors):
    # The loss of the whole batch needs the vectors of all replicas.
    vectors = _compute_vectors(task, features, seed)
    count = tf.shape(vectors)[0]
    gathered = _gather(vectors)
    compared = {name: _gather(features[name]) for name in compares}

    # The tape is persistent, for a gradient of every loss.
    with tf.GradientTape(persistent=True) as tape:
      tape.watch(gathered)
      losses = task.loss(gathered, compared)

    # Every replica has computed the same loss; each keeps its own rows of the
    # gradient.
    context = tf.distribute.get_replica_context()
    first = context.replica_id_in_sync_group * count
    rows = tf.cast(tf.shape(gathered)[0], tf.float32)

    # The parts get them as features, which are split like all other features.
    added = {}
    for name, (total, _) in losses.items():
      gradient = tape.gradient(
        total, gathered, unconnected_gradients=tf.UnconnectedGradients.ZERO
      )
      gradient = tf.convert_to_tensor(gradient)[first : first + count]
      added[name + _GRADIENT] = gradient
      added[name + _SHARE] = tf.fill([count], total / rows)
    return of_parts({**features, **added}, seed, divisors)

  return passes


def _compute_vectors(task, features, seed):
  """Runs the forward pass of a replica's share, part by part."""
  count = task.plan.gradient_accumulation_steps
  parts = step.split_rows(features, count)

  def compute(i):
    part = {name: value[i] for name, value in parts.items()}
    # `step.make_passes` derives the same seeds.
    own_seed = modeling.fold_in(seed, i) if count > 1 else seed
    return task.forward(task.model, part, own_seed)

  vectors = tf.map_fn(
    compute, tf.range(count), None, 1, fn_output_signature=tf.float32
  )
  return tf.reshape(vectors, [-1, *vectors.shape[2:]])


def _gather(value):
  """Returns the rows of all replicas, in their order."""
  context = tf.distribute.get_replica_context()

  # With several hosts `all_gather` fails (TensorFlow 2.21). So every replica
  # puts its rows in their place among zeros, and all of them are added up.
  number = context.replica_id_in_sync_group
  place = tf.one_hot(number, context.num_replicas_in_sync, dtype=value.dtype)
  place = tf.reshape(place, [-1, *[1] * value.shape.rank])
  whole = context.all_reduce("SUM", place * value)
  return tf.reshape(whole, [-1, *value.shape[1:]])


def _part_loss(vectors, features):
  """Returns a part's share of the losses of the whole batch."""
  losses = {}
  for key, share in features.items():
    name, suffix, _ = key.rpartition(_SHARE)
    if suffix:
      # It is 0, but has the gradient that the whole batch's loss has.
      change = vectors - tf.stop_gradient(vectors)
      slope = tf.reduce_sum(change * features[name + _GRADIENT])
      weight = tf.cast(tf.shape(share)[0], tf.float32)
      losses[name] = tf.reduce_sum(share) + slope, weight
  return losses
