"""Numbers as Python prints them; both formats hold the same vectors."""

import json
import random

import numpy as np
import pytest

from bert.data import vector_files
import fuzzing

LAYERS = [-1, -2]
TOKENS = ["[CLS]", "caf\u00e9", "[SEP]"]


def make_row(index, tokens):
  random = np.random.default_rng(index)
  vectors = random.normal(size=[tokens, len(LAYERS), 3]).astype(np.float32)
  ids = [5 + i for i in range(tokens)]
  return vector_files.VectorRow(index, ids, TOKENS[:tokens], vectors)


def write(path, output_format, lines):
  with vector_files.open_writer(str(path), output_format, LAYERS) as write:
    for line in lines:
      write(line)


def test_jsonl_is_the_originals(tmp_path):
  vectors = np.array(
    [[[0.5, -1.0], [0.25, 0.0]], [[2.0, 3.0], [1e-05, 4.0]]], np.float32
  )
  line = vector_files.VectorRow(7, [5, 6], ["[CLS]", "\u4e2d"], vectors)
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


@pytest.mark.parametrize("scale", [1e-5, 1e-3, 1.0, 50.0, 1e5, 1e20])
def test_numbers_of_pooled_vectors_are_those_that_python_prints(
  tmp_path, scale
):
  numbers = np.random.default_rng(0).normal(size=[2, 999]) * scale
  numbers[0, :5] = [-0.0, 1 / 128, 3 / 128, np.nan, -np.inf]  # Two ties.
  numbers = numbers.astype(np.float32)
  row = vector_files.VectorRow(0, [5], ["a"], numbers)
  write(tmp_path / "npz", "npz", [row, row])
  arrays = np.load(tmp_path / "npz")
  assert sorted(arrays) == ["layers", "vectors"]
  np.testing.assert_array_equal(arrays["vectors"], [numbers, numbers])
  write(tmp_path / "out", "jsonl", [row])
  layers = [
    {"index": index, "values": [round(float(x), 6) for x in layer]}
    for index, layer in zip(LAYERS, numbers, strict=True)
  ]
  expected = json.dumps({"linex_index": 0, "layers": layers})
  assert (tmp_path / "out").read_text() == f"{expected}\n"


def test_formats_hold_the_same_tokens(tmp_path):
  lines = [make_row(i, tokens) for i, tokens in enumerate([3, 2, 3])]
  for name in vector_files.FORMATS:
    write(tmp_path / name, name, lines)
  arrays = np.load(tmp_path / "npz")
  assert arrays["layers"].tolist() == [-1, -2]
  assert arrays["offsets"].tolist() == [0, 3, 5, 8]
  assert arrays["input_ids"].tolist() == [5, 6, 7, 5, 6, 5, 6, 7]
  expected = np.concatenate([line.vectors for line in lines])
  np.testing.assert_array_equal(arrays["vectors"], expected)
  with open(tmp_path / "jsonl") as file:
    objects = list(map(json.loads, file))
  for line, item in zip(lines, objects, strict=True):
    layers = [token["layers"] for token in item["features"]]
    values = [[layer["values"] for layer in token] for token in layers]
    np.testing.assert_allclose(values, line.vectors, atol=5.1e-7)


@pytest.mark.parametrize("output_format", vector_files.FORMATS)
def test_an_error_leaves_the_old_file(tmp_path, output_format):
  path = tmp_path / "out"
  path.write_text("old")
  with pytest.raises(ValueError, match="broken"):
    with vector_files.open_writer(str(path), output_format, LAYERS) as write:
      write(make_row(0, 2))
      raise ValueError("broken")
  assert path.read_text() == "old"
  assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("output_format", vector_files.FORMATS)
def test_remote_files_are_written(tmp_path, output_format):
  lines = [make_row(0, 3), make_row(1, 2)]
  write(tmp_path / "local", output_format, lines)
  write(f"file://{tmp_path}/remote", output_format, lines)
  local, remote = tmp_path / "local", tmp_path / "remote"
  if output_format == "jsonl":
    assert local.read_bytes() == remote.read_bytes()
  else:  # Its members carry the time.
    np.testing.assert_equal(dict(np.load(local)), dict(np.load(remote)))


@pytest.mark.fuzz
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_files_end_in_a_line(save, tmp_path):
  """200 files: vectors or one line."""
  path = tmp_path / "v.npz"
  save(path, vectors=np.ones([5, 1, 6], np.float32), ids=np.arange(5))
  valid, source, refused = path.read_bytes(), random.Random(4), 0

  def read(path):
    return vector_files.read(path, 5, 6)

  assert read(str(path)).shape == (5, 6)
  for _ in range(200):
    path.write_bytes(fuzzing.damaged(valid, source))
    refused += fuzzing.value_or_error(read, path) is None
  assert refused > 50


def test_a_head_that_python_s_tokenizer_cannot_read(tmp_path):
  path = tmp_path / "v.npz"
  path.write_bytes(b"\x93NUMPY\1\0\x11\0{'descr': ('<f4'\n")
  with pytest.raises(ValueError, match="v.npz: not a .npz .*: .'EOF in multi"):
    vector_files.read(str(path), 5, 6)
