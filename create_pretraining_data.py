"""Turns text into BERT's pre-training records: masked tokens, sentence pairs.

  python create_pretraining_data.py --input_file=corpus.txt \\
      --vocab_file=vocab.txt --output_file=examples.tfrecord

The text has a sentence a line and a blank line between documents. Without
--documents_per_block, each record equals the original program's. WikiText-2's
validation and test text (2.3 MB, 57,770 records) takes 2.2 s on one core;
--documents_per_block=8 --num_processes=2 takes 1.5 s on two.
"""

import contextlib
import dataclasses
import functools
import json
import os
import time
from typing import Any

from bert.cli import model_folder, pretraining, program, typed_flags
from bert.data import (
  atomic,
  file_search,
  files,
  pretraining_data,
  progress,
  record_writer,
  text_files,
)
from bert.vocabularies import vocabulary_table

# Many jobs can share a large corpus; each makes one shard of the records. Batch
# systems tell a job its number, from 0, in these variables: Slurm, Kubernetes,
# AWS Batch, Google Cloud's Batch.
_JOB_NUMBERS = (
  "SLURM_ARRAY_TASK_ID",
  "JOB_COMPLETION_INDEX",
  "AWS_BATCH_JOB_ARRAY_INDEX",
  "BATCH_TASK_INDEX",
)
_flags = typed_flags.group("Flags")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(pretraining.RecordFlags):
  """The settings of this program."""

  text_column: str | None = _flags(
    None,
    "For JSON Lines, CSV or TSV: the column of the texts, as a name or a "
    "number from 0. Each row is then a document, and each line in it a "
    "sentence.",
  )
  # The work is shared in two ways: among processes of this machine, and among
  # jobs (shards), perhaps on many machines. Neither changes a record; together
  # the shards hold the records of one job.
  num_processes: int = _flags(
    1,
    "How many blocks of documents are made at once; not more than there are "
    "cores. The records do not depend on it.",
    least=1,
  )
  num_shards: int = _flags(
    1,
    "The number of jobs that share the blocks. Each job adds -00000-of-00008 "
    "and so on to --output_file, and ends at once if its file exists.",
    least=1,
  )
  shard_index: int | None = _flags(
    None,
    "The number of this job, from 0, if there are --num_shards. Default: the "
    "number that an array job of Slurm, Kubernetes, AWS or Google Cloud has.",
    least=0,
  )


def main() -> None:
  """Makes the records and prints their counts."""
  start = time.monotonic()

  # Wrong flags must cost nothing, so they are checked before any text is made
  # into records. --model, if given, names the vocabulary and its casing.
  settings = model_folder.find_files(PretrainingDataSettings.read())
  record_settings = settings.for_records()
  _check_blocks(settings)
  shard = _find_shard(settings)

  # A batch system starts a failed job again, perhaps all of an array: a shard
  # that is complete costs nothing then.
  inputs, outputs = pretraining.expand_files(settings)
  made_of = None
  if settings.num_shards > 1:
    outputs = [f"{outputs[0]}-{shard:05}-of-{settings.num_shards:05}"]
    file_search.check_new_shard(outputs[0])
    made_of = _describe_shard(settings, inputs)
    if _is_made(outputs[0], made_of):
      print(f"{outputs[0]} is there: delete it to make it again")
      return

  vocabulary = pretraining.prepare(settings, inputs)

  # The summary says how much of the text became records, and what [UNK] cost.
  total, records = make_records(
    settings, record_settings, vocabulary, inputs, outputs, shard, made_of
  )
  progress.clear()
  pretraining.print_summary(total, records)
  pretraining.print_end(settings, outputs, records, start)


def make_records(
  settings: PretrainingDataSettings,
  record_settings: pretraining_data.RecordSettings,
  vocabulary: pretraining_data.Vocabulary,
  inputs: list[str],
  outputs: list[str],
  shard: int,
  made_of: dict[str, Any] | None = None,
) -> tuple[pretraining_data.Statistics, int]:
  """Writes the records of a shard; returns the counts of text and records.

  Args:
    settings: the flags of this program.
    record_settings: those of them that decide the records.
    vocabulary: from `pretraining.prepare`.
    inputs: the files of text, in order.
    outputs: the files of records, which take turns; they appear when all are
      complete.
    shard: the number of this job, below `settings.num_shards`.
    made_of: what a later job compares with, if there are several.
  """
  # Plain text is read as it is. A row of a table is a document, behind which
  # `by_line` adds a blank line.
  read = functools.partial(
    text_files.read, column=settings.text_column, by_line=True
  )
  text = text_files.Text(inputs, read)

  # With one block, progress is the part of it that is made. With many, it is
  # the part of the text that was read for them.
  show = functools.partial(progress.Progress(1).print_part, "making records")
  blocks = pretraining_data.make_blocks(
    pretraining_data.read_documents(text.lines()),
    vocabulary,
    record_settings,
    settings.num_processes,
    None if settings.documents_per_block else show,
    share=(shard, settings.num_shards),
  )

  # An error, or Ctrl-C, ends the worker processes and removes what was written.
  statistics = []
  records = 0
  with (
    # The files get their names at the end, when all are complete.
    atomic.replace_all_on_success(outputs) as temporaries,
    record_writer.open_shards(temporaries, settings.compress) as write,
    contextlib.closing(blocks),
  ):
    # Blocks come in the order of the text, whatever process made them.
    for block in blocks:
      for record in block.records:
        write(record)
      records += len(block.records)
      statistics.append(block.statistics)
      show(text.part_read())
      # Else it would stay in memory while the next one is made.
      del block

    total = pretraining_data.add_up(statistics, record_settings)
    # Before the shard has its name: without notes it would fit all flags.
    if made_of:
      files.write_json(_notes_of(outputs[0]), made_of)
  return total, records


def _describe_shard(
  settings: PretrainingDataSettings, inputs: list[str]
) -> dict[str, Any]:
  """Returns what decides the records of a shard, as JSON."""
  flags = {
    name: getattr(settings, name)
    for name, flag in settings.flags_by_name().items()
    if not flag.path and name not in ("shard_index", "num_processes")
  }
  sizes = [
    [os.path.basename(path), os.path.exists(path) and os.path.getsize(path)]
    for path in inputs
  ]
  vocabulary = vocabulary_table.digest(settings.vocab_file)
  made_of = {"flags": flags, "vocabulary": vocabulary, "text": sizes}
  return json.loads(json.dumps(made_of))  # As a file returns it.


def _notes_of(shard: str) -> str:
  """Returns the hidden file beside a shard, which no glob for records finds."""
  folder, name = os.path.split(shard)
  return os.path.join(folder, f".{name}.json")


def _is_made(shard: str, made_of: dict[str, Any]) -> bool:
  """Returns whether a shard is there; a ValueError if it is of other things."""
  if not files.exists(shard):
    return False

  # That of an earlier version has no notes.
  earlier = files.read_json_if_any(_notes_of(shard)) or made_of
  for part, value in made_of.items():
    if earlier.get(part) != value:
      raise ValueError(
        f"{shard}: made with other {part}; delete it to make it again"
      )
  return True


def _check_blocks(settings: PretrainingDataSettings) -> None:
  """Raises a ValueError if work is to be shared that is one single block."""
  for flag in ("num_processes", "num_shards"):
    count = getattr(settings, flag)
    if count > 1 and not settings.documents_per_block:
      raise ValueError(
        f"--{flag}={count} needs --documents_per_block, say 100: the work is "
        "shared by blocks of documents"
      )


def _find_shard(settings: PretrainingDataSettings) -> int:
  """Returns the number of this job, 0 if there is only one."""
  count, shard = settings.num_shards, settings.shard_index
  if count == 1 and shard is None:
    return 0

  # Without the flag, the first variable that is set counts.
  name = "--shard_index"
  if shard is None:
    name = next(filter(os.environ.get, _JOB_NUMBERS), None)
    if not name:
      raise ValueError(
        f"--num_shards={count} needs --shard_index: none of "
        f"{', '.join(_JOB_NUMBERS)} is set"
      )
    # A value that is not a number stays text, and is refused below like a
    # number that is too high.
    value = os.environ[name]
    shard = int(value) if value.isdecimal() else value
  if shard not in range(count):
    raise ValueError(
      f"{name}={shard}: expected a number from 0 to {count - 1}, as "
      f"--num_shards={count}"
    )

  # Each job adds its number to the one name.
  if count > 1 and "," in settings.output_file:
    raise ValueError(
      f"--output_file={settings.output_file}: --num_shards takes one name"
    )
  return shard


if __name__ == "__main__":
  program.run_program(main, PretrainingDataSettings)
