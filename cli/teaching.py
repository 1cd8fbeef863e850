"""--teacher: the logits of a trained model, for another one to learn from.

They are computed once for all rows to train on, and kept in a feature file.
"""

from collections.abc import Iterator
import dataclasses
from typing import Any

import tensorflow as tf

from data import record_writer
from export import trained_models
from inputs import feature_files, records, training_input
from tasks import distillation
from training import prediction, same_run

# What shapes the rows, and what the outputs mean.
_SHARED = (
  "problem",
  "labels",
  "do_lower_case",
  "max_seq_length",
  "doc_stride",
  "max_query_length",
  "version_2_with_negative",
  "document_context",
)


def open_teacher(
  settings: Any, data: Any
) -> trained_models.TrainedModel | None:
  """Loads a training's --teacher; a ValueError if that has another task."""
  folder = settings.teacher
  for name in ("distillation_alpha", "distillation_temperature"):
    if name in settings.given and not folder:
      raise ValueError(f"--{name} needs --teacher")
  if not folder or not data.train:
    return None
  problem = data.model_settings["problem"]
  if data.pooling or problem not in distillation.PROBLEMS:
    raise ValueError(
      f"--teacher={folder}: only run_classifier.py, run_tagging.py and "
      "run_squad.py learn from one"
    )
  try:
    trained = trained_models.load_output_dir(folder, settings.vocab_file)
  except ValueError as error:
    raise ValueError(f"--teacher={folder}: {error}") from None
  theirs = {**trained.settings, **trained.prediction, "labels": trained.labels}
  ours = settings.flag_values() | data.model_settings | {"labels": data.labels}
  for name in _SHARED:
    if ours.get(name) != theirs.get(name):
      raise ValueError(
        f"--teacher={folder}: its {name} is {same_run.show(theirs.get(name))}, "
        f"that of this run {same_run.show(ours.get(name))}: expected the same"
      )
  return trained


def teach(run: Any, loss_fn: Any) -> Any:
  """Adds the teacher of a `fine_tuning.Run` to its rows, and to a loss."""
  settings, train, counts = run.settings, run.data.train, {}
  source = {**train.source, "teacher": run.record.training["teacher"]}
  data = dataclasses.replace(
    train, suffix="_teacher", source=source, shows_progress=False
  )
  rows = _make_rows(run, run.teacher.model, counts)
  logits = feature_files.open_or_make(data, run.local_folder, rows, counts)
  run.teacher = None  # Its memory is free.
  feature_files.print_summary(
    logits, f"teacher: {len(logits):,} rows of logits"
  )
  train.features.add_features(logits)
  feature = tf.io.FixedLenFeature(logits.counts["shape"], tf.float32)
  others = {**train.layout.others, distillation.FEATURE: feature}
  train.layout = train.layout._replace(others=others)
  return distillation.add_teacher(
    loss_fn,
    settings.distillation_alpha,
    run.data.model_settings["problem"],
    settings.distillation_temperature,
  )


def _make_rows(run, model, counts) -> Iterator[feature_files.Row]:
  """Yields the logits of all rows in the order in which they are computed."""
  train, features = run.data.train, run.data.train.features

  def predict(model, batch):
    outputs = model(*(batch[name] for name in records.INPUT_NAMES))
    logits = distillation.as_logits(outputs)
    if logits.shape.rank == 3:
      missing = run.settings.max_seq_length - tf.shape(logits)[1]
      logits = tf.pad(logits, [[0, 0], [0, missing], [0, 0]])
    return {"logits": logits}

  # Without other workers, which may have the logits already.
  alone = prediction.Predictor(tf.distribute.get_strategy(), model, predict)
  order = run.batch_order(train, run.settings.predict_batch_size)
  batches = features.batches(order, run.parser(train))
  with training_input.naming_bad_record(features.find_fault):
    results = alone.iterate(batches, total=len(features))
    for indices, result in zip(order, results, strict=True):
      counts["shape"] = list(result["logits"].shape[1:])
      for index, logits in zip(indices, result["logits"], strict=True):
        values = record_writer.float_feature(logits.ravel())
        record = record_writer.encode_example({distillation.FEATURE: values})
        yield feature_files.Row(record, features.lengths[index], int(index))
