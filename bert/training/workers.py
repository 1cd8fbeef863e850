"""Several workers that train one model: they agree on steps, data, settings.

Every worker of a cluster runs the whole program. The workers only meet in the
operations that add up or collect values, and one that does not come to such a
meeting makes all wait for it. So each of them must call the functions below
equally often, and in the same order.
"""

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
  """Makes all workers run the same number of steps, and stop together.

  Args:
    strategy: says whether there are several workers.
    count: the number of steps that this worker proposes.
    is_stopping: whether this worker wants to stop.

  Returns:
    The mean of the workers' counts, and whether any of them wants to stop.
  """
  if not are_several(strategy):
    return count, is_stopping

  # A worker measures how many updates a call has time for, and a signal may
  # reach only some of them. Both numbers travel in one sum.
  values = strategy.run(lambda: tf.constant([float(count), float(is_stopping)]))
  total_count, stops = strategy.reduce("SUM", values, axis=None).numpy()
  return int(total_count) // strategy.num_replicas_in_sync, stops > 0


def wait_for_all(strategy: tf.distribute.Strategy) -> None:
  """Waits for all workers: one that exits early looks lost to the rest."""
  agree(strategy, 0, False)


def compare_workers(
  strategy: tf.distribute.Strategy, settings: Mapping[str, object]
) -> None:
  """Raises a ValueError if the workers have different settings."""
  if not are_several(strategy):
    return

  # Workers exchange a checksum of each setting. It has 32 bits and no sign, so
  # int32 is too small.
  digests = [zlib.crc32(str(value).encode()) for value in settings.values()]
  own = strategy.run(lambda: tf.constant([digests], tf.int64))
  gathered = strategy.gather(own, axis=0).numpy()  # [replicas, settings]
  differing = np.flatnonzero((gathered != gathered[0]).any(0))

  # A worker can only show its own values; each of them prints its message.
  if len(differing):
    names = list(settings)
    listing = [f"{names[i]} (here {settings[names[i]]})" for i in differing]
    raise ValueError(
      f"the workers do not have the same {', '.join(listing)}: "
      "start all with the same command and files"
    )
