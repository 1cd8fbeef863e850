"""Lines of input for an exported model: plain text, TSV, CSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error. Only
CSV ends at a fault, for what is after a wrong quote is not known.
"""

from collections.abc import Iterator, Sequence
import itertools
import json
import os
from typing import Any, NamedTuple

from bert.data import files, messages, tables
from bert.serving import answer_maker, answers, export_card
from bert.tasks import multiple_choice

_CHOICES = answer_maker.CHOICES
_TABLES = ("tsv", "csv")
FORMATS = ("lines", *_TABLES, "jsonl")
_ENDINGS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl"}
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


class _Row(NamedTuple):
  number: int  # That of the line, from 1.
  content: Any  # Its text, or its cells.
  fault: str = ""  # What is wrong with it.


# For each input of the model its column from 0, or None if the file has none
# for it. None instead of a list: the columns are the inputs, in their order.
_Places = Sequence[int | None] | None


class RequestLine(NamedTuple):
  """A line of the input."""

  request: answer_maker.Encoded | None  # None if there is an error.
  first_fields: dict[str, Any]  # The first fields of its answer.
  error: str = ""


def check(source: Source, card: export_card.Card) -> None:
  """Raises a ValueError if flags do not fit, or the file lacks a column.

  Unlike `read`, it needs no model. The standard input is not looked at: it
  could be read only once.
  """
  format = _choose_format(source, card)
  if _may_have_header(source, format) and os.path.isfile(source.input_file):
    _skip_header(_read_rows(source, format), source, format, card)


def read(
  source: Source, maker: answer_maker.AnswerMaker
) -> Iterator[RequestLine]:
  """Yields the lines of predict.py's input; a ValueError names a bad column."""
  names = list(maker.is_required)
  format = _choose_format(source, maker.card)

  # The first line decides where the columns are; a header is no request.
  rows = _read_rows(source, format)
  places = None
  if _may_have_header(source, format):
    rows, places = _skip_header(rows, source, format, maker.card)

  for index, (number, row, fault) in enumerate(rows):
    first_fields: dict[str, Any] = {"index": index}
    # A fault of one line becomes its answer: the next lines are still read.
    try:
      if fault:
        raise ValueError(fault)

      if places:
        row = _choose_cells(row, places)
      # A question with fewer choices than another one has empty cells.
      if places and names[-1] == _CHOICES:
        while len(row) > len(names) and not row[-1].strip():
          row.pop()
      request = _parse(row, format, names)

      # Only an object can bring an id of its own; the answer repeats it.
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        _check_id(request["id"])
        first_fields["id"] = request["id"]
      yield RequestLine(maker.encode(request), first_fields)
    except ValueError as error:
      yield RequestLine(None, first_fields, f"line {number}: {error}")


def _choose_format(source: Source, card: export_card.Card) -> str:
  """Returns one of FORMATS; a ValueError says that a flag does not fit it."""
  path = source.input_file
  format = source.input_format
  if format == "auto":
    format = _guess_format(path, card.inputs)

  # Flags of columns would have no effect elsewhere: better an error.
  is_asked = source.text_column or source.text_pair_column
  is_asked = is_asked or source.header != "auto"
  if is_asked and (format not in _TABLES or _CHOICES in card.inputs):
    raise ValueError(
      f"{path}: --text_column, --text_pair_column and --header are for TSV "
      "and CSV files without choices"
    )
  return format


def _guess_format(path: str, names: Sequence[str]) -> str:
  """Returns the format of a file by its name; without a known ending by texts.

  Two texts a line need a table; one needs none.
  """
  name = path.lower().removesuffix(".gz").removesuffix(".xz")
  ending = os.path.splitext(name)[1]
  if ending == ".ft":  # fastText's.
    raise ValueError(
      f"{path}: {ending} is not read: pass .tsv, .csv or .jsonl, or "
      "--input_format"
    )
  return _ENDINGS.get(ending) or ("tsv" if len(names) > 1 else "lines")


def _read_rows(source: Source, format: str) -> Iterator[_Row]:
  """Yields the lines of the input; a ValueError names a fault of CSV."""
  lines = _decode_lines(source, removes_returns=format in ("lines", "tsv"))
  if format == "csv":
    path = source.input_file
    for place, cells in tables.parse_csv(path, _refuse_faults(path, lines)):
      yield _Row(int(place.rpartition(":")[2]), cells)
  elif format == "tsv":
    for row in lines:
      yield row if row.fault else row._replace(content=row.content.split("\t"))
  else:
    yield from lines


def _decode_lines(source: Source, removes_returns: bool) -> Iterator[_Row]:
  """Yields lines as text, or with the fault that they are not UTF-8."""
  for number, line in enumerate(_raw_lines(source), 1):
    try:
      text = decode(line).removesuffix("\n")
    except ValueError as error:
      yield _Row(number, None, str(error))
      continue

    # Some editors begin a file with a byte order mark.
    if number == 1 and not source.text:
      text = text.removeprefix("\ufeff")
    if removes_returns:  # As `files.read_lines` does.
      text = text.replace("\r", "")
    yield _Row(number, text)


def _refuse_faults(path: str, lines: Iterator[_Row]) -> Iterator[str]:
  # A row of CSV may have several lines: without one of them, it has no cells.
  for number, text, fault in lines:
    if fault:
      raise ValueError(f"{path}:{number}: {fault}")
    yield text


def _raw_lines(source: Source) -> Iterator[bytes]:
  if source.text:
    # Invalid UTF-8 on the command line is in surrogates.
    yield from (text.encode("utf-8", "surrogateescape") for text in source.text)
  elif source.input_file != files.STANDARD_INPUT:
    yield from files.read_raw_lines(source.input_file)
  else:
    # A thread reads it, and Python aborts if one holds sys.stdin at its end.
    with open(0, "rb", closefd=False) as stream:
      yield from stream


def _may_have_header(source: Source, format: str) -> bool:
  return format in _TABLES and not source.text


def _skip_header(
  rows: Iterator[_Row], source: Source, format: str, card: export_card.Card
) -> tuple[Iterator[_Row], _Places]:
  """Returns the rows without a header, and the places of the inputs."""
  first = next(rows, None)
  if first is None:
    return rows, None

  # A first line that is not UTF-8 cannot be a header; `read` names its fault.
  places = None
  is_header = False
  if not first.fault:
    places, is_header = _find_places(first.content, source, format, card)
  return rows if is_header else itertools.chain([first], rows), places


def _find_places(
  row: list[str], source: Source, format: str, card: export_card.Card
) -> tuple[_Places, bool]:
  """Finds the inputs in the first row of a table, and if it is a header.

  They are in the columns of the flags, else in those of the training if the row
  has them, else in those of the inputs' names; without any, None: in all.
  """
  names, header = list(card.inputs), source.header
  if _CHOICES in names:
    places = _find_choices(row)
    return places, places is not None

  cells = [cell.strip() for cell in row]
  trained = card.training.get("columns") or {}
  known = _known_columns(card)
  of_training = known[0]
  # The training's columns may be numbers, and the file has as many as it.
  are_numbers = all(type(column) is int for column in of_training)
  has_numbers = are_numbers and len(names) < len(cells) == trained.get("count")
  is_alike = has_numbers and header != "no" and bool(trained.get("header"))

  # By the flags, if they are numbers.
  given = [x for x in (source.text_column, source.text_pair_column) if x]
  is_half = source.text_pair_column and not source.text_column
  if is_half or given and len(given) not in (len(names), _num_required(card)):
    raise ValueError(
      f"--text_column and --text_pair_column are {' and '.join(given)}; "
      f"expected a column for each of {' and '.join(names)}"
    )
  if given and all(column.isdecimal() for column in given):
    numbers = list(map(int, given))
    chosen = [cells[n] for n in numbers if n < len(cells)]
    is_header = chosen in known or (is_alike and numbers == of_training)
    return numbers, header == "yes" or (header == "auto" and is_header)

  # As in the training's file; else by name: of the flags, or of the first of
  # the known headers that is there.
  if is_alike and not given:
    return of_training, True
  for columns in [given] if given else known:
    is_whole = len(columns) == len(names) or given or len(cells) == 1
    if is_whole and set(columns) <= set(cells) and header != "no":
      return list(map(cells.index, columns)), True
  if given:
    raise ValueError(
      f"{source.input_file}: no header with {' and '.join(given)}; the first "
      f"row is: {', '.join(cells)[:200]}"
    )

  # By number: the file has the columns of the training's, such as a label.
  if has_numbers:
    return of_training, header == "yes"

  # All columns in order. A further one is an error of its line in TSV, and of
  # the whole file in CSV.
  if format == "csv" and len(row) > len(names):
    raise ValueError(
      f"{source.input_file}: {len(row)} columns; pass --text_column, a name or "
      f"a number from 0; the first row is: {messages.list_names(row)}"
    )
  return None, header == "yes"


def _known_columns(card: export_card.Card) -> list[list[Any]]:
  """Returns the columns of the training, the inputs' names, and GLUE's."""
  names = list(card.inputs)
  trained = card.training.get("columns") or {}
  of_training = [trained.get(name) for name in names]

  # A model of one text takes the first of two names. One of vectors may do so,
  # whose second text is for pairs alone.
  usual = [
    list(columns[:count])
    for count in dict.fromkeys((len(names), _num_required(card)))
    for columns in (names, *_HEADERS)
    if len(columns) >= count
  ]
  return [of_training, *usual]


def _num_required(card: export_card.Card) -> int:
  """Returns how many columns a table of inputs must have."""
  takes_texts = answers.find_maker(card.kind) is answers.Features
  return 1 if takes_texts else len(card.inputs)


def _find_choices(cells: Sequence[str]) -> _Places:
  """Finds the inputs in a header that is SWAG's; None if it is not."""
  names = [cell.strip() for cell in cells]
  endings = multiple_choice.find_endings(names)
  if "sent1" not in names or not set(endings).issubset(names):
    return None
  question = names.index("sent2") if "sent2" in names else None
  choices = [names.index(ending) for ending in endings]
  return [names.index("sent1"), question] + choices


def _choose_cells(cells: list[str], places: Sequence[int | None]) -> list[str]:
  """Returns the cells at places; "" for a column that is not there."""
  needed = 1 + max(place for place in places if place is not None)
  if len(cells) < needed:
    raise ValueError(f"{len(cells)} columns, expected {needed}")
  return ["" if place is None else cells[place] for place in places]


def decode(line: bytes) -> str:
  """Decodes UTF-8; a ValueError shows what is something else."""
  try:
    return line.decode("utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(messages.describe_encoding(error)) from None


def _parse(row, format, names) -> Any:
  """Returns the request of a line, as `AnswerMaker.encode` takes it."""
  if format == "jsonl":
    return parse_json(row)
  if format == "lines":
    return {names[0]: row}

  # Choices are the last input: all columns that are left are choices.
  cells = row
  last = len(names) - 1
  if names[last] == _CHOICES and len(cells) > last:
    cells = cells[:last] + [cells[last:]]

  # Fewer cells may do: `encode` says which input is missing.
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
  # JSON is parsed more freely than it is written: NaN, half an emoji.
  try:
    json.dumps(id_, ensure_ascii=False, allow_nan=False).encode()
  except (ValueError, RecursionError) as error:
    raise ValueError(f"id cannot be written: {error}") from None
