"""TFRecords as batches; features of pre-training have Google's names."""

# TensorFlow's stubs know neither datasets of datasets nor shapes of features.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false, reportReturnType=false

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import gzip
import hashlib
import os
from typing import NamedTuple
import zlib

from google.protobuf import message
import tensorflow as tf

from bert import modeling
from bert.data import files, packing, record_writer, remote
from bert.inputs import training_input

INPUT_NAMES = packing.INPUT_NAMES
Spec = Mapping[str, tf.io.FixedLenFeature]
_NO_LENGTH = "no length of a record, or this is no TFRecord file"
_READ_ERRORS = (ValueError, EOFError, gzip.BadGzipFile, zlib.error)

# Files read in turns while training, and records shuffled, as in the original:
# the records of a file are shuffled already.
_CYCLE_LENGTH = 4
_SHUFFLE_BUFFER = 100

# Most batches whose records are grouped by length together.
_BATCHES_PER_GROUP = 64

# Files that are larger together are not walked from record to record, which
# reads nearly all of their pages, and takes some seconds per million records.
_MOST_WALKED = 1 << 30
_TAIL = 1 << 20  # Bytes at the end of such a file, where its last records are.

_DIGESTED = 1 << 16  # Bytes of a block that enters the digest of a file.
_BLOCKS_BETWEEN = 64  # Such blocks of all files together, besides their ends.


class RecordId(NamedTuple):
  """Where a record comes from; tensors of the same shape."""

  file: tf.Tensor  # int64, index into the list of files.
  record: tf.Tensor  # int64, index of the record in its file.


def pretraining_spec(max_seq_length: int, max_predictions_per_seq: int) -> Spec:
  """Returns the features of a pre-training example, without the batch axis."""
  per_token = tf.io.FixedLenFeature([max_seq_length], tf.int64)
  per_prediction = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
  weights = tf.io.FixedLenFeature([max_predictions_per_seq], tf.float32)
  return {
    **dict.fromkeys(INPUT_NAMES, per_token),
    "masked_lm_positions": per_prediction,
    "masked_lm_ids": per_prediction,
    "masked_lm_weights": weights,
    "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
  }


class Limit(NamedTuple):
  """What the integers of a feature must stay below."""

  value: int
  origin: str  # Where the value comes from, for an error message.


Limits = Mapping[str, Limit]


def input_limits(config: modeling.EncoderConfig) -> Limits:
  """Returns the limits of a model's inputs."""
  segments = config.type_vocab_size
  return {
    "input_ids": Limit(config.vocab_size, "the config's vocab_size"),
    "segment_ids": Limit(segments, "the config's type_vocab_size"),
  }


def pretraining_limits(
  max_seq_length: int, config: modeling.EncoderConfig
) -> Limits:
  """Returns the limits of a pre-training example's integers."""
  inputs = input_limits(config)
  return {
    **inputs,
    "masked_lm_positions": Limit(max_seq_length, "--max_seq_length"),
    "masked_lm_ids": inputs["input_ids"],
    "next_sentence_labels": Limit(2, "the number of classes"),
  }


def check_files(paths: Sequence[str], spec: Spec, limits: Limits) -> None:
  """Checks the first record of every file, and the framing of local plain ones.

  Of files of more than a gigabyte together, it checks the framing at the end.

  Args:
    paths: of the files.
    spec: the features of a record, without the batch axis.
    limits: of integers, by the name of the feature.

  Raises:
    ValueError: a file is empty, damaged, no TFRecord file, of other features or
      lengths, or holds ids above their limits.
  """
  is_large = not _are_walked(paths)
  for path in paths:
    # Each record takes a while to check; if a later one is wrong, `find_fault`
    # names it when training has failed.
    first = next(read_records(path), None)
    if first is None:
      raise ValueError(f"{path}: holds no record")
    _check_record(path, 0, first, spec, limits)

    # Counting them by their lengths is quick, and shows a file that is cut.
    if _is_walkable(path) and is_large:
      _check_end(path)
    elif _is_walkable(path):
      count_records([path])


def describe_files(paths: Sequence[str]) -> str:
  """Returns the number, size and digest of files; copies have the same.

  The digest is of the sizes and of blocks: both ends of each file, and about 64
  of all of them in between, so that large ones take no time.
  """
  # Several files share the blocks between the ends.
  digest = hashlib.sha256()
  total = 0
  steps = max(1, _BLOCKS_BETWEEN // max(1, len(paths))) + 1
  for path in paths:
    with tf.io.gfile.GFile(path, "rb") as file:
      size = file.size()
      total += size
      digest.update(size.to_bytes(8))

      # The starts of blocks, evenly spread; in a small file they overlap.
      last = max(0, size - _DIGESTED)
      for start in sorted({last * step // steps for step in range(steps + 1)}):
        file.seek(start)
        digest.update(file.read(_DIGESTED))

  count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
  return f"{count} of {total:,} bytes, digest {digest.hexdigest()[:12]}"


def check_unchanged(paths: Sequence[str], identity: str) -> None:
  """Raises a ValueError if files have changed since they were described.

  `identity` is of a `TrainingInput`: it begins with `describe_files`, to which
  other functions append how they changed the rows.
  """
  if not identity.startswith(describe_files(paths)):
    raise ValueError(
      f"{paths[0]}, or another input file, was changed while it was read: "
      "training has learned from both contents; train again"
    )


def find_fault(paths: Sequence[str], spec: Spec, limits: Limits) -> str | None:
  """Reads all records; describes the first that is damaged or does not fit.

  Args:
    paths: of the files.
    spec: the features of a record, without the batch axis.
    limits: of integers, by the name of the feature.

  Returns:
    A message, or None if all records are good.
  """
  for path in paths:
    try:
      for index, serialized in enumerate(read_records(path)):
        _check_record(path, index, serialized, spec, limits)
    except ValueError as error:
      return str(error)
  return None


def training_dataset(
  paths: Sequence[str], seed: int, skip: int = 0
) -> tf.data.Dataset:
  """Repeats the records of files forever, in an order the seed decides.

  Every epoch has each record once, in an order of its own: the files are
  shuffled, four of them are read in turns, and their records go through a
  small buffer that shuffles them.

  Args:
    paths: the files.
    seed: of the order.
    skip: how many records to leave out; whole epochs of them are not even read.

  Returns:
    A dataset of (RecordId, serialized example), scalars.
  """
  # Records are counted only if needed: a compressed file is read for that.
  first_epoch = 0
  if skip:
    first_epoch, skip = divmod(skip, count_records(paths))
  sources = _sources(paths)
  read_file = _make_reader(paths)

  def read_epoch(epoch):
    # Without this, `shuffle` fails with --seed=0. It asks whether (seed of the
    # graph, seed of the epoch) is (0, 0). If the first one is 0 modulo
    # 2^31 - 1, Python compares the second one, too, which is a tensor here and
    # has no truth value in a graph. So the graph of this function gets the seed
    # 1; all other seeds stay.
    graph = tf.compat.v1.get_default_graph()
    if graph.seed in (0, 2**31 - 1):
      graph.seed = 1

    # `deterministic` keeps the order when records are read in parallel.
    order = sources.shuffle(len(paths), seed=seed + epoch)
    examples = order.interleave(
      read_file,
      cycle_length=min(_CYCLE_LENGTH, len(paths)),
      num_parallel_calls=tf.data.AUTOTUNE,
      deterministic=True,
    )
    return examples.shuffle(_SHUFFLE_BUFFER, seed=seed + epoch)

  epochs = tf.data.Dataset.range(first_epoch, tf.int64.max)
  return epochs.flat_map(read_epoch).skip(skip)


def sequential_dataset(paths: Sequence[str]) -> tf.data.Dataset:
  """Yields (RecordId, serialized example), file after file, once."""
  return _sources(paths).flat_map(_make_reader(paths))


def sample_dataset(paths: Sequence[str], most: int) -> tf.data.Dataset:
  """Yields about `most` records, the first ones of up to 16 files."""
  # Divisions are rounded up.
  paths = paths[:: -(-len(paths) // 16)]
  share = -(-most // len(paths))
  read_file = _make_reader(paths)
  return _sources(paths).flat_map(lambda *file: read_file(*file).take(share))


def parse_batch(
  serialized: tf.Tensor, spec: Spec, limits: Limits
) -> dict[str, tf.Tensor]:
  """Parses serialized examples to int32 and float32 tensors.

  Args:
    serialized: string [B].
    spec: the features of a record, without the batch axis.
    limits: of integers; TensorFlow raises an error if one is not below.

  Returns:
    Features [B, ...] by name. TensorFlow reads integers as int64; they become
    int32.
  """
  features = tf.io.parse_example(serialized, spec)
  for name, limit in limits.items():
    # Not every device objects to an id outside the embedding table.
    ids = features[name]
    tf.debugging.assert_less(ids, tf.cast(limit.value, ids.dtype))
    tf.debugging.assert_non_negative(ids)
  return {
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in features.items()
  }


def trim(features: dict[str, tf.Tensor], *names: str) -> dict[str, tf.Tensor]:
  """Cuts the common padding of the named features, [B, ..., S] each."""
  # Not rounded up to round lengths: a quarter of a short batch would be
  # padding, which costs more than round lengths gain.
  length = tf.reduce_max(tf.reduce_sum(features["input_mask"], axis=-1))
  return {
    name: value[..., :length] if name in names else value
    for name, value in features.items()
  }


def group_by_length(
  source: training_input.TrainingInput,
  paths: Sequence[str],
  batch_size: int,
  max_seq_length: int,
  seed: int,
) -> training_input.TrainingInput:
  """Orders a source, of the records of files, by length within groups.

  The series is cut into groups of many batches; the records of a group are
  sorted by length and its batches shuffled.

  Args:
    source: reads and parses the records.
    paths: their files.
    batch_size: rows per update.
    max_seq_length: the length that records are padded to.
    seed: of the order of the batches of a group.
  """
  # The length of a record is the sum of its mask; no other feature is parsed.
  mask = {"input_mask": tf.io.FixedLenFeature([max_seq_length], tf.int64)}

  def reorder(index, group):
    masks = tf.io.parse_example(group[1], mask)["input_mask"]
    order = tf.argsort(tf.reduce_sum(masks, 1), stable=True)

    # Rows of this matrix are batches. The number of the group is in the seed.
    drawn = tf.random.experimental.stateless_shuffle(
      tf.reshape(order, [-1, batch_size]),
      tf.stack([tf.constant(seed, tf.int64), index]),
    )
    return tf.nest.map_structure(
      lambda rows: tf.gather(rows, tf.reshape(drawn, [-1])), group
    )

  def rows(skip):
    # Records are counted only here, so that an evaluation, which takes no rows,
    # need not wait. A group is at most half of an epoch, so that few groups
    # reach into the next one: there a record may come again, and sorting would
    # put both copies side by side.
    count = count_records(paths)
    batches = min(_BATCHES_PER_GROUP, max(1, count // batch_size // 2))
    size = batches * batch_size

    # Training resumes with the first group that it has not finished.
    first = skip // size
    groups = source.rows(first * size).batch(size)
    numbers = tf.data.Dataset.range(first, tf.int64.max)
    ordered = tf.data.Dataset.zip(numbers, groups).map(reorder)
    return ordered.unbatch().skip(skip - first * size)

  return source._replace(
    rows=rows,
    parse=lambda rows: trim(source.parse(rows), *INPUT_NAMES),
    # Batches of another size hold the records in another order.
    identity=f"{source.identity}, grouped by length in batches of {batch_size}",
  )


def _sources(paths: Sequence[str]) -> tf.data.Dataset:
  """Yields index, path and compression of every file."""
  indices = tf.range(len(paths), dtype=tf.int64)
  compressions = [_compression(path) for path in paths]
  return tf.data.Dataset.from_tensor_slices(
    (indices, list(paths), compressions)
  )


def _make_reader(paths: Sequence[str]) -> Callable[..., tf.data.Dataset]:
  """Builds the function that reads a file of `_sources`.

  If a compressed file is cut short where the length of a record should be,
  TensorFlow takes it for the end. So a compressed file that was read is
  decompressed once more, the first time.
  """
  unchecked = set(filter(_compression, paths))

  # A dataset without elements, which is read when the file before it ends.
  def check_once(path):
    """Yields nothing; raises an error if the file is damaged."""
    path = path.decode()
    if path in unchecked:
      check_gzip(path)  # 6 s per gigabyte.
      unchecked.discard(path)
    yield from ()

  def read_file(index, path, compression):
    # Both numbers are endless; `zip` ends with the records.
    row_id = RecordId(
      tf.data.Dataset.from_tensors(index).repeat(),
      tf.data.Dataset.range(tf.int64.max),
    )
    examples = tf.data.TFRecordDataset(path, compression_type=compression)
    if unchecked:
      check_at_end = tf.data.Dataset.from_generator(
        check_once, output_signature=tf.TensorSpec([], tf.string), args=(path,)
      )
      examples = examples.concatenate(check_at_end)
    return tf.data.Dataset.zip((row_id, examples))

  return read_file


def check_gzip(path: str) -> None:
  """Raises an error if a compressed file is damaged."""
  with files.open_bytes(path) as file, gzip.open(file) as text:
    while text.read(1 << 20):
      pass


def _compression(path: str) -> str:
  # A TFRecord starts with its length, 8 bytes, which would have to be 559,903
  # or more to look like the magic number of gzip with deflate.
  with files.open_bytes(path) as file:
    return "GZIP" if file.read(3) == b"\x1f\x8b\x08" else ""


def read_records(path: str) -> Iterator[bytes]:
  """Yields the records; a ValueError names one that is damaged.

  It takes a thirtieth of the time of TensorFlow's reader outside a graph.
  """
  # Index and place of the next record, for messages.
  is_compressed = bool(_compression(path))
  index = 0
  offset = 0
  with files.open_bytes(path) as stored:
    file = gzip.open(stored) if is_compressed else stored
    try:
      # A header is 8 bytes of length and their checksum, 4 bytes.
      while header := file.read(12):
        length = int.from_bytes(header[:8], "little")
        if header != record_writer.frame_header(length):
          raise ValueError(_NO_LENGTH)

        # The checksum of a crafted length may be right.
        try:
          rest = file.read(length + 4)
        except (OverflowError, MemoryError):
          raise ValueError(f"a record of {length:,} bytes") from None
        yield record_writer.unframe_record(header + rest)
        index += 1
        offset += length + 16  # 8 bytes of length and two checksums of 4.
    except _READ_ERRORS as error:
      file_name = f"{path}, decompressed" if is_compressed else path
      raise ValueError(
        f"{file_name}: record {index}, at byte {offset}: {error}"
      ) from None


# Only pre-training checks records in this way, so that messages may name its
# flags. For two of its features: the flags of run_pretraining.py for records
# with the feature, and for records without it.
_FLAGS_BY_FEATURE = {
  "masked_lm_ids": (
    "--dynamic_masking=false; create_pretraining_data.py makes others with "
    "--masks=false",
    "--dynamic_masking=true",
  ),
  "next_sentence_labels": ("--next_sentence=true", "--next_sentence=false"),
}


def _check_record(
  path: str, index: int, serialized: bytes, spec: Spec, limits: Limits
) -> None:
  """Raises a ValueError that names a record which is not as expected."""
  # A record with a good checksum may still be of another program.
  where = f"{path}: record {index}"
  try:
    example = tf.train.Example.FromString(serialized)
  except message.DecodeError as error:
    raise ValueError(f"{where} is not a tf.train.Example") from error

  features = example.features.feature
  _check_names(where, set(features), set(spec))
  for name, expected in spec.items():
    _check_length(where, name, features[name], expected)

  # Ids of another vocabulary may lie outside the tables of the model.
  for name, limit in limits.items():
    values = features[name].int64_list.value
    for value in (min(values), max(values)):
      if not 0 <= value < limit.value:
        raise ValueError(
          f"{where}: {name} holds {value}, {limit.origin} is "
          f"{limit.value}: the records were made for another model"
        )


def _check_names(where: str, names: set[str], expected: set[str]) -> None:
  """Raises a ValueError if a record lacks features, or is of another kind."""
  # A record without segments is of no BERT, and flags would not help.
  for name, (flags_with, flags_without) in _FLAGS_BY_FEATURE.items():
    is_there = name in names
    if is_there != (name in expected) and "segment_ids" in names:
      state = name if is_there else f"no {name}"
      raise ValueError(
        f"{where} has {state}: run_pretraining.py reads such records with "
        f"{flags_with if is_there else flags_without}"
      )

  if missing := sorted(expected - names):
    raise ValueError(
      f"{where} has no feature {', '.join(missing)}; it has "
      f"{', '.join(sorted(names)) or 'none'} (not pre-training records?)"
    )


def _check_length(
  where: str,
  name: str,
  feature: tf.train.Feature,
  expected: tf.io.FixedLenFeature,
) -> None:
  """Raises a ValueError if a feature has another type or number of values."""
  kind = "int64_list" if expected.dtype == tf.int64 else "float_list"
  count = len(getattr(feature, kind).value)
  wanted = expected.shape[0]
  if count == wanted:
    return

  # Without values in this list, the record may have them in another type. No
  # flag says how many classes there are.
  fault = f"{where}: {name} holds {count} values, expected {wanted}"
  if not count or name == "next_sentence_labels":
    raise ValueError(f"{fault} in its {kind}")

  is_input = name in INPUT_NAMES
  flag = "--max_seq_length" if is_input else "--max_predictions_per_seq"
  raise ValueError(
    f"{fault}; pass {flag}={count}, which the records were made with"
  )


def count_records(paths: Sequence[str]) -> int:
  """Counts the records of files; a ValueError if the framing is damaged."""
  # Size and time go to the cache: a file that has changed is counted again.
  count = 0
  for path in paths:
    stat = tf.io.gfile.stat(path)
    count += _count(path, (stat.length, stat.mtime_nsec))
  return count


def count_at_once(paths: Sequence[str]) -> int | None:
  """Counts records; None if that would read or decompress large files."""
  is_quick = all(map(_is_walkable, paths)) and _are_walked(paths)
  return count_records(paths) if is_quick else None


@functools.cache
def _count(path: str, version: tuple[int, int]) -> int:
  """Counts the records of a file of this version: its size and its time."""
  if not _is_walkable(path):
    return sum(1 for _ in read_records(path))

  return _walk(path, 0, version[0])


def _walk(path: str, begin: int, size: int) -> int:
  """Counts the records of a file of this size, from the byte of a header on."""
  # From header to header; the records are not read. A header is the length and
  # its checksum, 12 bytes; the 4 after a record are the checksum of that.
  start = begin
  count = 0
  with open(path, "rb") as file:
    while start < size:
      file.seek(start)
      header = file.read(12)
      length = int.from_bytes(header[:8], "little")
      end = start + length + 16

      fault = ""
      if header != record_writer.frame_header(length):
        fault = _NO_LENGTH
      elif end > size:
        fault = f"the record is cut short; the file has {size} bytes; expected "
        fault += f"{end} or more: copy or make it again"
      if fault:
        number = "" if begin else f"record {count}, "
        raise ValueError(f"{path}: {number}at byte {start}: {fault}")

      start = end
      count += 1
  return count


def _is_walkable(path: str) -> bool:
  return not remote.is_remote(path) and not _compression(path)


def _are_walked(paths: Sequence[str]) -> bool:
  """Returns whether files are small enough together to walk through them."""
  local = [path for path in paths if not remote.is_remote(path)]
  return sum(map(os.path.getsize, local)) <= _MOST_WALKED


def _check_end(path: str) -> None:
  """Raises a ValueError if the last records of a file are cut or damaged."""
  size = os.path.getsize(path)
  start = max(0, size - _TAIL)
  with open(path, "rb") as file:
    file.seek(start)
    tail = file.read()

  # Where a record begins is unknown, but a header is known by its checksum:
  # other bytes have a right one once in 2^32 places.
  for place in range(len(tail)):
    header = tail[place : place + 12]
    length = int.from_bytes(header[:8], "little")
    if header == record_writer.frame_header(length):
      _walk(path, start + place, size)
      return
  raise ValueError(f"{path}: behind byte {start}: {_NO_LENGTH}")
