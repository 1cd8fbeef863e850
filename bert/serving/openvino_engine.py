"""Computes the outputs of model.onnx with OpenVINO, from the ids of tokens."""

from collections.abc import Mapping
import functools
import os

import numpy as np
import openvino

from bert.data import processor, remote
from bert.serving import export_card

_MOST_DIFFERENCE = 0.05  # As a share of an output's largest value.


@functools.cache
def _one_core() -> openvino.Core:
  """Returns OpenVINO's runtime, the same for all engines.

  It is kept until the process ends: each one gives its thread a stack for the
  handlers of signals, and puts back the one it found when it is deleted. Two
  that are deleted in the order in which they were made leave a stack behind
  that no longer exists, on which the next Ctrl-C ends in a crash.
  """
  return openvino.Core()


class Engine:
  """An `exported_model.Engine`; a ValueError if the export cannot be run.

  It computes in bfloat16 if the processor has that and the outputs for the
  probes, inputs of [1, S], stay close to float32's; `name` says so.
  """

  def __init__(self, folder: str, card: export_card.Card, threads: int, probes):
    path = os.path.join(folder, export_card.ONNX_FILE)
    # Both files must be the ones that the card describes.
    for name in (export_card.ONNX_FILE, export_card.ONNX_DATA_FILE):
      export_card.check_file(folder, name, card)

    data = os.path.join(folder, export_card.ONNX_DATA_FILE)
    local = remote.local_copy(path, data)
    self._weights = export_card.WeightsWatch(local)

    self._core = _one_core()
    self._config = {"INFERENCE_NUM_THREADS": threads or os.cpu_count()}
    try:
      self._model = self._core.read_model(local)
      self.run = self._compile("f32")
      self.name = "openvino, float32"
    except RuntimeError as error:
      message = " ".join(str(error).split())
      raise ValueError(f"{path}: openvino fails: {message:.300}") from None

    # bfloat16 is faster only where the processor itself multiplies it, and some
    # models lose too much by it.
    types = self._core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if "BF16" in types and processor.multiplies_bfloat16():
      fast = self._compile("bf16")
      worst = _compare([(fast(ids), self.run(ids)) for ids in probes])
      if is_close := worst <= _MOST_DIFFERENCE:  # Not if it is NaN.
        self.run = fast
      kind = "bfloat16" if is_close else "float32; bfloat16"
      self.name = f"openvino, {kind} (differs by {worst:.2%} from float32)"

  def _compile(self, precision, attends=False):
    """Makes the function from ids to outputs; those left out cost no time."""
    # The nodes to compute, by the names of their outputs.
    nodes = {}
    for output in self._model.outputs:
      # Its other names are of values within the graph, such as MatMul_1:0.
      [name] = [name for name in output.names if ":" not in name]
      if name.startswith(export_card.ATTENTION) == attends:
        nodes[name] = output.node

    inputs = self._model.get_parameters()
    model = openvino.Model(list(nodes.values()), inputs)  # pyright: ignore
    config = {"INFERENCE_PRECISION_HINT": precision, **self._config}
    compiled = self._core.compile_model(model, "CPU", config)

    def infer(inputs):
      request = compiled.create_infer_request()  # As several threads need.
      values = request.infer(dict(inputs))
      self._weights.check()
      return {name: np.array(values[i]) for i, name in enumerate(nodes)}

    return infer

  @functools.cached_property
  def _attend(self):
    return self._compile("f32", attends=True)

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.stack(list(self._attend(inputs).values()), 1)


def _compare(pairs):
  """Returns the largest difference of floats, by the largest of its output."""
  shares = []
  for name, value in pairs[0][1].items():
    if value.dtype.kind == "f":  # Ids and positions have no scale.
      # Logits and probabilities near 0 may differ more than by their share.
      least = 1e-9 if name == "vectors" else 1.0

      # The largest exact value over all probes.
      scale = max(np.abs(exact[name]).max(initial=least) for _, exact in pairs)
      differ = (np.abs(x[name] - y[name]).max(initial=0) for x, y in pairs)
      shares += [value / scale for value in differ]
  return float(np.max(shares))
