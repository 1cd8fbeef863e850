"""Words and documents for records that take no time to make."""

import random

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h ##i".split()


def corpus(documents, seed=0):
  rng = random.Random(seed)
  return "\n\n".join(
    "\n".join(" ".join(rng.choices("abcdefgh", k=12)) for _ in range(5))
    for _ in range(documents)
  )
