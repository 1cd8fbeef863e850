"""TFRecords of pre-training examples as batches of tensors.

The feature names and their order are Google's, so files are interchangeable.
Writing is in record_writer.py, which does without TensorFlow.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import os
from typing import NamedTuple

import tensorflow as tf

Spec = dict[str, tf.io.FixedLenFeature]

# How many files are read in turns while training, and how many records are
# shuffled: the original's numbers. The records of a file are shuffled already.
_CYCLE_LENGTH = 4
_SHUFFLE_BUFFER = 100


class RecordId(NamedTuple):
  """Where a record comes from; tensors of the same shape."""

  file: tf.Tensor  # int64, index into the list of files.
  record: tf.Tensor  # int64, index of the record in its file.


def pretraining_spec(max_seq_length: int, max_predictions_per_seq: int) -> Spec:
  """Returns the features of a pre-training example, without the batch axis."""
  per_token = tf.io.FixedLenFeature([max_seq_length], tf.int64)
  per_prediction = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
  return {
    "input_ids": per_token,
    "input_mask": per_token,
    "segment_ids": per_token,
    "masked_lm_positions": per_prediction,
    "masked_lm_ids": per_prediction,
    "masked_lm_weights": tf.io.FixedLenFeature(
      [max_predictions_per_seq], tf.float32
    ),
    "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
  }


def check_files(paths: Sequence[str], spec: Spec, vocab_size: int) -> None:
  """Checks the head of every file, and the framing of local ones, before work.

  Raises:
    ValueError: naming the file, if it is empty, not a TFRecord file, cut short,
      of other features or lengths, or holds ids outside the vocabulary.
  """
  for path in paths:
    records = _read_records(path)
    serialized = next(records, None)
    if serialized is None:
      raise ValueError(f"{path}: holds no record")
    _check_features(path, 0, serialized, spec)
    _check_ids(path, 0, serialized, vocab_size)
    _check_framing(path)


def find_fault(paths: Sequence[str], spec: Spec, vocab_size: int) -> str | None:
  """Reads all records and describes the first that is damaged or does not fit.

  This is slow; it explains a failure that has already happened.
  """
  for path in paths:
    try:
      for index, serialized in enumerate(_read_records(path)):
        _check_features(path, index, serialized, spec)
        _check_ids(path, index, serialized, vocab_size)
    except ValueError as error:
      return str(error)
  return None


def training_dataset(
  paths: Sequence[str], seed: int, skip: int = 0
) -> tf.data.Dataset:
  """Repeats the records of files for ever, in an order the seed decides.

  Every epoch has an order of its own. The dataset is deterministic: skipping n
  continues exactly where a run that took n records stopped.

  Args:
    paths: TFRecord files, compressed or not.
    seed: decides the order.
    skip: records that an earlier run has taken.

  Yields:
    (RecordId, serialized example), scalars.
  """
  sources = tf.data.Dataset.zip(
    tf.data.Dataset.range(len(paths)),
    tf.data.Dataset.from_tensor_slices(list(paths)),
    tf.data.Dataset.from_tensor_slices([_compression(p) for p in paths]),
  )
  files = sources.shuffle(len(paths), seed=seed).repeat()
  records = files.interleave(
    _read_file,
    cycle_length=min(_CYCLE_LENGTH, len(paths)),
    num_parallel_calls=tf.data.AUTOTUNE,
    deterministic=True,
  )
  return records.shuffle(_SHUFFLE_BUFFER, seed=seed).skip(skip)


def sequential_dataset(paths: Sequence[str]) -> tf.data.Dataset:
  """Yields (RecordId, serialized example), file after file, once."""
  files = tf.data.Dataset.zip(
    tf.data.Dataset.range(len(paths)),
    tf.data.Dataset.from_tensor_slices(list(paths)),
    tf.data.Dataset.from_tensor_slices([_compression(p) for p in paths]),
  )
  return files.flat_map(_read_file)


def parse_batch(
  serialized: tf.Tensor, spec: Spec, vocab_size: int
) -> dict[str, tf.Tensor]:
  """Parses serialized examples, a string [B], to int32 and float32 tensors."""
  features = tf.io.parse_example(serialized, spec)
  features = {
    name: tf.cast(value, tf.int32) if value.dtype == tf.int64 else value
    for name, value in features.items()
  }
  for name in ("input_ids", "masked_lm_ids"):
    # Not every device objects to an id outside the embedding table.
    tf.debugging.assert_less(features[name], vocab_size)
    tf.debugging.assert_non_negative(features[name])
  return features


def _read_file(index, path, compression) -> tf.data.Dataset:
  records = tf.data.TFRecordDataset(path, compression_type=compression)
  return records.enumerate().map(
    lambda record, serialized: (RecordId(index, record), serialized)
  )


def _compression(path: str) -> str:
  # A TFRecord starts with its length, 8 bytes, which would have to be 559,903
  # or more to look like the magic number of gzip with deflate.
  with tf.io.gfile.GFile(path, "rb") as file:
    return "GZIP" if file.read(3) == b"\x1f\x8b\x08" else ""


def _read_records(path: str) -> Iterator[bytes]:
  count = 0
  try:
    records = tf.data.TFRecordDataset(path, compression_type=_compression(path))
    for serialized in records:
      yield serialized.numpy()
      count += 1
  except tf.errors.OpError as error:
    raise ValueError(
      f"{path}: record {count} is damaged or cut short, or this is not a "
      f"TFRecord file: {error.message.split(' [Op')[0]}"
    ) from error


def _check_features(
  path: str, index: int, serialized: bytes, spec: Spec
) -> None:
  where = f"{path}: record {index}"
  try:
    example = tf.train.Example.FromString(serialized)
  except ValueError as error:  # protobuf's DecodeError is one.
    raise ValueError(f"{where} is not a tf.train.Example") from error
  found = example.features.feature
  if missing := sorted(set(spec) - set(found)):
    raise ValueError(
      f"{where} has no feature {', '.join(missing)}; it has "
      f"{', '.join(sorted(found)) or 'none'} (not pre-training records?)"
    )
  for name, feature in spec.items():
    kind = "int64_list" if feature.dtype == tf.int64 else "float_list"
    values = getattr(found[name], kind).value
    if len(values) != feature.shape[0]:
      flag = (
        "--max_seq_length"
        if name in ("input_ids", "input_mask", "segment_ids")
        else "--max_predictions_per_seq"
      )
      raise ValueError(
        f"{where}: {name} holds {len(values)} values, expected "
        f"{feature.shape[0]}; pass {flag}={len(values)}, which the records "
        "were made with"
      )


def _check_ids(
  path: str, index: int, serialized: bytes, vocab_size: int
) -> None:
  found = tf.train.Example.FromString(serialized).features.feature
  for name in ("input_ids", "masked_lm_ids"):
    values = found[name].int64_list.value
    if max(values) >= vocab_size or min(values) < 0:
      raise ValueError(
        f"{path}: record {index}: {name} holds {max(values)}, the config's "
        f"vocab_size is {vocab_size}: the records were made with another "
        "vocabulary"
      )


def _check_framing(path: str) -> None:
  """Walks from record to record of a local, plain file; reads no record."""
  if "://" in path or _compression(path):
    return
  size, offset = os.path.getsize(path), 0
  with open(path, "rb") as file:
    while offset < size:
      file.seek(offset)
      header = file.read(12)  # Length, 8 bytes, and its checksum, 4.
      following = offset + 16 + int.from_bytes(header[:8], "little")
      if len(header) < 12 or following > size:
        raise ValueError(
          f"{path}: the record at byte {offset} is cut short; the file has "
          f"{size} bytes"
        )
      offset = following
