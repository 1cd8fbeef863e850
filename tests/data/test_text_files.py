"""Files that are not plain text, and texts in a column of a table."""

import gzip
import os

import pytest

from bert.data import text_files

JSON = '{"id": 1, "text": "a b"}\n{"id": 2, "text": "c\\nd"}\n'


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.ndjson.gz"])
def test_json_lines_are_refused_with_their_keys(write, name):
  content = JSON.encode()
  if name.endswith(".gz"):
    content = gzip.compress(content)
  path = write(name, content)
  with pytest.raises(ValueError) as error:
    text_files.check([path])
  assert str(error.value) == (
    f"{name}: JSON Lines, not plain text, with the keys id, text: pass "
    "--text_column, to read one"
  )
  with pytest.raises(ValueError, match="id, text: write the texts alone$"):
    text_files.check([path], has_flag=False)
  text_files.check([path], column="text")


@pytest.mark.parametrize(
  ("name", "content", "note"),
  [
    ("t.txt", JSON, "JSON Lines, with the keys id, text: call it .jsonl and p"),
    ("t.csv", "id,text\n1,a b\n", "a table of several columns: pass --text_"),
    ("t.tsv", "1\ta b\n", "a table of several columns: pass --text_column, to"),
    ("t.txt", '<doc id="1">\na\n</doc>\n', "what WikiExtractor writes: remove"),
  ],
)
def test_what_may_be_text_is_read_with_a_note(
  write, capsys, name, content, note
):
  text_files.check([write(name, content)])
  said = capsys.readouterr().err
  expected = f"note: {name} is read as plain text, a line each, but looks like "
  assert said.startswith(expected + note)
  assert said.count("\n") == 1


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("t.txt", "one, two\nthree\n"),
    ("t.csv", "one, two\nthree\n"),
    ("t.jsonl", "{a set}\n{and another}\n"),
    ("t.txt", "{}\n"),
    ("t.txt", "<docile>\n"),
    ("t.tsv", ""),
  ],
)
def test_honest_text_is_read_without_a_word(write, capsys, name, content):
  text_files.check([write(name, content)])
  assert capsys.readouterr().err == ""


def test_a_pipe_is_not_looked_at():
  read, write = os.pipe()
  os.write(write, JSON.encode())
  os.close(write)
  path = f"/dev/fd/{read}"
  text_files.check([path])
  assert [*text_files.read(path)] == JSON.splitlines()
  os.close(read)


def test_a_column_has_a_line_for_each_row(write):
  path = write("t.jsonl", JSON)
  assert [*text_files.read(path, "text")] == ["a b", "c d"]
  assert [*text_files.read(path, "text", by_line=True)] == [
    "a b",
    "",
    "c",
    "d",
    "",
  ]
  path = write("t.csv", 'a,"b\nc"\nd,e\n')
  assert [*text_files.read(path, "1")] == ["b c", "e"]
  assert [*text_files.read(path)] == ['a,"b', 'c"', "d,e"]
  with pytest.raises(ValueError, match="t.jsonl:1: no key 'x'; the keys are"):
    list(text_files.read(write("t.jsonl", JSON), "x"))


def test_a_row_is_one_document_also_with_paragraphs(write):
  path = write("t.jsonl", '{"text": "a\\n\\n b\\n \\nc"}\n{"text": ""}\n')
  assert [*text_files.read(path, "text", by_line=True)] == [
    *("a", " b", "c", ""),
    "",
  ]
  assert [*text_files.read(path, "text")] == ["a   b   c", ""]


@pytest.mark.parametrize(
  ("content", "column", "is_noted"),
  [
    ("label,text\n1,a b\n0,c d\n", "1", True),
    ("label,text\n1,a b\n0,c d\n", "text", False),
    ("1,a b\n0,c d\n", "1", False),
    ("1,good\n0,bad\n", "1", False),
    ("1,good\n", "1", False),
  ],
)
def test_a_name_that_is_read_as_a_text_is_noted(
  write, capsys, content, column, is_noted
):
  text_files.check([write("t.csv", content)], column)
  assert capsys.readouterr().err == is_noted * (
    "note: t.csv:1: 'text' is read as a text; if it is the name of the column, "
    "pass --text_column=text\n"
  )


def test_text_says_how_much_of_it_has_passed(tmp_path):
  path = tmp_path / "t"
  path.write_text("line 1\n\nline 3")
  text = text_files.Text([str(path), str(path)])
  assert text.part_read() == 0
  assert list(text.lines()) == 2 * ["line 1", "", "line 3"]
  assert text.part_read() == 1
  with gzip.open(tmp_path / "t.gz", "wb") as file:
    file.write(b"line\n")
  text = text_files.Text([str(tmp_path / "t.gz")])
  assert list(text.lines()) == ["line"]
  assert text.part_read() is None  # The size of its text is unknown.
