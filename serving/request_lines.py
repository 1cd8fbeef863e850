"""Lines of input for an exported model: plain text, TSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error.
"""

from collections.abc import Iterator, Sequence
import json
import os
from typing import Any, NamedTuple

from data import files
from serving import answer_maker

FORMATS = ("lines", "tsv", "jsonl")


class RequestLine(NamedTuple):
  """A line of the input."""

  request: answer_maker.Encoded | None  # None if there is an error.
  shown: dict[str, Any]  # The first fields of its answer.
  error: str = ""


def read(
  texts: Sequence[str] | None,
  path: str,
  format: str,
  maker: answer_maker.AnswerMaker,
) -> Iterator[RequestLine]:
  """Yields the lines of a file as they come.

  Args:
    texts: the lines, instead of those of a file.
    path: of the file, .gz and .xz too, or - for the standard input.
    format: one of FORMATS, or auto: by the file's name, else TSV for a model
      that takes several texts.
  """
  names = list(maker.inputs)
  if format == "auto":
    format = _guess_format(path, names)
  for index, line in enumerate(_raw_lines(texts, path)):
    shown = {"index": index}
    try:
      text = decode(line).removesuffix("\n")
      if not (index or texts):
        text = text.removeprefix("\ufeff")
      request = _parse(text, format, names)
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        _check_id(request["id"])
        shown["id"] = request["id"]
      yield RequestLine(maker.encode(request), shown)
    except ValueError as error:
      yield RequestLine(None, shown, f"line {index + 1}: {error}")


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
  """Decodes UTF-8; a ValueError says where it is something else."""
  try:
    return line.decode("utf-8")
  except UnicodeDecodeError as error:
    raise ValueError(f"not UTF-8 at byte offset {error.start}") from None


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
