"""The strategy of two replicas, of which a process should have only one."""

import functools

import tensorflow as tf


@functools.cache
def two_replicas():
  """Returns a strategy of the two logical CPUs that conftest.py makes.

  Always the same: every strategy numbers its all-reduces from the start again,
  and TensorFlow, which keeps their shapes as long as the process lives, now and
  then holds another's against it ("Shape mismatch in the collective instance").
  """
  return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def strategy_of(count):
  """Returns the strategy of one replica or of two."""
  return two_replicas() if count == 2 else tf.distribute.get_strategy()
