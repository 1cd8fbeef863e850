"""The data that training takes and prediction reads, whatever file it is in."""

from collections.abc import Callable, Iterator
import contextlib
from typing import Any, NamedTuple

import tensorflow as tf

from bert.data import messages

Features = dict[str, tf.Tensor]

# TensorFlow raises these in a worker when another one has ended.
LOST_WORKER_ERRORS = (
  tf.errors.UnavailableError,
  tf.errors.AbortedError,
  tf.errors.CancelledError,
  tf.errors.DeadlineExceededError,
)


class TrainingInput(NamedTuple):
  """The data to train a model on."""

  # Takes the number of rows to skip; yields (row id, serialized row) endlessly.
  # How many are skipped does not change the order, so that a run can resume.
  rows: Callable[[int], tf.data.Dataset]
  parse: Callable[[tf.Tensor], Features]  # string [B] to features [B, ...].
  describe_row: Callable[[Any], str]  # Names a row id of numpy scalars.
  find_fault: Callable[[], str | None]  # Explains a failure to read.
  identity: str = ""  # Equal for equal data; compared between workers.


def prefetch(batches: tf.data.Dataset, count: int) -> tf.data.Dataset:
  """Returns batches of which `count` are made ahead; tf.data tunes nothing.

  The thread that would tune sleeps longer every time, up to a minute, and often
  misses the notice to stop: whoever drops an iterator then waits for it
  (TensorFlow 2.21), which doubled the time of many predictions.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  return batches.prefetch(count).with_options(options)


@contextlib.contextmanager
def naming_bad_record(find_fault: Callable[[], str | None]) -> Iterator[None]:
  """Turns a failure to read the input into an error that names the record."""
  try:
    yield
  except LOST_WORKER_ERRORS:
    raise  # Reading all records would take long and find nothing.
  except tf.errors.OpError as error:
    if fault := find_fault():
      raise ValueError(fault) from error
    raise


@contextlib.contextmanager
def naming_memory_flags(doing: str, cures: str) -> Iterator[None]:
  """Turns a lack of memory into a MemoryError that names flags to change."""
  try:
    yield
  except (MemoryError, tf.errors.ResourceExhaustedError) as error:
    fault = messages.describe_shortage(error)
    if fault is None:
      raise
    raise MemoryError(f"while {doing}: {fault}: {cures}") from error
