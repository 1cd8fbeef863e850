"""Encoders in SavedModels (TF-Hub, Kaggle) and Model Garden's checkpoints.

Both are object-based checkpoints of TensorFlow: the key of a variable is its
path among the objects. The graph of the objects, which is stored beside the
values, also has its `full_name`, which Model Garden's layers gave it and every
export kept: `transformer/layer_0/self_attention/query/kernel`. Full names are
tried first, keys where a full name matches nothing.
"""

from collections.abc import Callable, Iterator, Mapping
import functools
import os
import re
from typing import NamedTuple

from google.protobuf import message
import numpy as np
from tensorflow.core.protobuf import trackable_object_graph_pb2

from convert import architecture, readers
from data import files
import modeling
from weights import checkpoints, fitting

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAYER = r"/(?:transformer/layer_|_transformer_layers/)(\d+)/"
_POOLER = "bert/pooler/dense/"
# Trained with the next sentence, this one is what Model Garden hands on.
_NEXT_POOLER = "next_sentence/pooler_dense/"
# From their names, with a slash before, to Google's.
_NAMES = (
  (f"^.*{_LAYER}", r"bert/encoder/layer_\1/"),
  (
    r"/(?:self_attention/|_attention_layer/_)(query|key|value)(?:_dense)?/",
    r"/attention/self/\1/",
  ),
  (
    r"/(?:self_attention/attention_output|self_attention_output"
    r"|_attention_layer/_output_dense|_attention_output_dense)/",
    "/attention/output/dense/",
  ),
  (r"/(?:self)?_attention_layer_norm/", "/attention/output/LayerNorm/"),
  (
    r"(layer_\d+)/(?:_intermediate_dense|intermediate)/",
    r"\1/intermediate/dense/",
  ),
  (r"(layer_\d+)/(?:_output_dense|output)/", r"\1/output/dense/"),
  (r"(layer_\d+)/_?output_layer_norm/", r"\1/output/LayerNorm/"),
  (
    r"^.*/(?:word_embeddings/embeddings|_embedding_layer/embeddings"
    r"|masked_lm/embedding_table)$",
    "bert/embeddings/word_embeddings",
  ),
  (
    r"^.*/(?:position_embedding|_position_embedding_layer)"
    r"/_?(?:position_)?embeddings$",
    "bert/embeddings/position_embeddings",
  ),
  (
    r"^.*/(?:type_embeddings|_type_embedding_layer)/embeddings$",
    "bert/embeddings/token_type_embeddings",
  ),
  (
    r"^.*/(?:embeddings/layer_norm|_embedding_norm_layer)/",
    "bert/embeddings/LayerNorm/",
  ),
  (r"^.*/_?embedding_projection/", "bert/embeddings/project/"),
  (r"^.*/(?:pooler_transform|_pooler_layer)/", _POOLER),
  (r"^.*/next_sentence[./]pooler_dense/", _NEXT_POOLER),
  (
    r"^.*/(?:cls/predictions/transform|masked_lm)/dense/",
    "cls/predictions/transform/dense/",
  ),
  (
    r"^.*/(?:cls/predictions/transform/LayerNorm|masked_lm/layer_norm)/",
    "cls/predictions/transform/LayerNorm/",
  ),
  (
    r"^.*/(?:cls/predictions|masked_lm)/(?:output_bias/)?bias$",
    "cls/predictions/output_bias",
  ),
  (r"^.*/next_sentence/logits/kernel$", "cls/seq_relationship/output_weights"),
  (r"^.*/next_sentence/logits/bias$", "cls/seq_relationship/output_bias"),
  (r"^.*/mlm/(?:trainable_)?variables/(\d+)$", r"anonymous/\1"),
)
_KNOWN = {
  *architecture.variables(
    modeling.BertConfig(2, 2, 1, 1, embedding_size=1), "pretraining"
  ),
  *(f"{_NEXT_POOLER}kernel", f"{_NEXT_POOLER}bias", "anonymous/0"),
}
# A masked-LM head without names, as a Keras layer lists its variables.
_HEAD = tuple(
  f"cls/predictions/{name}"
  for name in (
    *("output_bias", "transform/dense/kernel", "transform/dense/bias"),
    *("transform/LayerNorm/gamma", "transform/LayerNorm/beta"),
  )
)
_NUMBERED = re.compile(r"^(.*/layer_with_weights-)(\d+)(/.*)$")


class _Variable(NamedTuple):
  key: str  # In the checkpoint.
  names: tuple[str, ...]  # Its full name, and what its key amounts to.
  shape: tuple[int, ...]


def open_checkpoint(weights: checkpoints.Weights) -> readers.ModelFolder:
  """Gives an object-based checkpoint Google's names.

  Args:
    weights: by the keys in the checkpoint.

  Raises:
    ValueError: it does not hold the encoder of one BERT.
  """
  prefix, read = weights.source, weights.read
  found: dict[str, _Variable] = {}
  unread, unknown = [], []
  for variable in _list_variables(prefix, read(GRAPH), weights.shapes):
    google = _match(variable.names)
    if readers.STATE.search(variable.key):
      unread.append(variable.key)
    elif google in found:
      raise ValueError(
        f"{prefix}: {found[google].key!r:.200} and {variable.key!r:.200} are "
        f"both {google}: two models are in it; save one"
      )
    elif google:
      found[google] = variable
    elif any(re.search(_LAYER, name) for name in variable.names):
      unknown.append(variable.key)
    else:
      unread.append(variable.key)
  readers.refuse_unknown(prefix, unknown)
  unread += _choose_pooler(found) + _name_head(found)
  query = found.get("bert/encoder/layer_0/attention/self/query/kernel")
  if query is None or len(query.shape) != 3:
    raise ValueError(
      f"{prefix}: TensorFlow's object-based format, but no BERT in it by Model "
      f"Garden's names; it holds {sorted(weights.shapes)[:5]!r:.300}"
    )
  lower = [key for key in unread if _says_casing(key, read)]
  variables = {
    name: readers.make_variable(
      name,
      variable.shape,
      functools.partial(read, variable.key),
      is_transposed=name == "cls/seq_relationship/output_weights",
    )
    for name, variable in found.items()
  }
  unread = [key.removesuffix(_SUFFIX) for key in unread if key not in lower]
  named = readers.make_weights(prefix, variables, unread)
  assets = _asset_folders(prefix)
  return readers.ModelFolder(
    prefix,
    tuple(assets or [os.path.dirname(prefix) or "."]),
    named,
    _infer_config(prefix, named.shapes, query.shape[1]),
    do_lower_case=bool(np.all(read(lower[0]))) if len(lower) == 1 else None,
    library="a SavedModel" if assets else "Model Garden",
    assumed=("hidden_act",),
    unread=tuple(map(readers.show, unread)),
  )


def _infer_config(
  source: str, shapes: Mapping[str, tuple[int, ...]], heads: int
) -> modeling.BertConfig:
  """Infers a config from shapes; other fields have defaults.

  Raises:
    ValueError: a variable is missing, or shapes do not fit a BERT.
  """
  fields = fitting.fields_of(shapes)
  for field, name, _ in fitting.SHOWN_BY_SHAPE[:-1]:
    if field not in fields:
      raise ValueError(
        f"{source}: not the weights of a BERT: {name} is missing or has "
        "another shape"
      )
  try:
    return modeling.BertConfig(**fields, num_attention_heads=heads)
  except ValueError as error:
    raise ValueError(f"{source}: not the weights of a BERT: {error}") from None


def _asset_folders(prefix: str) -> list[str]:
  """Returns where a SavedModel's vocab.txt is; nothing for other prefixes."""
  folder = os.path.dirname(os.path.dirname(prefix)) or "."
  if not files.exists(os.path.join(folder, "saved_model.pb")):
    return []
  return [os.path.join(folder, "assets"), folder]


def refuse_hub_module(prefix: str, shapes: Mapping[str, tuple]) -> None:
  """Refuses the modules of TF1's hub that are known to hold other weights.

  Version 1 of google/small_bert with H = 768 was exported wrongly
  (https://github.com/tensorflow/hub/issues/661), and a module does not say
  its version.

  Raises:
    ValueError: it may be one.
  """
  folder = os.path.dirname(os.path.dirname(os.path.abspath(prefix)))
  if not files.exists(os.path.join(folder, "tfhub_module.pb")):
    return
  table = shapes.get("bert/embeddings/word_embeddings", ())
  layers = sum(name.endswith("/intermediate/dense/bias") for name in shapes)
  is_small = layers in (2, 4, 6, 8, 10) or "small" in folder
  if (
    tuple(table)[1:] == (768,) and is_small and folder[-2:] not in ("/2", "_2")
  ):
    raise ValueError(
      f"{folder}: version 1 of google/small_bert with H=768 holds wrong "
      "weights (tensorflow/hub issue 661), and a module does not say its "
      "version: if it is version 2, name its folder 2; or take the checkpoint "
      "of google-research/bert"
    )


def _list_variables(prefix, graph_bytes, shapes) -> Iterator[_Variable]:
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  try:
    graph.ParseFromString(graph_bytes)
  except (message.DecodeError, TypeError) as error:
    raise ValueError(
      f"{prefix}: its object graph is damaged: {error}"
    ) from None
  full_names = {
    attribute.checkpoint_key: attribute.full_name
    for node in graph.nodes
    for attribute in node.attributes
  }
  missing = sorted(set(full_names) - set(shapes))
  if missing:
    raise ValueError(
      f"{prefix}: its object graph names {missing[0]!r:.80}, which is missing"
    )
  places = {key: _read_key(key) for key in sorted(shapes) if key != GRAPH}
  numbered = _name_layers(places.values())
  for key, place in places.items():
    full_name = f"/{full_names.get(key, '')}"
    names = (full_name, numbered.get(place, place))
    yield _Variable(key, names, tuple(shapes[key]))


def _read_key(key: str) -> str:
  """Returns the path that a key encodes: `.S` is a slash, `..` a dot."""
  path = key.removesuffix(_SUFFIX).replace(".S", "/").replace("..", ".")
  return "/" + path.removesuffix(":0")


def _name_layers(paths) -> dict[str, str]:
  """Returns Model Garden's names of layers that are only numbered.

  Numbers are given in the order of construction: three tables, LayerNorm, the
  projection if there is one, the layers, the pooler.
  """
  matches = [match for path in paths if (match := _NUMBERED.match(path))]
  layers: dict[str, list[int]] = {}
  for match in matches:
    if match[3].startswith("/_attention_layer/"):
      layers.setdefault(match[1], []).append(int(match[2]))
  names = {}
  for match in matches:
    found = layers.get(match[1])
    if not found:
      continue
    first, last, number = min(found), max(found), int(match[2])
    before = ["word_embeddings", "position_embedding", "type_embeddings"]
    before += ["embeddings/layer_norm", "embedding_projection"]
    if first not in (4, 5) or number > last + 1:
      continue
    if number < first:
      name = before[number]
    elif number <= last:
      name = f"transformer/layer_{number - first}"
    else:
      name = "pooler_transform"
    names[match[0]] = f"/{name}{match[3]}"
  return names


def _match(names: tuple[str, ...]) -> str | None:
  """Returns Google's name of a variable; None if BERT has no such one."""
  for name in names:
    google = readers.rename(name, _NAMES)
    if re.sub(r"(layer_|anonymous/)\d+", r"\g<1>0", google) in _KNOWN:
      return google
  return None


def _choose_pooler(found: dict[str, _Variable]) -> list[str]:
  """Keeps the pooler that is trained; returns the keys of the other."""
  left = []
  for leaf in ("bias", "kernel"):
    if trained := found.pop(_NEXT_POOLER + leaf, None):
      left += [found[n].key for n in [_POOLER + leaf] if n in found]
      found[_POOLER + leaf] = trained
  return left


def _name_head(found: dict[str, _Variable]) -> list[str]:
  """Names a masked-LM head without names; returns the keys left over."""
  names = [name for name in found if name.startswith("anonymous/")]
  names.sort(key=lambda name: (len(name), name))
  rest = [found.pop(name) for name in names]
  table = found.get("bert/embeddings/word_embeddings")
  rows, size = table.shape if table and len(table.shape) == 2 else (0, 0)
  expected = [(rows,), (size, size), (size,), (size,), (size,)]
  is_head = [variable.shape for variable in rest] == expected
  if not is_head or set(_HEAD) & set(found):
    return [variable.key for variable in rest]
  found.update(zip(_HEAD, rest, strict=True))
  return []


def _says_casing(key: str, read: Callable[[str], np.ndarray]) -> bool:
  """Returns whether a variable is the `do_lower_case` of an encoder."""
  name = key.removesuffix(_SUFFIX)
  if not name.endswith(("/do_lower_case", "/Variable:0")):
    return name == "do_lower_case"
  return np.asarray(read(key)).dtype == bool
