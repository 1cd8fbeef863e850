"""The settings of run_classifier.py, and what they mean together."""

from collections.abc import Mapping
import dataclasses
import os

from cli import program, shared_flags
from tasks import classification, classification_results, classification_tasks

_data = program.group("Data")
_task = program.group("Task")
# They say which files of the user's own to read, and how.
_OWN_FILE_FLAGS = (
  "train_file",
  "eval_file",
  "predict_file",
  "text_column",
  "text_pair_column",
  "label_column",
  "id_column",
  "header",
  "problem",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(shared_flags.DataSettings):
  """The settings of this program."""

  task_name: str = _data(
    None,
    f"One of {', '.join(classification_tasks.TASKS)}; or file, for your own "
    "data.",
    required=True,
  )
  text_column: str | None = _data(None, "Column of the text: name or number.")
  text_pair_column: str | None = _data(
    None, "The column of a second text, if any."
  )
  label_column: str | None = _data(None, "The column of the label.")
  id_column: str | None = _data(
    None, "The column of the id that predictions repeat."
  )
  label_separator: str = _data(",", "Between the labels of one example.")
  labels: tuple[str, ...] = _task((), "Labels; by default the training file's.")
  seeds: tuple[str, ...] = _task(
    (), "Trains once with each; results are in output_dir/seed-N."
  )
  xnli_language: tuple[str, ...] = _task(("zh",), "Languages of XNLI to use.")
  class_weights: tuple[str, ...] = _task(
    (),
    "Weights of examples by label, in the order of labels; or 'balanced'.",
  )
  header: str = _task(
    "auto", "Whether files have a header.", choices=("auto", "yes", "no")
  )
  problem: str = _task(
    classification.PROBLEMS[0],
    "What your own data asks for.",
    choices=classification.PROBLEMS,
  )
  window_pooling: str = _task(
    "mean",
    "How the logits of a text are made of those of its windows.",
    choices=("mean", "max"),
  )
  doc_stride: int | None = _task(
    None,
    "Tokens from one window of a long text to the next; default truncates.",
    least=1,
  )


def read_task(
  settings: ClassifierSettings,
) -> classification.ClassificationTask:
  """Makes the task of the flags, with the paths of its files."""
  shared_flags.check_work(settings)
  task = _find_task(settings)
  if task.problem == "regression" and settings.class_weights:
    raise ValueError("--class_weights: a regression has no classes")
  if task.name != "xnli" and list(settings.xnli_language) != ["zh"]:
    raise ValueError("--xnli_language needs --task_name=xnli")
  if task.problem != "multi_label" and settings.label_separator != ",":
    raise ValueError("--label_separator needs --problem=multi_label")
  # An older training may have recorded it.
  is_asked = settings.do_train or "window_pooling" in settings.given
  if settings.window_pooling != "mean" and is_asked and not settings.doc_stride:
    raise ValueError("--window_pooling=max needs --doc_stride")
  choose_metric(settings, task)  # A ValueError if it is unknown.
  return task


def _find_task(settings) -> classification.ClassificationTask:
  if settings.task_name.lower() == "file":
    return classification_tasks.file_task(
      settings.data_dir,
      train_file=settings.train_file,
      eval_file=settings.eval_file,
      predict_file=settings.predict_file,
      columns=classification_tasks.Columns(
        text=settings.text_column,
        text_pair=settings.text_pair_column,
        label=settings.label_column,
        id=settings.id_column,
      ),
      header={"auto": None, "yes": True, "no": False}[settings.header],
      problem=settings.problem,
    )
  task = classification_tasks.find_task(settings.task_name)
  if task.name == "xnli":
    task = classification_tasks.xnli_task(settings.xnli_language)
  if not settings.data_dir:
    raise ValueError(f"--task_name={settings.task_name} needs --data_dir")
  for name in _OWN_FILE_FLAGS:
    if getattr(settings, name) != getattr(ClassifierSettings, name):
      raise ValueError(
        f"--{name}: --task_name=file takes it; the files of {task.name} are "
        "those of --data_dir, in columns of their own"
      )
  return classification_tasks.task_in_folder(task, settings.data_dir)


def by_seed(settings: ClassifierSettings) -> Mapping[int, ClassifierSettings]:
  """Returns the settings of each run: one run, or one for each seed."""
  if not settings.seeds:
    return {settings.seed: settings}
  are_numbers = all(seed.isdecimal() for seed in settings.seeds)
  if not are_numbers or len({*map(int, settings.seeds)}) < len(settings.seeds):
    raise ValueError(
      f"--seeds={','.join(settings.seeds)}: expected different numbers, such "
      "as 1,2,3"
    )
  folder = settings.output_dir
  return {
    seed: dataclasses.replace(
      settings, seed=seed, output_dir=os.path.join(folder, f"seed-{seed}")
    )
    for seed in map(int, settings.seeds)
  }


def choose_metric(
  settings: ClassifierSettings, task: classification.ClassificationTask
) -> str:
  """Returns the name of the score that decides which weights are best."""
  known = classification_results.metric_names(task.problem, task.metrics)
  return shared_flags.choose_metric(
    settings.best_metric, task.metrics[0], known
  )
