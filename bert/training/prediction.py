"""Applies a model to batches of any length, compiled once.

In bfloat16 the weights are cast once for all batches.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert import heads
from bert.data import imports, progress
from bert.inputs import training_input

Features = training_input.Features
# (model, features, seed) -> outputs; see bert/training/step.py.
Forward = Callable[[Any, Features, tf.Tensor | None], Any]
DEFAULT_FORWARD: Forward = heads.forward  # The model, on the inputs it names.
# (outputs, features) -> tensors [B, ...] by name. It is pure.
Predict = Callable[[Any, Features], dict[str, tf.Tensor]]

# While one batch waits for memory or a thread to wake, a CPU computes another.
# Large batches are computed alone: they leave few gaps and take much memory.
_BATCHES_AT_ONCE = 2
_TOKENS_AT_ONCE = 4096

# Layers multiply by these. Embeddings are gathered before the cast.
_MATRICES = ("kernel", "output_weights")

# Flags that help when a prediction needs too much memory.
_CURES = (
  "lower --predict_batch_size, --eval_batch_size or --batch_size, whichever it "
  "was, or --max_seq_length, or pass --precision=bfloat16"
)


def matrices_to_cast(model: keras.Layer) -> list[keras.Variable]:
  """Lists the variables that each call of a layer casts as a whole."""
  dtype = model.compute_dtype
  return [
    v for v in model.variables if v.name in _MATRICES and v.dtype != dtype
  ]


def substituted(
  variables: Sequence[keras.Variable], values: Sequence[tf.Tensor]
) -> keras.StatelessScope:
  """Makes layers use values, of any dtype, instead of their variables'.

  Keras's stateless scope says, while it lasts, which tensor a layer gets when
  it reads a variable.
  """
  scope = keras.StatelessScope()
  for update in zip(variables, values, strict=True):
    scope.add_update(update)
  return scope


class Predictor:
  """Applies a model to batches of features [B, ...], compiled once.

  Each replica gets an equal share of every batch. Several workers must be given
  the same batches; each gets all results.
  """

  def __init__(
    self,
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    predict: Predict,
    forward: Forward = DEFAULT_FORWARD,
  ):
    self._strategy = strategy
    self._model = model

    # A TPU compiles every shape anew: there, the first batch says how many rows
    # a replica gets, and smaller ones are padded.
    self._is_on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
    self._is_single = strategy.num_replicas_in_sync == 1 and not self._is_on_tpu
    self._least_share = 0

    # Without a seed there is no dropout. The weights are arguments, so that
    # they are cast once for all batches: see `compile`.
    def run_replica(features, weights):
      with substituted(matrices_to_cast(model), weights):
        return predict(forward(model, features, None), features)

    def run(features, weights):
      return strategy.run(run_replica, args=(features, weights))

    # `compile` makes the function anew when it must forget its weights.
    # AutoGraph would translate the whole model, where no `if` needs it.
    self._make_function = lambda: tf.function(
      run, autograph=False, reduce_retracing=not self._is_on_tpu
    )
    self._run = self._make_function()
    self._called: Any = None  # The graph of the last predictions.
    self._packed = []  # The values of the weights that operations keep.

  def __call__(
    self, batches: tf.data.Dataset, total: int | None = 0
  ) -> dict[str, np.ndarray]:
    """Returns the results of `iterate` joined, [rows, ...].

    Args:
      batches: see `iterate`; there must be at least one.
      total: see `iterate`.
    """
    parts = list(self.iterate(batches, total))
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}

  def iterate(
    self, batches: tf.data.Dataset, total: int | None = 0
  ) -> Iterator[dict[str, np.ndarray]]:
    """Yields the results of every batch, [B, ...]; their lengths may differ.

    Args:
      batches: of features; `text_inputs` gives an object with the few parts of
        a dataset that are used here.
      total: the number of rows, for the progress on the terminal; None if
        unknown, 0 to print no progress.
    """
    # All workers do the same; one of them prints.
    reporter = progress.Progress(total or 0)
    done = 0
    prints = total != 0 and self._strategy.extended.should_checkpoint

    # The weights may have changed since the last call.
    run, weights = self.compile(batches.element_spec)
    kinds = {device.device_type for device in tf.config.list_logical_devices()}

    def compute(features):
      rows = int(next(iter(features.values())).shape[0])
      if not self._is_single:
        features = self._split(features, rows)

      # Rows that were repeated to make equal shares come last.
      with training_input.naming_memory_flags("predicting", _CURES):
        results = run(features, weights)
        return {k: self._gather(v)[:rows] for k, v in results.items()}

    # TensorFlow optimizes a graph when it is called first: two calls at once
    # would both do so.
    left = iter(batches)
    alone = itertools.islice(left, 0 if run is self._called else 1)
    self._called = run

    count = _BATCHES_AT_ONCE if self._is_single and kinds == {"CPU"} else 1
    ahead = map_ahead(compute, left, count, _TOKENS_AT_ONCE)
    for gathered in itertools.chain(map(compute, alone), ahead):
      yield gathered
      done += len(next(iter(gathered.values())))
      if prints and reporter.is_due():
        line = f"{done:,} of {total:,} rows" if total else f"{done:,} rows"
        line += f"  {reporter.units_per_second(done):,.1f} rows/s"
        line += f"  ETA {reporter.eta(done)}" if total else ""
        reporter.print_line(line, done)
    progress.clear()

  def _split(self, features, rows):
    """Gives each replica a share of a batch; pads by repeating the last row."""
    # Rounded up. All shares have the same size, for which the function is
    # compiled.
    share = -(-rows // self._strategy.num_replicas_in_sync)
    if self._is_on_tpu:
      share = self._least_share = max(share, self._least_share)

    def take(context):
      first = context.replica_id_in_sync_group * share
      indices = np.minimum(np.arange(first, first + share), rows - 1)
      return {k: tf.gather(value, indices) for k, value in features.items()}

    return self._strategy.experimental_distribute_values_from_function(take)

  def _gather(self, value):
    # `experimental_local_results` has only the replicas of this process.
    strategy = self._strategy
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
      return strategy.gather(value, axis=0).numpy()  # From all workers.
    return np.concatenate(strategy.experimental_local_results(value))

  def compile(self, spec) -> tuple[Callable[..., Any], list[tf.Tensor]]:
    """Returns the function of a batch, of any size, and of current weights."""
    if imports.weights_are_packed():
      # Operations keep the weights of their first call. Values that are read
      # share the variable's memory until it gets new values, so that keeping
      # them here costs nothing.
      now = [tf.convert_to_tensor(v.value) for v in self._model.variables]
      pairs = zip(now, self._packed or now, strict=True)
      if not all(bool(tf.reduce_all(a == b)) for a, b in pairs):
        self._run = self._make_function()
      self._packed = now

    # Cast here, the weights are cast once for all batches. In float32 the list
    # is empty.
    dtype = self._model.compute_dtype
    weights = [tf.cast(v.value, dtype) for v in matrices_to_cast(self._model)]
    if not self._is_single:
      return self._run, weights

    # Traced for the spec, in which the number of rows and their length may be
    # open: no batch has the function traced again.
    return self._run.get_concrete_function(spec, weights), weights


def map_ahead(
  function: Callable[[Features], dict[str, np.ndarray]],
  batches: Iterable[Features],
  count: int,
  tokens: int,
) -> Iterator[dict[str, np.ndarray]]:
  """Yields the result of a function for every batch, in order.

  Args:
    function: takes the features of a batch; returns arrays by name.
    batches: features, one batch after the other.
    count: the most batches that are computed at once, in threads.
    tokens: the most tokens of these batches together; a larger batch is
      computed alone.
  """
  # One batch at a time needs no threads.
  if count == 1:
    yield from map(function, batches)
    return

  pending = collections.deque()  # Pairs of tokens and results to come.
  with futures.ThreadPoolExecutor(count) as pool:
    for features in batches:
      size = max(value.shape.num_elements() for value in features.values())
      # Results are yielded until there is room for the batch.
      most = 0 if size > tokens else tokens - size
      while len(pending) == count or sum(n for n, _ in pending) > most:
        yield pending.popleft()[1].result()
      pending.append((size, pool.submit(function, features)))

    for _, result in pending:
      yield result.result()
