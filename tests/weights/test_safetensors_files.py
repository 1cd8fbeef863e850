"""safetensors files: round trips, and headers that are not to be believed."""

import json

import numpy as np
import pytest

from weights import safetensors_files


def write_raw(path, header, data=b""):
  """Writes a header, as it is or as JSON, and data behind it."""
  if not isinstance(header, bytes):
    header = json.dumps(header).encode()
  path.write_bytes(len(header).to_bytes(8, "little") + header + data)
  return str(path)


def entry(dtype, shape, begin, end):
  return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_writes_and_reads_every_dtype(tmp_path):
  path = str(tmp_path / "x.safetensors")
  tensors = {
    name: np.array([[0, 1], [2, 3]], name)
    for name in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1")
  }
  tensors |= {"scalar": np.float32(7.5), "none": np.zeros([0, 3], "f4")}
  tensors["transposed"] = np.arange(6, dtype="f4").reshape(2, 3).T
  safetensors_files.write(path, tensors, {"format": "pt"})
  file = safetensors_files.SafetensorsFile(path)
  assert file.metadata == {"format": "pt"}
  assert set(file.entries) == set(tensors)
  for name, value in tensors.items():
    found = file.read(name)
    assert found.dtype == value.dtype and found.shape == value.shape
    assert found.tolist() == value.tolist()


def test_reads_bytes_written_out_by_hand(tmp_path):
  path = write_raw(
    tmp_path / "x",
    {"half": entry("BF16", [2], 0, 4), "one": entry("F32", [], 4, 8)},
    bytes.fromhex("803f 20c0 0000 803f"),
  )
  file = safetensors_files.SafetensorsFile(path)
  assert file.read("half").dtype == np.float32
  assert file.read("half").tolist() == [1.0, -2.5]
  assert file.read("one") == 1.0


def test_is_read_and_written_as_by_the_reference(tmp_path):
  reference = pytest.importorskip("safetensors.numpy")
  ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
  tensors = {
    "b": np.arange(6, dtype="f4").reshape(2, 3),
    "a": np.array([1, 2], "i8"),
    "c": np.array([0.5], "f2"),
  }
  safetensors_files.write(ours, tensors, {"format": "pt"})
  reference.save_file(tensors, theirs, {"format": "pt"})
  loaded = reference.load_file(ours)
  file = safetensors_files.SafetensorsFile(theirs)
  for name, value in tensors.items():
    assert np.array_equal(loaded[name], value)
    assert np.array_equal(file.read(name), value)


@pytest.mark.parametrize(
  ("header", "data", "message"),
  [
    (b"[]", b"", "the header: not a JSON object"),
    (b"{", b"", "the header: Expecting property name"),
    (b'{"\xff": 1}', b"", "the header: 'utf-8' codec"),
    (b"[" * 100_000, b"", "the header is nested too deeply"),
    (b'{"a": 1, "a": 1}', b"", "the header: 'a' is given twice"),
    (b'{"a": ' + b"9" * 5000 + b"}", b"", "the header: Exceeds"),
    ({"a": 1}, b"", "the header: 'a' is 1; expected just shape, data_offsets"),
    (
      {"__metadata__": {"a": 1}},
      b"",
      "the header: __metadata__ is not an object of texts",
    ),
    ({"a": entry("F99", [1], 0, 4)}, bytes(4), "the header: 'a' is {'dtype'"),
    ({"a": entry([], [1], 0, 4)}, bytes(4), "the header: 'a' is {'dtype': []"),
    ({"a": entry("F32", [-1], 0, 4)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [True], 0, 4)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [1.0], 0, 4)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", "1", 0, 4)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [1] * 65, 0, 4)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [1], 0, 8)}, bytes(8), "the header: 'a' is"),
    ({"a": entry("F32", [1], 4, 0)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [1], -4, 0)}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [1], 0, 4) | {"b": 1}}, bytes(4), "the header: 'a' is"),
    ({"a": entry("F32", [2**40, 2**40], 0, 4)}, bytes(4), "the header: 'a' is"),
    (
      {"a": entry("F32", [2**40], 0, 2**42)},
      bytes(4),
      "the header: its tensors have 4,398,046,511,104 bytes, but 4 follow it",
    ),
    (
      {"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)},
      bytes(8),
      "the header: 'b' begins at byte 4; expected 8",
    ),
    (
      {"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)},
      bytes(12),
      "the header: 'b' begins at byte 8; expected 4",
    ),
    (
      {"a": entry("F32", [2], 0, 8)},
      bytes(7),
      "the header: its tensors have 8 bytes, but 7 follow it",
    ),
    (
      {"a": entry("F32", [1], 0, 4)},
      bytes(6),
      "the header: its tensors have 4 bytes, but 6 follow it",
    ),
  ],
)  # fmt: skip
def test_refuses_a_bad_header(header, data, message, tmp_path):
  path = write_raw(tmp_path / "bad", header, data)
  with pytest.raises(ValueError) as caught:
    safetensors_files.SafetensorsFile(path)
  text = str(caught.value)
  assert text.startswith(f"{path}: not a whole safetensors file: {message}")
  assert "\n" not in text and len(text) < 400 + len(path)


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", "cut short: 0 bytes, of which 0 are its header"),
    (b"1234567", "cut short: 7 bytes"),
    (b"\xff" * 8 + b"{}", "of which 18,446,744,073,709,551,615 are its header"),
    ((99).to_bytes(8, "little") + b"{}", "10 bytes, of which 99 are its head"),
  ],
)
def test_refuses_a_length_beyond_the_file(content, message, tmp_path):
  path = tmp_path / "bad"
  path.write_bytes(content)
  with pytest.raises(ValueError) as caught:
    safetensors_files.SafetensorsFile(str(path))
  assert message in str(caught.value)


def test_refuses_every_truncation(tmp_path):
  path = tmp_path / "x"
  tensors = {"a": np.arange(3, dtype="f4"), "b": np.arange(2, dtype="i8")}
  safetensors_files.write(str(path), tensors, {})
  content = path.read_bytes()
  for length in range(len(content)):
    path.write_bytes(content[:length])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
      safetensors_files.SafetensorsFile(str(path))


def test_a_name_of_megabytes_does_not_fill_the_terminal(tmp_path):
  path = write_raw(tmp_path / "bad", {"x" * 1_000_000: entry("F9", [1], 0, 4)})
  with pytest.raises(ValueError) as caught:
    safetensors_files.SafetensorsFile(path)
  assert len(str(caught.value)) < 400 + len(path)


def test_a_remote_file_is_read(tmp_path):
  path = f"file://{tmp_path}/x.safetensors"
  safetensors_files.write(path, {"a": np.float32([1, 2])}, {})
  assert safetensors_files.SafetensorsFile(path).read("a").tolist() == [1, 2]
