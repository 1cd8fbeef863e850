"""A tiny classification that a tiny BERT learns in seconds, for the tests."""

import json
import random

import program_flags

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD = ["good", "great", "fine"]
BAD = ["bad", "poor", "awful"]
OTHER = ["the", "film", "was", "plot", "and", "cast", "a", "very"]
VOCABULARY = SPECIAL + GOOD + BAD + OTHER
SEQUENCE = 16

CONFIG = {
  "vocab_size": len(VOCABULARY),
  "hidden_size": 16,
  "num_hidden_layers": 1,  # To trace another takes seconds.
  "num_attention_heads": 2,
  "intermediate_size": 32,
  "max_position_embeddings": SEQUENCE,
  "type_vocab_size": 2,
  "initializer_range": 0.1,
  "hidden_dropout_prob": 0.0,
  "attention_probs_dropout_prob": 0.0,
}


def make_text(number, words):
  """Returns a text of 3 to 12 words, one of them of the given ones."""
  source = random.Random(number)
  text = source.choices(OTHER, k=source.randint(2, 11))
  text.insert(source.randrange(len(text)), source.choice(words))
  return " ".join(text)


def make_examples(numbers):
  """Returns (text, label) pairs: "pos" holds a good word, "neg" a bad one."""
  return [
    (make_text(n, GOOD if n % 2 else BAD), "pos" if n % 2 else "neg")
    for n in numbers
  ]


def write_tsv(path, numbers, header=True):
  """Writes examples as a TSV file with the columns label and text."""
  lines = ["label\ttext"] * header
  lines += [f"{label}\t{text}" for text, label in make_examples(numbers)]
  path.write_text("\n".join(lines) + "\n")
  return path


def write_pairs(path, numbers):
  """Writes the same examples, each with its label's word as a second text."""
  lines = ["label\ttext\ttext_b"]
  for text, label in make_examples(numbers):
    lines.append(f"{label}\t{text}\t{'good' if label == 'pos' else 'bad'}")
  path.write_text("\n".join(lines) + "\n")
  return path


def write_model(folder, config=()):
  """Writes config.json and vocab.txt."""
  folder.mkdir(exist_ok=True)
  content = {**CONFIG, **dict(config)}
  (folder / "config.json").write_text(json.dumps(content))
  (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")


def flags_for(folder, **flags):
  """Returns the flags to work with the model of `folder` in `folder`/out."""
  return {
    "bert_config_file": folder / "config.json",
    "vocab_file": folder / "vocab.txt",
    "output_dir": folder / "out",
    "max_seq_length": SEQUENCE,
    **flags,
  }


def command(folder, config=(), **flags):
  """Returns the command that trains in `folder`/out; flags override."""
  write_model(folder, config)
  flags = {
    "task_name": "file",
    "train_batch_size": 8,
    "learning_rate": 2e-3,
    **flags,
  }
  return program_flags.command("run_classifier", **flags_for(folder, **flags))


def run(folder, config=(), **flags):
  """Runs `command` in this process."""
  return program_flags.run_here(command(folder, config, **flags))
