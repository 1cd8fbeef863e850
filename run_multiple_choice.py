"""Fine-tunes BERT to choose among answers: SWAG, and your own questions.

  python run_multiple_choice.py --data_dir=swag --model=$BERT \\
    --do_train=true --do_eval=true --train_batch_size=16 --learning_rate=2e-5 \\
    --output_dir=/tmp/swag
"""

from absl import flags

from cli import fine_tuning_flags
from cli import program


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  fine_tuning_flags.define_data_flags()
  flags.DEFINE_enum(
    "predictions_format", "tsv", ["tsv", "jsonl"], "Of the file of predictions."
  )


if __name__ == "__main__":
  program.start(define_flags)

import functools
import os

import keras
import numpy as np
import tensorflow as tf

from cli import devices
from cli import fine_tuning
from cli import flag_values
from data import files
import heads
from inputs import feature_files
import modeling
from tasks import metrics
from tasks import multiple_choice
from tasks import multiple_choice_inputs

_NEVER = -1e9  # Far below any logit.
_ENDINGS = (".csv", ".tsv", ".jsonl")
_METRICS = ("accuracy", "loss")


def create_model(config: modeling.EncoderConfig, dtype: str) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B*C, S],
    and a seed for its dropout, int32 [2] or None; returns the score of each
    choice, float32 [B*C, 1].
  """
  return heads.ClassifierModel(config, 1, dtype)


def compute_logits(model, features, seed=None) -> tf.Tensor:
  """Scores the choices of a batch, float32 [B, C]."""
  shape = tf.shape(features["input_ids"])
  names = ["input_ids", "input_mask", "segment_ids"]
  inputs = [tf.reshape(features[name], [-1, shape[2]]) for name in names]
  logits = model(*inputs, seed)  # [B*C, 1]
  logits = tf.reshape(logits, shape[:2])
  is_choice = tf.cast(features["choice_mask"], tf.float32)
  return logits + _NEVER * (1.0 - is_choice)


def predict(model, features) -> dict[str, tf.Tensor]:
  """Scores the choices of a batch; keeps the labels."""
  kept = {name: features[name] for name in ("choice_mask", "label_ids")}
  return {"logits": compute_logits(model, features), **kept}


def loss_fn(model, features, seed):
  """Sums the losses over a batch; see `loop.LossFn`."""
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    features["label_ids"][:, 0], compute_logits(model, features, seed)
  )
  weight = tf.reduce_sum(tf.ones_like(features["label_ids"]))
  return {"choice_loss": (tf.reduce_sum(losses), tf.cast(weight, tf.float32))}


def open_inputs(
  settings: flag_values.Settings, folder: str, paths: dict[str, str]
) -> fine_tuning.Inputs:
  """Finds the data of a run; see `fine_tuning.open_run`."""
  shape = flag_values.fill(feature_files.Settings, settings)
  limit = settings.max_train_examples
  splits = {
    kind: multiple_choice_inputs.Split(kind, path, shape, folder, limit)
    for kind, path in paths.items()
  }
  return fine_tuning.Inputs(
    shape,
    fine_tuning.best_metric(settings, _METRICS[0], _METRICS),
    {"problem": "multiple_choice"},
    splits.get("train"),
    [splits["eval"]] if "eval" in splits else (),
    [splits["predict"]] if "predict" in splits else (),
  )


def choose(
  run: fine_tuning.Run, split: multiple_choice_inputs.Split, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the probabilities of all choices, and the numbers of the right.

  They are float32 [N, C] and int [N]; of unknown ones, the number is 0.
  """
  results = run.predict(split, batch_size)
  shares = multiple_choice.probabilities(
    results["logits"], results["choice_mask"]
  )
  return shares, results["label_ids"][:, 0]


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on the evaluation data."""
  [split] = run.inputs.eval
  chosen = choose(run, split, run.settings.eval_batch_size)
  return multiple_choice.score(*chosen)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  [split] = run.inputs.eval
  chosen = choose(run, split, run.settings.eval_batch_size)
  if run.is_chief:
    run.write_eval_results(multiple_choice.score(*chosen))
    run.report_on(split, multiple_choice.describe, *chosen)


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions, and their scores if the answers are known."""
  [split] = run.inputs.predict
  shares, labels = choose(run, split, run.settings.predict_batch_size)
  if not run.is_chief:
    return
  name = f"predictions.{run.settings.predictions_format}"
  path = os.path.join(run.folder, name)
  multiple_choice.write_predictions(path, split.examples(), shares)
  print(f"wrote {path}")
  other = {"tsv": "jsonl", "jsonl": "tsv"}[run.settings.predictions_format]
  files.remove(os.path.join(run.folder, f"predictions.{other}"))
  if split.is_labelled:
    scores = multiple_choice.score(shares, labels)
    metrics.write_metrics(run.folder, "predict", scores)
    run.report_on(split, multiple_choice.describe, shares, labels)


def finish(run: fine_tuning.Run) -> None:
  """Evaluates and predicts as flags say."""
  if run.settings.do_eval:
    write_evaluation(run)
  if run.settings.do_predict:
    write_predictions(run)


def make_recipe(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of the flags; see `fine_tuning.follow`.

  Raises:
    ValueError: there is nothing to do, or a file is missing.
  """
  fine_tuning.best_metric(settings, _METRICS[0], _METRICS)
  paths = fine_tuning.find_data_files(settings, _ENDINGS)
  return fine_tuning.Recipe(
    settings,
    functools.partial(open_inputs, paths=paths),
    lambda config, inputs, dtype: create_model(config, dtype),
    predict,
    lambda run: loss_fn,
    evaluate,
    finish,
  )


def main() -> None:
  recipe = make_recipe(fine_tuning.read_settings())
  fine_tuning.follow(recipe, devices.make_strategy(recipe.settings))


if __name__ == "__main__":
  program.run_program(main)
