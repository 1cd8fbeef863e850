"""Labels in columns of their own, with 1 where a label applies and 0 elsewhere.

An example then has as its label the names of the columns with a 1, just as from
a list in JSON.
"""

from collections.abc import Sequence
import itertools
from typing import Any

from bert.data import messages, progress, tables

# What stands for 0 and 1 besides them: pandas writes a column of numbers with
# gaps as 0.0 and 1.0, and booleans as False and True.
_VALUES = {"0": False, "0.0": False, "false": False}
_VALUES |= {"1": True, "1.0": True, "true": True}


def names_of(head: Sequence[tables.Row]) -> list[str]:
  """Returns the names in a header, or the keys of the first rows of JSON."""
  names = [name.strip() for name in head[0].cells]
  if isinstance(head[0].cells, dict):
    # The first row may lack some, as null does.
    filled = (k for row in head for k, v in row.cells.items() if v is not None)
    names = list(dict.fromkeys([*names, *(key.strip() for key in filled)]))
  return names


def names_in(path: str) -> list[str]:
  """Returns the names in the first row of a file, or its keys."""
  return names_of(list(itertools.islice(tables.read_rows(path), 1)))


def note_second_text(path: str, names: Sequence[str]) -> None:
  """Says so if a file that is read for its first text alone has a second one.

  predict.py finds both by these names; a training has a flag for the second.
  """
  if "text_pair" in names:
    progress.note(
      f"note: {path}: the column text_pair is not read; "
      "--text_pair_column=text_pair reads it"
    )


def find(
  path: str, columns: tuple[str, ...], names: Sequence[str], is_required: bool
) -> tuple[str, ...] | None:
  """Returns the columns of labels that a file has: all, or None for none.

  Args:
    path: of the file, for messages.
    columns: their names, which are the labels.
    names: of all columns of the file.
    is_required: False for a file to predict, which may lack all of them.

  Raises:
    ValueError: the file lacks one of them.
  """
  missing = [name for name in columns if name not in names]
  if missing and (is_required or len(missing) < len(columns)):
    raise ValueError(
      f"{path}: no column {missing[0]!r}; --label_columns takes the names of "
      f"all labels; the first row is: {messages.list_names(names)}"
    )
  return None if missing else columns


def read(
  cells: Sequence[Any], location: str, columns: Sequence[str]
) -> tuple[str, ...] | None:
  """Returns the labels with a 1; None if all cells are empty: not known.

  Args:
    cells: of a row, one for each column: text, or any value of JSON.
    location: of the row, for messages.
    columns: the names of the labels.

  Raises:
    ValueError: a cell is neither 0 nor 1, or only some of them are empty.
  """
  # As text, whatever the file is: 1, true and "1" are the same then.
  values = [
    "" if cell is None else tables.to_scalar(cell, location, name)
    for cell, name in zip(cells, columns, strict=True)
  ]
  if not any(values):
    return None

  # From here on an empty cell is a fault: is it a 0, or not known?
  for name, value in zip(columns, values, strict=True):
    if value.lower() not in _VALUES:
      found = messages.shorten(repr(value)) if value else "an empty cell"
      raise ValueError(
        f"{location}: expected 0 or 1 in the column {name!r} of "
        f"--label_columns, found {found}"
      )
  pairs = zip(columns, values, strict=True)
  return tuple(name for name, value in pairs if _VALUES[value.lower()])
