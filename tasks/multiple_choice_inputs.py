"""Questions with choices as feature files, batches and probabilities."""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from inputs import feature_files
from tasks import multiple_choice
import tokenization
from training import prediction

# Changed whenever this program makes other features of the same input.
_FEATURES_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Options:
  """What shapes the features besides the data."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int


class Split(NamedTuple):
  """The features of a file of questions."""

  path: str
  features: feature_files.FeatureFile

  @property
  def num_choices(self) -> int:
    """The most choices of any question."""
    return self.features.facts["choices"]

  @property
  def is_labelled(self) -> bool:
    """Whether the right choices are known."""
    return self.features.facts["labelled"] > 0

  def examples(self) -> Iterator[multiple_choice.Example]:
    """Reads the questions again."""
    return multiple_choice.read_examples(self.path)

  def describe(self, index: int) -> str:
    """Returns where a question is from: "path:line"."""
    return next(itertools.islice(self.examples(), index, None)).place


def open_split(
  kind: str, path: str, options: Options, folder: str, needs_labels: bool
) -> Split:
  """Opens the features of a file, made now if need be, and says what it holds.

  Args:
    kind: "train", "eval" or "predict".
    path: of the file.
    options: what else shapes the features.
    folder: a local one, for the feature file.
    needs_labels: whether questions without a known answer are an error.

  Raises:
    ValueError: a row is wrong; only some of them, or none of those that need
      one, have a label.
  """
  made = os.path.join(folder, f"{kind}.tf_record")
  settings = {
    **dataclasses.asdict(options),
    "path": path,
    "version": _FEATURES_VERSION,
  }
  features, is_new = feature_files.open_or_make(
    made,
    feature_files.make_key(settings, [options.vocab_file, path]),
    functools.partial(_make_rows, path, options),
  )
  facts = features.facts
  if facts["unlabelled"] and (needs_labels or facts["labelled"]):
    raise ValueError(
      f"{facts['unlabelled']}: no label; {facts['labelled']:,} of "
      f"{len(features):,} examples have one"
    )
  print(
    f"{kind}: {len(features):,} examples of up to {facts['choices']} choices, "
    f"{np.mean(features.lengths):.1f} tokens in the longest on average, "
    f"{facts['cut']:,} cut to --max_seq_length={options.max_seq_length}; "
    f"{'wrote' if is_new else 'unchanged:'} {made}"
  )
  return Split(path, features)


def _make_rows(path, options, facts: dict[str, Any]):
  tokenizer = tokenization.FullTokenizer(
    options.vocab_file, options.do_lower_case
  )
  counts = [len(e.choices) for e in multiple_choice.read_examples(path)]
  facts.update(choices=max(counts), labelled=0, cut=0, unlabelled="")

  def count(examples):
    for example in examples:
      facts["labelled"] += example.label is not None
      if example.label is None:
        facts["unlabelled"] = facts["unlabelled"] or example.place
      yield example

  features = multiple_choice.make_features(
    count(multiple_choice.read_examples(path)),
    tokenizer,
    options.max_seq_length,
  )
  for index, feature in enumerate(features):
    facts["cut"] += feature.was_cut
    yield feature_files.Row(
      multiple_choice.encode_feature(
        feature, options.max_seq_length, facts["choices"]
      ),
      max(map(len, feature.input_ids)),
      index,
    )


def make_parser(
  max_seq_length: int,
  num_choices: int,
  vocab_size: int,
  type_vocab_size: int,
  is_static: bool,
):
  """Returns the function from serialized rows, string [B], to features.

  Args:
    max_seq_length, num_choices: what the rows were made with.
    vocab_size, type_vocab_size: the model's.
    is_static: whether to keep all padding.

  Returns:
    A function whose features are int32: input_ids, input_mask and segment_ids
    [B, C, S]; choice_mask [B, C]; label_ids [B, 1].
  """
  return feature_files.make_parser(
    [num_choices, max_seq_length],
    vocab_size,
    type_vocab_size,
    is_static,
    spec={
      "choice_mask": tf.io.FixedLenFeature([num_choices], tf.int64),
      "label_ids": tf.io.FixedLenFeature([1], tf.int64),
    },
  )


class Outputs(NamedTuple):
  """What a model says of a split, one row an example, and the truth."""

  probabilities: np.ndarray  # float32 [N, C]
  labels: np.ndarray  # int [N]; zeros where they are not known.


def predict_split(
  predictor: prediction.Predictor, split: Split, parse, order: list[np.ndarray]
) -> Outputs:
  """Computes the probabilities of the choices of every question.

  Args:
    predictor: returns logits, float [B, C], choice_mask and label_ids.
    split: what to predict.
    parse: from `make_parser`.
    order: the batches, by the indices of their rows.
  """
  results = feature_files.predict(predictor, split.features, order, parse)
  shares = multiple_choice.probabilities(
    results["logits"], results["choice_mask"]
  )
  return Outputs(shares, results["label_ids"][:, 0])
