"""Builds the ONNX graph of a trained model, straight from its weights.

The graph computes what `ModelFunctions.compute` does, of int32 [B, S] with
any B and S. Its operations are standard ones, which ONNX Runtime merges itself;
its own merged ones were not faster. The constants have the names of variables
in Google's checkpoints. Large ones stand in a file of their own, which ONNX
Runtime maps into memory: half the time to load, half the memory, no 2 GB limit.

Shapes: B texts, S tokens, H hidden, N heads, D head size, L labels, M masks.
"""

from collections.abc import Mapping
import itertools
import math
import os
from typing import Any

import numpy as np

from bert import heads, modeling
from bert.data import imports, remote
from bert.export import model_functions
from bert.serving import export_card, exported_model
from bert.weights import checkpoints

# From `heads.VECTOR_ACTIVATIONS` to ONNX's operations and their attributes.
_ACTIVATIONS = {
  "linear": ("Identity", {}),
  "relu": ("Relu", {}),
  "tanh": ("Tanh", {}),
  "gelu": ("Gelu", {"approximate": "tanh"}),
  "gelu_erf": ("Gelu", {"approximate": "none"}),
  "gelu_exact": ("Gelu", {"approximate": "none"}),
  "sigmoid": ("Sigmoid", {}),
}
LARGEST_INT8 = 127
_INLINE_BYTES = 1024  # Smaller constants are part of the graph.
_ALIGNMENT = 4096  # The others are in a file that is mapped into memory.


class Graph:
  """Collects the nodes and constants of a graph.

  Weights have their names in Google's checkpoints. If it `quantizes`, products
  with the encoder's kernels are of int8.
  """

  def __init__(self, weights: Mapping[str, np.ndarray], quantizes: bool):
    self._onnx = imports.load("onnx", "--format=onnx")
    self.weights = weights
    self._quantizes = quantizes
    self._nodes, self._outputs = [], []
    self._constants: dict[str, np.ndarray] = {}
    # Activations in uint8, with scale and zero point, by their names in
    # float32: query, key and value take the same ones.
    self._quantized: dict[str, list[str]] = {}
    self._numbers = itertools.count()

  def add(self, operation: str, *inputs: Any, **attributes: Any) -> str:
    """Adds an operation of names and constants; returns its output's name."""
    return self.add_many(operation, 1, *inputs, **attributes)[0]

  def add_many(
    self, operation: str, count: int, *inputs: Any, **attributes: Any
  ) -> list[str]:
    """Adds an operation with several outputs; returns their names."""
    name = f"{operation}_{next(self._numbers)}"
    outputs = [f"{name}:{index}" for index in range(count)]
    # What is not the name of a value is a constant.
    names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
    make_node = self._onnx.helper.make_node
    node = make_node(operation, names, outputs, name=name, **attributes)
    self._nodes.append(node)
    return outputs

  def constant(self, value: Any, name: str = "") -> str:
    """Adds a constant, int64 or float32 if it is Python's; returns its name."""
    array = np.asarray(value)
    if array.dtype == np.float64:
      array = array.astype(np.float32)

    # Equal constants have the same name, and are one. A name has the array that
    # came first: a weight that is stored transposed or in int8 keeps its name,
    # so nothing else in the graph may use that weight.
    name = name or f"{array.dtype}_{array.tolist()}".replace(" ", "")
    self._constants.setdefault(name, array)
    return name

  def weight(self, name: str) -> str:
    """Adds a weight as a constant of its name."""
    return self.constant(self.weights[name], name)

  def dense(self, path: str) -> tuple[str, str]:
    """Adds the kernel and the bias of a layer."""
    return self.weight(f"{path}/kernel"), self.weight(f"{path}/bias")

  def output(self, name: str, value: str, shape: list, dtype: Any = np.float32):
    """Makes a value an output.

    Args:
      name: of the output.
      value: the name that the value has in the graph.
      shape: its sizes; a name stands for a size that varies.
      dtype: of NumPy.
    """
    helper = self._onnx.helper
    self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
    self._outputs.append(self._describe(name, dtype, shape))

  def _describe(self, name, dtype, shape):
    helper = self._onnx.helper
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_value_info(name, kind, shape)

  def cast(self, value: str, dtype: Any) -> str:
    """Converts to a type of NumPy."""
    kind = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return self.add("Cast", value, to=kind)

  def multiply(self, x: str, kernel: str) -> str:
    """Multiplies by one of the encoder's kernels, of int8 if asked to.

    Weights have a scale for each column, activations one for each batch.
    """
    if not self._quantizes:
      return self.add("MatMul", x, self.weight(kernel))

    # Activations are rounded while the model runs, by their own range.
    if x not in self._quantized:
      self._quantized[x] = self.add_many("DynamicQuantizeLinear", 3, x)
    values, scale, zero = self._quantized[x]

    # Integers are multiplied; the product of both scales makes them floats.
    numbers, scales = quantize(self.weights[kernel])
    numbers = self.constant(numbers, kernel)
    product = self.add("MatMulInteger", values, numbers, zero)
    scales = self.constant(scales, f"{kernel}_scales")
    scale = self.add("Mul", scale, scales)
    return self.add("Mul", self.cast(product, np.float32), scale)

  def save(self, path: str) -> None:
    """Writes the graph, and beside it, as `path`.data, its large constants."""
    helper = self._onnx.helper
    with open(f"{path}.data", "wb") as file:
      constants = [
        self._write_constant(name, array, file)
        for name, array in self._constants.items()
      ]

    shape = ["batch", "sequence"]
    names = heads.HeadModel.input_names
    inputs = [self._describe(name, np.int32, shape) for name in names]
    model = helper.make_model(
      helper.make_graph(self._nodes, "bert", inputs, self._outputs, constants),
      opset_imports=[helper.make_opsetid("", 20)],  # The first with Gelu.
      ir_version=10,  # onnxruntime 1.18 and later read it.
      producer_name="export_saved_model.py",
    )
    self._onnx.save_model(model, path)

  def _write_constant(self, name, array, file):
    """Makes the `TensorProto` of a constant; its values may go to a file."""
    if array.nbytes < _INLINE_BYTES:
      return self._onnx.numpy_helper.from_array(array, name)

    # The tensor says where in the file its values are; they begin at a page of
    # memory, as only whole pages can be mapped.
    kind = self._onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    tensor = self._onnx.TensorProto(name=name, data_type=kind, dims=array.shape)
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
    tensor.data_location = self._onnx.TensorProto.EXTERNAL
    for key, value in (
      ("location", os.path.basename(file.name)),
      ("offset", file.tell()),
      ("length", array.nbytes),
    ):
      tensor.external_data.add(key=key, value=str(value))

    little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
    file.write(np.ascontiguousarray(little_endian))
    return tensor


def quantize(kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Rounds a matrix to int8 [M, N], with scales, float32 [N], of columns.

  On x86 processors without VNNI, ONNX Runtime adds the products of rows 0 and
  1, 2 and 3, and so on in 16 bits, with activations of up to 255 (vpmaddubsw).
  A sum above 32,767 is cut off there, without a word. So two such numbers of a
  sign are together at most 128 here, and every processor computes the same.
  """
  # For each column the largest number, or sum of two rows that are added.
  sums = np.add.reduceat(kernel, np.arange(0, len(kernel), 2))
  largest = np.maximum(np.abs(kernel).max(0), np.abs(sums).max(0))

  scales = largest / LARGEST_INT8
  scales[scales == 0] = 1.0  # A column of zeros has any scale but 0.
  return np.rint(kernel / scales).astype(np.int8), scales.astype(np.float32)


def build(
  source: model_functions.ModelFunctions, quantizes: bool = False
) -> Graph:
  """Builds the graph of a trained model; a ValueError if it has none.

  Its outputs are those of `source.compute`, and `attention_0` and so on,
  float32 [B, N, S, S], of each layer.
  """
  model, config = source.trained.model, source.trained.config
  head = type(model) if isinstance(model, heads.HeadModel) else None
  add_head = _HEADS.get(head)
  if not add_head or not hasattr(config, "num_attention_heads"):
    raise ValueError(
      "--format=onnx takes Transformers with a dense head: export this model "
      "with --format=saved_model or litert"
    )

  variables = checkpoints.model_variables(model)
  weights = {name: value.numpy() for name, value in variables.items()}
  graph = Graph(weights, quantizes)
  add_head(graph, source, _add_encoder(graph, config))
  return graph


def save(
  folder: str, source: model_functions.ModelFunctions, quantizes: bool = False
):
  """Writes the graph of a trained model to a folder.

  Args:
    folder: to write to, local or remote.
    source: the functions of the model.
    quantizes: whether products with the encoder's kernels are of int8.
  """
  # `Graph` opens its files by itself, which remote folders do not allow.
  with remote.written_locally(folder) as local:
    path = os.path.join(local, export_card.ONNX_FILE)
    build(source, quantizes).save(path)


def load(folder: str, card: export_card.Card) -> exported_model.Run:
  """Opens a new export, to compare it."""
  return exported_model.open_engine(folder, card).run


# The encoder; modeling.py in the same order.


def _add_encoder(graph, config):
  """Adds BERT; returns its hidden states [B, S, H], the embeddings first."""
  # Embeddings of words, segments and positions.
  path = "bert/embeddings"
  length = graph.add("Shape", "input_ids", start=1, end=2)
  words = graph.weight(f"{path}/word_embeddings")
  segments = graph.weight(f"{path}/token_type_embeddings")
  positions = graph.weight(f"{path}/position_embeddings")
  words = graph.add("Gather", words, "input_ids")
  segments = graph.add("Gather", segments, "segment_ids")
  positions = graph.add("Slice", positions, [0], length)
  embedded = graph.add("Add", graph.add("Add", words, segments), positions)

  if config.has_embedding_norm:
    embedded = _normalize(graph, config, embedded, path)
  if config.embedding_width != config.hidden_size:  # As in ELECTRA.
    kernel, bias = graph.dense(f"{path}/project")
    embedded = graph.add("Add", graph.add("MatMul", embedded, kernel), bias)

  # Which tokens each token sees, and a score far below all for the others.
  seen = graph.cast(graph.add("Unsqueeze", "input_mask", [1, 2]), np.float32)
  if not config.is_bidirectional:
    square = graph.add("Concat", length, length, axis=0)
    before = graph.add("Expand", np.ones([1, 1], np.float32), square)
    seen = graph.add("Mul", seen, graph.add("Trilu", before, upper=0))
  padding = graph.add("Sub", 1.0, seen)
  # [B, 1, 1, S], or [B, 1, S, S] where tokens see those before.
  mask_scores = graph.add("Mul", padding, modeling.MASKED_SCORE)

  # All states are kept: vectors may be of any layer.
  states = [embedded]
  for layer in range(config.num_hidden_layers):
    states.append(_add_layer(graph, config, layer, states[-1], mask_scores))
  return states


def _add_layer(graph, config, layer, hidden, mask_scores):
  """Adds a Transformer block: [B, S, H] to [B, S, H]."""
  path = f"bert/encoder/layer_{layer}"
  # Self-attention, and its norm after the residual, as in the paper.
  attended = _attend(graph, config, layer, hidden, mask_scores)
  attended = _dense(graph, attended, f"{path}/attention/output/dense")
  attended = graph.add("Add", attended, hidden)
  attended = _normalize(graph, config, attended, f"{path}/attention/output")

  # The two dense layers, wide and back.
  wide = _dense(graph, attended, f"{path}/intermediate/dense")
  wide = _activate(graph, wide, config.hidden_act)
  rows = _dense(graph, wide, f"{path}/output/dense")
  rows = graph.add("Add", rows, attended)
  return _normalize(graph, config, rows, f"{path}/output")


def _attend(graph, config, layer, hidden, mask_scores):
  """Adds self-attention: [B, S, H] to [B, S, H]."""
  path = f"bert/encoder/layer_{layer}/attention/self"
  count = config.num_attention_heads
  size = config.hidden_size // count

  # Splits H into N heads of D numbers; a 0 in the shape keeps a size.
  def split(name, *order):
    rows = _dense(graph, hidden, f"{path}/{name}")
    rows = graph.add("Reshape", rows, [0, 0, count, size])
    return graph.add("Transpose", rows, perm=order)

  # [B, N, S, D], and the keys transposed.
  query, value = split("query", 0, 2, 1, 3), split("value", 0, 2, 1, 3)
  key = split("key", 0, 2, 3, 1)  # [B, N, D, S]

  scores = graph.add("MatMul", query, key)
  scores = graph.add("Mul", scores, 1.0 / math.sqrt(size))
  probs = graph.add("Softmax", graph.add("Add", scores, mask_scores))
  shape = ["batch", count, "sequence", "sequence"]
  graph.output(f"attention_{layer}", probs, shape)

  # The heads side by side again: [B, S, H].
  context = graph.add("MatMul", probs, value)
  context = graph.add("Transpose", context, perm=[0, 2, 1, 3])
  return graph.add("Reshape", context, [0, 0, -1])


def _dense(graph, x, path):
  product = graph.multiply(x, f"{path}/kernel")
  return graph.add("Add", product, graph.weight(f"{path}/bias"))


def _normalize(graph, config, x, path):
  parts = (graph.weight(f"{path}/LayerNorm/{n}") for n in ("gamma", "beta"))
  epsilon = config.layer_norm_epsilon
  return graph.add("LayerNormalization", x, *parts, epsilon=epsilon)


def _activate(graph, x, name):
  operation, attributes = _ACTIVATIONS[name]
  return graph.add(operation, x, **attributes)


# The heads; heads.py and model_functions.py in other words. Each takes the
# hidden states of the encoder, the embeddings first.


def _add_vectors(graph, source, states):
  settings = source.trained.answer_settings
  config = source.trained.config
  state = states[1:][settings["layer"]]
  vectors = _pool(graph, state, settings["pooling"])
  size = config.hidden_size
  if isinstance(source.trained.model, heads.VectorModel):
    kernel, bias = graph.dense("dense")
    vectors = graph.add("Gemm", vectors, kernel, bias)
    vectors = _activate(graph, vectors, source.trained.model.activation)
    [size] = graph.weights[bias].shape
  if settings.get("normalize"):
    # A vector of zeros stays one, and is not divided by 0.
    length = graph.add("Max", graph.add("ReduceL2", vectors, [1]), 1e-12)
    vectors = graph.add("Div", vectors, length)
  graph.output("vectors", vectors, ["batch", size])


def _add_spans(graph, source, states):
  logits = _score_tokens(graph, states[-1], "cls/squad/")
  for index, name in enumerate(heads.SpanOutput._fields):
    part = graph.add("Gather", logits, index, axis=2)
    graph.output(name, part, ["batch", "sequence"])


def _add_tags(graph, source, states):
  logits = _score_tokens(graph, states[-1])
  shape = ["batch", "sequence", len(source.trained.labels)]
  graph.output("logits", logits, shape)


def _add_classifier(graph, source, states):
  trained = source.trained
  maker = source.maker
  # A training with --pooling has no pooler. Without it, the state that the
  # config names, such as the first token's, goes through BERT's pooler.
  pooling = trained.training_settings.get(
    "pooling", trained.config.pooler_input
  )
  pooled = _pool(graph, states[-1], pooling)
  if "pooling" not in trained.training_settings:
    pooled = graph.add("Gemm", pooled, *graph.dense("bert/pooler/dense"))
    pooled = graph.add("Tanh", pooled)

  head = graph.weight("output_weights"), graph.weight("output_bias")
  logits = graph.add("Gemm", pooled, *head, transB=1)  # [B, L]

  # As `ModelFunctions._apply_head`: one number, or logits and probabilities.
  if maker.number:
    number = graph.add("Reshape", logits, [-1])
    graph.output(maker.number, number, ["batch"])
    return
  shape = ["batch", len(trained.labels)]
  graph.output("logits", logits, shape)
  activated = graph.add(maker.activation.capitalize(), logits)
  graph.output("probabilities", activated, shape)


def _score_tokens(graph, state, path=""):
  """Applies a dense layer of [L, H] to each token: [B, S, L]."""
  weights = graph.weights[f"{path}output_weights"].T
  weights = graph.constant(weights, f"{path}output_weights")
  product = graph.add("MatMul", state, weights)
  return graph.add("Add", product, graph.weight(f"{path}output_bias"))


def _pool(graph, state, pooling):
  """Makes one vector of the states of a text, [B, H], as `heads.pool` does."""
  if pooling == "cls":
    return graph.add("Gather", state, 0, axis=1)  # [B, H]
  if pooling == "last":
    count = graph.cast(graph.add("ReduceSum", "input_mask", [1]), np.int64)
    place = graph.add("Max", graph.add("Sub", count, 1), 0)  # [B, 1]
    return graph.add("GatherND", state, place, batch_dims=1)

  # The others leave padding out.
  mask = graph.add("Unsqueeze", "input_mask", [2])
  if pooling == "max":
    lowest = np.finfo(np.float32).min
    kept = graph.add("Where", graph.cast(mask, bool), state, lowest)
    return graph.add("ReduceMax", kept, [1], keepdims=0)
  mask = graph.cast(mask, np.float32)
  total, count = (
    graph.add("ReduceSum", x, [1], keepdims=0)
    for x in (graph.add("Mul", state, mask), mask)
  )
  return graph.add("Div", total, count)


def _add_guesses(graph, source, states):
  """Adds the guesses for each [MASK]; see `ModelFunctions`."""
  # The states at the masks of all texts, as rows.
  config = source.trained.config
  top_k = min(source.trained.answer_settings["top_k"], source.num_tokens)
  ranks, places = _find_masks(graph, source.mask_id)
  positions = graph.add("Where", graph.cast(ranks, bool), places, -1)
  shape = ["batch", "masks"]
  graph.output("positions", graph.cast(positions, np.int32), shape, np.int32)

  places = graph.add("Unsqueeze", places, [2])
  rows = graph.add("GatherND", states[-1], places, batch_dims=1)  # [B, M, H]
  rows = graph.add("Reshape", rows, [-1, config.hidden_size])  # [B*M, H]

  # `heads.MaskedLmHead`.
  path = "cls/predictions/transform"
  rows = graph.add("Gemm", rows, *graph.dense(f"{path}/dense"))
  rows = _activate(graph, rows, config.hidden_act)
  rows = _normalize(graph, config, rows, path)
  table = graph.weight("bert/embeddings/word_embeddings")
  bias = graph.weight("cls/predictions/output_bias")
  logits = graph.add("Gemm", rows, table, bias, transB=1)  # [B*M, V]
  logits = graph.add("Add", logits, source.row_bias)

  # The best tokens of each row, again by texts.
  shares = graph.add("Softmax", logits)
  best, ids = graph.add_many("TopK", 2, shares, [top_k])
  counts = graph.add("Concat", graph.add("Shape", positions), [top_k], axis=0)
  ids = graph.cast(ids, np.int32)
  for name, value in (("ids", ids), ("probabilities", best)):
    value = graph.add("Reshape", value, counts, allowzero=1)  # [B, M, K]
    dtype = np.int32 if name == "ids" else np.float32
    graph.output(name, value, [*shape, top_k], dtype)


def _find_masks(graph, mask_id):
  """Returns numbers above 0 for masks, 0 for filling, and places [B, M]."""
  is_mask = graph.add("Equal", "input_ids", np.int32(mask_id))
  is_mask = graph.cast(is_mask, np.int32)

  length = graph.add("Shape", "input_ids", start=1, end=2)
  # Falling ranks, so that TopK gives the masks in their order, then filling.
  ranks = graph.add("Range", graph.add("Squeeze", length), 0, -1)
  ranks = graph.add("Mul", is_mask, graph.cast(ranks, np.int32))  # [B, S]

  # M is the largest number of masks of a text in the batch.
  counts = graph.add("ReduceSum", is_mask, [1])  # [B, 1]
  most = graph.add("ReduceMax", counts, [0], keepdims=0)
  return graph.add_many("TopK", 2, ranks, graph.cast(most, np.int64))


# By the class of a head, None for the encoder alone; ONNX takes no others. They
# compute what `named_outputs` of the heads and `ModelFunctions` do.
_HEADS = {
  None: _add_vectors,
  heads.VectorModel: _add_vectors,
  heads.ClassifierModel: _add_classifier,
  heads.TaggerModel: _add_tags,
  heads.SpanModel: _add_spans,
  heads.PretrainingModel: _add_guesses,
}
