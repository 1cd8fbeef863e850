"""The flags of run_multiple_choice.py, and the objects made from them."""

import os
from typing import NamedTuple

from absl import flags

from cli import devices
from cli import fine_tuning
from cli import models
import modeling
from tasks import multiple_choice
from tasks import multiple_choice_inputs

FLAGS = flags.FLAGS

_ENDINGS = [
  ending + compression
  for ending in (".csv", ".tsv", ".jsonl")
  for compression in ("", ".gz", ".xz")
]
_METRICS = ("accuracy", "loss")


def define_flags() -> None:
  """Declares the flags of this program."""
  models.define_model_flags()
  fine_tuning.define_fine_tuning_flags(max_seq_length=128)
  fine_tuning.define_data_flags()
  models.define_training_flags(learning_rate=5e-5)
  devices.define_device_flags()
  flags.DEFINE_enum(
    "predictions_format",
    "tsv",
    ["tsv", "jsonl"],
    "Of the file of predictions.",
  )


class Inputs(NamedTuple):
  """The data that the flags ask for; None for what they do not."""

  train: multiple_choice_inputs.Split | None
  eval: multiple_choice_inputs.Split | None
  predict: multiple_choice_inputs.Split | None


def find_files() -> dict[str, str]:
  """Returns the paths of the files that the flags ask for.

  Raises:
    ValueError: one is missing, or there is no such score to select by.
  """
  best_metric()
  return fine_tuning.find_data_files(_ENDINGS)


def best_metric() -> str:
  """Returns the name of the score that decides which weights are best."""
  return fine_tuning.best_metric(_METRICS[0], _METRICS)


def open_inputs(paths: dict[str, str], folder: str, private: str) -> Inputs:
  """Makes and opens the features of files.

  Args:
    paths: from `find_files`.
    folder: of the run.
    private: see `models.private_folder`.

  Raises:
    ValueError: a file is wrong, or the run's folder is that of another
      vocabulary or training data.
  """
  options = multiple_choice_inputs.Options(
    vocab_file=FLAGS.vocab_file,
    do_lower_case=FLAGS.do_lower_case,
    max_seq_length=FLAGS.max_seq_length,
  )
  fine_tuning.check_model_settings(folder, _model_settings())
  splits = {
    kind: multiple_choice_inputs.open_split(
      kind, path, options, private, needs_labels=kind != "predict"
    )
    for kind, path in paths.items()
  }
  fine_tuning.check_training_settings(folder, splits.get("train"))
  return Inputs(*map(splits.get, Inputs._fields))


def _model_settings():
  return fine_tuning.model_settings(problem="multiple_choice")


def write_settings(folder: str, config, strategy, inputs: Inputs) -> None:
  """Leaves in the run's folder what later runs in it must agree with."""
  fine_tuning.write_settings(
    folder,
    config,
    strategy,
    _model_settings(),
    inputs.train,
    of_prediction={},
  )


def make_parser(
  split: multiple_choice_inputs.Split, config: modeling.BertConfig
):
  """Returns the function from serialized rows of a split to features."""
  return multiple_choice_inputs.make_parser(
    FLAGS.max_seq_length,
    split.num_choices,
    config.vocab_size,
    config.type_vocab_size,
    fine_tuning.is_static(),
  )


def write_outputs(
  folder: str,
  split: multiple_choice_inputs.Split,
  outputs: multiple_choice_inputs.Outputs,
) -> None:
  """Writes what is predicted, and its scores if the answers are known."""
  name = f"predictions.{FLAGS.predictions_format}"
  path = os.path.join(folder, name)
  multiple_choice.write_predictions(
    path, split.examples(), outputs.probabilities
  )
  print(f"wrote {path}")
  if split.is_labelled:
    scores = multiple_choice.score(*outputs)
    path = os.path.join(folder, "predict_metrics.json")
    models.write_settings(path, {"metrics": scores})
    listing = "  ".join(f"{name} {value:.4g}" for name, value in scores.items())
    print(f"wrote {path}: {listing}")
