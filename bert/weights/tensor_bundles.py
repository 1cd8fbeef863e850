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
# Bytes. An entry of a few bytes may repeat the whole key before it and add to
# it, so that the keys of a small file could otherwise fill the memory.
_LONGEST_KEY = 4096
_Entry = tensor_bundle_pb2.BundleEntryProto


class TensorBundle:
  """A checkpoint, with two methods of TensorFlow's readers.

  The constructor and `get_tensor` raise a ValueError at damaged data, and an
  OSError at unreadable files.
  """

  def __init__(self, prefix: str):
    with files.open_bytes(f"{prefix}.index") as file:
      rows = _read_rows(file.read())

    # The first row is the header; its key is empty, so it sorts before all
    # names. Without rows, a key that is not empty ends in the error below.
    header_key, value = next(rows, (b"?", b""))
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
    # Numbers of a big-endian machine (endianness 1) would need their bytes
    # swapped.
    is_header = not header_key and not header.endianness
    _require(is_header, "the index has a wrong header")
    self._prefix = prefix
    self._num_shards = header.num_shards

  def get_variable_to_shape_map(self) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each variable."""
    return {n: _shape(e) for n, e in self._entries.items() if n[0] != "\0"}

  def get_tensor(self, name: str) -> np.ndarray:
    """Reads a variable; text as bytes, in an array of objects."""
    entry = self._entries[name]
    if not entry.slices:
      return self._read(entry)[()]  # A scalar, if it is one.

    # The variable was stored in parts, as a partitioned one. TensorFlow makes
    # the key of a part (`EncodeTensorNameSlice`) of the number 0, the name, its
    # end \0\1, and the bounds of the part: so the keys sort as the parts follow
    # each other. Like `__init__`, this reads the bytes of a key as latin-1.
    begin = f"\0{name.encode().decode('latin-1')}\0\1"
    parts = [
      self._read(part)
      for key, part in self._entries.items()
      if key.startswith(begin)
    ]
    _require(bool(parts), "its parts are missing")

    # TensorFlow's partitioners cut a variable along a single axis.
    shape = _shape(entry)
    cut_axes = (a for a, size in enumerate(shape) if parts[0].shape[a] != size)
    axis = next(cut_axes, 0)
    value = np.concatenate(parts, axis)

    # The entry of the whole says how many parts there are and where each one
    # begins: all must be there, one behind the other.
    starts = {part.extent[axis].start for part in entry.slices}
    lengths = [part.shape[axis] for part in parts]
    fits = (
      value.shape == shape
      and value.dtype == _dtype(entry).as_numpy_dtype
      and len(parts) == len(entry.slices)
      and starts == set(itertools.accumulate(lengths[:-1], initial=0))
    )
    _require(fits, f"its parts do not make up the shape {shape!r:.80}")
    return value

  def _read(self, entry: _Entry) -> np.ndarray:
    """Reads a variable that is in one piece, or a part of one."""
    # A file that is too short must not read as fewer bytes.
    shards = f"{entry.shard_id:05d}-of-{self._num_shards:05d}"
    with files.open_bytes(f"{self._prefix}.data-{shards}") as file:
      file.seek(0, os.SEEK_END)
      is_there = entry.offset + entry.size <= file.tell()
      _require(is_there, "the data is cut short")
      file.seek(entry.offset)
      content = file.read(entry.size)

    shape = _shape(entry)
    dtype = _dtype(entry)
    if dtype != tf.string:
      _check_sum(content, entry.crc32c)
      return np.frombuffer(content, dtype.as_numpy_dtype).reshape(shape)

    # Text: the length of each string, a checksum of the lengths (4 bytes), then
    # the strings one behind the other.
    lengths, begin = _read_numbers(content, 0, math.prod(shape))
    ends = list(itertools.accumulate(lengths, initial=begin + 4))
    _require(ends[-1] == len(content), "its strings are damaged")

    # Lengths enter the checksum as integers of 32 bits.
    summed = np.array(lengths, "<u4").tobytes() + content[begin:]
    _check_sum(summed, entry.crc32c)
    strings = [content[a:b] for a, b in itertools.pairwise(ends)]
    return np.array(strings, object).reshape(shape)


def _require(condition: bool, fault: str) -> None:
  """Raises a ValueError with `fault` unless the condition holds."""
  if not condition:
    raise ValueError(fault)


def _shape(entry: _Entry) -> tuple[int, ...]:
  return tuple(axis.size for axis in entry.shape.dim)


def _dtype(entry: _Entry) -> tf.DType:
  return tf.dtypes.as_dtype(entry.dtype)


def _check_entry(name: str, entry: _Entry) -> None:
  """Checks that name, shape, dtype and size of a variable fit each other."""
  shape = _shape(entry)
  dtype = _dtype(entry)

  # TensorFlow added types of 8 bits and fewer after uint64; neither these nor
  # the quantized types occur in a BERT, and numpy lacks them.
  fits = entry.dtype <= tf.uint64.as_datatype_enum and not dtype.is_quantized
  numbers = [*shape, entry.offset, entry.size]
  fits = fits and all(number >= 0 for number in numbers)

  # The size of texts and of a variable in parts does not follow from the shape.
  if fits and dtype != tf.string and not entry.slices:
    fits = entry.size == math.prod(shape) * dtype.size
  _require(
    fits and (name[0] == "\0" or name.isprintable()),
    f"{name!r:.80} has {entry.size} bytes, dtype {entry.dtype} and shape "
    f"{shape!r:.80}",
  )


def _read_rows(table: bytes) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a table, in the order of the keys."""
  footer = len(table) - _FOOTER
  _require(footer >= 0 and table.endswith(_MAGIC), "the index is cut short")

  # The footer holds the place (offset and size) of a block that is not used
  # here, then the place of the block that lists the blocks of rows.
  (_, _, offset, size), _ = _read_numbers(table, footer, 4)
  last_key = None
  for _, value in _read_block(table, offset, size):
    (offset, size), _ = _read_numbers(value, 0, 2)
    for key, row in _read_block(table, offset, size):
      is_next = last_key is None or last_key < key
      _require(is_next, "the index is out of order")
      last_key = key
      yield key, row


def _read_numbers(data, position, count) -> tuple[list[int], int]:
  """Returns numbers, 7 bits a byte, and the position after them.

  These are the varints of protocol buffers: the lowest bits come first, and the
  highest bit of a byte says that another byte follows.
  """
  numbers = []
  for _ in range(count):
    value = 0
    # Ten bytes hold a number of 64 bits.
    for shift in range(0, 70, 7):
      _require(position < len(data), "a number is cut short")
      byte = data[position]
      position += 1
      value |= (byte & 127) << shift
      if byte < 128:
        break
    numbers.append(value)
  return numbers, position


def _read_block(table, offset, size) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a block.

  A key is stored as the number of bytes that it shares with the key before it,
  and the rest of its bytes.
  """
  # A byte for the kind of compression and a checksum follow a block.
  block = table[offset : offset + size + 1]
  checksum = table[offset + size + 1 : offset + size + 5]
  _check_sum(block, int.from_bytes(checksum, "little"))
  _require(block[-1] == 0, "the index is compressed, unlike any of TensorFlow")

  # A block ends with the positions at which a search may begin, and their
  # number; who reads it from the start needs neither.
  end = size - 4 - 4 * int.from_bytes(block[-5:-1], "little")
  key = b""
  position = 0
  while position < end:
    (shared, rest, length), position = _read_numbers(block, position, 3)
    middle = position + rest
    stop = middle + length
    fits = shared <= len(key) and shared + rest <= _LONGEST_KEY and stop <= end
    _require(fits, "an entry of the index is damaged")

    key = key[:shared] + block[position:middle]
    yield key, block[middle:stop]
    position = stop


def _check_sum(content: bytes, expected: int) -> None:
  _require(record_writer.masked_crc(content) == expected, "a checksum is wrong")
