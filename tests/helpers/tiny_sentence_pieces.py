"""A tiny SentencePiece model of English and Chinese, for the tests."""

import create_vocab
import program_flags

ENGLISH = "The quick brown fox jumps over the lazy dog and number {} runs."
CHINESE = "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\uff0c\u7b2c{}\u3002"


def learn(folder, text=None, **others):
  """Learns a model in a folder; returns its path."""
  path = text or folder / "text.txt"
  if not text:
    lines = [t.format(i) for i in range(200) for t in (ENGLISH, CHINESE)]
    path.write_text("\n".join(lines) + "\n")
  flags = {
    "input_file": path,
    "output_file": folder / "x.model",
    "vocab_size": 150,
    "model": "unigram",
    **others,
  }
  program_flags.run_main(create_vocab, create_vocab.define_flags, **flags)
  return str(folder / "x.model")
