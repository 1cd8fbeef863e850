"""A classification task as feature files, batches and rows of logits.

The files are the original's: `train.tf_record`, `eval.tf_record` and
`predict.tf_record` in the output folder. They are made again when anything that
shapes them has changed: the data, the vocabulary or a flag.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import itertools
import os
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data import files
from data import label_files
from inputs import feature_files
from tasks import classification
from tasks import classification_results


@dataclasses.dataclass(frozen=True)
class Settings(feature_files.Settings):
  """What shapes the features besides the data."""

  doc_stride: int | None  # None: long texts are truncated.
  label_separator: str
  labels: tuple[str, ...]
  problem: str  # One of classification.PROBLEMS.

  @property
  def num_outputs(self) -> int:
    """The number of logits: of labels, or 1 for regression."""
    return max(1, len(self.labels))


@dataclasses.dataclass(frozen=True)
class Split(feature_files.Split):
  """The features of one set of examples; its source are tables."""

  name: str = ""  # Such as "matched".
  suffix: str = ""  # Such as "_mismatched".
  version = 2

  @property
  def file_name(self) -> str:
    """The name of the feature file."""
    return f"{self.kind}{self.suffix}.tf_record"

  def sources(self) -> tuple[dict[str, Any], list[str]]:
    tables = [table._asdict() for table in self.source]
    return {"tables": tables}, [table.path for table in self.source]

  def read(self) -> Iterator[classification.Example]:
    return _read_tables(self.source)

  def describe_features(self, features) -> list[str]:
    facts = features.facts
    windows = f" in {len(features):,} windows" * bool(self.settings.doc_stride)
    return [
      f"{self.kind} ({self.name}): {facts['examples']:,} examples{windows}, "
      f"{np.mean(features.lengths):.1f} tokens on average, {facts['cut']:,} "
      f"truncated to --max_seq_length={self.settings.max_seq_length}"
    ]

  @property
  def layout(self) -> feature_files.Layout:
    """What a row of the features holds."""
    is_multi_label = self.settings.problem == "multi_label"
    is_regression = self.settings.problem == "regression"
    label_ids = tf.io.FixedLenFeature(
      [self.settings.num_outputs if is_multi_label else 1],
      tf.float32 if is_regression else tf.int64,
    )
    shape = (self.settings.max_seq_length,)
    return feature_files.Layout(shape, others={"label_ids": label_ids})

  def groups(self) -> list[str]:
    """Returns the group of each example; nothing if there are no groups."""
    if self.source[0].group is None:
      return []
    return [example.group or "" for example in self.examples()]

  def make_rows(self, facts: dict[str, Any]) -> Iterator[feature_files.Row]:
    settings = self.settings
    encode_label = classification.make_label_encoder(
      settings.labels, settings.problem, settings.label_separator
    )
    facts.update(examples=0, cut=0, labelled=0)
    dtype = np.float64 if settings.problem == "regression" else np.int64
    label_sums = np.zeros(settings.num_outputs, dtype)

    def count(examples):
      for example in examples:
        facts["examples"] += 1
        facts["labelled"] += example.label is not None
        yield example

    length, last = settings.max_seq_length, -1
    for feature in classification.make_features(
      count(self.examples()),
      self.make_tokenizer(),
      encode_label,
      length,
      settings.doc_stride,
    ):
      index = feature.example_index
      facts["cut"] += feature.was_cut and index != last  # Once, of its windows.
      last = index
      if settings.problem == "single_label":
        label_sums[feature.label] += 1
      else:
        label_sums += feature.label
      serialized = classification.encode_feature(feature, length)
      yield feature_files.Row(serialized, len(feature.input_ids), index)
    facts["label_sums"] = label_sums.tolist()
    # A multi-label example may have no labels.
    is_partial = 0 < facts["labelled"] < facts["examples"]
    if is_partial and settings.problem != "multi_label":
      raise ValueError(
        f"{', '.join(self.sources()[1])}: only {facts['labelled']} of "
        f"{facts['examples']} examples have a label"
      )


def find_splits(
  task: classification.Task,
  kind: str,
  settings: Settings,
  folder: str,
  max_train_examples: int | None = None,
) -> tuple[Split, ...]:
  """Returns the sets of examples of a kind that a task has."""
  sets = {
    "train": [("train", task.train)] if task.train else [],
    "eval": [(name, (table,)) for name, table in task.dev],
    "predict": [(name, (table,)) for name, table in task.test],
  }[kind]
  if not sets:
    raise ValueError(
      f"--do_{kind}: the task has no such data; pass --{kind}_file or "
      "--data_dir"
    )
  # The first one's files have the names of the original, which had only one.
  common = (settings, folder, max_train_examples)
  return tuple(
    Split(kind, tables, *common, name=name, suffix=f"_{name}" * (i > 0))
    for i, (name, tables) in enumerate(sets)
  )


def _read_tables(tables):
  return itertools.chain.from_iterable(
    map(classification.read_examples, tables)
  )


def choose_labels(
  task: classification.Task,
  labels_file: str,
  given: Sequence[str],
  separator: str,
  initial: Sequence[str] = (),
) -> tuple[str, ...]:
  """Returns the labels of a task, in the order of the head's outputs.

  They are those of an earlier run, else those given by the user, else those of
  the task, else those found in the training data; see `label_files.choose`.
  """
  if task.problem == "regression":
    if given:
      raise ValueError("--labels: a regression has none")
    return ()
  labels = tuple(given) or task.labels
  if not labels and task.train and not files.exists(labels_file):
    examples = _read_tables(task.train)
    labels = classification.find_labels(examples, task.problem, separator)
  return label_files.choose(
    labels_file,
    labels,
    "the task's or those of --labels",
    initial,
    bool(given),
    "--labels",
  )


class Outputs(NamedTuple):
  """What a model says of a split, one row an example, and the truth."""

  logits: np.ndarray  # float32 [N, L]
  targets: np.ndarray  # See classification_results; zeros where not known.


def pool_outputs(
  split: Split, results: dict[str, np.ndarray], pooling: str
) -> Outputs:
  """Makes one row an example, in the order of the files.

  Args:
    results: logits and label_ids of its rows, from the model.
    pooling: of the windows of a text, "mean" or "max".
  """
  windows_of, targets = split.features.examples, results["label_ids"]
  targets = targets[np.flatnonzero(np.diff(windows_of, prepend=-1))]
  if split.settings.problem != "multi_label":
    targets = targets[:, 0]
  logits = classification_results.pool_windows(
    results["logits"], windows_of, pooling
  )
  return Outputs(logits, targets)


def write_answers(
  folder: str,
  split: Split,
  answers: classification_results.Answers,
  ending: str,
) -> None:
  """Writes the predictions of a split: the original's file, a readable one."""
  split.check_unchanged()
  path = os.path.join(folder, f"predictions{split.suffix}.{ending}")
  has_pairs = any(table.text_pair is not None for table in split.source)
  classification_results.write_predictions(
    path,
    split.examples(),
    answers,
    ["text_pair"] * has_pairs + ["label"] * split.is_labelled,
    split.settings.label_separator,
  )
  print(f"wrote {path}")
  other = "jsonl" if ending == "tsv" else "tsv"  # Of an earlier prediction.
  files.remove(os.path.join(folder, f"predictions{split.suffix}.{other}"))
  path = os.path.join(folder, f"test_results{split.suffix}.tsv")
  classification_results.write_test_results(path, answers.scores)
  print(f"wrote {path}")
