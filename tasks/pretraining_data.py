"""Pre-training records as the input of a training and of its evaluations."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data import files
from inputs import records, training_input
import modeling
from tasks import pretraining_results
from training import prediction


class PretrainingData(NamedTuple):
  """The records of a run."""

  train_files: list[str]
  eval_files: list[str]
  eval_identity: str  # Equal for equal files.
  parse: Callable[[tf.Tensor], training_input.Features]
  source: training_input.TrainingInput

  def check_unchanged(self) -> None:
    """Raises a ValueError if files to train on were changed meanwhile."""
    records.check_unchanged(self.train_files, self.source.identity)


def open_files(
  settings: Any, config: modeling.EncoderConfig
) -> PretrainingData:
  """Finds and checks files of records.

  Args:
    settings: of run_pretraining.py.

  Raises:
    ValueError: a file is missing or damaged, or not of the settings.
  """
  length = settings.max_seq_length
  train_files = files.expand_patterns(settings.input_file, "input_file")
  eval_files = files.expand_patterns(
    settings.eval_input_file or settings.input_file, "eval_input_file"
  )
  spec = records.pretraining_spec(length, settings.max_predictions_per_seq)
  limits = records.pretraining_limits(
    length, config.vocab_size, config.type_vocab_size
  )
  paths = list(dict.fromkeys(train_files + eval_files))
  records.check_files(paths, spec, limits)
  parse = functools.partial(records.parse_batch, spec=spec, limits=limits)
  source = training_input.TrainingInput(
    rows=functools.partial(
      records.training_dataset, train_files, settings.seed
    ),
    parse=parse,
    describe_row=lambda row: f"{train_files[row.file]}:{row.record}",
    find_fault=lambda: records.find_fault(paths, spec, limits),
    identity=records.describe_files(train_files),
  )
  if settings.group_by_length:
    count = records.count_records(train_files)
    source = records.group_by_length(
      source, count, length, settings.train_batch_size, settings.seed
    )
  eval_identity = records.describe_files(eval_files)
  return PretrainingData(train_files, eval_files, eval_identity, parse, source)


def evaluate(
  predictor: prediction.Predictor, data: PretrainingData, settings: Any
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
  """Predicts --max_eval_steps batches, 0: all records once; scores them."""
  batch_size = settings.eval_batch_size
  rows = records.sequential_dataset(data.eval_files)
  rows = rows.map(lambda row_id, row: row)
  total = settings.max_eval_steps * batch_size or None
  if total:
    # The original starts over after the last record, which affects scores.
    rows = rows.repeat().take(total)
  batches = rows.batch(batch_size).map(data.parse)
  with training_input.naming_bad_record(data.source.find_fault):
    results = predictor(training_input.prefetch(batches, 2), total)
  return results, pretraining_results.score(results, batch_size)
