"""Rows of TSV, CSV and JSON Lines files, and the line on which each begins.

Files to read may be compressed and of any size: no more than a row is in
memory. An error is a ValueError that begins with `path:line`, or with the path
of a compressed file that is damaged.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
import csv
import itertools
import json
import re
from typing import Any, NamedTuple

from bert.data import files, messages, progress

Column = str | int  # By its name, or by its number from 0; -1 is the last.

# Characters of a cell, which may be a book. A quote that is never closed would
# else take the rest of the file.
_LONGEST_CELL = 1 << 24
_FORMATS = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv"}
_FORMATS |= {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl"}
# Rows at the head of a file that may be comments; more are not looked at.
_MOST_COMMENTS = 100
# JSON may escape half of an emoji, which no file in UTF-8 can hold.
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# The faults of CSV, by the beginning of csv's own message, which says little to
# people. All other messages begin with "".
_CSV_FAULTS = {
  "unexpected end": 'the quote (") that opens a cell is never closed',
  "field larger": f"a cell of more than {_LONGEST_CELL} characters; is the "
  "quote that opens it never closed?",
  "new-line": "a carriage return in the middle of a line, outside of quotes",
  "": 'text after a closing quote; a quote within a cell is written ""',
}


class Row(NamedTuple):
  """A row of a file, or some of its cells."""

  location: str  # "path:line", the line on which it begins.
  cells: Any  # A list; a dict if the file is JSON Lines.


class Number(str):
  """A number of a JSON file, with the spelling of the file."""


# Programs that write NaN into JSON, as pandas, mean that there is no value.
_DECODER = json.JSONDecoder(
  parse_float=Number, parse_int=Number, parse_constant=lambda name: None
)


def find_format(path: str) -> str:
  """Returns "tsv", "csv" or "jsonl", by the name of the file.

  A file called .json is JSON Lines; SQuAD's, which are not, are `squad`'s.

  >>> find_format("train.csv.gz"), find_format("messages.txt")
  ('csv', 'tsv')
  """
  name = path.removesuffix(".gz").removesuffix(".xz").lower()
  for ending, format in _FORMATS.items():
    if name.endswith(ending):
      return format
  raise ValueError(
    f"{path}: expected a name that ends in {', '.join(_FORMATS)}, with or"
    " without .gz or .xz after it"
  )


def read_rows(path: str) -> Iterator[Row]:
  r"""Yields the rows of a UTF-8 file, plain, .gz or .xz, with its header.

  Blank rows are left out, and so are a byte-order mark, the "\r" before the end
  of a line and, in TSV, any other "\r". In TSV, a quote is a character like any
  other.

  Args:
    path: its name says the format, see `find_format`.

  Returns:
    The rows. Cells of TSV and CSV are a list of strings; those of JSON Lines a
    dict of any values by their keys, with NaN as None.

  Raises:
    ValueError: (while rows are read) a row is malformed, or the file begins
      with comments.
  """
  format = find_format(path)
  if format == "jsonl":
    return _read_json_lines(path)
  rows = _read_csv(path) if format == "csv" else _read_tsv(path)
  return _refuse_comments(rows)


def _refuse_comments(rows: Iterator[Row]) -> Iterator[Row]:
  """Passes on rows, unless the first begins with # and has fewer cells.

  Such a comment would be taken for the header, or for the first example.
  """
  head = []
  for row in itertools.islice(rows, _MOST_COMMENTS):
    head.append(row)
    if not row.cells[0].startswith("#"):
      break

  # A tweet may begin with #, too; but then its row has as many cells.
  if head and len(head[0].cells) < len(head[-1].cells):
    number = head[-1].location.rpartition(":")[2]
    comment = messages.shorten(head[0].cells[0])
    raise ValueError(
      f"{head[0].location}: a comment, {comment!r}? The row in line {number} "
      f"has {len(head[-1].cells)} columns: remove such lines"
    )
  yield from itertools.chain(head, rows)


def _read_lines(path: str) -> Iterator[tuple[str, str]]:
  """Yields the location and the text of each line; drops a byte-order mark."""
  for number, line in enumerate(files.read_lines(path, True), 1):
    location = f"{path}:{number}"
    if "\0" in line:
      raise ValueError(
        f"{location}: a NUL byte; expected text in UTF-8 (is it UTF-16?)"
      )
    yield location, line.removeprefix("\ufeff") if number == 1 else line


def _read_tsv(path: str) -> Iterator[Row]:
  for location, line in _read_lines(path):
    if line.strip():
      yield Row(location, line.replace("\r", "").split("\t"))


def _read_csv(path: str) -> Iterator[Row]:
  return parse_csv(path, (line for _, line in _read_lines(path)))


def parse_csv(path: str, lines: Iterable[str]) -> Iterator[Row]:
  r"""Yields the rows of CSV that are not blank.

  Args:
    path: of the file, for messages.
    lines: without their "\n". A row may have several, if a cell is quoted.
  """

  # csv keeps no text of a row; the lines of the present one are kept here.
  row_lines = []

  def read_lines():
    for line in lines:
      row_lines.append(f"{line}\n")
      yield row_lines[-1]

  reader = csv.reader(read_lines(), strict=True)
  while True:
    location = f"{path}:{reader.line_num + 1}"
    row_lines.clear()

    # It is one number for the whole process: a caller may have set more, and
    # another thread less since the last row.
    csv.field_size_limit(max(_LONGEST_CELL, csv.field_size_limit()))
    try:
      cells = next(reader, None)
    except csv.Error as error:
      beginning = next(filter(str(error).startswith, _CSV_FAULTS))
      raise ValueError(f"{location}: {_CSV_FAULTS[beginning]}") from None
    if cells is None:
      return

    if _has_space_before_quote(cells, row_lines):
      raise ValueError(
        f'{location}: a space before the quote (") that opens a cell; remove it'
      )
    if _is_filled(cells):
      yield Row(location, cells)


def _has_space_before_quote(cells: list[str], lines: list[str]) -> bool:
  """Returns whether csv would read a cell otherwise without the space before.

  In `a, "b, c"` the quote does not open a cell for csv, because a space stands
  before it: the row gets three cells, two of them with half of a quote.
  """
  numbers = [n for n, cell in enumerate(cells) if re.match(' +"', cell)]
  if not numbers:
    return False

  # Read the row again, as if the spaces were not there. Then only a cell that
  # is quoted as a whole, with its space, reads the same: " ""x""" is ' "x"'.
  try:
    [cells_without_space] = csv.reader(
      lines, skipinitialspace=True, strict=True
    )
  except (csv.Error, ValueError):  # A cell took the quotes of other cells.
    return True
  return any(cells_without_space[n : n + 1] != [cells[n]] for n in numbers)


def _is_filled(cells: list[str]) -> bool:
  return bool("".join(cells).strip())


def _read_json_lines(path: str) -> Iterator[Row]:
  for location, line in _read_lines(path):
    if not line.strip():
      continue

    try:
      cells = _DECODER.decode(line.strip())
      # The search is quick, and nearly all lines have no such escape.
      if _ESCAPED_SURROGATE.search(line):
        decoded = json.dumps(cells, ensure_ascii=False)
        messages.check_unicode(decoded, f"{location}:")
    except json.JSONDecodeError as error:
      raise ValueError(
        f"{location}: {error.msg} (column {error.colno}); expected a JSON "
        f"object on each line{_describe_array(line)}"
      ) from None
    except RecursionError:
      raise ValueError(f"{location}: JSON that is nested too deeply") from None

    if not isinstance(cells, dict):
      raise ValueError(
        f"{location}: expected a JSON object, found {messages.shorten(line)}"
        f"{_describe_array(line)}"
      )
    yield Row(location, cells)


def _describe_array(line: str) -> str:
  """Returns how to write a JSON array as lines, if a line begins one."""
  is_array = line.lstrip().startswith("[")
  return "; of an array, jq -c '.[]' writes them" if is_array else ""


def read_columns(
  path: str,
  columns: Sequence[Column | None],
  *,
  optional: Collection[Column | None] = (),
  header: bool | None = None,
  skips_short_rows: bool = False,
  allows_long_rows: bool = False,
) -> Iterator[Row]:
  """Yields some columns of the rows of a file; None for one that is absent.

  Args:
    path: see `read_rows`.
    columns: names or numbers of the columns to read; None yields None.
    optional: names among them which the file may lack.
    header: whether the first row holds names. None: it does if a column is
      given by a name. JSON Lines have their keys, and ignore it.
    skips_short_rows: leaves out, and counts, rows that lack one of the columns.
    allows_long_rows: rows may differ in length, and -1 counts from the end of
      each. Otherwise a row that is longer than the first one is an error: part
      of a text would be lost.

  Yields:
    The location of each row, and its cells in the order of `columns`.
  """
  # JSON Lines are a thing of their own: keys instead of numbers.
  rows = read_rows(path)
  first = next(rows, None)
  if first is None:
    return
  if isinstance(first.cells, dict):
    rows = itertools.chain([first], rows)
    yield from _read_keys(path, columns, optional, rows)
    return

  # The first row says which number each column has, and how long rows are.
  if header is None:
    header = any(isinstance(column, str) for column in columns)
  names = [cell.strip() for cell in first.cells] if header else None
  width = None if allows_long_rows else len(first.cells)
  numbers = [
    _find_number(path, column, column in optional, names, width)
    for column in columns
  ]

  # The cells that a row must have at least: column 2 needs three, -2 two.
  needed = 0
  for number in numbers:
    if number is not None:
      needed = max(needed, number + 1 if number >= 0 else -number)

  format = find_format(path)
  skipped = 0
  quoted = ""  # Where a cell of TSV opened a quote last; see `_check_width`.
  for row in rows if header else itertools.chain([first], rows):
    cells = row.cells
    if skips_short_rows and len(cells) < needed:
      skipped += 1
      continue
    if format == "tsv" and any(map(_opens_quote, cells)):
      quoted = row.location
    _check_width(row, needed, width, format, quoted)
    yield Row(row.location, [None if n is None else cells[n] for n in numbers])
  if skipped:
    progress.note(f"{path}: skipped {skipped} rows of too few columns")


def _opens_quote(cell: str) -> bool:
  """Returns whether a cell looks like the first half of a quoted cell."""
  return cell.startswith('"') and cell.count('"') % 2 > 0


def _check_width(
  row: Row, needed: int, width: int | None, format: str, quoted: str
) -> None:
  """Raises a ValueError if a row has too few or too many cells.

  Args:
    row: as it was read.
    needed: the least number of cells.
    width: the most, without empty ones at the end; None: any number.
    format: "csv" or "tsv".
    quoted: the location of the last cell of TSV that opened a quote, or "". A
      program that writes CSV may have put a line or a tab into quotes: then the
      fault is there, and not in this row.
  """
  count = len(row.cells)
  delimiter = "comma" if format == "csv" else "tab"
  is_long = width is not None and _is_filled(row.cells[width:])
  if quoted and (count < needed or is_long):
    raise ValueError(
      f'{quoted}: a cell opens a quote (") that is not closed in its line, and '
      f"the row of {row.location} has {count} columns; TSV has no quotes: save "
      "it as CSV"
    )

  if count < needed:
    doubt = f"is a {delimiter} missing?"
    if row.cells[0].startswith("#"):
      doubt = "is it a comment? Remove such lines"
    raise ValueError(
      f"{row.location}: expected at least {needed} columns, found {count} "
      f"({doubt})"
    )

  if is_long:
    quotes = " without quotes" if format == "csv" else ""
    raise ValueError(
      f"{row.location}: expected {width} columns, found {count} (is there a"
      f" {delimiter}{quotes} within a text?)"
    )


def _read_keys(path, columns, optional, rows) -> Iterator[Row]:
  """Yields some values of the objects of JSON Lines, as `read_columns` does."""
  for column in columns:
    if isinstance(column, int):
      raise ValueError(
        f"{path}: column {column} is given by number, but JSON Lines have only "
        "names, such as --text_column=text"
      )

  needed = [c for c in columns if c is not None and c not in optional]
  for location, cells in rows:
    for column in needed:
      if column not in cells:
        keys = messages.list_names(cells)
        raise ValueError(f"{location}: no key {column!r}; the keys are {keys}")
    yield Row(location, [cells.get(column) for column in columns])


def _find_number(path, column, is_optional, names, width) -> int | None:
  """Returns a column's number; -1 becomes one from the left at a fixed width.

  Args:
    path: of the file, for messages.
    column: name, number, or None for one that is not wanted.
    is_optional: a name that is missing gives None.
    names: the cells of the header; None without one.
    width: cells of all rows; None if rows differ.
  """
  if isinstance(column, str):
    if names is None:
      raise ValueError(
        f"{path}: column {column!r} is given by name, but the file has no"
        " header; give its number, from 0"
      )
    if is_optional and column not in names:
      return None
    return find_column(names, column, path)
  if column is None or width is None or column >= 0:
    return column

  # Counted from the right, in rows of one length.
  if column < -width:
    raise ValueError(f"{path}: no column {column} among {width} columns")
  return width + column


def write_rows(
  path: str, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> None:
  """Writes rows as JSON Lines, or as TSV with a header, by the path's ending.

  In TSV, an absent column is an empty cell; tabs and newlines become spaces.

  Args:
    path: JSON Lines if it ends in .jsonl, else TSV.
    rows: values by the names of columns.
    columns: of TSV, in order; JSON Lines have the keys of each row.
  """
  if path.endswith(".jsonl"):
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
  else:
    cells = ([row.get(column, "") for column in columns] for row in rows)
    table = itertools.chain([columns], cells)
    lines = ("\t".join(map(_one_line, row)) for row in table)
  files.write_lines(path, lines)
  print(f"wrote {path}")


def _one_line(value: Any) -> str:
  return " ".join(str(value).replace("\t", " ").splitlines())


def find_column(names: Sequence[str], name: str, path: str) -> int:
  """Returns the number of a column, from 0.

  Args:
    names: of all columns.
    name: of the one that is looked for.
    path: of the file, for messages.

  Raises:
    ValueError: no column, or more than one, has the name.
  """
  if names.count(name) > 1:
    raise ValueError(
      f"{path}: {names.count(name)} columns are called {name!r}; pass a number"
    )
  if name not in names:
    listing = messages.list_names(names)
    raise ValueError(f"{path}: no column {name!r}; the columns are {listing}")
  return names.index(name)


def to_text(value: Any, location: str, column: Column | None) -> str:
  """Returns a JSON string; raises a ValueError for any other value.

  Args:
    value: a cell of JSON Lines, or of another table, where all are strings.
    location: of its row, for the message.
    column: name or number, for the message.
  """
  # A number is of a subclass of str, `Number`: it may be an id in a column that
  # should hold texts.
  if type(value) is str:
    return value
  raise ValueError(
    f"{location}: {column!r} must be a string, found {describe(value)}"
  )


def to_scalar(value: Any, location: str, column: Column | None) -> str:
  """Returns a JSON string, number or boolean as text; a label may be each.

  Args:
    value: a cell of JSON Lines, or of another table, where all are strings.
    location: of its row, for the message.
    column: name or number, for the message.
  """
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, str):
    return str(value).strip()
  raise ValueError(
    f"{location}: {column!r} must be a string or a number, found "
    f"{describe(value)}"
  )


def describe(value: Any) -> str:
  """Names a JSON value for an error message."""
  if value is None or isinstance(value, bool):
    return json.dumps(value)
  if isinstance(value, Number):
    return f"the number {messages.shorten(value)}"
  kinds = {str: "a string", list: "a list", dict: "an object"}
  return kinds[type(value)]
