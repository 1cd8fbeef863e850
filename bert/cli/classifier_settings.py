"""The settings of run_classifier.py."""

import dataclasses

from bert.cli import classifier_tasks, shared_flags, typed_flags
from bert.tasks import classification_problems, classification_tasks

# The groups under which --help lists the flags.
_data = typed_flags.group("Data")
_task = typed_flags.group("Task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(shared_flags.TableSettings, shared_flags.DataSettings):
  """The settings of run_classifier.py; each field below is a flag.

  `decides` says what a flag changes, and by that which later runs must have the
  same; CONTRIBUTING.md has a table for new flags.
  """

  task_name: str = _data(
    typed_flags.REQUIRED,
    f"One of {', '.join(classification_tasks.TASKS)}; or file, for your own "
    "data.",
  )
  skip_unlabelled: bool = _data(
    False,
    "Whether to leave out rows without a label, except in --predict_file.",
    needs="task_name=file",
  )
  # No `decides`: they are in labels.txt of the output folder, with which
  # `label_files.choose` compares them.
  labels: tuple[str, ...] = _task(
    (),
    "The labels, separated by commas. Default: those of an earlier run, of the "
    "task, or of the training file.",
  )
  seeds: tuple[str, ...] = _task(
    (),
    "Trains once with each of these seeds. Results are in output_dir/seed-N.",
  )
  xnli_language: tuple[str, ...] = _task(
    ("zh",), "The languages of XNLI to use."
  )
  class_weights: tuple[str, ...] = _task(
    (),
    "The weight of each label's examples in the loss (multi_label: of its "
    "yes/no decisions), in the order of labels.txt. Only the ratios matter. "
    "'balanced': rare labels get more.",
    decides=("training",),
  )
  # No `decides`: `open_data` records the problem of the task, which a benchmark
  # sets itself.
  problem: str = _task(
    "single_label",
    "What your own data asks for: one label per text, several labels, or a "
    "number.",
    choices=tuple(classification_problems.PROBLEMS),
  )
  label_separator: str = _task(
    ",",
    "What separates the labels of one example.",
    needs="problem=multi_label",
    decides=("features", "answers"),
  )
  # No `decides`: these columns are a part of the `source` of a set, and so of
  # its key.
  label_columns: tuple[str, ...] = _data(
    (),
    "The names of columns with 1 where a label applies and 0 elsewhere; they "
    "are the labels.",
    needs="problem=multi_label",
  )
  # No `decides`: temperature.json says for which weights it was fitted.
  calibrate: bool = _task(
    False,
    "Whether to fit a temperature on the evaluation file, by which predictions "
    "and exports divide the logits. Probabilities then say better how often "
    "the label is right; no label changes.",
    needs="do_eval",
  )
  query_column: str | None = _data(
    None,
    "The column of a query's id, for pairs of a query and a text that may "
    "answer it. The program then also gives the scores of a ranking, such as "
    "mrr_at_10 and ndcg_at_10.",
  )
  window_pooling: str = _task(
    "mean",
    "How the logits of a text's windows become the logits of the text.",
    choices=("mean", "max"),
    needs="doc_stride",
    decides=("answers",),
  )
  doc_stride: int | None = _task(
    None,
    "Reads a long text in windows of --max_seq_length tokens, this many tokens "
    "apart, for example 512 and 256. By default, long texts are truncated.",
    least=1,
    decides=("features", "answers"),
  )

  def check(self) -> None:
    """Refuses an unknown task, too, wrong columns, and what does not fit it."""
    super().check()
    classifier_tasks.check_files(self)
