"""The index of search.py: complete or refused, and made by one process."""

import json
import os

import numpy as np
import pytest

from bert.data import atomic, vector_index
import disk_events

RECORD = {
  "model": "m",
  "input_file": "t",
  "sha256": "0",
  "lines": 3,
  "probe": [0.5, 0.25],
  "weights_sha256": "1",
  "tokens_sha256": "3",
}
ROWS = np.float16([[1, 2], [3, 4], [5, 6]])


def make(path, rows=ROWS, **changes):
  blocks = lambda done: iter([rows[done:]])  # noqa: E731
  vector_index.make(str(path), {**RECORD, **changes}, blocks)


def edit(path, **changes):
  """Changes fields of the record; None removes one."""
  record_path = f"{path}.json"
  with open(record_path) as file:
    record = {**json.load(file), **changes}
  record = {name: v for name, v in record.items() if v is not None}
  with open(record_path, "w") as file:
    json.dump(record, file)


def test_numbers_that_float16_lacks_are_refused():
  rows = np.float32([[1, 2], [3, 65504]])
  assert vector_index.to_float16(rows, 0, "").dtype.str == "<f2"
  for number in (np.nan, -np.inf, 65536.0):
    rows[1, 1] = number
    message = "--model=m: the vector of line 9 holds NaN or a number beyond"
    with pytest.raises(ValueError, match=message):
      vector_index.to_float16(rows, 7, "--model=m")


@pytest.mark.parametrize(
  ("old", "message"),
  [
    ({"probe": None}, "i.npy.json: probe is None, expected list: remove "),
    ({"probe": [0.5, float("nan")]}, "i.npy.json: probe holds nan, expected"),
    ({"probe": ["0.5", 0.25]}, "i.npy.json: probe holds '0.5', expected finit"),
    ({"probe": [[0.5], 0.25]}, r"i.npy.json: probe holds \[0.5\], expected"),
    ({"probe": [0.5]}, "i.npy: made of m, 1 numbers a vector, not the 2 of"),
    ({"probe": [0.5, 0.75]}, "i.npy: made of m, whose vectors --model=m does"),
    ({"weights_sha256": "2"}, "i.npy: made of m with other weights than --mod"),
    ({"tokens_sha256": "2"}, "i.npy: made of m with another vocabulary, cas"),
    ({"sha256": "2"}, "i.npy: made of other text than is in --input_file=t"),
    ({"lines": "3"}, "i.npy.json: lines is '3', expected int"),
    ({"line_prompt_name": 3}, "i.npy.json: line_prompt_name is 3, expected st"),
  ],
)
def test_records_that_differ_are_refused(tmp_path, old, message):
  make(tmp_path / "i.npy")
  edit(tmp_path / "i.npy", **old)
  with pytest.raises(ValueError, match=message):
    vector_index.read(str(tmp_path / "i.npy"), RECORD)


def test_a_flipped_bit_is_found(tmp_path):
  path = tmp_path / "i.npy"
  make(path)
  found = vector_index.read(str(path), RECORD)
  np.testing.assert_array_equal(found, ROWS)
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  with pytest.raises(ValueError, match="i.npy: damaged or replaced, .*remove"):
    vector_index.read(str(path), RECORD)


def test_an_index_of_an_earlier_version_is_read_with_a_note(tmp_path, capsys):
  path = tmp_path / "i.npy"
  make(path)
  edit(path, index_sha256=None, weights_sha256=None, tokens_sha256=None)
  found = vector_index.read(str(path), RECORD)
  np.testing.assert_array_equal(found, ROWS)
  assert "i.npy.json is of an earlier version, so" in capsys.readouterr().err
  for array, message in (
    (ROWS.astype(">f2"), r"i.npy: >f2 \(3, 2\), expected <f2 \(3, 2\)"),
    (ROWS.view(np.int16), r"i.npy: <i2 \(3, 2\), expected <f2"),
    (ROWS.astype(np.float32), "i.npy: <f4"),
    (ROWS[:2], r"i.npy: <f2 \(2, 2\), expected <f2 \(3, 2\)"),
    (np.array([None, "x"]), "i.npy: not a .npy .Array can't be memory-mapped"),
  ):
    np.save(path, array, allow_pickle=True)
    with pytest.raises(ValueError, match=message):
      vector_index.read(str(path), RECORD)
  with open(path, "wb") as file:
    np.savez(file, vectors=ROWS)
  with pytest.raises(ValueError, match="i.npy: not a .npy"):
    vector_index.read(str(path), RECORD)
  for content in (b"", b"\x93NUMPY\1\0\x11\0{'descr': ('<f4'\n"):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="i.npy: not a .npy"):
      vector_index.read(str(path), RECORD)


def test_one_process_makes_it_and_gives_it_its_name(tmp_path, monkeypatch):
  path, part = tmp_path / "i.npy", tmp_path / "i.npy.part"
  part.write_bytes(b"")
  with atomic.locked(str(part)):
    with pytest.raises(OSError, match="i.npy.part: another process is writing"):
      make(path)
  assert not (tmp_path / "i.npy.json").exists()
  # The process that had the lock took the file away before it gave the lock up.
  with monkeypatch.context() as patch:
    patch.setattr(atomic, "lock", lambda descriptor: not part.unlink())
    with pytest.raises(OSError, match="i.npy.part: another process is writing"):
      make(path)
  assert not list(tmp_path.iterdir())
  states = []

  def publish(temporary, name):
    with atomic.locked(temporary) as is_ours:  # As a second process tries.
      states.append(is_ours)
    os.rename(temporary, name)

  with monkeypatch.context() as patch:
    patch.setattr(atomic, "publish", publish)
    make(path)
  assert states[-1] is False
  # Another process completed it before this one had the lock.
  content = path.read_bytes()
  make(path, rows=2 * ROWS)
  assert path.read_bytes() == content and not part.exists()


# The record of an earlier run, and what that says of the next one.
OTHERS = [
  ({"sha256": "2"}, "begun with other text than is in --input_file=t now"),
  ({"probe": [0.5], "model": "n"}, "begun with n, 1 numbers a vector, not th"),
]


@pytest.mark.parametrize(("other", "message"), OTHERS)
def test_what_was_begun_counts_from_its_first_block(
  tmp_path, monkeypatch, other, message
):
  monkeypatch.setattr(vector_index, "BLOCK", 2)
  path = tmp_path / "i.npy"
  record = {**RECORD, **other}
  rows = ROWS[:, : len(record["probe"])]

  def begin(blocks):
    def make_rows(done):
      yield from blocks
      raise ValueError("a line is refused")

    with pytest.raises(ValueError, match="a line is refused"):
      vector_index.make(str(path), record, make_rows)

  # A row is no block: the next run would make it again.
  for blocks in ([], [rows[:1]]):
    begin(blocks)
    make(path)
    np.testing.assert_array_equal(vector_index.read(str(path), RECORD), ROWS)
    path.unlink()
  begin([rows[:2]])
  cure = f"remove {path}.part and {path}.json to begin anew$"
  with pytest.raises(ValueError, match=f"i.npy: {message}.*: {cure}"):
    make(path)
  # Rows of which no record says what they are do not count either.
  (tmp_path / "i.npy.json").unlink()
  make(path)
  np.testing.assert_array_equal(vector_index.read(str(path), RECORD), ROWS)


def test_a_full_disk_names_the_file(tmp_path):
  with disk_events.limited_files(1 << 12):
    with pytest.raises(OSError, match="i.npy.part: File too large"):
      make(tmp_path / "i.npy", np.ones([4000, 2], np.float16), lines=4000)
  make(tmp_path / "i.npy", np.ones([4000, 2], np.float16), lines=4000)
  record = {**RECORD, "lines": 4000}
  assert vector_index.read(str(tmp_path / "i.npy"), record).shape == (4000, 2)


def test_missing_folders_are_made(tmp_path):
  path = tmp_path / "new" / "folder" / "i.npy"
  make(path)
  np.testing.assert_array_equal(vector_index.read(str(path), RECORD), ROWS)
