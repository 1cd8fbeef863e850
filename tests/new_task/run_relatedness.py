"""Fine-tunes BERT to say how related two words of a sentence are.

  python run_relatedness.py --train_file=train.jsonl --eval_file=dev.jsonl \\
    --model=$BERT --do_train=true --do_eval=true --output_dir=/tmp/related
"""

import dataclasses

from bert.cli import program, shared_flags

_ENDINGS = (".jsonl",)
_METRICS = ("pearson", "spearman", "mean_squared_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings(shared_flags.DataSettings):
  """The settings of this program: those of all with three data files."""


if __name__ == "__main__":
  program.start(PairSettings)

import os

import tensorflow as tf

from bert.cli import devices, fine_tuning
from bert.contrib import relatedness_model
from bert.data import tables
from bert.inputs import feature_sets
from bert.report import metrics


def create_model(config, data, dtype):
  """Makes the model."""
  return relatedness_model.PairModel(config, dtype)


def predict(scores, features) -> dict[str, tf.Tensor]:
  """Returns the scores of pairs, float32 [B, 1], and the right ones."""
  return {"values": scores, "score": features["score"]}


def loss(scores, features) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
  """Sums the squared errors of a batch."""
  losses = tf.square(scores - features["score"])[:, 0]
  weights = tf.ones_like(losses)
  return {
    "pair_loss": (tf.reduce_sum(losses * weights), tf.reduce_sum(weights))
  }


def open_data(settings: PairSettings) -> fine_tuning.Data:
  """Finds the examples; nothing is written."""
  # Only the settings that decide about the features: if one of these changes,
  # the features are made anew.
  features = feature_sets.FeatureSettings(**settings.deciding("features"))
  sets = {
    kind: relatedness_model.find_set(
      kind, path, features, settings.max_train_examples
    )
    for kind, path in shared_flags.find_data_files(settings, _ENDINGS).items()
  }

  # With one file, a part of it is held out for the evaluation.
  if settings.eval_share and "train" in sets:
    sets["train"], sets["eval"] = relatedness_model.split(
      sets["train"], settings.eval_share, settings.seed
    )

  return fine_tuning.Data(
    feature_settings=features,
    metric=shared_flags.choose_metric(settings.best_metric, _METRICS),
    model_settings={"problem": "relatedness"},
    train=sets["train"] if settings.do_train else None,
    dev=[sets["eval"]] if "eval" in sets else (),
    test=[sets["predict"]] if "predict" in sets else (),
  )


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on pairs whose score is known."""
  [examples] = run.data.dev
  outputs = run.predict(examples, run.settings.eval_batch_size)
  return metrics.regression_scores(
    outputs["score"][:, 0], outputs["values"][:, 0]
  )


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions for every pair."""
  [examples] = run.data.test
  outputs = run.predict(examples, run.settings.predict_batch_size)

  # Every worker predicts, but only one of them writes.
  if run.is_chief:
    rows = (
      {"words": " ".join(example.words), "value": float(value)}
      for example, [value] in zip(
        examples.examples(), outputs["values"], strict=True
      )
    )
    path = os.path.join(run.folder, "predictions.tsv")
    tables.write_rows(path, rows, ["words", "value"])


def main() -> None:
  settings = fine_tuning.read_settings(PairSettings)
  strategy = devices.make_strategy(settings)
  data = open_data(settings)

  # From here on the output folder is ours; earlier runs in it must agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    for examples in data.sets:
      relatedness_model.make_features(examples, run.local_folder)

    run.make_model(create_model, predict)
    if settings.do_train:
      run.train(loss, lambda: evaluate(run))
    if settings.do_eval:
      run.write_eval_results(evaluate(run))
    if settings.do_predict:
      write_predictions(run)


if __name__ == "__main__":
  program.run_program(main)
