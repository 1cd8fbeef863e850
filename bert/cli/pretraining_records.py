"""What a pre-training reads: flags, the model's config, and records."""

import functools
import os
from typing import TypeVar

from bert import modeling
from bert.cli import devices, model_folder, pretraining
from bert.data import file_search
from bert.inputs import dynamic_masking, records, training_input
from bert.tasks import pretraining_scores

_Settings = TypeVar("_Settings", bound=pretraining.PretrainingSettings)


def read_settings(settings_class: type[_Settings]) -> _Settings:
  """Reads the flags and finds the files of --model."""
  settings = model_folder.find_files(settings_class.read())

  # `read` checks only runs that train. Pre-training keeps no flags of an
  # earlier training to wait for, so the check can be made here for all.
  settings.check_needs()
  return devices.choose_precision(settings)


def read_config(
  settings: pretraining.PretrainingSettings,
) -> modeling.EncoderConfig:
  """Reads the model's config; --vocab_file decides its vocab_size."""
  config = model_folder.read_config(settings)
  return model_folder.fit_vocabulary(settings, config)


def open_data(
  settings: pretraining.PretrainingSettings,
  config: modeling.EncoderConfig,
  masks: bool = True,
) -> pretraining_scores.PretrainingData:
  """Opens the records of a run, and draws masks as its flags say.

  Args:
    settings: of run_pretraining.py, or of a program with its flags.
    config: of the model, which limits ids and lengths.
    masks: whether words are masked; if not, records have no masks in them.

  Raises:
    ValueError: names a file that is missing or damaged, or was made with other
      flags.
  """
  masking = settings if settings.dynamic_masking else None
  return open_files(settings, config, settings.next_sentence, masks, masking)


def open_files(
  settings: pretraining.ReaderSettings,
  config: modeling.EncoderConfig,
  next_sentence: bool = True,
  masks: bool = True,
  masking: pretraining.PretrainingSettings | None = None,
) -> pretraining_scores.PretrainingData:
  """Opens the files of records that flags name.

  Args:
    settings: the flags.
    config: of the model, which limits ids and lengths.
    next_sentence: whether records are sentence pairs.
    masks: whether words are masked, in the records or while reading.
    masking: the flags by which masks are drawn while reading; None if they
      are in the records, or if no words are masked.

  Raises:
    ValueError: names a file that is missing or damaged, or was made with other
      flags.
  """
  length = settings.max_seq_length
  model_folder.check_length(length, config)
  train_files, eval_files = _find_records(settings)

  # The first record of each file is checked now, since a file of other flags
  # would fail only when its turn comes, perhaps after hours.
  has_masks = masks and not masking
  spec, limits = _describe_records(settings, config, next_sentence, has_masks)
  paths = list(dict.fromkeys(train_files + eval_files))
  records.check_files(paths, spec, limits)

  # How the training loop gets rows: an endless series of serialized records,
  # which are parsed by the batch. The loop asks the rest about a bad row.
  source = training_input.TrainingInput(
    rows=functools.partial(
      records.training_dataset, train_files, settings.seed
    ),
    parse=functools.partial(records.parse_batch, spec=spec, limits=limits),
    describe_row=lambda row: f"{train_files[row.file]}:{row.record}",
    find_fault=lambda: records.find_fault(paths, spec, limits),
    identity=records.describe_files(train_files),
  )

  # Ids as integers, for here they become tensors and not bytes of a record.
  if masking:
    vocabulary = pretraining.read_vocabulary(masking, encode_id=int)
    source = dynamic_masking.add_masks(
      source, paths, masking, settings.seed, vocabulary
    )

  # An evaluation parses its records alike, but reads them in their order.
  parse = source.parse
  if settings.group_by_length:
    source = records.group_by_length(
      source, train_files, settings.train_batch_size, length, settings.seed
    )

  return pretraining_scores.PretrainingData(
    train_files=train_files,
    eval_files=eval_files,
    eval_identity=records.describe_files(eval_files),
    parse=parse,
    source=source,
    is_masked=masks,
  )


def _find_records(settings) -> tuple[list[str], list[str]]:
  """Returns the files to train on and those to evaluate on."""
  train_files = file_search.expand_patterns(settings.input_file, "input_file")
  eval_files = file_search.expand_patterns(
    settings.eval_input_file or settings.input_file, "eval_input_file"
  )
  for paths in (train_files, eval_files):
    file_search.check_shards(paths)
  for flag in ("input_file", "eval_input_file"):
    file_search.check_is_complete(getattr(settings, flag) or "", flag)

  # What is held out must not be trained on. All files, or one alone, may be
  # meant to be both.
  trained = set(map(os.path.realpath, train_files))
  evaluated = set(map(os.path.realpath, eval_files))
  both = evaluated & trained
  if settings.do_train and both and evaluated != trained:
    path = next(p for p in eval_files if os.path.realpath(p) in trained)
    raise ValueError(
      f"--eval_input_file: {path} is one of the files of --input_file, so it "
      "would be trained on; name other files"
    )
  return train_files, eval_files


def _describe_records(settings, config, next_sentence, has_masks):
  """Returns the features of the records by name, and their limits."""
  # The beginnings of the names of features that these records lack.
  absent = () if has_masks else ("masked_lm_",)
  if not next_sentence:
    absent += ("next_sentence_",)

  length = settings.max_seq_length
  spec = records.pretraining_spec(length, settings.max_predictions_per_seq)
  spec = {n: kind for n, kind in spec.items() if not n.startswith(absent)}
  limits = records.pretraining_limits(length, config)
  return spec, {n: limits[n] for n in limits if n in spec}
