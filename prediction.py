"""Applies a model to batches of any length, compiled once.

The function of a batch is traced once. In bfloat16 the weights are cast once,
and for many tokens compiled into it.
"""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import progress

Features = dict[str, tf.Tensor]

# What layers multiply by. Embeddings are gathered before they are cast.
_MATRICES = ("kernel", "output_weights")

# From how many tokens on it pays to compile the weights into the function. That
# takes about 15 s and ten times their memory, of a base model (170 MB).
_TOKENS_WORTH_FREEZING = 500_000
_MAX_FROZEN_BYTES = 2**28


class Predictor:
  """Applies a function of a model to batches of features, compiled once.

  Args:
    strategy: each of its replicas gets an equal share of every batch.
    model: what `predict_fn` calls.
    predict_fn: takes the model and features [B, ...]; returns tensors [B, ...].
  """

  def __init__(
    self,
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    predict_fn: Callable[[keras.Model, Features], dict[str, tf.Tensor]],
  ):
    self._strategy, self._model = strategy, model
    self._predict_fn = predict_fn

    def predict(features, weights):
      with self._use_weights(weights):
        return predict_fn(model, features)

    @tf.function(reduce_retracing=True)
    def run(features, weights):
      return strategy.run(predict, args=(features, weights))

    self._run = run

  def _matrices(self):
    """Lists the variables that are cast whole at every call of a layer."""
    if self._model.compute_dtype == self._model.variable_dtype:
      return []
    return [v for v in self._model.variables if v.name in _MATRICES]

  def _cast_weights(self):
    dtype = self._model.compute_dtype
    return [tf.cast(v.value, dtype) for v in self._matrices()]

  def _use_weights(self, weights):
    """Makes layers find weights that were cast once, for all batches."""
    scope = keras.StatelessScope()
    for update in zip(self._matrices(), weights, strict=True):
      scope.add_update(update)
    return scope

  def __call__(
    self, batches: tf.data.Dataset, total: int = 0, num_tokens: int = 0
  ) -> dict[str, np.ndarray]:
    """Returns one array per result, [rows, ...], in the order of the input.

    Args:
      batches: yields features; batches need not be equally long.
      total: rows to expect, for the progress on the terminal; 0 prints none.
      num_tokens: to expect in all rows, if known: for many, the weights are
        compiled into the function.
    """
    results: dict[str, list[np.ndarray]] = {}
    reporter, done = progress.Progress(total, unit="rows"), 0
    run = self.compile(batches.element_spec, num_tokens)
    for features in batches:
      rows = int(next(iter(features.values())).shape[0])
      if self._strategy.num_replicas_in_sync > 1:
        features = _split(self._strategy, features, rows)
      for name, value in run(features).items():
        shares = self._strategy.experimental_local_results(value)
        whole = np.concatenate([share.numpy() for share in shares])[:rows]
        results.setdefault(name, []).append(whole)
      done += rows
      if total and reporter.is_due():
        reporter.print_line(
          f"{done:,} of {total:,} rows  ETA {reporter.eta(done)}"
        )
    return {name: np.concatenate(parts) for name, parts in results.items()}

  def compile(
    self, spec, num_tokens: int = 0
  ) -> Callable[[Features], dict[str, tf.Tensor]]:
    """Makes the function of a batch; its weights are those of this moment.

    Args:
      spec: of the features, [B, ...]; traced once, for batches of any size.
      num_tokens: see `__call__`.
    """
    weights = self._cast_weights()
    if self._strategy.num_replicas_in_sync > 1:
      return lambda features: self._run(features, weights)
    size = sum(tf.size(w).numpy() * w.dtype.size for w in weights)
    is_worth = num_tokens >= _TOKENS_WORTH_FREEZING and size > 0
    if not is_worth or size > _MAX_FROZEN_BYTES or _has_gpu():
      run = self._run.get_concrete_function(spec, weights)
      return lambda features: run(features, weights)
    return self._freeze([w.numpy() for w in weights], spec)

  def _freeze(self, weights, spec):
    # oneDNN packs constant matrices once, variable ones at every product: half
    # of the time in bfloat16. In float32 there is nothing to gain.
    @tf.function
    def run(features):
      with self._use_weights([tf.constant(w) for w in weights]):
        return self._predict_fn(self._model, features)

    return run.get_concrete_function(spec)


def _has_gpu():
  return bool(tf.config.list_logical_devices("GPU"))


def _split(strategy, features, rows):
  """Gives each replica a share; the last row is repeated to fill it up."""
  replicas = len(strategy.extended.worker_devices)
  share = -(-rows // replicas)

  def take(context):
    first = context.replica_id_in_sync_group % replicas * share
    indices = np.minimum(np.arange(first, first + share), rows - 1)
    return {name: tf.gather(value, indices) for name, value in features.items()}

  return strategy.experimental_distribute_values_from_function(take)
