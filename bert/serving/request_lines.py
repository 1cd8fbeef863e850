"""Lines of input for an exported model: plain text, TSV, CSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error. Only
CSV ends at a fault, for what is after a wrong quote is not known.
"""

from collections.abc import Iterator, Mapping, Sequence
import itertools
import json
import os
from typing import Any, NamedTuple

from bert.data import files, messages, tables
from bert.serving import answer_maker, export_card
from bert.tasks import multiple_choice

_CHOICES = answer_maker.CHOICES
_TABLES = ("tsv", "csv")
FORMATS = ("lines", *_TABLES, "jsonl")
# The columns of texts in the headers of GLUE's files.
_HEADERS = (
  ("sentence1", "sentence2"),
  ("question", "sentence"),
  ("question1", "question2"),
  ("#1 String", "#2 String"),
  ("sentence",),
)


class Source(NamedTuple):
  """Where the input is and how it is read, by predict.py's flags."""

  input_file: str
  text: Sequence[str] = ()  # Lines instead of the file's.
  input_format: str = "auto"
  text_column: str | None = None
  text_pair_column: str | None = None
  header: str = "auto"


class RequestLine(NamedTuple):
  """A line of the input."""

  request: answer_maker.Encoded | None  # None if there is an error.
  shown: dict[str, Any]  # The first fields of its answer.
  error: str = ""


def check(source: Source, card: export_card.Card) -> None:
  """Raises a ValueError if flags do not fit, or the file lacks a column.

  Unlike `read`, it needs no model. The standard input is not looked at.
  """
  format, path = _choose_format(source, card), source.input_file
  if format in _TABLES and not source.text and os.path.isfile(path):
    for _, row, fault in itertools.islice(_read_rows((), path, format), 1):
      if not fault:
        _find_places(row, source, format, card)


def read(
  source: Source, maker: answer_maker.AnswerMaker
) -> Iterator[RequestLine]:
  """Yields the lines of predict.py's input; a ValueError names a bad column."""
  names, format = list(maker.inputs), _choose_format(source, maker.card)
  places: Sequence[int | None] | None = None
  is_first, index = format in _TABLES and not source.text, 0
  rows = _read_rows(source.text, source.input_file, format)
  for number, row, fault in rows:
    if is_first and not fault:
      places, is_header = _find_places(row, source, format, maker.card)
      if is_header:
        is_first = False
        continue
    is_first = False
    shown = {"index": index}
    index += 1
    try:
      if fault:
        raise ValueError(fault)
      if places:
        row = _choose_cells(row, places)
      while places and names[-1] == _CHOICES and not row[-1].strip():
        row.pop()  # This question has fewer choices than others.
      request = _parse(row, format, names)
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        _check_id(request["id"])
        shown["id"] = request["id"]
      yield RequestLine(maker.encode(request), shown)
    except ValueError as error:
      yield RequestLine(None, shown, f"line {number}: {error}")


def _choose_format(source: Source, card: export_card.Card) -> str:
  """Returns one of FORMATS; a ValueError says that a flag does not fit it."""
  path, format = source.input_file, source.input_format
  if format == "auto":
    format = _guess_format(path, card.inputs)
  is_asked = source.text_column or source.text_pair_column
  is_asked = is_asked or source.header != "auto"
  if is_asked and (format not in _TABLES or _CHOICES in card.inputs):
    raise ValueError(
      f"{path}: --text_column, --text_pair_column and --header are for TSV "
      "and CSV files without choices"
    )
  return format


def _find_places(
  row: list[str], source: Source, format: str, card: export_card.Card
) -> tuple[Sequence[int | None] | None, bool]:
  """Finds the inputs in the first row of a table, and if it is a header."""
  names, path = list(card.inputs), source.input_file
  if _CHOICES in names:
    found = _find_choices(row)
    return found, found is not None
  columns = source.text_column, source.text_pair_column
  columns = list(filter(None, columns))
  trained = card.training.get("columns") or {}
  places, is_header = _find_columns(
    row, columns, source.header, names, path, trained
  )
  if format == "csv" and not places and len(row) > len(names):
    raise ValueError(
      f"{path}: {len(row)} columns; pass --text_column, a name or a number "
      f"from 0; the first row is: {messages.list_names(row)}"
    )
  return places, is_header


def _read_rows(
  texts: Sequence[str], path: str, format: str
) -> Iterator[tuple[int, Any, str]]:
  """Yields the number of each line, its text or cells, and what is wrong."""
  if format == "csv":
    for location, cells in tables.parse_csv(path, _decode_all(texts, path)):
      yield int(location.rpartition(":")[2]), cells, ""
    return
  for number, line in enumerate(_raw_lines(texts, path), 1):
    try:
      text = decode(line).removesuffix("\n")
    except ValueError as error:
      yield number, None, str(error)
      continue
    if number == 1 and not texts:
      text = text.removeprefix("\ufeff")
    if format != "jsonl":
      text = text.replace("\r", "")  # As `files.read_lines` does.
    yield number, text.split("\t") if format == "tsv" else text, ""


def _decode_all(texts: Sequence[str], path: str) -> Iterator[str]:
  for number, line in enumerate(_raw_lines(texts, path), 1):
    try:
      text = decode(line).removesuffix("\n")
    except ValueError as error:
      raise ValueError(f"{path}:{number}: {error}") from None
    yield text.removeprefix("\ufeff") if number == 1 else text


def _find_columns(
  cells: Sequence[str],
  given: Sequence[str],
  header: str,
  names: Sequence[str],
  path: str,
  trained: Mapping[str, Any],
) -> tuple[Sequence[int | None] | None, bool]:
  """Finds the inputs in the first row of a table.

  They are the columns of the flags, else those of the training if the row has
  them, else those of the inputs' names. Returns their places, None for all, and
  whether the row is a header.
  """
  if given and len(given) != len(names):
    raise ValueError(f"expected a column for each of {' and '.join(names)}")
  if given and all(column.isdecimal() for column in given):
    return list(map(int, given)), header == "yes"
  cells = [cell.strip() for cell in cells]
  of_training = [trained.get(name) for name in names]
  for known in [given] if given else [of_training, names, *_HEADERS]:
    known = known[: len(names)]
    is_there = len(known) == len(names) and set(known) <= set(cells)
    if is_there and header != "no":
      return list(map(cells.index, known)), True
  if given:
    raise ValueError(
      f"{path}: no header with {' and '.join(given)}; the first row is: "
      f"{', '.join(cells)[:200]}"
    )
  is_header = header == "yes" or (header == "auto" and trained.get("header"))
  # Numbers are of a file with the columns of the training's, such as a label.
  are_numbers = all(type(column) is int for column in of_training)
  if are_numbers and len(names) < len(cells) == trained.get("count"):
    return of_training, bool(is_header)
  return None, header == "yes"


def _find_choices(cells: Sequence[str]) -> list[int | None] | None:
  """Finds the inputs in a header that is SWAG's; None if it is not."""
  names = [cell.strip() for cell in cells]
  endings = multiple_choice.find_endings(names)
  if not {"sent1", *endings}.issubset(names):
    return None
  question = names.index("sent2") if "sent2" in names else None
  return [names.index("sent1"), question, *map(names.index, endings)]


def _choose_cells(cells: list[str], places: Sequence[int | None]) -> list[str]:
  """Returns the cells at places; "" for a column that is not there."""
  needed = 1 + max(place for place in places if place is not None)
  if len(cells) < needed:
    raise ValueError(f"{len(cells)} columns, expected {needed}")
  return ["" if place is None else cells[place] for place in places]


def _guess_format(path: str, names: Sequence[str]) -> str:
  name = path.lower().removesuffix(".gz").removesuffix(".xz")
  ending = os.path.splitext(name)[1]
  if ending == ".ft":  # fastText's.
    raise ValueError(
      f"{path}: {ending} is not read: pass .tsv, .csv or .jsonl, or "
      "--input_format"
    )
  if ending in (".tsv", ".csv", ".jsonl"):
    return ending[1:]
  if ending == ".json":
    return "jsonl"
  return "tsv" if len(names) > 1 else "lines"


def _raw_lines(texts, path) -> Iterator[bytes]:
  if texts:
    # Invalid UTF-8 on the command line is in surrogates.
    yield from (text.encode("utf-8", "surrogateescape") for text in texts)
  elif path != files.STANDARD_INPUT:
    yield from files.read_raw_lines(path)
  else:
    # A thread reads it, and Python aborts if one holds sys.stdin at its end.
    with open(0, "rb", closefd=False) as source:
      yield from source


def decode(line: bytes) -> str:
  """Decodes UTF-8; a ValueError shows what is something else."""
  try:
    return line.decode("utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(messages.describe_encoding(error)) from None


def _parse(row, format, names) -> Any:
  if format == "jsonl":
    return parse_json(row)
  if format == "lines":
    return {names[0]: row}
  cells, last = row, len(names) - 1
  if names[last] == _CHOICES and len(cells) > last:
    cells = [*cells[:last], cells[last:]]  # All other columns are choices.
  if len(cells) > len(names):
    raise ValueError(
      f"{len(cells)} columns, expected {' and '.join(names)} with a "
      f"{'comma' if format == 'csv' else 'tab'} between"
    )
  return dict(zip(names, cells, strict=False))


def parse_json(text: str) -> Any:
  """Parses JSON; a ValueError says why it is something else."""
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"not JSON: {error}") from None


def _check_id(id_: Any) -> None:
  try:
    json.dumps(id_, ensure_ascii=False, allow_nan=False).encode()
  except (ValueError, RecursionError) as error:
    raise ValueError(f"id cannot be written: {error}") from None
