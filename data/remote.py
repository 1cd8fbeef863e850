"""Remote paths such as `gs://...`, which TensorFlow opens.

It is imported inside the functions that meet such a path: importing it takes
seconds and hundreds of megabytes.
"""

from collections.abc import Iterator
import contextlib
from types import ModuleType


def is_remote(path: str) -> bool:
  """Returns whether only TensorFlow can open the path."""
  return "://" in path


def gfile() -> ModuleType:
  """Imports TensorFlow's functions for remote files."""
  import tensorflow as tf  # Slow; only remote paths need it.

  return tf.io.gfile


def remove(path: str) -> None:
  """Removes a remote file if it is there; an OSError if it is a folder."""
  if gfile().isdir(path):
    raise IsADirectoryError(f"{path}: cannot remove it, it is a folder")
  if gfile().exists(path):
    gfile().remove(path)


def remove_tree(path: str) -> None:
  """Removes a remote file, or a folder with all in it, if it is there."""
  if gfile().isdir(path):
    gfile().rmtree(path)
  else:
    remove(path)


@contextlib.contextmanager
def os_errors(path: str) -> Iterator[None]:
  """Turns TensorFlow's errors about a remote path into `OSError`."""
  if not is_remote(path):
    yield
    return
  import tensorflow as tf  # Slow; only remote paths need it.

  try:
    yield
  except tf.errors.OpError as error:
    raise OSError(f"{path}: {error.message}") from None
