"""Lists in JSON files, read in parts that end wherever they may."""

import gzip
import json

import pytest

from data import files
from data import json_items

LIST = [1, 22, {"a": "é中\n\\"}, [], "x", None, -3.5e7]
TEXT = json.dumps({"v": {"data": 1}, "data": LIST, "w": 12}, indent=1)


@pytest.fixture(params=[1, 2, 3, 7, 1 << 20])
def chunk_size(request, monkeypatch):
  read_chunks = files.read_chunks
  monkeypatch.setattr(
    files, "read_chunks", lambda path: read_chunks(path, request.param)
  )


@pytest.mark.usefixtures("chunk_size")
@pytest.mark.parametrize("ascii_only", [True, False])
def test_items_do_not_depend_on_how_the_file_is_read(tmp_path, ascii_only):
  path = tmp_path / "list.json"
  content = json.dumps({"v": 1, "data": LIST, "w": 2}, ensure_ascii=ascii_only)
  path.write_text("\ufeff" + content, encoding="utf-8")
  assert list(json_items.read_list(str(path), "data")) == LIST


@pytest.mark.parametrize("number", ["1.5", "-2e-7", "30E+5", "4"])
def test_a_number_may_be_cut_at_its_point_or_exponent(
  tmp_path, monkeypatch, number
):
  path = tmp_path / "list.json"
  path.write_text(f'{{"data": [{number}]}}')
  content = path.read_text()
  for cut in range(len(content)):
    chunks = [content[:cut], *content[cut:]]
    monkeypatch.setattr(files, "read_chunks", lambda path, c=chunks: iter(c))
    found = list(json_items.read_list(str(path), "data"))
    assert found == [float(number)]


def test_compressed_and_indented(tmp_path):
  path = tmp_path / "list.json.gz"
  path.write_bytes(gzip.compress(TEXT.encode()))
  assert list(json_items.read_list(str(path), "data")) == LIST


def test_items_come_before_the_rest_is_read(tmp_path):
  path = tmp_path / "list.json"
  path.write_text('{"data": [1, 2, oops')
  items = json_items.read_list(str(path), "data")
  assert [next(items), next(items)] == [1, 2]


@pytest.mark.usefixtures("chunk_size")
@pytest.mark.parametrize(
  ("text", "message"),
  [
    ('{"data": [1,\n 2 3]}', ":2:4: not the JSON expected: expected ','"),
    ('{"data":[1,]}', ":1:12: not the JSON expected: a comma before ']'"),
    ('{"data":[{"a":\n\n "b]}', ":3:2: not the JSON expected: Unterminated"),
    ('{"data":[tru]}', ":1:10: not the JSON expected: Expecting value"),
    ('{"data":[1', ":1:11: not the JSON expected: expected ',', found the end"),
    ('{"data":[1]} x', ":1:14: not the JSON expected: expected the end"),
    ('{"data":3}', ":1:9: not the JSON expected: expected '[', found '3'"),
    ("[1]", ":1:1: not the JSON expected: expected '{', found '['"),
    ("", ":1:1: not the JSON expected: expected '{', found the end"),
    ('{"data": [%s]}' % ("9" * 5000), ":1:11: not the JSON expected: a number"),
    ('{"v": 1}', ": expected a list under the key 'data'"),
  ],
)
def test_faults_are_placed(tmp_path, text, message):
  path = tmp_path / "list.json"
  path.write_text(text)
  with pytest.raises(ValueError) as caught:
    list(json_items.read_list(str(path), "data"))
  assert str(caught.value).startswith(f"{path}{message}")


def test_bytes_that_are_no_utf_8_are_placed(tmp_path):
  path = tmp_path / "list.json"
  path.write_bytes(b'{"data": ["\xc3\xa4\xff"]}')
  with pytest.raises(ValueError, match="byte offset 13: not UTF-8"):
    list(json_items.read_list(str(path), "data"))
