"""Questions with choices as feature files and batches."""

from collections.abc import Iterator
import functools
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from inputs import feature_files
from tasks import multiple_choice

# Takes kind, path, settings and the most examples to train on.
find_set = functools.partial(
  feature_files.find_set, multiple_choice.read_examples
)


def make_features(data: feature_files.FeatureSet, folder: str) -> None:
  """Makes the features of a set, or finds them; a ValueError if labels lack."""
  counts = {"choices": 0, "labelled": 0, "cut": 0, "unlabelled": ""}
  rows = _make_rows(data, counts)
  features = feature_files.open_or_make(data, folder, rows, counts)
  counts, length = features.counts, data.settings.max_seq_length
  num_choices = counts["choices"]  # The most of any question.
  data.layout = feature_files.Layout(
    (num_choices, length),
    others={
      "choice_mask": tf.io.FixedLenFeature([num_choices], tf.int64),
      "label_ids": tf.io.FixedLenFeature([1], tf.int64),
    },
  )
  feature_files.print_summary(
    features,
    f"{data.kind}: {len(features):,} examples of up to {num_choices} choices, "
    f"{np.mean(features.lengths):.1f} tokens in the longest on average, "
    f"{counts['cut']:,} truncated to --max_seq_length={length}",
  )
  needs_labels = data.kind != "predict"
  if counts["unlabelled"] and (needs_labels or counts["labelled"]):
    raise ValueError(
      f"{counts['unlabelled']}: no label; {counts['labelled']:,} of "
      f"{len(features):,} examples have one"
    )


def _make_rows(
  data: feature_files.FeatureSet, counts: dict[str, Any]
) -> Iterator[feature_files.Row]:
  """Reads the questions and yields their rows."""
  length = data.settings.max_seq_length
  examples = itertools.islice(data.read(), data.limit)
  counts["choices"] = max(len(example.choices) for example in examples)
  features = multiple_choice.make_features(
    itertools.islice(data.read(), data.limit), data.make_tokenizer(), length
  )
  for index, feature in enumerate(features):
    counts["cut"] += feature.was_cut
    counts["labelled"] += feature.label is not None
    if feature.label is None:
      counts["unlabelled"] = counts["unlabelled"] or feature.location
    serialized = multiple_choice.encode_feature(
      feature, length, counts["choices"]
    )
    longest = max(map(len, feature.input_ids))
    yield feature_files.Row(serialized, longest, index)
