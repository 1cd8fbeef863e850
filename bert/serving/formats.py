"""The formats of exports: one row says all that differs between them."""

from collections.abc import Callable, Mapping
import types
from typing import Any, NamedTuple

from bert.data import imports
from bert.serving import export_card

# Each function imports its package when an engine is opened, as a server may
# have only one of them.


def _open_tensorflow(folder, card, threads, probes):
  for name in FORMATS["saved_model"].hashed:
    if name in card.hashes:  # Earlier exports lack these.
      export_card.check_file(folder, name, card)
  imports.check_process()
  imports.import_tensorflow()  # It takes seconds.
  from bert.serving import tensorflow_engine

  return tensorflow_engine.Engine(folder, threads)


def _open_onnxruntime(folder, card, threads, probes):
  imports.load("onnxruntime", "--format=onnx")
  from bert.serving import onnx_engine

  return onnx_engine.Engine(folder, card, threads)


def _open_openvino(folder, card, threads, probes):
  imports.load("openvino", "--engine=openvino")
  from bert.serving import openvino_engine

  return openvino_engine.Engine(folder, card, threads, probes)


class Format(NamedTuple):
  """How a model is written and run.

  Attributes:
    help: what --format says of it.
    writer: the module of `bert.export` with `save`, which writes a model's
      functions to a folder, and `load`, which reads them to compare; imported
      when it is needed, as it takes TensorFlow.
    packages: what is needed to write it, besides requirements.txt.
    hashed: its files, whose SHA-256 export.json holds.
    takes_int8: whether --quantize=int8 can write it.
    has_one_shape: whether it takes inputs of [1, --max_seq_length] alone.
    engines: by the names of --engine, what opens an `exported_model.Engine` of
      a folder, its card, a number of threads and probes. The first one is the
      default; without any, predict.py cannot run the format.
  """

  help: str
  writer: str
  packages: tuple[str, ...] = ()
  hashed: tuple[str, ...] = ()
  takes_int8: bool = False
  has_one_shape: bool = False
  engines: Mapping[str, Callable[..., Any]] = types.MappingProxyType({})

  def check_packages(self, flag: str) -> None:
    """Raises an ImportError that names `flag` if a package is missing."""
    for package in self.packages:
      imports.load(package, flag)


FORMATS = {
  "saved_model": Format(
    help="for TensorFlow Serving and predict.py",
    writer="bert.export.saved_model",
    hashed=(
      "saved_model.pb",
      "variables/variables.data-00000-of-00001",
      "variables/variables.index",
    ),
    engines={"tensorflow": _open_tensorflow},
  ),
  "litert": Format(
    help="takes one input of --max_seq_length at a time",
    writer="bert.export.litert",
    has_one_shape=True,
  ),
  "onnx": Format(
    help="for predict.py without TensorFlow, the fastest on CPUs; Transformers "
    "only",
    writer="bert.export.onnx_graph",
    packages=("onnx", "onnxruntime"),
    hashed=(export_card.ONNX_FILE, export_card.ONNX_DATA_FILE),
    takes_int8=True,
    engines={"onnxruntime": _open_onnxruntime, "openvino": _open_openvino},
  ),
}
