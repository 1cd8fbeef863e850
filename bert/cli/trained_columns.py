"""Refuses to guess a column.

A file may have both the column that the training read and the one that a run
without a flag would read.
"""

from collections.abc import Mapping, Sequence
import itertools
import os
from typing import Any

from bert.cli import model_folder, shared_flags
from bert.data import files, remote


def check(
  settings: shared_flags.DataSettings,
  path: str,
  names: Sequence[str],
  columns: Mapping[str, Any],
  has_numbers: bool = True,
) -> None:
  """Refuses to guess, if a file may be meant to be read as the training's.

  Without a flag a later run would read the usual columns, and no error would
  say that the model was trained on others. But its file may be of another
  form: so the user is asked, if it has the columns of the training, too.

  Args:
    settings: of the run.
    path: of the file.
    names: its header or keys, or the cells of its first row.
    columns: what the run will read, names or numbers by the fields of
      "columns" in prediction.json: text for --text_column, and so on.
    has_numbers: whether columns have numbers, which keys of JSON lack.

  Raises:
    ValueError: the training read another of these columns.
  """
  flags = {f"{field}_column" for field in columns}
  if settings.do_train or flags & settings.given:
    return
  record, trained = _read_record(settings)

  # Compared by their places: a name and a number may mean one column. A column
  # that the file lacks cannot be meant.
  for field, column in columns.items():
    meant = trained.get(field)
    is_name = isinstance(meant, str)
    place = _place_of(meant, names) if is_name or has_numbers else None
    if place is not None and place != _place_of(column, names):
      raise ValueError(
        f"{path}: has the column that the training read by --{field}_column="
        f"{meant} ({record}); pass that, or --{field}_column={column}"
      )


def _read_record(settings: shared_flags.DataSettings) -> tuple[str, Any]:
  """Returns the file of the training's columns, and these; {} without one."""
  # The trained folders that the flags name. TensorFlow, which must not be
  # loaded yet, would have to read remote ones.
  folders = list(dict.fromkeys([settings.output_dir, *settings.run_dirs]))
  for weights in filter(None, (settings.model, settings.init_checkpoint)):
    folders += model_folder.folders_of(weights)

  for folder in itertools.filterfalse(remote.is_remote, folders):
    path = os.path.join(folder, "prediction.json")
    columns = files.read_json_if_any(path).get("columns")
    if columns and isinstance(columns, dict):
      return path, columns
  return "", {}


def _place_of(column: Any, names: Sequence[str]) -> int | None:
  """Returns the number of a column, a name or number; None if it is missing."""
  if column in names:
    return names.index(column)
  is_number = isinstance(column, int) and -len(names) <= column < len(names)
  return column % len(names) if is_number else None
