"""Computes the outputs of model.onnx with ONNX Runtime, from the ids of tokens.

Only here is onnxruntime imported; TensorFlow is not needed.
"""

from collections.abc import Mapping
from concurrent import futures
import os
from typing import Any

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state  # pyright: ignore

from bert.data import remote
from bert.serving import export_card

# What the runtime raises at a model that it cannot read: classes of its own,
# which have no other base than Exception.
_FAULTS = tuple(
  value
  for value in vars(onnxruntime_pybind11_state).values()
  if isinstance(value, type) and issubclass(value, Exception)
)


class Engine:
  """An `exported_model.Engine`; a ValueError if the export cannot be run."""

  name = "onnxruntime"

  def __init__(self, folder: str, card: export_card.Card, threads: int = 0):
    """Opens an export.

    Args:
      folder: of the export, local or remote.
      card: describes its files.
      threads: how many compute a call; 0 for one for each core.
    """
    path = remote.local_copy(
      os.path.join(folder, export_card.ONNX_FILE),
      os.path.join(folder, export_card.ONNX_DATA_FILE),
    )
    self._weights = export_card.WeightsWatch(path)
    self._session = _open_session(folder, path, card, threads)

    # Scores get the names of labels by their numbers, so there must be as many
    # of both. A model that has labels calls its scores `logits`.
    shapes = {o.name: o.shape for o in self._session.get_outputs()}
    num_labels = len(card.labels)
    shape = shapes.get("logits", [])
    if num_labels and shape[-1:] != [num_labels]:
      raise ValueError(
        f"{folder}: {export_card.FILE} has {num_labels} labels, the model "
        f"scores {shape[-1]}: export the model again"
      )

    # A call computes the answers or the attention, and never both. Without this
    # option, the runtime computes all outputs, whichever it is asked for.
    self._maps = [n for n in shapes if n.startswith(export_card.ATTENTION)]
    self._names = [n for n in shapes if n not in self._maps]
    self._options = onnxruntime.RunOptions()
    self._options.only_execute_path_to_fetches = True

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(self._names, self._call(self._names, inputs), strict=True))

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.stack(self._call(self._maps, inputs), 1)

  def _call(self, names, inputs) -> Any:
    outputs = self._session.run(names, inputs, self._options)
    self._weights.check()
    return outputs


def _open_session(folder, path, card, threads) -> onnxruntime.InferenceSession:
  """Reads the graph and its weights, if both are the files of the card.

  `path` is that of the graph, or of the local copy of a remote one.
  """
  # The runtime trusts the graph that it reads, so a damaged one must be found
  # before.
  export_card.check_file(folder, export_card.ONNX_FILE, card)

  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads = threads
  options.log_severity_level = 3  # Errors only.

  # The weights are only numbers. As they are large, they are hashed by a second
  # thread while the runtime reads them.
  weights_file = export_card.ONNX_DATA_FILE
  with futures.ThreadPoolExecutor(1) as thread:
    hashing = thread.submit(export_card.check_file, folder, weights_file, card)
    try:
      session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"]
      )
    except _FAULTS as error:
      # If the weights are damaged, the error of their hash says more.
      hashing.result()
      raise ValueError(
        f"{path}: onnxruntime {onnxruntime.__version__} cannot run it; "
        f"install the latest or export again: {' '.join(str(error).split())}"
      ) from None
    hashing.result()
  return session
