"""Tests of bert/data/file_search.py."""

import os

import pytest

from bert.data import file_search


def test_patterns_keep_their_order_and_are_sorted_within(tmp_path):
  for name in ["b2.txt", "b1.txt", "a.txt", "notes[1].txt"]:
    (tmp_path / name).touch()
  found = file_search.expand_patterns(
    f"{tmp_path}/b*.txt, {tmp_path}/a.txt", "in"
  )
  names = [os.path.basename(path) for path in found]
  assert names == ["b1.txt", "b2.txt", "a.txt"]
  # A name may read as a glob.
  path = f"{tmp_path}/notes[1].txt"
  (tmp_path / "notes1.txt").touch()
  for name in (path, f"file://{path}"):
    assert file_search.expand_patterns(name, "in") == [name]
  # What a killed run left of a remote file is no input.
  (tmp_path / "a.txt.f0031dff.tmp").touch()
  found = file_search.expand_patterns(f"file://{tmp_path}/a*", "in")
  assert found == [f"file://{tmp_path}/a.txt"]


@pytest.mark.parametrize("patterns", ["", ",", "nowhere/*.txt", "."])
def test_patterns_that_match_nothing_name_the_flag(patterns):
  with pytest.raises(ValueError, match="--input_file"):
    file_search.expand_patterns(patterns, "input_file")


@pytest.mark.parametrize("name", ["model.safetensors", "vocab.txt"])
def test_a_pipe_is_no_file_of_a_model(tmp_path, name):
  os.mkfifo(tmp_path / name)
  for path in (tmp_path, tmp_path / name):
    with pytest.raises(ValueError, match=f"/{name}: a pipe; expected a file"):
      file_search.refuse_pipes(str(path))


@pytest.mark.parametrize(
  ("folder", "inside", "message"),
  [
    ("glue/", "mrpc", "it holds MRPC, SST-2; did you mean glue/MRPC?"),
    ("glue", "sst-2", "it holds MRPC, SST-2; did you mean glue/SST-2?"),
    ("glue", "wnli", "it holds MRPC, SST-2"),
    ("glue/MRPC", "mrpc", "it holds nothing"),
    ("gleu", "mrpc", "no such folder; did you mean glue?"),
    ("glue/SST2", "sst-2", "no such folder; did you mean glue/SST-2?"),
    ("none/none", "", "no such folder"),
    (__file__, "", "a file, not a folder"),
  ],
)
def test_a_folder_that_may_be_meant(
  tmp_path, monkeypatch, folder, inside, message
):
  monkeypatch.chdir(tmp_path)
  for name in ("MRPC", "SST-2"):
    (tmp_path / "glue" / name).mkdir(parents=True)
  assert file_search.describe_missing(folder, inside) == message


def test_a_glob_for_shards_waits_for_all_of_them(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for number in (0, 1, 2):
    open(f"x-0000{number}-of-00004", "w").close()
  for pattern in ("x*", "x-*-of-00004", "x-0000[01]*", "./x*, y"):
    name = "./x" if pattern[0] == "." else "x"
    with pytest.raises(ValueError) as caught:
      file_search.check_is_complete(pattern, "input_file")
    assert str(caught.value) == (
      f"--input_file={pattern.split(',')[0]}: lacks {name}-00003-of-00004: "
      "wait for its job, or name the files one by one"
    )
  # Named one by one; other files; a part of what is there.
  allowed = ["x-00000-of-00004,x-00001-of-00004", "*.txt", ""]
  for pattern in allowed:
    file_search.check_is_complete(pattern, "input_file")
  open("x-00003-of-00004", "w").close()
  for pattern in ("x*", "x-0000[01]*"):
    file_search.check_is_complete(pattern, "input_file")
