"""Turns text into BERT's pre-training records: masked tokens, sentence pairs.

  python create_pretraining_data.py --input_file=corpus.txt \\
      --vocab_file=vocab.txt --output_file=examples.tfrecord

The text has a sentence a line and a blank line between documents. The records
are the original program's, one by one. WikiText-2's validation and test text
(2.3 MB, 57,770 records) takes 2.1 s on one core; --documents_per_block=8
--num_processes=2 takes 1.2 s on two.
"""

import contextlib
import os
import sys
import time

from absl import flags

import common_flags
import files
import pretraining_data
import progress
import record_writer
import tokenization

FLAGS = flags.FLAGS

_MANY_REPEATED_LINES = 0.05


def define_flags() -> None:
  """Declares the flags; all but the last three are the original's."""
  flags.DEFINE_string(
    "input_file",
    None,
    "Text files or globs, separated by commas, with a sentence a line and a "
    "blank line between documents (the end of a file ends none); .gz and .xz "
    "are decompressed.",
  )
  flags.DEFINE_string(
    "output_file",
    None,
    "TFRecord files to write, separated by commas; records go to them in turn.",
  )
  flags.DEFINE_string("vocab_file", None, "WordPieces, one a line.")
  flags.DEFINE_bool(
    "do_lower_case", True, "Lower-cases and strips accents. False if cased."
  )
  flags.DEFINE_integer("max_seq_length", 128, "Tokens of a record, padded.")
  flags.DEFINE_integer(
    "max_predictions_per_seq",
    20,
    "At most so many tokens of a record are masked; choose --max_seq_length "
    "times --masked_lm_prob. run_pretraining.py needs both lengths, too.",
  )
  flags.DEFINE_float("masked_lm_prob", 0.15, "Part of tokens to be masked.")
  flags.DEFINE_float(
    "short_seq_prob", 0.1, "Part of the documents cut into shorter pairs."
  )
  flags.DEFINE_integer(
    "dupe_factor", 10, "Times each document is used, masked differently."
  )
  flags.DEFINE_bool(
    "do_whole_word_mask", False, "Masks all pieces of a word or none."
  )
  flags.DEFINE_integer("random_seed", 12345, "The same seed, the same records.")
  flags.DEFINE_integer(
    "documents_per_block",
    0,
    "Makes records of every so many documents by themselves, in bounded memory "
    "but not the original's. 0: all at once.",
  )
  flags.DEFINE_integer(
    "num_processes", 1, "Blocks made at once; it does not change the records."
  )
  flags.DEFINE_bool("compress", False, "Writes GZIP files.")
  flags.mark_flags_as_required(["input_file", "output_file", "vocab_file"])


def main() -> None:
  """Makes the records and sums up what they were made of."""
  names = vars(pretraining_data.Settings())
  settings = pretraining_data.Settings(**{n: FLAGS[n].value for n in names})
  inputs = files.expand_patterns(FLAGS.input_file, "input_file")
  outputs = _output_files(inputs)
  _check_flags()
  tokenizer = tokenization.FullTokenizer(FLAGS.vocab_file, FLAGS.do_lower_case)
  vocabulary = pretraining_data.make_vocabulary(
    tokenizer.encode, tokenizer.vocab, FLAGS.vocab_file
  )
  text, work = files.Text(inputs), _Work()
  blocks = pretraining_data.make_blocks(
    pretraining_data.read_documents(text.lines()),
    vocabulary,
    settings,
    FLAGS.num_processes,
    None if FLAGS.documents_per_block else work.show,
  )
  statistics = []
  with (
    files.replace_all_on_success(outputs) as temporaries,
    record_writer.ShardedWriter(temporaries, FLAGS.compress) as writer,
    contextlib.closing(blocks),
  ):
    for block in blocks:
      for record in block.records:
        writer.write(record)
      statistics.append(block.statistics)
      work.show(text.part_read())
      del block  # Else it would stay while the next one is made.
  total = pretraining_data.Statistics(*map(sum, zip(*statistics, strict=True)))
  _print_summary(total, writer.count, text)
  print(f"{', '.join(outputs)} written in {work.seconds():.1f} s")


def _output_files(inputs: list[str]) -> list[str]:
  outputs = list(filter(None, map(str.strip, FLAGS.output_file.split(","))))
  if not outputs:
    raise ValueError("--output_file: expected a file or a list of them")
  taken = set(map(os.path.realpath, [*inputs, FLAGS.vocab_file]))
  for path in outputs:
    if os.path.realpath(path) in taken:
      raise ValueError(f"--output_file: {path} is an input, or named twice")
    taken.add(os.path.realpath(path))
  return outputs


def _check_flags() -> None:
  """Checks what concerns this program alone, or two settings together."""
  processes = FLAGS.num_processes
  if processes < 1:
    raise ValueError(f"--num_processes={processes}: expected at least 1")
  if processes > 1 and not FLAGS.documents_per_block:
    raise ValueError(
      f"--num_processes={processes} needs --documents_per_block, say 100:"
      " processes share the work by blocks of documents"
    )
  wanted = FLAGS.max_seq_length * FLAGS.masked_lm_prob
  if FLAGS.max_predictions_per_seq < int(wanted):
    _warn(
      f"--max_predictions_per_seq={FLAGS.max_predictions_per_seq} masks fewer"
      f" tokens than --masked_lm_prob asks for, {wanted:.0f} in a full record"
    )


class _Work:
  """Says from time to time how much of the work is done."""

  def __init__(self):
    self._start = time.monotonic()
    self._progress = progress.Progress(total=1)

  def seconds(self) -> float:
    return time.monotonic() - self._start

  def show(self, part: float | None) -> None:
    """Shows the part done, from 0 to 1; None if it is unknown."""
    if not self._progress.is_due():
      return
    line = f"{self.seconds():.0f} s"
    if part:
      line = f"{part:.0%} in {line}, {self._progress.eta(part)} to go"
    self._progress.print_line(line)


def _print_summary(
  total: pretraining_data.Statistics, records: int, text: files.Text
) -> None:
  repeated = text.part_repeated()
  print(
    f"{total.documents:,} documents, {total.sentences:,} sentences"
    f" ({repeated:.1%} repeated), {total.tokens:,} tokens"
    f" ({total.unknown_tokens / total.tokens:.2%} [UNK],"
    f" {total.tokens / total.sentences:.1f} a sentence)"
  )
  truncated = total.truncated_pairs / records
  print(f"{records:,} records ({truncated:.1%} of them truncated)")
  if repeated > _MANY_REPEATED_LINES:
    _warn(
      f"{repeated:.1%} of the lines repeat an earlier one. This is the usual"
      " cause of a masked-LM loss that stays high: remove the repetitions"
    )


def _warn(message: str) -> None:
  print(f"warning: {message}", file=sys.stderr)


if __name__ == "__main__":
  common_flags.run_program(main, define_flags)
