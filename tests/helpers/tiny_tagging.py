"""A tiny task of named entities that a tiny BERT learns in seconds.

Good words are persons, bad ones are places.
"""

import random

import tiny_classification

TYPES = {word: "PER" for word in tiny_classification.GOOD}
TYPES |= {word: "LOC" for word in tiny_classification.BAD}


def make_sentence(number):
  """Returns the words of a sentence and their IOB1 tags."""
  source = random.Random(number)
  words = source.choices(tiny_classification.OTHER, k=6)
  for place in (source.randrange(3), source.randrange(4, 6)):
    words[place] = source.choice(sorted(TYPES))
  tags = [f"I-{TYPES[word]}" if word in TYPES else "O" for word in words]
  return words, tags


def write(path, numbers):
  """Writes sentences as CoNLL columns, ten a document; returns the path."""
  lines = []
  for number in numbers:
    if number % 10 == 0:
      lines += ["-DOCSTART- X O", ""]
    rows = zip(*make_sentence(number), strict=True)
    lines += [f"{word} X {tag}" for word, tag in rows] + [""]
  path.write_text("\n".join(lines) + "\n")
  return path
