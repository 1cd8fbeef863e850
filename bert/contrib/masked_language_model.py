"""A masked language model as a task of run_multitask.py."""

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
from bert.tasks import pretraining_data

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
  """The settings of run_pretraining.py that a task may have."""


class Records(NamedTuple):
  """Pre-training records, in the place of a `feature_sets.FeatureSet`."""

  key: str
  files: pretraining_data.PretrainingData
  rows_per_epoch: int = 0
  parts: Mapping[str, Any] = {}  # The key is of the records alone.


def prepare(settings: MaskedLmSettings) -> shared_tasks.SharedTask:
  """Checks the flags of a masked language model."""
  if settings.max_train_examples:
    raise ValueError(
      "max_train_examples: a masked_lm uses all its records; set it in the "
      "entries of the other tasks"
    )
  metric = shared_flags.choose_metric(settings.best_metric, _METRICS)

  def open_data():
    config = model_folder.read_config(settings)
    opened = pretraining_records.open_files(settings, config)
    count = records.count_records(opened.train_files)

    # There are no features to make: the records hold them, and
    # evaluation reads them as in `run_pretraining.py`.
    return fine_tuning.Data(
      feature_settings=None,
      metric=metric,
      model_settings={"problem": "masked_lm"},
      has_export=False,
      train=Records(opened.source.identity, opened, count),
      dev=[Records(opened.eval_identity, opened)],
    )

  def evaluate(run):
    _, scores = pretraining_data.evaluate(
      run.predictor,
      run.data.train.files,
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
