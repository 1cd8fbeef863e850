"""Lines of input for an exported model: plain text, TSV or JSON Lines.

A line that cannot be answered does not end the stream: it holds an error.
"""

from collections.abc import Iterator, Sequence
import json
from typing import Any, NamedTuple

from data import files
from serving import answers

FORMATS = ("lines", "tsv", "jsonl")


class RequestLine(NamedTuple):
  """A line of the input."""

  request: answers.Encoded | None  # None if there is an error.
  shown: dict[str, Any]  # The first fields of its answer.
  error: str = ""


def read(
  texts: Sequence[str] | None,
  path: str,
  format: str,
  maker: answers.AnswerMaker,
) -> Iterator[RequestLine]:
  """Yields the lines of a file as they come.

  Args:
    texts: the lines, instead of those of a file.
    path: of the file; it may end in .gz or .xz, or be - for the standard input.
    format: one of FORMATS, or auto: by the file's name, else TSV for a model
      that takes several texts.

  Raises:
    OSError, ValueError: the file cannot be read.
  """
  if format == "auto":
    format = _guess_format(path, maker)
  parse = {"lines": _parse_line, "tsv": _parse_columns, "jsonl": _parse_json}
  for index, line in enumerate(_raw_lines(texts, path)):
    shown = {"index": index}
    try:
      text = line.decode("utf-8").removesuffix("\n")
      if not (index or texts):
        text = text.removeprefix("\ufeff")
      if format != "jsonl":
        text = text.replace("\r", "")  # As `files.read_lines` does.
      request = parse[format](text, maker.inputs)
      if format == "jsonl" and isinstance(request, dict) and "id" in request:
        shown["id"] = _check_id(request["id"])
      yield RequestLine(maker.encode(request), shown)
    except UnicodeDecodeError as error:
      message = f"not UTF-8 at byte offset {error.start}"
      yield RequestLine(None, shown, f"line {index + 1}: {message}")
    except ValueError as error:
      yield RequestLine(None, shown, f"line {index + 1}: {error}")


def _guess_format(path: str, maker: answers.AnswerMaker) -> str:
  name = path.lower()
  for ending in (".gz", ".xz"):
    name = name.removesuffix(ending)
  for format in ("tsv", "jsonl"):
    if name.endswith(f".{format}"):
      return format
  for ending in (".csv", ".json", ".ft"):
    if name.endswith(ending):
      raise ValueError(
        f"{path}: {ending} is not read; make it .tsv or .jsonl, or say by "
        "--input_format what its lines are"
      )
  return "tsv" if len(maker.inputs) > 1 else "lines"


def _raw_lines(texts, path) -> Iterator[bytes]:
  if texts:
    # Invalid UTF-8 on the command line is in surrogates.
    yield from (text.encode("utf-8", "surrogateescape") for text in texts)
    return
  if path != files.STANDARD_INPUT:
    yield from files.read_raw_lines(path)
    return
  # A thread reads it, and Python aborts if one holds sys.stdin at its end.
  with open(0, "rb", closefd=False) as source:
    yield from source


def _parse_line(text, inputs):
  return {inputs[0].name: text}


def _parse_columns(text, inputs):
  cells, names = text.split("\t"), [name for name, _ in inputs]
  last = len(names) - 1
  if names[last] == answers.CHOICES and len(cells) > last:
    cells = [*cells[:last], cells[last:]]  # All other columns are choices.
  if len(cells) > len(names):
    raise ValueError(
      f"{len(cells)} columns, expected {' and '.join(names)} with a tab between"
    )
  return dict(zip(names, cells, strict=False))


def _parse_json(text, inputs):
  try:
    return json.loads(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"not JSON: {error}") from None


def _check_id(id_: Any) -> Any:
  try:
    json.dumps(id_, ensure_ascii=False, allow_nan=False).encode()
  except (ValueError, RecursionError) as error:
    raise ValueError(f"id cannot be written: {error}") from None
  return id_
