"""Prints which part of pre-training records is tokens, not padding.

  python benchmarks/fill_rate.py

The records of create_pretraining_data.py with its defaults, from three corpora;
two minutes.
"""

import argparse
import subprocess
import sys
import tempfile

import contest
import numpy as np

# Each corpus, and the vocabulary that fits.
CORPORA = {
  "corpus_en_gutenberg.txt": "uncased_vocab.txt",
  "corpus_en_wikitext2_validtest.txt": "uncased_vocab.txt",
  "corpus_zh_wiki_drcd_cmrc.txt": "chinese_vocab.txt",
}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--lengths", type=contest.split, default=["128", "512"])
  parser.add_argument("--short_seq_prob", default="0.1")
  arguments = parser.parse_args()

  # One copy of each text is enough: copies differ in their masks.
  for corpus, vocab in CORPORA.items():
    options = {
      "input_file": contest.DATA / "corpus" / corpus,
      "vocab_file": contest.DATA / "vocab" / vocab,
      "short_seq_prob": arguments.short_seq_prob,
      "dupe_factor": 1,
    }
    for length in arguments.lengths:
      lengths = count_tokens({**options, "max_seq_length": length})
      print(
        f"{corpus}, --max_seq_length={length}: {len(lengths):,} records, "
        f"{lengths.mean() / int(length):.3f} of them tokens",
        flush=True,
      )


def count_tokens(options: dict) -> np.ndarray:
  """Makes records; returns the tokens in each, int [records]."""
  import tensorflow as tf

  with tempfile.TemporaryDirectory() as folder:
    flags = {**options, "output_file": f"{folder}/records"}
    program = str(contest.ROOT / "create_pretraining_data.py")
    subprocess.run(
      [sys.executable, program, *(f"--{k}={v}" for k, v in flags.items())],
      check=True,
      stdout=subprocess.DEVNULL,
    )

    # The mask is 1 at tokens, 0 at padding: its sum is the length of the row.
    length = int(options["max_seq_length"])
    mask = {"input_mask": tf.io.FixedLenFeature([length], tf.int64)}
    batches = tf.data.TFRecordDataset(flags["output_file"]).batch(1000)
    sums = [
      tf.reduce_sum(tf.io.parse_example(batch, mask)["input_mask"], -1)
      for batch in batches
    ]
  return np.concatenate(sums)


if __name__ == "__main__":
  main()
