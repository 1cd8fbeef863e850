"""Tiny tasks for one tiny BERT that is trained on all of them together."""

import json

import program_flags
import tiny_classification
import tiny_multiple_choice
import tiny_pretraining
import tiny_squad
import tiny_tagging

_WORDS = dict.fromkeys(tiny_classification.VOCABULARY + tiny_squad.VOCABULARY)
# At least the ids of tiny_pretraining.
CONFIG = {**tiny_classification.CONFIG, "vocab_size": 40}


def write_model(folder, config=CONFIG):
  """Writes a config, and a vocabulary with the words of all tasks."""
  (folder / "config.json").write_text(json.dumps(config))
  (folder / "vocab.txt").write_text("\n".join(_WORDS) + "\n")


def write_tasks(folder):
  """Writes the data of tasks; returns the entry of each, by its name."""
  tasks = {
    "good": {"kind": "classifier", "task_name": "file"},
    "names": {"kind": "tagging"},
    "choice": {"kind": "multiple_choice"},
    "colors": {"kind": "squad", "max_query_length": 4, "doc_stride": 4},
    "words": {"kind": "masked_lm", "max_predictions_per_seq": 4},
  }
  for name, fields in tasks.items():
    write, kinds, ending = {
      "good": (tiny_classification.write_tsv, ("train", "eval"), "tsv"),
      "names": (tiny_tagging.write, ("train", "eval"), "txt"),
      "choice": (tiny_multiple_choice.write_swag, ("train", "eval"), "csv"),
      "colors": (tiny_squad.write_squad, ("train", "predict"), "json"),
      "words": (tiny_pretraining.write_records, ("", "eval_input"), "rec"),
    }[name]
    for kind, numbers in zip(kinds, (range(50), range(50, 63)), strict=True):
      kind = kind or "input"
      path = folder / f"{name}-{kind}.{ending}"
      write(path, numbers)
      fields[f"{kind}_file"] = str(path)
  return {name: {"name": name, **fields} for name, fields in tasks.items()}


def flags(folder, out="out", **others):
  """Returns the flags of a training in `folder`/<out>."""
  return {
    "bert_config_file": folder / "config.json",
    "vocab_file": folder / "vocab.txt",
    "output_dir": folder / out,
    "max_seq_length": tiny_classification.SEQUENCE,
    "train_batch_size": 8,
    "learning_rate": 2e-3,
    "do_train": True,
    **others,
  }


def command(folder, tasks, out="out", **others):
  """Returns the command that trains on a list of tasks."""
  path = folder / f"{out}.json"
  path.write_text(json.dumps(tasks))
  given = flags(folder, out, tasks_file=path, **others)
  return program_flags.command("run_multitask", **given)


def run(folder, tasks, out="out", **others):
  """Runs `command` in this process."""
  return program_flags.run_here(command(folder, tasks, out, **others))
