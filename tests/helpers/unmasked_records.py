"""Pre-training records without masks, and runs that draw masks for them."""

import keras
import pytest

from bert import heads
from bert.weights import checkpoints
import program_flags
import tiny

WORDS = [*tiny.SPECIAL, *(f"{'##' * (i % 3 == 0)}w{i}" for i in range(35))]


def write(path, numbers, next_sentence=True):
  """Writes records without masks, of WORDS; returns their file's name."""
  examples = []
  for values in map(tiny.make_values, numbers):
    length = sum(values["input_mask"])
    ids = [5 + number % 35 for number in values["input_ids"][:length]]
    ids[0], ids[length // 2 - 1], ids[-1] = 2, 3, 3
    values["input_ids"][:length] = ids
    kept = {n: v for n, v in values.items() if "masked" not in n}
    if not next_sentence:
      del kept["next_sentence_labels"]
    examples.append(kept)
  return tiny.write_values(path, *examples)


def make_flags(folder):
  """Writes 60 such records and their vocabulary; returns the flags of a run."""
  (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
  return {
    "input_file": write(folder / "unmasked", range(60)),
    "dynamic_masking": True,
    "do_whole_word_mask": True,
    "do_train": True,
    "do_eval": True,
    "num_train_steps": 6,
    "save_checkpoints_steps": 3,
  }


def command(folder, program="run_pretraining", **flags):
  """Returns the command of a run with the vocabulary of `make_flags`."""
  flags = {"vocab_file": folder / "vocab.txt", **flags}
  return tiny.command(program, folder, tiny.NO_DROPOUT, **flags)


def write_teacher(folder, **changes):
  """Writes a BERT of WORDS and of another size; returns its folder."""
  config = {**tiny.PRETRAINING_CONFIG, "hidden_size": 24, **changes}
  tiny.write_model(folder, {**config, "initializer_range": 0.3})
  (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
  (folder / "config.json").rename(folder / "bert_config.json")
  keras.utils.set_random_seed(2)
  config = checkpoints.read_config(str(folder / "bert_config.json"))
  variables = checkpoints.model_variables(heads.PretrainingModel(config))
  checkpoints.save(str(folder), 1, variables, keep=1)
  return folder


def assert_same_on_devices(command, folder):
  """Repeats a run of `command` on two devices and in two parts."""
  for flag in ("distribution=mirrored", "gradient_accumulation_steps=2"):
    out = folder / flag
    program_flags.succeed([*command, f"--{flag}", f"--output_dir={out}"])
    for name, value in tiny.read_results(folder / "out").items():
      assert tiny.read_results(out)[name] == pytest.approx(value, abs=1e-4)
