"""Fine-tunes BERT to label words: named entities, parts of speech, any tags.

  python run_tagging.py --data_dir=conll2003 --model=$BERT \\
    --do_train=true --do_eval=true --do_predict=true --document_context=true \\
    --output_dir=/tmp/ner
"""

from absl import flags

from cli import fine_tuning_flags
from cli import program
from tasks import tagging

# The layers and the LSTMs of the paper's table 7.
LAST_LAYERS, LSTM_SIZE = ("-4", "-3", "-2", "-1"), 768


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  fine_tuning_flags.define_data_flags()
  for name, default, text in (
    ("token_column", 0, "The column of the word, from 0."),
    ("tag_column", -1, "The column of the tag; -1 is the last."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=default)
  for name, choices, text in (
    (
      "tag_scheme",
      ["auto", *tagging.SCHEMES, tagging.NO_SCHEME],
      "How tags mark entities. auto: detected in each file. none: they mark "
      "none, as parts of speech; scores are then those of words.",
    ),
    (
      "predict_format",
      tagging.FORMATS,
      "Of the file to predict. conll: as the others; it is scored too, if it "
      "has more than the words. untagged: the same without tags. text: a "
      "sentence a line, split into words. characters: the same, split into "
      "characters; given in training, exports split texts so, too.",
    ),
  ):
    flags.DEFINE_enum(name, choices[0], choices, text)
  for name, text in (
    (
      "document_context",
      "Whether to fill inputs up with the neighbouring sentences of the "
      "document.",
    ),
    (
      "feature_based",
      "Whether to freeze BERT and to train a BiLSTM on its layers.",
    ),
  ):
    flags.DEFINE_bool(name, False, text)
  flags.DEFINE_list(
    "feature_layers",
    list(LAST_LAYERS),
    "With --feature_based: the layers whose outputs are concatenated; -1 is "
    "the last one, 0 the embeddings. mix before them sums them, with learned "
    "weights, and mix alone is that of all.",
  )
  flags.DEFINE_integer(
    "lstm_size",
    LSTM_SIZE,
    "With --feature_based: units of the two LSTMs in each direction.",
    lower_bound=1,
  )


if __name__ == "__main__":
  program.start(define_flags)

import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from cli import devices
from cli import fine_tuning
from cli import flag_values
import heads
import modeling
from tasks import feature_tagger
from tasks import tagging_inputs
from tasks import tagging_results

_ENDINGS = (".txt", ".conll", ".tsv", ".bio", ".bmes")


def create_model(
  config: modeling.EncoderConfig,
  num_labels: int,
  dtype: str,
  settings: flag_values.Settings,
) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns logits, float32
    [B, S, L].
  """
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
  """Computes what `tagging_inputs.read_outputs` reads of a batch.

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


def find_sources(settings: flag_values.Settings) -> dict[str, tagging.Source]:
  """Returns the files that the flags ask for, by kind."""
  paths = fine_tuning.find_data_files(settings, _ENDINGS)
  return {
    kind: tagging.open_source(
      path,
      settings.predict_format if kind == "predict" else "conll",
      settings.token_column,
      settings.tag_column,
      settings.tag_scheme,
      needs_tags=kind != "predict",
    )
    for kind, path in paths.items()
  }


def open_inputs(
  settings: flag_values.Settings,
  folder: str,
  sources: dict[str, tagging.Source],
) -> fine_tuning.Inputs:
  """Finds the data of a run; see `fine_tuning.open_run`."""
  labels, scheme = tagging_inputs.choose_labels(
    sources.get("train"),
    fine_tuning.labels_file(settings.output_dir),
    settings.tag_scheme,
    fine_tuning.initial_labels(settings),
  )
  for source in sources.values():
    tagging_inputs.check_scheme(source, scheme)
  shape = flag_values.fill(
    tagging_inputs.Settings, settings, labels=labels, scheme=scheme
  )
  limit = settings.max_train_examples
  splits = {
    kind: tagging_inputs.Split(kind, source, shape, folder, limit)
    for kind, source in sources.items()
  }
  known = tagging_results.metric_names(scheme)
  names = ["feature_based"]
  if settings.feature_based:
    names += ["feature_layers", "lstm_size"]
  of_model = {name: getattr(settings, name) for name in names}
  of_prediction = {"document_context": settings.document_context}
  if settings.do_train or settings.predict_format in ("text", "characters"):
    by_character = settings.predict_format == "characters"
    of_prediction["by_character"] = by_character
  return fine_tuning.Inputs(
    shape,
    fine_tuning.best_metric(settings, known[0], known),
    {"problem": "tagging", "label_scheme": scheme, **of_model},
    splits.get("train"),
    [splits["eval"]] if "eval" in splits else (),
    [splits["predict"]] if "predict" in splits else (),
    labels,
    prediction_settings=of_prediction,
  )


def label_words(
  run: fine_tuning.Run, split: tagging_inputs.Split, batch_size: int
) -> tagging_inputs.Outputs:
  """Predicts the labels of all words of a split."""
  return tagging_inputs.read_outputs(run.predict(split, batch_size))


def evaluate(run: fine_tuning.Run) -> tagging_results.Scores:
  """Scores the model on the evaluation data."""
  [split] = run.inputs.eval
  outputs = label_words(run, split, run.settings.eval_batch_size)
  return tagging_inputs.score(split, outputs)


def write_evaluation(run: fine_tuning.Run) -> None:
  """Scores the model, prints and writes the scores."""
  [split] = run.inputs.eval
  outputs = label_words(run, split, run.settings.eval_batch_size)
  if run.is_chief:
    scores = tagging_inputs.score(split, outputs)
    run.write_eval_results(scores.metrics)
    write_scores(run, split, outputs, scores)


def write_scores(run, split, outputs, scores) -> None:
  """Writes and describes the scores of a split."""
  tagging_results.write_scores(run.folder, split.kind, scores)
  labels = tagging_inputs.labels_by_sentence(split, outputs)
  run.report_on(split, tagging_results.describe, labels, scores)


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the predictions, and their scores if the tags are known."""
  [split] = run.inputs.predict
  outputs = label_words(run, split, run.settings.predict_batch_size)
  if not run.is_chief:
    return
  tagging_inputs.write_outputs(run.folder, split, outputs)
  if split.source.is_tagged:
    scores = tagging_inputs.score(split, outputs)
    write_scores(run, split, outputs, scores)


def finish(run: fine_tuning.Run) -> None:
  """Evaluates and predicts as flags say."""
  if run.settings.do_eval:
    write_evaluation(run)
  if run.settings.do_predict:
    write_predictions(run)


def check_features(settings: flag_values.Settings) -> None:
  """Refuses flags that a model with a frozen BERT, or another, passes over."""
  given = tuple(settings.feature_layers), settings.lstm_size
  if not settings.feature_based and given != (LAST_LAYERS, LSTM_SIZE):
    raise ValueError("--feature_layers and --lstm_size need --feature_based")
  freezes = str(settings.freeze_layers), settings.layerwise_lr_decay
  if settings.feature_based and freezes != ("0", 1.0):
    raise ValueError(
      "--feature_based freezes BERT as a whole: leave out --freeze_layers and "
      "--layerwise_lr_decay"
    )


def make_recipe(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of the flags; see `fine_tuning.follow`.

  Raises:
    ValueError: there is nothing to do, or a file is missing or wrong.
  """
  check_features(settings)
  return fine_tuning.Recipe(
    settings,
    functools.partial(open_inputs, sources=find_sources(settings)),
    lambda config, inputs, dtype: create_model(
      config, len(inputs.labels), dtype, settings
    ),
    functools.partial(predict, max_seq_length=settings.max_seq_length),
    lambda run: loss_fn,
    lambda run: evaluate(run).metrics,
    finish,
  )


def main() -> None:
  recipe = make_recipe(fine_tuning.read_settings())
  fine_tuning.follow(recipe, devices.make_strategy(recipe.settings))


if __name__ == "__main__":
  program.run_program(main)
