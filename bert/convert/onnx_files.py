"""BERTs in ONNX files, as torch exports them.

torch keeps the names of most parameters, but a dense layer becomes a product
with a transposed matrix, [in, out], which has only a number for a name, such as
onnx::MatMul_470. The graph shows whose it is: the bias that is added to the
product has kept its name. The graph is read, never executed.

A config.json beside the file is followed. Without one, the shapes of the
weights and the operations between them say what it would.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
import os
import re
from typing import Any

import numpy as np

from bert.convert import huggingface, models
from bert.data import file_search, files, imports, remote
from bert.weights import checkpoints

_WORDS = "embeddings.word_embeddings.weight"
_DECODER = "cls.predictions.decoder.weight"
_LAYER = re.compile(r"encoder\.layer\.\d+\.output\.dense\.weight")
_FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
# Operations of a file that was changed after torch wrote it.
_CHANGED = re.compile(r"(?i)com\.microsoft.*|.*(quantize|integer).*")
# The operation that tells an activation from others, and transformers' name.
_ACTIVATIONS = {
  "Erf": "gelu",
  "Gelu": "gelu",
  "Tanh": "gelu_new",
  "Relu": "relu",
}
_NORMS = ("LayerNormalization", "Sqrt")
# What reading raises if a file is damaged, or a graph is not a BERT's.
_ERRORS = (LookupError, TypeError, StopIteration, ArithmeticError)


class _Graph:
  """The nodes of a file, and its tensors by their names."""

  def __init__(self, path: str):
    import onnx

    with files.open_bytes(path) as file:
      graph = onnx.ModelProto.FromString(file.read()).graph
    self.nodes = list(graph.node)
    self.tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in self.nodes:
      if _CHANGED.fullmatch(node.domain or node.op_type):
        raise ValueError(
          f"it has the operation {node.op_type!r:.80}: pass the file as torch "
          "exported it, before it was optimized or quantized"
        )

      # Small constants are nodes. Parameters that are equal, such as the biases
      # of untrained layers, are stored once, and nodes give them their names.
      if node.op_type == "Constant":
        self.tensors[node.output[0]] = node.attribute[0].t
      elif node.op_type == "Identity" and node.input[0] in self.tensors:
        self.tensors[node.output[0]] = self.tensors[node.input[0]]

    # Large tensors may stand in other files. Their names are the graph's, and
    # must not lead out of its folder.
    names = set(filter(None, map(_find_file, self.tensors.values())))
    if odd := [name for name in names if not re.fullmatch(r"\w[\w.-]*", name)]:
      raise ValueError(f"{odd[0]!r:.80} is not the name of a file beside it")
    parent = os.path.dirname(path)
    beside = [os.path.join(parent, name) for name in sorted(names)]
    self._folder = os.path.dirname(remote.local_copy(path, *beside)) or "."

  def shape(self, name: str) -> tuple[int, ...]:
    """Returns the shape of floats; a ValueError if they cannot be there."""
    import onnx

    tensor = self.tensors[name]
    dtype = onnx.TensorProto.DataType.Name(tensor.data_type)
    if dtype not in _FLOATS:
      raise ValueError(f"{name!r:.80} holds {dtype}; expected FLOAT")

    # A huge shape would ask for memory before values are read.
    size = tensor.ByteSize()
    if file := _find_file(tensor):
      size = os.path.getsize(os.path.join(self._folder, file))
    if min(tensor.dims, default=0) < 0 or math.prod(tensor.dims) > size:
      raise ValueError(f"{name!r:.80} has more values than are stored")
    return tuple(tensor.dims)

  def load(self, name: str) -> np.ndarray:
    """Returns the values of a tensor."""
    from onnx import checker, numpy_helper

    try:
      value = numpy_helper.to_array(self.tensors[name], self._folder)
    except checker.ValidationError as error:  # A link to another folder.
      raise ValueError(str(error)) from None
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


def find(folder: str) -> str | None:
  """Returns the ONNX file in a folder, if any; a ValueError if it has several.

  Optimum writes it into a folder below that of the config, called onnx.
  """
  parents = (folder, os.path.join(folder, "onnx"))
  paths = [
    os.path.join(parent, name)
    for parent in parents
    for name in file_search.list_folder(parent)
    if name.endswith(".onnx")
  ]
  if len(paths) > 1:
    raise ValueError(
      f"{folder}: several models, name one: {' or '.join(paths)}"
    )
  return paths[0] if paths else None


def open_file(path: str) -> models.ModelFolder:
  """Opens an ONNX file; a ValueError if it is not a BERT that torch exported.

  Needs the package onnx.
  """
  imports.load("onnx", f"{path}, an ONNX file")
  from google.protobuf import message

  folder = os.path.dirname(path) or "."
  folders = [folder, *files.above(folder, "onnx")]
  config_paths = (os.path.join(x, huggingface.CONFIG) for x in folders)
  config_path = next(filter(files.exists, config_paths), None)

  # Weights that were released are read anew.
  read = functools.cache(lambda: _Graph(path))
  place = f"{path}: not read as a BERT that torch exported"
  with checkpoints.naming_damage(place, message.Error, *_ERRORS):
    stored = _find_parameters(read)
    if config_path:
      settings = files.read_json(config_path)
    else:
      settings = _infer_settings(read(), stored)

  folder = huggingface.name_tensors(path, config_path or path, settings, stored)
  return dataclasses.replace(
    folder,
    weights=folder.weights._replace(release=read.cache_clear),
    folders=tuple(folders),
    library="an ONNX file",
  )


def _find_file(tensor) -> str:
  """Returns the name of the file that holds a tensor's values; "": this one."""
  data = {entry.key: entry.value for entry in tensor.external_data}
  return data.get("location", "")


def _find_parameters(read) -> dict[str, models.StoredVariable]:
  """Returns the parameters as transformers names and shapes them.

  Args:
    read: returns the graph, anew if its values were released.
  """
  # Those that have kept their names.
  graph = read()
  names = {x: x for x in graph.tensors if x.endswith((".weight", ".bias"))}
  parameters = {name: _open(read, name) for name in names}

  # The matrices, by the biases that are added to their products.
  products = {
    node.output[0]: node.input[1]
    for node in graph.nodes
    if node.op_type == "MatMul" and node.input[1] in graph.tensors
  }
  for node in graph.nodes:
    for bias, product in zip(node.input, reversed(node.input), strict=True):
      if node.op_type == "Add" and bias.endswith(".bias"):
        matrix = products.get(product)
        name = f"{bias.removesuffix('bias')}weight"
        if matrix and names.setdefault(name, matrix) != matrix:
          raise ValueError(f"{bias!r:.80} is the bias of several layers")
        if matrix:
          parameters[name] = _open(read, matrix).transposed()
  return _strip_prefixes(parameters)


def _open(read, name: str) -> models.StoredVariable:
  shape = read().shape(name)
  return models.StoredVariable(lambda: read().load(name), shape)


def _strip_prefixes(
  parameters: Mapping[str, models.StoredVariable],
) -> dict[str, models.StoredVariable]:
  """Returns parameters by their names in a BertModel, or in its heads.

  Those of sentence-transformers begin with 0.auto_model, for example.
  """
  # The table of words may have the name of the head that shares it.
  words = next((name for name in parameters if name.endswith(_WORDS)), None)
  if not words and _DECODER in parameters:
    words = f"bert.{_WORDS}"
    parameters = {words: parameters[_DECODER], **parameters}
  if not words:
    raise ValueError(f"no {_WORDS}: expected a BERT as torch exports it")

  prefix = words.removesuffix(_WORDS)
  outer = prefix[: prefix.rfind(".", 0, -1) + 1]
  stripped = {
    name.removeprefix(prefix if name.startswith(prefix) else outer): variable
    for name, variable in parameters.items()
  }
  # The decoder's bias is called after the module around it.
  if decoder := stripped.pop("cls.predictions.weight", None):
    stripped[_DECODER] = decoder
  return stripped


def _infer_settings(
  graph: _Graph, stored: Mapping[str, models.StoredVariable]
) -> dict[str, Any]:
  """Returns what a config.json would say; errors if this is not a BertModel."""
  # RoBERTa has the same names, but counts positions by adding up the mask.
  if any(node.op_type == "CumSum" for node in graph.nodes):
    raise ValueError("its positions are RoBERTa's: expected a BERT")

  vocab_size, hidden_size = stored[_WORDS].shape
  return {
    "model_type": "bert",
    "vocab_size": vocab_size,
    "hidden_size": hidden_size,
    "intermediate_size": stored["encoder.layer.0.output.dense.weight"].shape[1],
    "num_hidden_layers": len(list(filter(_LAYER.fullmatch, stored))),
    "num_attention_heads": hidden_size // _find_head_size(graph),
    "hidden_act": _find_activation(graph),
    "layer_norm_eps": _find_epsilon(graph),
    **{
      field: stored[f"embeddings.{table}_embeddings.weight"].shape[0]
      for field, table in (
        ("max_position_embeddings", "position"),
        ("type_vocab_size", "token_type"),
      )
    },
  }


def _find_sum(graph: _Graph, bias: str) -> int:
  """Returns the number of the node that adds the bias of a dense layer."""
  return next(
    number
    for number, node in enumerate(graph.nodes)
    if node.op_type == "Add" and any(x.endswith(bias) for x in node.input)
  )


def _find_head_size(graph: _Graph) -> int:
  """Returns how many numbers a head has: the last size of queries."""
  number = _find_sum(graph, "encoder.layer.0.attention.self.query.bias")
  query = graph.nodes[number].output[0]
  shape = next(
    node.input[1]
    for node in graph.nodes
    if node.op_type == "Reshape" and node.input[0] == query
  )
  # Its parts may be joined while the graph runs.
  for node in graph.nodes:
    if node.op_type == "Concat" and node.output[0] == shape:
      shape = node.input[-1]
      break
  return int(graph.load(shape).flat[-1])


def _find_activation(graph: _Graph) -> str:
  """Returns what is computed between the two dense layers of a block."""
  first = _find_sum(graph, "encoder.layer.0.intermediate.dense.bias") + 1
  last = _find_sum(graph, "encoder.layer.0.output.dense.bias")
  nodes = graph.nodes[first:last]
  operations = {node.op_type for node in nodes}
  if any(a.s == b"tanh" for node in nodes for a in node.attribute):
    return "gelu_new"  # An attribute of Gelu.
  if operations == {"Tanh", "MatMul"}:
    return "tanh"
  return next(_ACTIVATIONS[x] for x in _ACTIVATIONS if x in operations)


def _find_epsilon(graph: _Graph) -> float:
  """Returns the epsilon of the first LayerNorm, whose node may be several."""
  makers = {name: node for node in graph.nodes for name in node.output}
  node = next(x for x in graph.nodes if x.op_type in _NORMS)
  if node.op_type == "LayerNormalization":
    values = {a.name: a.f for a in node.attribute}
    epsilon = values["epsilon"]
  else:
    total = makers[node.input[0]].input
    epsilon = next(graph.load(x).item() for x in total if x in graph.tensors)
  return float(f"{epsilon:.6g}")  # 1e-12, which is not a float32.
