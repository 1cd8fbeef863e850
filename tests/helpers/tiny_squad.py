"""A tiny task of question answering that a tiny BERT learns in seconds.

The answer is the colour in a text; some texts have none.
"""

import json
import random

import program_flags
import tiny_classification

COLORS = ["red", "green", "blue", "Yellow", "white"]
OTHER = ["the", "house", "was", "old", "and", "tree", "a", "very"]
WORDS = ["what", "color", "?", *map(str.lower, COLORS), *OTHER]
VOCABULARY = tiny_classification.SPECIAL + WORDS
SEQUENCE = 16

CONFIG = {
  **tiny_classification.CONFIG,
  "vocab_size": len(VOCABULARY),
  "max_position_embeddings": SEQUENCE,
}


def make_question(number, has_answer=True):
  """Returns a context of 4 to 14 words and a question about it, as SQuAD's."""
  source = random.Random(number)
  words = source.choices(OTHER, k=source.randint(3, 13))
  color = source.choice(COLORS)
  place = source.randrange(len(words))
  if has_answer:
    words.insert(place, color)
  start = len(" ".join([*words[:place], ""]))
  answers = [{"text": color, "answer_start": start}] * has_answer
  question = {
    "id": f"q{number}",
    "question": "what color ?",
    "answers": answers,
    "is_impossible": not has_answer,
  }
  return {"context": " ".join(words), "qas": [question]}


def write_squad(path, numbers, impossible=0):
  """Writes a SQuAD file; every so many questions have no answer."""
  paragraphs = [
    make_question(n, not (impossible and n % impossible == 0)) for n in numbers
  ]
  content = {"data": [{"title": "T", "paragraphs": paragraphs}]}
  path.write_text(json.dumps(content))
  return path


def command(folder, **flags):
  """Returns the command that works in `folder`/out; flags override."""
  (folder / "config.json").write_text(json.dumps(CONFIG))
  (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
  flags = {
    "max_query_length": 4,
    "doc_stride": 4,
    "train_batch_size": 16,
    "learning_rate": 5e-3,
    **flags,
  }
  flags = tiny_classification.flags_for(folder, **flags)
  return program_flags.command("run_squad", **flags)


def run(folder, **flags):
  """Runs `command` in this process."""
  return program_flags.run_here(command(folder, **flags))
