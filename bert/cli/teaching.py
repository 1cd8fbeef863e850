"""--teacher: the logits of a trained model, for another one to learn from.

They are computed once for all rows to train on, and kept in a feature file.
"""

from collections.abc import Iterator
import dataclasses
import os
from typing import Any

import tensorflow as tf

from bert.cli import model_folder, shared_flags
from bert.data import files, label_files, record_writer
from bert.inputs import feature_files, training_input
from bert.tasks import distillation
from bert.training import prediction, same_run, training_plan
from bert.weights import checkpoints


def identify_teacher(
  settings: shared_flags.FineTuningSettings, data: Any
) -> str | None:
  """Checks a training's --teacher; returns a digest of its weights.

  Args:
    settings: those of the run that learns.
    data: its `fine_tuning.Data`.
  """
  folder = settings.teacher
  if not folder or not data.train:
    return None

  # Only these problems have a loss against logits of a teacher.
  if data.pooling or data.problem not in distillation.LOSSES:
    raise ValueError(
      f"--teacher={folder}: only run_classifier.py, run_tagging.py and "
      "run_squad.py learn from one"
    )

  theirs = _read_settings(folder)
  prefix = checkpoints.latest_checkpoint(model_folder.find_weights(folder))
  if not prefix or "problem" not in theirs:
    raise ValueError(f"--teacher={folder}: not the --output_dir of a training")

  ours = settings.flag_values() | data.model_settings | {"labels": data.labels}
  ours[same_run.VOCABULARY] = settings.vocabulary_digest
  theirs["labels"] = ()
  if data.labels:
    theirs["labels"] = label_files.read(os.path.join(folder, "labels.txt"))
  # What shapes the rows, and what the outputs mean.
  shared = ["problem", "labels", same_run.VOCABULARY]
  shared += [name for name in settings.deciding("features") if name in theirs]
  for name in shared:
    wanted = same_run.show(ours.get(name))
    recorded = same_run.show(theirs.get(name))
    if wanted != recorded:
      raise ValueError(
        f"--teacher={folder}: its {name} is {recorded:.80}, that of this run "
        f"{wanted:.80}: expected the same"
      )

  # The index of a checkpoint has the checksums of all tensors: it is a digest
  # of them, and small.
  return files.hash_file(f"{prefix}.index")[:12]


def _read_settings(folder: str) -> dict[str, Any]:
  """Returns what the teacher's training recorded, by name."""
  recorded = same_run.read_training(folder).items()
  return {name: value for name, (value, _) in recorded}


def teach(run: Any, loss: training_plan.Loss) -> training_plan.Loss:
  """Adds the teacher of a `fine_tuning.Run` to its rows, and to a loss.

  The rows to train on get a feature more: the teacher's logits, in a feature
  file of their own, beside that of the rows.
  """
  settings = run.settings
  train = run.data.train

  # A set with the key of the rows and the teacher's digest: its file is made
  # again if one of the two changes, and else read.
  source = {**train.source, "teacher": run.record.training["teacher"]}
  dataset = dataclasses.replace(
    train, suffix="_teacher", source=source, shows_progress=False
  )
  facts: dict[str, Any] = {}
  rows = _make_rows(run, facts)
  logits = dataset.open_or_make(run.local_folder, rows, facts)
  logits.print_summary(f"teacher: {len(logits):,} rows of logits")

  # From now on each row of the training set is read with its logits.
  train.features.add_features(logits)
  feature = tf.io.FixedLenFeature(logits.facts["shape"], tf.float32)
  other_features = {
    **train.layout.other_features,
    distillation.FEATURE: feature,
  }
  train.layout = train.layout._replace(other_features=other_features)
  return distillation.add_teacher(
    loss,
    settings.distillation_alpha,
    run.data.problem,
    settings.distillation_temperature,
  )


def _make_rows(run, facts) -> Iterator[feature_files.Row]:
  """Yields the logits of all rows in the order in which they are computed.

  `facts` gets the shape of a row's logits, which the feature file keeps.
  """
  train = run.data.train
  features = train.features

  # The program makes the teacher as it makes its own model.
  folder = run.settings.teacher
  config = checkpoints.read_config(os.path.join(folder, "bert_config.json"))
  data = run.data._replace(model_settings=_read_settings(folder))
  model = run.create_model(config, data, "float32")
  variables = checkpoints.model_variables(model)
  checkpoints.restore(model_folder.find_weights(folder), variables)

  def predict(outputs, batch):
    logits = distillation.as_logits(outputs)
    # Logits of tokens: batches differ in length, but a file has one shape.
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
      facts["shape"] = list(result["logits"].shape[1:])
      for index, logits in zip(indices, result["logits"], strict=True):
        values = record_writer.float_feature(logits.ravel())
        record = record_writer.encode_example({distillation.FEATURE: values})
        yield feature_files.Row(record, features.lengths[index], int(index))
