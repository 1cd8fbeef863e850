"""Turns text into BERT's pre-training records on many machines: Apache Beam.

  python create_pretraining_data_beam.py --input_file=corpus.txt \\
      --vocab_file=vocab.txt --output_file=examples.tfrecord \\
      --documents_per_block=1000

With the same flags, `create_pretraining_data.py` makes the same records; only
their order differs, whatever runs the pipeline. Flags that are not listed here
are Beam's, such as `--runner=DataflowRunner`. Without a runner, the pipeline
runs on this machine.
"""

import time

from bert.cli import model_folder, pretraining, program
from bert.data import pretraining_data


def main(beam_arguments: list[str]) -> None:
  """Makes the records and prints their counts."""
  start = time.monotonic()

  # Workers share the text by blocks: one block would be the work of one.
  settings = model_folder.find_files(pretraining.RecordFlags.read())
  record_settings = settings.for_records()
  if not record_settings.documents_per_block:
    raise ValueError(
      "--documents_per_block=0: expected at least 2, say 1000: workers share "
      "the work by blocks of documents"
    )

  # Importing Beam takes seconds: --help and wrong flags do not wait for it.
  from bert.data import pretraining_pipeline

  inputs, outputs = pretraining.expand_files(settings)
  vocabulary = pretraining.prepare(settings, inputs)

  # The counts come from Beam's counters, since workers return only records.
  counts = pretraining_pipeline.make_records(
    pretraining_data.BlockMaker(vocabulary, record_settings),
    inputs,
    outputs,
    settings.compress,
    beam_arguments,
  )
  if not counts:
    program.print_end(
      start, f"wrote {', '.join(outputs)}; the runner counts no records"
    )
    return
  total, records = counts
  pretraining.print_summary(total, records)
  pretraining.print_end(settings, outputs, records, start)


if __name__ == "__main__":
  program.run_program(main, pretraining.RecordFlags, takes_others=True)
