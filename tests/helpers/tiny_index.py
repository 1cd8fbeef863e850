"""Tables of LevelDB's format, such as the index of a checkpoint, made by hand.

Their checksums are right, whatever they hold.
"""

import struct

import google_crc32c
from tensorflow.core.protobuf import tensor_bundle_pb2

DATA = struct.pack("<2f", 1, 2)  # The data of each tensor of `make_entry`.
HEADER = (b"", b"\x08\x01")  # One shard.


def varint(value):
  """Encodes a number, 7 bits a byte."""
  if value < 128:
    return bytes([value])
  return bytes([value & 127 | 128]) + varint(value >> 7)


def masked_checksum(content):
  value = google_crc32c.value(content)
  masked = (value >> 15 | value << 17) + 0xA282EAD8 & 0xFFFFFFFF
  return masked.to_bytes(4, "little")


def make_entry(shape=(2,), dtype=1, offset=0, size=8, shard=0, slices=()):
  """Describes a tensor; the numbers of dtypes are those of types.proto."""
  entry = tensor_bundle_pb2.BundleEntryProto(
    offset=offset, size=size, shard_id=shard
  )
  entry.crc32c = int.from_bytes(masked_checksum(DATA), "little")
  # Not an argument: Python's class refuses numbers that a file may hold.
  entry.MergeFromString(b"\x08" + varint(dtype % (1 << 64)))
  for axis in shape:
    entry.shape.dim.add(size=axis)
  for extents in slices:
    part = entry.slices.add()
    for start, length in extents:
      part.extent.add(start=start, length=length)
  return entry.SerializeToString()


def make_block(entries, restarts=(0,)):
  """Makes a block of keys and values, no key sharing anything with another."""
  rows = [
    varint(0) + varint(len(key)) + varint(len(value)) + key + value
    for key, value in entries
  ]
  return b"".join(rows) + struct.pack(f"<{len(restarts) + 1}I", *restarts, 1)


def first_block(table):
  """Returns the block that a table begins with, without its checksum."""
  second, shift = 0, 0
  for byte in table[-48:]:
    second |= (byte & 127) << shift
    shift += 7
    if byte < 128:
      break
  return table[: second - 5]


def make_table(block, handle=None):
  """Makes a table of one block, which is at `handle`, if the table is asked."""
  content, handles = b"", []
  for part in (block, make_block([]), None):
    if part is None:
      part = make_block([(b"\xff", handle or handles[0])])
    handles.append(varint(len(content)) + varint(len(part)))
    content += part + b"\0" + masked_checksum(part + b"\0")
  footer = (handles[1] + handles[2]).ljust(40, b"\0")
  return content + footer + bytes.fromhex("57fb808b247547db")
