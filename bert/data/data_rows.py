"""Rows that a user holds in memory, as a JSON Lines file that programs read.

The file has a hash of its rows in its name: the same rows are the same file,
and other rows never replace what an earlier run has learned from.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import hashlib
import json
import os
from typing import Any

import numpy as np

from bert.data import files, messages, remote


def write(folder: str, name: str, data: Any) -> tuple[str, bool]:
  """Writes rows as JSON Lines, unless the folder has the file already.

  Args:
    folder: gets the file; made if it is missing.
    name: what the rows are for, such as "train_data"; begins the file's name.
    data: a list of dicts, a pandas DataFrame, or a datasets.Dataset; anything
      that yields mappings each time that one iterates.

  Returns:
    The path, and whether the file is new.

  Raises:
    TypeError: the rows are something else; says which one.
    ValueError: there are no rows.
  """
  # The rows are gone through twice, so that nothing is written if one of them
  # is wrong, and the name is known before the file is made.
  digest = hashlib.sha256()
  is_empty = True
  for line in _to_lines(name, data):
    digest.update(f"{line}\n".encode())
    is_empty = False
  if is_empty:
    raise ValueError(f"{name} has no rows")

  path = os.path.join(folder, f"{name}-{digest.hexdigest()[:12]}.jsonl")
  if files.exists(path):
    return path, False
  if not remote.is_remote(folder):
    os.makedirs(folder, exist_ok=True)
  files.write_lines(path, _to_lines(name, data))
  return path, True


def _to_lines(name: str, data: Any) -> Iterator[str]:
  """Yields the rows as JSON."""
  for number, row in enumerate(_open(name, data)):
    place = f"{name}[{number}]"
    if not isinstance(row, Mapping):
      raise TypeError(f"{place} is {_describe(row)}, expected a dict")
    for key in row:
      if not isinstance(key, str):
        raise TypeError(f"{place}: the column {key!r} is not named by a str")
    try:
      line = json.dumps(dict(row), ensure_ascii=False, default=_to_json)
    except (TypeError, ValueError, RecursionError) as error:
      raise TypeError(f"{place}: {error}") from None
    messages.check_unicode(line, place)
    yield line


def _open(name: str, data: Any) -> Iterable[Any]:
  """Returns an iterable of the rows of a table, whatever its library."""
  # A DataFrame yields the names of its columns, and not its rows.
  if hasattr(data, "itertuples"):
    columns = list(data.columns)
    if len(set(columns)) < len(columns):
      raise TypeError(f"{name}: two columns have the same name")
    tuples = data.itertuples(index=False, name=None)
    return (dict(zip(columns, row, strict=True)) for row in tuples)

  if isinstance(data, (str, bytes, os.PathLike)):
    flag = name.replace("_data", "_file")
    raise TypeError(f"{name} takes rows; pass a path as {flag}={data!r}")
  if isinstance(data, Mapping) or not isinstance(data, Iterable):
    raise TypeError(f"{name} is {_describe(data)}, expected a list of dicts")
  if isinstance(data, Iterator):
    raise TypeError(f"{name} can be read only once; pass a list of the rows")

  # datasets.Dataset numbers its labels; people read their names. Those of the
  # words of a sentence are a list, whose own feature has the names.
  features = getattr(data, "features", None) or {}
  labels = {n: getattr(f, "feature", f) for n, f in features.items()}
  names = {n: f.names for n, f in labels.items() if hasattr(f, "names")}
  return (_with_names(row, names) for row in data) if names else data


def _with_names(row: Any, names: Mapping[str, Sequence[str]]) -> Any:
  """Returns a row whose numbers of labels have become the labels' names."""
  named = {key: _to_names(row[key], labels) for key, labels in names.items()}
  return {**row, **named}


def _to_names(value: Any, labels: Sequence[str]) -> Any:
  if isinstance(value, (list, np.ndarray)):
    return [_to_names(number, labels) for number in value]
  # -1 stands for no label, which test sets have.
  return None if value in (None, -1) else labels[value]


def _to_json(value: Any) -> Any:
  """Returns a value that json does not know as one that it knows."""
  if isinstance(value, (np.generic, np.ndarray)):
    return value.tolist()
  if isinstance(value, (set, frozenset)):
    return sorted(value)
  # pandas has a value of its own for none, which only equals itself.
  if type(value).__name__ in ("NAType", "NaTType"):
    return None
  # Dates and times, which tables of messages have in columns of their own.
  if hasattr(value, "isoformat"):
    return value.isoformat()
  raise TypeError(f"{_describe(value)} cannot be written as JSON")


def _describe(value: Any) -> str:
  return type(value).__name__
