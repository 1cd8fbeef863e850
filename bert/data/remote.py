"""Remote paths such as `gs://...`: TensorFlow opens them, and names errors.

It is imported inside the functions that meet a remote path: importing it takes
seconds and hundreds of megabytes.
"""

from collections.abc import Iterator
import contextlib
import functools
import os
import tempfile
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

  # Programs end with one line at an OSError, and know no error of TensorFlow.
  try:
    yield
  except tf.errors.OpError as error:
    message = error.message or type(error).__name__
    raise OSError(f"{path}: {message}") from None


def local_copy(path: str, *beside: str) -> str:
  """Copies a remote file, and others beside it, for what only opens local ones.

  The copies have the names of the files and last as long as the process; a file
  that has not changed is not copied again. A local path is returned as it is.
  """
  if not is_remote(path):
    return path

  # Size and time are part of the cache's key: a file that has changed is copied
  # again.
  paths = (path, *beside)
  with os_errors(path):
    states = [gfile().stat(file) for file in paths]
    return _copy(paths, tuple((x.length, x.mtime_nsec) for x in states))


# The folder of all copies, which is deleted when the process ends.
_copies = functools.cache(tempfile.TemporaryDirectory)


@functools.cache
def _copy(paths: tuple[str, ...], versions: tuple) -> str:
  """Copies files into a folder of their own; returns the path of the first."""
  # Two remote folders may hold files of one name, such as model.safetensors.
  folder = tempfile.mkdtemp(dir=_copies().name)
  copies = [os.path.join(folder, os.path.basename(path)) for path in paths]
  for path, copy in zip(paths, copies, strict=True):
    gfile().copy(path, copy)
  return copies[0]


@contextlib.contextmanager
def written_locally(folder: str) -> Iterator[str]:
  """Gives a local folder to write to, whose files then go to a remote one.

  A local folder is given as it is.
  """
  if not is_remote(folder):
    yield folder
    return
  with tempfile.TemporaryDirectory() as local, os_errors(folder):
    yield local

    # The body has succeeded, or this would not be reached.
    for parent, _, names in os.walk(local):
      target = os.path.normpath(os.path.relpath(parent, local))
      target = folder if target == "." else f"{folder}/{target}"
      gfile().makedirs(target)
      for name in names:
        gfile().copy(os.path.join(parent, name), f"{target}/{name}", True)
