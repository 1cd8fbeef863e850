"""Records as batches: their order, and how what does not fit is named."""

import collections
import pathlib
import re
import threading

import numpy as np
import pytest
import tensorflow as tf

from data import record_writer
from inputs import records
import tiny

SPEC = records.pretraining_spec(tiny.SEQUENCE, tiny.PREDICTIONS)
LIMITS = records.pretraining_limits(tiny.SEQUENCE, tiny.RECORD_IDS, 2)
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


def take(dataset, count):
  """Returns the (file, record) of the first elements."""
  return [(int(row.file), int(row.record)) for row, _ in dataset.take(count)]


def test_spec():
  spec = records.pretraining_spec(128, 20)
  assert {k: (v.shape, v.dtype.name) for k, v in spec.items()} == {
    "input_ids": ([128], "int64"),
    "input_mask": ([128], "int64"),
    "segment_ids": ([128], "int64"),
    "masked_lm_positions": ([20], "int64"),
    "masked_lm_ids": ([20], "int64"),
    "masked_lm_weights": ([20], "float32"),
    "next_sentence_labels": ([1], "int64"),
  }


def test_sequential_dataset_reads_file_after_file(paths):
  rows = list(records.sequential_dataset(paths))
  found = [(int(row.file), int(row.record)) for row, _ in rows]
  assert found == (
    [(0, i) for i in range(30)]
    + [(1, i) for i in range(7)]
    + [(2, i) for i in range(20)]
  )
  expected = [tiny.encode(tiny.make_values(number)) for number in range(57)]
  assert [serialized.numpy() for _, serialized in rows] == expected


def test_a_compressed_file_is_recognised_by_its_bytes(tmp_path):
  names = ["one.gz", "two.tfrecord"]
  for name, compress in zip(names, (False, True), strict=True):
    path = tiny.write_records(tmp_path / name, [5], compress)
    ((_, serialized),) = records.sequential_dataset([path])
    assert serialized == tiny.encode(tiny.make_values(5))
    records.check_files([path], SPEC, LIMITS)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_record_once_an_epoch_in_another_order(count, paths):
  paths = paths[:count]
  every = [
    (file, record)
    for file, size in enumerate([30, 7, 20][:count])
    for record in range(size)
  ]
  rows = take(records.training_dataset(paths, seed=1), 3 * len(every))
  epochs = [rows[i : i + len(every)] for i in range(0, len(rows), len(every))]
  assert [sorted(epoch) for epoch in epochs] == [every] * 3
  assert len({tuple(epoch) for epoch in [*epochs, every]}) == 4


def test_many_files_are_all_read(tmp_path):
  paths = [
    tiny.write_records(tmp_path / f"{i}.tfrecord", range(2)) for i in range(9)
  ]
  rows = take(records.training_dataset(paths, seed=1), 18)
  assert set(collections.Counter(file for file, _ in rows).values()) == {2}


def test_the_seed_decides_the_order(paths):
  first = take(records.training_dataset(paths, seed=1), 100)
  assert take(records.training_dataset(paths, seed=1), 100) == first
  assert take(records.training_dataset(paths, seed=2), 100) != first


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


def test_batches_of_similar_length(tmp_path):
  path = tiny.write_records(tmp_path / "64.tfrecord", range(64))
  lengths = [sum(tiny.make_values(i)["input_mask"]) for i in range(64)]
  rows = take(records.grouped_dataset([path], tiny.SEQUENCE, 4, 1), 192)
  batches = np.reshape([lengths[row] for _, row in rows], [-1, 4])
  assert np.ptp(batches, axis=1).mean() < 2 < np.ptp(lengths)
  assert len(set(rows[:64])) == 64  # An epoch has each record once.
  assert list(batches[:8, 0]) != sorted(batches[:8, 0])
  for skip in (1, 31, 32, 100):
    rest = records.grouped_dataset([path], tiny.SEQUENCE, 4, 1, skip)
    assert take(rest, 192 - skip) == rows[skip:]


def test_skipping_reads_no_epoch_that_is_over(paths):
  # A year's worth of records: only an arithmetic skip ends.
  skip = 57 * 10**12 + 3
  assert len(take(records.training_dataset(paths, 1, skip), 5)) == 5


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
  monkeypatch.setattr(records, "_check_gzip", lambda path: both.wait(60))
  assert len(take(records.training_dataset([path, path], 1), 100)) == 100


def test_compressed_records_are_counted_once(tmp_path, monkeypatch):
  path = tiny.write_records(tmp_path / "a.gz", range(20), compress=True)
  assert records.count_records([path, path]) == 40
  monkeypatch.setattr(records, "_read_records", None)
  assert records.count_records([path]) == 20


# What each fault is reported as, by a way to make it from a good file.


def make_empty(path):
  path.write_bytes(b"")


def make_text(path):
  path.write_text("a text that is long enough to have a header, and more\n")


def make_other_features(path):
  feature = {"label_ids": record_writer.int64_feature([1])}
  with record_writer.open_shards([str(path)]) as write:
    write(record_writer.encode_example(feature))


def make_other_messages(path):
  with record_writer.open_shards([str(path)]) as write:
    write(b"\xff not a message")


def make_cut(path):
  tiny.write_records(path, range(3))
  path.write_bytes(path.read_bytes()[:-100])


def make_cut_header(path):
  tiny.write_records(path, range(3))
  with path.open("ab") as file:
    file.write(b"\x05\x00\x00")


def make_longer(path):
  tiny.write_records(path, range(3), sequence=32)


def make_more_predictions(path):
  tiny.write_records(path, range(3), predictions=20)


def make_floats(path):
  features = {name: record_writer.float_feature([1.0]) for name in SPEC}
  path.write_bytes(
    record_writer.frame_record(record_writer.encode_example(features))
  )


def make_other_vocabulary(path):
  values = tiny.make_values(0)
  values["input_ids"][2] = 40
  tiny.write_values(path, values)


def make_third_segment(path):
  values = tiny.make_values(0)
  values["segment_ids"][2] = 2
  tiny.write_values(path, values)


def make_negative(path):
  values = tiny.make_values(0)
  values["masked_lm_ids"][0] = -1
  tiny.write_values(path, values)


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (make_empty, "{path}: holds no record"),
    (make_text, "{path}: record 0 is damaged or cut short, or this is not a"),
    (
      make_other_features,
      "{path}: record 0 has no feature input_ids, input_mask, masked_lm_ids, "
      "masked_lm_positions, masked_lm_weights, next_sentence_labels, "
      "segment_ids; it has label_ids",
    ),
    (make_other_messages, "{path}: record 0 is not a tf.train.Example"),
    (make_cut, "{path}: the record at byte 522 is cut short; the file has "),
    (make_cut_header, "{path}: the record at byte 783 is cut short; the "),
    (
      make_longer,
      "{path}: record 0: input_ids holds 32 values, expected 16; pass "
      "--max_seq_length=32, which the records were made with",
    ),
    (
      make_more_predictions,
      "{path}: record 0: masked_lm_positions holds 20 values, expected 4; pass "
      "--max_predictions_per_seq=20, which the records were made with",
    ),
    (
      make_floats,
      "{path}: record 0: input_ids holds 0 values, expected 16",
    ),
    (
      make_other_vocabulary,
      "{path}: record 0: input_ids holds 40, the config's vocab_size is 40: "
      "the records were made for another model",
    ),
    (
      make_third_segment,
      "{path}: record 0: segment_ids holds 2, the config's type_vocab_size is "
      "2: the records were made for another model",
    ),
    (make_negative, "{path}: record 0: masked_lm_ids holds -1, the config's"),
  ],
)
def test_a_file_that_does_not_fit_is_named(make, message, tmp_path):
  path = tmp_path / "wrong.tfrecord"
  make(path)
  good = tiny.write_records(tmp_path / "good.tfrecord", range(3))
  with pytest.raises(ValueError) as caught:
    records.check_files([good, str(path)], SPEC, LIMITS)
  assert str(caught.value).startswith(message.format(path=path))
  assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
  missing = f"{tmp_path}/gone.tfrecord"
  with pytest.raises(ValueError, match=re.escape(f"{missing}: record 0")):
    records.check_files([missing], SPEC, LIMITS)


def test_a_fault_in_the_middle_is_found_with_file_and_record(tmp_path):
  good = tiny.write_records(tmp_path / "good.tfrecord", range(3))
  hurt = tiny.write_records(tmp_path / "hurt.tfrecord", range(3))
  assert records.find_fault([good, hurt], SPEC, LIMITS) is None
  tiny.damage(hurt, 300)  # In the second of three.
  records.check_files([good, hurt], SPEC, LIMITS)  # It reads the first only.
  fault = records.find_fault([good, hurt], SPEC, LIMITS)
  assert fault.startswith(f"{hurt}: record 1 is damaged or cut short")
  assert "{{" not in fault


def test_a_wrong_id_in_the_middle_is_found(tmp_path):
  values = [tiny.make_values(number) for number in range(3)]
  values[2]["masked_lm_positions"][0] = 16
  path = tiny.write_values(tmp_path / "wrong.tfrecord", *values)
  assert records.find_fault([path], SPEC, LIMITS) == (
    f"{path}: record 2: masked_lm_positions holds 16, --max_seq_length is 16: "
    "the records were made for another model"
  )
  serialized = [
    serialized
    for _, serialized in tf.data.Dataset.zip(
      tf.data.Dataset.range(3), tf.data.TFRecordDataset(path)
    )
  ]
  with pytest.raises(tf.errors.InvalidArgumentError):
    records.parse_batch(tf.stack(serialized), SPEC, LIMITS)


def test_a_compressed_file_that_is_cut_is_found(tmp_path):
  path = tiny.write_records(tmp_path / "cut.gz", range(200), compress=True)
  content = pathlib.Path(path).read_bytes()
  pathlib.Path(path).write_bytes(content[: len(content) // 2])
  fault = records.find_fault([path], SPEC, LIMITS)
  assert re.match(
    re.escape(path) + r": record \d+ is damaged or cut short", fault
  )


def test_a_digest_reads_blocks_all_over_a_file(tmp_path):
  """A large file whose middle changed has its size and both ends."""
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
  changes = [0, 306_684, 9_813_890, 19_999_999]
  assert len({same, *map(describe, changes)}) == 5
  # Small files are read as a whole, and many large ones in a block between.
  small = {describe(n, size=4_000_000) for n in range(0, 4_000_000, 50_000)}
  assert len(small) == 80
  assert describe(9_967_232, copies=100) != describe(copies=100)


def test_trim_keeps_what_any_row_needs():
  mask = np.zeros([2, 24], np.int32)
  mask[0, :3] = mask[1, :9] = 1
  features = {"input_ids": mask + 5, "input_mask": mask, "label_ids": mask}
  trimmed = records.trim(features, "input_ids", "input_mask")
  assert trimmed["input_ids"].shape == (2, 9)
  assert np.sum(trimmed["input_mask"]) == 12
  assert trimmed["label_ids"].shape == (2, 24)


def test_trim_stays_within_the_longest_possible():
  mask = np.ones([1, 11], np.int32)
  trimmed = records.trim({"input_mask": mask}, "input_mask")
  assert trimmed["input_mask"].shape == (1, 11)


def test_trim_takes_choices_and_leaves_other_names():
  mask = np.zeros([2, 3, 8], np.int32)
  mask[1, 2, :5] = 1
  features = {"input_mask": mask, "label_mask": mask, "other": mask}
  trimmed = records.trim(features, "input_mask", "label_mask")
  shapes = {name: value.shape for name, value in trimmed.items()}
  assert shapes == {
    "input_mask": (2, 3, 5),
    "label_mask": (2, 3, 5),
    "other": (2, 3, 8),
  }
