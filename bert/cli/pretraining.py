"""Settings of the pre-training programs; checks and summary of making records.

`create_pretraining_data.py` uses one machine, the other one Apache Beam.
"""

from collections.abc import Callable
import dataclasses
import glob
import importlib
import os
import re
import shlex
from typing import Any

from bert.cli import devices, flag_texts, program, shared_flags, typed_flags
from bert.data import (
  file_search,
  pretraining_data,
  progress,
  record_writer,
  text_files,
)
from bert.vocabularies import lost_letters, vocabulary_table

# The groups under which --help lists the flags.
_flags = typed_flags.group("Flags")
_data = typed_flags.group("Data")
_model = typed_flags.group("Model")
_training = typed_flags.group("Training")
_evaluation = typed_flags.group("Evaluation")
_devices = typed_flags.group("Devices")

# Names of records to evaluate on, never to train on.
_HELD_OUT = re.compile(
  r"(^|[^a-z])(dev|eval|evaluation|held.?out|test|val|valid|validation)([^a-z]|$)"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReaderSettings(shared_flags.TrainingSettings):
  """The settings of a training on records of create_pretraining_data.py."""

  # The records.
  input_file: str = _data(
    typed_flags.REQUIRED,
    "The TFRecord files that create_pretraining_data.py wrote: names or globs, "
    "separated by commas.",
    path="files",
  )
  eval_input_file: str | None = _data(
    None,
    "The TFRecord files to evaluate on. Default: --input_file.",
    path="files",
  )
  max_seq_length: int = _data(
    128,
    "The number of tokens in a record, as create_pretraining_data.py made "
    "them.",
    least=1,
  )
  max_predictions_per_seq: int = _data(
    20,
    "The maximum number of masked tokens in a record, as "
    "create_pretraining_data.py made them.",
    least=1,
  )
  # The batches, of a training and of an evaluation.
  group_by_length: bool = _training(
    False,
    "Whether to make each batch of records of similar length. Faster if many "
    "records are short.",
  )
  eval_batch_size: int = _evaluation(
    8, "Examples per batch of an evaluation.", least=1
  )
  max_eval_steps: int = _evaluation(
    100,
    "The number of batches to evaluate; at the end of the records it starts "
    "again. 0 evaluates every record once.",
    least=0,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(
  devices.DeviceSettings, ReaderSettings, shared_flags.ModelSettings
):
  """The settings of run_pretraining.py."""

  # Masks drawn while training, instead of once in create_pretraining_data.py:
  # RoBERTa's dynamic masking, https://arxiv.org/abs/1907.11692, section 4.1.
  dynamic_masking: bool = _data(
    False,
    "Whether to mask the records of --masks=false here. The masks are redrawn "
    "each time a record is read.",
  )
  masked_lm_prob: float = _data(
    0.15,
    "The share of the tokens that --dynamic_masking masks.",
    least=0,
    most=1,
    needs="dynamic_masking",
  )
  do_whole_word_mask: bool = _data(
    False,
    "Whether --dynamic_masking masks all pieces of a word together.",
    needs="dynamic_masking",
  )
  next_sentence: bool = _data(
    True,
    "Whether the records are sentence pairs, to learn next-sentence prediction "
    "from.",
  )

  # Records hold ids of tokens alone, so only masking needs the vocabulary.
  vocab_file: str | None = _model(
    None,
    "The vocabulary with which the records were made. It decides the "
    "vocab_size of the config.",
    path="file",
  )

  # The defaults of the original.
  num_train_steps: int = _training(
    100000,
    "The total number of updates.",
    least=1,
    most=shared_flags.MOST_STEPS,
  )
  num_warmup_steps: int = _training(
    10000,
    "The number of updates in which the learning rate rises (warm-up).",
    least=0,
  )

  # What is usually a mistake, and needs a flag to be allowed.
  score_random_weights: bool = _training(
    False,
    "Whether --do_eval may evaluate a model with random weights, as a score to "
    "compare with.",
  )
  new_phase: bool = _training(
    False,
    "Whether training may continue from the checkpoint in --output_dir with "
    "other settings. If --input_file or --seed changed, it begins with the "
    "first record.",
  )

  do_eval: bool = _evaluation(False, "Whether to evaluate, after training.")

  def check(self) -> None:
    """Refuses masking without words, too, and batches that no TPU takes."""
    if self.dynamic_masking and not (self.vocab_file or self.model):
      raise ValueError("--dynamic_masking=true needs --vocab_file or --model")
    if self.group_by_length and devices.uses_tpu(self):
      raise ValueError(
        "--group_by_length=true: a TPU takes batches of one shape"
      )
    super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class DryRunSettings(PretrainingSettings):
  """The same, and what bert/cli/cluster_plan.py calculates a training from."""

  # One flag, not a switch and a number: without a number there is nothing to
  # calculate. Of the other flags, --distribution and TF_CONFIG name devices
  # that must be there, and --num_tpu_cores is ignored.
  dry_run: int | None = _devices(
    None,
    "Trains and writes nothing, but times an update on this machine, and "
    "calculates from it a training on this many devices: memory, hours, "
    "communication, learning rates.",
    least=1,
    needs="do_train",
  )
  bandwidth_gbit: float | None = _devices(
    None,
    "For --dry_run: the bandwidth of the slowest link between the devices, in "
    "gigabits a second.",
    least=0.001,
    needs="dry_run",
  )

  def check(self) -> None:
    """Refuses what cannot be calculated, too."""
    if self.dry_run:
      flag = f"--dry_run={self.dry_run}"
      if not self.bandwidth_gbit:
        raise ValueError(f"{flag} needs --bandwidth_gbit")
      if self.distribution != "default" or devices.uses_tpu(self):
        raise ValueError(f"{flag} times one device: no --distribution, no TPU")

      parts = self.gradient_accumulation_steps
      if self.train_batch_size % (self.dry_run * parts):
        raise ValueError(
          f"--train_batch_size={self.train_batch_size} cannot be split evenly "
          f"over {flag} devices and {parts} accumulation steps: expected a "
          f"multiple of {self.dry_run * parts}"
        )
    super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFlags(shared_flags.StartSettings):
  """The settings of both programs that make records.

  The flags are those of the original, besides --model, --strip_accents and the
  last five.
  """

  # Files.
  input_file: str = _flags(
    typed_flags.REQUIRED,
    "Text files or globs, separated by commas; .gz and .xz are read, too. One "
    "sentence per line, a blank line between documents. The end of a file does "
    "not end a document.",
    path="files",
  )
  output_file: str = _flags(
    typed_flags.REQUIRED,
    "The TFRecord files to write, separated by commas. Records go to them in "
    "turn.",
    path="new_files",
  )

  # The tokens: --model stands for the two flags after it.
  model: str | None = _flags(None, flag_texts.MODEL, path="model")
  vocab_file: str = _flags(
    None, vocabulary_table.HELP, unless="model", path="file"
  )
  do_lower_case: bool = _flags(
    True,
    "Whether to lower-case the text and strip accents. Pass false for a cased "
    "vocabulary. With --model the program finds it out.",
  )

  # The records: their size, masks and pairs.
  max_seq_length: int = _flags(
    128, "The number of tokens in a record. Shorter ones are padded."
  )
  max_predictions_per_seq: int = _flags(
    20,
    "The maximum number of masked tokens in a record. Choose --max_seq_length "
    "times --masked_lm_prob.",
  )
  masked_lm_prob: float = _flags(
    0.15, "The share of the tokens to mask.", needs="masks=true"
  )
  short_seq_prob: float = _flags(
    0.1,
    "The share of the documents whose pairs get a shorter, random length.",
    needs="next_sentence=true",
  )
  dupe_factor: int = _flags(
    10,
    "How many times each document is used, with new masks each time. With "
    "--masks=false the copies differ only in their sentence pairs, and the "
    "default is 1.",
  )
  do_whole_word_mask: bool = _flags(
    False, "Whether to mask all pieces of a word together.", needs="masks=true"
  )
  random_seed: int = _flags(
    12345, "Decides all random choices: the same seed gives the same records."
  )

  # Not in the original.
  documents_per_block: int = _flags(
    0,
    "Makes the records from blocks of this many documents, so that memory is "
    "bounded. The records differ from the original's. 0: all documents are one "
    "block.",
  )
  compress: bool = _flags(
    False, "Whether to compress the TFRecord files (GZIP)."
  )
  masks: bool = _flags(
    True,
    "Whether to mask tokens. false leaves it to run_pretraining.py "
    "--dynamic_masking.",
  )
  next_sentence: bool = _flags(
    True,
    "Whether the records are sentence pairs, to learn next-sentence prediction "
    "from.",
  )
  segmenter: str | None = _flags(
    None,
    "What cuts Chinese text into words, so that --do_whole_word_mask masks all "
    "characters of a word together. Tokens stay characters. Default: every "
    "character is a word.",
    choices=tuple(vocabulary_table.SEGMENTERS),
    needs="do_whole_word_mask",
  )

  def for_records(self) -> pretraining_data.RecordSettings:
    """Returns what decides the records of a text."""
    fields = dataclasses.fields(pretraining_data.RecordSettings)
    values = {field.name: getattr(self, field.name) for field in fields}

    # Copies that differ only in their masks are of no use without masks.
    if not self.masks and "dupe_factor" not in self.given:
      values["dupe_factor"] = 1
    return pretraining_data.RecordSettings(**values)


def expand_files(settings: RecordFlags) -> tuple[list[str], list[str]]:
  """Returns the input files, at least one, and the output files."""
  inputs = file_search.expand_patterns(settings.input_file, "input_file")

  # Only create_pretraining_data.py has --text_column, for tables of texts.
  has_flag = hasattr(settings, "text_column")
  text_files.check(inputs, getattr(settings, "text_column", None), has_flag)

  outputs = list(filter(None, map(str.strip, settings.output_file.split(","))))
  if not outputs:
    raise ValueError("--output_file: expected a file or a list of them")

  # A glob may find more than texts: `data/*.txt` also the vocabulary there.
  vocab_file = vocabulary_table.source_of(settings.vocab_file)
  for path in inputs:
    if os.path.realpath(path) == os.path.realpath(vocab_file):
      raise ValueError(
        f"--input_file: {path} is the --vocab_file; name the texts alone"
      )

  # An output must not overwrite an input, nor another output. Real paths: two
  # names, or a link, may lead to one file.
  taken = set(map(os.path.realpath, [*inputs, vocab_file]))
  for path in outputs:
    if os.path.realpath(path) in taken:
      raise ValueError(
        f"--output_file: {path} is an input, or named twice; name another file"
      )
    taken.add(os.path.realpath(path))
  return inputs, outputs


def read_vocabulary(
  settings: RecordFlags | PretrainingSettings,
  do_lower_case: bool = True,
  encode_id: Callable[[int], Any] = record_writer.encode_integer,
) -> pretraining_data.Vocabulary:
  """Makes the tokenizer and reads its vocabulary.

  Args:
    settings: --vocab_file, which must be set, and --do_whole_word_mask.
    do_lower_case: for the tokenizer. It is of no use to a program that reads
      records, which have tokens already.
    encode_id: turns an id into the value in `Vocabulary`: bytes of a record
      when records are written, `int` when they are masked while training.

  Raises:
    ValueError: whole words are asked for, but the vocabulary does not tell
      which tokens continue a word.
  """
  vocab_file = settings.vocab_file
  assert vocab_file  # The settings' `check` has asked for it.
  tokenizer = vocabulary_table.make_tokenizer(vocab_file, do_lower_case)

  if settings.do_whole_word_mask and not tokenizer.shows_continuations:
    raise ValueError(
      f"--do_whole_word_mask=true: {vocab_file} does not tell which pieces "
      "continue a word"
    )

  return pretraining_data.make_vocabulary(tokenizer, vocab_file, encode_id)


def prepare(
  settings: RecordFlags, inputs: list[str]
) -> pretraining_data.Vocabulary:
  """Reads the vocabulary; warns of settings that spoil the records.

  These are masks for which records have no room, and letters that lower-casing
  strips from the first input file.
  """
  # The original sets the two flags apart: nothing else notices if they differ.
  wanted = settings.max_seq_length * settings.masked_lm_prob
  if settings.max_predictions_per_seq < int(wanted):
    progress.note(
      f"warning: --max_predictions_per_seq={settings.max_predictions_per_seq} "
      f"masks fewer tokens than --masked_lm_prob asks for, {wanted:.0f} in a "
      "full record"
    )

  vocabulary = read_vocabulary(settings, settings.do_lower_case)
  if settings.segmenter:
    module = importlib.import_module(
      vocabulary_table.SEGMENTERS[settings.segmenter]
    )
    vocabulary = module.mark_words(vocabulary, settings.do_lower_case)
  lost_letters.report_file(
    inputs[0],
    settings.vocab_file,
    settings.do_lower_case,
    getattr(settings, "text_column", None),
  )
  return vocabulary


def print_summary(total: pretraining_data.Statistics, records: int) -> None:
  """Prints the counts of the text and of the records."""
  print(
    f"{total.documents:,} documents, {total.sentences:,} sentences,"
    f" {total.tokens:,} tokens"
    f" ({total.unknown_tokens / total.tokens:.2%} [UNK],"
    f" {total.tokens / total.sentences:.1f} a sentence)"
  )

  if total.documents_alone:
    progress.note(
      f"note: {total.documents_alone:,} of them made no records: random next "
      "sentences need another document with tokens in the block of "
      "--documents_per_block"
    )

  truncated = total.truncated_pairs / records
  print(f"{records:,} records ({truncated:.1%} of them truncated)")


def print_end(
  settings: RecordFlags, outputs: list[str], records: int, start: float
) -> None:
  """Prints the files written, the time, and the next command.

  Args:
    settings: the flags with which the records were made.
    outputs: the files of records.
    records: how many records they have together.
    start: when the program began, by `time.monotonic`.
  """
  written = ",".join(outputs)
  lines = [f"wrote {', '.join(outputs)}"]
  # The next command is for the shards of all jobs; only
  # create_pretraining_data.py has --num_shards.
  shards = getattr(settings, "num_shards", 1)
  if shards > 1:
    name = glob.escape(settings.output_file.strip())
    written = f"{name}-*-of-{shards:05}"
    lines.append(f"what follows is for when all {shards} jobs have ended")

  # Records whose names say that they are held out must not be trained on.
  if all(_HELD_OUT.search(os.path.basename(path).lower()) for path in outputs):
    lines.append(
      "to evaluate on them, give run_pretraining.py "
      f"--eval_input_file={shlex.quote(written)} and --do_eval=true"
    )
    program.print_end(start, *lines)
    return

  # BERT trained for about 40 epochs (appendix A.2). By default the records have
  # a text ten times (--dupe_factor), without masks once: 4 or 40 passes.
  most = PretrainingSettings.num_train_steps
  batch = PretrainingSettings.train_batch_size
  passes = 4 if settings.masks else 40
  total = records * shards  # As far as one job can know.
  steps = min(max(total * passes // batch, 100), most)
  guess = f"if each makes {records:,} records: " if shards > 1 else ""
  lines.append(guess + describe_epochs(steps, batch, total))

  # A short training is only enough for a small model. With --model its own
  # config and vocabulary hold.
  size = "base" if steps == most else "mini"
  model = settings.model or None
  vocab_file = vocabulary_table.source_of(settings.vocab_file)

  # Lengths, masks and pairs must be as in the records. A tenth of the steps is
  # warm-up, as in the defaults.
  command = program.command(
    "run_pretraining.py",
    input_file=written,
    model=model,
    bert_config_file=None if model else f"configs/bert_{size}.json",
    vocab_file=None if model else vocab_file,
    strip_accents=settings.strip_accents,
    max_seq_length=settings.max_seq_length,
    max_predictions_per_seq=settings.max_predictions_per_seq,
    num_train_steps=steps,
    num_warmup_steps=steps // 10,
    do_train="true",
    output_dir="pretrained",
    dynamic_masking=None if settings.masks else "true",
    next_sentence=None if settings.next_sentence else "false",
  )
  program.print_end(start, *lines, command=command)


def describe_epochs(steps: int, batch_size: int, records: int) -> str:
  """Says how often a training sees each record.

  Args:
    steps: updates.
    batch_size: records per update.
    records: how many there are.

  >>> describe_epochs(2177, 32, 17423)
  '2,177 steps of 32 are 4.0 epochs of 17,423 records'
  """
  epochs = round(steps * batch_size / records, 2)
  return (
    f"{steps:,} steps of {batch_size} are {epochs:,} epochs of {records:,} "
    "records"
  )
