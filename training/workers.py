"""What the workers of TF_CONFIG exchange and compare, besides gradients."""

from collections.abc import Mapping
import zlib

import numpy as np
import tensorflow as tf


def are_several(strategy: tf.distribute.Strategy) -> bool:
  """Returns whether this process is one of several workers."""
  return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def agree(
  strategy: tf.distribute.Strategy, count: int, is_stopping: bool
) -> tuple[int, bool]:
  """Makes workers run equal steps per call, and stop together.

  Returns the mean of their counts of steps, and whether any of them would stop.
  """
  if not are_several(strategy):
    return count, is_stopping
  values = strategy.run(lambda: tf.constant([float(count), float(is_stopping)]))
  total_count, stops = strategy.reduce("SUM", values, axis=None).numpy()
  return int(total_count) // strategy.num_replicas_in_sync, stops > 0


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
  """Waits until all workers are here, for the chief's files to be complete.

  Programs also end with it: a worker that exits early looks lost to those that
  are still running.
  """
  agree(strategy, 0, False)


def digest_of_values(variables: Mapping[str, tf.Variable]) -> str:
  """Returns a checksum of the values of variables, for comparison."""
  checksum = 0
  for name in sorted(variables):
    value = np.ascontiguousarray(variables[name].read_value())
    checksum = zlib.crc32(value.tobytes(), checksum)
  return f"{checksum:08x}"


def check_same(
  strategy: tf.distribute.Strategy, settings: Mapping[str, object]
) -> None:
  """Compares what must be the same on all workers, by the name shown to users.

  Every worker has the same names; its ValueError says what differs, and its
  own value.
  """
  if not are_several(strategy):
    return
  digests = [zlib.crc32(str(value).encode()) for value in settings.values()]
  own = strategy.run(lambda: tf.constant([digests], tf.int64))
  gathered = strategy.gather(own, axis=0).numpy()  # [replicas, settings]
  differing = np.flatnonzero((gathered != gathered[0]).any(0))
  if len(differing):
    names = list(settings)
    listing = [f"{names[i]} (here {settings[names[i]]})" for i in differing]
    raise ValueError(
      f"the workers of TF_CONFIG do not have the same {', '.join(listing)}: "
      "start all with the same command and files"
    )
