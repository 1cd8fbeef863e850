"""Tests of the feature files: rows, resume, damage."""

import json
import os
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from bert.data import record_writer
from bert.inputs import feature_files
import fuzzing
import tiny

LENGTHS = [5, 3, 9, 4, 7]


def make_rows(facts):
  facts["made"] = True
  for number, length in enumerate(LENGTHS):
    mask = [1] * length + [0] * (10 - length)
    feature = record_writer.int64_feature
    serialized = record_writer.encode_example(
      {"number": feature([number]), "input_mask": feature(mask)}
    )
    yield feature_files.Row(serialized, length, number // 2)


def open_file(folder, key="key", make_rows=make_rows):
  facts = {}
  path = str(folder / "train.tf_record")
  return feature_files.open_or_make(path, key, make_rows(facts), facts)


def take(rows, count):
  return [int(index) for index, _ in rows.take(count).as_numpy_iterator()]


def test_a_file_holds_rows_and_counts_and_is_kept_for_its_key(tmp_path):
  features = open_file(tmp_path)
  assert len(features) == 5
  assert features.lengths.tolist() == LENGTHS
  assert features.example_of_row.tolist() == [0, 0, 1, 1, 2]
  assert features.facts == {"made": True}
  rows = [row.serialized for row in make_rows({})]
  assert features.read([3, 0]) == [rows[3], rows[0]]
  kept = [not open_file(tmp_path, key).is_new for key in ("key", "b", "b")]
  assert kept == [True, False, True]


@pytest.mark.parametrize("suffix", ["", ".index.npz"])
def test_a_file_that_was_cut_short_is_made_again(tmp_path, suffix):
  path = pathlib.Path(open_file(tmp_path).path + suffix)
  path.write_bytes(path.read_bytes()[:-7])
  again = open_file(tmp_path)
  assert again.is_new and again.find_fault() is None


def test_a_damaged_index_is_made_again(tmp_path):
  features = open_file(tmp_path)
  path = pathlib.Path(f"{features.path}.index.npz")
  whole = path.read_bytes()
  # An .npz is a zip file. At its end, the central directory says where each
  # array lies; an entry begins with this mark and has 46 bytes before its name.
  # Three of the eight bits of each byte are tried, to save time.
  start = whole.index(b"PK\1\2")  # The first entry.
  for place in range(start, start + 46):
    for bit in (1, 8, 64):
      damaged = bytearray(whole)
      damaged[place] ^= bit
      path.write_bytes(damaged)
      index = feature_files._read_index(features.path)
      assert index is None or json.loads(str(index["facts"])) == features.facts


@pytest.mark.fuzz
def test_a_damaged_index_is_no_traceback(tmp_path):
  """200 files, damaged anywhere."""
  features = open_file(tmp_path)
  path = pathlib.Path(f"{features.path}.index.npz")
  whole, source = path.read_bytes(), random.Random(5)
  for _ in range(200):
    path.write_bytes(fuzzing.damaged(whole, source))
    index = feature_files._read_index(features.path)
    assert index is None or json.loads(str(index["facts"])) == features.facts


def test_an_interrupted_making_leaves_the_old_file(tmp_path):
  def fail(facts):
    yield next(make_rows(facts))
    raise ValueError("data.tsv:2: bad row")

  open_file(tmp_path)
  with pytest.raises(ValueError, match="data.tsv:2"):
    open_file(tmp_path, "other", fail)
  names = sorted(path.name for path in tmp_path.iterdir())
  assert names == ["train.tf_record", "train.tf_record.index.npz"]
  assert not open_file(tmp_path).is_new


@pytest.mark.parametrize("key", ["old", "new"])
@pytest.mark.parametrize("renamed", [0, 1])
def test_a_kill_between_two_renames_pairs_no_rows_with_another_index(
  tmp_path, monkeypatch, renamed, key
):
  def make(key):
    rows = [feature_files.Row(key.encode(), 3, 0)]
    return open_file(tmp_path, key, lambda facts: iter(rows))

  def rename(source, target):
    if len(done) == renamed:
      raise KeyboardInterrupt
    done.append(target)
    os.rename(source, target)

  done = []
  make("old")
  with monkeypatch.context() as context:
    context.setattr(os, "replace", rename)
    with pytest.raises(KeyboardInterrupt):
      make("new")
  assert make(key).read([0]) == [key.encode()]


def test_no_row_is_an_error(tmp_path):
  with pytest.raises(ValueError, match="no example to make features of"):
    open_file(tmp_path, make_rows=lambda facts: iter(()))


def test_a_damaged_row_is_named(tmp_path):
  features = open_file(tmp_path)
  path = pathlib.Path(features.path)
  tiny.damage(path, path.stat().st_size // 2)
  fault = features.find_fault()
  assert "train.tf_record: record 2, at byte 130: the record is dam" in fault
  assert "made again" in fault


@pytest.mark.parametrize("skip", [0, 1, 4, 5, 7, 23])
def test_skipping_goes_on_where_another_run_stopped(tmp_path, skip):
  features = open_file(tmp_path)
  whole = take(features.training_rows(2, 3), 30)
  assert take(features.training_rows(2, 3, skip), 30 - skip) == whole[skip:]
  assert sorted(whole[:5]) == [0, 1, 2, 3, 4]


def test_batches_are_parsed_rows_of_any_number(tmp_path):
  features = open_file(tmp_path)
  order = [np.array([4, 1]), np.array([0])]
  batches = features.batches(order, lambda rows: {"row": rows})
  assert batches.element_spec == {"row": tf.TensorSpec([None], tf.string)}
  for _ in range(2):
    found = [batch["row"].numpy().tolist() for batch in batches]
    assert found == [features.read([4, 1]), features.read([0])]
