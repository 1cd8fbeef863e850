"""Turns text into BERT's pre-training records on many machines: Apache Beam.

  python create_pretraining_data_beam.py --input_file=corpus.txt \\
      --vocab_file=vocab.txt --output_file=examples.tfrecord \\
      --documents_per_block=1000

The records are those of `create_pretraining_data.py` with the same flags, in
any order, whatever runs the pipeline. Flags that are not listed here are
Beam's, `--runner=DataflowRunner` for one; without a runner it runs here.
"""

import time

from bert.cli import model_folder, pretraining, program
from bert.data import pretraining_data


def main(beam_arguments: list[str]) -> None:
  """Makes the records and prints their counts."""
  start = time.monotonic()
  settings = model_folder.find_files(pretraining.RecordFlags.read())
  record_settings = settings.for_records()
  if not record_settings.documents_per_block:
    raise ValueError(
      "--documents_per_block=0: expected at least 2, say 1000: workers share "
      "the work by blocks of documents"
    )
  from bert.data import (
    pretraining_pipeline,  # Seconds; --help does without Beam.
  )

  inputs, outputs = pretraining.find_files(settings)
  vocabulary = pretraining.prepare(settings, inputs)
  total, records = pretraining_pipeline.make_records(
    pretraining_data.BlockMaker(vocabulary, record_settings),
    inputs,
    outputs,
    settings.compress,
    beam_arguments,
  )
  pretraining.print_summary(total, records)
  pretraining.print_end(settings, outputs, records, start)


if __name__ == "__main__":
  program.run_program(main, pretraining.RecordFlags, takes_others=True)
