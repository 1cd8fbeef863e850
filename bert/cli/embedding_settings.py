"""The settings of run_embedding.py, and the files that they mean."""

import dataclasses
from typing import Any

from bert.cli import classifier_tasks, shared_flags, typed_flags
from bert.data import remote
from bert.report import retrieval_scores
from bert.tasks import classification, classification_tasks

_task = typed_flags.group("Task")
# The endings of the files in --data_dir.
_ENDINGS = (".tsv", ".csv", ".jsonl", ".json", ".txt")
_PAIR_SCORES = ("spearman", "pearson")
# The scores by the objective; the first one decides which weights are best.
_METRICS = {
  "pairs": retrieval_scores.NAMES,
  "scores": _PAIR_SCORES,
  "sentences": _PAIR_SCORES,
  "labels": ("accuracy",),
}
OBJECTIVES = tuple(_METRICS)
_COLUMNS_OF_PAIRS = frozenset(
  "text_pair_column label_column id_column min_score max_score".split()
)
# For `needs`. These objectives evaluate pairs of texts, also "sentences", which
# trains on single ones.
_OF_PAIRS = tuple(f"objective={name}" for name in OBJECTIVES[:3])
# These can hold out rows of the training file, for they are evaluated on rows
# of the same kind.
_SPLIT = tuple(f"objective={name}" for name in ("pairs", "scores", "labels"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingSettings(shared_flags.TableSettings, shared_flags.DataSettings):
  """The settings of run_embedding.py."""

  # The task, and how a vector is made.
  objective: str = _task(
    OBJECTIVES[0],
    "What to learn from. pairs: texts that belong together; the other texts of "
    "the batch are the negatives, besides hard negatives in the label column. "
    "scores: pairs with their similarity. sentences: single texts, each "
    "compared with itself under another dropout mask (SimCSE). labels: a few "
    "texts of each class, which also makes a classifier (SetFit). Columns 0, "
    "1, 2: text, second text, label; for labels, columns called text and "
    "label.",
    choices=OBJECTIVES,
    decides=("training",),
  )
  pooling: str = _task(
    "mean",
    "How the vectors of the tokens become one vector of the text. Default: as "
    "a --model of sentence-transformers states, otherwise mean.",
    choices=("mean", "cls", "max"),
    decides=("model",),
  )
  normalize: bool = _task(
    False,
    "Whether to scale every vector to length 1. Default: as a --model of "
    "sentence-transformers states, otherwise false.",
    decides=("model",),
  )

  # The loss, and the scale of similarities in the files.
  temperature: float = _task(
    0.05,
    "Training divides the cosines by this number.",
    least=1e-3,
    decides=("training",),
  )
  min_score: float = _task(
    0.0, "The lowest score or relevance that a file can have.", needs=_OF_PAIRS
  )
  max_score: float = _task(
    5.0, "The highest score or relevance that a file can have.", needs=_OF_PAIRS
  )

  # Flags of other programs, too, which have no effect for some objectives here:
  # `narrow` keeps flag and help text, and refuses the flag there.
  text_pair_column: str | None = typed_flags.narrow(
    shared_flags.ColumnSettings, "text_pair_column", _OF_PAIRS
  )
  id_column: str | None = typed_flags.narrow(
    shared_flags.TableSettings, "id_column", _OF_PAIRS
  )
  predict_file: str | None = typed_flags.narrow(
    shared_flags.DataSettings, "predict_file", _OF_PAIRS
  )
  predict_batch_size: int = typed_flags.narrow(
    shared_flags.FineTuningSettings, "predict_batch_size", _OF_PAIRS
  )
  eval_share: float = typed_flags.narrow(
    shared_flags.SplitSettings, "eval_share", _SPLIT
  )

  def check(self) -> None:
    """Refuses what does not fit the objective, too, and wrong columns."""
    super().check()

    # Learning from labels makes a classifier, which has its own program.
    if self.objective == "labels" and (self.do_predict or not self.do_train):
      raise ValueError(
        "--objective=labels: pass --do_train=true alone, or with "
        "--do_eval=true; run_classifier.py evaluates and predicts with the "
        "folder"
      )

    # A flag without effect is an error: no file of this run has the column.
    unread = sorted(self.given & _COLUMNS_OF_PAIRS)
    trains_alone = self.data_kinds == ["train"]
    if unread and trains_alone and self.objective == "sentences":
      raise ValueError(
        f"--{unread[0]}: to train, --objective=sentences takes texts alone; "
        "only pairs to evaluate or to predict have it"
      )

    # The negatives of a text are the other texts of its batch.
    if self.train_batch_size == 1:
      raise ValueError("--train_batch_size=1: nothing to compare a text with")
    choose_metric(self)

    # Last, since it reads the first rows. Remote files need TensorFlow, which
    # is not imported yet.
    for kind, path in find_files(self).items():
      if not remote.is_remote(path):
        find_table(self, kind, path)


def find_files(settings: EmbeddingSettings) -> dict[str, str]:
  """Returns the files that the flags ask for, by kind."""
  return shared_flags.find_data_files(settings, _ENDINGS)


def choose_metric(settings: EmbeddingSettings) -> str:
  """Returns the name of the score that decides which weights are best."""
  names = _METRICS[settings.objective]
  return shared_flags.choose_metric(settings.best_metric, names)


def find_columns(
  settings: EmbeddingSettings, kind: str
) -> classification_tasks.Columns:
  """Returns the columns of a file, as names or numbers; None if it has no such.

  Without flags, pairs are in the first two columns.

  Args:
    settings: the objective, and the flags of columns.
    kind: "train", "eval" or "predict".
  """
  text, pair = settings.text_column, settings.text_pair_column
  label, ids = settings.label_column, settings.id_column
  if settings.objective == "labels":
    return classification_tasks.Columns(text, label=label)
  if settings.objective == "sentences" and kind == "train":
    return classification_tasks.Columns(text)

  # The third column is the label, unless the user named columns or has the ids
  # there. Texts to predict have no label.
  given = [column for column in (text, pair, ids) if column]
  are_numbers = all(map(classification.INTEGER.fullmatch, given))
  if kind != "predict" and are_numbers and ids != "2":
    label = label or "2"

  if kind != "predict":  # Only predictions repeat the ids.
    ids = None
  return classification_tasks.Columns(text or "0", pair or "1", label, ids)


def describe_columns(settings: EmbeddingSettings) -> dict[str, Any]:
  """Returns the "columns" of the training file, for prediction.json."""
  table = find_table(settings, "train", find_files(settings)["train"])
  return {"columns": {"text": table.text, "text_pair": table.text_pair}}


def find_table(
  settings: EmbeddingSettings, kind: str, path: str
) -> classification.Table:
  """Finds the columns in a file; the objective says which it must have.

  Args:
    settings: the objective, and the flags of columns and of the header.
    kind: "train", "eval" or "predict".
    path: of the file, whose first rows are read.

  Raises:
    ValueError: the file lacks a column.
  """
  is_alone = kind == "train" and settings.objective == "sentences"
  is_free = settings.objective == "pairs" or is_alone or kind == "predict"
  table = classification_tasks.find_table(
    path,
    find_columns(settings, kind),
    {"auto": None, "yes": True, "no": False}[settings.header],
    label_required=not is_free,
  )

  classifier_tasks.check_columns(settings, table)

  # SimCSE: a text is its own partner, with another dropout mask.
  if is_alone:
    table = table._replace(text_pair=table.text, label=None)
  return table
