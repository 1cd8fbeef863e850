"""Questions with choices as feature files and batches."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from inputs import feature_files
from tasks import multiple_choice


class Split(feature_files.Split):
  """The features of a file of questions."""

  def read(self) -> Iterator[multiple_choice.Example]:
    return multiple_choice.read_examples(self.source)

  def describe_features(self, features) -> list[str]:
    facts = features.facts
    return [
      f"{self.kind}: {len(features):,} examples of up to {facts['choices']} "
      f"choices, {np.mean(features.lengths):.1f} tokens in the longest on "
      f"average, {facts['cut']:,} truncated to "
      f"--max_seq_length={self.settings.max_seq_length}"
    ]

  def check_features(self, features) -> None:
    """Raises a ValueError if only some have a label, or none that need one."""
    facts = features.facts
    needs_labels = self.kind != "predict"
    if facts["unlabelled"] and (needs_labels or facts["labelled"]):
      raise ValueError(
        f"{facts['unlabelled']}: no label; {facts['labelled']:,} of "
        f"{len(features):,} examples have one"
      )

  @property
  def layout(self) -> feature_files.Layout:
    """What a row of the features holds, each a question."""
    count = self.features.facts["choices"]  # The most of any question.
    return feature_files.Layout(
      (count, self.settings.max_seq_length),
      others={
        "choice_mask": tf.io.FixedLenFeature([count], tf.int64),
        "label_ids": tf.io.FixedLenFeature([1], tf.int64),
      },
    )

  def make_rows(self, facts: dict[str, Any]) -> Iterator[feature_files.Row]:
    length = self.settings.max_seq_length
    counts = [len(example.choices) for example in self.examples()]
    facts.update(choices=max(counts), labelled=0, cut=0, unlabelled="")

    def count(examples):
      for example in examples:
        facts["labelled"] += example.label is not None
        if example.label is None:
          facts["unlabelled"] = facts["unlabelled"] or example.place
        yield example

    features = multiple_choice.make_features(
      count(self.examples()), self.make_tokenizer(), length
    )
    for index, feature in enumerate(features):
      facts["cut"] += feature.was_cut
      yield feature_files.Row(
        multiple_choice.encode_feature(feature, length, facts["choices"]),
        max(map(len, feature.input_ids)),
        index,
      )
