"""PyTorch's files of weights, such as pytorch_model.bin, read without PyTorch.

Such a file holds numbers and a pickle that says what they are. A pickle is a
program for a stack machine, which calls whatever the program names. Here it is
run by a machine of our own: it knows the operations that make a table of
tensors, compares names with those that such a table needs, and calls nothing.

There are two layouts (PyTorch, torch/serialization.py). Since 1.6 the file is a
zip archive without compression, of data.pkl and a file for each storage. Before
1.6 it is five pickles in a row, and the storages behind them. A storage is a
row of numbers, a tensor a view of one.

Opening a file reads its pickles, of a megabyte at most, and takes 100 MB at
most. Reading all tensors takes no more memory than twice the size of the file.
"""

import io
import math
import os
import pickletools
import struct
from typing import Any, BinaryIO, NamedTuple
import zipfile

import numpy as np

from bert.convert import models
from bert.data import remote
from bert.weights import checkpoints

# Bytes of the pickles, and of an archive's list of files. A tensor needs about
# 200; the largest BERTs have 400 tensors.
_MOST = 1 << 20
_LARGEST = 1 << 48  # Elements of a storage.
_MAGIC = 0x1950A86A20F9469CFC6C  # The first pickle before 1.6.
_DICT = "collections.OrderedDict"
_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
_PARAMETER = "torch._utils._rebuild_parameter"
# Types of numbers; numpy lacks bfloat16, which are two bytes without a type.
_DTYPES = {
  f"torch.{name}Storage": np.dtype(dtype)
  for name, dtype in {
    **{"Float": "<f4", "Half": "<f2", "BFloat16": "V2", "Double": "<f8"},
    **{"Long": "<i8", "Int": "<i4", "Short": "<i2", "Char": "i1"},
    **{"Byte": "u1", "Bool": "?"},
  }.items()
}
_NAMES = {_DICT, *_TENSORS, _PARAMETER, *_DTYPES}
# Operations that push a constant, and those whose argument is pushed.
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_CONSTANTS |= {"EMPTY_TUPLE": ()}
_PUSHED = {"BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"}
# Operations that take a number of values, and the same ones that take all
# values above a mark.
_COUNTED = {
  "TUPLE1": ("TUPLE", 1),
  "TUPLE2": ("TUPLE", 2),
  "TUPLE3": ("TUPLE", 3),
  "SETITEM": ("SETITEMS", 2),
  "APPEND": ("APPENDS", 1),
}
_ERRORS = (
  *(AttributeError, EOFError, KeyError, NotImplementedError, TypeError),
  *(struct.error, zipfile.BadZipFile),
)


class _Storage(NamedTuple):
  dtype: np.dtype
  key: str
  count: int


class _Tensor(NamedTuple):
  storage: _Storage
  offset: int  # In elements, as the strides.
  shape: tuple[int, ...]
  strides: tuple[int, ...]

  @property
  def length(self) -> int:
    """The elements of the storage from its first to its last one."""
    if 0 in self.shape:
      return 0
    steps = zip(self.shape, self.strides, strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


# Where storages begin in a file, and how many bytes they have, by their keys.
_Places = dict[str, tuple[int, int]]


class _Directory(io.FileIO):
  """A file of which a reader gets no more than `_MOST` bytes at once."""

  def read(self, size: int | None = -1) -> bytes:
    if size is None or not 0 <= size <= _MOST:
      size = _MOST
    return super().read(size) or b""


def open_file(path: str) -> dict[str, models.StoredVariable]:
  """Opens a file of weights; returns its tensors by name, read when needed.

  A ValueError says that it holds anything else than a table of tensors, or a
  tensor that its numbers do not suffice for.
  """
  local = remote.local_copy(path)
  tensors = {}
  with checkpoints.naming_damage(f"{path}: not readable", *_ERRORS):
    with open(local, "rb") as file:
      size = os.fstat(file.fileno()).st_size
      is_archive = file.read(4) == b"PK\3\4"
      file.seek(0)
      read = _read_archive if is_archive else _read_pickles
      table, places = read(file)

    # Several tensors may view one storage: tied weights do.
    parts = table.values()
    if sum(x.length * x.storage.dtype.itemsize for x in parts) > 2 * size:
      raise ValueError("its tensors are larger than the file: they overlap")
    for name, tensor in table.items():
      start = _check_place(name, tensor, places[tensor.storage.key], size)
      tensors[name] = models.StoredVariable(
        lambda tensor=tensor, start=start: _load(local, start, tensor),
        tensor.shape,
      )
  return tensors


def _read_archive(file: BinaryIO) -> tuple[dict[str, _Tensor], _Places]:
  """Reads the pickle of a zip archive, and where its storages are."""
  # Python's reader loads the whole list of files, so its size is bounded.
  with (
    _Directory(file.name) as directory,
    zipfile.ZipFile(directory) as archive,
  ):
    entries = {entry.filename: entry for entry in archive.infolist()}
  pickles = (name for name in entries if name.endswith("/data.pkl"))
  root = next(pickles, "").removesuffix("/data.pkl")

  # Compressed or encrypted entries would not be the numbers themselves.
  def locate(name: str) -> tuple[int, int]:
    if not (entry := entries.get(name)):
      raise ValueError(f"lacks {name!r:.80}")
    if entry.compress_type or entry.flag_bits & 1:
      raise ValueError(f"{name!r:.80} is compressed; PyTorch compresses none")
    file.seek(entry.header_offset)
    # A header of 30 bytes ends in the lengths of the name and an extra field.
    lengths = struct.unpack("<26x2H", file.read(30))
    return entry.header_offset + 30 + sum(lengths), entry.file_size

  start, size = locate(f"{root}/data.pkl")
  file.seek(start)
  if size > _MOST:
    raise ValueError(f"its pickle has {size:,} bytes, expected {_MOST:,}")
  table = _check_table(_run(io.BytesIO(file.read(size))))

  # Since 2.1 the order of bytes is stated.
  if (name := f"{root}/byteorder") in entries:
    file.seek(locate(name)[0])
    _check_order(file.read(6) == b"little")
  keys = {tensor.storage.key for tensor in table.values()}
  return table, {key: locate(f"{root}/data/{key}") for key in keys}


def _read_pickles(file: BinaryIO) -> tuple[dict[str, _Tensor], _Places]:
  """Reads the pickles of a file of before 1.6, and where its storages are."""
  head = io.BytesIO(file.read(_MOST))
  if not head.getvalue().startswith(b"\x80") or _run(head) != _MAGIC:
    raise ValueError("neither of PyTorch's two layouts")
  _run(head)  # The version of the layout.
  _check_order(_run(head)["little_endian"] is True)
  table = _check_table(_run(head))
  keys = _run(head)

  # Behind the list of keys stand the storages in its order, each with its
  # number of elements before it.
  storages = {x.storage.key: x.storage for x in table.values()}
  places = {}
  place = head.tell()
  for key in keys:
    if type(key) is not str or key not in storages:
      raise ValueError("its list of storages does not fit its tensors")
    file.seek(place)
    (count,) = struct.unpack("<q", file.read(8))
    size = count * storages[key].dtype.itemsize
    if size < 0:
      raise ValueError("a storage of less than no elements")
    places[key] = place + 8, size
    place += 8 + size
  return table, places


def _check_order(is_little: bool) -> None:
  if not is_little:
    raise ValueError("written by a processor with another order of bytes")


def _check_table(table: Any) -> dict[str, _Tensor]:
  if not isinstance(table, dict):
    raise ValueError("holds no table of tensors, but another object")
  for name, value in table.items():
    if not isinstance(value, _Tensor):
      raise ValueError(f"{name!r:.80} is no tensor; expected a table of them")
  return table


def _check_place(
  name: str, tensor: _Tensor, place: tuple[int, int], size: int
) -> int:
  """Returns where a storage begins; a ValueError if it lacks elements."""
  start, available = place
  needed = tensor.storage.count * tensor.storage.dtype.itemsize
  if start < 0 or needed > min(available, size - start):
    raise ValueError(f"the numbers of {name!r:.80} are cut off")
  return start


def _load(local: str, start: int, tensor: _Tensor) -> np.ndarray:
  """Reads the numbers of a tensor, and no others; bfloat16 become float32."""
  dtype = tensor.storage.dtype
  length = tensor.length * dtype.itemsize
  place = start + tensor.offset * dtype.itemsize
  strides = tuple(stride * dtype.itemsize for stride in tensor.strides)

  # numpy refuses a shape that the numbers do not suffice for.
  numbers = np.fromfile(local, np.uint8, length, offset=place)
  value = np.ndarray(tensor.shape, dtype, numbers, 0, strides)
  if dtype.kind == "V":
    bits = np.asarray(value, order="C").view(np.uint16).astype(np.uint32)
    return (bits << 16).view(np.float32)
  return np.asarray(value, order="C")


def _run(file: BinaryIO) -> Any:
  """Runs a pickle, as `_execute`, and says so if it is damaged."""
  try:
    return _execute(file)
  except (IndexError, KeyError, TypeError, struct.error):
    raise ValueError(
      "its pickle takes what is not there, or something else than expected"
    ) from None


def _execute(file: BinaryIO) -> Any:
  """Runs a pickle; returns what it makes: dicts, lists, tuples and tensors.

  Names that it mentions are text, as is what it calls text: nothing is called.
  Containers are neither compared nor printed, since a few operations make one
  that holds itself a billion times.
  """
  stack: list[Any] = []
  marks: list[int] = []  # Where in the stack.
  memo: dict[Any, Any] = {}

  def pop_marked() -> list[Any]:
    start = marks.pop()
    items = stack[start:]
    del stack[start:]
    return items

  for operation, argument, _ in pickletools.genops(file):
    # A tuple of two, say, is a tuple of what follows a mark two items below.
    name = operation.name
    if name in _COUNTED:
      name, count = _COUNTED[name]
      marks.append(len(stack) - count)

    match name:
      case "PROTO":
        continue
      case "STOP":
        break
      case "MARK":
        marks.append(len(stack))

      # What is mentioned again is kept by a number.
      case "BINPUT" | "LONG_BINPUT":
        memo[argument] = stack[-1]
      case "BINGET" | "LONG_BINGET":
        stack.append(memo[argument])

      # Containers are pushed empty, and filled with what follows a mark.
      case "EMPTY_DICT" | "EMPTY_LIST":
        stack.append({} if name == "EMPTY_DICT" else [])
      case "TUPLE":
        stack.append(tuple(pop_marked()))
      case "SETITEMS" | "APPENDS":
        _fill(pop_marked(), stack[-1])

      # A tensor: a function by its name, called with a storage and a shape.
      case "GLOBAL":
        stack.append(_check_name(str(argument).replace(" ", ".")))
      case "BINPERSID":
        stack.append(_make_storage(stack.pop()))
      case "REDUCE":
        arguments = stack.pop()
        stack.append(_make(stack.pop(), arguments))
      case "BUILD":  # Attributes of a dict, which weights do not need.
        stack.pop()

      case _ if name in _CONSTANTS or name in _PUSHED:
        stack.append(_CONSTANTS.get(name, argument))
      case _:
        raise ValueError(f"its pickle does {name}, which weights do not need")
  return stack.pop()


def _check_name(name: str) -> str:
  if name not in _NAMES:
    raise ValueError(
      f"its pickle names {name!r:.80}, which weights do not need: it could run "
      "code elsewhere; nothing of it was run"
    )
  return name


def _fill(items: list[Any], container: Any) -> None:
  if type(container) is list:
    container.extend(items)
    return
  keys, values = items[::2], items[1::2]
  if type(container) is not dict or not all(type(key) is str for key in keys):
    raise ValueError("its pickle fills something else than a dict of names")
  container.update(zip(keys, values, strict=True))


def _make(name: Any, arguments: tuple) -> Any:
  """Makes what a call in a pickle would make."""
  if type(name) is str and type(arguments) is tuple:
    if name == _DICT and not arguments:
      return {}
    if name in _TENSORS:
      return _make_tensor(*arguments[:4])
    if name == _PARAMETER and isinstance(arguments[0], _Tensor):
      return arguments[0]
  raise ValueError("its pickle makes something else than tensors and dicts")


def _make_storage(identity: tuple) -> _Storage:
  kind, name, key, _, count, *view = identity
  if not (type(kind) is type(name) is type(key) is str and kind == "storage"):
    raise ValueError("its pickle refers to something else than a storage")
  if type(count) is not int or not 0 <= count < _LARGEST or any(view):
    raise ValueError(f"the storage {key!r:.80} has an impossible size")
  return _Storage(_DTYPES[name], key, count)


def _make_tensor(storage: Any, offset: Any, shape: Any, strides: Any):
  is_view = isinstance(storage, _Storage) and len(shape) == len(strides) <= 8
  if not is_view or not type(shape) is type(strides) is tuple:
    raise ValueError("its pickle holds a tensor without storage and shape")

  # A stride of 0, and others that visit numbers twice, would make a large
  # tensor of a small file.
  tensor = _Tensor(storage, offset, shape, strides)
  for number in (offset, *shape, *strides):
    if type(number) is not int or not 0 <= number < _LARGEST:
      raise ValueError("its pickle holds a tensor of an impossible shape")
  is_inside = offset + tensor.length <= storage.count
  if not is_inside or math.prod(shape) > tensor.length:
    raise ValueError("its pickle holds a tensor larger than its storage")
  return tensor
