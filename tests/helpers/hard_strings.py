"""A vocabulary and the strings that are hard to tokenize."""

import random

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "want", "##want"]
VOCAB += ["##ed", "wa", "un", "runn", "##ing", ",", ".", "e", "##e", "\u4e2d"]
# Where the hard cases of Unicode are: cased and case-ignorable characters
# around a capital sigma, marks that change places, controls, odd spaces.
ODD = list(
  " \u03a3\u03c3.'\u2019\xb7\u0301\u0345aB1\u4e2d\uff0c\u3099\u302e\uac01\u200d"
  "\x85\x0b\u2028\u3000\u0130\ufb01\u0315\u0327\u1ebf\xad\u01c5\U0001d165\0\ufffd"
)


def write_vocab(folder, tokens=VOCAB):
  path = folder / "vocab.txt"
  path.write_bytes("".join(f"{token}\n" for token in tokens).encode())
  return str(path)


def random_strings(count, seed=1):
  rng = random.Random(seed)
  for _ in range(count):
    yield "".join(
      rng.choice(ODD) if rng.random() < 0.8 else chr(rng.randrange(0x110000))
      for _ in range(rng.randrange(12))
    )
