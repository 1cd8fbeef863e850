"""Feature files: TFRecords with an index, read in batches of similar length.

A feature file is what the original wrote before training (`train.tf_record`): a
tf.train.Example per row, padded to max_seq_length. By the index beside it, rows
are read in any order. Its key is the digest of everything that affects them: if
it has changed, the file is made again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import types
from typing import Any, NamedTuple
import zipfile

import numpy as np
import tensorflow as tf

from bert import modeling, tokenization
from bert.data import atomic, files, progress, record_writer
from bert.inputs import records, training_input
from bert.vocabularies import lost_letters, vocabulary_table

# Batches of shuffled rows that are sorted by length together, at most a quarter
# of the rows. More pad less, fewer mix better.
_BATCHES_PER_CHUNK = 50
_ROWS_PER_READ = 256
# The fields of the tasks' examples that hold texts.
_TEXTS = ("text_a", "text_b", "text", "context", "question", "choices")
# Tokens of padding that cost as much time as one more batch; measured with a
# base model on a CPU: about 80 in float32, 300 in bfloat16.
_MAX_PADDING = 128


class Row(NamedTuple):
  """A row to be written."""

  serialized: bytes
  length: int  # Tokens before the padding.
  example: int  # Index of the example that it is of, or a window of.


def make_key(settings: dict[str, Any], paths: Sequence[str]) -> str:
  """Returns a digest of settings, but for their paths, and of these files."""
  text = json.dumps(settings, sort_keys=True)
  for number, path in enumerate(paths):
    ending = os.path.basename(path).partition(".")[2]  # It shows the format.
    text = text.replace(json.dumps(path), json.dumps([number, ending]))
  digest = hashlib.sha256(text.encode())
  for path in paths:
    digest.update(files.hash_file(path).encode())
  return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class FeatureSettings:
  """What shapes the features of all tasks besides the data."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int


@dataclasses.dataclass(eq=False, kw_only=True)
class FeatureSet:
  """A set of examples, and its features once a task has made them."""

  kind: str  # "train", "eval" or "predict"; names the feature file.
  settings: FeatureSettings
  paths: tuple[str, ...]  # The files of the data.
  source: dict[str, Any]  # Which data of the files, as JSON values.
  read: Callable[[], Iterator[Any]]  # Yields all examples; each has a `place`.
  limit: int | None = None  # The most examples to train on; None for all.
  numbers: frozenset[int] | None = None  # Those to use, from 0; None for all.
  shows_progress: bool = True  # While the features are made.
  version: int = 1  # Raised when other features are made of the same input.
  name: str = ""  # Such as "matched", if there are several of the kind.
  suffix: str = ""  # Such as "_mismatched": what names of its files end in.
  features: "FeatureFile" = dataclasses.field(init=False)
  layout: "Layout" = dataclasses.field(init=False)  # The rows'.

  def __post_init__(self) -> None:
    if self.kind != "train":
      self.limit = None

  def _make_key(self) -> str:
    """Returns a digest of everything that affects the features."""
    settings = {**dataclasses.asdict(self.settings), **self.source}
    settings["version"] = self.version
    if self.limit is not None:
      settings["max_examples"] = self.limit
    return make_key(settings, [self.settings.vocab_file, *self.paths])

  key = functools.cached_property(_make_key)

  @functools.cached_property
  def parts(self) -> dict[str, Any]:
    """What the key is a digest of, as JSON values, to say what has changed.

    That is flags and columns by name, and `files`: their names and digests.
    """
    parts = {**dataclasses.asdict(self.settings), **dict(_leaves(self.source))}
    for name in ("vocab_file", "path"):
      parts.pop(name, None)
    hashes = [[os.path.basename(p), files.hash_file(p)] for p in self.paths]
    return {**parts, "max_train_examples": self.limit, "files": hashes}

  def check_unchanged(self) -> None:
    """Raises a ValueError if the files are no longer what they were."""
    if self._make_key() != self.key:
      paths = ", ".join([self.settings.vocab_file, *self.paths])
      raise ValueError(f"{paths}: changed while the program ran; run it again")

  def examples(self) -> Iterator[Any]:
    """Reads the examples; a ValueError if their files have changed."""
    yield from self.select(self.read())
    self.check_unchanged()

  def select(self, examples: Iterable[Any]) -> Iterator[Any]:
    """Yields those of all examples of the files that are in this set."""
    chosen = (
      example
      for number, example in enumerate(examples)
      if self.numbers is None or number in self.numbers
    )
    return itertools.islice(chosen, self.limit)

  def describe(self, index: int) -> str:
    """Says where an example, by its number from 0, is from."""
    return next(itertools.islice(self.examples(), index, None)).location

  def report_lost_letters(self) -> None:
    """Says what lower-casing strips from the first texts, if it does."""
    vocab_file, lowers = self.settings.vocab_file, self.settings.do_lower_case
    if vocabulary_table.strips_marks(vocab_file, lowers):
      texts = _texts_of(self.select(self.read()))
      lost_letters.report(texts, ", ".join(self.paths))

  @property
  def is_labelled(self) -> bool:
    """Whether the labels of its examples are known."""
    return self.features.counts["labelled"] > 0

  @property
  def rows_per_epoch(self) -> int:
    """How many rows --num_train_epochs counts as one epoch."""
    return len(self.features)

  def make_tokenizer(self) -> tokenization.FullTokenizer:
    """Makes the tokenizer of the settings."""
    return vocabulary_table.make_tokenizer(
      self.settings.vocab_file, self.settings.do_lower_case
    )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
  """Yields the values in nested objects and lists of objects, by name."""
  if isinstance(value, dict):
    for key, inner in value.items():
      yield from _leaves(inner, key)
  elif (
    isinstance(value, (list, tuple)) and value and isinstance(value[0], dict)
  ):
    for inner in value:
      yield from _leaves(inner, name)
  else:
    yield name, value


def find_set(
  read: Callable[[str], Iterator[Any]],
  kind: str,
  path: str,
  settings: FeatureSettings,
  limit: int | None = None,
) -> FeatureSet:
  """Returns the examples that a function reads from a file."""
  return FeatureSet(
    kind=kind,
    settings=settings,
    paths=(path,),
    source={"path": path},
    read=functools.partial(read, path),
    limit=limit,
  )


class FeatureFile:
  """The rows of a local feature file; `open_or_make` opens it."""

  def __init__(self, path: str, index: dict[str, Any], is_new: bool):
    self.path, self.key = path, str(index["key"])
    self.is_new = is_new  # Whether this process made it.
    self.lengths: np.ndarray = index["lengths"]  # int32 [N], tokens of rows.
    self.examples: np.ndarray = index["examples"]  # int32 [N], see `Row`.
    # Numbers and texts that were counted while the file was made.
    self.counts: dict[str, Any] = json.loads(str(index["facts"]))
    self._others = None  # A file with more features of the rows, and where.
    self._offsets = index["offsets"]  # int64 [N + 1], the last is the size.
    self._file = open(path, "rb", buffering=0)

  def __len__(self) -> int:
    return len(self.lengths)

  def read(self, indices: Sequence[int] | np.ndarray) -> list[bytes]:
    """Reads rows; a ValueError names one that is damaged."""
    rows = []
    for index in indices:
      start, end = self._offsets[index], self._offsets[index + 1]
      frame = os.pread(self._file.fileno(), int(end - start), int(start))
      try:
        rows.append(record_writer.unframe_record(frame))
      except ValueError as error:
        raise ValueError(
          f"{self.path}: record {index}, at byte {start}: {error}; delete the "
          "file and it will be made again"
        ) from None
    if self._others:  # Examples that follow each other are read as one.
      file, places = self._others
      rows = [*map(bytes.__add__, rows, file.read(places[indices]))]
    return rows

  def add_features(self, others: "FeatureFile") -> None:
    """Adds those of a file whose `examples` are the numbers of rows here."""
    self._others = others, np.unique(others.examples, return_index=True)[1]

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
    """Repeats the rows forever, every epoch in its `epoch_order`.

    Yields (int64 index, serialized row), scalars, without the first `skip`.
    """

    def read_epochs():
      first, position = divmod(skip, len(self))
      for epoch in itertools.count(first):
        order = epoch_order(self.lengths, batch_size, seed, epoch)[position:]
        splits = range(_ROWS_PER_READ, len(order), _ROWS_PER_READ)
        yield from np.split(order, splits)
        position = 0

    return self._read_groups(read_epochs).unbatch()

  def batches(
    self, order: Iterable[np.ndarray], parse: Callable[[tf.Tensor], Any]
  ) -> tf.data.Dataset:
    """Reads and parses batches of rows, given by their indices."""
    batches = self._read_groups(lambda: order).map(
      lambda indices, serialized: parse(serialized),
      num_parallel_calls=tf.data.AUTOTUNE,
      deterministic=True,
    )
    return training_input.prefetch(batches, 4)

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


def open_or_make(
  data: FeatureSet, folder: str, rows: Iterable[Row], counts: dict[str, Any]
) -> FeatureFile:
  """Opens the feature file of a set, made now unless one has its key.

  It is in a local folder. `rows` are read to make it; they fill `counts`.
  """
  path = os.path.join(folder, f"{data.kind}{data.suffix}.tf_record")
  index = _read_index(path)
  is_new = False
  if not index or str(index["key"]) != data.key:
    is_new = True
    # The last is renamed first: an index never stands beside rows of another.
    paths = [_index_path(path), path]
    with atomic.replace_all_on_success(paths) as (index_file, rows_file):
      index = _write_rows(rows_file, rows, data.shows_progress)
      data.check_unchanged()
      if not len(index["lengths"]):
        raise ValueError(f"{path}: no example to make features of")
      index.update(key=data.key, facts=json.dumps(counts))
      with open(index_file, "wb") as output:
        np.savez(output, **index)
      files.remove(_index_path(path))
    data.report_lost_letters()
  data.features = FeatureFile(path, index, is_new)
  return data.features


def _texts_of(examples: Iterable[Any]) -> Iterator[str]:
  for example in examples:
    for name in _TEXTS:
      value = getattr(example, name, None) or ()
      yield from [value] if isinstance(value, str) else value


def print_summary(features: FeatureFile, line: str, *others: str) -> None:
  """Prints lines about features, and where they are."""
  state = "wrote" if features.is_new else "unchanged:"
  print(f"{line}; {state} {features.path}")
  print(*(f"  {other}\n" for other in others), sep="", end="")


def _write_rows(path, rows, shows_progress):
  offsets, lengths, examples = [0], [], []
  reporter = progress.Progress(0)
  with open(path, "wb", buffering=1 << 20) as output:
    for row in rows:
      output.write(frame := record_writer.frame_record(row.serialized))
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
  except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
    return None
  except RuntimeError:  # The head of the zip file asks for another reader.
    return None


def _index_path(path: str) -> str:
  return f"{path}.index.npz"


def training_source(
  data: FeatureSet,
  parse: Callable[[tf.Tensor], training_input.Features],
  batch_size: int,
  seed: int,
) -> training_input.TrainingInput:
  """Makes the endless rows that a model is trained on."""
  features = data.features
  return training_input.TrainingInput(
    rows=functools.partial(features.training_rows, batch_size, seed),
    parse=parse,
    describe_row=lambda row: data.describe(int(features.examples[row])),
    find_fault=features.find_fault,
    identity=features.key,
  )


def predict(
  predictor: Callable[..., dict[str, np.ndarray]],
  features: FeatureFile,
  order: list[np.ndarray],
  parse: Callable[[tf.Tensor], training_input.Features],
) -> dict[str, np.ndarray]:
  """Predicts rows; returns arrays [rows, ...] by name, in the file's order.

  `order` holds the batches, by the indices of their rows; some may be repeated.
  """
  indices, first = np.unique(np.concatenate(order), return_index=True)
  with training_input.naming_bad_record(features.find_fault):
    results = predictor(features.batches(order, parse), total=len(indices))
  return {name: result[first] for name, result in results.items()}


def epoch_order(
  lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> np.ndarray:
  """Orders an epoch's rows so that every batch holds rows of similar length.

  Rows are shuffled, sorted by length within chunks of many batches, and the
  batches shuffled again: a batch is random except for its length. An epoch
  begins with the rows that complete the last batch of the one before.

  `lengths` is int [N], tokens per row; returns int64 [N], each index once.
  """
  count = len(lengths)
  random = np.random.default_rng([seed % 2**64, epoch])
  order = random.permutation(count)
  begun = min(-epoch * count % batch_size, count)
  whole = (count - begun) // batch_size * batch_size
  body = order[begun : begun + whole]
  most = max(1, count // (4 * batch_size))
  chunk = batch_size * min(_BATCHES_PER_CHUNK, most)
  for start in range(0, whole, chunk):
    part = body[start : start + chunk]
    body[start : start + chunk] = part[np.argsort(lengths[part], kind="stable")]
  batches = body.reshape(-1, batch_size)
  order[begun : begun + whole] = random.permutation(batches).ravel()
  return order


def batches_by_tokens(
  lengths: np.ndarray, tokens_per_batch: int
) -> list[np.ndarray]:
  """Splits rows, longest first, into batches that take equal work.

  Returns int64 indices, each row once. `lengths` is int [N], tokens per row. A
  batch holds at most `tokens_per_batch`, with padding, or one row; it ends
  earlier where its padding would cost more than another batch.
  """
  order = np.argsort(-lengths.astype(np.int64), kind="stable")
  lengths = lengths[order].astype(np.int64)
  batches, start = [], 0
  while start < len(order):
    rows = max(1, tokens_per_batch // int(lengths[start]))
    padding = np.cumsum(lengths[start] - lengths[start : start + rows])
    rows = int(np.searchsorted(padding, _MAX_PADDING, side="right"))
    batches.append(order[start : start + rows])
    start += rows
  return batches


def make_batches(
  lengths: np.ndarray, batch_size: int, max_seq_length: int, is_static: bool
) -> list[np.ndarray]:
  """Returns the batches to predict, as indices of rows of int [N] lengths.

  A batch has `batch_size` rows of max_seq_length, more if they are shorter. If
  all must have one shape, the last row fills up the last batch.
  """
  if not is_static:
    return batches_by_tokens(lengths, batch_size * max_seq_length)
  padded = -(-len(lengths) // batch_size) * batch_size
  indices = np.minimum(np.arange(padded), len(lengths) - 1)
  return list(indices.reshape(-1, batch_size))


class Layout(NamedTuple):
  """The features of a row besides its three inputs."""

  shape: tuple[int, ...]  # For input_ids, input_mask, segment_ids: (..., S).
  per_token: tuple[str, ...] = ()  # Names of other integers of that shape.
  others: records.Spec = types.MappingProxyType({})
  limits: records.Limits = types.MappingProxyType({})  # For other integers.


def make_parser(
  layout: Layout, config: modeling.EncoderConfig, is_static: bool
) -> Callable[[tf.Tensor], training_input.Features]:
  """Returns the function from serialized rows, string [B], to features."""
  inputs = (*records.INPUT_NAMES, *layout.per_token)
  integers = tf.io.FixedLenFeature(list(layout.shape), tf.int64)
  spec = {**dict.fromkeys(inputs, integers), **layout.others}
  limits = {**records.input_limits(config), **layout.limits}

  def parse(serialized):
    features = records.parse_batch(serialized, spec, limits)
    return features if is_static else records.trim(features, *inputs)

  return parse
