"""Classification tasks: GLUE and XNLI as a table, and the user's own files.

The benchmarks' files keep their names. What is in those of CoLA, MRPC, MNLI and
XNLI is read as the original program read it.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
import os
import re
from typing import NamedTuple

from data import files
from data import tables
from tasks import classification

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_BINARY = ("0", "1")
# The rows of GLUE and XNLI have further columns, not always the same number.
_PLAIN = functools.partial(classification.Table, allows_long_rows=True)


class _Files(NamedTuple):
  """The files of a task that has one dev and one test set."""

  train: classification.Table
  dev: classification.Table
  test: classification.Table


def _named_columns(
  text: str,
  text_pair: str | None,
  label: str,
  id: str = "index",
  skips_short_rows: bool = False,
) -> _Files:
  """Makes the files of a task whose columns have the same names in each."""
  dev = _PLAIN("dev.tsv", text, text_pair, label, header=True)
  return _Files(
    train=dev._replace(path="train.tsv", skips_short_rows=skips_short_rows),
    dev=dev,
    test=dev._replace(path="test.tsv", label=None, id=id),
  )


def _mnli_table(
  path: str, label: tables.Column | None = -1
) -> classification.Table:
  return _PLAIN(path, 8, 9, label, id=0, header=True)


def _task(
  name: str,
  labels: tuple[str, ...],
  metrics: tuple[str, ...],
  paths: _Files,
  problem: str = "single_label",
) -> classification.Task:
  return classification.Task(
    name=name.lower(),
    labels=labels,
    problem=problem,
    train=(paths.train,),
    dev=(("dev", paths.dev),),
    test=(("test", paths.test),),
    metrics=metrics,
    submissions=(f"{name}.tsv",),
  )


# The columns of CoLA, MRPC, MNLI and XNLI are the original's, by number. It
# took no labels from test files, even if there were some, nor do we.
_GLUE = (
  _task(
    "CoLA",
    _BINARY,
    ("matthews_correlation", "accuracy"),
    _Files(
      train=_PLAIN("train.tsv", 3, label=1, header=False),
      dev=_PLAIN("dev.tsv", 3, label=1, header=False),
      test=_PLAIN("test.tsv", 1, id=0, header=True),
    ),
  ),
  _task(
    "SST-2",
    _BINARY,
    ("accuracy",),
    _named_columns("sentence", None, "label"),
  ),
  _task(
    "MRPC",
    _BINARY,
    ("f1", "accuracy"),
    _Files(
      train=_PLAIN("train.tsv", 3, 4, 0, header=True),
      dev=_PLAIN("dev.tsv", 3, 4, 0, header=True),
      test=_PLAIN("test.tsv", 3, 4, id=0, header=True),
    ),
  ),
  _task(
    "STS-B",
    (),
    ("corr", "pearson", "spearman"),
    _named_columns("sentence1", "sentence2", "score"),
    problem="regression",
  ),
  _task(
    "QQP",
    _BINARY,
    ("f1", "accuracy"),
    _named_columns(
      "question1",
      "question2",
      "is_duplicate",
      id="id",
      skips_short_rows=True,  # The official train.tsv has a few broken ones.
    ),
  ),
  classification.Task(
    name="mnli",
    labels=_ENTAILMENT,
    problem="single_label",
    train=(_mnli_table("train.tsv"),),
    dev=(
      ("matched", _mnli_table("dev_matched.tsv")),
      ("mismatched", _mnli_table("dev_mismatched.tsv")),
    ),
    test=(
      ("matched", _mnli_table("test_matched.tsv", label=None)),
      ("mismatched", _mnli_table("test_mismatched.tsv", label=None)),
    ),
    metrics=("accuracy",),
    submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
  ),
  _task(
    "QNLI",
    ("entailment", "not_entailment"),
    ("accuracy",),
    _named_columns("question", "sentence", "label"),
  ),
  _task(
    "RTE",
    ("entailment", "not_entailment"),
    ("accuracy",),
    _named_columns("sentence1", "sentence2", "label"),
  ),
  _task(
    "WNLI",
    _BINARY,
    ("accuracy",),
    _named_columns("sentence1", "sentence2", "label"),
  ),
  classification.Task(
    name="ax",
    labels=_ENTAILMENT,
    problem="single_label",
    train=(),
    dev=(),
    test=(
      ("test", _PLAIN("diagnostic.tsv", "sentence1", "sentence2", id="index")),
    ),
    metrics=("matthews_correlation",),
    submissions=("AX.tsv",),
  ),
)


def xnli_task(languages: Sequence[str] = ("zh",)) -> classification.Task:
  """Makes the XNLI task of some of its languages, by their codes.

  Trains on the translations of MNLI into each of them, one after the other;
  `Example.group` of the other examples is their language. The labels of
  the test set are read if it has them.
  """
  languages = tuple(filter(None, map(str.strip, languages)))
  if not languages:
    raise ValueError("--xnli_language: expected a code such as zh, or several")
  train = (
    _PLAIN(
      f"multinli/multinli.train.{language}.tsv",
      0,
      1,
      2,
      header=True,
      renamed_labels=(("contradictory", "contradiction"),),
    )
    for language in languages
  )
  dev = _PLAIN("xnli.dev.tsv", 6, 7, 1, header=True, group=0, groups=languages)
  test = dev._replace(path="xnli.test.tsv", label_required=False)
  return classification.Task(
    name="xnli",
    labels=_ENTAILMENT,
    problem="single_label",
    train=tuple(train),
    dev=(("dev", dev),),
    test=(("test", test),),
    metrics=("accuracy",),
  )


TASKS = {task.name: task for task in (*_GLUE, xnli_task())}


def find_task(name: str) -> classification.Task:
  """Returns a row of TASKS, in whatever way its name is written.

  >>> find_task("SST2").name
  'sst-2'
  """
  wanted = _normalize_name(name)
  for task in TASKS.values():
    if _normalize_name(task.name) == wanted:
      return task
  raise ValueError(
    f"--task_name={name}: expected one of {', '.join(sorted(TASKS))}, or file"
    " for files of your own"
  )


def _normalize_name(name: str) -> str:
  return re.sub("[-_ ]", "", name.lower())


def task_in_folder(
  task: classification.Task, data_dir: str
) -> classification.Task:
  """Returns the task with the paths of its files in a folder.

  Dev and test sets after the first are left out if their files are missing
  (MNLI's mismatched ones).
  """

  def locate(table):
    return table._replace(path=os.path.join(data_dir, table.path))

  def locate_all(sets):
    located = [(name, locate(table)) for name, table in sets]
    return (*located[:1], *(s for s in located[1:] if files.exists(s[1].path)))

  return task._replace(
    train=tuple(map(locate, task.train)),
    dev=locate_all(task.dev),
    test=locate_all(task.test),
  )


def write_submission(
  folder: str,
  task: classification.Task,
  name: str,
  predictions: Iterable[tuple[str, str | float]],
) -> None:
  """Writes predictions as the GLUE server reads them; not for other tasks.

  Args:
    predictions: the id of each example of the test set, and its label; for
      STS-B its score, which is brought to the range of 0 to 5.
  """
  if not task.submissions:
    return
  number = [test_name for test_name, _ in task.test].index(name)
  path = os.path.join(folder, task.submissions[number])
  lines = ["index\tprediction"]
  for example_id, prediction in predictions:
    if task.problem == "regression":
      prediction = f"{min(max(prediction, 0.0), 5.0):.3f}"
    elif prediction not in task.labels:
      raise ValueError(
        f"{path}: {prediction!r} is no label of {task.name}; expected one of"
        f" {', '.join(task.labels)}"
      )
    lines.append(f"{example_id}\t{prediction}")
  files.write_text(path, "\n".join(lines) + "\n")
  print(f"wrote {path}")


def scores_of_original(
  task: classification.Task, scores: Mapping[str, float]
) -> Mapping[str, float]:
  """Returns the scores for eval_results.txt, the original's for its tasks."""
  if task.name not in ("cola", "mnli", "mrpc", "xnli"):
    return scores
  return {name: scores[name] for name in ("accuracy", "loss")}


# The user's own files.


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
) -> classification.Task:
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
  return classification.Task(
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
  names = [name.strip() for name in head[0].cells]  # Of JSON Lines, the keys.
  is_json = isinstance(head[0].cells, dict)
  is_given = header is not None or is_json
  if header is None:
    by_name = any(isinstance(column, str) for column in columns)
    header = is_json or by_name or not _DEFAULTS.isdisjoint(names)
  if len(names) == 1 and not (header or label_required or columns.text_pair):
    columns = Columns(text=0)
  found = _find_columns(path, columns, names, label_required)
  if not header and not is_given and found.label is not None:
    _refuse_header(head, found.label)
  return classification.Table(
    path,
    *found,
    header=None if is_json else header,
    label_required=label_required,
  )


def _find_columns(
  path: str, columns: Columns, names: Sequence[str], label_required: bool
) -> Columns:
  """Returns the columns of a file, without those that it lacks and may."""
  found, positions = {}, {}
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
    found[role], positions[role] = column, position
  label = positions["label"]
  is_text = label in (positions["text"], positions["text_pair"])
  if label is not None and is_text and label_required:
    raise ValueError(
      f"{path}: column {found['label']!r} cannot be a text and the label"
    )
  if not label_required and (is_text or label not in range(len(names))):
    found["label"] = None
  return Columns(**found)


def _refuse_header(head: Sequence[tables.Row], label: int) -> None:
  """Raises a ValueError if the first label looks like the name of the rest."""
  cells = [row.cells for row in head]
  labels = [c[label].strip() for c in cells if -len(c) <= label < len(c)]
  first, *others = labels or [""]
  is_name = first.replace(" ", "_").isidentifier() and first not in others
  if is_name and others and len(others) >= 2 * len(set(others)):
    raise ValueError(
      f"{head[0].place}: is this a header? {tables.shorten(first)!r} is the"
      " label of no other row; pass --header=yes or --header=no"
    )
