"""The base of every reader of another library's weights, by Google's names.

A reader has the two methods of TensorFlow's checkpoint readers, so that
whatever loads a checkpoint loads any of them. Reading runs no code: no graph is
executed, nothing is unpickled.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math
import os
import re
from typing import NamedTuple

import numpy as np

from data import files
from encoders import variant
import modeling

# Part of a training, not of a model; said as a number, not by name.
STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|save_counter)\b|\.OPTIMIZER_SLOT"
  r"|(^|/)optimizer/|^keras_api/metrics/|^metrics/|^(train|eval|validation)_"
)
# The variables whose shapes show the fields of a config, and which axis does.
_SHOWN_BY_SHAPE = (
  ("vocab_size", "bert/embeddings/word_embeddings", 0),
  ("max_position_embeddings", "bert/embeddings/position_embeddings", 0),
  ("type_vocab_size", "bert/embeddings/token_type_embeddings", 0),
  ("hidden_size", "bert/encoder/layer_0/output/dense/kernel", 1),
  ("intermediate_size", "bert/encoder/layer_0/output/dense/kernel", 0),
  ("embedding_size", "bert/embeddings/word_embeddings", 1),
)
# Kernels [H, N, D] and biases [N, D] of queries, keys and values; [N, D, H] of
# the output.
_BY_HEAD = re.compile(r"/attention/(self/\w+|output/dense)/(kernel|bias)$")

# Patterns in names, and what to put in their place, one after the other.
Renaming = Sequence[tuple[str, str]]


class Place(NamedTuple):
  """Where a variable is, and how it becomes Google's."""

  read: Callable[[], np.ndarray]
  shape: tuple[int, ...]  # In Google's checkpoints.
  is_transposed: bool = False  # Else its elements are in Google's order.


@dataclasses.dataclass
class Reader:
  """The variables of another library's checkpoint."""

  library: str  # Whose checkpoint it is, in words.
  places: dict[str, Place]  # By Google's names.
  # The architecture; None if only a bert_config.json can tell it.
  config: modeling.BertConfig | None = None
  assumed: Sequence[str] = ()  # Fields of it that the source does not state.
  do_lower_case: bool | None = None  # What the source says of it, if anything.
  unread: Sequence[str] = ()  # Its names of what has no place in a BERT.
  config_file: str | None = None  # What --bert_config_file may be, if anything.

  def __post_init__(self):
    self.unread = [_show(name) for name in self.unread]

  def get_variable_to_shape_map(self) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each variable, as Google's."""
    return {name: place.shape for name, place in self.places.items()}

  def get_tensor(self, name: str) -> np.ndarray:
    """Reads a variable."""
    place = self.places[name]
    value = np.asarray(place.read())
    if place.is_transposed:
      return np.ascontiguousarray(value.T)
    return value.reshape(place.shape)

  def check_config(self, path: str, config: modeling.EncoderConfig) -> None:
    """Raises a ValueError if the config in a file is not of these weights.

    The caller compares what the shapes show.
    """
    names = {"num_attention_heads", "hidden_act"} - set(self.assumed)
    for name in ("encoder_type", *sorted(names | variant.KEYS)):
      found, expected = getattr(config, name), getattr(self.config, name)
      known = modeling.ACTIVATIONS
      if known.get(found, found) != known.get(expected, expected):
        cure = self.config_file and f"pass {self.config_file}"
        raise ValueError(
          f"--bert_config_file={path}: {name} is {found!r}, that of the "
          f"weights is {expected!r}: {cure or 'leave it out'}"
        )


def make_place(
  google: str,
  shape: Sequence[int],
  read: Callable[[], np.ndarray],
  is_transposed: bool = False,
) -> Place:
  """Returns the place of a variable whose library may have an axis for heads.

  Args:
    google: its name in Google's checkpoints.
    shape: in the library.
    is_transposed: whether the library has Google's matrix transposed.
  """
  shape = tuple(shape)
  if is_transposed:
    return Place(read, shape[::-1], True)
  if match := _BY_HEAD.search(google):
    if match[2] == "bias":
      shape = (math.prod(shape),)
    elif match[1] == "output/dense":
      shape = (math.prod(shape[:-1]), *shape[-1:])
    else:
      shape = (*shape[:1], math.prod(shape[1:]))
  return Place(read, shape)


def rename(name: str, renaming: Renaming) -> str:
  """Returns a name in which patterns are replaced, one after the other."""
  for pattern, replacement in renaming:
    name = re.sub(pattern, replacement, name)
  return name


def _show(name: str) -> str:
  """Returns a name as a line of text can hold it."""
  return name if name.isprintable() else repr(name)


def listing(faults: Iterable[str], most: int = 10) -> str:
  """Returns the first faults as a line of text."""
  shown = [f"{_show(fault):.300}" for fault in sorted(faults)]
  more = [f"and {len(shown) - most} more"] * (len(shown) > most)
  return "; ".join(shown[:most] + more)


def find_shards(folder: str, index: str, ending: str) -> dict[str, set[str]]:
  """Returns the names in each file with a folder's weights, by path.

  Args:
    index: the name of a JSON file with a weight_map.

  Raises:
    ValueError: it is damaged, or a file is missing.
  """
  index = os.path.join(folder, index)
  places = files.read_json(index).get("weight_map")
  if not isinstance(places, dict) or not places:
    raise ValueError(f"{index}: has no weight_map")
  shards: dict[str, set[str]] = {}
  for tensor, names in places.items():
    for name in map(str, names if isinstance(names, list) else [names]):
      path = os.path.join(folder, name)
      # A name such as ../../x would lead out of the folder.
      if not re.fullmatch(rf"[\w.-]+{re.escape(ending)}", name):
        raise ValueError(f"{index}: {name!r:.80} is not the name of a shard")
      if path not in shards and not files.exists(path):
        raise ValueError(f"{index}: {name} is missing in the folder")
      shards.setdefault(path, set()).add(tensor)
  return shards


def fields_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
  """Returns the fields of a config that shapes show, by Google's names."""
  layers = map(re.compile(r"bert/encoder/layer_\d+/").match, shapes)
  fields = {}
  for field, name, axis in _SHOWN_BY_SHAPE:
    if len(shape := shapes.get(name, ())) > axis:
      fields[field] = int(shape[axis])
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)
  fields["num_hidden_layers"] = len({match[0] for match in layers if match})
  return fields


def infer_config(
  source: str, shapes: Mapping[str, Sequence[int]], heads: int
) -> modeling.BertConfig:
  """Infers a config from shapes; other fields have defaults.

  Args:
    source: for errors.
    shapes: of a whole BERT, by Google's names.

  Raises:
    ValueError: a variable is missing, or shapes do not fit a BERT.
  """
  fields = fields_of(shapes)
  for field, name, _ in _SHOWN_BY_SHAPE[:-1]:
    if field not in fields:
      raise ValueError(
        f"{source}: not the weights of a BERT: {name} is missing or has "
        "another shape"
      )
  try:
    return modeling.BertConfig(**fields, num_attention_heads=heads)
  except ValueError as error:
    raise ValueError(f"{source}: not the weights of a BERT: {error}") from None


def check_layers(source: str, config: modeling.BertConfig, stored: int) -> None:
  """Refuses a config that has more layers than there are variables."""
  if config.num_hidden_layers > stored:  # Listing them may take all memory.
    raise ValueError(
      f"{source}: num_hidden_layers is {config.num_hidden_layers} in its "
      f"config, the weights are {stored}"
    )


def refuse_unknown(source: str, names: Sequence[str]) -> None:
  """Raises a ValueError that names the variables that BERT lacks, if any."""
  if names:
    found = listing(f"+ {name}" for name in names)
    raise ValueError(f"{source}: its encoder is not a BERT's: {found}")
