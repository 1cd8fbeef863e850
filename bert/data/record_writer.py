"""Encodes tf.train.Examples; frames and unframes TFRecords, without TensorFlow.

Building protocol buffers object by object takes most of the time of a record,
so their bytes are joined here. They are protobuf's wire format
(https://protobuf.dev/programming-guides/encoding/), which every reader reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import functools
import gzip
import io
import itertools
import struct
from typing import BinaryIO

from bert.data import files


def int64_feature(values: Iterable[int]) -> bytes:
  """Encodes integers of 64 bits as a tf.train.Feature."""
  return packed_feature(b"".join(map(encode_integer, values)))


def packed_feature(packed: bytes) -> bytes:
  """Makes a tf.train.Feature of the joined outcomes of `encode_integer`."""
  return _feature_header(3, len(packed)) + packed


def encode_integer(value: int) -> bytes:
  """Encodes an integer in groups of 7 bits, the lowest first.

  >>> encode_integer(127).hex(), encode_integer(300).hex()
  ('7f', 'ac02')
  """
  if not -(1 << 63) <= value < 1 << 63:
    raise ValueError(f"{value} does not fit into 64 bits")

  # A negative number is its two's complement of 64 bits. All bytes but the last
  # have their highest bit set.
  value &= (1 << 64) - 1
  groups = []
  while value > 127:
    groups.append(value & 127 | 128)
    value >>= 7
  return bytes([*groups, value])


# Few of the numbers of records differ: each is encoded once.
encode_id = functools.cache(encode_integer)


def padded_feature(values: Sequence[int], size: int) -> bytes:
  """Encodes up to `size` integers as a tf.train.Feature, padded with zeros."""
  return packed_feature(_pad(values, size))


def _pad(values: Sequence[int], size: int) -> bytes:
  # A zero byte is the number 0: these bytes are zeros behind the values.
  return b"".join(map(encode_id, values)) + bytes(size - len(values))


def float_feature(values: Sequence[float]) -> bytes:
  """Encodes floats as a tf.train.Feature, in 32 bits each."""
  packed = struct.pack(f"<{len(values)}f", *values)
  return _feature_header(2, len(packed)) + packed


def encode_example(features: Mapping[str, bytes]) -> bytes:
  """Encodes a tf.train.Example, its features in the order of their names.

  Protobuf leaves the order of a map open; sorted, equal features give equal
  records.
  """
  entries = [
    _entry_header(name, len(feature)) + feature
    for name, feature in sorted(features.items())
  ]
  body = b"".join(entries)
  return _length_header(b"\x0a", len(body)) + body


def encode_inputs(
  ids: Sequence[Sequence[int]],
  segments: Sequence[Sequence[int]],
  size: int,
  **features: bytes,
) -> bytes:
  """Encodes inputs of a model, padded with zeros, and other features.

  Args:
    ids: rows of token ids: one, or several for choices. Their masks are made
      here.
    segments: rows of segment ids. A row that is shorter than its ids has zeros
      behind it, so `[[]]` is a row of zeros.
    size: the length of each row with its padding (--max_seq_length).
    **features: encoded features that the example holds, too, by name.
  """
  masks = [[1] * len(row) for row in ids]
  inputs = {"input_ids": ids, "segment_ids": segments, "input_mask": masks}
  for name, rows in inputs.items():
    features[name] = packed_feature(b"".join(_pad(row, size) for row in rows))
  return encode_example(features)


def frame_record(record: bytes) -> bytes:
  """Adds the length and the checksums of a record in a TFRecord file."""
  checksum = masked_crc(record).to_bytes(4, "little")
  return frame_header(len(record)) + record + checksum


def unframe_record(frame: bytes) -> bytes:
  """Returns the record of a frame; a ValueError if it is damaged or cut."""
  # In front stand the length and its checksum, behind the record its checksum.
  record = frame[12:-4]
  if frame_record(record) != frame:
    raise ValueError("the record is damaged or cut short")
  return record


@contextlib.contextmanager
def open_shards(
  paths: Sequence[str], compress: bool = False
) -> Iterator[Callable[[bytes], object]]:
  """Opens TFRecord files; yields a function that writes to them in turn."""
  shards: list[BinaryIO] = []
  with contextlib.ExitStack() as stack:
    for path in paths:
      file = stack.enter_context(files.open_for_writing(path))
      if compress:
        # Without name and time, equal records give equal files. Higher levels
        # take several times longer and hardly make records smaller.
        packed = gzip.GzipFile("", "wb", compresslevel=3, fileobj=file, mtime=0)
        file = stack.enter_context(io.BufferedWriter(packed, 1 << 18))
      shards.append(file)
    turns = itertools.cycle(shards)
    yield lambda record: next(turns).write(frame_record(record))


# Before a message within a message stand its tag and its length: 0x0a is field
# 1, 0x12 field 2, of a length and bytes. In a Feature, field 2 is the list of
# floats and 3 that of integers. Few lengths occur: headers are computed once.


@functools.lru_cache(1 << 12)
def _length_header(tag: bytes, length: int) -> bytes:
  return tag + encode_integer(length)


@functools.lru_cache(1 << 12)
def _feature_header(kind: int, length: int) -> bytes:
  """Returns the bytes before packed numbers: of Feature, list and numbers.

  Args:
    kind: the field of a Feature: 2 for floats, 3 for integers.
    length: of the packed numbers, in bytes.
  """
  # An empty list has no field for its numbers.
  values = _length_header(b"\x0a", length) if length else b""
  return _length_header(bytes([kind << 3 | 2]), len(values) + length) + values


@functools.lru_cache(1 << 12)
def _entry_header(name: str, length: int) -> bytes:
  """Returns the bytes before a feature: the map's entry with its name."""
  key = name.encode("utf-8")
  key = _length_header(b"\x0a", len(key)) + key
  key += _length_header(b"\x12", length)
  return _length_header(b"\x0a", len(key) + length) + key


@functools.lru_cache(1 << 12)
def frame_header(length: int) -> bytes:
  """Returns the 12 bytes before a record: its length, and their checksum."""
  packed = length.to_bytes(8, "little")
  return packed + masked_crc(packed).to_bytes(4, "little")


def masked_crc(data: bytes) -> int:
  """Returns the checksum of TFRecords and LevelDB: a CRC-32C, masked."""
  import google_crc32c  # Here, because predict.py does without it.

  # A checksum of bytes that hold checksums would be weak, so LevelDB rotates
  # and shifts it.
  crc = google_crc32c.value(data)
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
