"""The strategy of two replicas, of which a process should have only one."""

import tensorflow as tf

from bert.cli import devices


def two_replicas():
  """Returns a strategy of the two logical CPUs that conftest.py makes.

  It is that of --distribution=mirrored: `devices.mirror` says why there is one.
  """
  cpus = tf.config.list_logical_devices("CPU")
  assert len(cpus) == 2
  return devices.mirror(*(cpu.name for cpu in cpus))


def strategy_of(count):
  """Returns the strategy of one replica or of two."""
  return two_replicas() if count == 2 else tf.distribute.get_strategy()
