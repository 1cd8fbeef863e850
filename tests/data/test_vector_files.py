"""Numbers as Python prints them; the three formats hold the same vectors."""

import json

import numpy as np
import pytest
import tensorflow as tf

from data import vector_files

LAYERS = [-1, -2]
TOKENS = ["[CLS]", "caf\u00e9", "[SEP]"]


def in_python(rows):
  return [json.dumps([round(float(x), 6) for x in row])[1:-1] for row in rows]


@pytest.mark.parametrize(
  "number,text",
  [
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (1.0, "1.0"),
    (-12.5, "-12.5"),
    (0.25, "0.25"),
    (0.1, "0.1"),
    (3.14159274, "3.141593"),
    (1 / 128, "0.007812"),  # Ties go to the even neighbour.
    (3 / 128, "0.023438"),
    (0.0001, "0.0001"),
    (0.000099, "9.9e-05"),
    (0.00001, "1e-05"),
    (-0.0000123, "-1.2e-05"),
    (-0.0000004, "-0.0"),
    (99.9999999, "100.0"),
    (123.456, "123.456001"),
    (1e20, "1.0000000200408773e+20"),
    (float("nan"), "NaN"),
    (float("-inf"), "-Infinity"),
  ],
)
def test_a_number_is_printed_as_python_does(number, text):
  row = np.array([[0.5, number, 2.0]], np.float32)
  assert vector_files.format_numbers(row) == [f"0.5, {text}, 2.0"]
  assert in_python(row) == [f"0.5, {text}, 2.0"]


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1.0, 50.0, 1e5])
def test_many_numbers_are_printed_as_python_does(scale):
  rows = np.random.default_rng(0).normal(size=[20, 100]) * scale
  rows = rows.astype(np.float32)
  assert vector_files.format_numbers(rows) == in_python(rows)


def test_any_bits_are_printed_as_python_does():
  bits = np.random.default_rng(0).integers(0, 2**32, [20, 100], np.uint32)
  rows = bits.view(np.float32)
  assert vector_files.format_numbers(rows) == in_python(rows)


def make_line(index, tokens, pooled=False):
  random = np.random.default_rng(index)
  shape = [len(LAYERS), 3] if pooled else [tokens, len(LAYERS), 3]
  vectors = random.normal(size=shape).astype(np.float32)
  ids = [5 + i for i in range(tokens)]
  return vector_files.Line(index, ids, TOKENS[:tokens], vectors)


def write(path, output_format, lines):
  with vector_files.open_writer(str(path), output_format, LAYERS) as write:
    for line in lines:
      write(line)


def test_jsonl_is_the_originals(tmp_path):
  vectors = np.array(
    [[[0.5, -1.0], [0.25, 0.0]], [[2.0, 3.0], [1e-05, 4.0]]], np.float32
  )
  line = vector_files.Line(7, [5, 6], ["[CLS]", "\u4e2d"], vectors)
  write(tmp_path / "out", "jsonl", [line])
  assert (tmp_path / "out").read_text() == (
    '{"linex_index": 7, "features": ['
    '{"token": "[CLS]", "layers": ['
    '{"index": -1, "values": [0.5, -1.0]}, '
    '{"index": -2, "values": [0.25, 0.0]}]}, '
    '{"token": "\\u4e2d", "layers": ['
    '{"index": -1, "values": [2.0, 3.0]}, '
    '{"index": -2, "values": [1e-05, 4.0]}]}]}\n'
  )


def test_jsonl_of_pooled_vectors(tmp_path):
  vectors = np.array([[0.5, -1.0], [0.25, 0.0]], np.float32)
  line = vector_files.Line(0, [5, 6], ["[CLS]", "a"], vectors)
  write(tmp_path / "out", "jsonl", [line])
  assert (tmp_path / "out").read_text() == (
    '{"linex_index": 0, "layers": [{"index": -1, "values": [0.5, -1.0]}, '
    '{"index": -2, "values": [0.25, 0.0]}]}\n'
  )


def read_records(path):
  for record in tf.data.TFRecordDataset(str(path)):
    example = tf.train.Example.FromString(record.numpy()).features.feature
    yield {
      name: list(getattr(value, value.WhichOneof("kind")).value)
      for name, value in example.items()
    }


def test_formats_hold_the_same_tokens(tmp_path):
  lines = [make_line(i, tokens) for i, tokens in enumerate([3, 2, 3])]
  for name in vector_files.FORMATS:
    write(tmp_path / name, name, lines)
  arrays = np.load(tmp_path / "npz")
  assert arrays["layers"].tolist() == [-1, -2]
  assert arrays["offsets"].tolist() == [0, 3, 5, 8]
  assert arrays["input_ids"].tolist() == [5, 6, 7, 5, 6, 5, 6, 7]
  expected = np.concatenate([line.vectors for line in lines])
  np.testing.assert_array_equal(arrays["vectors"], expected)
  records = list(read_records(tmp_path / "tfrecord"))
  assert [record["linex_index"] for record in records] == [[0], [1], [2]]
  assert records[1]["layers"] == [-1, -2]
  assert records[1]["input_ids"] == [5, 6]
  assert records[1]["tokens"] == [b"[CLS]", "caf\u00e9".encode()]
  for record, line in zip(records, lines, strict=True):
    assert record["vectors"] == line.vectors.ravel().tolist()
  with open(tmp_path / "jsonl") as file:
    objects = list(map(json.loads, file))
  for line, item in zip(lines, objects, strict=True):
    values = [
      [layer["values"] for layer in token["layers"]]
      for token in item["features"]
    ]
    np.testing.assert_allclose(values, line.vectors, atol=5.1e-7)


def test_formats_hold_the_same_pooled_vectors(tmp_path):
  lines = [make_line(i, 2, pooled=True) for i in range(3)]
  for name in vector_files.FORMATS:
    write(tmp_path / name, name, lines)
  arrays = np.load(tmp_path / "npz")
  assert sorted(arrays) == ["layers", "vectors"]
  np.testing.assert_array_equal(
    arrays["vectors"], [line.vectors for line in lines]
  )
  for record, line in zip(
    read_records(tmp_path / "tfrecord"), lines, strict=True
  ):
    assert sorted(record) == ["layers", "linex_index", "vectors"]
    assert record["vectors"] == line.vectors.ravel().tolist()


@pytest.mark.parametrize("output_format", vector_files.FORMATS)
def test_an_error_leaves_the_old_file(tmp_path, output_format):
  path = tmp_path / "out"
  path.write_text("old")
  with pytest.raises(ValueError, match="broken"):
    with vector_files.open_writer(str(path), output_format, LAYERS) as write:
      write(make_line(0, 2))
      raise ValueError("broken")
  assert path.read_text() == "old"
  assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("output_format", vector_files.FORMATS)
def test_remote_files_are_written(tmp_path, output_format):
  lines = [make_line(0, 3), make_line(1, 2)]
  write(tmp_path / "local", output_format, lines)
  write(f"file://{tmp_path}/remote", output_format, lines)
  if output_format == "npz":  # Its members carry the time.
    local, remote = (np.load(tmp_path / n) for n in ("local", "remote"))
    for name in local:
      np.testing.assert_array_equal(local[name], remote[name])
  else:
    local, remote = ((tmp_path / n).read_bytes() for n in ("local", "remote"))
    assert local == remote
