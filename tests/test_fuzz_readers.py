"""Readers of text files on damaged files: a value or an error for the user."""

import dataclasses
import functools
import gzip
import json
import lzma
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest

from bert import predict
from bert.data import files, label_files, tables
from bert.serving import request_lines
from bert.tasks import (
  classification,
  classification_tasks,
  multiple_choice,
  squad,
  tagging,
  tagging_schemes,
)
import fuzzing
import tiny_models

pytestmark = pytest.mark.fuzz

TSV = 'id\ttext\ttext_b\tlabel\n1\tA "b" c\td\t0\n2\tcaf\xe9\t\u4e2d\t1\n'
CSV = 'id,text,text_b,label\r\n1,"a ""b"", c",d,0\r\n2,"x\ny",\u4e2d,1\r\n'
JSONL = (
  '{"id": 1, "text": "a \\"b\\"", "text_b": "d", "label": "x"}\n'
  '{"id": "2", "text": "\\u00e9", "text_b": "\u4e2d", "label": ["x", 1.5]}\n'
)
CONLL = (
  "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
  "\u4e2d NN I-NP B-LOC\n\n-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\n"
)
CONLL_TABS = "EU\tB-ORG\nrejects\tO\n\n\u4e2d\tS-LOC\n"
ANSWER = {"text": "Rome", "answer_start": 0}
QUESTIONS = [
  {
    "id": "q1",
    "question": "What?",
    "answers": [ANSWER],
    "is_impossible": False,
  },
  {"id": 2, "question": "Who?", "answers": [], "is_impossible": True},
]
PARAGRAPH = {"context": "Rome is old.", "qas": QUESTIONS}
SQUAD = {"version": "2.0", "data": [{"title": "T", "paragraphs": [PARAGRAPH]}]}
SQUAD_ROW = {
  "id": "1",
  "question": "What?",
  "context": "Rome is old.",
  "answers": {"text": ["Rome"], "answer_start": [0]},
}
SQUAD_TSV = "id\tquestion\tcontext\n1\tWhat?\tRome is old.\n"
SWAG = (
  ",sent1,sent2,ending0,ending1,ending2,label\n"
  '0,A b.,He,"runs, fast",sits,eats,2\n1,C d.,,one,two,,0\n'
)
SWAG_TSV = "id\tsent1\tending0\tending1\tlabel\n7\tA b.\tc\td\t1\n"
SWAG_ROW = {
  "id": 7,
  "context": "A.",
  "question": "Who?",
  "choices": ["b", "c"],
  "label": 1,
}
ENTITIES_ROW = {
  "text": "Al met Bo",
  "entities": [{"start": 0, "end": 2, "label": "PER"}],
}
REQUEST = {"id": 1, "text": "a b", "text_pair": "c"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("fuzz")


def whole(read):
  return lambda *args, **options: list(read(*args, **options))


def read_examples(path, **options):
  """Reads a file of unknown columns as run_classifier does."""
  table = classification_tasks.find_table(path, **options)
  examples = list(classification.read_examples(table))
  is_list = any(isinstance(example.label, tuple) for example in examples)
  problem = "multi_label" if is_list else "single_label"
  return examples, classification.find_labels(examples, problem)


def read_tagged(path):
  """Reads a file of unknown scheme as run_tagging does."""
  source = tagging.Source(path, scheme="none")
  source = source._replace(scheme=tagging.find_scheme(source))
  sentences = list(tagging.read_sentences(source))
  scheme = tagging_schemes.label_scheme(source.scheme)
  for sentence in sentences:
    tags = tagging_schemes.convert_tags(sentence.tags, scheme)
    assert len(tags) == len(sentence.words)
  return sentences, tagging.find_labels(sentences, source.scheme)


def read_words(path, is_tagged=False):
  source = tagging.Source(path, scheme="iob1", is_tagged=is_tagged)
  return list(tagging.read_sentences(source))


def read_requests(maker, format="auto"):
  flags = predict.PredictSettings(export_dir="", input_format=format)

  def read(path):
    settings = dataclasses.replace(flags, input_file=path)
    return list(request_lines.read(settings, maker))

  return read


def read_paragraphs(path):
  return list(squad.unique_questions(squad.read_questions(path)))


rows = whole(tables.read_rows)
columns = whole(tables.read_columns)
choices = whole(multiple_choice.read_examples)
READERS = {
  "rows.tsv": (rows, TSV),
  "rows.csv": (rows, CSV),
  "rows.jsonl": (rows, JSONL),
  "columns.tsv": (functools.partial(columns, columns=("text", "label")), TSV),
  "numbers.csv": (functools.partial(columns, columns=(1, -1, None)), CSV),
  "keys.jsonl": (functools.partial(columns, columns=("text", "id")), JSONL),
  "short.tsv": (
    functools.partial(columns, columns=(-1, 3), skips_short_rows=True),
    TSV,
  ),
  "examples.tsv": (read_examples, TSV),
  "examples.csv": (read_examples, CSV),
  "examples.jsonl": (read_examples, JSONL),
  "predict.tsv": (functools.partial(read_examples, label_required=False), TSV),
  "labels.txt": (label_files.read, "entailment\nneutral\n"),
  "iob.txt": (read_tagged, CONLL),
  "iobes.txt": (read_tagged, CONLL_TABS),
  "conll.txt": (functools.partial(read_words, is_tagged=True), CONLL),
  "untagged.txt": (read_words, CONLL),
  "squad.json": (read_paragraphs, json.dumps(SQUAD)),
  "indented.json": (read_paragraphs, json.dumps(SQUAD, indent=1)),
  "squad.jsonl": (read_paragraphs, json.dumps(SQUAD_ROW) + "\n"),
  "squad.tsv": (read_paragraphs, SQUAD_TSV),
  "swag.csv": (choices, SWAG),
  "swag.tsv": (choices, SWAG_TSV),
  "swag.jsonl": (choices, json.dumps(SWAG_ROW) + "\n"),
  "lines.txt": (whole(files.read_lines), "a\n\u4e2d\n"),
}


def test_a_reader_that_takes_much_memory_is_noticed(tmp_path):
  """Even if the process has needed more before, and given it back."""
  size = fuzzing._MOST_MEMORY * 5 // 4
  bytes(2 * size)
  small = fuzzing.value_or_error_in_memory(lambda path: len(bytes(9)), tmp_path)
  assert small == 9
  with pytest.raises(AssertionError):
    fuzzing.value_or_error_in_memory(lambda path: len(b"x" * size), tmp_path)


def test_a_hang_is_noticed_after_a_reader_within_another(tmp_path, monkeypatch):
  monkeypatch.setattr(fuzzing, "_SECONDS", 0.2)

  def read(path):
    assert fuzzing.value_or_error(lambda path: "value", path) == "value"
    time.sleep(30)

  with pytest.raises(fuzzing.HangError):
    fuzzing.value_or_error(read, tmp_path)


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_file_is_a_value_or_one_line(folder, name, data):
  read, valid = READERS[name]
  path = folder / name
  path.write_bytes(valid.encode())
  assert read(str(path))
  content = data.draw(fuzzing.mutated(valid.encode()) | fuzzing.any_bytes())
  path.write_bytes(content)
  fuzzing.check_writable(fuzzing.value_or_error(read, path))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@given(data=st.data())
def test_any_compressed_file_is_a_value_or_one_line(folder, pack, data):
  ending = {gzip.compress: "gz", lzma.compress: "xz"}[pack]
  # A gzip file holds the time; the examples must stay the same.
  options = {"mtime": 0} if ending == "gz" else {}
  packed = pack(TSV.encode(), **options)
  path = folder / f"rows.tsv.{ending}"
  path.write_bytes(data.draw(fuzzing.mutated(packed) | fuzzing.any_bytes()))
  fuzzing.check_writable(fuzzing.value_or_error(rows, path))
  maker = tiny_models.make_maker(folder, ["text"])
  fuzzing.value_or_error(read_requests(maker), path)


JSON_READERS = {
  "squad.json": (read_paragraphs, SQUAD),
  "squad.jsonl": (read_paragraphs, SQUAD_ROW),
  "swag.jsonl": (choices, SWAG_ROW),
  "entities.jsonl": (read_words, ENTITIES_ROW),
  "examples.jsonl": (read_examples, {"text": "a", "id": 1, "label": ["x", 1]}),
}


@pytest.mark.parametrize("name", JSON_READERS)
@given(data=st.data())
def test_any_json_value_is_a_value_or_one_line(folder, name, data):
  read, valid = JSON_READERS[name]
  path = folder / name
  path.write_text(json.dumps(data.draw(fuzzing.mutated_json(valid))))
  fuzzing.check_writable(fuzzing.value_or_error(read, path))


@given(content=fuzzing.mutated(CONLL.encode(), CONLL_TABS.encode()))
def test_a_column_that_is_added_is_read_again(folder, content):
  path, other = folder / "words.txt", folder / "tagged.txt"
  path.write_bytes(content)
  source = tagging.Source(str(path), is_tagged=False)
  sentences = fuzzing.value_or_error(whole(read_words), path)
  if sentences is None:
    return
  words = [s.words for s in sentences]
  tags = [f"B-{i}" for i in range(sum(map(len, words)))]
  lines = tagging.append_column(source, tags)
  other.write_text("".join(f"{line}\n" for line in lines), newline="")
  assert [s.words for s in read_words(str(other))] == words
  lasts = [row.split()[-1] for row in other.read_text().split("\n") if row]
  assert [tag for tag in lasts if tag.startswith("B-")][-len(tags) :] == tags


@pytest.mark.parametrize("names", [("text",), ("text", "text_pair")])
@pytest.mark.parametrize("format", request_lines.FORMATS)
@given(data=st.data())
def test_any_request_is_answered(folder, format, names, data):
  valid = {
    "lines": "a b\n\u4e2d\n",
    "tsv": "a\tb\nc\td\n",
    "csv": 'a,"b"\nc,d\n',
    "jsonl": json.dumps(REQUEST) + "\n",
  }[format].encode()
  content = data.draw(
    fuzzing.mutated(valid)
    | fuzzing.mutated_json(REQUEST).map(lambda v: json.dumps(v).encode())
    | fuzzing.any_bytes()
  )
  path = folder / "requests.txt"
  path.write_bytes(content)
  maker = tiny_models.make_maker(folder, names)
  lines = fuzzing.value_or_error(read_requests(maker, format), path)
  if format == "csv" and lines is None:  # It ends at a fault.
    return
  count = len(content.splitlines(keepends=True))
  assert format == "csv" or len(lines) == count or b"\r" in content
  for index, line in enumerate(lines):
    assert line.first_fields["index"] == index
    assert (line.request is None) == bool(line.error)
    fuzzing.check_writable([line.first_fields, line.request, line.error])
    assert len(line.error.splitlines()) <= 1
