"""The weights that transformers' TensorFlow classes wrote, as tf_model.h5.

Versions 2 to 4 had such classes. Their variables are named by scopes, such as
`tf_bert_model/bert/encoder/layer_._0/attention/self/query/kernel:0`. Here they
get the names and the layout that PyTorch's classes have.

HDF5 can lead to other files: by links, by data sets whose numbers are elsewhere
and by virtual ones. None of these is followed: h5py, which Keras brings along,
only says where in this file the numbers of a data set are.
"""

from collections.abc import Iterable, Mapping
import functools
import math
import os
from typing import Any, NamedTuple

import numpy as np

from bert.convert import models
from bert.data import remote
from bert.weights import checkpoints

# From names without the scope of their model to PyTorch's. Of a layer with two
# names, such as `mlm___cls`, the second counts.
_NAMES = (
  (r":\d+$", ""),
  ("(^|/)[^/]*___", r"\1"),
  (r"_\._", "/"),
  ("/", "."),
  (r"\.(kernel|embeddings|gamma)$", ".weight"),
  (r"\.beta$", ".bias"),
)
_torch_name = functools.partial(models.rename, renaming=_NAMES)


def name_in_index(name: str) -> str:
  """Returns PyTorch's name of a variable that the index of shards lists."""
  # The index has the scope of the model, which the shards leave out.
  return _torch_name(name.partition("/")[2])


def to_torch(
  path: str, stored: Iterable[tuple[str, models.StoredVariable]]
) -> dict[str, models.StoredVariable]:
  """Gives variables PyTorch's names and layout, in which kernels are [out, in].

  Args:
    path: of their file, for messages.
    stored: names without the scope of the model, and the variables. A head
      that uses the word embeddings may store a copy of them; a ValueError says
      that two of one name differ.
  """
  tensors = {}
  for name, variable in stored:
    if "/kernel:" in name:
      variable = variable.transposed()
    first = tensors.setdefault(_torch_name(name), variable)
    if first is not variable and not np.array_equal(
      first.load(), variable.load()
    ):
      raise ValueError(f"{path}: holds two {name!r:.200} that differ")
  return tensors


def open_file(path: str) -> dict[str, models.StoredVariable]:
  """Opens tf_model.h5 or a shard; returns its tensors, read when needed.

  A ValueError says that it is damaged, or that its numbers are not in it.
  """
  stored, attributes = open_datasets(path)

  # Keras puts the variables of a layer into a group with the layer's name,
  # before the scope of the model. A shard has the variables alone.
  is_whole = "keras_version" in attributes
  with _naming_damage(path):
    return to_torch(
      path,
      (
        (name.split("/", 2)[2] if is_whole else name, variable)
        for name, variable in stored.items()
      ),
    )


def open_datasets(
  path: str,
) -> tuple[dict[str, models.StoredVariable], dict[str, Any]]:
  """Opens an HDF5 file of Keras 2.

  Returns:
    Its variables by their names there, read when needed; and what Keras states
    about the whole file.

  Raises:
    ValueError: it is damaged, or its numbers are not in it.
  """
  import h5py

  # h5py visits each object once, and follows no link to another file.
  local = remote.local_copy(path)
  places = {}

  def visit(name, item):
    if isinstance(item, h5py.Dataset):
      places[name] = _find_place(name, item)

  with _naming_damage(path):
    with h5py.File(local) as file:
      file.visititems(visit)
      attributes = dict(file.attrs)
    _check_places(places, os.path.getsize(local))
  stored = {name: place.to_variable(local) for name, place in places.items()}
  return stored, attributes


def _naming_damage(path: str):
  errors = (LookupError, TypeError, AttributeError)
  return checkpoints.naming_damage(f"{path}: not readable", *errors)


class _Place(NamedTuple):
  """Where the numbers of a data set are in the file."""

  start: int  # In bytes.
  dtype: np.dtype
  shape: tuple[int, ...]

  @property
  def size(self) -> int:
    """The bytes of all numbers."""
    return math.prod(self.shape) * self.dtype.itemsize

  def to_variable(self, local: str) -> models.StoredVariable:
    """Returns a variable that is read from the file."""
    count = math.prod(self.shape)
    return models.StoredVariable(
      lambda: np.fromfile(local, self.dtype, count, offset=self.start).reshape(
        self.shape
      ),
      self.shape,
    )


def _find_place(name: str, item: Any) -> _Place:
  """Returns where a data set is; a ValueError if its numbers are elsewhere."""
  # Keras compresses nothing. What is compressed could become larger than the
  # file, and what was never written has no place.
  start = item.id.get_offset()
  is_elsewhere = item.chunks or item.is_virtual or item.external
  if is_elsewhere or start is None or item.dtype.kind not in "fiub":
    raise ValueError(
      f"{name!r:.80} is not an array of numbers that stand in this file as "
      "they are, as Keras writes them"
    )
  return _Place(start, item.dtype, item.shape)


def _check_places(places: Mapping[str, _Place], size: int) -> None:
  """Raises a ValueError if a file has not got the numbers of its data sets."""
  for name, place in places.items():
    if place.start + place.size > size:
      raise ValueError(f"the numbers of {name!r:.80} are cut off")
  if sum(place.size for place in places.values()) > 2 * size:
    raise ValueError("its data sets are larger than the file: they overlap")
