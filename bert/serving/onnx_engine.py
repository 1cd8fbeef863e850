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
    # Before the runtime, which believes its graphs.
    model_file, data_file = export_card.ONNX_FILE, export_card.ONNX_DATA_FILE
    export_card.check_file(folder, model_file, card)
    path = os.path.join(folder, model_file)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # Errors only.

    # The weights are hashed while the runtime reads them.
    with futures.ThreadPoolExecutor(1) as thread:
      hashing = thread.submit(export_card.check_file, folder, data_file, card)
      try:
        self._session = onnxruntime.InferenceSession(
          remote.local_copy(path, os.path.join(folder, data_file)),
          options,
          providers=["CPUExecutionProvider"],
        )
      except _FAULTS as error:
        hashing.result()  # Says more if the file is damaged.
        raise ValueError(
          f"{path}: onnxruntime {onnxruntime.__version__} cannot run it; "
          f"install the latest or export again: {' '.join(str(error).split())}"
        ) from None
      hashing.result()

    # Each score gets the name of a label: their numbers must be equal.
    outputs = {o.name: o.shape for o in self._session.get_outputs()}
    count = len(card.labels)
    shape = outputs.get("logits", [])
    if count and shape[-1:] != [count]:
      raise ValueError(
        f"{folder}: {export_card.FILE} has {count} labels, the model scores "
        f"{shape[-1]}: export the model again"
      )

    # A call computes the answers or the attention, and never both.
    self._maps = [n for n in outputs if n.startswith(export_card.ATTENTION)]
    self._names = [n for n in outputs if n not in self._maps]
    # Else all outputs are computed, attention too.
    self._options = onnxruntime.RunOptions()
    self._options.only_execute_path_to_fetches = True

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(self._names, self._call(self._names, inputs), strict=True))

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.stack(self._call(self._maps, inputs), 1)

  def _call(self, names, inputs) -> Any:
    return self._session.run(names, inputs, self._options)
