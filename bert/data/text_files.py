"""Texts of programs that take plain text: lines, or a column of tables.

A table that is read as plain text raises no error: its braces and commas would
become tokens without a message. So `check` looks at the first lines of files.
"""

from collections.abc import Callable, Iterator, Sequence
import itertools
import json
import os
import re

from bert.data import files, messages, progress, remote, tables

# `check` looks at this much and no more, so it is quick for any corpus.
_FILES_LOOKED_AT = 3
_LINES_LOOKED_AT = 3  # The first ones of a file.
_ROWS_LOOKED_AT = 20  # The first ones of a table.
_JSON_LINES = (".jsonl", ".json", ".ndjson")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read(
  path: str, column: str | None = None, by_line: bool = False
) -> Iterator[str]:
  """Yields the lines of a file, or a column of a table, a line for each row.

  Args:
    path: the file.
    column: the name or the number, from 0, of a column of a table; None for
      plain text.
    by_line: whether to yield the lines of each text of the column and an empty
      one, as documents are written in plain text; otherwise one line a text.
  """
  if not column:
    yield from files.read_lines(path)
    return

  # A cell may hold several lines, but only documents keep them apart: where
  # each row is one text, they are joined.
  name = int(column) if column.isdecimal() else column
  for location, [value] in tables.read_columns(path, [name]):
    lines = tables.to_text(value, location, column).splitlines()
    if by_line:
      # An empty line between paragraphs ends no document: that is the row.
      yield from filter(str.strip, lines)
      yield ""
    else:
      yield " ".join(lines)


def is_file(path: str) -> bool:
  """Returns whether a text can be read twice, as that of a pipe cannot."""
  return remote.is_remote(path) or os.path.isfile(path)


def known_size(paths: Sequence[str]) -> int | None:
  """Returns the bytes of texts; None if one is compressed, a pipe or remote."""
  # Without a size, progress has no end to estimate. `isfile` is False for pipes
  # and for remote paths; a compressed file does not tell the size of its text.
  is_known = (os.path.isfile(p) and p[-3:] not in (".gz", ".xz") for p in paths)
  return sum(map(os.path.getsize, paths)) if all(is_known) else None


class Text:
  """The lines of several files, which says how much of them has passed."""

  def __init__(
    self,
    paths: list[str],
    read: Callable[[str], Iterator[str]] = files.read_lines,
  ):
    """Opens nothing yet.

    Args:
      paths: of the files, in order.
      read: yields the lines of a file.
    """
    self._paths = paths
    self._read = read
    self._bytes = 0
    self._total_bytes = known_size(paths)

  def lines(self) -> Iterator[str]:
    """Yields the lines of all files in turn."""
    for path in self._paths:
      for line in self._read(path):
        # With its "\n". Of a table, only the column that is read counts, so the
        # part that has passed is then too small.
        self._bytes += len(line.encode("utf-8")) + 1
        yield line

  def part_read(self) -> float | None:
    """Returns the part that has passed, 0 to 1; None if that is unknown."""
    # Without a size this returns it as it is: None, or 0 of empty files.
    return self._total_bytes and min(self._bytes / self._total_bytes, 1)


def check(
  paths: Sequence[str], column: str | None = None, has_flag: bool = True
) -> None:
  """Looks at the first files of texts: are they what the program will read?

  A note says that a file to be read as plain text looks like a table, or like
  the output of WikiExtractor. It is no error, because lines of text may look
  so. Pipes are left out, since they can be read only once.

  Args:
    paths: the files.
    column: of tables, see `read`; None for plain text.
    has_flag: whether the program has --text_column, for messages.

  Raises:
    ValueError: a table lacks the column; or a file to be read as plain text is
      JSON Lines by its name and by its content.
  """
  for path in paths[:_FILES_LOOKED_AT]:
    if not is_file(path):
      continue
    # The reader itself raises an error at the first row without the column.
    if column:
      _note_header(
        path, column, itertools.islice(read(path, column), _ROWS_LOOKED_AT)
      )
    else:
      _check(path, "--text_column" if has_flag else "")


def _note_header(path: str, column: str, texts: Iterator[str]) -> None:
  """Says so if the first text of a numbered column looks like its name.

  It is no error, because a text may be a word. A name of a column finds the
  header by itself.
  """
  first = next(texts, "")
  others = list(texts) if column.isdecimal() else []
  is_word = re.compile(r"[A-Za-z_][\w.-]{0,30}").fullmatch
  if is_word(first) and others and not any(map(is_word, others)):
    progress.note(
      f"note: {path}:1: {first!r} is read as a text; if it is the name of the "
      f"column, pass --text_column={first}"
    )


def _check(path: str, flag: str) -> None:
  """Looks at the first lines of a file that is to be read as plain text.

  A text may begin with a brace, or hold commas: only the name and the content
  together are proof of JSON Lines, and all else is a note, never an error.
  """
  lines = filter(str.strip, files.read_lines(path))
  head = [*itertools.islice(lines, _LINES_LOOKED_AT)]
  if not head:
    return

  # t.jsonl.gz has the ending of t.jsonl.
  name = path.removesuffix(".gz").removesuffix(".xz").lower()
  ending = os.path.splitext(name)[1]
  delimiter = _DELIMITERS.get(ending)
  keys = [_read_keys(line) for line in head]

  # What it looks like, and what to do about it.
  cure = f"pass {flag}, to read one" if flag else "write the texts alone"
  note = ""
  if all(keys):
    listing = messages.list_names(keys[0])
    if ending in _JSON_LINES:
      raise ValueError(
        f"{path}: JSON Lines, not plain text, with the keys {listing}: {cure}"
      )
    note = f"JSON Lines, with the keys {listing}: call it .jsonl and {cure}"
  elif delimiter and all(delimiter in line for line in head):
    note = f"a table of several columns: {cure}"
  elif head[0].startswith("<doc "):
    note = "what WikiExtractor writes: remove the lines <doc ...> and </doc>"
  if note:
    progress.note(
      f"note: {path} is read as plain text, a line each, but looks like {note}"
    )


def _read_keys(line: str) -> list[str]:
  """Returns the keys of a JSON object; [] of anything else."""
  # Editors on Windows put a byte order mark, U+FEFF, before the first line.
  if not line.lstrip("\ufeff ").startswith("{"):
    return []
  try:
    return list(json.loads(line.lstrip("\ufeff")))
  except (ValueError, RecursionError):  # The second one if it nests too deeply.
    return []
