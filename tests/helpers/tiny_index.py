"""Tables of LevelDB's format, such as the index of a checkpoint, made by hand.

Their checksums are right, whatever they hold: what TensorFlow then believes is
what is to be tested.
"""

import struct

import google_crc32c


def varint(value):
  """Encodes a number, 7 bits a byte."""
  if value < 128:
    return bytes([value])
  return bytes([value & 127 | 128]) + varint(value >> 7)


def masked_checksum(content):
  value = google_crc32c.value(content)
  masked = (value >> 15 | value << 17) + 0xA282EAD8 & 0xFFFFFFFF
  return masked.to_bytes(4, "little")


def make_block(entries, restarts=(0,)):
  """Makes a block of keys and values, no key sharing anything with another."""
  rows = [
    varint(0) + varint(len(key)) + varint(len(value)) + key + value
    for key, value in entries
  ]
  return b"".join(rows) + struct.pack(f"<{len(restarts) + 1}I", *restarts, 1)


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
