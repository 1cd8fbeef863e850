"""A classification task of the user's own files, by their columns."""

from collections.abc import Sequence
import itertools
from typing import NamedTuple

from data import files, tables
from tasks import classification


class Columns(NamedTuple):
  """The columns of the user's files."""

  text: tables.Column | None = None  # None: the one called "text".
  text_pair: tables.Column | None = None
  label: tables.Column | None = None  # None: the one called "label".
  id: tables.Column | None = None


_NO_COLUMNS = Columns()


_ENDINGS = (".tsv", ".csv", ".jsonl")
_METRICS = {
  "single_label": ("accuracy", "macro_f1"),
  "multi_label": ("micro_f1", "macro_f1"),
  "regression": ("corr", "pearson", "spearman"),
}
_DEFAULTS = {"text", "label"}  # Names of columns.
_ROWS_PEEKED = 100  # Searched for a header.


def parse_column(column: tables.Column | None) -> tables.Column | None:
  """Returns the column that a flag means: a number if it reads as one.

  >>> parse_column("-1"), parse_column("review"), parse_column("")
  (-1, 'review', None)
  """
  if column == "":
    return None
  if isinstance(column, str) and classification.INTEGER.fullmatch(column):
    return int(column)
  return column


def file_task(
  data_dir: str | None = None,
  *,
  train_file: str | None = None,
  eval_file: str | None = None,
  predict_file: str | None = None,
  text_column: tables.Column | None = None,
  text_pair_column: tables.Column | None = None,
  label_column: tables.Column | None = None,
  id_column: tables.Column | None = None,
  header: bool | None = None,
  problem: str = "single_label",
) -> classification.ClassificationTask:
  """Makes a task of the user's own files, whose beginnings it reads.

  Args:
    data_dir: a folder with train, dev and test files, ending in .tsv, .csv or
      .jsonl, with or without .gz or .xz after it; any may be missing.
    train_file, eval_file, predict_file: used instead of those in the folder.
      The last one need not have labels.
    text_column, label_column: a name or a number; by default "text", "label".
    text_pair_column, id_column: None for none.
    header: whether the first row holds names; None: if a column is given by
      name, or one there is called "text" or "label".
    problem: one of `classification.PROBLEMS`.
  """
  given = (train_file, eval_file, predict_file)
  paths = [
    path or (data_dir and files.find_one(data_dir, [name], _ENDINGS))
    for path, name in zip(given, ("train", "dev", "test"), strict=True)
  ]
  if not any(paths):
    raise ValueError(
      f"--data_dir={data_dir or ''}: no train, dev or test file there; expected"
      f" a name such as train.tsv, ending in {', '.join(_ENDINGS)}, with or"
      " without .gz or .xz after it"
    )
  flags = (text_column, text_pair_column, label_column, id_column)
  columns = Columns(*map(parse_column, flags))
  train, dev, test = (
    path and find_table(path, columns, header, label_required)
    for path, label_required in zip(paths, (True, True, False), strict=True)
  )
  return classification.ClassificationTask(
    name="file",
    labels=(),
    problem=problem,
    train=(train,) if train else (),
    dev=(("dev", dev),) if dev else (),
    test=(("test", test),) if test else (),
    metrics=_METRICS[problem],
  )


def find_table(
  path: str,
  columns: Columns = _NO_COLUMNS,
  header: bool | None = None,
  label_required: bool = True,
) -> classification.Table:
  """Checks the columns of a file by its first rows.

  Args:
    columns: a file to predict may lack that of the labels, and one to learn
      from that of the ids. A single column without a header is the text.
    label_required: False for a file to predict.

  Raises:
    ValueError: a column is missing; the message names the flag to pass.
  """
  head = list(itertools.islice(tables.read_rows(path), _ROWS_PEEKED))
  if not head:
    raise ValueError(f"{path}: holds no example")
  names = [name.strip() for name in head[0].cells]  # JSON Lines have keys.
  is_json = isinstance(head[0].cells, dict)
  is_given = header is not None or is_json
  if header is None:
    by_name = any(isinstance(column, str) for column in columns)
    header = is_json or by_name or not _DEFAULTS.isdisjoint(names)
  if len(names) == 1 and not (header or label_required or columns.text_pair):
    columns = Columns(text=0)
  checked = _find_columns(path, columns, names, label_required)
  if not header and not is_given and checked.label is not None:
    _refuse_header(head, checked.label)
  return classification.Table(
    path,
    *checked,
    header=None if is_json else header,
    label_required=label_required,
  )


def _find_columns(
  path: str, columns: Columns, names: Sequence[str], label_required: bool
) -> Columns:
  """Returns the columns of a file, without those that it lacks and may."""
  roles, positions = {}, {}
  for role, column in columns._asdict().items():
    if column is None and role in _DEFAULTS:
      column = role
    position = column
    if isinstance(column, str) and column in names:
      position = tables.find_column(names, column, path)
    elif isinstance(column, str):
      if role != ("id" if label_required else "label"):
        raise ValueError(
          f"{path}: no column {column!r}; pass --{role}_column, a name or a"
          f" number from 0; the first row is: {tables.list_names(names)}"
        )
      column = position = None
    elif column is not None and column < 0:
      position += len(names)
    roles[role], positions[role] = column, position
  label = positions["label"]
  is_text = label in (positions["text"], positions["text_pair"])
  if label is not None and is_text and label_required:
    raise ValueError(
      f"{path}: column {roles['label']!r} cannot be a text and the label"
    )
  if not label_required and (is_text or label not in range(len(names))):
    roles["label"] = None
  return Columns(**roles)


def _refuse_header(head: Sequence[tables.Row], label: int) -> None:
  """Raises a ValueError if the first label looks like the name of the rest."""
  cells = [row.cells for row in head]
  labels = [c[label].strip() for c in cells if -len(c) <= label < len(c)]
  first, *others = labels or [""]
  is_name = first.replace(" ", "_").isidentifier() and first not in others
  if is_name and others and len(others) >= 2 * len(set(others)):
    raise ValueError(
      f"{head[0].location}: is this a header? {tables.shorten(first)!r} is the"
      " label of no other row; pass --header=yes or --header=no"
    )
