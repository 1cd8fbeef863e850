"""Lines of input for an exported model: plain text, TSV, CSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error. Only
CSV ends at a fault, for what is after a wrong quote is not known.
"""

from collections.abc import Iterator, Mapping, Sequence
import json
import os
from typing import Any, NamedTuple

from data import files, tables
from serving import answer_maker

FORMATS = ("lines", "tsv", "csv", "jsonl")
# The columns of texts in the headers of GLUE's files.
_HEADERS = (
  ("sentence1", "sentence2"),
  ("question", "sentence"),
  ("question1", "question2"),
  ("#1 String", "#2 String"),
  ("sentence",),
)


class RequestLine(NamedTuple):
  """A line of the input."""

  request: answer_maker.Encoded | None  # None if there is an error.
  shown: dict[str, Any]  # The first fields of its answer.
  error: str = ""


def read(
  settings: Any, maker: answer_maker.AnswerMaker
) -> Iterator[RequestLine]:
  """Yields the lines of predict.py's input; a ValueError names a bad column."""
  texts, path, format = (
    settings.text,
    settings.input_file,
    settings.input_format,
  )
  names = list(maker.inputs)
  if format == "auto":
    format = _guess_format(path, names)
  has_columns = format in ("tsv", "csv") and answer_maker.CHOICES not in names
  given = settings.text_column, settings.text_pair_column
  columns = list(filter(None, given))
  if (columns or settings.header != "auto") and not has_columns:
    raise ValueError(
      f"{path}: --text_column, --text_pair_column and --header are for TSV "
      "and CSV files without choices"
    )
  trained = maker.card.training.get("columns") or {}
  positions, is_first, index = None, has_columns and not texts, 0
  for number, row, fault in _read_rows(texts, path, format):
    if is_first and not fault:
      positions, is_header = _find_columns(
        row, columns, settings.header, names, path, trained
      )
      if format == "csv" and not positions and len(row) > len(names):
        raise ValueError(
          f"{path}: {len(row)} columns; pass --text_column, a name or a number "
          f"from 0; the first row is: {tables.list_names(row)}"
        )
      if is_header:
        is_first = False
        continue
    is_first = False
    shown = {"index": index}
    index += 1
    try:
      if fault:
        raise ValueError(fault)
      if positions:
        row = _choose_cells(row, positions)
      request = _parse(row, format, names)
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        _check_id(request["id"])
        shown["id"] = request["id"]
      yield RequestLine(maker.encode(request), shown)
    except ValueError as error:
      yield RequestLine(None, shown, f"line {number}: {error}")


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
) -> tuple[list[int] | None, bool]:
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


def _choose_cells(cells: list[str], positions: list[int]) -> list[str]:
  if len(cells) <= max(positions):
    raise ValueError(f"{len(cells)} columns, expected {max(positions) + 1}")
  return [cells[place] for place in positions]


def _guess_format(path: str, names: list[str]) -> str:
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
    raise ValueError(files.describe_encoding(error)) from None


def _parse(row, format, names) -> Any:
  if format == "jsonl":
    return parse_json(row)
  if format == "lines":
    return {names[0]: row}
  cells, last = row, len(names) - 1
  if names[last] == answer_maker.CHOICES and len(cells) > last:
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
