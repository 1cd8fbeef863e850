"""Fine-tunes BERT to label words: named entities, parts of speech, any tags.

  python run_tagging.py --data_dir=conll2003 \\
    --model=google-bert/bert-base-uncased \\
    --do_train=true --do_eval=true --do_predict=true --document_context=true \\
    --output_dir=/tmp/ner
"""

from bert.cli import program, tagging_settings

TaggingSettings = tagging_settings.TaggingSettings

if __name__ == "__main__":
  program.start(TaggingSettings)

from collections.abc import Callable
import functools

import keras
import tensorflow as tf

from bert import calls, heads, modeling
from bert.cli import devices, fine_tuning, shared_flags
from bert.tasks import tagging, tagging_data, tagging_results


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B, S], and a seed for
  its dropout, int32 [2] or None; it returns logits, float32 [B, S, L].

  Args:
    config: of the encoder, read from bert_config.json.
    data: of which the labels are read.
    dtype: a Keras policy, "float32" or "mixed_bfloat16".
  """
  return heads.TaggerModel(config, len(data.labels), dtype)


def compute_losses(logits, features) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Compares the labels of a batch with the logits, float32 [B, S, L].

  Returns for each token, [B, S]: the likeliest label, int32, -1 where no word
  begins; the cross entropy in nats, float32, 0 where the true label is not
  known; and whether it is, int32.
  """
  # Section 5.3 of the paper: only the first token of a word has a label.
  mask = features["label_mask"]
  labels = features["label_ids"]

  # A tag that is unknown, or that training has not seen, has the number after
  # the last label (`tagging.make_features`). It costs nothing; the smaller
  # number only keeps the cross entropy within the logits.
  last = logits.shape[-1] - 1
  is_known = mask * tf.cast(labels <= last, tf.int32)
  targets = tf.minimum(labels, last)
  losses = heads.token_losses(targets, logits)

  predicted = tf.where(mask > 0, tf.argmax(logits, -1, tf.int32), -1)
  return predicted, losses * tf.cast(is_known, tf.float32), is_known


def predict(logits, features, max_seq_length: int) -> dict[str, tf.Tensor]:
  """Computes the predictions for a batch, which `read_outputs` reads.

  Args:
    logits: float32 [B, S, L].
    features: with label_ids and label_mask, int32 [B, S].
    max_seq_length: the S of all batches together; see `tagging_data`.

  Returns:
    "predicted", the number of the label, int32 [B, max_seq_length], or -1 where
    no word begins; "losses", the sum of each row in nats, float32 [B]; and
    "known", how many words of it have a known label, int32 [B].
  """
  predicted, losses, is_known = compute_losses(logits, features)

  # Batches are only as long as their longest row, but all predictions go into
  # one array.
  missing = max_seq_length - tf.shape(predicted)[1]
  return {
    "predicted": tf.pad(predicted, [[0, 0], [0, missing]], constant_values=-1),
    "losses": tf.reduce_sum(losses, 1),
    "known": tf.reduce_sum(is_known, 1),
  }


def loss(logits, features):
  """Sums the losses over the words of a batch; see `training_plan.Loss`."""
  _, losses, is_known = compute_losses(logits, features)
  weights = tf.cast(is_known, tf.float32)
  return {"tagging_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def make_loss(settings: TaggingSettings, data: fine_tuning.Data):
  """Returns `loss`; a ValueError if evaluations could choose no weights."""
  if settings.evaluates_in_training:
    tagging_data.check_metric(data.dev[0], data.metric)
  return loss


def inspect_files(settings: TaggingSettings) -> dict[str, tagging.Source]:
  """Returns the files that the flags ask for, by kind.

  The kind is "train", "eval" or "predict", as in all dicts of this program.
  """
  paths = shared_flags.find_data_files(settings, tagging_settings.ENDINGS)

  # With --tag_scheme=auto, each file is read to detect its scheme.
  sources = {
    kind: settings.inspect_file(kind, path, settings.tag_scheme)
    for kind, path in paths.items()
  }

  # Lines that begin with # may be comments of CoNLL-U, or words.
  for source in sources.values():
    tagging.note_comments(source)
  return sources


def open_data(
  settings: TaggingSettings,
  sources: dict[str, tagging.Source],
  problem_name: str = "tagging",
) -> fine_tuning.Data:
  """Finds the sentences and labels; nothing is written.

  Args:
    settings: the flags.
    sources: from `inspect_files`.
    problem_name: see `train_and_predict`.
  """
  # The training file has the labels. Without one, a model that was trained
  # before has them.
  labels, scheme = tagging_data.choose_labels(
    sources, settings, settings.initial_labels()
  )
  feature_settings = tagging_data.TaggingFeatureSettings(
    **settings.deciding("features"), labels=labels, scheme=scheme
  )

  # A set by kind. --eval_share makes an "eval" of a share of "train", which an
  # evaluation alone reads for this, too.
  limit = settings.max_train_examples
  sets = {
    kind: tagging_data.find_set(kind, source, feature_settings, limit)
    for kind, source in sources.items()
  }
  if settings.eval_share and "train" in sets:
    sets["train"], sets["eval"] = tagging_data.split(
      sets["train"], settings.eval_share, settings.seed
    )

  # An export splits plain text as the training file did: where all words are
  # single characters, as in much Chinese data, it must do so, too.
  answer_settings = {}
  if settings.do_train:
    answer_settings["columns"] = sources["train"].columns
  if "train" in sources:
    by_character = tagging_data.is_by_character(sources["train"])
    answer_settings["by_character"] = by_character

  # Entities have an F1; words without entities are scored by their accuracy.
  metric_names = tagging_results.metric_names(scheme)
  return fine_tuning.Data(
    feature_settings=feature_settings,
    metric=shared_flags.choose_metric(settings.best_metric, metric_names),
    model_settings={"problem": problem_name, "label_scheme": scheme},
    train=sets["train"] if settings.do_train else None,
    dev=[sets["eval"]] if "eval" in sets else (),
    test=[sets["predict"]] if "predict" in sets else (),
    labels=labels,
    answer_settings=answer_settings,
  )


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on labelled words; all workers do, to stop together."""
  [dataset] = run.data.dev
  results = run.predict(dataset, run.settings.eval_batch_size)
  outputs = tagging_data.read_outputs(dataset, results)
  return tagging_data.score(dataset, outputs).metrics


def write_scores(
  run: fine_tuning.Run,
  dataset: tagging_data.TaggingSet,
  outputs: tagging_data.Outputs,
  scores: tagging_results.TaggingScores,
) -> None:
  """Writes the scores of a set, and their section of report.html.

  Args:
    run: its folder gets the files.
    dataset: the set, whose kind their names begin with.
    outputs: the predictions for it.
    scores: how good they are.
  """
  tagging_results.write_scores(run.folder, dataset.kind, scores)
  run.report_on(dataset, tagging_results.describe, outputs.labels, scores)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  [dataset] = run.data.dev
  # All workers compute a part of the results; the chief alone writes.
  results = run.predict(dataset, run.settings.eval_batch_size)
  if run.is_chief:
    outputs = tagging_data.read_outputs(dataset, results)
    scores = tagging_data.score(dataset, outputs)
    run.write_eval_results(scores.metrics)
    write_scores(run, dataset, outputs, scores)


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions, and their scores if the tags are known."""
  [dataset] = run.data.test
  results = run.predict(dataset, run.settings.predict_batch_size)
  if run.is_chief:
    outputs = tagging_data.read_outputs(dataset, results)
    tagging_data.write_predictions(run.folder, dataset, outputs.labels)

    # A file to predict may have tags, too.
    if dataset.tagged_file.is_tagged:
      scores = tagging_data.score(dataset, outputs)
      write_scores(run, dataset, outputs, scores)


def train_and_predict(
  settings: TaggingSettings,
  create_model: Callable[..., keras.Model] = create_model,
  problem_name: str = "tagging",
) -> None:
  """Trains, evaluates and predicts as the flags say.

  Args:
    settings: the flags.
    create_model: makes the model, as the function of this name does.
    problem_name: the kind of model, by which an export finds its class.
  """
  # Nothing is written yet: wrong flags and wrong files must cost nothing.
  sources = inspect_files(settings)

  # TensorFlow wants its devices chosen before the first tensor is made.
  strategy = devices.make_strategy(settings)
  data = open_data(settings, sources, problem_name)

  # From here on the output folder is ours; earlier runs in it must agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    # Texts become ids, once: later runs read the same feature files. A row that
    # cannot be read ends the run here, before there is a model.
    for dataset in data.sets:
      tagging_data.make_features(dataset, run.local_folder)
    # This also loads weights: those of --output_dir, or else of --model.
    run.make_model(
      create_model,
      functools.partial(predict, max_seq_length=settings.max_seq_length),
    )

    # bert/training/loop.py repeats the update of bert/training/step.py. On the
    # way, the scores of the evaluation set choose the best weights.
    if settings.do_train:
      run.train(make_loss(settings, data), lambda: evaluate(run))
    if settings.do_eval:
      write_evaluation(run)
    if settings.do_predict:
      write_predictions(run)


def main() -> None:
  """Runs the flags with the model of this file."""
  train_and_predict(fine_tuning.read_settings(TaggingSettings))


# The same from Python, see docs/python.md.
run = calls.make_run(main, TaggingSettings)


if __name__ == "__main__":
  program.run_program(main)
