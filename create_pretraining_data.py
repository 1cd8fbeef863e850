"""Turns text into BERT's pre-training records: masked tokens, sentence pairs.

  python create_pretraining_data.py --input_file=corpus.txt \\
      --vocab_file=vocab.txt --output_file=examples.tfrecord

The text has a sentence a line and a blank line between documents. The records
are the original program's, one by one. WikiText-2's validation and test text
(2.3 MB, 57,770 records) takes 2.2 s on one core; --documents_per_block=8
--num_processes=2 takes 1.5 s on two.
"""

import contextlib
import dataclasses
import functools
import time

from cli import model_folder, pretraining, program
from data import atomic, files, pretraining_data, progress, record_writer


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingDataSettings(pretraining.RecordFlags):
  """The settings of this program."""

  num_processes: int = program.group("Flags")(
    1,
    "Blocks made at once, at most one a core; the records do not depend on it.",
    least=1,
  )


def main() -> None:
  """Makes the records and prints their counts."""
  start = time.monotonic()
  settings = model_folder.find_files(PretrainingDataSettings.read())
  shape = settings.for_records()
  inputs, outputs = pretraining.find_files(settings)
  _check_processes(settings)
  pretraining.warn_of_few_predictions(settings)
  vocabulary = pretraining.read_vocabulary(settings)
  text = files.Text(inputs)
  show = functools.partial(progress.Progress(1).print_part, "making records")
  blocks = pretraining_data.make_blocks(
    pretraining_data.read_documents(text.lines()),
    vocabulary,
    shape,
    settings.num_processes,
    None if settings.documents_per_block else show,
  )
  statistics, records = [], 0
  with (
    atomic.replace_all_on_success(outputs) as temporaries,
    record_writer.open_shards(temporaries, settings.compress) as write,
    contextlib.closing(blocks),
  ):
    for block in blocks:
      for record in block.records:
        write(record)
      records += len(block.records)
      statistics.append(block.statistics)
      show(text.part_read())
      del block  # Else it would stay while the next one is made.
    total = pretraining_data.add_up(statistics)
  progress.clear()
  pretraining.print_summary(total, records)
  pretraining.print_end(settings, outputs, records, start)


def _check_processes(settings: PretrainingDataSettings) -> None:
  if settings.num_processes > 1 and not settings.documents_per_block:
    raise ValueError(
      f"--num_processes={settings.num_processes} needs --documents_per_block, "
      "say 100: processes share the work by blocks of documents"
    )


if __name__ == "__main__":
  program.run_program(main, PretrainingDataSettings)
