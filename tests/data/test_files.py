"""Tests of bert/data/files.py."""

import gzip
import io
import lzma
import os
import subprocess
import sys

import pytest

from bert.data import atomic, file_search, files
import paths


def test_a_folder_is_known_by_its_real_name(tmp_path, monkeypatch):
  best = tmp_path / "out" / "best"
  best.mkdir(parents=True)
  (tmp_path / "latest").symlink_to(best)
  (tmp_path / "linked").mkdir()
  (tmp_path / "linked" / "best").symlink_to(tmp_path)  # Not what it is called.
  monkeypatch.chdir(tmp_path)
  run = f"{tmp_path}/out"
  for path, expected in {
    "out/best": ("out",),
    "out/best/": ("out",),
    str(best): (run,),
    "latest": (run,),
    "latest/.": (run,),
    "out": (),
    "linked/best": (),
    "gs://bucket/out/best/": ("gs://bucket/out",),
    "gs://bucket/out": (),
  }.items():
    assert files.above(path, "best") == expected
  monkeypatch.chdir(best)
  assert files.above(".", "best") == files.above("", "best") == (run,)
  monkeypatch.chdir(run)
  assert files.above("best", "best") == (".",)


@pytest.mark.parametrize(
  ("name", "opener"), [("t", open), ("t.gz", gzip.open), ("t.xz", lzma.open)]
)
def test_lines_end_at_newlines_only_and_are_utf8(tmp_path, name, opener):
  path = str(tmp_path / name)
  with opener(path, "wb") as file:
    file.write("a\rb\r\n\nb\u2028c\x0cd\x00\né".encode())
  # TensorFlow's GFile (2.21) drops carriage returns, too.
  assert list(files.read_lines(path)) == ["ab", "", "b\u2028c\x0cd\x00", "é"]
  with opener(path, "wb"):
    pass
  assert list(files.read_lines(path)) == []
  with opener(path, "wb") as file:
    file.write(b"caf\xc3\xa9\nabc\xff\n")
  with pytest.raises(ValueError, match=f"{name}:2: not UTF-8: b'abc"):
    list(files.read_lines(path))


@pytest.mark.parametrize(
  ("encoding", "shown", "cure"),
  [
    (
      "latin1",
      r"b'caf\xe9 au lait\n'",
      "of Latin-1 by iconv -f latin1 -t utf8",
    ),
    ("utf16", r"b'\xff\xfec\x00a\x00", "of UTF-16 by iconv -f utf16 -t utf8"),
  ],
)
def test_another_encoding_is_shown_with_its_cure(write, encoding, shown, cure):
  path = write("t", "caf\xe9 au lait\n".encode(encoding))
  with pytest.raises(ValueError) as caught:
    list(files.read_lines(path))
  message = str(caught.value)
  assert message.startswith(f"t:1: not UTF-8: {shown}")
  assert message.endswith(f"; convert it, {cure}")


def test_the_standard_input_is_named(monkeypatch):
  monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff")))
  with pytest.raises(ValueError, match="^standard input:2: not UTF-8"):
    list(files.read_lines("-"))


@pytest.mark.parametrize(("name", "module"), [("t.gz", gzip), ("t.xz", lzma)])
def test_compressed_files_are_read_to_their_end_or_named(
  tmp_path, name, module
):
  path = tmp_path / name
  first, second = map(module.compress, [b"one\ntw", b"o" * 99999 + b"\nthree"])
  path.write_bytes(first + bytes(4) + second + bytes(8))  # With padding.
  lines = list(files.read_lines(str(path)))
  assert lines == ["one", "tw" + "o" * 99999, "three"]
  for damaged in (
    first + second[:-9],
    first + second + b"junk",
    first + b"junk" + second,
    b"plain text\n",
  ):
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=f"{name}: damaged compressed file"):
      list(files.read_lines(str(path)))


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("{", "a.json: not a JSON file: Expecting property name"),
    ("[1]", "a.json: expected a JSON object"),
    ("[" * 100_000, "a.json: not a JSON file: maximum recursion"),
    ("", "a.json: not a JSON file: Expecting value"),
  ],
)
def test_json_is_read_as_it_was_written_or_refused(tmp_path, text, message):
  path = tmp_path / "a.json"
  files.write_json(str(path), {"é": [1, None]})
  assert files.read_json(str(path)) == {"é": [1, None]}
  path.write_text(text)
  with pytest.raises(ValueError, match=message) as caught:
    files.read_json(str(path))
  assert "\n" not in str(caught.value)


def test_remote_paths_go_through_tensorflow():
  import tensorflow as tf  # Slow; only this test needs it.

  path = "ram://folder/t.gz"
  with (
    atomic.replace_on_success(path) as temporary,
    tf.io.gfile.GFile(temporary, "wb") as file,
  ):
    file.write(gzip.compress(b"one\ntwo"))
  files.write_bytes("ram://folder/t", b"a\rb\r\n\nlast")
  lines = files.read_lines("ram://folder/t", keeps_returns=True)
  assert list(lines) == ["a\rb\r", "", "last"]
  assert file_search.expand_patterns("ram://folder/*.gz", "in") == [path]
  assert list(files.read_lines(path)) == ["one", "two"]
  with pytest.raises(OSError, match="ram://nowhere"):
    list(files.read_lines("ram://nowhere"))


@pytest.mark.parametrize("prefix", ["", "file://", "ram://"])
def test_a_file_is_removed_but_no_folder(tmp_path, prefix):
  folder = f"{prefix}{tmp_path}/folder"
  files.write_text(f"{folder}/a", "text")
  with pytest.raises(OSError, match="folder"):
    files.remove(folder)
  assert files.exists(f"{folder}/a")
  for _ in range(2):  # A file that is not there is no error.
    files.remove(f"{folder}/a")
    assert not files.exists(f"{folder}/a")


def test_a_reader_of_the_standard_output_may_close_early():
  code = "from bert.data import files\nwith files.open_lines(None) as write:\n"
  code += "  while True: write('line')\n"
  command = [sys.executable, "-c", code]
  with subprocess.Popen(
    command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  ) as process:
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.stderr.read() == b""
  assert process.returncode == 0


def test_the_standard_output_is_utf8_in_every_locale():
  code = "from bert.data import files\nwith files.open_lines(None) as write:\n"
  code += "  write('\\u4e2d')\n  write('last')\n"
  result = subprocess.run(
    [sys.executable, "-c", code],
    cwd=paths.ROOT,
    env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    capture_output=True,
    check=True,
  )
  assert result.stdout == "\u4e2d\nlast\n".encode()
