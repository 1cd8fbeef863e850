"""What the flags of run_classifier.py mean together."""

from cli import fine_tuning
from cli import flag_values
from tasks import classification
from tasks import glue

_OF_OWN_DATA = (
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


def read_task(settings: flag_values.Settings) -> classification.Task:
  """Makes the task of the flags, with the paths of its files.

  Raises:
    ValueError: flags contradict each other, or a file is not there.
  """
  fine_tuning.check_work(settings)
  task = _find_task(settings)
  if task.problem == "regression" and settings.class_weights:
    raise ValueError("--class_weights: a regression has no classes")
  if task.name != "xnli" and list(settings.xnli_language) != ["zh"]:
    raise ValueError("--xnli_language needs --task_name=xnli")
  if task.problem != "multi_label" and settings.label_separator != ",":
    raise ValueError("--label_separator needs --problem=multi_label")
  name = "window_pooling"  # An older training may have recorded it.
  is_asked = settings.do_train or flag_values.is_given(name)
  if settings.window_pooling != "mean" and is_asked and not settings.doc_stride:
    raise ValueError("--window_pooling=max needs --doc_stride")
  return task


def _find_task(settings) -> classification.Task:
  own = {name: getattr(settings, name) for name in _OF_OWN_DATA}
  if settings.task_name.lower() == "file":
    own["header"] = {"auto": None, "yes": True, "no": False}[settings.header]
    return glue.file_task(settings.data_dir, **own)
  task = glue.find_task(settings.task_name)
  if task.name == "xnli":
    task = glue.xnli_task(settings.xnli_language)
  if not settings.data_dir:
    raise ValueError(f"--task_name={settings.task_name} needs --data_dir")
  unset = (None, "auto", classification.PROBLEMS[0])
  if wrong := [name for name in own if own[name] not in unset]:
    raise ValueError(
      f"--{wrong[0]}: --task_name=file takes it; the files of {task.name} are "
      "those of --data_dir, in columns of their own"
    )
  return glue.task_in_folder(task, settings.data_dir)
