"""The files of weights in a folder of transformers, in each of its formats.

All of them give tensors by the names and in the layout of PyTorch's classes.
"""

from collections.abc import Callable, Mapping
import functools
import re
from typing import NamedTuple

import numpy as np
import safetensors

from bert.convert import models, tf_files, torch_files
from bert.data import remote
from bert.weights import checkpoints

# Types of tensors that are read. numpy lacks the rest, such as F8_E4M3, and no
# BERT has them.
_DTYPES = re.compile(r"F64|F32|F16|BF16|[IU](8|16|32|64)|BOOL")


def open_safetensors(
  path: str,
) -> tuple[dict[str, models.StoredVariable], dict[str, str]]:
  """Opens a safetensors file; returns tensors by name, and its metadata."""
  local = remote.local_copy(path)
  with _naming_damage(path), safetensors.safe_open(local, "numpy") as file:
    metadata = file.metadata() or {}
    slices = {name: file.get_slice(name) for name in file.keys()}

  # A slice knows type and shape; its values are read later.
  tensors = {}
  for name, part in slices.items():
    if not _DTYPES.fullmatch(dtype := part.get_dtype()):
      raise ValueError(
        f"{path}: {name!r:.80} holds {dtype}; expected F32, F16 or BF16: "
        "convert it where the model is from"
      )
    load = functools.partial(_load, path, local, name)
    tensors[name] = models.StoredVariable(load, tuple(part.get_shape()))

  # TensorFlow's classes wrote their own names and layout into this format, too.
  if metadata.get("format") == "tf":
    tensors = tf_files.to_torch(path, tensors.items())
  return tensors, metadata


def _naming_damage(path: str):
  # The package raises the last two at dtypes that numpy lacks.
  errors = (safetensors.SafetensorError, AttributeError, TypeError)
  return checkpoints.naming_damage(f"{path}: not readable", *errors)


def _load(path: str, local: str, name: str) -> np.ndarray:
  """Reads a tensor; bfloat16 becomes float32, which changes no value."""
  # The package maps the file. Mapped for one tensor at a time, the pages of the
  # others take no memory beside the model.
  with _naming_damage(path), safetensors.safe_open(local, "numpy") as file:
    value = file.get_tensor(name)
  return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


class Format(NamedTuple):
  """A format: its names of files, and how one is opened."""

  whole: str  # The name of the file that may hold all weights.
  index: str  # The name of the file that lists the others.
  ending: str  # How the names of the others end.
  open_file: Callable[[str], Mapping[str, models.StoredVariable]]
  # From a name in the index to the name that `open_file` gives.
  name_in_index: Callable[[str], str] = str


SAFETENSORS = Format(
  "model.safetensors",
  "model.safetensors.index.json",
  ".safetensors",
  lambda path: open_safetensors(path)[0],
)
# In the order in which they count, where a folder has several.
_FORMATS = (
  SAFETENSORS,
  Format(
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    ".bin",
    torch_files.open_file,
  ),
  Format(
    "tf_model.h5",
    "tf_model.h5.index.json",
    ".h5",
    tf_files.open_file,
    tf_files.name_in_index,
  ),
)
# The formats by the files that mark a folder.
BY_FILE = {
  name: format_
  for format_ in _FORMATS
  for name in (format_.whole, format_.index)
}


def open_shards(
  folder: str, format_: Format
) -> dict[str, models.StoredVariable]:
  """Returns the tensors of a folder by PyTorch's names."""
  tensors = {}
  shards = models.find_shards(
    folder, format_.whole, format_.index, format_.ending
  )
  for path, names in shards.items():
    in_shard = format_.open_file(path)
    expected = map(format_.name_in_index, names)
    if missing := sorted(set(expected) - set(in_shard)):
      raise ValueError(
        f"{path}: lacks {missing[0]!r:.80} ({len(missing)} in all), which "
        f"{format_.index} places there"
      )
    tensors |= in_shard
  return tensors
