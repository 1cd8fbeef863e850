"""What TensorFlow does for programs without it: `gs://...`, and its errors.

It is imported inside the functions that meet a remote path: importing it takes
seconds and hundreds of megabytes.
"""

from collections.abc import Iterator
import contextlib
import re
from types import ModuleType

_SHORTAGE = re.compile(
  r"(OOM when|[Ff]ailed to allocate|[Oo]ut of memory)[^\n]*?(?= on /|$)",
  re.MULTILINE,
)


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


def describe_shortage(error: Exception) -> str | None:
  """Describes a lack of memory; None for other errors, as of a full disk."""
  if isinstance(error, MemoryError):
    return str(error)
  if type(error).__name__ != "ResourceExhaustedError":
    return None
  match = _SHORTAGE.search(getattr(error, "message", str(error)))
  return match and match[0]
