"""Fine-tunes BERT to label words: named entities, parts of speech, any tags.

  python run_tagging.py --data_dir=conll2003 --model=$BERT \\
    --do_train=true --do_eval=true --do_predict=true --document_context=true \\
    --output_dir=/tmp/ner
"""

from cli import program, tagging_settings

TaggingSettings = tagging_settings.TaggingSettings

if __name__ == "__main__":
  program.start(TaggingSettings)

import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from cli import devices, fine_tuning, task_settings
import heads
import modeling
from tasks import feature_tagger, tagging, tagging_data, tagging_results

_ENDINGS = (".txt", ".conll", ".tsv", ".bio", ".bmes")


def create_model(
  config: modeling.EncoderConfig,
  data: fine_tuning.Data,
  dtype: str,
  settings: TaggingSettings,
) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns logits, float32
    [B, S, L].
  """
  num_labels = len(data.labels)
  if not settings.feature_based:
    return heads.TaggerModel(config, num_labels, dtype)
  layers, mixed = feature_tagger.read_feature_layers(
    settings.feature_layers, config.num_hidden_layers
  )
  return feature_tagger.FeatureTaggerModel(
    config, num_labels, dtype, layers, mixed, settings.lstm_size
  )


class WordLosses(NamedTuple):
  """The result of each token, [B, S]."""

  predicted: tf.Tensor  # int32, the likeliest label; -1 where no word begins.
  losses: tf.Tensor  # float32, cross entropies in nats; 0 where none is known.
  known: tf.Tensor  # int32, 1 where the model has the true label of a word.


def compute_losses(model, features, seed=None) -> WordLosses:
  """Compares the labels of a batch with the predictions."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)  # [B, S, L]
  mask, labels = features["label_mask"], features["label_ids"]
  last = logits.shape[-1] - 1
  known = mask * tf.cast(labels <= last, tf.int32)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    tf.minimum(labels, last), logits
  )
  predicted = tf.where(mask > 0, tf.argmax(logits, -1, tf.int32), -1)
  return WordLosses(predicted, losses * tf.cast(known, tf.float32), known)


def predict(model, features, max_seq_length: int) -> dict[str, tf.Tensor]:
  """Computes what `tagging_data.read_outputs` reads of a batch.

  Returns:
    predicted, int [B, max_seq_length], -1 where no word begins; the sums of
    losses and known of each row, [B].
  """
  predicted, losses, known = compute_losses(model, features)
  missing = max_seq_length - tf.shape(predicted)[1]
  padding = [[0, 0], [0, missing]]
  return {
    "predicted": tf.pad(predicted, padding, constant_values=-1),
    "losses": tf.reduce_sum(losses, 1),
    "known": tf.reduce_sum(known, 1),
  }


def loss_fn(model, features, seed):
  """Sums the losses over the words of a batch; see `loop.LossFn`."""
  _, losses, known = compute_losses(model, features, seed)
  weights = tf.cast(known, tf.float32)
  return {"tagging_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def find_files(settings: TaggingSettings) -> dict[str, tagging.Source]:
  """Checks the flags; returns the files that they ask for, by kind."""
  tagging_settings.check_features(settings)
  paths = task_settings.find_data_files(settings, _ENDINGS)
  return {
    kind: tagging.open_source(
      path,
      settings.token_column,
      settings.tag_column,
      settings.tag_scheme,
      needs_tags=kind != "predict",
    )
    for kind, path in paths.items()
  }


def open_data(
  settings: TaggingSettings, sources: dict[str, tagging.Source]
) -> fine_tuning.Data:
  """Finds the sentences and labels; nothing is written."""
  labels, scheme = tagging_data.choose_labels(
    sources.get("train"),
    task_settings.labels_file(settings),
    settings.tag_scheme,
    task_settings.initial_labels(settings.init_checkpoint),
  )
  for source in sources.values():
    tagging_data.check_scheme(source, scheme)
  features = tagging_data.FeatureSettings(
    vocab_file=settings.vocab_file,
    do_lower_case=settings.do_lower_case,
    max_seq_length=settings.max_seq_length,
    document_context=settings.document_context,
    labels=labels,
    scheme=scheme,
  )
  limit = settings.max_train_examples
  sets = {
    kind: tagging_data.find_set(kind, source, features, limit)
    for kind, source in sources.items()
  }
  known = tagging_results.metric_names(scheme)
  model = {"problem": "tagging", "label_scheme": scheme}
  model["feature_based"] = settings.feature_based
  if settings.feature_based:
    model["feature_layers"] = settings.feature_layers
    model["lstm_size"] = settings.lstm_size
  answers = {"document_context": settings.document_context}
  if "train" in sources:
    by_character = tagging_data.is_by_character(sources["train"])
    answers["by_character"] = by_character
  return fine_tuning.Data(
    features=features,
    metric=tagging_settings.choose_metric(settings, known),
    model_settings=model,
    train=sets.get("train"),
    dev=[sets["eval"]] if "eval" in sets else (),
    test=[sets["predict"]] if "predict" in sets else (),
    labels=labels,
    answer_settings=answers,
  )


def label_words(
  run: fine_tuning.Run, examples: tagging_data.TaggingSet, batch_size: int
) -> tagging_data.Outputs:
  """Predicts the labels of all words of a set."""
  return tagging_data.read_outputs(run.predict(examples, batch_size))


def evaluate(
  run: fine_tuning.Run, examples: tagging_data.TaggingSet
) -> tagging_results.Scores:
  """Scores the model on labelled words."""
  outputs = label_words(run, examples, run.settings.eval_batch_size)
  return tagging_data.score(examples, outputs)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  [examples] = run.data.dev
  outputs = label_words(run, examples, run.settings.eval_batch_size)
  if run.is_chief:
    scores = tagging_data.score(examples, outputs)
    run.write_eval_results(scores.metrics)
    write_scores(run, examples, outputs, scores)


def write_scores(run, examples, outputs, scores) -> None:
  """Writes and describes the scores of a set."""
  tagging_results.write_scores(run.folder, examples.kind, scores)
  labels = tagging_data.labels_by_sentence(examples, outputs)
  run.report_on(examples, tagging_results.describe, labels, scores)


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions, and their scores if the tags are known."""
  [examples] = run.data.test
  outputs = label_words(run, examples, run.settings.predict_batch_size)
  if not run.is_chief:
    return
  tagging_data.write_outputs(run.folder, examples, outputs)
  if examples.file.is_tagged:
    scores = tagging_data.score(examples, outputs)
    write_scores(run, examples, outputs, scores)


def model_functions(settings: TaggingSettings):
  """Returns the functions that make the model and predict with it."""
  return (
    functools.partial(create_model, settings=settings),
    functools.partial(predict, max_seq_length=settings.max_seq_length),
  )


def main() -> None:
  settings = task_settings.read(TaggingSettings)
  sources = find_files(settings)
  strategy = devices.make_strategy(settings)
  data = open_data(settings, sources)
  with fine_tuning.open_run(settings, data, strategy) as run:
    for examples in data.sets:
      tagging_data.make_features(examples, run.local_folder)
    run.make_model(*model_functions(settings))
    if settings.do_train:
      run.train(loss_fn, lambda: evaluate(run, data.dev[0]).metrics)
    if settings.do_eval:
      write_evaluation(run)
    if settings.do_predict:
      write_predictions(run)


if __name__ == "__main__":
  program.run_program(main)
