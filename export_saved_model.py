"""Exports a trained BERT with its tokenizer: strings in, answers out.

  python export_saved_model.py --model_dir=/tmp/mrpc \\
    --vocab_file=$BERT/vocab.txt --export_dir=/tmp/mrpc_export

predict.py and TensorFlow Serving take what it writes.
"""

import time

from absl import flags
from absl import logging

from cli import program  # Before TensorFlow: it quietens its log.

# isort: split
from cli import export_flags
from export import exporting

FLAGS = flags.FLAGS


def main() -> None:
  logging.set_verbosity(logging.ERROR)  # Saving tells its every move.
  start = time.monotonic()
  trained = export_flags.load_model()
  print(f"weights from {trained.weights}")
  head, others = export_flags.make_head(trained)
  facts = exporting.describe(trained, head, FLAGS.format, others)
  with exporting.new_folder(FLAGS.export_dir) as folder:
    difference = exporting.write(folder, trained, head, facts, FLAGS.vocab_file)
  print(
    f"{FLAGS.export_dir} written in {time.monotonic() - start:.1f} s; loaded "
    f"again, it gives the same within {difference:.1g}"
  )
  if FLAGS.format == "saved_model":
    print(f"next: python predict.py --export_dir={FLAGS.export_dir}")


if __name__ == "__main__":
  program.run_program(main, export_flags.define_flags)
