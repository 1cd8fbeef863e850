"""Classification tasks: GLUE and XNLI as a table, and files of the user's own.

The benchmarks' files keep their names. Those of CoLA, MRPC, MNLI and XNLI are
read as the original program read them.
"""

from collections.abc import Iterable, Mapping, Sequence
import functools
import itertools
import os
import re
import types
from typing import Any, NamedTuple

from bert.data import file_search, files, messages, path_checks, tables
from bert.report import calibration, retrieval_scores
from bert.tasks import (
  classification,
  classification_columns,
  classification_problems,
)

# The labels of a task, by how its files write them.
_ACCEPTABLE = {"0": "unacceptable", "1": "acceptable"}
_DUPLICATE = {"0": "not_duplicate", "1": "duplicate"}
_TWO_WAY_WORDS = {name: name for name in ("entailment", "not_entailment")}
_THREE_WAY = {n: n for n in ("contradiction", "entailment", "neutral")}
_TWO_WAY_NUMBERS = {"0": "not_entailment", "1": "entailment"}
_EQUIVALENT = {"0": "not_equivalent", "1": "equivalent"}
_SENTIMENT = {"0": "negative", "1": "positive"}
# The metrics of a task; the first one selects the best checkpoint.
_ACCURACY = ("accuracy",)
_F1 = ("f1", "accuracy")
_MATTHEWS = ("matthews_correlation", "accuracy")
_CORRELATIONS = ("corr", "pearson", "spearman")

# The columns of the two texts of a pair.
_PAIR = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")

# Rows of the benchmarks may have further columns, not always the same number.
_table = functools.partial(
  classification.Table, header=True, allows_long_rows=True
)


class _Glue(NamedTuple):
  """A task of GLUE; a column is a name, or a number from 0."""

  name: str
  metrics: tuple[str, ...]
  labels: dict[str, str]
  texts: tuple[tables.Column, ...]  # The columns of one text or two.
  label: tables.Column = "label"
  # Test files have ids and a header; the original took no labels from them.
  test_id: tables.Column = "index"
  test_texts: tuple[tables.Column, ...] = ()  # Default: `texts`.
  header: bool = True  # Whether train.tsv and dev.tsv have one.
  id: tables.Column | None = None
  problem: str = "single_label"
  skips_short_rows: bool = False  # Those of train.tsv alone.
  # Names of sets and their files. A task without dev files (AX) has no
  # train.tsv either.
  dev: Mapping[str, str] = types.MappingProxyType({"dev": "dev.tsv"})
  test: Mapping[str, str] = types.MappingProxyType({"test": "test.tsv"})
  submissions: tuple[str, ...] = ()  # The names of GLUE's server for test sets.

  def make(self) -> classification.ClassificationTask:
    """Makes the task; its files are not in a folder yet."""
    # Only labels that the files write differently are renamed.
    renamed_labels = tuple(
      (in_file, label)
      for in_file, label in self.labels.items()
      if in_file != label
    )

    # train.tsv and the dev files have the same columns, test files others.
    texts = list(self.texts)
    table = _table(
      "train.tsv",
      text=texts[0],
      text_pair=texts[1] if len(texts) > 1 else None,
      label=self.label,
      id=self.id,
      header=self.header,
      renamed_labels=renamed_labels,
    )
    train = table._replace(skips_short_rows=self.skips_short_rows)
    text = (self.test_texts or self.texts)[0]
    test = table._replace(text=text, label=None, id=self.test_id, header=True)

    # The names of the sets, and the files of the task by them.
    return classification.ClassificationTask(
      name=self.name.lower(),
      labels=tuple(self.labels.values()),
      problem=self.problem,
      train=(train,) if self.dev else (),
      dev=tuple(
        (name, table._replace(path=path)) for name, path in self.dev.items()
      ),
      test=tuple(
        (name, test._replace(path=path)) for name, path in self.test.items()
      ),
      metrics=self.metrics,
      submissions=self.submissions or (f"{self.name}.tsv",),
    )


# First the name, the metrics and the labels; then the columns. Those of CoLA,
# MRPC and MNLI are the original's, by number. The other tasks name them, as the
# headers of their files do.
_GLUE = (
  # Only the test file has a header.
  _Glue(
    "CoLA",
    _MATTHEWS,
    _ACCEPTABLE,
    texts=(3,),
    label=1,
    test_texts=(1,),
    test_id=0,
    header=False,
  ),
  _Glue("SST-2", _ACCURACY, _SENTIMENT, texts=("sentence",)),
  _Glue("MRPC", _F1, _EQUIVALENT, texts=(3, 4), label=0, test_id=0),
  # The similarity of two texts, from 0 to 5.
  _Glue(
    "STS-B",
    _CORRELATIONS,
    labels={},
    texts=_PAIR,
    label="score",
    problem="regression",
  ),
  # The official train.tsv has a few broken rows.
  _Glue(
    "QQP",
    _F1,
    _DUPLICATE,
    texts=_QUESTIONS,
    label="is_duplicate",
    test_id="id",
    skips_short_rows=True,
  ),
  # Matched texts are of the same genres as those of train.tsv. The column of
  # the label is the last one: the dev files have more columns.
  _Glue(
    "MNLI",
    _ACCURACY,
    _THREE_WAY,
    texts=(8, 9),
    label=-1,
    id=0,
    test_id=0,
    dev={"matched": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
    test={"matched": "test_matched.tsv", "mismatched": "test_mismatched.tsv"},
    submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
  ),
  _Glue("QNLI", _ACCURACY, _TWO_WAY_WORDS, texts=("question", "sentence")),
  _Glue("RTE", _ACCURACY, _TWO_WAY_WORDS, texts=_PAIR),
  _Glue("WNLI", _ACCURACY, _TWO_WAY_NUMBERS, texts=_PAIR),
  # GLUE's diagnostic set has no training data: it tests a model of MNLI.
  _Glue(
    "AX",
    ("matthews_correlation",),
    _THREE_WAY,
    texts=_PAIR,
    dev={},
    test={"test": "diagnostic.tsv"},
  ),
)


def xnli_task(
  languages: Sequence[str] = ("zh",),
) -> classification.ClassificationTask:
  """Makes the XNLI task of some of its languages, by their codes.

  It trains on the translations of MNLI, one after the other, and reads labels
  of the test set if it has them. The columns are the original's, by number.
  """
  languages = tuple(filter(None, map(str.strip, languages)))
  if not languages:
    raise ValueError("--xnli_language: expected a code such as zh, or several")

  # The translations of MNLI write one label otherwise than the other files.
  renamed = (("contradictory", "contradiction"),)
  train = _table("", text=0, text_pair=1, label=2, renamed_labels=renamed)

  # These files hold all languages: column 0 is the code. Each language that is
  # read gets an accuracy of its own.
  dev = _table(
    "xnli.dev.tsv", text=6, text_pair=7, label=1, group=0, groups=languages
  )
  test = dev._replace(path="xnli.test.tsv", label_required=False)

  return classification.ClassificationTask(
    name="xnli",
    labels=tuple(_THREE_WAY),
    problem="single_label",
    train=tuple(
      train._replace(path=f"multinli/multinli.train.{language}.tsv")
      for language in languages
    ),
    dev=(("dev", dev),),
    test=(("test", test),),
    metrics=_ACCURACY,
  )


TASKS = {row.name.lower(): row.make() for row in _GLUE}
TASKS["xnli"] = xnli_task()


def find_task(
  name: str, languages: Sequence[str] = ("zh",)
) -> classification.ClassificationTask:
  """Returns a row of TASKS, in whatever way its name is written.

  `languages` are those of XNLI.

  >>> find_task("SST2").name
  'sst-2'
  """
  tasks = {re.sub("[-_ ]", "", task): task for task in TASKS}
  task_name = tasks.get(re.sub("[-_ ]", "", name.lower()))
  if task_name is None:
    raise ValueError(
      f"--task_name={name}: expected one of {', '.join(sorted(TASKS))}, or file"
      " for files of your own"
    )
  return xnli_task(languages) if task_name == "xnli" else TASKS[task_name]


def task_in_folder(
  task: classification.ClassificationTask, data_dir: str
) -> classification.ClassificationTask:
  """Returns the task with the paths of its files in a folder.

  Dev and test sets after the first are left out if their files are missing
  (MNLI's mismatched ones). A ValueError if none of the files is there.
  """
  paths = [table.path for table in task.train]
  paths += [table.path for _, table in task.dev + task.test]
  if not any(files.exists(os.path.join(data_dir, path)) for path in paths):
    names = " or ".join(paths)
    there = file_search.describe_missing(data_dir, inside=task.name)
    raise ValueError(f"--data_dir={data_dir}: expected {names} there; {there}")

  def locate(table):
    return table._replace(path=os.path.join(data_dir, table.path))

  def locate_all(sets):
    located = [(name, locate(table)) for name, table in sets]
    further = [row for row in located[1:] if files.exists(row[1].path)]
    return tuple(located[:1] + further)

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
  """Writes predictions as the GLUE server reads them.

  It takes scores from 0 to 5, and labels as the data files have them. Other
  tasks have no such file.

  Args:
    folder: gets the file.
    task: any task.
    name: of the test set, such as "matched".
    predictions: (id, label or score) of each example.
  """
  if not task.submissions:
    return

  # MNLI has two test sets, and a file for each.
  number = [test_name for test_name, _ in task.test].index(name)
  path = os.path.join(folder, task.submissions[number])
  _, table = task.test[number]
  in_files = {label: in_file for in_file, label in table.renamed_labels}

  lines = ["index\tprediction"]
  for example_id, prediction in predictions:
    # The server takes STS-B's range alone; a regression may go beyond it.
    if isinstance(prediction, float):
      prediction = f"{min(max(prediction, 0.0), 5.0):.3f}"
    # A run with --labels may answer with labels that the server does not know.
    elif prediction not in task.labels:
      raise ValueError(
        f"{path}: {prediction!r} is no label of {task.name}; expected one of"
        f" {', '.join(task.labels)}"
      )

    lines.append(f"{example_id}\t{in_files.get(prediction, prediction)}")

  files.write_text(path, "\n".join(lines) + "\n")
  print(f"wrote {path}")


def scores_of_original(
  task: classification.ClassificationTask, scores: Mapping[str, float]
) -> Mapping[str, float]:
  """Returns the scores for eval_results.txt, the original's for its tasks."""
  # The original had these four tasks, and computed these two scores.
  if task.name not in ("cola", "mnli", "mrpc", "xnli"):
    return scores
  names = ("accuracy", "loss", *calibration.NAMES)
  return {name: scores[name] for name in names if name in scores}


# Files of the user's own.


class Columns(NamedTuple):
  """The columns of the user's files; text and label have defaults."""

  text: tables.Column | None = None
  text_pair: tables.Column | None = None
  # Several: one for each label, see `classification_columns`.
  label: tables.Column | tuple[str, ...] | None = None
  id: tables.Column | None = None
  query: tables.Column | None = None  # By whose ids texts are ranked.


_NO_COLUMNS = Columns()
_DEFAULTS = ("text", "label")  # Names of columns.
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json")
_ROWS_PEEKED = 100  # Searched for a header.


def file_task(
  data_dir: str | None = None,
  *,
  train_file: str | None = None,
  eval_file: str | None = None,
  predict_file: str | None = None,
  columns: Columns = _NO_COLUMNS,
  header: bool | None = None,
  problem_name: str = "single_label",
  has_teacher: bool = False,
  skips_unlabelled: bool | None = None,
) -> classification.ClassificationTask:
  """Makes a task of the user's own files, whose beginnings it reads.

  Args:
    data_dir: a folder, whose files with names of `file_search.SPLITS` are
      taken; any may be missing. None if all files are given.
    train_file: instead of the folder's, as the next two.
    eval_file: to score.
    predict_file: to answer; it may lack labels.
    columns: see `find_table`.
    header: see `find_table`.
    problem_name: one of `classification_problems.PROBLEMS`.
    has_teacher: whether a label to train on may be missing, because a teacher
      gives one.
    skips_unlabelled: see `classification.Table`.
  """
  # Texts are ranked by one number: that of a regression or of one label.
  problem = classification_problems.PROBLEMS[problem_name]
  metrics = problem.selecting
  if columns.query is not None:
    if not problem.can_rank:
      raise ValueError("--query_column: several labels do not rank texts")
    metrics += retrieval_scores.NAMES

  sets = {}
  given = {"train": train_file, "eval": eval_file, "predict": predict_file}
  for kind, path in _find_files(data_dir, given).items():
    # Texts to predict need no label; if they have them, they are scored.
    is_required = kind != "predict"
    table = find_table(path, columns, header, is_required)

    # The teacher labels the rest. Of several labels, an empty cell is no
    # missing label: it says that none applies. With --skip_unlabelled the rows
    # are left out instead, as rows without a required label are.
    if kind == "train" and has_teacher and not problem.empty_is_label:
      is_required = bool(skips_unlabelled)
    table = table._replace(
      label_required=is_required,
      skips_unlabelled=skips_unlabelled,
      empty_is_label=problem.empty_is_label,
    )

    # A task may have several sets of a kind; of the user's files it is one.
    sets[kind] = ((file_search.SPLITS[kind][0], table),)

  # Columns of labels have their names. Other labels are found in the training
  # file later, see `choose_labels`.
  return classification.ClassificationTask(
    name="file",
    labels=columns.label if isinstance(columns.label, tuple) else (),
    problem=problem_name,
    train=tuple(table for _, table in sets.get("train", ())),
    dev=sets.get("eval", ()),
    test=sets.get("predict", ()),
    metrics=metrics,
  )


def _find_files(
  folder: str | None, given: Mapping[str, str | None]
) -> dict[str, str]:
  """Returns the files that are given or in a folder: at least one, by kind."""
  # A file of a flag must exist. A folder may lack any of the three.
  paths = {}
  for kind, path in given.items():
    if path:
      path_checks.check(f"{kind}_file", "file", path)
    elif folder:
      path = file_search.find_one(folder, file_search.SPLITS[kind], _ENDINGS)
    if path:
      paths[kind] = path

  if not paths:
    if not folder:
      raise ValueError("no data: pass --train_file, --eval_file or --data_dir")
    names = ", ".join(itertools.chain(*file_search.SPLITS.values()))
    there = file_search.describe_missing(folder)
    raise ValueError(
      f"--data_dir={folder}: no file of {names} there; expected"
      f" a name such as train.tsv, ending in {', '.join(_ENDINGS)}, with or"
      f" without .gz or .xz after it; {there}"
    )
  return paths


def find_table(
  path: str,
  columns: Columns = _NO_COLUMNS,
  header: bool | None = None,
  label_required: bool = True,
) -> classification.Table:
  """Checks the columns of a file by its first rows.

  Args:
    path: the file.
    columns: the text's and the label's are called "text" and "label" by
      default. A file to predict may lack its label, a file to learn from its
      id. A single column without a header is the text.
    header: whether the first row holds names; None: if a column is given by
      name, or one there is called "text" or "label".
    label_required: False for a file to predict.
  """
  # JSON Lines have no header: their keys are the names.
  head = list(itertools.islice(tables.read_rows(path), _ROWS_PEEKED))
  if not head:
    raise ValueError(f"{path}: holds no example")
  is_json = isinstance(head[0].cells, dict)
  names = classification_columns.names_of(head)
  columns = Columns(*map(_read_column, columns))

  # Whether there is a header is asked for, or shown by the names in it.
  is_guessed = header is None and not is_json
  if is_guessed:
    is_by_name = any(isinstance(column, (str, tuple)) for column in columns)
    header = is_by_name or not set(names).isdisjoint(_DEFAULTS)
  has_names = is_json or header

  # A list of texts is enough to predict from.
  is_one_column = len(names) == 1 and not columns.text_pair
  if is_one_column and not has_names and not label_required:
    columns = Columns(text=0)

  # Each of several columns is looked for as a single one would be.
  if isinstance(labels := columns.label, tuple):
    found = classification_columns.find(path, labels, names, label_required)
    for label in labels:
      by_one = columns._replace(label=label)
      columns = _find_columns(path, by_one, names, label_required)
    columns = columns._replace(label=found)
  else:
    columns = _find_columns(path, columns, names, label_required)

  # A header that was taken for a row would become a label of its own.
  if is_guessed and not header and isinstance(columns.label, int):
    _refuse_header(head, columns.label)

  if columns.text_pair is None and (is_json or header):
    classification_columns.note_second_text(path, names)

  assert columns.text is not None  # It has a default.
  return classification.Table(
    path,
    text=columns.text,
    text_pair=columns.text_pair,
    label=columns.label,
    id=columns.id,
    group=columns.query,
    header=None if is_json else header,
    label_required=label_required,
  )


def _read_column(column: Any) -> Any:
  """Returns the column that a flag means: a number if it reads as one."""
  if isinstance(column, str) and classification.INTEGER.fullmatch(column):
    return int(column)
  return None if column == "" else column


def _find_columns(path, columns, names, label_required) -> Columns:
  """Returns the columns of a file, without those that it may and does lack."""
  # A file to learn from needs labels, a file to predict ids, if they are asked
  # for.
  may_lack = "id" if label_required else "label"
  by_role = {}
  for role, column in columns._asdict().items():
    if column is None and role in _DEFAULTS:
      column = role

    # A name that the header lacks is an error, but for what the file may lack.
    if isinstance(column, str) and column not in names:
      if role != may_lack:
        raise ValueError(
          f"{path}: no column {column!r}; pass --{role}_column, a name or a"
          f" number from 0; the first row is: {messages.list_names(names)}"
        )
      column = None
    by_role[role] = column

  # A name and a number may mean the same column.
  places = {
    role: _find_position(path, column, names)
    for role, column in by_role.items()
  }
  label = places["label"]
  is_text = label is not None and label in (places["text"], places["text_pair"])
  if label_required and is_text:
    raise ValueError(
      f"{path}: column {by_role['label']!r} cannot be a text and the label"
    )

  # A file to predict may have fewer columns than the training file: then the
  # number of the label is beyond its last one, or, as -1, it is a text's.
  if not label_required and (is_text or label not in range(len(names))):
    by_role["label"] = None
  return Columns(**by_role)


def _find_position(path, column, names) -> int | None:
  """Returns the number of a column, from 0; a number may count from the end."""
  if isinstance(column, str):
    return tables.find_column(names, column, path)
  return column if column is None or column >= 0 else column + len(names)


def _refuse_header(head: Sequence[tables.Row], label: int) -> None:
  """Raises a ValueError if the first label looks like the name of the rest."""
  cells = [row.cells for row in head]
  labels = [c[label].strip() for c in cells if -len(c) <= label < len(c)]
  first, *rest = labels or [""]

  # A word that is nobody's label, above labels that each occur twice or more on
  # average.
  is_name = first.replace(" ", "_").isidentifier() and first not in rest
  if is_name and rest and len(rest) >= 2 * len(set(rest)):
    raise ValueError(
      f"{head[0].location}: is this a header? {messages.shorten(first)!r} is "
      "the label of no other row; pass --header=yes or --header=no"
    )
