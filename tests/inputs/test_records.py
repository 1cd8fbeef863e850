"""Records as batches: their order, and how what does not fit is named."""

import collections
import gzip
import re
import threading
import zlib

import numpy as np
import pytest
import tensorflow as tf

from bert import modeling
from bert.data import record_writer
from bert.inputs import records, training_input
import tiny

SPEC = records.pretraining_spec(tiny.SEQUENCE, tiny.PREDICTIONS)
CONFIG = modeling.EncoderConfig(tiny.RECORD_IDS, type_vocab_size=2)
LIMITS = records.pretraining_limits(tiny.SEQUENCE, CONFIG)
GROUPED = (4, tiny.SEQUENCE, 1)  # Records a batch, their length, a seed.
OVER_AND_OVER = 250


@pytest.fixture(name="paths", scope="module")
def write_three_files(tmp_path_factory):
  """30, 7 and 20 records; the last file is compressed, whatever its name."""
  folder = tmp_path_factory.mktemp("records")
  return [
    tiny.write_records(folder / "a.tfrecord", range(30)),
    tiny.write_records(folder / "b.tfrecord", range(30, 37)),
    tiny.write_records(folder / "c.tfrecord", range(37, 57), compress=True),
  ]


def every_record(files):
  sizes = enumerate([30, 7, 20][:files])
  return [(file, record) for file, size in sizes for record in range(size)]


def take(dataset, count):
  """Returns the (file, record) of the first elements."""
  return [(int(row.file), int(row.record)) for row, _ in dataset.take(count)]


def test_sequential_dataset_reads_file_after_file(paths):
  rows = list(records.sequential_dataset(paths))
  found = [(int(row.file), int(row.record)) for row, _ in rows]
  assert found == every_record(3)
  expected = [tiny.encode(tiny.make_values(number)) for number in range(57)]
  assert [serialized.numpy() for _, serialized in rows] == expected


def test_a_compressed_file_is_recognised_by_its_bytes(tmp_path):
  path = tiny.write_records(tmp_path / "one.gz", [5])
  ((_, serialized),) = records.sequential_dataset([path])
  assert serialized == tiny.encode(tiny.make_values(5))
  records.check_files([path], SPEC, LIMITS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_record_once_an_epoch_in_another_order(count, paths):
  paths, every = paths[:count], every_record(count)
  rows = take(records.training_dataset(paths, seed=1), 3 * len(every))
  epochs = [rows[i : i + len(every)] for i in range(0, len(rows), len(every))]
  assert [sorted(epoch) for epoch in epochs] == [every] * 3
  assert len({tuple(epoch) for epoch in [*epochs, every]}) == 4
  assert take(records.training_dataset(paths, 1), 3 * len(every)) == rows
  assert take(records.training_dataset(paths, 2), 3 * len(every)) != rows


def test_many_files_are_all_read(paths):
  rows = take(records.training_dataset(paths[1:2] * 9, seed=1), 63)
  counts = collections.Counter(file for file, _ in rows)
  assert counts == dict.fromkeys(range(9), 7)


@pytest.mark.parametrize("seed", [0, 2**31 - 1])
def test_seeds_that_are_0_to_tensorflow(seed, paths):
  tf.random.set_seed(seed)
  found = take(records.training_dataset(paths, seed), 57)
  assert len(set(found)) == 57 and found != sorted(found)


@pytest.mark.parametrize("skip", [1, 56, 57, 58, 114, 200])
def test_skipping_continues_exactly(skip, paths):
  rows = take(records.training_dataset(paths, seed=1), OVER_AND_OVER)
  rest = records.training_dataset(paths, seed=1, skip=skip)
  assert take(rest, OVER_AND_OVER - skip) == rows[skip:]
  # A year's worth of records: only an arithmetic skip ends.
  rest = records.training_dataset(paths, 1, skip + 57 * 10**12)
  assert len(take(rest, 5)) == 5


def test_batches_of_similar_length(tmp_path):
  path = tiny.write_records(tmp_path / "64.tfrecord", range(64))
  lengths = [sum(tiny.make_values(i)["input_mask"]) for i in range(64)]
  source = training_input.TrainingInput(
    lambda skip: records.training_dataset([path], 1, skip), *3 * [None], "tiny"
  )
  grouped = records.group_by_length(source, [path], *GROUPED)
  assert grouped.identity == "tiny, grouped by length in batches of 4"
  rows = take(grouped.rows(0), 192)
  batches = np.reshape([lengths[row] for _, row in rows], [-1, 4])
  assert np.ptp(batches, axis=1).mean() < 2 < np.ptp(lengths)
  assert len(set(rows[:64])) == 64  # An epoch has each record once.
  assert list(batches[:8, 0]) != sorted(batches[:8, 0])
  for skip in (1, 31, 32, 100):
    assert take(grouped.rows(skip), 192 - skip) == rows[skip:]


def test_records_are_counted_when_rows_are_asked_for(tmp_path, monkeypatch):
  """An evaluation with --group_by_length does not read the training records."""
  path = tiny.write_records(tmp_path / "a.gz", range(8), compress=True)
  source = training_input.TrainingInput(
    lambda skip: records.training_dataset([path], 1, skip), *3 * [None]
  )
  read = []
  monkeypatch.setattr(records, "read_records", lambda p: read.append(p) or [])
  grouped = records.group_by_length(source, [path], *GROUPED)
  assert not read
  grouped.rows(0)
  assert read == [path]


def test_parse_batch():
  values = [tiny.make_values(number) for number in (1, 2)]
  serialized = tf.constant([tiny.encode(value) for value in values])
  features = records.parse_batch(serialized, SPEC, LIMITS)
  assert sorted(features) == sorted(SPEC)
  for name, feature in features.items():
    weights = name == "masked_lm_weights"
    assert feature.dtype == (tf.float32 if weights else tf.int32)
    np.testing.assert_array_equal(feature, [value[name] for value in values])


def test_an_id_beyond_32_bits_does_not_wrap():
  values = tiny.make_values(1)
  values["input_ids"] = [2**32 + 5, *values["input_ids"][1:]]
  with pytest.raises(tf.errors.InvalidArgumentError):
    records.parse_batch(tf.constant([tiny.encode(values)]), SPEC, LIMITS)


def test_a_compressed_file_may_be_read_twice_at_once(tmp_path, monkeypatch):
  path = tiny.write_records(tmp_path / "a.gz", range(20), compress=True)
  both = threading.Barrier(2)
  monkeypatch.setattr(records, "check_gzip", lambda path: both.wait(60))
  assert len(take(records.training_dataset([path, path], 1), 100)) == 100


def test_compressed_records_are_counted_once(tmp_path, monkeypatch):
  path = tiny.write_records(tmp_path / "a.gz", range(20), compress=True)
  assert records.count_records([path, path]) == 40
  monkeypatch.setattr(records, "read_records", None)
  assert records.count_records([path]) == 20


def frame(*records):
  return b"".join(map(record_writer.frame_record, records))


def frame_features(feature, *names):
  return frame(record_writer.encode_example(dict.fromkeys(names, feature)))


def change(name, value):
  """Returns a file whose third record holds another value."""
  examples = [tiny.make_values(number) for number in range(3)]
  examples[2][name][0] = value
  return frame(*map(tiny.encode, examples))


def cut_gzip(size):
  packer = zlib.compressobj(wbits=31)
  return packer.compress(GOOD[:size]) + packer.flush(zlib.Z_SYNC_FLUSH)


def damage(place):
  return GOOD[:place] + bytes([GOOD[place] ^ 255]) + GOOD[place + 1 :]


# An example is 245 bytes, a record of it 261.
GOOD = frame(*(tiny.encode(tiny.make_values(number)) for number in range(3)))
FAULTS = [
  (b"", ": holds no record"),
  (
    b"a text that is long enough to have a header, and more\n",
    ": record 0, at byte 0: no length of a record, or this is no TFRecord file",
  ),
  (
    frame_features(record_writer.int64_feature([1]), "id"),
    ": record 0 has no feature input_ids, input_mask, masked_lm_ids, "
    "masked_lm_positions, masked_lm_weights, next_sentence_labels, "
    "segment_ids; it has id (not pre-training records?)",
  ),
  (frame(b"\xff no message"), ": record 0 is not a tf.train.Example"),
  (
    GOOD[:-100],
    ": record 2, at byte 522: the record is cut short; the file has 683 bytes",
  ),
  (GOOD + b"\5\0\0", ": record 3, at byte 783: no length of a record, or "),
  (damage(262), ": record 1, at byte 261: no length of a record, or this is "),
  (
    GOOD + record_writer.frame_header(1 << 63),
    ": record 3, at byte 783: the record is cut short; the file has 795 bytes",
  ),
  (
    frame(tiny.encode(tiny.make_values(0, sequence=32))),
    ": record 0: input_ids holds 32 values, expected 16; pass "
    "--max_seq_length=32, which the records were made with",
  ),
  (
    frame(tiny.encode(tiny.make_values(0, predictions=20))),
    ": record 0: masked_lm_positions holds 20 values, expected 4; pass "
    "--max_predictions_per_seq=20, which the records were made with",
  ),
  (
    frame_features(record_writer.float_feature([1.0]), *SPEC),
    ": record 0: input_ids holds 0 values, expected 16 in its int64_list",
  ),
]
LATE_FAULTS = [
  (damage(300), ": record 1, at byte 261: the record is damaged or cut short"),
  (
    gzip.compress(GOOD + record_writer.frame_header(1 << 63)),
    ", decompressed: record 3, at byte 783: a record of 9,223,372,036,85",
  ),
  *(
    (cut_gzip(size), ", decompressed: record 2, at byte 522: ")
    for size in (522, 527, 622)
  ),
]
for name, value, limit in (
  ("input_ids", 40, "the config's vocab_size is 40"),
  ("segment_ids", 2, "the config's type_vocab_size is 2"),
  ("masked_lm_positions", 16, "--max_seq_length is 16"),
  ("masked_lm_ids", -1, "the config's vocab_size is 40"),
):
  message = f"{limit}: the records were made for another model"
  message = f": record 2: {name} holds {value}, {message}"
  LATE_FAULTS.append((change(name, value), message))


CASES = [(*fault, False) for fault in FAULTS]
CASES += [(*fault, True) for fault in LATE_FAULTS]


@pytest.mark.parametrize(
  ("content", "message", "is_late"), CASES, ids=range(len(CASES))
)
def test_a_fault_is_named_at_once_or_if_training_meets_it(
  content, message, is_late, tmp_path
):
  path = tmp_path / "wrong.tfrecord"
  path.write_bytes(content)
  good = tiny.write_records(tmp_path / "good.tfrecord", range(3))
  if is_late:
    records.check_files([good, str(path)], SPEC, LIMITS)
    with pytest.raises(tf.errors.OpError):
      for _, row in records.training_dataset([str(path)], seed=1).take(3):
        records.parse_batch(row[None], SPEC, LIMITS)
    fault = records.find_fault([good, str(path)], SPEC, LIMITS)
  else:
    with pytest.raises(ValueError) as caught:
      records.check_files([good, str(path)], SPEC, LIMITS)
    fault = str(caught.value)
  assert fault.startswith(f"{path}{message}") and "\n" not in fault


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (GOOD, None),
    (damage(262), None),  # Before the end, which training would meet.
    (
      GOOD[:-1],
      ": at byte 522: the record is cut short; the file has 782 byte",
    ),
    (GOOD + b"\5\0\0", ": at byte 783: no length of a record, or this"),
    (
      GOOD + bytes(1000),
      ": behind byte 1283: no length of a record, or this is",
    ),
  ],
)
def test_of_large_files_the_end_is_checked(
  content, message, tmp_path, monkeypatch
):
  path = tmp_path / "large.tfrecord"
  path.write_bytes(content)
  monkeypatch.setattr(records, "_MOST_WALKED", 700)
  monkeypatch.setattr(records, "_TAIL", 500)
  assert records.count_at_once([str(path)]) is None
  if not message:
    records.check_files([str(path)], SPEC, LIMITS)
    return
  with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
    records.check_files([str(path)], SPEC, LIMITS)


def test_compressed_files_in_parts_are_read(tmp_path):
  path = tmp_path / "two.tfrecord"
  path.write_bytes(gzip.compress(GOOD[:261]) + gzip.compress(GOOD[261:]))
  assert records.find_fault([str(path)], SPEC, {}) is None
  assert len(list(records.training_dataset([str(path)], seed=1).take(6))) == 6


def test_a_missing_file_is_named(tmp_path):
  missing = f"{tmp_path}/gone.tfrecord"
  with pytest.raises(OSError, match=re.escape(missing)):
    records.check_files([missing], SPEC, LIMITS)


def test_a_digest_reads_blocks_all_over_a_file(tmp_path):
  path = tmp_path / "large"

  def describe(*changed, size=20_000_000, copies=1):
    with path.open("wb") as file:
      file.truncate(size)
      for start in changed:
        file.seek(start)
        file.write(b"x")
    return records.describe_files([str(path)] * copies)

  same = describe()
  assert same.startswith("1 file of 20,000,000 bytes, digest ")
  assert describe() == same
  # A byte of the first, second, 33rd and last of the 66 blocks of 65,536 bytes
  # that are read; a block begins every 306,684 bytes.
  changes = [0, 306_684, 9_813_890, 19_999_999]
  assert len({same, *map(describe, changes)}) == 5
  # The blocks of a small file overlap, so that it is read as a whole.
  small = {describe(n, size=4_000_000) for n in range(0, 4_000_000, 50_000)}
  assert len(small) == 80
  # In each of 100 files, one block between the ends is read: its first byte.
  assert describe(9_967_232, copies=100) != describe(copies=100)


def test_trim_cuts_the_padding_that_all_rows_of_a_batch_have():
  mask = np.zeros([2, 24], np.int32)
  mask[0, :3] = mask[1, :9] = 1
  features = {"input_ids": mask + 5, "input_mask": mask, "label_ids": mask}
  trimmed = records.trim(features, "input_ids", "input_mask")
  assert trimmed["input_ids"].shape == (2, 9)
  assert np.sum(trimmed["input_mask"]) == 12
  assert trimmed["label_ids"].shape == (2, 24)
  choices = np.zeros([2, 3, 8], np.int32)
  choices[1, 2, :5] = 1
  trimmed = records.trim({"input_mask": choices}, "input_mask")
  assert trimmed["input_mask"].shape == (2, 3, 5)
  full = np.ones([1, 11], np.int32)
  trimmed = records.trim({"input_mask": full}, "input_mask")
  assert trimmed["input_mask"].shape == (1, 11)
