"""Files of vectors, written line by line: JSON Lines, NumPy's .npz, TFRecords.

Lines go to the disk as they come, so a file may be larger than the memory.
Shapes: T tokens of a line, L layers, H hidden.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import json
import os
import tempfile
import types
from typing import BinaryIO, NamedTuple, Protocol

import numpy as np

from data import files
from data import record_writer

FORMATS = ("jsonl", "npz", "tfrecord")

# Numbers are printed from two tables: of the two digits before and after the
# decimal point, and of the four digits that follow. A zero byte prints nothing.
_SCALE = 1_000_000
_LIMIT = 100
_FIELD = 12  # "-", "12.34", "5678", ", ".


class Line(NamedTuple):
  """What a model made of a line of text."""

  index: int  # Of the line, from 0.
  input_ids: Sequence[int]
  tokens: Sequence[str]  # The same in words.
  vectors: np.ndarray  # float32 [T, L, H]; [L, H] if the tokens are pooled.


class Writer(Protocol):
  """Writes lines to a file."""

  def write(self, line: Line) -> None:
    """Appends a line; all or none are pooled."""


@contextlib.contextmanager
def open_writer(
  path: str, output_format: str, layers: Sequence[int]
) -> Iterator[Writer]:
  """Opens a file of vectors, which appears when it is complete."""
  make = {"jsonl": JsonlWriter, "npz": NpzWriter, "tfrecord": TfrecordWriter}
  with files.replace_on_success(path) as temporary:
    with make[output_format](temporary, layers) as writer:
      yield writer


class JsonlWriter:
  """Writes the original's JSON, a line of text a line.

  {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1,
  "values": [0.25, ...]}, ...]}, ...]}; of pooled tokens {"linex_index": 0,
  "layers": [...]}. Numbers have six decimals at most.
  """

  def __init__(self, path: str, layers: Sequence[int]):
    self._file = files.open_for_writing(path)
    self._heads = [f'{{"index": {layer}, "values": [' for layer in layers]

  def __enter__(self) -> "JsonlWriter":
    return self

  def __exit__(self, *error) -> None:
    self._file.close()

  def write(self, line: Line) -> None:
    """Appends a line."""
    numbers = iter(
      format_numbers(line.vectors.reshape(-1, line.vectors.shape[-1]))
    )
    if line.vectors.ndim == 2:
      body = self._layers(numbers)
    else:
      body = ", ".join(
        f'{{"token": {_quote(token)}, {self._layers(numbers)}}}'
        for token in line.tokens
      )
      body = f'"features": [{body}]'
    text = f'{{"linex_index": {line.index}, {body}}}\n'
    self._file.write(text.encode())

  def _layers(self, numbers: Iterator[str]) -> str:
    # One of `numbers` for each layer, no more: the heads come first.
    pairs = zip(self._heads, numbers, strict=False)
    layers = ", ".join(f"{head}{values}]}}" for head, values in pairs)
    return f'"layers": [{layers}]'


_quote = functools.lru_cache(1 << 16)(json.dumps)


def format_numbers(rows: np.ndarray) -> list[str]:
  """Prints floats as Python's json prints them, rounded to six decimals.

  >>> format_numbers(np.array([[0.5, -1e-05], [12.3456789, 0]], np.float32))
  ['0.5, -1e-05', '12.345679, 0.0']

  Args:
    rows: float32 [R, H].

  Returns:
    R strings, the numbers separated by ", ".
  """
  if not rows.size:
    return [""] * len(rows)
  # The product is exact, for it has 38 bits; rint takes the even neighbour, as
  # Python's round does.
  with np.errstate(invalid="ignore"):
    scaled = np.rint(rows.astype(np.float64) * _SCALE)
  is_large = ~(np.abs(scaled) < _LIMIT * _SCALE)  # NaN is large, too.
  high, low = np.divmod(
    np.where(is_large, 0, np.abs(scaled)).astype(np.int32), 10_000
  )
  heads, tails, tiny = _tables()
  text = np.empty([*rows.shape, _FIELD], np.uint8)
  text[..., 0] = np.where(np.signbit(rows), ord("-"), 0)
  text[..., 1:6] = heads[np.where(low == 0, high + 10_000, high)]
  text[..., 6:10] = tails[low]
  text[..., 10:] = np.frombuffer(b", ", np.uint8)
  text[:, -1, 10:] = np.frombuffer(b"\n\0", np.uint8)
  is_tiny = (high == 0) & (low > 0) & (low < 100)
  text[is_tiny, 1:10] = tiny[low[is_tiny]]
  lines = text.tobytes().translate(None, b"\0").decode().split("\n")[:-1]
  for index in np.flatnonzero(is_large.any(axis=1)):
    numbers = [round(float(value), 6) for value in rows[index]]
    lines[index] = json.dumps(numbers)[1:-1]
  return lines


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Makes the tables that numbers are printed from.

  Returns:
    "1.23" for 123, and for 10,123 without zeros at its end; ".0" stays.
    "45" for 4500.
    "1.2e-05" for 12: Python prints what is below 0.0001 in this way.
  """
  heads = [f"{n // 100}.{n % 100:02}" for n in range(10_000)]
  short = [head[:-1] + head[-1].replace("0", "") for head in heads]
  tails = [f"{n:04}".rstrip("0") for n in range(10_000)]
  tiny = [repr(n / _SCALE) for n in range(100)]

  def table(texts, width):
    joined = "".join(text.ljust(width, "\0") for text in texts)
    return np.frombuffer(joined.encode(), np.uint8).reshape(-1, width)

  return table(heads + short, 5), table(tails, 4), table(tiny, 9)


class NpzWriter:
  """Writes arrays that `numpy.load` reads.

  layers, int32 [L]; and vectors, float32: [N, L, H] for N lines if tokens are
  pooled. If not, [all T, L, H], with input_ids, int32 [all T], and offsets,
  int64 [N + 1]: the tokens of line i are offsets[i] to offsets[i + 1].
  """

  def __init__(self, path: str, layers: Sequence[int]):
    self._path, self._tokens = path, 0
    self._stack = contextlib.ExitStack()
    # Rows lie in temporary files: .npy begins with their number. By name: a
    # file, the type of its numbers, and the shape of a row.
    self._arrays: dict[str, tuple[BinaryIO, type, tuple[int, ...]]] = {}
    self._append("layers", np.int32, np.array(layers))

  def __enter__(self) -> "NpzWriter":
    return self

  def __exit__(self, error_type, error, traceback) -> None:
    with self._stack:
      if error_type is None:
        self._save()

  def write(self, line: Line) -> None:
    """Appends a line."""
    if line.vectors.ndim == 2:
      self._append("vectors", np.float32, line.vectors[None])
      return
    if not self._tokens:
      self._append("offsets", np.int64, np.array([0]))
    self._tokens += len(line.vectors)
    self._append("vectors", np.float32, line.vectors)
    self._append("input_ids", np.int32, np.array(line.input_ids))
    self._append("offsets", np.int64, np.array([self._tokens]))

  def _append(self, name, dtype, rows):
    if name not in self._arrays:
      # Beside the output, where there must be room for as much anyway.
      is_remote = files.is_remote(self._path)
      folder = None if is_remote else os.path.dirname(self._path) or "."
      file = self._stack.enter_context(tempfile.TemporaryFile(dir=folder))
      self._arrays[name] = file, dtype, rows.shape[1:]
    self._arrays[name][0].write(np.ascontiguousarray(rows, dtype).data)

  def _save(self):
    arrays = {}
    for name, (file, dtype, shape) in self._arrays.items():
      numbers = np.memmap(file, dtype, "r")  # Flushes the file.
      arrays[name] = numbers.reshape(-1, *shape)
    with files.open_for_writing(self._path) as file:

      def write(data):
        file.write(data)
        return len(data)  # As a remote file does not.

      # Without `seek` and `tell`: a remote file can only be appended to.
      output = types.SimpleNamespace(write=write, flush=file.flush, read=None)
      np.savez(output, **arrays)


class TfrecordWriter:
  """Writes a tf.train.Example a line.

  linex_index, layers [L]; vectors, of [T, L, H] or pooled [L, H], flat; and if
  tokens are not pooled, input_ids and tokens [T].
  """

  def __init__(self, path: str, layers: Sequence[int]):
    self._records = record_writer.ShardedWriter([path])
    self._layers = record_writer.int64_feature(layers)

  def __enter__(self) -> "TfrecordWriter":
    self._records.__enter__()
    return self

  def __exit__(self, *error) -> None:
    self._records.__exit__(*error)

  def write(self, line: Line) -> None:
    """Appends a line."""
    floats = np.ascontiguousarray(line.vectors, "<f4").tobytes()
    features = {
      "linex_index": record_writer.int64_feature([line.index]),
      "layers": self._layers,
      "vectors": record_writer.packed_float_feature(floats),
    }
    if line.vectors.ndim == 3:
      features["input_ids"] = record_writer.int64_feature(line.input_ids)
      features["tokens"] = record_writer.bytes_feature(
        token.encode() for token in line.tokens
      )
    self._records.write(record_writer.encode_example(features))
