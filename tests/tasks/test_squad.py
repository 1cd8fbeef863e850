"""Files of questions: SQuAD's JSON, JSON Lines, TSV, and what is wrong."""

import gzip
import json
import re

import pytest

from bert.tasks import squad

ROME = squad.Answer("Rome", 0)


def squad_json(question=(), context="Rome is old.", **others):
  """Returns a SQuAD file of one question with changes."""
  question = {
    "id": "q1",
    "question": "What is old?",
    "answers": [{"text": "Rome", "answer_start": 0}],
    **dict(question),
  }
  question = {k: v for k, v in question.items() if v is not KeyError}
  paragraph = {"context": context, "qas": [question], **others}
  paragraph = {k: v for k, v in paragraph.items() if v is not KeyError}
  return json.dumps({"data": [{"title": "T", "paragraphs": [paragraph]}]})


def read(path, text):
  path.write_text(text)
  return list(squad.read_questions(str(path)))


def test_squad_json(tmp_path):
  path, context = tmp_path / "dev.json.gz", "Rome is old."
  answers = [{"text": "Rome", "answer_start": 0}]
  question = {"id": "q1", "question": "What is old?", "answers": answers}
  impossible = {"id": "q2", "question": "Who?", "is_impossible": True}
  impossible |= {"answers": [], "plausible_answers": answers}
  unknown = {"id": 3, "question": ""}  # The original answered it, too.
  spaces = {"id": " ", "question": "Why?"}
  content = {"context": context, "qas": [question, impossible, unknown, spaces]}
  content = {"data": [{"title": "Rome", "paragraphs": [content]}]}
  path.write_bytes(gzip.compress(json.dumps(content).encode()))
  assert list(squad.read_questions(str(path))) == [
    ("q1", "What is old?", context, (ROME,), f"{path}: question 'q1'"),
    ("q2", "Who?", context, (), f"{path}: question 'q2'"),
    ("3", "", context, None, f"{path}: question '3'"),
    (" ", "Why?", context, None, f"{path}: question ' '"),
  ]


@pytest.mark.parametrize("name", ["own.jsonl", "own.json"])
def test_json_lines(tmp_path, name):
  answers = {"text": ["Rome"], "answer_start": [0]}
  rows = [
    {"id": "a", "question": "Q1?", "context": "Rome"},
    {"id": 2, "question": "Q2?", "context": "Rome", "answers": answers},
    {"id": "c", "question": "Q3?", "context": "C two", "answers": []},
  ]
  path = tmp_path / name
  assert read(path, "\n".join(map(json.dumps, rows))) == [
    ("a", "Q1?", "Rome", None, f"{path}:1"),
    ("2", "Q2?", "Rome", (ROME,), f"{path}:2"),
    ("c", "Q3?", "C two", (), f"{path}:3"),
  ]


@pytest.mark.parametrize(
  "text",
  ["1\tWho?\tIt was I.\n", "context\tid\tquestion\nIt was I.\t1\tWho?\n"],
)
def test_tables_with_and_without_names(tmp_path, text):
  (question,) = read(tmp_path / "own.tsv", text)
  assert question[:4] == ("1", "Who?", "It was I.", None)


LIST = "expected as 'answers' a list of"
ANSWERS = f"question 'q1': {LIST}"
ID = "article 'T': question 1 of a paragraph ha"
ROW = '{"id": 1, "question": "Q", "context": "C", '
# SQuAD's JSON, JSON Lines, tables; and the message.
FAULTS = {
  "json": [
    (squad_json()[:-9], "not a JSON file: Expecting"),
    ('{"data": [{"title": "T"}]}', "article 'T': expected a list"),
    (squad_json(context=KeyError), "question 'q1': no 'context'"),
    (squad_json(context=" \n"), "question 'q1': the context is empty"),
    (squad_json(context=None, qas=[]), "article 'T': no 'context'"),
    *((squad_json({"id": nothing}), ID) for nothing in (KeyError, None, "")),
    (
      squad_json({"question": "half \ud83d"}),
      "question 'q1': the question holds \\ud83d, half of a surrogate pair",
    ),
    (
      squad_json({"id": "half \ud83d"}),
      "question 'half \\ud83d': the id holds \\ud83d, half of a surrogate pair",
    ),
    (
      squad_json({"is_impossible": "false"}),
      "question 'q1': expected true or false as 'is_impossible', found 'fa",
    ),
    (
      squad_json({"question": ["long"] * 99}),
      "question 'q1': expected a text as 'question', found ['long', 'long',",
    ),
    (squad_json({"answers": ["Rome"]}), ANSWERS),
    (squad_json({"answers": ""}), ANSWERS),
    (squad_json({"answers": "two\nlines"}), ANSWERS),
    (squad_json({"answers": [{"text": 3, "answer_start": 0}]}), ANSWERS),
    (squad_json({"answers": [{"text": "\ud83d", "answer_start": 0}]}), ANSWERS),
    (squad_json({"answers": [{"text": "R", "answer_start": 1e999}]}), ANSWERS),
    (squad_json({"answers": [{"text": "o", "answer_start": 1.5}]}), ANSWERS),
  ],
  "jsonl": [
    (
      ROW + '"is_impossible": 0}',
      "expected true or false as 'is_impossible', found '0'",
    ),
    (ROW + '"answers": {"text": "42", "answer_start": 12}}', LIST),
    ('{"id": "1", "question": NaN}', "no 'question'"),
    (
      '{"id": "1", "%s\\n": 2}' % ("k" * 9000),
      f"no 'question'; the keys are id, {'k' * 40}...",
    ),
    ('{"id": "1", "question": "Q"}', "no 'context'"),
    ('{"id": "1", "question": Q}', ""),
  ],
  "tsv": [
    ("id\tquestion\tparagraph\n1\tQ\tC\n", "no column 'context'"),
    ("1\tQ\n", "2 columns; expected id, question and context"),
    ("1\tQ\t \n", "the context is empty"),
    ("1\tQ\tC\n2\tQ\n", "expected at least 3 columns"),
  ],
  "pdf": [("", "expected a name that ends in")],
}


@pytest.mark.parametrize(
  ("ending", "text", "message"),
  [(ending, *row) for ending, rows in FAULTS.items() for row in rows],
)
def test_faults_are_located(tmp_path, ending, text, message):
  path = tmp_path / f"a.{ending}"
  with pytest.raises(ValueError) as caught:
    read(path, text)
  line = (
    r":\d" if ending in ("jsonl", "tsv") and "no column" not in message else ""
  )
  found = str(caught.value)
  assert re.match(rf"{path}{line}: {re.escape(message)}", found)
  assert "\n" not in found and len(found) < 400


def test_an_id_is_given_once(tmp_path):
  path = tmp_path / "own.tsv"
  questions = read(path, "1\tQ\tC\n2\tQ\tC\n1\tR\tD\n")
  with pytest.raises(ValueError, match=r"own.tsv:3: a second .* the id '1'"):
    list(squad.unique_questions(questions))
