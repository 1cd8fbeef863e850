"""Computes the outputs of a SavedModel, from the ids of tokens."""

from collections.abc import Mapping
import contextlib

import numpy as np
import tensorflow as tf

from bert.data import imports

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

      # The first call optimizes the graph: of two tokens, all of them padding
      # but the mask.
      [_, names] = self.model.signatures["ids"].structured_input_signature
      self.run({name: np.full([1, 2], name == "input_mask") for name in names})
    except _FAULTS as error:
      message = getattr(error, "message", str(error))
      raise ValueError(f"{folder}: not a readable export: {message}") from None

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return self._call("ids", inputs)

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return self._call("attention", inputs)["attention"]

  def _call(self, name, inputs):
    tensors = {key: tf.constant(x, tf.int32) for key, x in inputs.items()}
    outputs = self.model.signatures[name](**tensors)
    return {key: value.numpy() for key, value in outputs.items()}
