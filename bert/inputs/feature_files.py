"""Feature files: TFRecords with an index, read in batches of similar length.

A feature file is what the original wrote before training (`train.tf_record`): a
tf.train.Example per row, padded to max_seq_length. By the index beside it, rows
are read in any order. The index holds the key of the rows, see `feature_sets`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import itertools
import json
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert.data import atomic, files, progress, record_writer
from bert.inputs import batch_order, training_input

_ROWS_PER_READ = 256  # By one call of Python while training.


class Row(NamedTuple):
  """A row to be written."""

  serialized: bytes
  length: int  # Tokens before the padding.
  example: int  # Index of the example that it is of, or a window of.


class FeatureFile:
  """The rows of a local feature file; `open_or_make` opens it."""

  def __init__(self, path: str, index: dict[str, Any], is_new: bool):
    self.path = path
    self.key = str(index["key"])
    self.is_new = is_new  # Whether this process made it.
    self.lengths: np.ndarray = index["lengths"]  # int32 [N], tokens of rows.
    # int32 [N], the index of the example that each row is of; see `Row`.
    self.example_of_row: np.ndarray = index["examples"]
    # Numbers and texts that were counted while the file was made.
    self.facts: dict[str, Any] = json.loads(str(index["facts"]))
    # A file with more features of these rows, and int64 [N], the place in it of
    # the features that belong to each row.
    self._added: tuple[FeatureFile, np.ndarray] | None = None
    self._offsets = index["offsets"]  # int64 [N + 1], the last is the size.
    # Only its descriptor is used: `os.pread` needs no place that threads share.
    self._file = open(path, "rb", buffering=0)

  def __len__(self) -> int:
    return len(self.lengths)

  def read(self, indices: Sequence[int] | np.ndarray) -> list[bytes]:
    """Reads rows; a ValueError names one that is damaged."""
    rows = []
    for index in indices:
      # A frame of TFRecord: the length, the row and two checksums.
      start, end = self._offsets[index], self._offsets[index + 1]
      frame = os.pread(self._file.fileno(), int(end - start), int(start))

      # The index knows this row, so a wrong checksum is damage of the file.
      try:
        rows.append(record_writer.unframe_record(frame))
      except ValueError as error:
        raise ValueError(
          f"{self.path}: record {index}, at byte {start}: {error}; delete the "
          "file and it will be made again"
        ) from None

    if not self._added:
      return rows

    # Protocol buffers merge when their bytes are joined, so a row and what was
    # added to it become one tf.train.Example.
    added_file, places = self._added
    added_rows = added_file.read(places[indices])
    return [row + more for row, more in zip(rows, added_rows, strict=True)]

  def add_features(self, added_file: "FeatureFile") -> None:
    """Adds the features of a file made of this one's rows.

    There the number of an "example" is the number of a row here.
    """
    # Sorted and without repetition, these numbers are 0 to N - 1, so that the
    # place of row i is at i.
    _, places = np.unique(added_file.example_of_row, return_index=True)
    self._added = added_file, places

  def find_fault(self) -> str | None:
    """Reads all rows and describes the first that is damaged."""
    try:
      for index in range(len(self)):
        self.read([index])
    except ValueError as error:
      return str(error)
    return None

  def training_rows(
    self, batch_size: int, seed: int, skip: int = 0
  ) -> tf.data.Dataset:
    """Repeats the rows forever, every epoch in its order.

    Args:
      batch_size: rows per update; a batch has rows of similar length.
      seed: of the order.
      skip: rows to leave out, whole epochs among them.

    Returns:
      A dataset of (int64 index, serialized row), scalars.
    """

    def read_epochs():
      # Only the first epoch of a resumed run is cut.
      first, position = divmod(skip, len(self))
      for epoch in itertools.count(first):
        order = batch_order.epoch_order(self.lengths, batch_size, seed, epoch)
        order = order[position:]

        # A call of Python for each row would be slow, so it reads many.
        splits = range(_ROWS_PER_READ, len(order), _ROWS_PER_READ)
        yield from np.split(order, splits)
        position = 0

    return self._read_groups(read_epochs).unbatch()

  def batches(
    self, order: Iterable[np.ndarray], parse: Callable[[tf.Tensor], Any]
  ) -> "Batches":
    """Reads and parses batches of rows, given by their indices."""
    return Batches(self.read, order, parse)

  def predict(
    self,
    predictor: Callable[..., dict[str, np.ndarray]],
    order: list[np.ndarray],
    parse: Callable[[tf.Tensor], training_input.Features],
  ) -> dict[str, np.ndarray]:
    """Predicts rows; returns arrays [rows, ...] by name, in the file's order.

    Args:
      predictor: takes a dataset of batches; returns the results joined.
      order: the batches, by the indices of their rows; some rows may occur
        more than once, to fill a batch.
      parse: makes features of serialized rows, string [B].
    """
    # A row that occurs more than once has several results: the first counts.
    indices, first = np.unique(np.concatenate(order), return_index=True)
    with training_input.naming_bad_record(self.find_fault):
      results = predictor(self.batches(order, parse), total=len(indices))
    return {name: result[first] for name, result in results.items()}

  def print_summary(self, line: str, *more_lines: str) -> None:
    """Prints lines about the rows, and where they are."""
    state = "wrote" if self.is_new else "unchanged:"
    print(f"{line}; {state} {self.path}")
    for more in more_lines:
      print(f"  {more}")

  def _read_groups(self, groups: Callable) -> tf.data.Dataset:
    """Yields arrays of indices, int64 [B], and their rows, string [B]."""

    def read():
      for indices in groups():
        # An array of objects: numpy's own strings lose zeros at their end.
        rows = np.empty(len(indices), object)
        rows[:] = self.read(indices)
        yield indices, rows

    signature = tuple(tf.TensorSpec([None], t) for t in (tf.int64, tf.string))
    return tf.data.Dataset.from_generator(read, output_signature=signature)


class Batches:
  """Batches of rows, with the parts of `tf.data.Dataset` that Predictors use.

  A dataset would record and optimize six functions for every evaluation, as
  long as many small batches take.

  Args:
    read: `FeatureFile.read`.
    order: the batches, by the indices of their rows.
    parse: makes the features of serialized rows, string [B].
  """

  def __init__(
    self,
    read: Callable[[np.ndarray], list[bytes]],
    order: Iterable[np.ndarray],
    parse: Callable[[tf.Tensor], Any],
  ):
    self._read = read
    self._order = order
    # Recorded once, for any number of rows.
    rows = tf.TensorSpec([None], tf.string)
    self._parse = tf.function(parse, autograph=False).get_concrete_function(
      rows
    )
    self.element_spec = tf.nest.map_structure(
      lambda x: tf.TensorSpec(x.shape, x.dtype), self._parse.structured_outputs
    )

  def __iter__(self) -> Iterator[Any]:
    for indices in self._order:
      yield self._parse(tf.constant(self._read(indices), tf.string))


def open_or_make(
  path: str,
  key: str,
  rows: Iterable[Row],
  facts: dict[str, Any],
  shows_progress: bool = True,
) -> FeatureFile:
  """Opens a local feature file; makes it unless there is one of this key.

  Args:
    path: of the file; its index is beside it.
    key: the digest of everything that the rows depend on.
    rows: are read only to make the file.
    facts: numbers and texts by name, which reading the rows fills, and which
      the index keeps. If the file exists they stay as they are: read
      `FeatureFile.facts` instead.
    shows_progress: on the terminal, while the file is made.
  """
  # A damaged file, or one of another version, is made anew without a question:
  # its rows can always be made again.
  index = _read_index(path)
  if index and str(index["key"]) == key:
    return FeatureFile(path, index, is_new=False)

  # At the end of the block the rows get their name first, then the index. The
  # old index is removed before that: an index never stands beside other rows.
  # `replace_all_on_success` renames the last path first.
  paths = [_index_path(path), path]
  with atomic.replace_all_on_success(paths) as (index_file, rows_file):
    index = _write_rows(rows_file, rows, shows_progress)
    if not len(index["lengths"]):
      raise ValueError(
        f"{path}: no example to make features of: expected one or more"
      )

    index.update(key=key, facts=json.dumps(facts))
    with open(index_file, "wb") as output:
      np.savez(output, **index)
    files.remove(_index_path(path))
  return FeatureFile(path, index, is_new=True)


def _write_rows(path, rows, shows_progress):
  # Examples are counted, not rows: a user knows how many there are.
  offsets = [0]
  lengths = []
  examples = []
  reporter = progress.Progress(0)
  with open(path, "wb", buffering=1 << 20) as output:
    for row in rows:
      frame = record_writer.frame_record(row.serialized)
      output.write(frame)
      offsets.append(offsets[-1] + len(frame))
      lengths.append(row.length)
      examples.append(row.example)

      if shows_progress and reporter.is_due():
        speed = f"{reporter.units_per_second(row.example):,.0f}/s"
        reporter.print_line(f"{row.example:,} examples  {speed}", row.example)
  progress.clear()
  return {
    "offsets": np.array(offsets, np.int64),
    "lengths": np.array(lengths, np.int32),
    "examples": np.array(examples, np.int32),
  }


def _read_index(path: str) -> dict[str, Any] | None:
  """Reads an index; None if it is missing, damaged or of other rows."""
  try:
    with np.load(_index_path(path), allow_pickle=False) as index:
      is_whole = os.path.getsize(path) == index["offsets"][-1]
      has_all = {"key", "lengths", "examples", "facts"} <= set(index)
      return dict(index) if is_whole and has_all else None
  except (*files.DAMAGED_ARRAY, OSError):
    return None


def _index_path(path: str) -> str:
  return f"{path}.index.npz"
