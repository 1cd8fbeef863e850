"""Classification tasks: GLUE and XNLI as a table.

The benchmarks' files keep their names. Those of CoLA, MRPC, MNLI and XNLI are
read as the original program read them.
"""

from collections.abc import Iterable, Mapping, Sequence
import functools
import os
import re

from data import files, tables
from tasks import classification

_ENTAILMENT = ("contradiction", "entailment", "neutral")
_ENTAILED = ("entailment", "not_entailment")
_BINARY = ("0", "1")
_ACCURACY = ("accuracy",)
# The rows of GLUE and XNLI have further columns, not always the same number.
_PLAIN = functools.partial(classification.Table, allows_long_rows=True)
_MNLI = functools.partial(_PLAIN, text=8, text_pair=9, id=0, header=True)


def _named(
  text: str, text_pair: str | None = None, label: str = "label"
) -> classification.Table:
  return _PLAIN("dev.tsv", text, text_pair, label, header=True)


def _task(
  name: str,
  labels: tuple[str, ...],
  metrics: tuple[str, ...],
  dev: classification.Table,
  skips_short_rows: bool = False,
  **of_test: tables.Column | bool,
) -> classification.ClassificationTask:
  """Makes a task of GLUE; its test set has no labels, but ids."""
  train = dev._replace(path="train.tsv", skips_short_rows=skips_short_rows)
  of_test = {"id": "index", "label": None, **of_test}
  return classification.ClassificationTask(
    name=name.lower(),
    labels=labels,
    problem="single_label" if labels else "regression",
    train=(train,),
    dev=(("dev", dev),),
    test=(("test", dev._replace(path="test.tsv", **of_test)),),
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
    _PLAIN("dev.tsv", 3, label=1, header=False),
    text=1,
    id=0,
    header=True,
  ),
  _task("SST-2", _BINARY, _ACCURACY, _named("sentence")),
  _task(
    "MRPC",
    _BINARY,
    ("f1", "accuracy"),
    _PLAIN("dev.tsv", 3, 4, 0, header=True),
    id=0,
  ),
  _task(
    "STS-B",
    (),
    ("corr", "pearson", "spearman"),
    _named("sentence1", "sentence2", "score"),
  ),
  _task(
    "QQP",
    _BINARY,
    ("f1", "accuracy"),
    _named("question1", "question2", "is_duplicate"),
    skips_short_rows=True,  # The official train.tsv has a few broken ones.
    id="id",
  ),
  classification.ClassificationTask(
    name="mnli",
    labels=_ENTAILMENT,
    problem="single_label",
    train=(_MNLI("train.tsv", label=-1),),
    dev=(
      ("matched", _MNLI("dev_matched.tsv", label=-1)),
      ("mismatched", _MNLI("dev_mismatched.tsv", label=-1)),
    ),
    test=(
      ("matched", _MNLI("test_matched.tsv")),
      ("mismatched", _MNLI("test_mismatched.tsv")),
    ),
    metrics=_ACCURACY,
    submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
  ),
  _task("QNLI", _ENTAILED, _ACCURACY, _named("question", "sentence")),
  _task("RTE", _ENTAILED, _ACCURACY, _named("sentence1", "sentence2")),
  _task("WNLI", _BINARY, _ACCURACY, _named("sentence1", "sentence2")),
  classification.ClassificationTask(
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


def xnli_task(
  languages: Sequence[str] = ("zh",),
) -> classification.ClassificationTask:
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
  return classification.ClassificationTask(
    name="xnli",
    labels=_ENTAILMENT,
    problem="single_label",
    train=tuple(train),
    dev=(("dev", dev),),
    test=(("test", test),),
    metrics=_ACCURACY,
  )


TASKS = {task.name: task for task in (*_GLUE, xnli_task())}


def find_task(name: str) -> classification.ClassificationTask:
  """Returns a row of TASKS, in whatever way its name is written.

  >>> find_task("SST2").name
  'sst-2'
  """
  normalized = _normalize_name(name)
  for task in TASKS.values():
    if _normalize_name(task.name) == normalized:
      return task
  raise ValueError(
    f"--task_name={name}: expected one of {', '.join(sorted(TASKS))}, or file"
    " for files of your own"
  )


def _normalize_name(name: str) -> str:
  return re.sub("[-_ ]", "", name.lower())


def task_in_folder(
  task: classification.ClassificationTask, data_dir: str
) -> classification.ClassificationTask:
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
  task: classification.ClassificationTask,
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
  task: classification.ClassificationTask, scores: Mapping[str, float]
) -> Mapping[str, float]:
  """Returns the scores for eval_results.txt, the original's for its tasks."""
  if task.name not in ("cola", "mnli", "mrpc", "xnli"):
    return scores
  return {name: scores[name] for name in ("accuracy", "loss")}
