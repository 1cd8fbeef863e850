"""Reads questions about texts: SQuAD v1.1 and v2.0, and files of your own.

A file is SQuAD's JSON (CMRC 2018 and others have the same form); JSON Lines of

  {"id": "1", "question": "...", "context": "...",
   "answers": [{"text": "...", "answer_start": 17}]}

with or without `answers`; or TSV of id, question and context. It may be
compressed.
"""

from collections.abc import Iterable, Iterator, Mapping
import json
import reprlib
from typing import Any, NamedTuple

from bert.data import files, messages, tables

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
  context: str
  answers: tuple[Answer, ...] | None  # None: not known; (): no answer.
  location: str  # For messages.


def read_questions(path: str) -> Iterator[Question]:
  """Yields the questions of a file, in their order.

  Its name ends in .json, which JSON Lines may have, too, or in .jsonl, .tsv,
  .txt or .csv; .gz or .xz may follow. The first row of a table may hold the
  names of its columns. A ValueError names the place of what is missing, empty
  or of another form.
  """
  # A file called .json may hold JSON Lines; its first line shows it.
  name = path.removesuffix(".gz").removesuffix(".xz").lower()
  if name.endswith(".json") and not _holds_json_lines(path):
    yield from _read_json(path)
  elif tables.find_format(path) == "jsonl":
    for location, cells in tables.read_rows(path):
      yield _make_question(cells, location)
  else:
    yield from _read_table(path)


def _holds_json_lines(path: str) -> bool:
  """Returns whether the first line is a whole question, not SQuAD's JSON."""
  lines = filter(str.strip, files.read_lines(path))
  try:
    first = json.loads(next(lines, "").removeprefix("\ufeff"))
  except (ValueError, RecursionError):
    return False
  return isinstance(first, dict) and "question" in first


def unique_questions(questions: Iterable[Question]) -> Iterator[Question]:
  """Passes on questions; a ValueError names an id that two of them have."""
  # The original writes answers as JSON objects by id: of two questions with one
  # id, the first would lose its answer.
  seen: set[int] = set()
  for question in questions:
    key = hash(question.question_id)  # Smaller than the id itself.
    if key in seen:
      raise ValueError(
        f"{question.location}: a second question has the id"
        f" {question.question_id!r}; answers are given by id"
      )

    seen.add(key)
    yield question


def _read_json(path: str) -> Iterator[Question]:
  """Yields the questions of SQuAD's JSON: articles of paragraphs of questions.

  JSON has no lines to name in messages: an error is placed by the title of its
  article, or by the id of its question.
  """
  for article in _list(files.read_json(path), "data", path):
    title = article.get("title", "") if isinstance(article, dict) else ""
    location = f"{path}: article {_shown.repr(title)}"
    for paragraph in _list(article, "paragraphs", location):
      yield from _read_paragraph(paragraph, path, location)


def _read_paragraph(paragraph, path, location) -> Iterator[Question]:
  """Yields the questions of a paragraph; `location` is that of its article."""
  questions = _list(paragraph, "qas", location)
  ids = [q.get("id") if isinstance(q, dict) else None for q in questions]

  # A paragraph has no name: the first question shows where its context is.
  first = f"{path}: question {_shown.repr(ids[0])}" if ids else location
  context = _filled_text(paragraph, "context", first)

  for number, (values, question_id) in enumerate(
    zip(questions, ids, strict=True), 1
  ):
    # Predictions are written by id, so none may be missing.
    if question_id in (None, ""):
      raise ValueError(
        f"{location}: question {number} of a paragraph has no 'id'"
      )
    if type(question_id) is int:
      question_id = str(question_id)

    near = f"{path}: question {_shown.repr(question_id)}"
    yield Question(
      # It may be of spaces only, as in the original.
      _text({"id": question_id}, "id", near),
      _text(values, "question", near),
      context,
      _answers(values, near),
      near,
    )


def _read_table(path: str) -> Iterator[Question]:
  """Yields the questions of a table, with or without a first row of names."""
  # Columns are in the order of _COLUMNS, unless the first row names them.
  first = next(tables.read_rows(path), None)
  cells = [cell.strip().lower() for cell in first.cells] if first else []
  has_header = "question" in cells or cells[:1] == ["id"]

  if first and cells and not has_header and len(cells) != len(_COLUMNS):
    raise ValueError(
      f"{first.location}: {len(cells)} columns; expected id, question and"
      " context with tabs between them, or a first row of names"
    )

  columns = _COLUMNS if has_header else range(len(_COLUMNS))
  for location, values in tables.read_columns(path, columns, header=has_header):
    yield _make_question(dict(zip(_COLUMNS, values, strict=True)), location)


def _make_question(values: Mapping[str, Any], location: str) -> Question:
  return Question(
    _filled_text(values, "id", location),
    _text(values, "question", location),  # The original answered an empty one.
    _filled_text(values, "context", location),
    _answers(values, location),
    location,
  )


def _list(value: Any, key: str, location: str) -> list[Any]:
  """Returns a list that must be there, but may be empty."""
  items = value.get(key) if isinstance(value, dict) else None
  if not isinstance(items, list):
    raise ValueError(f"{location}: expected a list under the key {key!r}")
  return items


def _text(values: Mapping[str, Any], key: str, location: str) -> str:
  """Returns a text that must be there, but may be empty."""
  text = values.get(key)
  if text is None:
    keys = messages.list_names(values)
    raise ValueError(f"{location}: no {key!r}; the keys are {keys}")
  if not isinstance(text, str):
    raise ValueError(
      f"{location}: expected a text as {key!r}, found {_shown.repr(text)}"
    )
  messages.check_unicode(text, f"{location}: the {key}")
  return text


def _filled_text(values: Mapping[str, Any], key: str, location: str) -> str:
  """Returns a text that must hold more than spaces."""
  text = _text(values, key, location)
  if not text.strip():
    raise ValueError(f"{location}: the {key} is empty")
  return text


def _answers(values, location) -> tuple[Answer, ...] | None:
  """Reads answers as SQuAD has them, or as two lists under their names.

  None if they are not known; () if the question has no answer.
  """
  # SQuAD 2.0 marks questions without an answer. They have `plausible_answers`,
  # which are wrong, beside an empty list of answers.
  is_impossible = values.get("is_impossible") or False
  if not isinstance(is_impossible, bool):
    raise ValueError(
      f"{location}: expected true or false as 'is_impossible', found "
      f"{_shown.repr(is_impossible)}"
    )
  if is_impossible:
    return ()

  # A file to predict may lack them.
  answers = values.get("answers")
  if answers is None:
    return None

  try:
    # Hugging Face's datasets have {"text": [...], "answer_start": [...]}.
    if isinstance(answers, dict):
      texts = _list(answers, "text", location)
      starts = _list(answers, "answer_start", location)
      pairs = zip(texts, starts, strict=True)
    elif isinstance(answers, list):
      pairs = [(a["text"], a.get("answer_start")) for a in answers]
    else:
      raise TypeError
    return tuple(_make_answer(text, start) for text, start in pairs)
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{location}: expected as 'answers' a list of"
      ' {"text": "...", "answer_start": 0}, found'
      f" {_shown.repr(answers)}"
    ) from None


def _make_answer(text: Any, start: Any) -> Answer:
  """Makes an answer of JSON values; a ValueError or TypeError if they are not.

  `_answers` says where that is.
  """
  if not isinstance(text, str):
    raise TypeError
  text.encode()  # Half of a surrogate pair is a ValueError.
  # int() would take 1.5 for 1, and infinity for an error of another kind.
  if isinstance(start, float) and not start.is_integer():
    raise ValueError
  return Answer(text, None if start is None else int(start))
