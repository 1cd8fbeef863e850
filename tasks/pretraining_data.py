"""Pre-training records as the input of a training and of its evaluations."""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data import files
from inputs import records, training_input
import modeling
from tasks import pretraining_results
from training import prediction


@dataclasses.dataclass(frozen=True)
class RecordSettings:
  """How records were made, and in which order they are read."""

  max_seq_length: int
  max_predictions_per_seq: int
  train_batch_size: int
  seed: int
  group_by_length: bool


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


class Evaluation(NamedTuple):
  """The result of an evaluation."""

  rows: dict[str, np.ndarray]  # What the model predicted, of all rows.
  scores: dict[str, float]


def open_files(
  input_file: str,
  eval_input_file: str,
  settings: RecordSettings,
  config: modeling.EncoderConfig,
) -> PretrainingData:
  """Finds and checks files of records.

  Args:
    input_file, eval_input_file: globs, by commas.

  Raises:
    ValueError: a file is missing or damaged, or not of the settings.
  """
  length = settings.max_seq_length
  if length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  train_files = files.expand_patterns(input_file, "input_file")
  eval_files = files.expand_patterns(eval_input_file, "eval_input_file")
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
    source = records.group_by_length(
      source, train_files, length, settings.train_batch_size, settings.seed
    )
  eval_identity = records.describe_files(eval_files)
  return PretrainingData(train_files, eval_files, eval_identity, parse, source)


def evaluate(
  predictor: prediction.Predictor,
  data: PretrainingData,
  max_eval_steps: int,
  batch_size: int,
) -> Evaluation:
  """Scores a model on some batches; on every record once if there is no limit.

  Args:
    max_eval_steps: the number of batches; 0 for no limit.
  """
  rows = records.sequential_dataset(data.eval_files)
  rows = rows.map(lambda row_id, row: row)
  total = max_eval_steps * batch_size or None
  if total:
    # The original starts over after the last record, which affects scores.
    rows = rows.repeat().take(total)
  batches = rows.batch(batch_size).map(data.parse)
  with training_input.naming_bad_record(data.source.find_fault):
    results = predictor(training_input.prefetch(batches, 2), total)
  return Evaluation(results, pretraining_results.score(results, batch_size))
