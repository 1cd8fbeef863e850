"""Questions with choices as feature files, batches and probabilities."""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import os
from typing import Any

import numpy as np
import tensorflow as tf

from inputs import feature_files
from tasks import multiple_choice
import tokenization

# Changed whenever this program makes other features of the same input.
_FEATURES_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Settings:
  """What shapes the features besides the data."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int


@dataclasses.dataclass(frozen=True)
class Split(feature_files.LazySplit):
  """The features of a file of questions."""

  kind: str  # "train", "eval" or "predict".
  path: str
  settings: Settings
  folder: str  # A local one, for the feature file.
  max_train_examples: int | None = None  # The first ones; None: all.

  def shaped_by(self) -> tuple[dict[str, Any], list[str]]:
    settings = {
      **dataclasses.asdict(self.settings),
      "path": self.path,
      "version": _FEATURES_VERSION,
      **feature_files.limit_key(self.limit),
    }
    return settings, [self.settings.vocab_file, self.path]

  @functools.cached_property
  def features(self) -> feature_files.FeatureFile:
    """The feature file, made when it is first asked for if need be.

    Raises:
      ValueError: a row is wrong; only some of them, or none of those to learn
        or evaluate, have a label.
    """
    path = os.path.join(self.folder, f"{self.kind}.tf_record")
    features, is_new = feature_files.open_or_make(
      path, self.key, functools.partial(_make_rows, self)
    )
    facts = features.facts
    needs_labels = self.kind != "predict"
    if facts["unlabelled"] and (needs_labels or facts["labelled"]):
      raise ValueError(
        f"{facts['unlabelled']}: no label; {facts['labelled']:,} of "
        f"{len(features):,} examples have one"
      )
    print(
      f"{self.kind}: {len(features):,} examples of up to {facts['choices']} "
      f"choices, {np.mean(features.lengths):.1f} tokens in the longest on "
      f"average, {facts['cut']:,} cut to "
      f"--max_seq_length={self.settings.max_seq_length}; "
      f"{'wrote' if is_new else 'unchanged:'} {path}"
    )
    return features

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

  @property
  def is_labelled(self) -> bool:
    """Whether the right choices are known."""
    return self.features.facts["labelled"] > 0

  def examples(self) -> Iterator[multiple_choice.Example]:
    """Reads the questions again.

    Raises:
      ValueError: the file has changed since it was first read.
    """
    examples = multiple_choice.read_examples(self.path)
    yield from itertools.islice(examples, self.limit)
    self.check_unchanged()

  def describe(self, index: int) -> str:
    """Returns where a question is from: "path:line"."""
    return next(itertools.islice(self.examples(), index, None)).place


def _make_rows(split, facts: dict[str, Any]):
  settings = split.settings
  tokenizer = tokenization.FullTokenizer(
    settings.vocab_file, settings.do_lower_case
  )
  counts = [len(example.choices) for example in split.examples()]
  facts.update(choices=max(counts), labelled=0, cut=0, unlabelled="")

  def count(examples):
    for example in examples:
      facts["labelled"] += example.label is not None
      if example.label is None:
        facts["unlabelled"] = facts["unlabelled"] or example.place
      yield example

  features = multiple_choice.make_features(
    count(split.examples()),
    tokenizer,
    settings.max_seq_length,
  )
  for index, feature in enumerate(features):
    facts["cut"] += feature.was_cut
    yield feature_files.Row(
      multiple_choice.encode_feature(
        feature, settings.max_seq_length, facts["choices"]
      ),
      max(map(len, feature.input_ids)),
      index,
    )
