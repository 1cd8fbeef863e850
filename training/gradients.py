"""The gradients of a batch, and the weights by which its losses are divided."""

from collections.abc import Callable

import keras
import tensorflow as tf

from inputs import training_input
import modeling
import optimization
from training import prediction

Features = training_input.Features
LossFn = Callable[
  [keras.Model, Features, tf.Tensor | None],
  dict[str, tuple[tf.Tensor, tf.Tensor]],
]


def make_weights_of(
  model: keras.Model, loss_fn: LossFn, signature: dict[str, tf.TensorSpec]
) -> Callable[[Features], dict[str, tf.Tensor]]:
  """Builds the function of features that returns the weights of the losses.

  The weight of the whole batch must be known before the first backward pass.
  The forward pass is not needed for it: no weight depends on it, so TensorFlow
  prunes it from this function.
  """

  @tf.function(autograph=False)
  def weights_of(features):
    losses = loss_fn(model, features, None)
    return {
      name: tf.cast(weight, tf.float32) for name, (_, weight) in losses.items()
    }

  return weights_of.get_concrete_function(signature)


def make_gradients_of(
  model: keras.Model,
  optimizer: optimization.AdamWeightDecayOptimizer,
  loss_fn: LossFn,
  parts: int,
  counts_rows: bool,
) -> Callable[..., tuple[dict[str, tf.Tensor], list[tf.Tensor], tf.Tensor]]:
  """Builds (features, seed, weights) -> (sums, gradients, row norms).

  All three are sums over examples: those of replicas and micro-batches add up
  to those of the whole batch. They are float32, but for the gradients of
  matrices by which BERT multiplies in bfloat16: these are bfloat16 as well.

  Args:
    optimizer: its variables have gradients.
    parts: micro-batches to split the features into, if more than 1; all sums
      are float32.
    counts_rows: whether to compute `optimization.row_norms`; else they are 0,
      and gradients are clipped by the dense norm.
  """
  trained = set(optimizer.paths)
  kernels = [v for v in prediction.matrices(model.bert) if v.path in trained]

  @tf.function(autograph=False)
  def forward_backward(features, seed, weights):
    # Cast here, not by each layer, they have gradients in the compute dtype.
    cast = [tf.cast(v.value, model.bert.compute_dtype) for v in kernels]
    by_path = dict(zip([v.path for v in kernels], cast, strict=True))
    with tf.GradientTape() as tape, prediction.substituted(kernels, cast):
      tape.watch(cast)
      losses = loss_fn(model, features, seed)
      objective = tf.add_n(
        [
          tf.math.divide_no_nan(total, weights[name])
          for name, (total, _) in losses.items()
          if name.endswith("_loss")
        ]
      )
    own = zip(optimizer.paths, optimizer.variables, strict=True)
    gradients = tape.gradient(
      objective,
      [by_path.get(path, variable) for path, variable in own],
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    sums = {name: total for name, (total, _) in losses.items()}
    row_norms = optimization.row_norms(gradients)
    if not counts_rows:
      row_norms = tf.zeros_like(row_norms)
    # Adam squares the sum of a repeated word's rows, so they are summed here.
    return sums, [tf.convert_to_tensor(g) for g in gradients], row_norms

  if parts == 1:
    return forward_backward
  return _make_accumulated(forward_backward, parts, optimizer)


def widen(results):
  """Casts what `make_gradients_of` computes to float32, to be added up."""
  return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), results)


def _make_accumulated(forward_backward, parts, optimizer):
  """Builds the function that sums another's results over micro-batches."""

  def accumulate(features, seed, weights):
    features = {
      name: tf.reshape(value, tf.concat([[parts, -1], tf.shape(value)[1:]], 0))
      for name, value in features.items()
    }

    def add_part(i, *so_far):
      part = {name: value[i] for name, value in features.items()}
      more = forward_backward(part, modeling.fold_in(seed, i), weights)
      return i + 1, *tf.nest.map_structure(tf.add, so_far, widen(more))

    zeros = (
      {name: tf.constant(0.0) for name in weights},
      [tf.zeros(variable.shape) for variable in optimizer.variables],
      tf.zeros([len(optimizer.variables)]),
    )
    return tf.while_loop(
      lambda i, *_: i < parts,
      add_part,
      (tf.constant(0), *zeros),
      # Otherwise all parts are computed at once, and no memory is saved.
      parallel_iterations=1,
    )[1:]

  return accumulate
