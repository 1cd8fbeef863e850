"""Encoders in SavedModels (TF-Hub, Kaggle) and Model Garden's checkpoints.

Both are object-based checkpoints of TensorFlow: the key of a variable is its
path among the objects. The graph of the objects, which is stored beside the
values, also has its `full_name`, which Model Garden's layers gave it and every
export kept: `transformer/layer_0/self_attention/query/kernel`. Full names are
tried first, keys where a full name matches nothing.
"""

import collections
from collections.abc import Iterable, Iterator
import functools
import math
import os
import re

from google.protobuf import message
import numpy as np
from tensorflow.core.protobuf import trackable_object_graph_pb2

from bert import modeling
from bert.convert import models
from bert.data import files
from bert.weights import checkpoints, fitting

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
# In 2019 it was bert_model/encoder/layer_0, with embedding_postprocessor.
_LAYER = r"/(?:transformer/layer_|encoder/layer_|_transformer_layers/)(\d+)/"
_POOLER = "bert/pooler/dense/"
# Trained with the next sentence, this one is what Model Garden hands on.
_NEXT_POOLER = "next_sentence/pooler_dense/"
# From their names, with a slash before, to Google's.
_NAMES = (
  (f"^.*{_LAYER}", r"bert/encoder/layer_\1/"),
  (r"/self_attention/(query|key|value)/", r"/attention/self/\1/"),
  (r"/_attention_layer/_(query|key|value)_dense/", r"/attention/self/\1/"),
  ("/self_attention(/attention)?_output/", "/attention/output/dense/"),
  ("/_attention(_layer/)?_output_dense/", "/attention/output/dense/"),
  ("/(self)?_attention_layer_norm/", "/attention/output/LayerNorm/"),
  (r"(layer_\d+)/_?intermediate(_dense)?/", r"\1/intermediate/dense/"),
  (r"(layer_\d+)/_?output(_dense)?/", r"\1/output/dense/"),
  (r"(layer_\d+)/_?output_layer_norm/", r"\1/output/LayerNorm/"),
  ("^.*/word_embeddings/embeddings$", "bert/embeddings/word_embeddings"),
  ("^.*/_embedding_layer/embeddings$", "bert/embeddings/word_embeddings"),
  ("^.*/masked_lm/embedding_table$", "bert/embeddings/word_embeddings"),
  (r"^.*/_?(position|type)_embeddings?(_layer)?/\w+$", r"\1_embeddings"),
  ("^.*/embedding_postprocessor/(position|type)_emb", r"\1_emb"),
  ("^position_embeddings$", "bert/embeddings/position_embeddings"),
  ("^type_embeddings$", "bert/embeddings/token_type_embeddings"),
  (
    "^.*/(embeddings|embedding_postprocessor)/layer_norm/",
    "bert/embeddings/LayerNorm/",
  ),
  ("^.*/_embedding_norm_layer/", "bert/embeddings/LayerNorm/"),
  ("^.*/_?embedding_projection/", "bert/embeddings/project/"),
  ("^.*/(pooler_transform|_pooler_layer)/", _POOLER),
  ("^.*/next_sentence[./]pooler_dense/", _NEXT_POOLER),
  ("^.*/next_sentence/logits/kernel$", "cls/seq_relationship/output_weights"),
  ("^.*/next_sentence/logits/bias$", "cls/seq_relationship/output_bias"),
  ("^.*/(masked_lm|cls/predictions)/", "cls/predictions/"),
  ("^(cls/predictions)/dense/", r"\1/transform/dense/"),
  ("^(cls/predictions)/layer_norm/", r"\1/transform/LayerNorm/"),
  ("^(cls/predictions)/(output_bias/)?bias$", r"\1/output_bias"),
  (r"^.*/mlm/(trainable_)?variables/(\d+)$", r"anonymous/\2"),
)
_KNOWN = set(
  models.variables(
    modeling.BertConfig(2, 2, 1, 1, embedding_size=1), "pretraining"
  )
) | {f"{_NEXT_POOLER}kernel", f"{_NEXT_POOLER}bias", "anonymous/0"}
# A masked-LM head without names, as a Keras layer lists its variables.
_HEAD = (
  "cls/predictions/output_bias",
  "cls/predictions/transform/dense/kernel",
  "cls/predictions/transform/dense/bias",
  "cls/predictions/transform/LayerNorm/gamma",
  "cls/predictions/transform/LayerNorm/beta",
)
_NUMBERED = re.compile(r"^(.*/layer_with_weights-)(\d+)(/.*)$")
# Layers before the Transformer's, in the order of their numbers.
_FIRST_LAYERS = (
  "word_embeddings",
  "position_embedding",
  "type_embeddings",
  "embeddings/layer_norm",
  "embedding_projection",
)


def open_model(weights: checkpoints.Weights) -> models.ModelFolder:
  """Opens an object-based checkpoint: its weights, under Google's names."""
  prefix = weights.source
  keys, unread = _match_keys(weights)
  unread += _name_head(keys, weights.shapes)
  config = _infer_config(weights, keys)

  # Model Garden keeps the heads' axis apart, [H, N, D], where Google has one
  # axis of both. Any other shape stays as it is.
  variables = {}
  expected = models.variables(config)
  for name, key in keys.items():
    shape = weights.shapes[key]
    stored = models.StoredVariable(functools.partial(weights.read, key), shape)
    if name == "cls/seq_relationship/output_weights":
      stored = stored.transposed()
    elif expected.get(name) in _without_heads(shape):
      stored = stored._replace(shape=expected[name])
    variables[name] = stored

  # The `do_lower_case` of an encoder, a truth value without a fixed name.
  scalars = [key for key in unread if weights.shapes[key] == ()]
  lower = [k for k in scalars if np.asarray(weights.read(k)).dtype == bool]
  casing = bool(np.all(weights.read(lower[0]))) if len(lower) == 1 else None
  unread = [key.removesuffix(_SUFFIX) for key in unread if key not in lower]

  # A SavedModel has its weights in variables/, and the vocabulary in assets/.
  folders = (os.path.dirname(prefix) or ".",)
  library = "Model Garden"
  for parent in files.above(folders[0], "variables"):
    if files.exists(os.path.join(parent, "saved_model.pb")):
      folders = (os.path.join(parent, "assets"), parent)
      library = "a SavedModel"
  return models.ModelFolder(
    models.make_weights(prefix, variables, unread),
    folders,
    config,
    do_lower_case=casing,
    library=library,
    assumed=("hidden_act",),
  )


def _match_keys(
  weights: checkpoints.Weights,
) -> tuple[dict[str, str], list[str]]:
  """Returns the keys by Google's names, and those that stay unread."""
  keys: dict[str, str] = {}
  unread = []
  unknown = []  # In a layer of the encoder: weights that would be missed.
  for key, names in _list_names(weights):
    # A variable has the name that Keras gave it and the path of the attributes
    # that hold it. Some savers leave one of them out, or number it.
    google = next(filter(None, map(_match, names)), None)
    if fitting.is_foreign_state(key):
      unread.append(key)
    elif google in keys:
      raise ValueError(
        f"{weights.source}: {keys[google]!r:.200} and {key!r:.200} are both "
        f"{google}: two models are in it; save one"
      )
    elif google:
      keys[google] = key

    # It has no name of Google's.
    elif any(re.search(_LAYER, name) for name in names):
      unknown.append(key)
    else:
      unread.append(key)
  models.refuse_unknown(weights.source, unknown)

  # The pooler of the next sentence takes the place of the encoder's.
  for leaf in ("bias", "kernel"):
    if _NEXT_POOLER + leaf in keys:
      unread += filter(None, [keys.get(_POOLER + leaf)])
      keys[_POOLER + leaf] = keys.pop(_NEXT_POOLER + leaf)
  return keys, unread


def _infer_config(
  weights: checkpoints.Weights, keys: dict[str, str]
) -> modeling.BertConfig:
  """Infers a config from shapes; other fields have defaults."""
  shapes = {name: weights.shapes[key] for name, key in keys.items()}
  query = shapes.get("bert/encoder/layer_0/attention/self/query/kernel", ())
  if len(query) != 3:
    raise ValueError(
      f"{weights.source}: holds no BERT by Model Garden's names, but "
      f"{sorted(weights.shapes)[:5]!r:.300}"
    )
  fields = {**fitting.fields_of(shapes), "num_attention_heads": query[1]}
  try:
    return modeling.BertConfig.from_dict(fields)
  except ValueError as error:
    raise ValueError(
      f"{weights.source}: not the weights of a BERT: {error}"
    ) from None


def _without_heads(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
  """Returns what a shape may be after N and D became one axis.

  Biases are [N, D], the kernel of the output [N, D, H], others [H, N, D].
  """
  first, last = math.prod(shape[:-1]), math.prod(shape[1:])
  return [(math.prod(shape),), (*shape[:1], last), (first, *shape[-1:])]


def _list_names(weights) -> Iterator[tuple[str, tuple[str, str]]]:
  """Yields keys with the full name, and with what the key amounts to."""
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  try:
    graph.ParseFromString(weights.read(GRAPH))
  except (message.DecodeError, TypeError) as error:
    raise ValueError(
      f"{weights.source}: its object graph is damaged: {error}"
    ) from None

  full_names = {
    attribute.checkpoint_key: attribute.full_name
    for node in graph.nodes
    for attribute in node.attributes
  }
  # In a key, `.S` is a slash, `..` a dot.
  paths = {}
  for key in sorted(set(weights.shapes) - {GRAPH}):
    path = key.removesuffix(_SUFFIX).replace(".S", "/").replace("..", ".")
    paths[key] = "/" + path.removesuffix(":0")

  numbered = _name_layers(paths.values())
  for key, path in paths.items():
    yield key, (f"/{full_names.get(key, '')}", numbered.get(path, path))


def _name_layers(paths: Iterable[str]) -> dict[str, str]:
  """Returns Model Garden's names of layers that are only numbered.

  Numbers are in the order of construction: `_FIRST_LAYERS`, the last only if
  there is a projection, the Transformer's layers, the pooler.
  """
  # The numbers of the Transformer's layers, by the model that holds them.
  matches = list(filter(None, map(_NUMBERED.match, paths)))
  layers = collections.defaultdict(list)
  for match in matches:
    if match[3].startswith("/_attention_layer/"):
      layers[match[1]].append(int(match[2]))

  # Four layers come before them, five with a projection. Any other number is
  # of a model that is built in another way, which stays without names.
  names = {}
  for match in matches:
    number = int(match[2])
    numbers = layers[match[1]]
    first = min(numbers, default=0)
    last = max(numbers, default=0)
    if first not in (4, 5) or number > last + 1:
      continue
    if number < first:
      name = _FIRST_LAYERS[number]
    elif number <= last:
      name = f"transformer/layer_{number - first}"
    else:
      name = "pooler_transform"
    names[match[0]] = f"/{name}{match[3]}"
  return names


def _match(name: str) -> str | None:
  """Returns Google's name of a variable; None if BERT has no such one."""
  google = models.rename(name, _NAMES)
  pattern = re.sub(r"(layer_|anonymous/)\d+", r"\g<1>0", google)
  return google if pattern in _KNOWN else None


def _name_head(keys, shapes) -> list[str]:
  """Names a masked-LM head without names; returns the keys left over."""
  names = [name for name in keys if name.startswith("anonymous/")]
  names.sort(key=lambda name: (len(name), name))  # 2 comes before 10.
  rest = [keys.pop(name) for name in names]
  table = keys.get("bert/embeddings/word_embeddings")
  if not table or len(shapes[table]) != 2:
    return rest

  # Shapes must be the head's, all of them: the order alone would be a guess.
  rows, size = shapes[table]
  expected = [(rows,), (size, size), (size,), (size,), (size,)]
  if [shapes[key] for key in rest] != expected or set(_HEAD) & set(keys):
    return rest
  keys.update(zip(_HEAD, rest, strict=True))
  return []
