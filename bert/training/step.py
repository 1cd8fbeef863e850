"""One update of the weights: forward, backward, clipping, AdamW.

A program's loss function

  loss_fn(model, features, seed) -> {name: (sum, weight)}

returns sums over its rows, never means. Only the step divides, by the weight of
the whole batch: over all replicas and all accumulated micro-batches. One device
with 32 rows, two with 16 and four accumulated micro-batches of 8 therefore make
the same update, but for the masks of dropout, which each draws by itself. The
sum of the entries named `..._loss` is minimised; the others are only reported.
A `batch_loss.BatchLoss` compares the rows of a batch with each other.
"""

from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from bert import modeling, optimization
from bert.inputs import training_input
from bert.training import batch_loss, prediction, training_plan

Features = training_input.Features


class Gradients(NamedTuple):
  """The results of `forward_backward`, sums over the examples.

  Those of replicas and micro-batches add up to those of the whole batch. All
  are float32, but for the gradients of matrices by which BERT multiplies in
  bfloat16: these are bfloat16 as well.
  """

  sums: dict[str, tf.Tensor]  # Losses by name.
  gradients: list[tf.Tensor]  # One per variable of the optimizer.
  row_norms: tf.Tensor  # See `optimization.row_norms`.


def make_replica_step(
  strategy: tf.distribute.Strategy,
  task: training_plan.TrainingTask,
  global_step: tf.Variable,
  sum_weights: Callable[[Features], dict[str, tf.Tensor]],
) -> Callable[[Features], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
  """Builds the update of one replica from its share of a batch.

  It returns [names, 2], sums and weights of the losses in the order of their
  names, the norm of the gradients before clipping and the learning rate.
  `sum_weights` is from `make_sum_weights`.
  """
  optimizer, parts = task.optimizer, task.plan.gradient_accumulation_steps
  # On TPUs, the original multiplies by one-hot rows: all gradients are dense.
  counts_rows = not isinstance(strategy, tf.distribute.TPUStrategy)
  forward_backward = make_forward_backward(
    task.model, optimizer, task.loss_fn, counts_rows
  )
  if parts > 1:
    forward_backward = accumulate(forward_backward, parts, optimizer)
  is_split = parts * strategy.num_replicas_in_sync > 1
  needs_others = is_split and isinstance(task.loss_fn, batch_loss.BatchLoss)

  def replica_step(features):
    context = tf.distribute.get_replica_context()
    seed = modeling.fold_in(tf.constant([task.plan.seed, 0]), global_step)
    seed = modeling.fold_in(seed, context.replica_id_in_sync_group)
    weights = context.all_reduce("SUM", sum_weights(features))
    divisors = weights
    if task.weights is not None:
      factor = tf.gather(tf.constant(task.weights), global_step)
      divisors = {name: weight / factor for name, weight in weights.items()}
    if needs_others:
      features = task.loss_fn.add_gradients(task.model, features, seed, parts)
    results = forward_backward(features, seed, divisors)
    if context.num_replicas_in_sync > 1:
      results = widen(results)
    sums, gradients, row_norms = context.all_reduce("SUM", results)
    norm, rate = optimizer.clip_and_apply(gradients, global_step, row_norms)
    losses = [[sums[name], weights[name]] for name in sorted(weights)]
    return tf.stack(losses), norm, rate

  return replica_step


def make_forward_backward(
  model: keras.Model,
  optimizer: optimization.AdamWeightDecayOptimizer,
  loss_fn: training_plan.LossFn,
  counts_rows: bool,
) -> Callable[..., Gradients]:
  """Builds the two passes: (features, seed, weights) -> `Gradients`.

  Without `counts_rows`, `optimization.row_norms` are 0: clipping takes the
  dense norm.
  """
  trained = set(optimizer.paths)
  kernels = [v for v in prediction.matrices(model.bert) if v.path in trained]

  @tf.function(autograph=False)
  def forward_backward(features, seed, weights):
    # Cast here, not by each layer, they have gradients in the compute dtype.
    cast = [tf.cast(v.value, model.bert.compute_dtype) for v in kernels]
    with tf.GradientTape() as tape, prediction.substituted(kernels, cast):
      tape.watch(cast)
      losses = loss_fn(model, features, seed)
      means = [
        tf.math.divide_no_nan(total, weights[name])
        for name, (total, _) in losses.items()
        if name.endswith("_loss")
      ]
      objective = tf.add_n(means)
    sources = dict(zip(optimizer.paths, optimizer.variables, strict=True))
    sources |= dict(zip([v.path for v in kernels], cast, strict=True))
    gradients = tape.gradient(
      objective,
      list(sources.values()),
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    row_norms = optimization.row_norms(gradients)
    return Gradients(
      {name: total for name, (total, _) in losses.items()},
      # Adam squares the sum of a repeated word's rows, so they are summed here.
      [tf.convert_to_tensor(gradient) for gradient in gradients],
      row_norms if counts_rows else tf.zeros_like(row_norms),
    )

  return forward_backward


def make_sum_weights(
  task: training_plan.TrainingTask, signature: dict[str, tf.TensorSpec]
) -> Callable[[Features], dict[str, tf.Tensor]]:
  """Builds the function of features that returns the weights of the losses.

  That of the whole batch must be known before the first backward pass. No
  weight depends on the forward pass, so TensorFlow prunes that from this
  function.
  """

  @tf.function(autograph=False)
  def sum_weights(features):
    losses = task.loss_fn(task.model, features, None)
    return {n: tf.cast(weight, tf.float32) for n, (_, weight) in losses.items()}

  return sum_weights.get_concrete_function(signature)


def widen(results: Gradients) -> Gradients:
  """Casts to float32, to be added up."""
  return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), results)


def accumulate(
  forward_backward: Callable[..., Gradients],
  parts: int,
  optimizer: optimization.AdamWeightDecayOptimizer,
) -> Callable[..., Gradients]:
  """Builds the function that sums another's results over micro-batches."""

  def run(features, seed, weights):
    split = batch_loss.split
    features = {name: split(value, parts) for name, value in features.items()}

    def add_part(i, so_far):
      part = {name: value[i] for name, value in features.items()}
      more = widen(forward_backward(part, modeling.fold_in(seed, i), weights))
      return i + 1, tf.nest.map_structure(tf.add, so_far, more)

    zeros = Gradients(
      {name: tf.constant(0.0) for name in weights},
      [tf.zeros(variable.shape) for variable in optimizer.variables],
      tf.zeros([len(optimizer.variables)]),
    )
    return tf.while_loop(
      lambda i, _: i < parts,
      add_part,
      (tf.constant(0), zeros),
      # Otherwise all parts are computed at once, and no memory is saved.
      parallel_iterations=1,
    )[1]

  return run
