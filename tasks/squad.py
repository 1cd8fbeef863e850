"""Reads questions about texts: SQuAD v1.1 and v2.0, and files of your own.

A file is SQuAD's JSON (CMRC 2018 and others have the same form), JSON Lines of

  {"id": "1", "question": "...", "context": "...",
   "answers": [{"text": "...", "answer_start": 17}]}

with or without `answers`, or TSV of id, question and context. It may be
compressed.
"""

from collections.abc import Iterable, Iterator
import itertools
import reprlib
from typing import Any, NamedTuple

from data import files, tables

_COLUMNS = ("id", "question", "context")
# Writes any value, however long or deep, on a part of a line.
_shown = reprlib.Repr()
_shown.maxstring = 80


class Answer(NamedTuple):
  """An answer that a person gave."""

  text: str
  start: int | None  # Its first character in the context, if that is known.


class Question(NamedTuple):
  """A question about a context."""

  question_id: str
  text: str
  answers: tuple[Answer, ...] | None  # None: not known; (): no answer.
  location: str  # For messages.


class Paragraph(NamedTuple):
  """A context and the questions about it."""

  context: str
  questions: tuple[Question, ...]


def read_paragraphs(path: str) -> Iterator[Paragraph]:
  """Yields the paragraphs of a file, in their order.

  Args:
    path: its name ends in .json, or in .jsonl, .tsv, .txt or .csv; .gz or .xz
      may follow. The first row of a table may hold the names of its columns.

  Raises:
    ValueError: the file is not of these forms, a question or context is missing
      or a context empty; the message has the location.
  """
  name = path.removesuffix(".gz").removesuffix(".xz").lower()
  if name.endswith(".json"):
    for article in _list(files.read_json(path), "data", path):
      yield from _read_article(article, path)
    return
  rows = _read_jsonl(path) if name.endswith(".jsonl") else _read_table(path)
  # A context that is repeated from row to row need be worked on only once.
  for context, group in itertools.groupby(rows, lambda row: row[0]):
    yield Paragraph(context, tuple(question for _, question in group))


def read_questions(path: str) -> Iterator[Question]:
  """Yields the questions of a file; see `read_paragraphs`."""
  for paragraph in read_paragraphs(path):
    yield from paragraph.questions


def unique_questions(
  paragraphs: Iterable[Paragraph],
) -> Iterator[Paragraph]:
  """Passes on paragraphs; a ValueError names an id that two questions have."""
  seen: set[int] = set()
  for paragraph in paragraphs:
    for question in paragraph.questions:
      key = hash(question.question_id)  # Smaller than the id itself.
      if key in seen:
        raise ValueError(
          f"{question.location}: a second question has the id"
          f" {question.question_id!r}; answers are given by id"
        )
      seen.add(key)
    yield paragraph


def first_questions(
  paragraphs: Iterable[Paragraph], count: int | None
) -> Iterator[Paragraph]:
  """Passes on paragraphs up to a number of questions; None for all."""
  for paragraph in paragraphs:
    if count is not None:
      paragraph = paragraph._replace(questions=paragraph.questions[:count])
      count -= len(paragraph.questions)
    yield paragraph
    if count == 0:
      return


def _read_article(article: Any, path: str) -> Iterator[Paragraph]:
  title = article.get("title", "") if isinstance(article, dict) else ""
  location = f"{path}: article {_shown.repr(title)}"
  for paragraph in _list(article, "paragraphs", location):
    questions = _list(paragraph, "qas", location)
    ids = [q.get("id") if isinstance(q, dict) else None for q in questions]
    near = location
    if questions:
      near = f"{path}: question {_shown.repr(ids[0])}"
    context = _text(paragraph, "context", near)
    read = []
    for number, (question, question_id) in enumerate(
      zip(questions, ids, strict=True), 1
    ):
      if type(question_id) is int:
        question_id = str(question_id)
      if not isinstance(question_id, str) or not question_id:
        raise ValueError(
          f"{location}: question {number} of a paragraph has no 'id'"
        )
      near = f"{path}: question {_shown.repr(question_id)}"
      tables.check_unicode(question_id, f"{near}: the id")
      text = _text(question, "question", near)
      answers = _answers(question, near)
      read.append(Question(question_id, text, answers, near))
    if read:
      yield Paragraph(context, tuple(read))


def _read_jsonl(path: str) -> Iterator[tuple[str, Question]]:
  for location, cells in tables.read_rows(path):
    question_id = _text(cells, "id", location)
    question = _text(cells, "question", location)
    context = _text(cells, "context", location)
    answers = _answers(cells, location)
    yield context, Question(question_id, question, answers, location)


def _read_table(path: str) -> Iterator[tuple[str, Question]]:
  first = next(tables.read_rows(path), None)
  cells = [cell.strip().lower() for cell in first.cells] if first else []
  has_header = "question" in cells or cells[:1] == ["id"]
  if not has_header and cells and len(cells) != len(_COLUMNS):
    raise ValueError(
      f"{first.location}: {len(cells)} columns; expected id, question and"
      " context with tabs between them, or a first row of names"
    )
  columns = _COLUMNS if has_header else range(len(_COLUMNS))
  for location, values in tables.read_columns(path, columns, header=has_header):
    named = dict(zip(_COLUMNS, values, strict=True))
    question_id, question, context = (
      _text(named, name, location) for name in _COLUMNS
    )
    yield context, Question(question_id, question, None, location)


def _list(value: Any, key: str, location: str) -> list[Any]:
  items = value.get(key) if isinstance(value, dict) else None
  if not isinstance(items, list):
    raise ValueError(f"{location}: expected a list under the key {key!r}")
  return items


def _text(value: Any, key: str, location: str) -> str:
  """Returns a text that must be there and, if no question, hold something."""
  text = value.get(key)
  if text is None:
    raise ValueError(f"{location}: no {key!r}")
  if not isinstance(text, str):
    raise ValueError(
      f"{location}: expected a text as {key!r}, found {_shown.repr(text)}"
    )
  if not text.strip() and key != "question":  # The original answered it.
    raise ValueError(f"{location}: the {key} is empty")
  tables.check_unicode(text, f"{location}: the {key}")
  return text


def _answers(value: dict[str, Any], location: str) -> tuple[Answer, ...] | None:
  """Reads answers as SQuAD has them, or as two lists under their names."""
  is_impossible = value.get("is_impossible") or False
  if not isinstance(is_impossible, bool):
    raise ValueError(
      f"{location}: expected true or false as 'is_impossible', found "
      f"{_shown.repr(is_impossible)}"
    )
  if is_impossible:
    return ()
  answers = value.get("answers")
  if answers is None:
    return None
  try:
    if isinstance(answers, dict):
      names = ("text", "answer_start")
      pairs = zip(*(_list(answers, n, location) for n in names), strict=True)
    elif not isinstance(answers, list):
      raise TypeError
    else:
      pairs = [(a["text"], a.get("answer_start")) for a in answers]
    return tuple(Answer(_to_text(text), _to_start(at)) for text, at in pairs)
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{location}: expected as 'answers' a list of"
      ' {"text": "...", "answer_start": 0}, found'
      f" {_shown.repr(answers)}"
    ) from None


def _to_text(value: Any) -> str:
  if not isinstance(value, str):
    raise TypeError
  value.encode()  # Half of a surrogate pair is a ValueError.
  return value


def _to_start(value: Any) -> int | None:
  if value is None:
    return None
  # int() would take 1.5 for 1, and infinity for an error of another kind.
  if isinstance(value, float) and not value.is_integer():
    raise ValueError
  return int(value)
