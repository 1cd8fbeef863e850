"""Loads a SavedModel faster than TensorFlow: only the signatures that are used.

`tf.saved_model.load` makes Python objects of all operations of all functions,
then reads the weights. Here the weights are read by another thread, while the
function that is called first is imported and optimized.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from concurrent import futures
import contextlib
import itertools
import os
import threading
import weakref

from google.protobuf import message
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

_WEIGHTS = "weights"
_numbers = itertools.count()  # Of models: what is of one has its number.


class Signatures:
  """The signatures of a SavedModel as `signatures.save` writes it.

  Its weights are in a list of that name. A signature is a call of a function
  with its inputs, variables and constants.

  Args:
    folder: of the SavedModel.

  Raises:
    OSError, ValueError: its graph cannot be read.
  """

  def __init__(self, folder: str):
    path = os.path.join(folder, "saved_model.pb")
    content = saved_model_pb2.SavedModel()
    try:
      with open(path, "rb") as file:
        content.ParseFromString(file.read())
    except message.DecodeError as error:
      raise ValueError(f"{path}: {error}") from None
    if len(content.meta_graphs) != 1:
      raise ValueError(f"{path}: {len(content.meta_graphs)} graphs, expected 1")
    self._graph = content.meta_graphs[0].graph_def
    self._signatures = content.meta_graphs[0].signature_def
    self._nodes = {node.name: node for node in self._graph.node}
    keys = _find_variables(content.meta_graphs[0].object_graph_def)
    self._prefix = f"saved_model_{next(_numbers)}_"
    self._handles = _make_variables(keys.values(), self._prefix)
    weakref.finalize(self, _destroy, list(self._handles.values()))
    thread = futures.ThreadPoolExecutor(1)
    self._restoring = thread.submit(_restore, folder, keys, self._handles)
    thread.shutdown(wait=False)
    self._functions, self._lock = {}, threading.Lock()

  def prepare(self, name: str, **inputs: tf.Tensor) -> None:
    """Makes the first call of a signature fast, and waits for the weights.

    Args:
      name: of the signature.
      **inputs: of any value.

    Raises:
      tf.errors.OpError: the weights cannot be read.
    """
    # Its graph is optimized, even if weights are still missing then.
    with contextlib.suppress(tf.errors.FailedPreconditionError):
      self._call(name, inputs)
    self._restoring.result()

  def __call__(self, name: str, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Calls a signature."""
    self._restoring.result()
    return self._call(name, inputs)

  def _call(self, name, inputs):
    with self._lock:
      if name not in self._functions:
        self._functions[name] = self._import(name)
    names = sorted(self._signatures[name].inputs)
    return self._functions[name](*(inputs[key] for key in names))

  def _import(self, name):
    """Makes a signature callable, its inputs in the order of their names."""
    signature = self._signatures[name]
    inputs = [info for _, info in sorted(signature.inputs.items())]
    outputs = {key: info.name for key, info in signature.outputs.items()}
    (call,) = {_node_name(output) for output in outputs.values()}
    part, variables = self._cut_out(self._nodes[call])

    def run(*tensors):
      sources = {
        info.name: tensor for info, tensor in zip(inputs, tensors, strict=True)
      }
      for node, handle in variables.items():
        sources[f"{node}:0"] = tf.identity(handle)
      found = tf.graph_util.import_graph_def(
        part, sources, return_elements=list(outputs.values()), name=""
      )
      return dict(zip(outputs, found, strict=True))

    specs = [
      tf.TensorSpec(tf.TensorShape(info.tensor_shape), info.dtype)
      for info in inputs
    ]
    return tf.compat.v1.wrap_function(run, specs)

  def _cut_out(self, call):
    """Returns the graph of a call, and the handles of its variables."""
    part = tf.compat.v1.GraphDef(versions=self._graph.versions)
    part.node.add().CopyFrom(call)
    variables = {}
    for node in (self._nodes[_node_name(source)] for source in call.input):
      if node.op == "VarHandleOp":
        name = node.attr["shared_name"].s.decode()
        variables[node.name] = self._handles[name]
      elif node.op != "Placeholder":  # What is left are constants.
        part.node.add().CopyFrom(node)
    library = {f.signature.name: f for f in self._graph.library.function}
    for name in _find_functions(call.attr["f"].func.name, library):
      part.library.function.add().CopyFrom(library[name])
    _rename_functions(part, self._prefix)
    return part, variables


def _node_name(tensor: str) -> str:
  return tensor.partition(":")[0]


def _find_functions(name: str, library: Mapping) -> set[str]:
  """Returns the names of a function and of all that it calls."""
  found, waiting = set(), [name]
  while waiting:
    name = waiting.pop()
    if name in found or name not in library:
      continue
    found.add(name)
    waiting += [called.name for called in _calls(library[name].node_def)]
  return found


def _calls(nodes) -> Iterator:
  """Yields what names functions in the attributes of nodes."""
  for node in nodes:
    for value in node.attr.values():
      for function in (value.func, *value.list.func):
        if function.name:
          yield function


def _rename_functions(graph: tf.compat.v1.GraphDef, prefix: str) -> None:
  """Renames all functions: those of other models may have the same names."""
  functions = graph.library.function
  for nodes in (graph.node, *(function.node_def for function in functions)):
    for called in _calls(nodes):
      called.name = prefix + called.name
  for function in functions:
    function.signature.name = prefix + function.signature.name


def _find_variables(objects) -> dict[str, object]:
  """Returns the variables by their keys in the file of the weights."""

  def children(node) -> Iterator[tuple[str, object]]:
    for child in node.children:
      yield child.local_name, objects.nodes[child.node_id]

  weights = dict(children(objects.nodes[0]))[_WEIGHTS]
  return {
    f"{_WEIGHTS}/{number}/.ATTRIBUTES/VARIABLE_VALUE": node.variable
    for number, node in children(weights)
  }


def _make_variables(variables, prefix: str) -> dict[str, tf.Tensor]:
  """Makes variables without values; returns their handles by name."""
  return {
    variable.name: tf.raw_ops.VarHandleOp(
      dtype=variable.dtype,
      shape=tf.TensorShape(variable.shape),
      shared_name=prefix + variable.name,
    )
    for variable in variables
  }


def _restore(folder, keys, handles) -> None:
  """Reads the values of variables."""
  tensors = tf.raw_ops.RestoreV2(
    prefix=os.path.join(folder, "variables", "variables"),
    tensor_names=list(keys),
    shape_and_slices=[""] * len(keys),
    dtypes=[variable.dtype for variable in keys.values()],
  )
  for variable, tensor in zip(keys.values(), tensors, strict=True):
    tf.raw_ops.AssignVariableOp(resource=handles[variable.name], value=tensor)


def _destroy(handles) -> None:
  for handle in handles:
    tf.raw_ops.DestroyResourceOp(resource=handle)
