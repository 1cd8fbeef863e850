"""Classification tasks: GLUE and XNLI as a table, and files of the user's own.

The benchmarks' files keep their names. Those of CoLA, MRPC, MNLI and XNLI are
read as the original program read them.
"""

from collections.abc import Iterable, Mapping, Sequence
import itertools
import os
import re
from typing import Any, NamedTuple

from bert.data import file_search, files, path_checks, tables
from bert.report import retrieval_scores
from bert.tasks import classification

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_ENTAILED = ("entailment", "not_entailment")
_ACCURACY, _F1 = ("accuracy",), ("f1", "accuracy")
_MATTHEWS = ("matthews_correlation", "accuracy")
_CORRELATIONS = ("corr", "pearson", "spearman")
# The rows of GLUE and XNLI have further columns, not always the same number.
_PAIRS = classification.Table(
  "dev.tsv",
  "sentence1",
  "sentence2",
  "label",
  header=True,
  allows_long_rows=True,
)
_SENTENCES = _PAIRS._replace(text="sentence", text_pair=None)
_COLA = _SENTENCES._replace(text=3, label=1, header=False)
_MRPC = _PAIRS._replace(text=3, text_pair=4, label=0)
_QNLI = _PAIRS._replace(text="question", text_pair="sentence")
_QQP = _PAIRS._replace(
  text="question1", text_pair="question2", label="is_duplicate"
)
_MNLI = _PAIRS._replace(text=8, text_pair=9, label=-1, id=0)


def _name_labels(table, *names) -> classification.Table:
  """Names the labels that a file of GLUE has as 0 and 1."""
  return table._replace(renamed_labels=tuple(zip("01", names, strict=True)))


_COLA = _name_labels(_COLA, "unacceptable", "acceptable")
_SST = _name_labels(_SENTENCES, "negative", "positive")
_MRPC = _name_labels(_MRPC, "not_equivalent", "equivalent")
_QQP = _name_labels(_QQP, "not_duplicate", "duplicate")
_WNLI = _name_labels(_PAIRS, "not_entailment", "entailment")


def _task(
  name: str,
  labels: tuple[str, ...],
  metrics: tuple[str, ...],
  dev: classification.Table = _PAIRS,
  skips_short_rows: bool = False,
  **of_test: Any,
) -> classification.ClassificationTask:
  """Makes a task of GLUE; its test set has no labels, but ids."""
  labels = labels or tuple(label for _, label in dev.renamed_labels)
  train = dev._replace(path="train.tsv", skips_short_rows=skips_short_rows)
  of_test = {"path": "test.tsv", "id": "index", "label": None, **of_test}
  return classification.ClassificationTask(
    name=name.lower(),
    labels=labels,
    problem="single_label" if labels else "regression",
    train=(train,),
    dev=(("dev", dev),),
    test=(("test", dev._replace(**of_test)),),
    metrics=metrics,
    submissions=(f"{name}.tsv",),
  )


# The columns of CoLA, MRPC, MNLI and XNLI are the original's, by number. It
# took no labels from test files, even if there were some, nor do we.
_GLUE = (
  _task("CoLA", (), _MATTHEWS, _COLA, text=1, id=0, header=True),
  _task("SST-2", (), _ACCURACY, _SST),
  _task("MRPC", (), _F1, _MRPC, id=0),
  _task("STS-B", (), _CORRELATIONS, _PAIRS._replace(label="score")),
  # The official train.tsv has a few broken rows.
  _task("QQP", (), _F1, _QQP, skips_short_rows=True, id="id"),
  _task("MNLI", _ENTAILMENT, _ACCURACY, _MNLI)._replace(
    dev=tuple(
      (name, _MNLI._replace(path=f"dev_{name}.tsv"))
      for name in ("matched", "mismatched")
    ),
    test=tuple(
      (name, _MNLI._replace(path=f"test_{name}.tsv", label=None))
      for name in ("matched", "mismatched")
    ),
    submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
  ),
  _task("QNLI", _ENTAILED, _ACCURACY, _QNLI),
  _task("RTE", _ENTAILED, _ACCURACY),
  _task("WNLI", (), _ACCURACY, _WNLI),
  _task(
    "AX", _ENTAILMENT, ("matthews_correlation",), path="diagnostic.tsv"
  )._replace(train=(), dev=()),
)


def xnli_task(
  languages: Sequence[str] = ("zh",),
) -> classification.ClassificationTask:
  """Makes the XNLI task of some of its languages, by their codes.

  It trains on the translations of MNLI, one after the other, and reads labels
  of the test set if it has them.
  """
  languages = tuple(filter(None, map(str.strip, languages)))
  if not languages:
    raise ValueError("--xnli_language: expected a code such as zh, or several")
  renamed = (("contradictory", "contradiction"),)
  train = _PAIRS._replace(text=0, text_pair=1, label=2, renamed_labels=renamed)
  dev = _PAIRS._replace(text=6, text_pair=7, label=1, group=0, groups=languages)
  test = dev._replace(path="xnli.test.tsv", label_required=False)
  return _task("XNLI", _ENTAILMENT, _ACCURACY)._replace(
    train=tuple(
      train._replace(path=f"multinli/multinli.train.{language}.tsv")
      for language in languages
    ),
    dev=(("dev", dev._replace(path="xnli.dev.tsv")),),
    test=(("test", test),),
    submissions=(),
  )


TASKS = {task.name: task for task in (*_GLUE, xnli_task())}


def find_task(
  name: str, languages: Sequence[str] = ("zh",)
) -> classification.ClassificationTask:
  """Returns a row of TASKS, in whatever way its name is written.

  `languages` are those of XNLI.

  >>> find_task("SST2").name
  'sst-2'
  """
  tasks = {re.sub("[-_ ]", "", task): task for task in TASKS}
  known = tasks.get(re.sub("[-_ ]", "", name.lower()))
  if known is None:
    raise ValueError(
      f"--task_name={name}: expected one of {', '.join(sorted(TASKS))}, or file"
      " for files of your own"
    )
  return xnli_task(languages) if known == "xnli" else TASKS[known]


def task_in_folder(
  task: classification.ClassificationTask, data_dir: str
) -> classification.ClassificationTask:
  """Returns the task with the paths of its files in a folder.

  Dev and test sets after the first are left out if their files are missing
  (MNLI's mismatched ones). A ValueError if none of the files is there.
  """

  tables = (*task.train, *(table for _, table in (*task.dev, *task.test)))
  if not any(files.exists(os.path.join(data_dir, t.path)) for t in tables):
    names = " or ".join(table.path for table in tables)
    there = file_search.describe_missing(data_dir, inside=task.name)
    raise ValueError(f"--data_dir={data_dir}: expected {names} there; {there}")

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
  task: classification.ClassificationTask,
  name: str,
  predictions: Iterable[tuple[str, str | float]],
) -> None:
  """Writes (id, label or score) of each example as the GLUE server reads them.

  It takes scores from 0 to 5, and labels as the data files have them. Other
  tasks have no such file.
  """
  if not task.submissions:
    return
  number = [test_name for test_name, _ in task.test].index(name)
  path = os.path.join(folder, task.submissions[number])
  lines = ["index\tprediction"]
  renamed = task.test[number][1].renamed_labels
  in_files = {name: label for label, name in renamed}
  for example_id, prediction in predictions:
    if task.problem == "regression":
      prediction = f"{min(max(prediction, 0.0), 5.0):.3f}"
    elif prediction not in task.labels:
      raise ValueError(
        f"{path}: {prediction!r} is no label of {task.name}; expected one of"
        f" {', '.join(task.labels)}"
      )
    shown = in_files.get(prediction, prediction)
    lines.append(f"{example_id}\t{shown}")
  files.write_text(path, "\n".join(lines) + "\n")
  print(f"wrote {path}")


def scores_of_original(
  task: classification.ClassificationTask, scores: Mapping[str, float]
) -> Mapping[str, float]:
  """Returns the scores for eval_results.txt, the original's for its tasks."""
  if task.name not in ("cola", "mnli", "mrpc", "xnli"):
    return scores
  return {name: scores[name] for name in ("accuracy", "loss")}


# Files of the user's own.


class Columns(NamedTuple):
  """The columns of the user's files; text and label have defaults."""

  text: tables.Column | None = None
  text_pair: tables.Column | None = None
  label: tables.Column | None = None
  id: tables.Column | None = None
  query: tables.Column | None = None  # By whose ids texts are ranked.


_NO_COLUMNS = Columns()
_DEFAULTS = ("text", "label")  # Names of columns.
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json")
_METRICS = {
  "single_label": ("accuracy", "macro_f1"),
  "multi_label": ("micro_f1", "macro_f1"),
  "regression": _CORRELATIONS,
}
_ROWS_PEEKED = 100  # Searched for a header.


def file_task(
  data_dir: str | None = None,
  *,
  train_file: str | None = None,
  eval_file: str | None = None,
  predict_file: str | None = None,
  columns: Columns = _NO_COLUMNS,
  header: bool | None = None,
  problem: str = "single_label",
  has_teacher: bool = False,
  skips_unlabelled: bool | None = None,
) -> classification.ClassificationTask:
  """Makes a task of the user's own files, whose beginnings it reads.

  They are the files of a folder with names of `file_search.SPLITS`, of which
  any may be missing, or the given ones. For `columns` and `header`, see
  `find_table`.
  With a teacher, a label to train on may be missing; for `skips_unlabelled`,
  see `classification.Table`.
  """
  sets, metrics = {}, _METRICS[problem]
  if columns.query is not None:
    if problem == "multi_label":
      raise ValueError("--query_column: several labels do not rank texts")
    metrics += retrieval_scores.NAMES
  given = {"train": train_file, "eval": eval_file, "predict": predict_file}
  for kind, path in given.items():
    names = file_search.SPLITS[kind]
    if path:
      path_checks.check(f"{kind}_file", "file", path)
    elif data_dir:
      path = file_search.find_one(data_dir, names, _ENDINGS)
    if path:
      is_required = kind != "predict"
      table = find_table(path, columns, header, label_required=is_required)
      table = table._replace(
        skips_unlabelled=skips_unlabelled,
        empty_is_label=problem == "multi_label",
      )
      if has_teacher and kind == "train" and problem != "multi_label":
        table = table._replace(label_required=bool(skips_unlabelled))
      sets[kind] = ((names[0], table),)
  if not sets:
    names = ", ".join(itertools.chain(*file_search.SPLITS.values()))
    missing = file_search.describe_missing(data_dir or "")
    raise ValueError(
      f"--data_dir={data_dir or ''}: no file of {names} there; expected"
      f" a name such as train.tsv, ending in {', '.join(_ENDINGS)}, with or"
      f" without .gz or .xz after it; {missing}"
    )
  return classification.ClassificationTask(
    name="file",
    labels=(),
    problem=problem,
    train=tuple(table for _, table in sets.get("train", ())),
    dev=sets.get("eval", ()),
    test=sets.get("predict", ()),
    metrics=metrics,
  )


def find_table(
  path: str,
  columns: Columns = _NO_COLUMNS,
  header: bool | None = None,
  label_required: bool = True,
) -> classification.Table:
  """Checks the columns of a file by its first rows.

  Args:
    columns: those of the text and of the label are called "text" and "label" by
      default. A file to predict may lack the latter, one to learn from that of
      the ids. A single column without a header is the text.
    header: whether the first row holds names; None: if a column is given by
      name, or one there is called "text" or "label".
  """
  head = list(itertools.islice(tables.read_rows(path), _ROWS_PEEKED))
  if not head:
    raise ValueError(f"{path}: holds no example")
  names = [name.strip() for name in head[0].cells]  # JSON Lines have keys.
  is_json = isinstance(head[0].cells, dict)
  columns = Columns(*map(_read_column, columns))
  is_guessed = header is None and not is_json
  if is_guessed:
    by_name = any(isinstance(column, str) for column in columns)
    header = by_name or not set(names).isdisjoint(_DEFAULTS)
  if len(names) == 1 and not (
    is_json or header or label_required or columns.text_pair
  ):
    columns = Columns(text=0)
  columns = _find_columns(path, columns, names, label_required)
  if is_guessed and not header and columns.label is not None:
    _refuse_header(head, columns.label)
  return classification.Table(
    path,
    *columns[:-1],
    header=None if is_json else header,
    group=columns.query,
    label_required=label_required,
  )


def _read_column(column: tables.Column | None) -> tables.Column | None:
  """Returns the column that a flag means: a number if it reads as one."""
  if isinstance(column, str) and classification.INTEGER.fullmatch(column):
    return int(column)
  return None if column == "" else column


def _find_columns(path, columns, names, label_required) -> Columns:
  """Returns the columns of a file, without those that it lacks and may."""
  found, positions = {}, {}
  for role, column in columns._asdict().items():
    if column is None and role in _DEFAULTS:
      column = role
    if isinstance(column, str) and column not in names:
      if role != ("id" if label_required else "label"):
        raise ValueError(
          f"{path}: no column {column!r}; pass --{role}_column, a name or a"
          f" number from 0; the first row is: {tables.list_names(names)}"
        )
      column = None
    found[role] = positions[role] = column
    if isinstance(column, str):
      positions[role] = tables.find_column(names, column, path)
    elif column is not None and column < 0:
      positions[role] = column + len(names)
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
      f"{head[0].location}: is this a header? {tables.shorten(first)!r} is the"
      " label of no other row; pass --header=yes or --header=no"
    )
