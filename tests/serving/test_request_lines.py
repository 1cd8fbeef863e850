"""Tests of request_lines.py; those of whole programs are in test_predict.py."""

import json

import pytest

from serving import exported_model
from serving import request_lines


class Model(exported_model.ExportedModel):
  """One that only says what it takes."""

  inputs = (exported_model.Input("text", True),)

  def __init__(self):
    """Loads nothing."""


def read(path, format="auto"):
  return list(request_lines.read(None, str(path), format, Model()))


def test_an_id_comes_back(tmp_path):
  path = tmp_path / "requests.jsonl"
  path.write_text('{"id": [1, "\u00e9"], "text": "a"}\n')
  (line,) = read(path)
  assert line == ({"text": "a"}, {"index": 0, "id": [1, "\u00e9"]}, "")


@pytest.mark.parametrize("id_", ["\ud800", float("nan"), [float("inf")]])
def test_an_id_that_no_answer_could_hold_is_an_error(tmp_path, id_):
  path = tmp_path / "requests.jsonl"
  path.write_text(json.dumps({"id": id_, "text": "a"}))
  (line,) = read(path)
  assert line.error.startswith("line 1: id cannot be written: ")
  assert (line.request, line.shown) == (None, {"index": 0})


@pytest.mark.parametrize(
  ("name", "content"),
  [("a.txt.gz", b"plain"), ("a.txt.gz", b"\x1f\x8b"), ("a.txt.xz", b"plain")],
)
def test_a_damaged_compressed_file_is_named(tmp_path, name, content):
  path = tmp_path / name
  path.write_bytes(content)
  with pytest.raises(ValueError) as caught:
    read(path)
  assert str(caught.value).startswith(f"{path}: damaged compressed file (")
