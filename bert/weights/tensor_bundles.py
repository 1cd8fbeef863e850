"""Reads checkpoints of TensorFlow's V2 format without TensorFlow's reader.

That reader believes an index whose checksums are right, and ends the process at
shapes, dtypes and parts that cannot be. An index is a table of LevelDB's
(https://github.com/google/leveldb/blob/main/doc/table_format.md): blocks of
sorted keys and values, a block that says where those are, a footer that says
where that is. The values are the messages of TensorFlow's tensor_bundle.proto.
"""

from collections.abc import Iterator
import itertools
import math
import os

from google.protobuf import message
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert.data import files, record_writer

_FOOTER = 48  # Bytes: two handles, zeros, the magic number.
_MAGIC = bytes.fromhex("57fb808b247547db")
_LONGEST_KEY = 4096  # Bytes; keys share beginnings, so they cost a file little.
_Entry = tensor_bundle_pb2.BundleEntryProto


class TensorBundle:
  """A checkpoint, with two methods of TensorFlow's readers.

  Both raise a ValueError at damaged data, an OSError at unreadable files.
  """

  def __init__(self, prefix: str):
    with files.open_bytes(f"{prefix}.index") as file:
      rows = _read_rows(file.read())
    key, value = next(rows, (b"?", b""))
    try:
      header = tensor_bundle_pb2.BundleHeaderProto.FromString(value)
      # Keys of parts begin with a zero and are no text.
      self._entries = {
        key.decode("utf-8" if key[0] else "latin-1"): _Entry.FromString(row)
        for key, row in rows
      }
      for name, entry in self._entries.items():
        _check_entry(name, entry)
    except (message.DecodeError, TypeError) as error:  # No such dtype.
      raise ValueError(f"the index is damaged: {error}") from None
    _require(not key and not header.endianness, "the index has a wrong header")
    self._prefix, self._num_shards = prefix, header.num_shards

  def get_variable_to_shape_map(self) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each variable."""
    return {n: _shape(e) for n, e in self._entries.items() if n[0] != "\0"}

  def get_tensor(self, name: str) -> np.ndarray:
    """Reads a variable; text as bytes, in an array of objects."""
    entry = self._entries[name]
    if not entry.slices:
      return self._read(entry)[()]  # A scalar, if it is one.
    # Keys of parts begin with the variable's and are sorted as their places,
    # which differ on one axis: TensorFlow's partitioners cut no other.
    begin = f"\0{name.encode().decode('latin-1')}\0\1"
    found = [e for key, e in self._entries.items() if key.startswith(begin)]
    parts, shape = [self._read(part) for part in found], _shape(entry)
    cut = (a for a, size in enumerate(shape) if parts[0].shape[a] != size)
    axis = next(cut, 0)
    value = np.concatenate(parts, axis)
    starts = {part.extent[axis].start for part in entry.slices}
    lengths = [part.shape[axis] for part in parts]
    _require(
      (value.shape, value.dtype, len(parts))
      == (shape, _dtype(entry).as_numpy_dtype, len(entry.slices))
      and starts == set(itertools.accumulate(lengths[:-1], initial=0)),
      f"its parts do not make up the shape {shape!r:.80}",
    )
    return value

  def _read(self, entry: _Entry) -> np.ndarray:
    """Reads a variable that is in one piece, or a part."""
    shards = f"{entry.shard_id:05d}-of-{self._num_shards:05d}"
    with files.open_bytes(f"{self._prefix}.data-{shards}") as file:
      file.seek(0, os.SEEK_END)
      is_there = entry.offset + entry.size <= file.tell()
      _require(is_there, "the data is cut short")
      file.seek(entry.offset)
      content = file.read(entry.size)
    shape, dtype = _shape(entry), _dtype(entry)
    if dtype != tf.string:
      _check_sum(content, entry.crc32c)
      return np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)
    lengths, begin = _read_numbers(content, 0, math.prod(shape))
    # A checksum of the lengths follows, then the strings.
    ends = [*itertools.accumulate(lengths, initial=begin + 4)]
    _require(ends[-1] == len(content), "its strings are damaged")
    # Lengths enter the checksum as integers of 32 bits.
    summed = np.array(lengths, "<u4").tobytes() + content[begin:]
    _check_sum(summed, entry.crc32c)
    strings = [content[a:b] for a, b in itertools.pairwise(ends)]
    return np.array(strings, object).reshape(shape)


def _require(condition: bool, fault: str) -> None:
  if not condition:
    raise ValueError(fault)


def _shape(entry: _Entry) -> tuple[int, ...]:
  return tuple(axis.size for axis in entry.shape.dim)


def _dtype(entry: _Entry) -> tf.DType:
  return tf.dtypes.as_dtype(entry.dtype)


def _check_entry(name: str, entry: _Entry) -> None:
  """Checks that name, shape, dtype and size of a variable fit each other."""
  shape, dtype = _shape(entry), _dtype(entry)
  # Not one of the quantized, or those of 8 bits and less that came later.
  fits = entry.dtype <= tf.uint64.as_datatype_enum and not dtype.is_quantized
  fits = fits and min(*shape, entry.offset, entry.size, 0) == 0
  if fits and dtype != tf.string and not entry.slices:
    fits = entry.size == math.prod(shape) * dtype.size
  _require(
    fits and (name[0] == "\0" or name.isprintable()),
    f"{name!r:.80} has {entry.size} bytes, dtype {entry.dtype} and shape "
    f"{shape!r:.80}",
  )


def _read_rows(table: bytes) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a table, in the order of the keys."""
  footer, last = len(table) - _FOOTER, None
  _require(footer >= 0 and table.endswith(_MAGIC), "the index is cut short")
  # The first two numbers tell where a block is that is not used.
  handle = _read_numbers(table, footer, 4)[0][2:]
  for _, value in _read_block(table, *handle):
    for key, row in _read_block(table, *_read_numbers(value, 0, 2)[0]):
      _require(last is None or last < key, "the index is out of order")
      last = key
      yield key, row


def _read_numbers(data, position, count) -> tuple[list[int], int]:
  """Returns numbers, 7 bits a byte, and the position after them."""
  numbers = []
  for _ in range(count):
    value = 0
    for shift in range(0, 70, 7):
      _require(position < len(data), "a number is cut short")
      byte, position = data[position], position + 1
      value |= (byte & 127) << shift
      if byte < 128:
        break
    numbers.append(value)
  return numbers, position


def _read_block(table, offset, size) -> Iterator[tuple[bytes, bytes]]:
  """Yields keys and values; a key is what it shares with the last, and more."""
  block = table[offset : offset + size + 1]
  checksum = table[offset + size + 1 : offset + size + 5]
  _check_sum(block, int.from_bytes(checksum, "little"))
  _require(block[-1] == 0, "the index is compressed, unlike any of TensorFlow")
  # Places to begin from follow, and how many these are: not needed here.
  end = size - 4 - 4 * int.from_bytes(block[-5:-1], "little")
  key, position = b"", 0
  while position < end:
    (shared, rest, length), position = _read_numbers(block, position, 3)
    middle, stop = position + rest, position + rest + length
    fits = shared <= len(key) and shared + rest <= _LONGEST_KEY and stop <= end
    _require(fits, "an entry of the index is damaged")
    key, position = key[:shared] + block[position:middle], stop
    yield key, block[middle:stop]


def _check_sum(content: bytes, expected: int) -> None:
  _require(record_writer.masked_crc(content) == expected, "a checksum is wrong")
