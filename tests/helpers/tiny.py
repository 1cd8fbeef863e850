"""Tiny data that a tiny BERT learns in seconds, and the commands that do so.

An example is decided by its number: texts with a good or a bad word, sentences
whose good words are persons and bad ones places, questions for the good one of
four choices or for the colour in a text, and records of random ids.
"""

import functools
import json
import pathlib
import random
from typing import Any, NamedTuple

import numpy as np

from bert.data import record_writer
import program_flags

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GOOD = ["good", "great", "fine"]
BAD = ["bad", "poor", "awful"]
OTHER = ["the", "film", "was", "plot", "and", "cast", "a", "very"]
VOCABULARY = SPECIAL + GOOD + BAD + OTHER
TYPES = dict.fromkeys(GOOD, "PER") | dict.fromkeys(BAD, "LOC")

COLORS = ["red", "green", "blue", "Yellow", "white"]
CONTEXT = ["the", "house", "was", "old", "and", "tree", "a", "very"]
QUESTION = ["what", "color", "?"]
SQUAD_VOCABULARY = [*SPECIAL, *QUESTION, *map(str.lower, COLORS), *CONTEXT]
ALL_WORDS = list(dict.fromkeys(VOCABULARY + SQUAD_VOCABULARY))

SEQUENCE = 16  # Tokens of an example.
PREDICTIONS = 4  # Masked tokens of a record, at most.
RECORD_IDS = 40  # Ids of records are below.

PRETRAINING_CONFIG = {
  "vocab_size": RECORD_IDS,
  "hidden_size": 16,
  "num_hidden_layers": 1,  # To trace another takes seconds.
  "num_attention_heads": 2,
  "intermediate_size": 32,
  "max_position_embeddings": SEQUENCE,
  "type_vocab_size": 2,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
CONFIG = {
  **PRETRAINING_CONFIG,
  "vocab_size": len(VOCABULARY),
  "initializer_range": 0.1,
  **NO_DROPOUT,
}
SQUAD_CONFIG = {**CONFIG, "vocab_size": len(SQUAD_VOCABULARY)}
SWAG_HEADER = "sent1,sent2,ending0,ending1,ending2,ending3,label"


class Program(NamedTuple):
  """What a program's tiny commands share."""

  config: dict[str, Any]
  vocabulary: list[str] | None
  flags: dict[str, Any]


# A tiny model learns its task in seconds with a learning rate a hundred times
# the usual one (2e-5).
_RATE = {"train_batch_size": 8, "learning_rate": 2e-3}
_SQUAD = {"max_query_length": 4, "doc_stride": 4}
_PRETRAINING = Program(
  PRETRAINING_CONFIG,
  None,
  {
    "max_predictions_per_seq": PREDICTIONS,
    "num_warmup_steps": 2,
    "train_batch_size": 8,
  },
)
PROGRAMS = {
  "run_pretraining": _PRETRAINING,
  "run_distillation": _PRETRAINING,
  "run_classifier": Program(CONFIG, VOCABULARY, {"task_name": "file", **_RATE}),
  "run_squad": Program(
    SQUAD_CONFIG,
    SQUAD_VOCABULARY,
    {**_SQUAD, "train_batch_size": 16, "learning_rate": 5e-3},
  ),
  "run_tagging": Program(CONFIG, VOCABULARY, {}),
  "run_multiple_choice": Program(CONFIG, VOCABULARY, {}),
  "run_embedding": Program(CONFIG, VOCABULARY, {}),
  "run_multitask": Program(
    {**CONFIG, "vocab_size": RECORD_IDS},
    ALL_WORDS,
    {"do_train": True, **_RATE},
  ),
}


def write_model(folder, config=(), program="run_classifier"):
  """Writes config.json and vocab.txt as a program needs them."""
  folder.mkdir(exist_ok=True)
  defaults = PROGRAMS[program]
  content = {**defaults.config, **dict(config)}
  (folder / "config.json").write_text(json.dumps(content))
  if words := defaults.vocabulary:
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


def flags_for(folder, **flags):
  """Returns the flags to work with the model of `folder` in `folder`/out."""
  return {
    "bert_config_file": folder / "config.json",
    "vocab_file": folder / "vocab.txt",
    "output_dir": folder / "out",
    "max_seq_length": SEQUENCE,
    **flags,
  }


def command(program, folder, config=(), **flags):
  """Writes the model of a program; returns the command that works with it.

  It works in `folder`/out; flags override.
  """
  write_model(folder, config, program)
  defaults = PROGRAMS[program]
  given = {**defaults.flags, **flags}
  flags = flags_for(folder, **given)
  if not defaults.vocabulary and "vocab_file" not in given:
    del flags["vocab_file"]
  return program_flags.command(program, **flags)


def run(program, folder, config=(), **flags):
  """Runs `command` in this process."""
  return program_flags.run_here(command(program, folder, config, **flags))


def succeed(program, folder, config=(), **flags):
  """Runs `command` in this process, with success."""
  return program_flags.succeed(command(program, folder, config, **flags))


# Data by number.


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
  return _write_lines(path, lines)


def write_pairs(path, numbers):
  """Writes the same examples, each with its label's word as a second text."""
  lines = ["label\ttext\ttext_b"]
  for text, label in make_examples(numbers):
    lines.append(f"{label}\t{text}\t{'good' if label == 'pos' else 'bad'}")
  return _write_lines(path, lines)


def make_sentence(number):
  """Returns the words of a sentence and their IOB1 tags."""
  source = random.Random(number)
  words = source.choices(OTHER, k=6)
  for place in (source.randrange(3), source.randrange(4, 6)):
    words[place] = source.choice(sorted(TYPES))
  tags = [f"I-{TYPES[word]}" if word in TYPES else "O" for word in words]
  return words, tags


def write_tags(path, numbers):
  """Writes sentences as CoNLL columns, ten a document."""
  lines = []
  for number in numbers:
    if number % 10 == 0:
      lines += ["-DOCSTART- X O", ""]
    rows = zip(*make_sentence(number), strict=True)
    lines += [f"{word} X {tag}" for word, tag in rows] + [""]
  return _write_lines(path, lines)


def make_choices(number):
  """Returns a context, four choices, and the one that holds a good word."""
  source = random.Random(number)
  choices = [f"{word} film" for word in source.sample(BAD + BAD, 4)]
  label = source.randrange(4)
  choices[label] = f"{source.choice(GOOD)} film"
  context = " ".join(source.choices(OTHER, k=3))
  return context, choices, label


def write_swag(path, numbers):
  """Writes questions of four choices and their answers as SWAG's CSV."""
  lines = [SWAG_HEADER]
  for number in numbers:
    context, choices, label = make_choices(number)
    lines.append(",".join([context, "the cast", *choices, str(label)]))
  return _write_lines(path, lines)


def write_partners(path, numbers, third=None):
  """Writes pairs of texts with the same words, without a header.

  `third` makes the third column of a number, if there is to be one.
  """
  lines = []
  for number in numbers:
    text = make_text(number, GOOD if number % 2 else BAD)
    words = random.Random(number).sample(text.split(), len(text.split()))
    cells = [text, " ".join(words), *([third(number)] if third else [])]
    lines.append("\t".join(cells))
  return _write_lines(path, lines)


def make_question(number, has_answer=True):
  """Returns a context of 4 to 14 words and a question about it, as SQuAD's."""
  source = random.Random(number)
  words = source.choices(CONTEXT, k=source.randint(3, 13))
  color = source.choice(COLORS)
  place = source.randrange(len(words))
  if has_answer:
    words.insert(place, color)
  start = len(" ".join([*words[:place], ""]))
  question = {
    "id": f"q{number}",
    "question": " ".join(QUESTION),
    "answers": [{"text": color, "answer_start": start}] * has_answer,
    "is_impossible": not has_answer,
  }
  return {"context": " ".join(words), "qas": [question]}


def write_squad(path, numbers, impossible=0):
  """Writes a SQuAD file.

  Args:
    path: of the file.
    numbers: of the questions.
    impossible: 4 means that questions 0, 4, 8, ... have no answer; 0 that all
      have one.
  """
  paragraphs = [
    make_question(n, not (impossible and n % impossible == 0)) for n in numbers
  ]
  content = {"data": [{"title": "T", "paragraphs": paragraphs}]}
  path.write_text(json.dumps(content))
  return path


def make_values(number, sequence=SEQUENCE, predictions=PREDICTIONS):
  """Returns the features of a record for pre-training."""
  source = np.random.default_rng(number)
  masked = int(source.integers(1, predictions + 1))
  length = min(sequence, int(source.integers(8, SEQUENCE + 1)))
  padding = [0] * (sequence - length)
  unused = [0] * (predictions - masked)
  ids = source.integers(0, RECORD_IDS, length).tolist()
  labels = source.integers(0, RECORD_IDS, masked).tolist()
  half = length // 2
  return {
    "input_ids": ids + padding,
    "input_mask": [1] * length + padding,
    "segment_ids": [0] * half + [1] * (length - half) + padding,
    "masked_lm_positions": list(range(masked)) + unused,
    "masked_lm_ids": labels + unused,
    "masked_lm_weights": [1.0] * masked + [0.0] * len(unused),
    "next_sentence_labels": [number % 2],
  }


def encode(values):
  """Encodes features as create_pretraining_data.py does."""
  return record_writer.encode_example(
    {
      name: record_writer.float_feature(value)
      if name == "masked_lm_weights"
      else record_writer.int64_feature(value)
      for name, value in values.items()
    }
  )


def write_records(path, numbers, compress=False, **lengths):
  """Writes the records of some numbers to a file; returns its name."""
  examples = [make_values(number, **lengths) for number in numbers]
  return write_values(path, *examples, compress=compress)


def write_values(path, *examples, compress=False):
  """Writes records given as features; returns the file's name."""
  with record_writer.open_shards([str(path)], compress) as write:
    for values in examples:
      write(encode(values))
  return str(path)


def _write_lines(path, lines):
  path.write_text("\n".join(lines) + "\n")
  return path


def checkpoint_bytes(folder, step):
  """Returns the contents of the files of a checkpoint."""
  return [
    (folder / f"model.ckpt-{step}{suffix}").read_bytes()
    for suffix in (".index", ".data-00000-of-00001")
  ]


def read_results(folder):
  """Returns the numbers in the eval_results.txt of a folder, by their names."""
  lines = (folder / "eval_results.txt").read_text().splitlines()
  return {k: float(v) for k, v in (line.split(" = ") for line in lines)}


def damage(path, offset):
  """Flips the bits of a byte of a file."""
  content = bytearray(pathlib.Path(path).read_bytes())
  content[offset] ^= 255
  pathlib.Path(path).write_bytes(bytes(content))


# A short run of each program that trains. The configs above have no dropout;
# heads have 0.1, which no flag can change (without_dropout.py does). 50
# examples in batches of 16 make 6 updates in two epochs (50 / 16 * 2 = 6.25),
# with checkpoints after the fourth and the last. Neither two workers nor
# batches share the examples evenly.
_SHORT = {
  "do_train": True,
  "train_batch_size": 16,
  "learning_rate": 1e-3,
  "save_checkpoints_steps": 4,
  "keep_checkpoint_max": 5,  # Else a complete fine-tuning keeps only the last.
  "iterations_per_loop": 1,  # Else time decides how many updates are a point.
}
_EPOCHS = {"num_train_epochs": 2, "eval_every_steps": 2}
_TABLES = {
  **_EPOCHS,
  "do_eval": True,
  "do_predict": True,
  "eval_batch_size": 4,
}
# What such a run does; the other programs do as _TABLES says.
_RUNS = {
  "run_pretraining": {
    "num_train_steps": 6,
    "do_eval": True,
    "max_eval_steps": 0,
  },
  "run_multitask": {
    "num_train_steps": 6,
    "eval_every_steps": 2,
    "do_eval": True,
  },
  "run_squad": {
    **_EPOCHS,
    "do_predict": True,
    "predict_batch_size": 4,
    "version_2_with_negative": True,
    "null_score_diff_threshold": "auto",
    "num_processes": 1,
  },
  "run_classifier": {**_TABLES, "class_weights": "1,3"},
}
SPLITS = {"train": range(50), "dev": range(50, 63), "test": range(63, 70)}
DATA = {
  "run_classifier": (write_tsv, "tsv"),
  "run_squad": (functools.partial(write_squad, impossible=4), "json"),
  "run_tagging": (write_tags, "txt"),
  "run_multiple_choice": (write_swag, "csv"),
  "run_embedding": (write_partners, "tsv"),
}
FINE_TUNERS = list(DATA)
TRAINERS = ["run_pretraining", *FINE_TUNERS]


def write_split(program, folder, split, is_reversed=False):
  """Writes the examples of train, dev or test; returns the path."""
  write, ending = DATA[program]
  numbers = SPLITS[split]
  return write(
    folder / f"{split}.{ending}", numbers[:: -1 if is_reversed else 1]
  )


def prepare(program, folder, config=()):
  """Writes the data of a program's task; returns the command for it.

  The command trains for a few steps of 16 examples, evaluates and predicts in
  `folder`/out; flags that are appended override its own.
  """
  if program == "run_pretraining":
    config = config or NO_DROPOUT
  flags = {**_SHORT, **_RUNS.get(program, _TABLES)}
  flags |= _write_data(program, folder)
  return command(program, folder, config, **flags)


def _write_data(program, folder):
  """Writes what a run of `prepare` reads; returns the flags that name it."""
  if program == "run_pretraining":
    return {
      "input_file": write_records(folder / "train", SPLITS["train"]),
      "eval_input_file": write_records(folder / "dev", SPLITS["dev"]),
    }

  if program == "run_multitask":
    tasks = write_tasks(folder)
    path = folder / "tasks.json"
    path.write_text(json.dumps([tasks["good"], tasks["names"]]))
    return {"tasks_file": path}

  if program == "run_squad":
    return {
      "train_file": write_split(program, folder, "train"),
      "predict_file": write_split(program, folder, "dev"),
    }

  for split in SPLITS:
    write_split(program, folder, split)
  return {"data_dir": folder}


def classifier_flags(folder):
  """Returns the flags of a classifier that trains and evaluates, by name.

  For calls from Python; it works in `folder`/out, as `prepare` says.
  """
  command = prepare("run_classifier", folder)
  return {**program_flags.read_command(command), "do_predict": "false"}


def write_tasks(folder):
  """Writes the data of tasks; returns the entry of each, by its name."""
  tasks = {
    "good": {"kind": "classifier", "task_name": "file"},
    "names": {"kind": "tagging"},
    "choice": {"kind": "multiple_choice"},
    "colors": {"kind": "squad", **_SQUAD},
    "words": {"kind": "masked_lm", "max_predictions_per_seq": PREDICTIONS},
  }
  for name, write, ending, kinds in (
    ("good", write_tsv, "tsv", ("train", "eval")),
    ("names", write_tags, "txt", ("train", "eval")),
    ("choice", write_swag, "csv", ("train", "eval")),
    ("colors", write_squad, "json", ("train", "predict")),
    ("words", write_records, "rec", ("input", "eval_input")),
  ):
    for kind, numbers in zip(kinds, (range(50), range(50, 63)), strict=True):
      path = folder / f"{name}-{kind}.{ending}"
      write(path, numbers)
      tasks[name][f"{kind}_file"] = str(path)
  return {name: {"name": name, **fields} for name, fields in tasks.items()}


def tasks_flags(folder, out="out", **others):
  """Returns the flags of a training on several tasks in `folder`/<out>."""
  defaults = PROGRAMS["run_multitask"].flags
  return flags_for(folder, output_dir=folder / out, **{**defaults, **others})


def tasks_command(folder, tasks, out="out", **others):
  """Returns the command that trains the model of a folder on tasks."""
  path = folder / f"{out}.json"
  path.write_text(json.dumps(tasks))
  flags = tasks_flags(folder, out, tasks_file=path, **others)
  return program_flags.command("run_multitask", **flags)


def run_tasks(folder, tasks, out="out", **others):
  """Runs `tasks_command` in this process."""
  return program_flags.run_here(tasks_command(folder, tasks, out, **others))


# Text for records that take no time to make, and for vocabularies.
CORPUS_WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h ##i".split()
ENGLISH = "The quick brown fox jumps over the lazy dog and number {} runs."
CHINESE = "\u5317\u4eac\u662f\u4e2d\u56fd\u7684\u9996\u90fd\uff0c\u7b2c{}\u3002"


def make_corpus(documents, seed=0):
  """Returns documents of five sentences of CORPUS_WORDS."""
  source = random.Random(seed)
  return "\n\n".join(
    "\n".join(" ".join(source.choices("abcdefgh", k=12)) for _ in range(5))
    for _ in range(documents)
  )


def learn_sentence_pieces(folder, text=None, **others):
  """Learns a SentencePiece model of English and Chinese; returns its path."""
  from bert import create_vocab
  from bert.cli import vocab_settings

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
  program_flags.run_main(create_vocab, vocab_settings.VocabSettings, **flags)
  return str(folder / "x.model")
