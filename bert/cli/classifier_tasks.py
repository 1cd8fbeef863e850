"""The task that the flags of run_classifier.py describe; without TensorFlow."""

import os
from typing import Any

from bert.cli import shared_flags, trained_columns
from bert.data import file_search, files, remote
from bert.tasks import (
  classification,
  classification_columns,
  classification_problems,
  classification_results,
  classification_tasks,
)

# Flags of --task_name=file alone: a benchmark says these things itself. `needs`
# cannot say it of all: some are declared in shared_flags.py, also for programs
# without --task_name, and --problem may name the problem that a benchmark has.
# A flag that needs a --problem stands here, too: a run that does not train
# learns its problem, and checks `needs`, only after TensorFlow is imported.
_FILE_FLAGS = (
  "train_file",
  "eval_file",
  "predict_file",
  "problem",
  "label_separator",
  "label_columns",
  "query_column",
  *shared_flags.TableSettings.flags_by_name(),
)


def read(settings: Any) -> classification.ClassificationTask:
  """Makes the task of the flags, with the paths of its files; checks both."""
  # `read_settings` may have changed the problem since `check_files`.
  task = find(settings)
  check(settings, task)
  return task


def check_files(settings: Any) -> None:
  """Raises a ValueError if a file or a column is missing, or flags do not fit.

  Remote files are left out: TensorFlow opens them.
  """
  names = ("data_dir", "train_file", "eval_file", "predict_file")
  paths = [getattr(settings, name) or "" for name in names]
  if any(map(remote.is_remote, paths)):
    return

  # Without --do_train the problem is not known yet: it may be the recorded one.
  task = find(settings)
  if settings.do_train:
    check(settings, task)

  for kind in settings.data_kinds:
    for _, tables in task.sets(kind):
      for table in tables:
        if not files.exists(table.path):
          folder = file_search.describe_missing(os.path.dirname(table.path))
          raise ValueError(f"--do_{kind}: no {table.path}; {folder}")


def check(settings: Any, task: classification.ClassificationTask) -> None:
  """Raises a ValueError if flags do not fit the problem of the task."""
  # What the kind of labels has no use for.
  problem = classification_problems.PROBLEMS[task.problem]
  if settings.class_weights and not problem.has_labels:
    raise ValueError(
      "--class_weights: a regression has no classes; leave it out"
    )
  if settings.calibrate and problem.activation != "softmax":
    raise ValueError(
      f"--calibrate: a model of the problem {task.problem} has no softmax; "
      "expected one label per text"
    )

  if len({*settings.labels}) < len(settings.labels):
    labels = ",".join(settings.labels)
    raise ValueError(f"--labels={labels}: expected each label once")
  if not settings.label_separator:
    raise ValueError("--label_separator: expected a character, found none")
  if task.name != "xnli" and list(settings.xnli_language) != ["zh"]:
    languages = ",".join(settings.xnli_language)
    raise ValueError(f"--xnli_language={languages} needs --task_name=xnli")
  choose_metric(settings, task)  # A ValueError if it is unknown.


def find(settings: Any) -> classification.ClassificationTask:
  """Makes the task; a ValueError names a task, file or column not known."""
  # The user's own files: the flags say where their columns are.
  if settings.task_name.lower() == "file":
    task = classification_tasks.file_task(
      settings.data_dir,
      train_file=settings.train_file,
      eval_file=settings.eval_file,
      predict_file=settings.predict_file,
      columns=classification_tasks.Columns(
        text=settings.text_column,
        text_pair=settings.text_pair_column,
        label=_choose_label_column(settings),
        id=settings.id_column,
        query=settings.query_column,
      ),
      header={"auto": None, "yes": True, "no": False}[settings.header],
      problem_name=settings.problem,
      has_teacher=bool(settings.teacher),
      skips_unlabelled=settings.skip_unlabelled,
    )
    for table in (*task.train, *(t for _, t in (*task.dev, *task.test))):
      check_columns(settings, table)
    return task

  # A benchmark: its files and columns are known.
  task = classification_tasks.find_task(
    settings.task_name, settings.xnli_language
  )
  if not settings.data_dir:
    raise ValueError(f"--task_name={settings.task_name} needs --data_dir")

  # A flag that is ignored would mislead. Its default is accepted, which says
  # what happens anyway, and so is the task's problem: without --do_train
  # `fine_tuning.read_settings` has set that to the one of the trained weights.
  flags = settings.flags_by_name()
  for name in _FILE_FLAGS:
    value = getattr(settings, name)
    is_problem = name == "problem" and value == task.problem
    if value not in ("", flags[name].default) and not is_problem:
      raise ValueError(
        f"--{name}: --task_name=file takes it; the files of {task.name} are "
        "those of --data_dir, in columns of their own"
      )
  return classification_tasks.task_in_folder(task, settings.data_dir)


def check_columns(
  settings: shared_flags.DataSettings, table: classification.Table
) -> None:
  """Compares the texts of a table with those that a training read."""
  trained_columns.check(
    settings,
    table.path,
    classification_columns.names_in(table.path),
    {"text": table.text, "text_pair": table.text_pair},
    has_numbers=table.header is not None,
  )


def _choose_label_column(settings: Any) -> str | tuple[str, ...] | None:
  """Returns the column of the labels, or the columns if each has its own."""
  columns = settings.label_columns
  if not columns:
    return settings.label_column

  # The names of the columns are the labels.
  for name in ("label_column", "labels"):
    if getattr(settings, name):
      raise ValueError(f"--label_columns and --{name}: pass only one")
  if not all(columns) or len(set(columns)) < len(columns):
    raise ValueError(
      f"--label_columns={','.join(columns)}: expected different names, none of "
      "them empty"
    )
  return columns


def choose_metric(
  settings: Any, task: classification.ClassificationTask
) -> str:
  """Returns the score that decides which weights are best.

  By default it is the first of the task's own, which is not the first of all
  that are computed.
  """
  names = classification_results.metric_names(task.problem, task.metrics)
  default = task.metrics[0]
  return shared_flags.choose_metric(settings.best_metric or default, names)
