"""A classification task as feature files, batches and rows of logits.

The files are the original's: `train.tf_record`, `eval.tf_record` and
`predict.tf_record` in the output folder. They are made again when anything that
shapes them has changed: the data, the vocabulary or a flag.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
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
  doc_stride: int | None  # None: long texts are cut.
  label_separator: str
  labels: tuple[str, ...]
  problem: str  # One of classification.PROBLEMS.

  @property
  def num_outputs(self) -> int:
    """The number of logits: of labels, or 1 for regression."""
    return max(1, len(self.labels))


class Split(NamedTuple):
  """The features of one set of examples."""

  name: str  # Such as "matched".
  suffix: str  # What the names of files about it end in: "_mismatched".
  tables: tuple[classification.Table, ...]
  features: feature_files.FeatureFile
  problem: str  # One of classification.PROBLEMS.
  has_labels: bool

  def examples(self) -> Iterator[classification.Example]:
    """Reads the examples again, from their files."""
    return _read_tables(self.tables)

  def describe(self, index: int) -> str:
    """Says where an example, by its number from 0, is from."""
    return next(itertools.islice(self.examples(), index, None)).place

  def groups(self) -> list[str]:
    """Returns the group of each example; nothing if there are no groups."""
    if self.tables[0].group is None:
      return []
    return [example.group or "" for example in self.examples()]


def _read_tables(tables):
  return itertools.chain.from_iterable(
    map(classification.read_examples, tables)
  )


def choose_labels(
  task: classification.Task,
  labels_file: str,
  given: Sequence[str],
  separator: str,
) -> tuple[str, ...]:
  """Returns the labels of a task, in the order of the head's outputs.

  They are the task's own, else those of an earlier run, else those given, else
  those found in the training data.

  Args:
    task: what is to be learned.
    labels_file: where an earlier run left them.
    given: by the user; empty to find them out.
    separator: of the labels of one example, for "multi_label".

  Raises:
    ValueError: there is no way to know them, or two that contradict.
  """
  if task.problem == "regression":
    return ()
  known = tuple(task.labels)
  if files.exists(labels_file):
    known = tuple(label_files.read(labels_file))
    fixed = tuple(given) or task.labels
    if fixed and fixed != known:
      raise ValueError(
        f"{labels_file} has the labels {', '.join(known)}; the task's or those "
        f"of --labels are {', '.join(fixed)}: use another --output_dir"
      )
  known = known or tuple(given)
  if known:
    return known
  if not task.train:
    raise ValueError(
      f"no {labels_file} and no training file: the labels are unknown; pass "
      "--labels or the --output_dir of a training"
    )
  return tuple(
    classification.find_labels(
      _read_tables(task.train), task.problem, separator
    )
  )


def open_split(
  kind: str,
  name: str,
  suffix: str,
  tables: tuple[classification.Table, ...],
  options: Options,
  folder: str,
) -> Split:
  """Opens the features of a set of examples, made now if need be.

  Args:
    kind: "train", "eval" or "predict".
    name: of the set.
    suffix: of the names of files about it.
    tables: its files.
    options: what else shapes the features.
    folder: a local one, for the feature file.
  """
  path = os.path.join(folder, f"{kind}{suffix}.tf_record")
  settings = {
    **dataclasses.asdict(options),
    "tables": [table._asdict() for table in tables],
    "version": _FEATURES_VERSION,
  }
  paths = [options.vocab_file, *(table.path for table in tables)]
  features, is_new = feature_files.open_or_make(
    path,
    feature_files.make_key(settings, paths),
    functools.partial(_make_rows, tables, options),
  )
  facts = features.facts
  windows = f" in {len(features):,} windows" if options.doc_stride else ""
  print(
    f"{kind} ({name}): {facts['examples']:,} examples{windows}, "
    f"{np.mean(features.lengths):.1f} tokens on average, {facts['cut']:,} cut "
    f"to --max_seq_length={options.max_seq_length}; "
    f"{'wrote' if is_new else 'unchanged:'} {path}"
  )
  has_labels = facts["labelled"] > 0
  return Split(name, suffix, tables, features, options.problem, has_labels)


def _make_rows(tables, options, facts: dict[str, Any]):
  tokenizer = tokenization.FullTokenizer(
    options.vocab_file, options.do_lower_case
  )
  encode_label = classification.make_label_encoder(
    options.labels, options.problem, options.label_separator
  )
  facts.update(examples=0, cut=0, labelled=0)
  label_counts = np.zeros(max(1, len(options.labels)), np.int64)

  def count(examples):
    for example in examples:
      facts["examples"] += 1
      facts["labelled"] += example.label is not None
      yield example

  features = classification.make_features(
    count(_read_tables(tables)),
    tokenizer,
    encode_label,
    options.max_seq_length,
    options.doc_stride,
  )
  last = -1
  for feature in features:
    is_new = feature.example_index != last  # Else another window of it.
    last = feature.example_index
    facts["cut"] += feature.was_cut and is_new
    if options.problem == "single_label":
      label_counts[feature.label] += 1
    elif options.problem == "multi_label":
      label_counts += feature.label
    serialized = classification.encode_feature(feature, options.max_seq_length)
    yield feature_files.Row(
      serialized, len(feature.input_ids), feature.example_index
    )
  facts["label_counts"] = label_counts.tolist()
  # An example of several labels may as well have none.
  is_partial = 0 < facts["labelled"] < facts["examples"]
  if is_partial and options.problem != "multi_label":
    raise ValueError(
      f"{', '.join(table.path for table in tables)}: only {facts['labelled']} "
      f"of {facts['examples']} examples have a label"
    )


class Outputs(NamedTuple):
  """What a model says of a split, one row an example, and the truth."""

  logits: np.ndarray  # float32 [N, L]
  targets: np.ndarray  # See classification_results; zeros where not known.


class Inputs:
  """All data of a run, found, read and checked before any work.

  Attributes:
    task: what is to be learned.
    options: what shapes the features.
    train: the training data, None if not asked for.
    eval, predict: the sets to evaluate and to predict, likewise.
  """

  def __init__(
    self,
    task: classification.Task,
    options: Options,
    folder: str,
    kinds: Sequence[str],
  ):
    """Opens the splits of some kinds.

    Args:
      task: what is to be learned.
      options: what shapes the features.
      folder: a local one, for feature files.
      kinds: any of "train", "eval" and "predict".

    Raises:
      ValueError: the task has no such data, or a row of it is wrong.
    """
    self.task, self.options = task, options
    self.train: Split | None = None
    self.eval: list[Split] = []
    self.predict: list[Split] = []
    if "train" in kinds:
      tables = _required(task.train, "do_train", "train_file")
      self.train = open_split("train", "train", "", tables, options, folder)
    if "eval" in kinds:
      sets = _required(task.dev, "do_eval", "eval_file")
      self.eval = _open_sets("eval", sets, options, folder)
    if "predict" in kinds:
      sets = _required(task.test, "do_predict", "predict_file")
      self.predict = _open_sets("predict", sets, options, folder)


def _required(sets, do_flag, file_flag):
  if not sets:
    raise ValueError(
      f"--{do_flag}: the task has no such data; pass --{file_flag} or "
      "--data_dir"
    )
  return sets


def _open_sets(kind, sets, options, folder):
  # The first one's files have the names of the original, which had only one.
  return [
    open_split(kind, name, f"_{name}" * (i > 0), (table,), options, folder)
    for i, (name, table) in enumerate(sets)
  ]


def make_parser(
  options: Options, vocab_size: int, type_vocab_size: int, is_static: bool
):
  """Returns the function from serialized rows, string [B], to features.

  Args:
    options: what the rows were made with.
    vocab_size, type_vocab_size: the model's.
    is_static: whether to keep all padding.
  """
  is_multi_label = options.problem == "multi_label"
  is_regression = options.problem == "regression"
  label_ids = tf.io.FixedLenFeature(
    [options.num_outputs if is_multi_label else 1],
    tf.float32 if is_regression else tf.int64,
  )
  return feature_files.make_parser(
    [options.max_seq_length],
    vocab_size,
    type_vocab_size,
    is_static,
    spec={"label_ids": label_ids},
  )


def predict_split(
  predictor: prediction.Predictor,
  split: Split,
  parse,
  order: list[np.ndarray],
  pooling: str,
) -> Outputs:
  """Computes the logits of every example, in the order of its files.

  Args:
    predictor: returns logits and label_ids.
    split: what to predict.
    parse: from `make_parser`.
    order: the batches, by the indices of their rows.
    pooling: of the windows of a text, "mean" or "max".
  """
  features = split.features
  results = feature_files.predict(predictor, features, order, parse)
  logits, labels = results["logits"], results["label_ids"]
  targets = labels[np.flatnonzero(np.diff(features.examples, prepend=-1))]
  if split.problem != "multi_label":
    targets = targets[:, 0]
  logits = classification_results.pool_windows(
    logits, features.examples, pooling
  )
  return Outputs(logits, targets)
