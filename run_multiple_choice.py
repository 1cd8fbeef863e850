"""Fine-tunes BERT to choose among answers: SWAG, and your own questions.

  python run_multiple_choice.py --data_dir=swag \\
    --model=google-bert/bert-base-uncased \\
    --do_train=true --do_eval=true --train_batch_size=16 --learning_rate=2e-5 \\
    --output_dir=/tmp/swag
"""

import dataclasses

from bert.cli import program, shared_flags
from bert.data import remote
from bert.tasks import multiple_choice

ENDINGS = (".csv", ".tsv", ".jsonl", ".json")
_METRICS = ("accuracy", "loss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceSettings(shared_flags.DataSettings):
  """The settings of this program: those of all with three data files."""

  def check(self) -> None:
    """Refuses an unknown score, too, and files whose first row is wrong."""
    super().check()

    # A wrong first row is found before TensorFlow is imported, which takes
    # seconds; only remote paths need it here.
    for path in find_files(self).values():
      if not remote.is_remote(path):
        next(multiple_choice.read_examples(path))


def find_files(settings: ChoiceSettings) -> dict[str, str]:
  """Returns the files that the flags ask for, by kind."""
  shared_flags.choose_metric(settings.best_metric, _METRICS)
  return shared_flags.find_data_files(settings, ENDINGS)


if __name__ == "__main__":
  program.start(ChoiceSettings)

import os

import keras
import numpy as np
import tensorflow as tf

from bert import calls, heads, modeling
from bert.cli import devices, fine_tuning
from bert.inputs import feature_sets
from bert.report import metrics
from bert.tasks import multiple_choice_data

_NEVER = -1e9  # Far below any logit.


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data | None, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B*C, S], and a seed for
  its dropout, int32 [2] or None; it returns the choices' scores, float32
  [B*C, 1].

  Args:
    config: of the encoder, read from bert_config.json.
    data: not read here.
    dtype: a Keras policy, "float32" or "mixed_bfloat16".
  """
  return heads.ClassifierModel(config, 1, dtype)


def forward(model, features, seed) -> tf.Tensor:
  """Scores the choices of a batch.

  Args:
    model: from `create_model`.
    features: input_ids, input_mask and segment_ids, int32 [B, C, S], and
      choice_mask, int32 [B, C], 0 where a question has fewer choices.
    seed: of dropout, int32 [2], or None for none.

  Returns:
    The logits of the choices, float32 [B, C].
  """
  # Section 4.4 of the paper: every choice is an input of its own, scored by one
  # vector, and the scores of a question's choices compete in one softmax.
  shape = tf.shape(features["input_ids"])
  names = ["input_ids", "input_mask", "segment_ids"]
  inputs = [tf.reshape(features[name], [-1, shape[2]]) for name in names]
  logits = tf.reshape(model(*inputs, seed), shape[:2])

  # Choices that only fill the row up must not compete.
  is_choice = tf.cast(features["choice_mask"], tf.float32)
  return logits + _NEVER * (1.0 - is_choice)


def predict(logits, features) -> dict[str, tf.Tensor]:
  """Returns the scores of choices, float32 [B, C], and mask and labels."""
  # The right choice comes back with the logits, in the order of the questions.
  kept = {name: features[name] for name in ("choice_mask", "label_ids")}
  return {"logits": logits, **kept}


def loss(logits, features):
  """Sums the losses over a batch; see `training_plan.Loss`."""
  # The number of the right choice among those of its question.
  labels = features["label_ids"][:, 0]
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  weight = tf.cast(tf.size(labels), tf.float32)
  return {"choice_loss": (tf.reduce_sum(losses), weight)}


def open_data(
  settings: ChoiceSettings, paths: dict[str, str]
) -> fine_tuning.Data:
  """Finds the questions; nothing is written."""
  feature_settings = feature_sets.FeatureSettings(
    **settings.deciding("features")
  )

  # A set by kind: "train", "eval" or "predict". --eval_share makes an "eval" of
  # a share of "train", which an evaluation alone reads for this, too.
  limit = settings.max_train_examples
  sets = {
    kind: multiple_choice_data.find_set(kind, path, feature_settings, limit)
    for kind, path in paths.items()
  }
  if settings.eval_share and "train" in sets:
    sets["train"], sets["eval"] = multiple_choice_data.split(
      sets["train"], settings.eval_share, settings.seed
    )

  return fine_tuning.Data(
    feature_settings=feature_settings,
    metric=shared_flags.choose_metric(settings.best_metric, _METRICS),
    model_settings={"problem": "multiple_choice"},
    train=sets["train"] if settings.do_train else None,
    dev=[sets["eval"]] if "eval" in sets else (),
    test=[sets["predict"]] if "predict" in sets else (),
  )


def choose(
  run: fine_tuning.Run, dataset: feature_sets.FeatureSet, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
  """Chooses an answer to every question of a set.

  Args:
    run: with its model.
    dataset: the set, whose features are made.
    batch_size: questions at once.

  Returns:
    The probabilities of all choices, float32 [N, C], and the number of the
    right choice, int [N], 0 where it is not known.
  """
  # A softmax over the choices of a question, as in the loss.
  results = run.predict(dataset, batch_size)
  probabilities = multiple_choice_data.probabilities(
    results["logits"], results["choice_mask"]
  )
  return probabilities, results["label_ids"][:, 0]


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on questions with a label."""
  # All workers do, because all must stop a training at the same step.
  probabilities, labels = choose(
    run, run.data.dev[0], run.settings.eval_batch_size
  )
  return multiple_choice_data.score(probabilities, labels)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  [dataset] = run.data.dev

  # All workers compute a part of the results; the chief alone writes.
  probabilities, labels = choose(run, dataset, run.settings.eval_batch_size)
  if run.is_chief:
    run.write_eval_results(multiple_choice_data.score(probabilities, labels))
    run.report_on(dataset, multiple_choice_data.describe, probabilities, labels)


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions, and their scores if the answers are known."""
  [dataset] = run.data.test
  probabilities, labels = choose(run, dataset, run.settings.predict_batch_size)

  # All workers have computed the probabilities; the chief alone writes them.
  if not run.is_chief:
    return
  path = os.path.join(run.folder, "predictions.tsv")
  multiple_choice_data.write_predictions(
    path, dataset.examples(), probabilities
  )

  # A file to predict may have labels, too.
  if dataset.is_labelled:
    scores = multiple_choice_data.score(probabilities, labels)
    metrics.write_metrics(run.folder, "predict", scores)
    run.report_on(dataset, multiple_choice_data.describe, probabilities, labels)


def main() -> None:
  """Trains, evaluates and predicts, as the flags ask."""
  # Nothing is written yet: wrong flags and wrong files must cost nothing.
  settings = fine_tuning.read_settings(ChoiceSettings)
  paths = find_files(settings)

  # TensorFlow wants its devices chosen before the first tensor is made.
  strategy = devices.make_strategy(settings)
  data = open_data(settings, paths)

  # From here on the output folder is ours; earlier runs in it must agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    # Texts become ids, once: later runs read the same feature files. A row that
    # cannot be read ends the run here, before there is a model.
    for dataset in data.sets:
      multiple_choice_data.make_features(dataset, run.local_folder)
    # This also loads weights: those of --output_dir, or else of --model.
    run.make_model(create_model, predict, forward)

    # bert/training/loop.py repeats the update of bert/training/step.py. On the
    # way, the scores of the evaluation set choose the best weights.
    if settings.do_train:
      run.train(loss, lambda: evaluate(run))
    if settings.do_eval:
      write_evaluation(run)
    if settings.do_predict:
      write_predictions(run)


# The same from Python, see docs/python.md.
run = calls.make_run(main, ChoiceSettings)


if __name__ == "__main__":
  program.run_program(main)
