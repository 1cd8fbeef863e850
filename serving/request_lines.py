"""Lines of input for an exported model: plain text, TSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error.
"""

from collections.abc import Iterator
import json
import os
from typing import Any, NamedTuple

from data import files
from serving import answer_maker

FORMATS = ("lines", "tsv", "jsonl")
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
  has_columns = format == "tsv" and answer_maker.CHOICES not in names
  given = settings.text_column, settings.text_pair_column
  columns = list(filter(None, given))
  if (columns or settings.header != "auto") and not has_columns:
    raise ValueError(
      f"{path}: --text_column, --text_pair_column and --header are for TSV "
      "files without choices"
    )
  positions, skipped = None, 0
  for number, line in enumerate(_raw_lines(texts, path), 1):
    shown = {"index": number - 1 - skipped}
    try:
      text = decode(line).removesuffix("\n")
      if number == 1 and not texts:
        text = text.removeprefix("\ufeff")
    except ValueError as error:
      yield RequestLine(None, shown, f"line {number}: {error}")
      continue
    if number == 1 and has_columns and not texts:
      positions, skipped = _find_columns(
        text.split("\t"), columns, settings.header, names, path
      )
      if skipped:
        continue
    try:
      if positions:
        text = _choose_cells(text, positions)
      request = _parse(text, format, names)
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        _check_id(request["id"])
        shown["id"] = request["id"]
      yield RequestLine(maker.encode(request), shown)
    except ValueError as error:
      yield RequestLine(None, shown, f"line {number}: {error}")


def _find_columns(cells, given, header, names, path):
  """Returns the inputs' places, None for all, and whether there is a header."""
  if given and len(given) != len(names):
    raise ValueError(f"expected a column for each of {' and '.join(names)}")
  if given and all(column.isdecimal() for column in given):
    return list(map(int, given)), header == "yes"
  cells = [cell.strip() for cell in cells]
  for known in [given] if given else [names, *_HEADERS]:
    known = known[: len(names)]
    is_there = len(known) == len(names) and set(known) <= set(cells)
    if is_there and header != "no":
      return list(map(cells.index, known)), True
  if given:
    raise ValueError(
      f"{path}: no header with {' and '.join(given)}; the first row is: "
      f"{', '.join(cells)[:200]}"
    )
  return None, header == "yes"


def _choose_cells(text: str, positions: list[int]) -> str:
  cells = text.replace("\r", "").split("\t")
  if len(cells) <= max(positions):
    raise ValueError(f"{len(cells)} columns, expected {max(positions) + 1}")
  return "\t".join(cells[place] for place in positions)


def _guess_format(path: str, names: list[str]) -> str:
  name = path.lower().removesuffix(".gz").removesuffix(".xz")
  ending = os.path.splitext(name)[1]
  if ending in (".csv", ".json", ".ft"):  # The last is fastText's.
    raise ValueError(
      f"{path}: {ending} is not read: pass .tsv or .jsonl, or --input_format"
    )
  if ending in (".tsv", ".jsonl"):
    return ending[1:]
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


def _parse(text, format, names) -> Any:
  if format == "jsonl":
    return parse_json(text)
  text = text.replace("\r", "")  # As `files.read_lines` does.
  if format == "lines":
    return {names[0]: text}
  cells, last = text.split("\t"), len(names) - 1
  if names[last] == answer_maker.CHOICES and len(cells) > last:
    cells = [*cells[:last], cells[last:]]  # All other columns are choices.
  if len(cells) > len(names):
    raise ValueError(
      f"{len(cells)} columns, expected {' and '.join(names)} with a tab between"
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
