"""Finds out in whose format weights are, and reads them by Google's names."""

from collections.abc import Callable
import os

import numpy as np

from weights import gpt
from weights import huggingface
from weights import keras_hub
from weights import object_checkpoints
from weights import readers
from weights import relatives

# Files that stand for the folder they are in, and what reads that.
WEIGHTS = {
  huggingface.WEIGHTS: huggingface,
  keras_hub.WEIGHTS: keras_hub,
  gpt.SHAPES: gpt,
}


def weights_of(path: str) -> str | None:
  """Returns a key of WEIGHTS; None for what `open_folder` does not read."""
  found = (name for name in WEIGHTS if WEIGHTS[name].is_folder(path))
  return next(found, None)


def open_folder(path: str) -> readers.Reader | None:
  """Opens a folder of another library; None if it is not one.

  Raises:
    ValueError: a file is missing, damaged, or not of a BERT.
    OSError: a file cannot be read.
  """
  name = weights_of(path)
  return WEIGHTS[name].open_folder(path) if name else None


def wrap(prefix: str, reader, read: Callable[[str], np.ndarray]):
  """Returns a reader by Google's names of what TensorFlow's reader opened.

  Args:
    reader: TensorFlow's.
    read: reads a variable, or raises a ValueError.

  Raises:
    ValueError: it is not of a BERT, or known to be wrong.
  """
  shapes = reader.get_variable_to_shape_map()
  if object_checkpoints.GRAPH in shapes:
    return object_checkpoints.open_checkpoint(prefix, reader, read)
  if "electra/embeddings/word_embeddings" in shapes:
    return relatives.open_electra(shapes, read)
  object_checkpoints.refuse_hub_module(prefix, shapes)
  return reader


def folders_of(source: str) -> list[str]:
  """Returns where the files that belong to a checkpoint may be.

  Args:
    source: a prefix, or a folder that `open_folder` reads.
  """
  if huggingface.is_folder(source) or gpt.is_folder(source):
    return [source]
  if keras_hub.is_folder(source):
    return [os.path.join(source, keras_hub.ASSETS)]
  folder = os.path.dirname(source) or "."
  if found := object_checkpoints.asset_folders(source):
    return found
  # The best weights of a run are in a folder of their own.
  is_best = os.path.basename(folder) == "best"
  return [folder, os.path.dirname(folder) or "."] if is_best else [folder]
