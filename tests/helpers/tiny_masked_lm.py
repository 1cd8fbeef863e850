"""A tiny BERT of random weights with its masked-LM head, for the tests."""

from encoders import encoder_table
import heads
import tiny_classification
from training import loop
from weights import checkpoints

VOCABULARY = tiny_classification.VOCABULARY
SEQUENCE = tiny_classification.SEQUENCE


def make_model(folder, dtype="float32"):
  """Returns the model whose config.json is in a folder, with new weights."""
  config = encoder_table.read_config(str(folder / "config.json"))
  return heads.PretrainingModel(config, dtype)


def write_model(folder, keep=lambda name: True):
  """Writes config.json, vocab.txt and a checkpoint; returns the model.

  Args:
    folder: to write to.
    keep: tells the names of the variables that the checkpoint gets.
  """
  tiny_classification.write_model(folder, {"num_hidden_layers": 2})
  model = make_model(folder)
  variables = loop.model_variables(model)
  kept = {name: value for name, value in variables.items() if keep(name)}
  checkpoints.save(str(folder), 0, kept, keep=0)
  return model


def flags(folder, **others):
  """Returns the flags of a program for the model in a folder."""
  return {
    "bert_config_file": folder / "config.json",
    "vocab_file": folder / "vocab.txt",
    "init_checkpoint": folder,
    "max_seq_length": SEQUENCE,
    **others,
  }
