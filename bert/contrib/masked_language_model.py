"""A masked language model as a task of run_multitask.py.

Model, losses and records are those of run_pretraining.py. This file puts them
where run_multitask.py expects the parts of a fine-tuning.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any, NamedTuple

from bert import heads, run_pretraining
from bert.cli import (
  fine_tuning,
  model_folder,
  pretraining,
  pretraining_records,
  shared_flags,
)
from bert.contrib import shared_tasks
from bert.inputs import records
from bert.tasks import pretraining_scores

# The scores of `pretraining_scores.score`. The first one chooses the best
# weights unless the entry of the task has another best_metric.
_METRICS = (
  "masked_lm_accuracy",
  "masked_lm_loss",
  "next_sentence_accuracy",
  "next_sentence_loss",
  "loss",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLmSettings(
  pretraining.ReaderSettings, shared_flags.EvaluationSettings
):
  """The settings of run_pretraining.py that a task may have.

  The base classes have more, such as the learning rate, which holds for all
  tasks: bert/contrib/task_files.py refuses it in the entry of one task.
  """


class Records(NamedTuple):
  """Pre-training records, in the place of a `feature_sets.FeatureSet`.

  It has the attributes of a `FeatureSet` that a run asks for.
  """

  key: str  # Equal for equal files: a training resumes only with the same.
  files: pretraining_scores.PretrainingData
  # The records to train on, by which run_multitask.py draws the tasks. 0: they
  # are evaluated only.
  rows_per_epoch: int = 0
  # The flags behind the key, which say what has changed. None: the key is of
  # the records alone.
  parts: Mapping[str, Any] = {}


def prepare(settings: MaskedLmSettings) -> shared_tasks.SharedTask:
  """Checks the flags of a masked language model."""
  # A flag of the base classes, which nothing here would obey.
  if settings.max_train_examples:
    raise ValueError(
      "max_train_examples: a masked_lm uses all its records; set it in the "
      "entries of the other tasks"
    )
  metric = shared_flags.choose_metric(settings.best_metric, _METRICS)

  # Reads and counts records: run_multitask.py calls it when it has checked the
  # flags of all tasks.
  def open_data():
    config = model_folder.read_config(settings)
    opened = pretraining_records.open_files(settings, config)
    count = records.count_records(opened.train_files)

    train = Records(opened.source.identity, opened, count)

    # There are no features to make: the records hold them, and
    # evaluation reads them as in `run_pretraining.py`.
    return fine_tuning.Data(
      feature_settings=None,
      metric=metric,
      model_settings={"problem": "masked_lm"},
      has_export=False,
      train=train if settings.do_train else None,
      dev=[Records(opened.eval_identity, opened)],
    )

  # Both kinds of files are in one `PretrainingData`, so `dev` leads to all.
  def evaluate(run):
    _, scores = pretraining_scores.evaluate(
      run.predictor,
      run.data.dev[0].files,
      settings.eval_batch_size,
      settings.max_eval_steps,
    )
    return scores

  return shared_tasks.SharedTask(
    settings=settings,
    open_data=open_data,
    make_features=lambda data, folder: None,
    create_model=lambda config, data, dtype: heads.PretrainingModel(
      config, dtype
    ),
    predict=run_pretraining.predict,
    make_loss=lambda run: run_pretraining.loss,
    evaluate=evaluate,
    write_evaluation=functools.partial(shared_tasks.write_scores, evaluate),
    source=lambda run: run.data.train.files.source,
  )
