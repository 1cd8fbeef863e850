"""Reads and writes tensors in safetensors files.

The format (https://github.com/huggingface/safetensors, "Format") is the length
of the header in 8 bytes, a JSON header, and the tensors one after the other.
Files may be untrusted: every header field is validated before use.

The package safetensors cannot replace this: it opens local files only, and
folders may be remote (gs://...), where one tensor is read at a time; and its
numpy interface has no bfloat16.
"""

from collections.abc import Mapping
import json
import math
import os
from typing import Any, NamedTuple

import numpy as np

from data import atomic
from data import files

# By their names in a header. numpy has no bfloat16: it is read as float32.
_DTYPES = {
  "F64": np.dtype("<f8"),
  "F32": np.dtype("<f4"),
  "F16": np.dtype("<f2"),
  "BF16": np.dtype("<u2"),
  "I64": np.dtype("<i8"),
  "I32": np.dtype("<i4"),
  "I16": np.dtype("<i2"),
  "I8": np.dtype("i1"),
  "U8": np.dtype("u1"),
  "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items() if name != "BF16"}
_LARGEST_HEADER = 100_000_000  # Bytes; the limit of the format.
_MOST_AXES = 32  # What every version of numpy can hold.
_METADATA = "__metadata__"


class Entry(NamedTuple):
  """The header's entry of a tensor."""

  dtype: str  # A key of _DTYPES.
  shape: tuple[int, ...]
  begin: int  # Its first byte, from the end of the header on.
  end: int  # The byte after its last.


class SafetensorsFile:
  """A file of named tensors, read one at a time.

  Args:
    path: local or remote.

  Attributes:
    entries: of the header, by name of the tensor.
    metadata: the other texts of the header, by name.

  Raises:
    ValueError: it is not a safetensors file, or damaged.
    OSError: it cannot be read.
  """

  def __init__(self, path: str):
    self.path = path
    with files.open_bytes(path) as file:
      file.seek(0, os.SEEK_END)
      size = file.tell()  # A remote file's `seek` returns nothing.
      file.seek(0)
      length = int.from_bytes(file.read(8), "little")
      self._start = 8 + length
      if length > _LARGEST_HEADER or self._start > size:
        raise self._error(
          f"cut short: {size:,} bytes, of which {length:,} are its header"
        )
      header = file.read(length)
    try:
      fields = json.loads(header.decode(), object_pairs_hook=_check_names)
      self.metadata = _check_metadata(fields)
      self.entries = {name: _read_entry(name, fields[name]) for name in fields}
      _check_places(self.entries, size - self._start)
    except RecursionError:
      raise self._error("the header is nested too deeply") from None
    except ValueError as error:  # Not UTF-8 or JSON, too.
      raise self._error(f"the header: {error}") from None

  def read(self, name: str) -> np.ndarray:
    """Reads a tensor; bfloat16 becomes float32, which changes no value.

    Raises:
      ValueError: the file has become shorter since it was opened.
    """
    entry = self.entries[name]
    with files.open_bytes(self.path) as file:
      file.seek(self._start + entry.begin)
      content = file.read(entry.end - entry.begin)
    if len(content) != entry.end - entry.begin:
      raise self._error("cut short")
    values = np.frombuffer(content, _DTYPES[entry.dtype])
    if entry.dtype == "BF16":
      # It is the upper half of a float32.
      values = (values.astype("<u4") << 16).view("<f4")
    return values.reshape(entry.shape)

  def _error(self, message: str) -> ValueError:
    return ValueError(f"{self.path}: not a whole safetensors file: {message}")


def _check_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  """Makes a JSON object, unless a name is given twice."""
  fields = dict(pairs)
  if len(fields) < len(pairs):
    seen = set()
    twice = next(name for name, _ in pairs if name in seen or seen.add(name))
    raise ValueError(f"{twice!r:.80} is given twice")
  return fields


def _check_metadata(fields: Any) -> dict[str, str]:
  """Takes the texts out of a header."""
  if not isinstance(fields, dict):
    raise ValueError("not a JSON object")
  metadata = fields.pop(_METADATA, {})
  if not isinstance(metadata, dict) or not all(
    isinstance(value, str) for value in metadata.values()
  ):
    raise ValueError(f"{_METADATA} is not an object of texts")
  return metadata


def _read_entry(name: str, fields: Any) -> Entry:
  match fields:
    case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [a, b]}:
      if (
        len(fields) == 3
        and dtype in _DTYPES
        and len(shape) <= _MOST_AXES
        and _are_sizes([*shape, a, b])
        and b - a == math.prod(shape) * _DTYPES[dtype].itemsize
      ):
        return Entry(dtype, tuple(shape), a, b)
  raise ValueError(
    f"{name!r:.80} is {fields!r:.200}; expected just shape, data_offsets and "
    f"dtype that fit each other; known dtypes: {', '.join(_DTYPES)}"
  )


def _check_places(entries: Mapping[str, Entry], size: int) -> None:
  """Checks that the tensors fill the file without overlaps and gaps."""
  end = 0
  order = sorted(entries.items(), key=lambda e: (e[1].begin, e[1].end))
  for name, entry in order:
    if entry.begin != end:
      raise ValueError(
        f"{name!r:.80} begins at byte {entry.begin:,}; expected {end:,}"
      )
    end = entry.end
  if end != size:
    raise ValueError(
      f"its tensors have {end:,} bytes, but {size:,} follow it: cut short or "
      "too long"
    )


def _are_sizes(values: list[Any]) -> bool:
  # bool is an int to Python; nothing a file can hold has 2**63 bytes.
  return all(type(value) is int and 0 <= value < 1 << 63 for value in values)


def write(
  path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
  """Writes tensors whole or not at all.

  Args:
    path: local or remote.
    tensors: of the dtypes of the format, bfloat16 excepted, by name.
    metadata: texts for the header, by name.

  Raises:
    ValueError: a tensor is of another dtype.
    OSError: it cannot be written.
  """
  # Larger elements first: every tensor begins at a multiple of its element's
  # size, as long as the header ends at a multiple of 8.
  names = sorted(tensors, key=lambda n: (-tensors[n].dtype.itemsize, n))
  header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
  begin = 0
  for name in names:
    tensor = tensors[name]
    end = begin + tensor.nbytes
    dtype = _NAMES.get(tensor.dtype.newbyteorder("<"))
    if not dtype:
      raise ValueError(
        f"{name!r:.80} is of {tensor.dtype}, which safetensors files do not "
        "hold: pass the --head to keep; others are left out"
      )
    header[name] = {
      "dtype": dtype,
      "shape": list(tensor.shape),
      "data_offsets": [begin, end],
    }
    begin = end
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with atomic.replace_on_success(path) as temporary:
    with files.open_for_writing(temporary) as output:
      output.write(len(text).to_bytes(8, "little") + text)
      for name in names:
        little = tensors[name].dtype.newbyteorder("<")
        output.write(tensors[name].astype(little, copy=False).tobytes())
