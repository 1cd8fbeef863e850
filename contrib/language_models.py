"""Language models as tasks of run_multitask.py: masked and causal ones."""

import dataclasses
from typing import NamedTuple

from cli import fine_tuning, model_folder, program, shared_flags
from contrib import causal_data, shared_tasks
from encoders import encoder_table
import heads
from inputs import feature_files, records
import run_pretraining
from tasks import pretraining_data

_data = program.group("Data")
_METRICS = (
  "masked_lm_accuracy",
  "masked_lm_loss",
  "next_sentence_accuracy",
  "next_sentence_loss",
  "loss",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MaskedLmSettings(shared_flags.EvaluationSettings):
  """The settings of run_pretraining.py that a task may have."""

  input_file: str = _data(None, "TFRecord files.", required=True)
  eval_input_file: str | None = _data(None, "TFRecord files to evaluate on.")
  max_predictions_per_seq: int = _data(20, "Masked tokens per record.", least=1)
  max_eval_steps: int = _data(100, "Batches to evaluate; 0: all.", least=0)
  group_by_length: bool = _data(False, "Whether batches are of one length.")


class Records(NamedTuple):
  """Pre-training records, in the place of a `feature_files.FeatureSet`."""

  key: str
  found: pretraining_data.PretrainingData
  rows_per_epoch: int = 0


def prepare_masked_lm(settings: MaskedLmSettings) -> shared_tasks.SharedTask:
  """Checks the flags of a masked language model."""
  if settings.max_train_examples:
    raise ValueError(
      "--max_train_examples: all records are used; give it to other tasks"
    )
  metric = shared_flags.choose_metric(
    settings.best_metric, _METRICS[0], _METRICS
  )

  def open_data():
    config = model_folder.read_config(settings)
    found = run_pretraining.read_data(settings, config)
    count = records.count_records(found.train_files)
    return fine_tuning.Data(
      features=None,
      metric=metric,
      model_settings={"problem": "masked_lm"},
      train=Records(found.source.identity, found, count),
      dev=[Records(found.eval_identity, found)],
    )

  def evaluate(run):
    found = run.data.train.found
    return pretraining_data.evaluate(run.predictor, found, settings).scores

  return shared_tasks.SharedTask(
    settings,
    open_data,
    lambda data, folder: None,
    lambda config, data, dtype: heads.PretrainingModel(config, dtype),
    run_pretraining.compare,
    lambda run: run_pretraining.loss_fn,
    evaluate,
    lambda run: _write_scores(run, evaluate),
    source=lambda run: run.data.train.found.source,
  )


def prepare_causal_lm(
  settings: shared_flags.DataSettings,
) -> shared_tasks.SharedTask:
  """Checks the flags of a causal language model.

  Raises:
    ValueError: a file is missing, or the encoder is not causal.
  """
  metric = shared_flags.choose_metric(
    settings.best_metric, causal_data.METRICS[0], causal_data.METRICS
  )
  paths = shared_flags.find_data_files(settings, (".txt",), predicts=False)
  if not encoder_table.is_causal(model_folder.read_config(settings)):
    raise ValueError("causal_lm needs a config with causal_attention: true")

  def open_data():
    features = feature_files.FeatureSettings(
      vocab_file=settings.vocab_file,
      do_lower_case=settings.do_lower_case,
      max_seq_length=settings.max_seq_length,
    )
    limit = settings.max_train_examples
    sets = {
      kind: causal_data.find_set(kind, path, features, limit)
      for kind, path in paths.items()
    }
    return fine_tuning.Data(
      features=features,
      metric=metric,
      model_settings={"problem": "causal_lm"},
      train=sets.get("train"),
      dev=[sets["eval"]] if "eval" in sets else (),
    )

  def evaluate(run):
    results = run.predict(run.data.dev[0], settings.eval_batch_size)
    return causal_data.score(results)

  return shared_tasks.SharedTask(
    settings,
    open_data,
    causal_data.make_features,
    _create_causal_model,
    causal_data.compare,
    lambda run: causal_data.loss_fn,
    evaluate,
    lambda run: _write_scores(run, evaluate),
  )


def _create_causal_model(config, data, dtype):
  model = heads.PretrainingModel(config, dtype)
  for unused in (model.bert.pooler, model.heads.seq_relationship):
    unused.trainable = False  # They must not decay.
  return model


def _write_scores(run, evaluate) -> None:
  scores = evaluate(run)  # On all workers; the chief writes.
  if run.is_chief:
    run.write_eval_results(scores)
