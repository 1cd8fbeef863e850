"""Checks the index of a checkpoint before TensorFlow's reader believes it.

That reader ends the process at a shape or a dtype that cannot be, and asks for
whatever memory a file says it needs; one bit that is wrong will do. An index is
a table of LevelDB's: blocks of sorted entries, a block that says where those
are, a footer that says where that is
(https://github.com/google/leveldb/blob/main/doc/table_format.md). Checksums are
left to TensorFlow.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math
import os
import struct
from typing import BinaryIO, NamedTuple

from google.protobuf import message
import tensorflow as tf
from tensorflow.core.protobuf import tensor_bundle_pb2

from data import files

_FOOTER = 48  # Bytes: two handles, zeros, the magic number.
_MAGIC = bytes.fromhex("57fb808b247547db")
_TRAILER = 5  # Behind each block: its compression and its checksum.
_NOT_COMPRESSED = 0
_MOST_AXES = 32  # What every version of numpy can hold.
_MOST_STRINGS = 1 << 20  # In a tensor; 24 bytes each before any is read.
_BYTES = {
  dtype.as_datatype_enum: dtype.size
  for dtype in (
    *(tf.bool, tf.bfloat16, tf.float16, tf.float32, tf.float64),
    *(tf.int8, tf.int16, tf.int32, tf.int64),
    *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    *(tf.complex64, tf.complex128),
  )
}


_Entry = tensor_bundle_pb2.BundleEntryProto


class _Handle(NamedTuple):
  """Where a block is."""

  offset: int
  size: int


def check(prefix: str) -> None:
  """Checks that TensorFlow can open a checkpoint without harm.

  Args:
    prefix: of a checkpoint in the V2 format, or the V1 format's file or the
      glob of its shards, of which only the places of the blocks are checked.

  Raises:
    ValueError: the index is damaged.
    OSError: it cannot be read.
  """
  index = f"{prefix}.index"
  if files.exists(index):
    with files.open_bytes(index) as file:
      _check_entries(prefix, list(_read_entries(file)))
    return
  for path in tf.io.gfile.glob(prefix):
    if not tf.io.gfile.isdir(path):
      with files.open_bytes(path) as file:
        list(_find_blocks(file))


def _read_entries(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
  for handle in _find_blocks(file):
    yield from _split_block(_read_block(file, handle))


def _find_blocks(file: BinaryIO) -> Iterator[_Handle]:
  """Yields where the blocks of entries are."""
  file.seek(0, os.SEEK_END)
  end = file.tell() - _FOOTER
  file.seek(max(end, 0))
  footer = file.read(_FOOTER)
  if end < 0 or not footer.endswith(_MAGIC):
    raise ValueError("the index is cut short, or no index")
  _, position = _read_handle(footer, 0, end)  # Of nothing that is used.
  handle, _ = _read_handle(footer, position, end)
  for _, value in _split_block(_read_block(file, handle)):
    yield _read_handle(value, 0, end)[0]


def _read_handle(data: bytes, position: int, end: int) -> tuple[_Handle, int]:
  offset, position = _read_varint(data, position)
  size, position = _read_varint(data, position)
  if offset + size + _TRAILER > end:
    raise ValueError(
      f"the index has {end:,} bytes of blocks, one is at {offset:,} to "
      f"{offset + size + _TRAILER:,}"
    )
  return _Handle(offset, size), position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
  """Returns a number, 7 bits a byte, and the position after it."""
  value = 0
  for shift in range(0, 70, 7):
    if position >= len(data):
      break
    byte = data[position]
    position += 1
    value |= (byte & 0x7F) << shift
    if byte < 0x80:
      return value, position
  raise ValueError("the index is damaged: a number that does not end")


def _read_block(file: BinaryIO, handle: _Handle) -> bytes:
  file.seek(handle.offset)
  content = file.read(handle.size + _TRAILER)
  if content[handle.size] != _NOT_COMPRESSED:
    raise ValueError("the index is compressed, as TensorFlow never wrote one")
  return content[: handle.size]


def _split_block(block: bytes) -> Iterator[tuple[bytes, bytes]]:
  """Yields the keys and values of a block.

  A key is what it shares with the key before, and the rest. TensorFlow may
  begin at any of the restarts, which share nothing: places of entries that the
  block ends in.
  """
  count = int.from_bytes(block[-4:], "little")
  end = len(block) - 4 - 4 * count
  if count < 1 or end < 0:
    raise ValueError("the index is damaged: a block without its restarts")
  restarts = set(struct.unpack_from(f"<{count}I", block, end))
  entries = block[:end]
  key, position = b"", 0
  while position < end:
    is_restart = position in restarts
    restarts.discard(position)
    shared, position = _read_varint(entries, position)
    rest, position = _read_varint(entries, position)
    length, position = _read_varint(entries, position)
    middle, stop = position + rest, position + rest + length
    if shared > (0 if is_restart else len(key)) or stop > end:
      raise ValueError("the index is damaged: an entry beyond its block")
    key = key[:shared] + entries[position:middle]
    yield key, entries[middle:stop]
    position = stop
  if restarts - {0}:  # That of a block of no entries.
    raise ValueError("the index is damaged: restarts between entries")


def _check_entries(prefix: str, rows: list[tuple[bytes, bytes]]) -> None:
  keys = [key for key, _ in rows]
  if not keys or keys[0] or keys != sorted(set(keys)):
    raise ValueError("the index is damaged: entries out of order")
  header = _parse(tensor_bundle_pb2.BundleHeaderProto(), *rows[0])
  entries = {key: _parse(_Entry(), key, value) for key, value in rows[1:]}
  needed = max(
    ((_count_bytes(entry, key), key) for key, entry in entries.items()),
    default=(0, b""),
  )
  for key, entry in entries.items():
    _check_parts(entry, key, entries)
  shards = {entry.shard_id for entry in entries.values()}
  paths = [
    f"{prefix}.data-{shard:05d}-of-{header.num_shards:05d}"
    for shard in sorted(shards)
  ]
  _check_data(paths, *needed)


def _check_data(paths: list[str], needed: int, key: bytes) -> None:
  """Checks that there is no more to be read into a tensor than there is."""
  missing = [path for path in paths if not files.exists(path)]
  if missing == paths:
    return  # Names and shapes can be read without the data.
  if missing:
    raise ValueError(f"{missing[0]} is missing")
  size = sum(tf.io.gfile.stat(path).length for path in paths)
  if needed > size:
    raise ValueError(
      f"{_name(key)} needs {needed:,} bytes, there are {size:,} of data"
    )


def _name(key: bytes) -> str:
  return f"{key.decode('utf-8', 'replace')!r:.80}"


def _parse(proto: message.Message, key: bytes, value: bytes) -> message.Message:
  try:
    proto.ParseFromString(value)
  except message.DecodeError:
    raise ValueError(f"the index has a damaged entry: {_name(key)}") from None
  return proto


def _count_bytes(entry: _Entry, key: bytes) -> int:
  """Returns how many bytes of data a tensor has at least."""
  shape = [axis.size for axis in entry.shape.dim]
  # TensorFlow multiplies them in 64 bits, from the left.
  length = math.prod(max(size, 1) for size in shape)
  is_known = not entry.shape.unknown_rank and min(shape, default=0) >= 0
  if not is_known or length >= 1 << 60 or len(shape) > _MOST_AXES:
    raise ValueError(f"{_name(key)} has the shape {shape!r:.80}")
  count = math.prod(shape)
  if entry.dtype == tf.string.as_datatype_enum and count <= _MOST_STRINGS:
    return count  # The length of each.
  if entry.dtype not in _BYTES:
    raise ValueError(
      f"{_name(key)} has shape {shape!r:.80} and dtype {entry.dtype}"
    )
  return count * _BYTES[entry.dtype]


def _check_parts(
  entry: _Entry, key: bytes, entries: Mapping[bytes, _Entry]
) -> None:
  """Checks that each part of a partitioned variable is there, and fits in."""
  shape = [axis.size for axis in entry.shape.dim]
  seen = set()
  for part in entry.slices:
    # Without a length it is the whole axis, which is encoded as -1.
    extents = [
      (e.start, e.length if e.HasField("length") else -1) for e in part.extent
    ]
    lengths = [
      size if length == -1 else length
      for (_, length), size in zip(extents, shape, strict=False)
    ]
    fits = len(extents) == len(shape) and all(
      start >= 0 <= length <= size - start
      for (start, _), length, size in zip(extents, lengths, shape, strict=True)
    )
    part_key = _part_key(key, extents) if fits else b""
    found = entries.get(part_key)
    if (
      found is None
      or found.dtype != entry.dtype
      or [axis.size for axis in found.shape.dim] != lengths
      or part_key in seen
    ):
      raise ValueError(
        f"{_name(key)} of shape {shape!r:.80} has a wrong part {extents!r:.80}"
      )
    seen.add(part_key)


def _part_key(key: bytes, extents: Sequence[tuple[int, int]]) -> bytes:
  """Encodes a variable and the start and length of a part of it on each axis.

  This is TensorFlow's OrderedCode (core/lib/strings/ordered_code.h): 0, the
  name, how many axes, the numbers.
  """
  special = {0: b"\0\xff", 255: b"\xff\0"}
  name = b"".join(special.get(byte, bytes([byte])) for byte in key)
  axes = bytes([1, len(extents)]) if extents else b"\0"
  numbers = map(_encode_signed, itertools.chain.from_iterable(extents))
  return b"\0" + name + b"\0\1" + axes + b"".join(numbers)


def _encode_signed(value: int) -> bytes:
  """Encodes -1 or more: as many bits 1 as there are bytes, 0, the number."""
  if value < 0:
    return b"\x7f"
  size = 1 + value.bit_length() // 7
  return (((1 << size) - 1) << 7 * size | value).to_bytes(size, "big")
