"""The base of every reader of another library's weights, by Google's names.

A reader has the two methods of TensorFlow's checkpoint readers, so that
whatever loads a checkpoint loads any of them. Reading runs no code: no graph is
executed, nothing is unpickled.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import re
from typing import Any, NamedTuple

import numpy as np

import modeling

# Part of a training, not of a model; said as a number, not by name.
STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|save_counter)\b|\.OPTIMIZER_SLOT"
  r"|(^|/)optimizer/|^keras_api/metrics/|^metrics/|^(train|eval|validation)_"
)


class Place(NamedTuple):
  """Where a variable is, and how it becomes Google's."""

  read: Callable[[], np.ndarray]
  shape: tuple[int, ...]  # In Google's checkpoints.
  is_transposed: bool = False  # Else its elements are in Google's order.


class Reader:
  """The variables of another library's checkpoint.

  Attributes:
    library: whose checkpoint it is, in words.
    places: by Google's names.
    config: the architecture; None if only a bert_config.json can tell it.
    assumed: fields of the config that the source does not state.
    do_lower_case: what the source says of it; None if nothing.
    unread: its names of what has no place in a BERT.
    config_file: what --bert_config_file may be; None if there is no such file.
  """

  config_file: str | None = None

  def __init__(
    self,
    library: str,
    places: Mapping[str, Place],
    config: modeling.BertConfig | None = None,
    assumed: Sequence[str] = (),
    do_lower_case: bool | None = None,
    unread: Sequence[str] = (),
  ):
    self.library = library
    self.places = dict(places)
    self.config = config
    self.assumed = tuple(assumed)
    self.do_lower_case = do_lower_case
    self.unread = [show(name) for name in unread]

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


def show(name: str) -> str:
  """Returns a name as a line of text can hold it."""
  return name if name.isprintable() else repr(name)


def flatten(name: str, shape: Sequence[int]) -> tuple[int, ...]:
  """Returns the shape without an axis for heads, as in Google's checkpoints.

  Keras has kernels [H, N, D] and biases [N, D] of queries, keys and values, and
  [N, D, H] of the output.
  """
  shape = tuple(shape)
  if "/attention/self/" in name and len(shape) > 1:
    is_kernel = name.endswith("/kernel")
    return (
      (*shape[:1], math.prod(shape[1:])) if is_kernel else (math.prod(shape),)
    )
  if name.endswith("/attention/output/dense/kernel") and len(shape) == 3:
    return (math.prod(shape[:2]), shape[2])
  return shape


def infer_config(
  source: str, shapes: Mapping[str, Sequence[int]], heads: int
) -> modeling.BertConfig:
  """Infers a config from shapes; other fields have defaults.

  Args:
    source: for errors.
    shapes: of a whole BERT, by Google's names.
    heads: the number of attention heads.

  Raises:
    ValueError: a variable is missing, or shapes do not fit a BERT.
  """
  fields: dict[str, Any] = {"num_attention_heads": heads}
  layers = {
    match[1]
    for name in shapes
    if (match := re.match(r"bert/encoder/layer_(\d+)/", name))
  }
  fields["num_hidden_layers"] = len(layers)
  try:
    for field, name, axis in (
      ("vocab_size", "embeddings/word_embeddings", 0),
      ("max_position_embeddings", "embeddings/position_embeddings", 0),
      ("type_vocab_size", "embeddings/token_type_embeddings", 0),
      ("hidden_size", "encoder/layer_0/output/dense/kernel", 1),
      ("intermediate_size", "encoder/layer_0/output/dense/kernel", 0),
      ("embedding_size", "embeddings/word_embeddings", 1),
    ):
      fields[field] = int(shapes[f"bert/{name}"][axis])
  except (KeyError, IndexError):
    raise ValueError(
      f"{source}: not the weights of a BERT: bert/{name} is missing or has "
      "another shape"
    ) from None
  if fields["embedding_size"] == fields["hidden_size"]:
    del fields["embedding_size"]
  try:
    return modeling.BertConfig(**fields)
  except ValueError as error:
    raise ValueError(f"{source}: not the weights of a BERT: {error}") from None


def refuse_unknown(source: str, names: Sequence[str]) -> None:
  """Refuses an encoder with variables that BERT lacks.

  Raises:
    ValueError: there are such names.
  """
  if names:
    more = f"; and {len(names) - 10} more" if names[10:] else ""
    listing = "; ".join(f"+ {show(name):.80}" for name in sorted(names)[:10])
    raise ValueError(f"{source}: its encoder is not a BERT's: {listing}{more}")
