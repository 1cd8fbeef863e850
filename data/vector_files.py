"""Files of vectors, written line by line: JSON Lines, NumPy's .npz, TFRecords.

Lines go to the disk as they come, so a file may be larger than the memory.
Shapes: T tokens of a line, L layers, H hidden.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import json
import os
import tempfile
import types
from typing import BinaryIO, NamedTuple

import numpy as np

from data import atomic
from data import files
from data import record_writer
from data import remote

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


Write = Callable[[Line], None]  # Appends a line; all or none are pooled.


@contextlib.contextmanager
def open_writer(
  path: str, output_format: str, layers: Sequence[int]
) -> Iterator[Write]:
  """Opens a file of vectors, which appears when it is complete."""
  opener = {"jsonl": _open_jsonl, "npz": _open_npz, "tfrecord": _open_tfrecord}
  with atomic.replace_on_success(path) as temporary:
    with opener[output_format](temporary, layers) as write:
      yield write


@contextlib.contextmanager
def _open_jsonl(path: str, layers: Sequence[int]) -> Iterator[Write]:
  """Writes the original's JSON, a line of text a line.

  {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1,
  "values": [0.25, ...]}, ...]}, ...]}; of pooled tokens {"linex_index": 0,
  "layers": [...]}. Numbers have six decimals at most.
  """
  heads = [f'{{"index": {layer}, "values": [' for layer in layers]

  def format_layers(numbers):
    # One of `numbers` for each layer, no more: the heads come first.
    pairs = zip(heads, numbers, strict=False)
    joined = ", ".join(f"{head}{values}]}}" for head, values in pairs)
    return f'"layers": [{joined}]'

  def write(line):
    rows = line.vectors.reshape(-1, line.vectors.shape[-1])
    numbers = iter(format_numbers(rows))
    if line.vectors.ndim == 2:
      body = format_layers(numbers)
    else:
      body = ", ".join(
        f'{{"token": {_quote(token)}, {format_layers(numbers)}}}'
        for token in line.tokens
      )
      body = f'"features": [{body}]'
    text = f'{{"linex_index": {line.index}, {body}}}\n'
    file.write(text.encode())

  with files.open_for_writing(path) as file:
    yield write


_quote = functools.lru_cache(1 << 16)(json.dumps)


def format_numbers(rows: np.ndarray) -> list[str]:
  """Prints floats as Python's json prints them, rounded to six decimals.

  >>> format_numbers(np.array([[0.5, -1e-05], [12.3456789, 0]], np.float32))
  ['0.5, -1e-05', '12.345679, 0.0']

  Args:
    rows: float32 [R, H].
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


@contextlib.contextmanager
def _open_npz(path: str, layers: Sequence[int]) -> Iterator[Write]:
  """Writes arrays that `numpy.load` reads.

  layers, int32 [L]; and vectors, float32: [N, L, H] for N lines if tokens are
  pooled. If not, [all T, L, H], with input_ids, int32 [all T], and offsets,
  int64 [N + 1]: the tokens of line i are offsets[i] to offsets[i + 1].
  """
  # Rows lie in temporary files: .npy begins with their number. By name: a
  # file, the type of its numbers, and the shape of a row.
  parts: dict[str, tuple[BinaryIO, type, tuple[int, ...]]] = {}
  # Beside the output, where there must be room for as much anyway.
  folder = None if remote.is_remote(path) else os.path.dirname(path) or "."
  tokens = 0

  def append(name, dtype, rows):
    if name not in parts:
      file = stack.enter_context(tempfile.TemporaryFile(dir=folder))
      parts[name] = file, dtype, rows.shape[1:]
    parts[name][0].write(np.ascontiguousarray(rows, dtype).data)

  def write(line):
    nonlocal tokens
    if line.vectors.ndim == 2:
      append("vectors", np.float32, line.vectors[None])
      return
    if not tokens:
      append("offsets", np.int64, np.array([0]))
    tokens += len(line.vectors)
    append("vectors", np.float32, line.vectors)
    append("input_ids", np.int32, np.array(line.input_ids))
    append("offsets", np.int64, np.array([tokens]))

  with contextlib.ExitStack() as stack:
    append("layers", np.int32, np.array(layers))
    yield write
    arrays = {
      # Mapping a file flushes it.
      name: np.memmap(file, dtype, "r").reshape(-1, *shape)
      for name, (file, dtype, shape) in parts.items()
    }
    with files.open_for_writing(path) as output:
      np.savez(_append_only(output), **arrays)


def _append_only(file: BinaryIO) -> types.SimpleNamespace:
  """Returns a file without `seek` and `tell`, which remote files lack."""

  def write(data):
    file.write(data)
    return len(data)  # As a remote file does not.

  return types.SimpleNamespace(write=write, flush=file.flush, read=None)


@contextlib.contextmanager
def _open_tfrecord(path: str, layers: Sequence[int]) -> Iterator[Write]:
  """Writes a tf.train.Example a line.

  linex_index, layers [L]; vectors, of [T, L, H] or pooled [L, H], flat; and if
  tokens are not pooled, input_ids and tokens [T].
  """

  def write(line):
    floats = np.ascontiguousarray(line.vectors, "<f4").tobytes()
    features = {
      "linex_index": record_writer.int64_feature([line.index]),
      "layers": record_writer.int64_feature(layers),
      "vectors": record_writer.packed_float_feature(floats),
    }
    if line.vectors.ndim == 3:
      features["input_ids"] = record_writer.int64_feature(line.input_ids)
      features["tokens"] = record_writer.bytes_feature(
        token.encode() for token in line.tokens
      )
    write_record(record_writer.encode_example(features))

  with record_writer.open_shards([path]) as write_record:
    yield write
