"""Computes the outputs of a SavedModel, from the ids of tokens."""

import contextlib

import numpy as np
import tensorflow as tf

from bert.data import imports
from bert.serving import export_card

# It has operations of the graph with a tokenizer.
imports.load("tensorflow_text", "--format=saved_model")

# Truncated weights raise an IndexError or a RuntimeError.
_FAULTS = (tf.errors.OpError, OSError, LookupError, ValueError, RuntimeError)


class Engine:
  """An `exported_model.Engine`; a ValueError if the export cannot be read.

  The first one of a process decides on the threads.
  """

  def __init__(self, folder: str, threads: int = 0):
    tf.get_logger().setLevel("ERROR")
    with contextlib.suppress(RuntimeError):  # TensorFlow runs already.
      tf.config.threading.set_intra_op_parallelism_threads(threads)
    try:
      # Without a reference to the model its variables would be deleted.
      self.model = tf.saved_model.load(folder)
      one = np.array([[1, 1]], np.int32)
      self.run(one, one, 0 * one)  # The first call optimizes the graph.
    except _FAULTS as error:
      message = getattr(error, "message", str(error))
      raise ValueError(f"{folder}: not a readable export: {message}") from None

  def run(self, *ids: np.ndarray) -> dict[str, np.ndarray]:
    return self._call("ids", ids)

  def attend(self, *ids: np.ndarray) -> np.ndarray:
    return self._call("attention", ids)["attention"]

  def _call(self, name, ids):
    tensors = dict(zip(export_card.IDS, map(tf.constant, ids), strict=True))
    outputs = self.model.signatures[name](**tensors)
    return {key: value.numpy() for key, value in outputs.items()}
