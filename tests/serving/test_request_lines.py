"""Tests of request_lines.py; those of whole programs are in test_predict.py."""

import dataclasses
import gzip
import json

import pytest

from bert import predict
from bert.serving import request_lines
import tiny_models


@pytest.fixture(scope="module")
def maker(tmp_path_factory):
  return tiny_models.make_maker(tmp_path_factory.mktemp("maker"), ["text"])


def read(path, maker, format="auto", **flags):
  """Reads a file, or a list of texts."""
  flags |= (
    {"text": path} if isinstance(path, list) else {"input_file": str(path)}
  )
  settings = predict.PredictSettings(
    export_dir="", input_format=format, **flags
  )
  return list(request_lines.read(settings, maker))


def test_an_id_comes_back(tmp_path, maker):
  path = tmp_path / "requests.jsonl"
  path.write_text('{"id": [1, "\u00e9"], "text": "a"}\n')
  (line,) = read(path, maker)
  (row,) = line.request.rows
  assert row.input_ids == [2, 17, 3]
  assert line[1:] == ({"index": 0, "id": [1, "\u00e9"]}, "")


@pytest.mark.parametrize("id_", ["\ud800", float("nan"), [float("inf")]])
def test_an_id_that_no_answer_could_hold_is_an_error(tmp_path, id_, maker):
  path = tmp_path / "requests.jsonl"
  path.write_text(json.dumps({"id": id_, "text": "a"}))
  (line,) = read(path, maker)
  assert line.error.startswith("line 1: id cannot be written: ")
  assert (line.request, line.first_fields) == (None, {"index": 0})


def test_a_damaged_compressed_file_is_named(tmp_path, maker):
  path = tmp_path / "a.txt.gz"
  path.write_bytes(b"plain")
  with pytest.raises(ValueError, match=f"^{path}: damaged compressed file"):
    read(path, maker)


def test_pairs_are_columns_wherever_they_come_from(tmp_path):
  maker = tiny_models.make_maker(tmp_path, ["text", "text_pair"])
  path = tmp_path / "pairs.txt"
  path.write_text("the film\tbad\nthe film bad\n")
  for source in (path, ["the film\tbad", "the film bad"]):
    ids = [line.request.rows[0].input_ids for line in read(source, maker)]
    assert ids == [[2, 11, 12, 3, 8, 3], [2, 11, 12, 8, 3]]


@pytest.mark.parametrize("format", ["lines", "tsv", "jsonl"])
def test_a_byte_order_mark_is_no_text(tmp_path, format):
  settings = {"label_scheme": "iob2", "by_character": False}
  maker = tiny_models.make_maker(tmp_path, ["text"], "tagging", **settings)
  path = tmp_path / "texts"
  text = '{"text": "a"}\n' if format == "jsonl" else "a\n"
  path.write_text(f"\ufeff{text}")
  (line,) = read(path, maker, format)
  assert line.request.source[0] == "a"


def test_a_model_of_one_text_takes_a_line_with_a_tab_as_one(tmp_path, maker):
  path = tmp_path / "texts.txt"
  path.write_bytes(b"the fi\rlm\tbad\r\n")  # Without "\r", as everywhere.
  (line,) = read(path, maker)
  assert line.request.rows[0].input_ids == [2, 11, 12, 8, 3]


def test_endings_tell_the_format_in_any_case(tmp_path, maker):
  path = tmp_path / "A.JSONL.gz"
  path.write_bytes(gzip.compress(b'{"text": "a"}\n'))
  assert read(path, maker)[0].request.rows[0].input_ids == [2, 17, 3]
  path = tmp_path / "a.Json"
  path.write_text('{"text": "a"}\n')
  assert read(path, maker)[0].request.rows[0].input_ids == [2, 17, 3]
  with pytest.raises(ValueError, match="is not read: pass .tsv, .csv or .json"):
    read(tmp_path / "a.ft.gz", maker)


FILM, BAD = [2, 11, 12, 3], [2, 8, 3]  # "the film" and "bad".
BY_NAME = {"text": "review", "header": True, "count": 2}
BY_NUMBER = {"text": 1, "text_pair": None, "header": False, "count": 2}


@pytest.mark.parametrize(
  ("rows", "columns", "flags"),
  [
    ('label,review\n0,"the\nfilm"\n\n1,bad\n', BY_NAME, {}),
    ("0,the film\n1,bad\n", BY_NUMBER, {}),
    ("y,x\n0,the film\n1,bad\n", {**BY_NUMBER, "header": True}, {}),
    ("y,x\n0,the film\n1,bad\n", BY_NUMBER, {"header": "yes"}),
    # Its second column, whatever the first one is called.
    ("text,x\n0,the film\n1,bad\n", {**BY_NUMBER, "header": True}, {}),
    ("text,x\nthe film,0\nbad,1\n", BY_NUMBER, {}),  # Trained on no header.
    # The header is no text, though the column is a number.
    ("y,text\n0,the film\n1,bad\n", {}, {"text_column": "1"}),
    ("y,review\n0,the film\n1,bad\n", BY_NAME, {"text_column": "1"}),
    (
      "y,x\n0,the film\n1,bad\n",
      {**BY_NUMBER, "header": True},
      {"text_column": "1"},
    ),
    ("the film\nbad\n", BY_NUMBER, {}),  # Without the label of the training.
    ("a,text\n0,the film\n1,bad\n", {}, {}),
    ("a,b\nthe film,0\nbad,1\n", BY_NAME, {"text_column": "a"}),
  ],
)
def test_csv_has_the_columns_of_the_training(tmp_path, rows, columns, flags):
  path = tmp_path / "a.csv"
  path.write_text(f"\ufeff{rows}")
  maker = tiny_models.make_maker(tmp_path, ["text"])
  maker.card = dataclasses.replace(maker.card, training={"columns": columns})
  lines = read(path, maker, **flags)
  assert [line.request.rows[0].input_ids for line in lines] == [FILM, BAD]
  assert [line.first_fields for line in lines] == [{"index": 0}, {"index": 1}]


@pytest.mark.parametrize(
  ("rows", "message"),
  [
    (
      b"a,b\nc,d\n",
      "a.csv: 2 columns; pass --text_column, a name or a ",
    ),
    (b"a\ncaf\xe9\n", "a.csv:2: not UTF-8: b'caf"),
    (b'a\n"b\n', 'a.csv:2: the quote (") that opens a cell is never closed'),
  ],
)
def test_csv_ends_at_a_fault(tmp_path, maker, rows, message):
  path = tmp_path / "a.csv"
  path.write_bytes(rows)
  with pytest.raises(ValueError) as error:
    read(path, maker)
  assert str(error.value).removeprefix(f"{tmp_path}/").startswith(message)


def test_a_short_row_of_csv_is_no_end(tmp_path, maker):
  path = tmp_path / "a.csv"
  path.write_text("label,text\n0,the film\n1\n1,bad\n")
  film, short, bad = read(path, maker)
  assert short.error == "line 3: 1 columns, expected 2"
  assert film.request and bad.request


def test_columns_after_the_question_are_choices(tmp_path):
  inputs = ["context", "question", "choices"]
  maker = tiny_models.make_maker(tmp_path, inputs, "multiple_choice")
  lines = ["the film\twas\tgood\tbad plot\tgood", "the film\twas\tgood", "a"]
  good, *bad = read(lines, maker, "tsv")
  choices = ["good", "bad plot", "good"]
  request = {"context": "the film", "question": "was", "choices": choices}
  assert maker.encode(request) == good.request
  assert maker.encode(("the film", "was", tuple(choices))) == good.request
  assert len(good.request.rows) == 3
  assert bad[0].error == "line 2: choices: found 1, expected 2 to 1024"
  assert bad[1].error.startswith("line 3: choices is nothing, expected")
  with pytest.raises(ValueError, match="choices: expected a list of strings"):
    maker.encode({**request, "choices": ["a", 1]})


@pytest.mark.parametrize("question", ["was", None])
def test_choices_are_in_the_columns_of_swag(tmp_path, question):
  inputs = ["context", "question", "choices"]
  maker = tiny_models.make_maker(tmp_path, inputs, "multiple_choice")
  path = tmp_path / "test.csv"
  names = ",video-id,sent1,sent2,ending0,ending1,ending2,label\n"
  if not question:
    names = names.replace("sent2", "of sent2")
  path.write_text(
    f"{names}0,v,the film,was,good,bad,a,1\n1,v,a,was,good,bad,,0"
  )
  requests = [
    {"context": "the film", "choices": ["good", "bad", "a"]},
    {"context": "a", "choices": ["good", "bad"]},
  ]
  lines = read(path, maker)
  assert [line.first_fields for line in lines] == [{"index": 0}, {"index": 1}]
  for line, request in zip(lines, requests, strict=True):
    expected = maker.encode({**request, "question": question or ""})
    assert (line.error, line.request) == ("", expected)


@pytest.mark.parametrize(
  ("names", "rows", "columns"),
  [
    (["text"], ["ham\tthe film", "spam\tbad"], {"text_column": "1"}),
    (["text"], ["a\tb", "ham\tthe film", "spam\tbad"], {"text_column": "b"}),
    (
      ["text"],
      ["a\tb", "ham\tthe film", "spam\tbad"],
      {"text_column": "1", "header": "yes"},
    ),
    (["text"], ["index\tsentence", "0\tthe film", "1\tbad"], {}),
    (["text"], ["label\ttext", "0\tthe film", "1\tbad"], {}),
    (
      ["text", "text_pair"],
      ["index\tsentence1\tsentence2", "0\tthe film\ta", "1\tbad\ta"],
      {},
    ),
    (
      ["text", "text_pair"],
      ["\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\r"]
      + ["0\t1\t2\tthe film\ta\r", "1\t2\t3\tbad\ta\r"],
      {},
    ),
  ],
)
def test_columns_of_files_that_training_reads(tmp_path, names, rows, columns):
  maker = tiny_models.make_maker(tmp_path, names)
  path = tmp_path / "test.tsv"
  path.write_text("".join(f"{row}\n" for row in rows))
  lines = read(path, maker, **columns)
  assert [line.first_fields for line in lines] == [{"index": 0}, {"index": 1}]
  plain = ["the film\ta", "bad\ta"] if len(names) > 1 else ["the film", "bad"]
  expected = read(plain, maker)
  assert [line.request for line in lines] == [line.request for line in expected]


@pytest.mark.parametrize(
  ("rows", "flags"),
  [
    (["text", "the film", "bad"], {}),
    (["sentence", "the film", "bad"], {}),
    (["id\ttext", "0\tthe film", "1\tbad"], {"text_column": "text"}),
    (["0\tthe film", "1\tbad"], {"text_column": "1"}),
  ],
)
def test_a_model_of_vectors_takes_texts_and_pairs(tmp_path, rows, flags):
  names = ["text", "text_pair"]
  maker = tiny_models.make_maker(tmp_path, names, "features")
  path = tmp_path / "test.tsv"
  path.write_text("".join(f"{row}\n" for row in rows))
  found = [line.request for line in read(path, maker, **flags)]
  assert found == [line.request for line in read(["the film", "bad"], maker)]

  # A name that is there beside an unknown one is a text, or half of a pair.
  path.write_text("text\tother\nbad\tfilm\n")
  found = [line.request for line in read(path, maker)]
  pairs = ["text\tother", "bad\tfilm"]
  assert found == [line.request for line in read(pairs, maker)]

  with pytest.raises(ValueError, match="a column for each of text and text_p"):
    read(path, maker, text_pair_column="other")

  # What classifies pairs must have both.
  maker = tiny_models.make_maker(tmp_path, names)
  with pytest.raises(ValueError, match="a column for each of text and text_p"):
    read(path, maker, text_column="text")


@pytest.mark.parametrize(
  ("columns", "format", "message"),
  [
    (("c", None), "tsv", "no header with c; the first row is: a, b"),
    (("0", "1"), "tsv", "expected a column for each of text"),
    (("0", None), "lines", "are for TSV and CSV files without ch"),
  ],
)
def test_columns_that_are_not_there(tmp_path, maker, columns, format, message):
  path = tmp_path / "test.tsv"
  path.write_text("a\tb\n")
  columns = dict(zip(("text_column", "text_pair_column"), columns, strict=True))
  with pytest.raises(ValueError, match=message):
    read(path, maker, format, **columns)
  columns |= {"input_file": str(path), "input_format": format}
  settings = predict.PredictSettings(export_dir="", **columns)
  with pytest.raises(ValueError, match=message):
    request_lines.check(settings, maker.card)  # Before the model is loaded.


def test_a_row_that_lacks_a_column_is_an_error_of_its_own(tmp_path, maker):
  path = tmp_path / "test.tsv"
  path.write_text("0\tthe film\n1\n")
  good, bad = read(path, maker, text_column="1")
  assert (good.error, bad.error) == ("", "line 2: 1 columns, expected 2")


def test_a_row_of_empty_choices_is_an_error_of_its_own(tmp_path):
  inputs = ["context", "question", "choices"]
  maker = tiny_models.make_maker(tmp_path, inputs, "multiple_choice")
  path = tmp_path / "test.tsv"
  names = ["sent1", "sent2", "ending0", "ending1"]
  rows = [names, ["the", "film", "a", "b"], [""] * 4, ["a", "film", "a", "b"]]
  path.write_text("".join("\t".join(row) + "\n" for row in rows))
  errors = [line.error for line in read(path, maker)]
  assert errors == ["", "line 3: choices: number 0 is empty", ""]
