"""A tiny task for each program that trains, for the tests of them all.

Dropout, whose masks are others on another number of devices, is left to heads
alone, see without_dropout.py. Examples can be shared evenly neither by two
workers nor by batches.
"""

import program_flags
import tiny_classification
import tiny_multiple_choice
import tiny_pretraining
import tiny_squad
import tiny_tagging

_COMMON = {
  "do_train": True,
  "train_batch_size": 16,
  "learning_rate": 1e-3,
  "save_checkpoints_steps": 4,
  "iterations_per_loop": 1,  # Else time decides how many updates are a point.
}
_FINE_TUNING = {"num_train_epochs": 2, "eval_every_steps": 2}
_ALL = {"do_eval": True, "do_predict": True, "eval_batch_size": 4}


def write(program, folder):
  """Writes the data of a task; returns the command that works with it.

  The command trains for a few steps of 16 examples, evaluates and predicts in
  `folder`/out; flags that are appended override its own.
  """
  return _WRITERS[program](folder)


def _pretraining(folder):
  no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
  return tiny_pretraining.command(
    folder,
    no_dropout,
    input_file=tiny_pretraining.write_records(folder / "train", range(50)),
    eval_input_file=tiny_pretraining.write_records(
      folder / "dev", range(50, 63)
    ),
    num_train_steps=6,
    do_eval=True,
    max_eval_steps=0,
    **_COMMON,
  )


def _classifier(folder):
  tiny_classification.write_tsv(folder / "train.tsv", range(50))
  tiny_classification.write_tsv(folder / "dev.tsv", range(50, 63))
  tiny_classification.write_tsv(folder / "test.tsv", range(63, 70))
  flags = {**_COMMON, **_FINE_TUNING, **_ALL}
  return tiny_classification.command(folder, data_dir=folder, **flags)


def _squad(folder):
  tiny_squad.write_squad(folder / "train.json", range(50), impossible=4)
  tiny_squad.write_squad(folder / "dev.json", range(50, 63), impossible=4)
  return tiny_squad.command(
    folder,
    train_file=folder / "train.json",
    predict_file=folder / "dev.json",
    do_predict=True,
    predict_batch_size=4,
    version_2_with_negative=True,
    null_score_diff_threshold="auto",
    num_processes=1,
    **_COMMON,
    **_FINE_TUNING,
  )


def _tagging(folder):
  return _fine_tuning("run_tagging", folder, tiny_tagging.write, "txt")


def _multiple_choice(folder):
  write_data = tiny_multiple_choice.write_swag
  return _fine_tuning("run_multiple_choice", folder, write_data, "csv")


def _fine_tuning(program, folder, write_data, ending):
  tiny_classification.write_model(folder)
  write_data(folder / f"train.{ending}", range(50))
  write_data(folder / f"dev.{ending}", range(50, 63))
  write_data(folder / f"test.{ending}", range(63, 70))
  flags = {"data_dir": folder, **_COMMON, **_FINE_TUNING, **_ALL}
  return program_flags.command(
    program, **tiny_classification.flags_for(folder, **flags)
  )


_WRITERS = {
  "run_pretraining": _pretraining,
  "run_classifier": _classifier,
  "run_squad": _squad,
  "run_tagging": _tagging,
  "run_multiple_choice": _multiple_choice,
}
TRAINERS = list(_WRITERS)
