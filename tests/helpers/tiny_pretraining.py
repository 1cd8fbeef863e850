"""A tiny BERT and records for it, for the tests that pre-train."""

import json
import pathlib

import numpy as np

from data import record_writer
import program_flags

SEQUENCE, PREDICTIONS, VOCABULARY = 16, 4, 40
CONFIG = {
  "vocab_size": VOCABULARY,
  "hidden_size": 16,
  "num_hidden_layers": 1,
  "num_attention_heads": 2,
  "intermediate_size": 32,
  "max_position_embeddings": SEQUENCE,
  "type_vocab_size": 2,
}


def make_values(number, sequence=SEQUENCE, predictions=PREDICTIONS):
  """Returns the features of an example that its number decides."""
  random = np.random.default_rng(number)
  masked = int(random.integers(1, predictions + 1))
  length = int(random.integers(8, SEQUENCE + 1))
  padding = [0] * (sequence - length)
  unused = [0] * (predictions - masked)
  ids = random.integers(0, VOCABULARY, length).tolist()
  labels = random.integers(0, VOCABULARY, masked).tolist()
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
  """Writes the examples of some numbers to a file; returns its name."""
  with record_writer.open_shards([str(path)], compress) as write:
    for number in numbers:
      write(encode(make_values(number, **lengths)))
  return str(path)


def write_values(path, *examples):
  """Writes examples given as features; returns the file's name."""
  with record_writer.open_shards([str(path)]) as write:
    for values in examples:
      write(encode(values))
  return str(path)


def damage(path, offset):
  """Flips the bits of a byte of a file."""
  content = bytearray(pathlib.Path(path).read_bytes())
  content[offset] ^= 255
  pathlib.Path(path).write_bytes(bytes(content))


def command(folder, config=(), **flags):
  """Returns the command that pre-trains in `folder`/out; flags override."""
  path = folder / "config.json"
  path.write_text(json.dumps({**CONFIG, **dict(config)}))
  flags = {
    "bert_config_file": path,
    "output_dir": folder / "out",
    "max_seq_length": SEQUENCE,
    "max_predictions_per_seq": PREDICTIONS,
    "train_batch_size": 8,
    "num_warmup_steps": 2,
    **flags,
  }
  return program_flags.command("run_pretraining", **flags)


def run(folder, config=(), preexec_fn=None, **flags):
  """Runs `command`; in a process of its own if something is to precede it."""
  arguments = command(folder, config, **flags)
  if preexec_fn:
    return program_flags.run_command(arguments, preexec_fn)
  return program_flags.run_here(arguments)
