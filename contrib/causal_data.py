"""Lines of text for a causal language model: features, losses and scores."""

from collections.abc import Iterator, Mapping
import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data import files, record_writer
from inputs import feature_files

METRICS = ("accuracy", "loss", "perplexity")


class Text(NamedTuple):
  """A line of text."""

  text: str
  location: str  # "path:number".


def _read_texts(path: str) -> Iterator[Text]:
  for number, text in enumerate(files.read_lines(path), 1):
    if text.strip():
      yield Text(text, f"{path}:{number}")


# Takes kind, path, settings and the most lines to train on.
find_set = functools.partial(feature_files.find_set, _read_texts)


def make_features(data: feature_files.FeatureSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  Each row is a line or a part of one.
  """
  counts = {"lines": 0}
  rows = _make_rows(data, counts)
  features = feature_files.open_or_make(data, folder, rows, counts)
  data.layout = feature_files.Layout((data.settings.max_seq_length,))
  feature_files.print_summary(
    features,
    f"{data.kind}: {len(features):,} inputs of {features.counts['lines']:,} "
    f"lines, {np.mean(features.lengths):.1f} tokens on average",
  )


def _make_rows(
  data: feature_files.FeatureSet, counts: dict[str, Any]
) -> Iterator[feature_files.Row]:
  tokenizer, length = data.make_tokenizer(), data.settings.max_seq_length
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for index, line in enumerate(itertools.islice(data.read(), data.limit)):
    counts["lines"] += 1
    ids = tokenizer.encode(line.text)
    for start in range(0, len(ids), length - 2):
      part = ids[start : start + length - 2]
      row = [cls_id, *part, sep_id]
      segments = [0] * len(row)
      serialized = record_writer.encode_inputs(row, segments, length)
      yield feature_files.Row(serialized, len(row), index)


def compare(model, features, seed=None) -> dict[str, tf.Tensor]:
  """Compares each token with the prediction from those before it.

  Args:
    model: a `heads.PretrainingModel` whose encoder is causal.
    features: of lines of text, int32 [B, S].

  Returns:
    losses, in nats, correct and tokens, all float32 [B], sums over the tokens
    of a row after [CLS].
  """
  names = ("input_ids", "input_mask", "segment_ids")
  ids, mask, segments = map(features.get, names)
  before = tf.zeros_like(ids[:, 1:]) + tf.range(tf.shape(ids)[1] - 1)
  logits = model(ids, mask, segments, before, seed).masked_lm_logits
  following = ids[:, 1:]
  weights = tf.cast(mask[:, 1:], tf.float32)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(following, logits)
  correct = tf.cast(tf.argmax(logits, -1, tf.int32) == following, tf.float32)
  return {
    "losses": tf.reduce_sum(losses * weights, -1),
    "correct": tf.reduce_sum(correct * weights, -1),
    "tokens": tf.reduce_sum(weights, -1),
  }


def loss_fn(model, features, seed):
  """Sums the losses over a batch; see `training_plan.LossFn`."""
  sums = {
    k: tf.reduce_sum(v) for k, v in compare(model, features, seed).items()
  }
  return {
    "causal_lm_loss": (sums["losses"], sums["tokens"]),
    "causal_lm_accuracy": (sums["correct"], sums["tokens"]),
  }


def score(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
  """Makes scores of the results of `compare`.

  >>> rows = {"losses": [2.0, 1.0], "correct": [1, 1], "tokens": [1, 2]}
  >>> score(rows)["loss"]
  1.0
  """
  losses, correct, tokens = (
    float(np.sum(rows[name], dtype=np.float64))
    for name in ("losses", "correct", "tokens")
  )
  loss = losses / tokens
  return {
    "accuracy": correct / tokens,
    "loss": loss,
    "perplexity": math.exp(min(loss, 700.0)),
  }
