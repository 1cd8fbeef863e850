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
_FIELDS = {"data_offsets", "dtype", "shape"}


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
      size = file.tell()
      file.seek(0)
      header = self._read_header(file, size)
    self._start = 8 + len(header)
    fields = self._parse(header)
    self.metadata = self._check_metadata(fields.pop(_METADATA, {}))
    self.entries = {name: self._entry(name, fields[name]) for name in fields}
    self._check_places(size - self._start)

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

  def _read_header(self, file, size: int) -> bytes:
    length = int.from_bytes(file.read(8), "little")
    if size < 8:
      raise self._error(f"it has {size} bytes")
    if length > _LARGEST_HEADER:
      raise self._error(
        f"its header is of {length:,} bytes; {_LARGEST_HEADER:,} are allowed"
      )
    if length > size - 8:
      raise self._error(
        f"cut short: its header is of {length:,} bytes, the file of {size:,}"
      )
    return file.read(length)

  def _parse(self, header: bytes) -> dict[str, Any]:
    try:
      fields = json.loads(
        header.decode(), object_pairs_hook=_without_duplicates
      )
    except RecursionError:
      raise self._error("the header is nested too deeply") from None
    except ValueError as error:  # Not UTF-8, not JSON, a name given twice.
      raise self._error(f"the header is not JSON: {error}") from None
    if not isinstance(fields, dict):
      raise self._error("the header is not a JSON object")
    return fields

  def _check_metadata(self, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(
      isinstance(value, str) for value in metadata.values()
    ):
      raise self._error(f"{_METADATA} is not an object of texts")
    return metadata

  def _entry(self, name: str, fields: Any) -> Entry:
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
      raise self._error(
        f"{name!r:.80} has not just {', '.join(sorted(_FIELDS))}"
      )
    dtype, shape = fields["dtype"], fields["shape"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
      raise self._error(
        f"{name!r:.80} has the dtype {dtype!r:.80}; known: {', '.join(_DTYPES)}"
      )
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
      raise self._error(f"{name!r:.80} has the shape {shape!r:.80}")
    offsets = fields["data_offsets"]
    if not _are_sizes(offsets) or len(offsets) != 2:
      raise self._error(f"{name!r:.80} has the data_offsets {offsets!r:.80}")
    length = math.prod(shape) * _DTYPES[dtype].itemsize
    if offsets[1] - offsets[0] != length:
      raise self._error(
        f"{name!r:.80} takes {offsets[1] - offsets[0]:,} bytes, {dtype} "
        f"{shape!r:.80} needs {length:,}"
      )
    return Entry(dtype, tuple(shape), *offsets)

  def _check_places(self, size: int) -> None:
    """Checks that the tensors fill the file without overlaps and gaps."""
    end = 0
    order = sorted(self.entries.items(), key=lambda e: (e[1].begin, e[1].end))
    for name, entry in order:
      if entry.begin != end:
        what = "overlaps another" if entry.begin < end else "follows a gap"
        raise self._error(f"{name!r:.80} {what}, at byte {entry.begin:,}")
      end = entry.end
    if end > size:
      raise self._error(
        f"cut short: it holds {size:,} bytes of the {end:,} of its tensors"
      )
    if end < size:
      raise self._error(f"{size - end:,} bytes follow its last tensor")

  def _error(self, message: str) -> ValueError:
    return ValueError(f"{self.path}: not a whole safetensors file: {message}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  fields = dict(pairs)
  if len(fields) < len(pairs):
    seen = set()
    twice = next(name for name, _ in pairs if name in seen or seen.add(name))
    raise ValueError(f"{twice!r:.80} is given twice")
  return fields


def _are_sizes(values: Any) -> bool:
  # bool is an int to Python; nothing a file can hold has 2**63 bytes.
  return isinstance(values, list) and all(
    type(value) is int and 0 <= value < 1 << 63 for value in values
  )


def write(
  path: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
  """Writes tensors whole or not at all.

  Args:
    path: local or remote.
    tensors: of the dtypes of the format, bfloat16 excepted, by name.
    metadata: texts for the header, by name.

  Raises:
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
    header[name] = {
      "dtype": _NAMES[tensor.dtype.newbyteorder("<")],
      "shape": list(tensor.shape),
      "data_offsets": [begin, end],
    }
    begin = end
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with files.replace_on_success(path) as temporary:
    with files.open_for_writing(temporary) as output:
      output.write(len(text).to_bytes(8, "little") + text)
      for name in names:
        little = tensors[name].dtype.newbyteorder("<")
        output.write(tensors[name].astype(little, copy=False).tobytes())
