"""A tiny task of questions with choices that a tiny BERT learns in seconds.

The answer is the choice that holds a good word.
"""

import random

import tiny_classification

HEADER = "sent1,sent2,ending0,ending1,ending2,ending3,label"


def make_row(number):
  """Returns a context, four choices, and the one that holds a good word."""
  source = random.Random(number)
  bad = source.sample(tiny_classification.BAD + tiny_classification.BAD, 4)
  choices = [f"{word} film" for word in bad]
  label = source.randrange(4)
  choices[label] = f"{source.choice(tiny_classification.GOOD)} film"
  context = " ".join(source.choices(tiny_classification.OTHER, k=3))
  return context, choices, label


def write_swag(path, numbers):
  """Writes questions of four choices and their answers as SWAG's CSV."""
  lines = [HEADER]
  for number in numbers:
    context, choices, label = make_row(number)
    lines.append(",".join([context, "the cast", *choices, str(label)]))
  path.write_text("\n".join(lines) + "\n")
