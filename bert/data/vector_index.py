"""An index of vectors: a .npy of float16, and a record of what it was made of.

The record, JSON beside the index, has the SHA-256 of the text, of the model's
weights and of the index, a digest of how the model makes tokens of texts, and
the vector that it gives to a fixed text.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import io
import math
import os
from typing import Any, BinaryIO

import numpy as np

from bert.data import atomic, files, progress

BLOCK = 1024  # Rows written at once: a run that resumes makes the same blocks.
PROMPT = "line_prompt_name"
_RECORD = {
  "model": (str,),
  "input_file": (str,),
  "sha256": (str,),  # That of input_file, and the name of its column, if any.
  "lines": (int,),
  "probe": (list,),
  PROMPT: (str, None),
}
# Earlier versions did not record them.
_WEIGHTS, _TOKENS, _INDEX = "weights_sha256", "tokens_sha256", "index_sha256"


def differ(found: np.ndarray, expected: np.ndarray) -> bool:
  """Returns whether vectors differ by more than bfloat16 rounds; NaN differs.

  >>> differ(np.float32([1, 2]), np.float32([1.01, 2]))
  False
  >>> differ(np.float32([1, np.nan]), np.float32([1, 2]))
  True
  """
  # "not <=" instead of ">": no comparison with NaN is true.
  return not np.abs(found - expected).max() <= 0.05 * np.abs(expected).max()


def to_float16(vectors: np.ndarray, first: int, source: str) -> np.ndarray:
  """Rounds vectors to the rows of an index.

  Args:
    vectors: float [N, H].
    first: the number of the first one, counted from 0.
    source: the flag and the value that they are from.

  Raises:
    ValueError: names the line of a vector that float16 cannot hold.
  """
  # A number beyond the range becomes infinite, and is found below.
  with np.errstate(over="ignore"):
    rows = vectors.astype("<f2")
  is_good = np.isfinite(rows).all(1)
  if not is_good.all():
    raise ValueError(
      f"{source}: the vector of line {first + is_good.argmin() + 1} holds NaN "
      "or a number beyond 65,504, the largest float16"
    )
  return rows


def make(
  path: str,
  record: dict[str, Any],
  make_rows: Callable[[int], Iterator[np.ndarray]],
  part: BinaryIO | None = None,
) -> None:
  """Makes an index and its record, from where a killed process left them.

  Args:
    path: of the index.
    record: what it is made of.
    make_rows: yields the rows from that of a number on, float16 [BLOCK, H].
    part: what `locked` gives, if the caller has locked the index.

  Raises:
    OSError: another process makes this index, or the disk is full.
    ValueError: what was begun is of another model or other text.
  """
  with contextlib.nullcontext(part) if part else locked(path) as file:
    # Another process may have completed it before this one had the lock.
    if files.exists(path):
      return

    # The rows of a killed process are good if they are of the same model and
    # text. Without a record nobody knows: they are made anew. So is what has no
    # whole block, such as that of a run whose first lines were refused.
    if count_begun(path):
      _check(path, record, is_begun=True)
    else:
      file.seek(file.truncate(0))
    files.write_json(f"{path}.json", record)

    # The hash of the index is known only when all rows are there.
    _write(file, record["lines"], len(record["probe"]), make_rows)
    complete = {**record, _INDEX: files.hash_file(file.name)}
    files.write_json(f"{path}.json", complete)
    # Still locked, so that no other process begins anew.
    atomic.publish(file.name, path)


@contextlib.contextmanager
def locked(path: str) -> Iterator[BinaryIO]:
  """Lets nobody else make an index, or remove its texts, while the body runs.

  Yields `path`.part, which has the rows until the index is complete. It goes at
  the end if it is empty. An OSError says that another process makes the index.
  """
  part = f"{path}.part"
  os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
  with atomic.naming_full_disk(part), open(part, "ab", buffering=0) as file:
    # The process that had the lock may have taken the file away since.
    is_ours = atomic.lock(file.fileno()) is not False
    state = os.fstat(file.fileno())
    is_there = os.path.exists(part) and os.path.samestat(os.stat(part), state)
    if not (is_ours and is_there):
      raise OSError(f"{part}: another process is writing it")
    try:
      yield file
    finally:
      if not os.fstat(file.fileno()).st_size:
        files.remove(part)


def count_begun(path: str) -> int:
  """Returns how many rows a killed process has left, in whole blocks.

  Args:
    path: of the index. Its record, which says how long rows are, may be that of
      another model; without one the rows count as none.

  Raises:
    ValueError: the record is damaged.
  """
  part = f"{path}.part"
  size = os.path.getsize(part) if files.exists(part) else 0
  if not (size and files.exists(f"{path}.json")):
    return 0
  record = read_record(path)
  return _count_whole(size, record["lines"], len(record["probe"]))


def _count_whole(size: int, lines: int, width: int) -> int:
  """Returns the rows of whole blocks in so many bytes of an index."""
  # Anybody may have written the record that says the width.
  row_bytes = 2 * max(1, width)
  rows = max(0, size - len(_make_header(lines, width))) // row_bytes
  return rows // BLOCK * BLOCK


def _make_header(lines: int, width: int) -> bytes:
  # A .npy is a header and the numbers, row by row, so rows can be appended.
  header = io.BytesIO()
  array = {"descr": "<f2", "fortran_order": False, "shape": (lines, width)}
  np.lib.format.write_array_header_1_0(header, array)
  return header.getvalue()


def _write(file, lines, width, make_rows) -> None:
  """Appends the missing rows, of which a kill may have cut the last block."""
  # What is left of a block that was cut is made again.
  header = _make_header(lines, width)
  done = _count_whole(file.tell(), lines, width)
  file.truncate(len(header) + 2 * width * done if done else 0)
  if not done:
    _write_all(file, header)
  for block in make_rows(done):
    _write_all(file, block.tobytes())


def _write_all(file, content: bytes) -> None:
  """Writes all of it: a disk that is nearly full takes a part, then fails."""
  view = memoryview(content)
  while view:
    view = view[file.write(view) :]


def _check(
  path: str, new: Mapping[str, Any], is_begun: bool = False
) -> Mapping[str, Any]:
  """Returns the record of an index; a ValueError if it is of something else.

  Args:
    path: of the index.
    new: the record that this run would write.
    is_begun: whether only a part of it is made.
  """
  old = read_record(path)

  # The first difference is named. Records of earlier versions have no checksum
  # of the weights, or no digest of how tokens are made.
  probes = [np.array(record["probe"]) for record in (old, new)]
  weights = [record.get(_WEIGHTS) for record in (old, new)]
  tokens = [record.get(_TOKENS) for record in (old, new)]
  fault = ""
  if len(probes[0]) != len(probes[1]):
    sizes = "{} numbers a vector, not the {}".format(*map(len, probes))
    fault = f"{old['model']}, {sizes} of --model={new['model']}"
  elif old.get(PROMPT) != new.get(PROMPT):
    # The vector of the fixed text may hardly show a prompt.
    fault = f"lines with the prompt {old.get(PROMPT)}, not {new.get(PROMPT)}"
  elif differ(*probes):
    fault = (
      f"{old['model']}, whose vectors --model={new['model']} does not make"
    )
  elif all(weights) and weights[0] != weights[1]:
    fault = f"{old['model']} with other weights than --model={new['model']} has"
  elif all(tokens) and tokens[0] != tokens[1]:
    # The vector of the fixed text, of a few lower-case words, may not show it.
    fault = (
      f"{old['model']} with another vocabulary, casing, length or default "
      f"prompt than --model={new['model']} has"
    )
  elif old["sha256"] != new["sha256"]:
    fault = f"other text than is in --input_file={new['input_file']} now"
  if fault and is_begun:
    raise ValueError(
      f"{path}: begun with {fault}: remove {path}.part and {path}.json to "
      "begin anew"
    )
  if fault:
    raise ValueError(f"{path}: made of {fault}: pass another --index_file")
  return old


def _cure(path: str) -> str:
  return f"remove {path} and {path}.json to make them anew"


def read_record(path: str) -> dict[str, Any]:
  """Returns the record of an index; a ValueError if it lacks one."""
  if not files.exists(f"{path}.json"):
    raise ValueError(
      f"{path}: lacks {path}.json, which says of what: no index of ours, or "
      f"{_cure(path)}"
    )
  record = files.read_json(f"{path}.json")

  # Anybody may have written it.
  try:
    files.check_values(record, _RECORD)
    for number in record["probe"]:
      if type(number) is not float or not math.isfinite(number):
        raise ValueError(f"probe holds {number!r:.80}, expected finite numbers")
  except ValueError as error:
    raise ValueError(f"{path}.json: {error}: {_cure(path)}") from None
  return record


def read(path: str, record: Mapping[str, Any]) -> np.ndarray:
  """Returns the vectors of an index, float16 [N, H], mapped into memory.

  Args:
    path: of the index.
    record: of the model and the text that it must be made of.

  Raises:
    ValueError: it is damaged, or of another model or text.
  """
  stored = _check(path, record)

  # Rows that were changed would give wrong answers, without any error.
  if not stored.get(_INDEX):
    progress.note(
      f"note: {path}.json is of an earlier version, so that damage to the "
      f"index and a model trained further go unnoticed: {_cure(path)}"
    )
  elif files.hash_file(path) != stored[_INDEX]:
    raise ValueError(
      f"{path}: damaged or replaced, {path}.json describes another file: "
      f"{_cure(path)}"
    )

  try:
    vectors = np.load(path, mmap_mode="r")
    kind = f"{vectors.dtype.str} {vectors.shape}"
  except files.DAMAGED_ARRAY as error:
    reason = " ".join(str(error).split())
    raise ValueError(f"{path}: not a .npy ({reason}): {_cure(path)}") from None
  shape = record["lines"], len(record["probe"])
  if kind != f"<f2 {shape}":
    raise ValueError(f"{path}: {kind}, expected <f2 {shape}: {_cure(path)}")
  return np.asarray(vectors)
