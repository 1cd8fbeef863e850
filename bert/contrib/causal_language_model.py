"""A causal language model of lines of text as a task of run_multitask.py."""

from collections.abc import Iterator, Mapping
import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert import heads
from bert.cli import fine_tuning, model_folder, shared_flags
from bert.contrib import shared_tasks
from bert.data import files, record_writer
from bert.inputs import feature_files, feature_sets, held_out, records

_METRICS = ("accuracy", "loss", "perplexity")


class Text(NamedTuple):
  """A line of text."""

  text: str
  location: str  # "path:number".


def prepare(settings: shared_flags.DataSettings) -> shared_tasks.SharedTask:
  """Checks the flags of a causal language model, and its encoder."""
  metric = shared_flags.choose_metric(settings.best_metric, _METRICS)
  paths = shared_flags.find_data_files(settings, (".txt",), predicts=False)

  # An encoder that reads to the right has seen the token that it shall guess.
  if model_folder.read_config(settings).is_bidirectional:
    raise ValueError("causal_lm needs a config with causal_attention: true")

  def open_data():
    features = feature_sets.FeatureSettings(**settings.deciding("features"))
    limit = settings.max_train_examples
    sets = {
      kind: feature_sets.find_set(_read_texts, kind, path, features, limit)
      for kind, path in paths.items()
    }

    # --eval_share: a part of the training file is evaluated instead of trained.
    # Equal lines stay together, so that none is in both parts.
    if settings.eval_share and "train" in sets:
      sets["train"], sets["eval"] = held_out.split(
        sets["train"],
        settings.eval_share,
        settings.seed,
        lambda text: ((), text.text),
      )

    return fine_tuning.Data(
      feature_settings=features,
      metric=metric,
      model_settings={"problem": "causal_lm"},
      has_export=False,
      train=sets["train"] if settings.do_train else None,
      dev=[sets["eval"]] if "eval" in sets else (),
    )

  def evaluate(run):
    return score(run.predict(run.data.dev[0], settings.eval_batch_size))

  return shared_tasks.SharedTask(
    settings=settings,
    open_data=open_data,
    make_features=make_features,
    create_model=create_model,
    forward=forward,
    predict=predict,
    make_loss=lambda run: loss,
    evaluate=evaluate,
    write_evaluation=functools.partial(shared_tasks.write_scores, evaluate),
  )


def _read_texts(path: str) -> Iterator[Text]:
  for number, text in enumerate(files.read_lines(path), 1):
    if text.strip():
      yield Text(text, f"{path}:{number}")


def make_features(data: feature_sets.FeatureSet, folder: str) -> None:
  """Makes the features of lines, or of their parts, or finds them."""
  # `_make_rows` is a generator: the count is complete when it has been read.
  facts = {"lines": 0}
  rows = _make_rows(data, facts)
  features = data.open_or_make(folder, rows, facts)
  data.layout = feature_sets.Layout((data.settings.max_seq_length,))
  features.print_summary(
    f"{data.kind}: {len(features):,} inputs of {features.facts['lines']:,} "
    f"lines, {np.mean(features.lengths):.1f} tokens on average"
  )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  tokenizer = data.make_tokenizer()
  length = data.settings.max_seq_length
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for index, line in enumerate(data.select(data.read())):
    facts["lines"] += 1
    ids = tokenizer.encode(line.text)

    # A long line becomes several rows. Nothing is cut off: every token counts
    # in the perplexity. Two places of a row are for [CLS] and [SEP].
    for start in range(0, len(ids), length - 2):
      row = [cls_id, *ids[start : start + length - 2], sep_id]
      serialized = record_writer.encode_inputs([row], [[]], length)
      yield feature_files.Row(serialized, len(row), index)


def create_model(config, data, dtype) -> heads.PretrainingModel:
  """Makes the model, of which the pooler and its head are not trained."""
  model = heads.PretrainingModel(config, dtype)
  model.freeze_next_sentence()
  return model


def forward(model, features, seed) -> tf.Tensor:
  """Guesses each token from those before it: logits, float32 [B, S - 1, V]."""
  ids, mask, segments = (features[name] for name in records.INPUT_NAMES)

  # The head of the masked LM, at all positions but the last: the output at
  # position i is the guess of token i + 1. [B, S - 1].
  before = tf.zeros_like(ids[:, 1:]) + tf.range(tf.shape(ids)[1] - 1)
  return model(ids, mask, segments, before, seed).masked_lm_logits


def predict(logits, features) -> dict[str, tf.Tensor]:
  """Compares each token with the prediction from those before it.

  Returns losses, in nats, correct and tokens, all float32 [B], sums over the
  tokens of a row after [CLS].
  """
  following = features["input_ids"][:, 1:]
  losses = heads.token_losses(following, logits)
  correct = tf.cast(tf.argmax(logits, -1, tf.int32) == following, tf.float32)

  # [SEP] counts as a token to guess, padding does not.
  is_token = tf.cast(features["input_mask"][:, 1:], tf.float32)
  return {
    "losses": tf.reduce_sum(losses * is_token, -1),
    "correct": tf.reduce_sum(correct * is_token, -1),
    "tokens": tf.reduce_sum(is_token, -1),
  }


def loss(logits, features):
  """Sums the losses over a batch; see `training_plan.Loss`."""
  rows = predict(logits, features)
  sums = {name: tf.reduce_sum(values) for name, values in rows.items()}
  return {
    "causal_lm_loss": (sums["losses"], sums["tokens"]),
    "causal_lm_accuracy": (sums["correct"], sums["tokens"]),
  }


def score(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
  """Makes scores of the results of `predict`.

  The loss is the mean over all tokens, in nats; perplexity is exp(loss).

  >>> rows = {"losses": [2.0, 1.0], "correct": [1, 1], "tokens": [1, 2]}
  >>> score(rows)["loss"]
  1.0
  """
  # In float32, a sum over millions of tokens would lose digits.
  sums = {k: float(np.sum(v, dtype=np.float64)) for k, v in rows.items()}
  mean = sums["losses"] / sums["tokens"]
  return {
    "accuracy": sums["correct"] / sums["tokens"],
    "loss": mean,
    # From 710 on, exp(mean) is too large for a float, and `exp` raises.
    "perplexity": math.exp(min(mean, 700.0)),
  }
