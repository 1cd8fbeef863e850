"""Tests of data/files.py."""

import errno
import gzip
import lzma
import math
import os
import subprocess
import sys

import pytest

from data import files
import disk_events
import paths


def test_patterns_keep_their_order_and_are_sorted_within(tmp_path):
  for name in ["b2.txt", "b1.txt", "a.txt"]:
    (tmp_path / name).touch()
  found = files.expand_patterns(f"{tmp_path}/b*.txt, {tmp_path}/a.txt", "in")
  assert [os.path.basename(path) for path in found] == [
    "b1.txt",
    "b2.txt",
    "a.txt",
  ]


def test_a_name_that_reads_as_a_glob_is_found(tmp_path):
  path = tmp_path / "notes[1].txt"
  path.touch()
  assert files.expand_patterns(str(path), "in") == [str(path)]


@pytest.mark.parametrize("patterns", ["", ",", "nowhere/*.txt", "."])
def test_patterns_that_match_nothing_name_the_flag(patterns):
  with pytest.raises(ValueError, match="--input_file"):
    files.expand_patterns(patterns, "input_file")


@pytest.mark.parametrize(
  ("name", "opener"), [("t", open), ("t.gz", gzip.open), ("t.xz", lzma.open)]
)
def test_lines_end_at_newlines_only(tmp_path, name, opener):
  path = str(tmp_path / name)
  with opener(path, "wb") as file:
    file.write("a\rb\r\n\nb\u2028c\x0cd\x00\né".encode())
  # TensorFlow's GFile (2.21) drops carriage returns, too.
  assert list(files.read_lines(path)) == ["ab", "", "b\u2028c\x0cd\x00", "é"]


def test_an_empty_file_has_no_lines(tmp_path):
  (tmp_path / "t").touch()
  assert list(files.read_lines(str(tmp_path / "t"))) == []


@pytest.mark.parametrize(("name", "opener"), [("t", open), ("t.gz", gzip.open)])
def test_bad_bytes_are_found_by_their_offset(tmp_path, name, opener):
  path = str(tmp_path / name)
  with opener(path, "wb") as file:
    file.write(b"caf\xc3\xa9\nabc\xff\n")
  with pytest.raises(ValueError, match=f"{name}: byte offset 9: not UTF-8"):
    list(files.read_lines(path))


def test_all_streams_of_an_xz_file_are_read_or_refused(tmp_path):
  path = tmp_path / "t.xz"
  first, second = map(lzma.compress, [b"one\ntw", b"o" * 99999 + b"\nthree"])
  for padding in (b"", bytes(4)):
    path.write_bytes(first + padding + second + padding)
    assert list(files.read_lines(str(path))) == [
      "one",
      "tw" + "o" * 99999,
      "three",
    ]
  for rest in (b"\1" + second[1:], b"plain text\n", second[:-9]):
    path.write_bytes(first + rest)
    with pytest.raises(ValueError, match="t.xz: damaged compressed file"):
      list(files.read_lines(str(path)))


@pytest.mark.parametrize(("name", "module"), [("t.gz", gzip), ("t.xz", lzma)])
@pytest.mark.parametrize("damage", ["cut", "foreign"])
def test_damaged_compressed_files_are_named(tmp_path, name, module, damage):
  path = tmp_path / name
  whole = module.compress(bytes(range(127)) * 99)
  path.write_bytes(whole[:-20] if damage == "cut" else b"plain text\n")
  with pytest.raises(ValueError, match=f"{name}: damaged compressed file"):
    list(files.read_lines(str(path)))


def test_success_replaces_the_file_and_makes_its_folder(tmp_path):
  path = tmp_path / "new" / "out"
  for content in ["first", "second"]:
    with files.replace_on_success(str(path)) as temporary:
      assert os.path.dirname(temporary) == str(path.parent)
      with open(temporary, "w") as file:
        file.write(content)
    assert path.read_text() == content
  assert os.listdir(path.parent) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_leaves_the_old_file(tmp_path, error):
  path = tmp_path / "out"
  path.write_text("old")
  with pytest.raises(error), files.replace_on_success(str(path)) as temporary:
    with open(temporary, "w") as file:
      file.write("half")
    raise error()
  assert path.read_text() == "old"
  assert os.listdir(tmp_path) == ["out"]


def test_what_a_killed_run_left_behind_is_removed(tmp_path):
  path = str(tmp_path / "out")
  killed = (
    "import os\n"
    "from data import files\n"
    f"with files.replace_on_success({path!r}) as temporary:\n"
    "  open(temporary, 'w').write('half')\n"
    "  os.kill(os.getpid(), 9)\n"
  )
  subprocess.run([sys.executable, "-c", killed], cwd=paths.ROOT, check=False)
  assert len(os.listdir(tmp_path)) == 1
  assert not os.path.exists(path)
  with files.replace_on_success(path) as temporary:
    assert os.listdir(tmp_path) == [os.path.basename(temporary)]
    assert os.path.getsize(temporary) == 0
  assert os.listdir(tmp_path) == ["out"]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
  path = tmp_path / "out"
  with files.replace_on_success(str(path)) as slow:
    with open(slow, "w") as file:
      file.write("slow, first half, ")
      with files.replace_on_success(str(path)) as fast:
        assert fast != slow
        with open(fast, "w") as other:
          other.write("fast")
      assert path.read_text() == "fast"
      file.write("second half")
  assert path.read_text() == "slow, first half, second half"
  assert os.listdir(tmp_path) == ["out"]


def test_files_of_two_runs_are_not_mixed(tmp_path):
  mine, theirs = [f"{tmp_path}/a", f"{tmp_path}/b"], [f"{tmp_path}/b"]
  with files.replace_all_on_success(mine):
    with (
      pytest.raises(OSError, match="b: another process is writing it; wait"),
      files.replace_all_on_success(theirs),
    ):
      pass
  with files.replace_all_on_success(theirs):
    pass
  assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_folder_is_claimed_by_one_at_a_time(tmp_path):
  path = str(tmp_path)
  for _ in range(2):
    with files.claim_folder(path):
      with (
        pytest.raises(OSError, match="another process is writing to this"),
        files.claim_folder(path),
      ):
        pass
  assert os.listdir(tmp_path) == []


def test_a_kill_ends_the_claim_of_a_folder(tmp_path):
  path = str(tmp_path)
  killed = (
    "import os; from data import files\n"
    f"with files.claim_folder({path!r}):\n"
    "  os.kill(os.getpid(), 9)\n"
  )
  done = subprocess.run([sys.executable, "-c", killed], cwd=paths.ROOT)
  assert done.returncode == -9
  with files.claim_folder(path):
    pass


@pytest.fixture
def events(monkeypatch):
  return disk_events.record(monkeypatch)


def test_a_file_is_synced_before_it_gets_its_name(tmp_path, events):
  files.write_text(str(tmp_path / "out"), "text")
  temporary = events[0].removeprefix("sync file ")
  assert events == [
    f"sync file {temporary}",
    f"rename {temporary} out",
    f"sync folder {tmp_path.name}",
  ]


def test_several_files_are_synced_before_one_gets_its_name(tmp_path, events):
  with files.replace_all_on_success([f"{tmp_path}/a", f"{tmp_path}/b"]):
    pass
  assert [event.split()[0] for event in events[:3]] == ["sync", "sync", "sync"]
  assert sum(event.startswith("rename") for event in events) == 2


def test_a_folder_is_synced_before_it_gets_its_name(tmp_path, events):
  with files.new_folder(str(tmp_path / "out")) as folder:
    os.mkdir(f"{folder}/inner")
    for name in ("a", "inner/b"):
      open(f"{folder}/{name}", "w").close()
  name = os.path.basename(folder)
  assert events == [
    "sync file a",
    f"sync folder {name}",
    "sync file b",
    "sync folder inner",
    f"rename {name} out",
    f"sync folder {tmp_path.name}",
  ]
  assert sorted(os.listdir(tmp_path / "out")) == ["a", "inner"]


def test_a_link_to_an_empty_folder_stays_one(tmp_path):
  (tmp_path / "there").mkdir()
  (tmp_path / "link").symlink_to("there")
  with files.new_folder(str(tmp_path / "link")) as folder:
    open(f"{folder}/a", "w").close()
  assert os.listdir(tmp_path / "there") == ["a"]
  assert (tmp_path / "link").is_symlink()


def test_a_folder_that_cannot_be_filled_does_not_appear(tmp_path):
  with (
    pytest.raises(ZeroDivisionError),
    files.new_folder(str(tmp_path / "out")) as folder,
  ):
    open(f"{folder}/a", "w").close()
    raise ZeroDivisionError
  assert os.listdir(tmp_path) == []


def test_json_is_read_as_it_was_written(tmp_path):
  path = str(tmp_path / "a.json")
  files.write_json(path, {"é": [1, None]})
  assert files.read_json(path) == {"é": [1, None]}


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("{", "a.json: not a JSON file: Expecting property name"),
    ("[1]", "a.json: expected a JSON object"),
    ("[" * 100_000, "a.json: not a JSON file: maximum recursion"),
    ("", "a.json: not a JSON file: Expecting value"),
  ],
)
def test_what_is_not_a_json_object_is_one_line(tmp_path, text, message):
  path = tmp_path / "a.json"
  path.write_text(text)
  with pytest.raises(ValueError, match=message) as caught:
    files.read_json(str(path))
  assert "\n" not in str(caught.value)


def test_a_full_disk_names_the_file(tmp_path):
  path = str(tmp_path / "out")
  with (
    pytest.raises(OSError, match=f"^{path}: No space left on device$"),
    files.replace_on_success(path) as temporary,
  ):
    open(temporary, "w").close()
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["/dev/null", "/tmp", "/tmp/none/"])
def test_devices_and_folders_are_not_replaced(path):
  with (
    pytest.raises(OSError, match="not a regular file"),
    files.replace_on_success(path),
  ):
    pass


def test_several_files_appear_together(tmp_path):
  paths = [str(tmp_path / "a"), str(tmp_path / "b")]
  with files.replace_all_on_success(paths) as temporaries:
    for temporary in temporaries:
      open(temporary, "w").close()
    assert not set(os.listdir(tmp_path)) & {"a", "b"}
  assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_working_folder_is_cleared_before_and_after(tmp_path, scheme):
  path = f"{scheme}{tmp_path}/out"
  with files.working_folder(path) as folder:
    (left,) = os.listdir(tmp_path)
  assert os.listdir(tmp_path) == []
  (tmp_path / left).mkdir()
  (tmp_path / left / "of a killed run").touch()
  with pytest.raises(ZeroDivisionError):
    with files.working_folder(path) as folder:
      (name,) = os.listdir(tmp_path)
      assert os.listdir(tmp_path / name) == []
      with files.open_for_writing(f"{folder}/a") as file:
        file.write(b"text")
      assert (tmp_path / name / "a").read_bytes() == b"text"
      raise ZeroDivisionError
  assert os.listdir(tmp_path) == []


def test_remote_paths_go_through_tensorflow():
  import tensorflow as tf  # Slow; only this test needs it.

  path = "ram://folder/t.gz"
  with (
    files.replace_on_success(path) as temporary,
    tf.io.gfile.GFile(temporary, "wb") as file,
  ):
    file.write(gzip.compress(b"one\ntwo"))
  files.write_bytes("ram://folder/t", b"a\rb\r\n\nlast")
  lines = files.read_lines("ram://folder/t", keeps_returns=True)
  assert list(lines) == ["a\rb\r", "", "last"]
  assert files.expand_patterns("ram://folder/*.gz", "in") == [path]
  assert list(files.read_lines(path)) == ["one", "two"]
  with pytest.raises(OSError, match="ram://nowhere"):
    list(files.read_lines("ram://nowhere"))


def test_what_a_killed_run_left_of_a_remote_file_is_no_input(tmp_path):
  for name in ("a.tfrecord", "a.tfrecord.f0031dff.tmp"):
    (tmp_path / name).touch()
  pattern = f"file://{tmp_path}/a*"
  expected = [f"file://{tmp_path}/a.tfrecord"]
  assert files.expand_patterns(pattern, "input_file") == expected


def test_text_counts_its_lines(tmp_path):
  path = tmp_path / "t"
  lines = [f"line {i % 750}" for i in range(1000)] + ["", " "]
  path.write_text("\n".join(lines))
  text = files.Text([str(path), str(path)])
  assert text.part_read() == 0
  assert list(text.lines()) == lines + lines
  assert text.part_read() == 1
  assert text.part_repeated() == pytest.approx(1 - 750 / 2000, abs=0.002)


def test_too_many_lines_to_tell_are_no_number(tmp_path, monkeypatch):
  monkeypatch.setattr(files.Text, "_HASH_BITS", 1 << 11)
  (tmp_path / "t").write_text("\n".join(map(str, range(20_000))))
  text = files.Text([str(tmp_path / "t")])
  assert sum(1 for _ in text.lines()) == 20_000
  assert math.isnan(text.part_repeated())


def test_the_size_of_compressed_text_is_unknown(tmp_path):
  with gzip.open(tmp_path / "t.gz", "wb") as file:
    file.write(b"line\n")
  text = files.Text([str(tmp_path / "t.gz")])
  assert list(text.lines()) == ["line"]
  assert text.part_read() is None
  assert text.part_repeated() == pytest.approx(0, abs=1e-6)


def test_the_standard_output_is_utf8_in_every_locale():
  code = (
    "from data import files\n"
    "with files.open_lines(None) as write:\n"
    "  write('\\u4e2d')\n"
    "  write('last')\n"
  )
  result = subprocess.run(
    [sys.executable, "-c", code],
    cwd=paths.ROOT,
    env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    capture_output=True,
    check=True,
  )
  assert result.stdout == "\u4e2d\nlast\n".encode()
