"""Files of vectors, written line by line: JSON Lines or NumPy's .npz.

Lines go to the disk as they come, so a file may be larger than the memory.
Shapes: T tokens of a line, L layers, H hidden.
"""

import array
from collections.abc import Callable, Iterator, Sequence
import contextlib
import json
import os
import tempfile
import types
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bert.data import atomic, files, remote

FORMATS = ("jsonl", "npz")


class VectorRow(NamedTuple):
  """The vectors of a line of text."""

  number: int  # The line, counted from 0.
  input_ids: Sequence[int]
  tokens: Sequence[str]  # The same in words.
  vectors: np.ndarray  # float32 [T, L, H]; [L, H] if the tokens are pooled.


Write = Callable[[VectorRow], None]  # Appends a row; all or none are pooled.


@contextlib.contextmanager
def open_writer(
  path: str, output_format: str, layers: Sequence[int]
) -> Iterator[Write]:
  """Opens a file of vectors, which appears when it is complete.

  Args:
    path: of the new file.
    output_format: one of `FORMATS`.
    layers: the numbers of the layers, as the user gave them: -1 is the last.
      They are L, and written into the file.
  """
  opener = {"jsonl": _open_jsonl, "npz": _open_npz}[output_format]
  with atomic.replace_on_success(path) as temporary:
    with opener(temporary, layers) as write:
      yield write


@contextlib.contextmanager
def _open_jsonl(path: str, layers: Sequence[int]) -> Iterator[Write]:
  """Writes the original's JSON, for each text a line.

  {"linex_index": 0, "features": [{"token": "[CLS]", "layers": [{"index": -1,
  "values": [0.25, ...]}, ...]}, ...]}; of pooled tokens {"linex_index": 0,
  "layers": [...]}. Numbers have six decimals at most.
  """

  def by_layer(vectors):
    pairs = zip(layers, vectors, strict=True)
    return [{"index": layer, "values": values} for layer, values in pairs]

  def write(row):
    # Float64 holds a float32 times a million exactly, so this rounds as Python.
    vectors = np.round(row.vectors.astype(np.float64), 6).tolist()
    fields = {"linex_index": row.number}
    if row.vectors.ndim == 2:
      fields["layers"] = by_layer(vectors)
    else:
      pairs = zip(row.tokens, vectors, strict=True)
      fields["features"] = [
        {"token": token, "layers": by_layer(values)} for token, values in pairs
      ]
    file.write(f"{json.dumps(fields)}\n".encode())

  with files.open_for_writing(path) as file:
    yield write


@contextlib.contextmanager
def _open_npz(path: str, layers: Sequence[int]) -> Iterator[Write]:
  """Writes arrays that `numpy.load` reads.

  layers, int32 [L]; and vectors, float32: [N, L, H] for N lines if tokens are
  pooled. If not, [all T, L, H], with input_ids, int32 [all T], and offsets,
  int64 [N + 1]: the tokens of line i are offsets[i] to offsets[i + 1].
  """
  ids, offsets = array.array("i"), array.array("q", [0])
  shape = ()

  def write(row):
    nonlocal shape
    shape = row.vectors.shape[-2:]
    file.write(np.ascontiguousarray(row.vectors, np.float32).data)
    if row.vectors.ndim == 3:
      ids.extend(row.input_ids)
      offsets.append(len(ids))

  # Vectors wait in a file, for .npy begins with their number. It is beside the
  # output, where there must be room for as much anyway.
  folder = None if remote.is_remote(path) else os.path.dirname(path) or "."
  with tempfile.TemporaryFile(dir=folder) as file:
    yield write
    file.flush()
    vectors = np.memmap(file, np.float32, "r").reshape(-1, *shape)
    arrays = {"layers": np.array(layers, np.int32), "vectors": vectors}
    if ids:
      arrays["input_ids"] = np.array(ids, np.int32)
      arrays["offsets"] = np.array(offsets, np.int64)
    with files.open_for_writing(path) as output:
      np.savez(_append_only(output), **arrays)


def _append_only(file: BinaryIO) -> Any:
  """Returns a file without `seek` and `tell`, which remote files lack."""

  def write(data):
    file.write(data)
    return len(data)  # zipfile needs it; a remote file returns nothing.

  # NumPy takes what has `read` for a file.
  return types.SimpleNamespace(write=write, flush=file.flush, read=None)


def read(path: str, lines: int, width: int) -> np.ndarray:
  """Reads the pooled vectors of a .npz, float [lines, width].

  Args:
    path: of a file that extract_features.py wrote with --pooling.
    lines: how many vectors it must hold.
    width: the numbers of a vector, H. There must be one layer.

  Raises:
    ValueError: it is another file, or its vectors have another shape.
  """
  # NumPy opens only local files.
  try:
    arrays = np.load(remote.local_copy(path))
    if isinstance(arrays, np.ndarray):
      raise ValueError("one array, as in a .npy")
    vectors = arrays["vectors"]
  except (*files.DAMAGED_ARRAY, OSError) as error:
    reason = " ".join(str(error).split())
    raise ValueError(
      f"--vectors_file={path}: not a .npz of extract_features.py: {reason}"
    ) from None

  # A vector of every line; the axis between is that of the layers.
  if vectors.shape != (lines, 1, width) or vectors.dtype.kind != "f":
    raise ValueError(
      f"--vectors_file={path}: {vectors.dtype} of the shape {vectors.shape}, "
      f"expected floats of the shape {(lines, 1, width)}, by the lines of "
      "--input_file and --model"
    )
  return vectors[:, 0]
