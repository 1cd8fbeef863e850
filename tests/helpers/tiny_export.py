"""Trained folders and exports of tiny random BERTs, for the tests."""

import json
import os
import subprocess
import sys

import keras

from data import files
import heads
import modeling
import paths
import tiny_classification
from training import loop
from weights import checkpoints

LABELS = ["neg", "pos"]


def write_trained(
  folder, problem="single_label", make=None, labels=LABELS, **settings
):
  """Writes what a training leaves; returns the model.

  Args:
    folder: of the training; vocab.txt and config.json go there, too.
    problem: what settings.json says.
    make: from the config to the model; default a classifier of two labels.
    labels: of labels.txt.
    **settings: more of settings.json.
  """
  # Weights so large that texts get answers of their own; always the same.
  tiny_classification.write_model(folder, {"initializer_range": 0.7})
  keras.utils.set_random_seed(1)
  config = modeling.BertConfig.from_json_file(str(folder / "config.json"))
  model = make(config) if make else heads.ClassifierModel(config, len(LABELS))
  (folder / "bert_config.json").write_text(config.to_json_string())
  content = {
    "problem": problem,
    "do_lower_case": True,
    "vocab_file_sha256": files.hash_file(str(folder / "vocab.txt")),
    **settings,
  }
  (folder / "settings.json").write_text(json.dumps(content))
  (folder / "labels.txt").write_text("\n".join(labels) + "\n")
  checkpoints.save(str(folder), 7, loop.model_variables(model), keep=1)
  return model


def run(program, stdin=b"", **flags):
  """Runs a program; returns its exit status, output and errors as bytes."""
  arguments = [f"--{name}={value}" for name, value in flags.items()]
  return subprocess.run(
    [sys.executable, str(paths.ROOT / program), *arguments],
    input=stdin,
    capture_output=True,
    env=dict(os.environ),
    timeout=300,
  )


def export(folder, **flags):
  """Runs export_saved_model.py on a trained folder, to `folder`/export."""
  flags = {
    "model_dir": folder,
    "vocab_file": folder / "vocab.txt",
    "export_dir": folder / "export",
    **flags,
  }
  return run("export_saved_model.py", **flags)
