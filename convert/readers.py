"""A model of any library by Google's names, and what its readers share.

Reading runs no code: no graph is executed, nothing is unpickled.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
import os
import re
from typing import NamedTuple

import numpy as np

from data import files
import modeling
from weights import checkpoints, fitting

GOOGLE = "a TF1 checkpoint"
# Names of variables of a training, which are no part of a model.
STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|save_counter)\b|\.OPTIMIZER_SLOT"
  r"|(^|/)optimizer/|^keras_api/metrics/|^metrics/|^(train|eval|validation)_"
)
# Kernels [H, N, D] and biases [N, D] of queries, keys and values; [N, D, H] of
# the output.
_BY_HEAD = re.compile(r"/attention/(self/\w+|output/dense)/(kernel|bias)$")
# Fields of a config that shapes do not show.
_UNSEEN_FIELDS = (
  "encoder_type",
  "causal_attention",
  "embedding_layer_norm",
  "hidden_act",
  "layer_norm_eps",
  "num_attention_heads",
)

# Patterns in names, and what to put in their place, one after the other.
Renaming = Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """A model and the files that belong to it, whoever wrote them."""

  source: str  # The prefix of a checkpoint, or another library's folder.
  folders: tuple[str, ...]  # Where the files beside the weights are.
  weights: checkpoints.Weights  # By Google's names, read lazily.
  config: modeling.EncoderConfig | None = None  # None if no file holds one.
  vocab_file: str | None = None
  do_lower_case: bool | None = None  # None if no file says it.
  problem: str | None = None  # The task of its head, if a file says it.
  labels: tuple[str, ...] = ()  # The head's; empty if unknown.
  library: str = GOOGLE  # Whose format it has, in words.
  assumed: tuple[str, ...] = ()  # Fields of the config that no file states.
  unread: tuple[str, ...] = ()  # The library's names of what BERT lacks.
  config_file: str | None = None  # The --bert_config_file that fits, if any.


class StoredVariable(NamedTuple):
  """A variable of another library, and how it becomes Google's."""

  load: Callable[[], np.ndarray]
  shape: tuple[int, ...]  # In Google's checkpoints.
  is_transposed: bool = False  # Else its elements are in Google's order.

  def read(self) -> np.ndarray:
    """Reads it as Google's."""
    value = np.asarray(self.load())
    if self.is_transposed:
      return np.ascontiguousarray(value.T)
    return value.reshape(self.shape)


def make_variable(
  google: str,
  shape: Sequence[int],
  load: Callable[[], np.ndarray],
  is_transposed: bool = False,
) -> StoredVariable:
  """Describes a variable whose library may have an axis for heads.

  Args:
    google: its name in Google's checkpoints.
    shape: in the library.
    is_transposed: whether the library has Google's matrix transposed.
  """
  shape = tuple(shape)
  if is_transposed:
    return StoredVariable(load, shape[::-1], True)
  if match := _BY_HEAD.search(google):
    if match[2] == "bias":
      shape = (math.prod(shape),)
    elif match[1] == "output/dense":
      shape = (math.prod(shape[:-1]), *shape[-1:])
    else:
      shape = (*shape[:1], math.prod(shape[1:]))
  return StoredVariable(load, shape)


def make_weights(
  source: str,
  variables: Mapping[str, StoredVariable],
  unread: Sequence[str] = (),
) -> checkpoints.Weights:
  """Makes weights of variables by Google's names."""

  def read(name):
    try:
      return variables[name].read()
    except checkpoints.DamagedCheckpointError:
      raise
    except checkpoints.READ_ERRORS as error:
      raise checkpoints.DamagedCheckpointError(
        f"{source}: {name} is damaged: {checkpoints.plain_message(error)}"
      ) from error

  shapes = {name: variable.shape for name, variable in variables.items()}
  listed = [show(name) for name in unread if not STATE.search(name)]
  return checkpoints.Weights(source, shapes, read, listed)


def check_config(
  folder: ModelFolder, path: str, config: modeling.EncoderConfig
) -> None:
  """Raises a ValueError if the config in a file is not of a folder's weights.

  Only fields that the shapes do not show are compared.
  """
  known = modeling.ACTIVATIONS
  for name in _UNSEEN_FIELDS:
    found = getattr(config, name, None)
    expected = getattr(folder.config, name, None)
    is_same = known.get(found, found) == known.get(expected, expected)
    if not is_same and name not in folder.assumed:
      cure = f"pass {folder.config_file}" if folder.config_file else None
      raise ValueError(
        f"--bert_config_file={path}: {name} is {found!r}, that of the "
        f"weights is {expected!r}: {cure or 'leave it out'}"
      )


def rename(name: str, renaming: Renaming) -> str:
  """Returns a name in which patterns are replaced, one after the other."""
  for pattern, replacement in renaming:
    name = re.sub(pattern, replacement, name)
  return name


def show(name: str) -> str:
  """Returns a name as a line of text can hold it."""
  return name if name.isprintable() else repr(name)


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
    found = fitting.listing(f"+ {name}" for name in names)
    raise ValueError(f"{source}: its encoder is not a BERT's: {found}")
