"""Tests of bert/data/record_writer.py: TensorFlow must read what it writes."""

import pytest
import tensorflow as tf

from bert.data import record_writer


def parse(features):
  record = record_writer.encode_example(features)
  return tf.train.Example.FromString(record).features.feature


@pytest.mark.parametrize(
  "values",
  [
    [],
    [0],
    [1, 127, 128, 300, 16383, 16384, 30521, (1 << 20) + 5],
    [-1, -(1 << 63), (1 << 63) - 1],
    list(range(512)),
  ],
)
def test_integers(values):
  feature = parse({"a": record_writer.int64_feature(values)})["a"]
  assert feature.WhichOneof("kind") == "int64_list"
  assert list(feature.int64_list.value) == list(values)
  with pytest.raises(ValueError, match="64 bits"):
    record_writer.int64_feature([*values, 1 << 63])


@pytest.mark.parametrize("values", [[], [1.0, 0.0, -0.5]])
def test_floats(values):
  feature = parse({"a": record_writer.float_feature(values)})["a"]
  assert feature.WhichOneof("kind") == "float_list"
  assert list(feature.float_list.value) == values


def test_bytes_are_those_of_protobuf():
  record = record_writer.encode_example(
    {
      "b": record_writer.float_feature([1.0]),
      "a": record_writer.packed_feature(b"\xac\x02\x01"),
    }
  )
  example = tf.train.Example()
  example.features.feature["a"].int64_list.value.extend([300, 1])
  example.features.feature["b"].float_list.value.append(1.0)
  assert record == example.SerializeToString(deterministic=True)


@pytest.mark.parametrize("compress", [False, True])
def test_records_go_to_the_files_in_turn(tmp_path, compress):
  paths = [str(tmp_path / name) for name in "ab"]
  with record_writer.open_shards(paths, compress) as write:
    for record in [b"0", b"1" * 100_000, b"", b"3", b"4"]:
      write(record)
  read = tf.data.TFRecordDataset
  kind = "GZIP" if compress else None
  found = [list(read(path, kind).as_numpy_iterator()) for path in paths]
  assert found == [[b"0", b"", b"4"], [b"1" * 100_000, b"3"]]


def test_compressed_files_are_equal_whenever_they_are_written(tmp_path):
  for name in "ab":
    with record_writer.open_shards([str(tmp_path / name)], True) as write:
      write(b"record")
  assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_remote_files():
  with record_writer.open_shards(["ram://record_writer"]) as write:
    write(b"record")
  dataset = tf.data.TFRecordDataset("ram://record_writer")
  assert list(dataset.as_numpy_iterator()) == [b"record"]


@pytest.mark.parametrize(
  ("path", "message"),
  [("nowhere/b", "No such file .*/nowhere/b"), ("/dev/full", "No space")],
)
def test_a_file_that_cannot_be_written(tmp_path, path, message):
  paths = [str(tmp_path / "a"), str(tmp_path / path)]
  with pytest.raises(OSError, match=message):
    with record_writer.open_shards(paths) as write:
      write(b"record")
      write(b"record")
