"""A classification task as feature files, batches and rows of logits.

The files are the original's: `train.tf_record`, `eval.tf_record` and
`predict.tf_record` in the output folder. They are made again when anything that
shapes them has changed: the data, the vocabulary or a flag.
"""

from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf

from bert.data import files, label_files, messages, record_writer, tables
from bert.inputs import feature_files, feature_sets, held_out
from bert.report import retrieval_scores
from bert.tasks import (
  classification,
  classification_problems,
  classification_results,
)


# As of `classification.Table`, its fields are part of the features' key: a new
# field makes all features anew, and runs begun before refuse to resume.
@dataclasses.dataclass(frozen=True)
class ClassificationFeatureSettings(feature_sets.FeatureSettings):
  """The settings that shape the features."""

  doc_stride: int | None  # None: long texts are truncated.
  label_separator: str
  labels: tuple[str, ...]
  problem: str  # One of classification_problems.PROBLEMS.

  @property
  def num_outputs(self) -> int:
    """The number of logits: of labels, or 1 for regression."""
    return max(1, len(self.labels))


@dataclasses.dataclass(eq=False, kw_only=True)
class ClassificationSet(feature_sets.FeatureSet):
  """One set of examples."""

  settings: ClassificationFeatureSettings
  tables: tuple[classification.Table, ...]

  def groups(self) -> list[str]:
    """Returns the group of each example; nothing if there are no groups."""
    if self.tables[0].group is None:
      return []
    return [example.group or "" for example in self.examples()]


def find_sets(
  task: classification.ClassificationTask,
  kind: str,
  settings: ClassificationFeatureSettings,
  max_train_examples: int | None = None,
) -> list[ClassificationSet]:
  """Returns the sets of examples of a kind.

  Args:
    task: with the paths of its files.
    kind: "train", "eval" or "predict".
    settings: the settings that shape the features.
    max_train_examples: None for all.
  """
  return [
    ClassificationSet(
      kind=kind,
      settings=settings,
      paths=tuple(table.path for table in tables),
      source={"tables": [table._asdict() for table in tables]},
      read=functools.partial(classification.read_examples, *tables),
      limit=max_train_examples,
      # Raised whenever this file or classification.py makes other features of
      # the same input, for old feature files are used otherwise.
      version=3,
      name=name,
      # The first one's files have the names of the original, which had one.
      suffix=f"_{name}" if number else "",
      tables=tables,
    )
    for number, (name, tables) in enumerate(task.sets(kind))
  ]


def find_train_and_dev(
  task: classification.ClassificationTask,
  settings: Any,
  feature_settings: ClassificationFeatureSettings,
) -> tuple[Any, list[Any]]:
  """Returns the set to train on, or None, and the list of sets to evaluate.

  Args:
    task: with the paths of its files.
    settings: the flags of run_classifier.py, which ask for work.
    feature_settings: the settings that shape the features.
  """
  evaluates = settings.do_eval or settings.evaluates_in_training
  share = settings.eval_share

  # With --eval_share an evaluation alone reads the training file, too: what it
  # evaluates on was held out of that.
  train = None
  if settings.do_train or (evaluates and share):
    [train] = find_sets(
      task, "train", feature_settings, settings.max_train_examples
    )

  if train and share:
    train, held_out_set = split(train, share, settings.seed)
    return train, [held_out_set]
  if evaluates:
    return train, find_sets(task, "eval", feature_settings)
  return train, []


def split(
  data: ClassificationSet, share: float, seed: int
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Holds out a share of the examples with each label, to evaluate on.

  Args:
    data: the set to train on.
    share: of the examples to hold out, such as 0.1.
    seed: of the draw.

  Returns:
    What to train on, and what to evaluate on. A text is in one part only.
  """

  # Every set of labels, and every number of a regression, counts as one label.
  def describe(example):
    return [str(example.label)], (example.text_a, example.text_b)

  return held_out.split(data, share, seed, describe)


def make_features(data: ClassificationSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  A row is a record of the original's: input_ids, input_mask and segment_ids,
  int64 [max_seq_length], padded with 0; is_real_example, int64 [1], a 1, or a 0
  if a label to train on is missing, as only a teacher allows; label_ids, int64
  [1], of multi_label [labels], or of regression float [1]. A ValueError says
  that an example is wrong, or that only some have a label.
  """
  settings = data.settings

  # Filled while rows are made; if the file is there, its index has them.
  names = ("examples", "cut", "labelled", "empty", "left_out")
  facts: dict[str, Any] = dict.fromkeys(names, 0)
  data.open_or_make(folder, _make_rows(data, facts), facts)

  # How a row of the file is parsed. A regression has a number for a label.
  problem = classification_problems.PROBLEMS[settings.problem]
  label_ids = tf.io.FixedLenFeature(
    [problem.width(settings.num_outputs)],
    tf.float32 if problem.label_type is float else tf.int64,
  )
  is_real = tf.io.FixedLenFeature([], tf.int64)
  data.layout = feature_sets.Layout(
    (settings.max_seq_length,),
    other_features={"label_ids": label_ids, "is_real_example": is_real},
  )
  _print_summary(data)


def _print_summary(data: ClassificationSet) -> None:
  """Prints how many examples, windows and tokens a set has."""
  settings = data.settings
  features = data.features
  facts = features.facts

  # Without --doc_stride a text is one window, so the number says nothing new.
  windows = f" in {len(features):,} windows" if settings.doc_stride else ""
  if facts["empty"]:
    windows += f", {facts['empty']:,} of them with an empty text"

  lines = [
    f"{data.kind} ({data.name}): {facts['examples']:,} examples{windows}, "
    f"{np.mean(features.lengths):.1f} tokens on average, {facts['cut']:,} "
    f"truncated to --max_seq_length={settings.max_seq_length}"
  ]

  # Labels to train on may be missing where a teacher gives its own.
  unlabelled = facts["examples"] - facts["labelled"]
  if unlabelled and data.kind == "train":
    lines.append(f"{unlabelled:,} of them have no label")
  if facts["left_out"]:
    lines.append(f"{facts['left_out']:,} rows without a label are left out")
  features.print_summary(*lines)


def check_metric(data: ClassificationSet, metric: str) -> None:
  """Raises a ValueError if a score of a set is the same for all predictions.

  The labels alone show this. Such a score does not say which weights are best.
  """
  settings = data.settings
  label_sums = data.features.facts["label_sums"]
  fault = ""

  # A correlation with a constant is not defined.
  if metric in ("pearson", "spearman", "corr", "matthews_correlation"):
    encode = classification.make_label_encoder(
      settings.labels, settings.problem, settings.label_separator
    )
    if len({str(encode(example)) for example in data.examples()}) < 2:
      fault = "all examples have the same label"

  # Without a right answer to find, F1 and the scores of rankings are 0. A
  # regression has the relevance of a text as its number, and no labels.
  elif metric in ("f1", *retrieval_scores.NAMES):
    labels = settings.labels or ["1"]
    wanted = 0
    if settings.labels:
      wanted = classification_problems.find_positive(labels)
    if not label_sums[wanted]:
      fault = f"no example has the label {labels[wanted]}"
  elif metric.endswith("_f1") and not any(label_sums):
    fault = "no example has a label"

  if fault:
    raise ValueError(
      f"{', '.join(data.paths)}: {fault}, so --best_metric={metric} is the "
      "same for all weights: evaluate on others, or choose another score"
    )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  """Yields the rows of a set; `facts` are whole when all are made."""
  settings = data.settings
  unlabelled = []  # The places of the first examples without a label.

  # How often each label occurs, or the sum of a regression's numbers.
  problem = classification_problems.PROBLEMS[settings.problem]
  sums = np.zeros(settings.num_outputs, problem.label_type)

  for feature in classification.make_features(
    _read_texts(data, facts, unlabelled),
    data.make_tokenizer(),
    classification.make_label_encoder(
      settings.labels, settings.problem, settings.label_separator
    ),
    settings.max_seq_length,
    settings.doc_stride,
  ):
    # An example counts at its first window. Its label counts at every window,
    # because the loss is of rows, and the sums make the first bias for it.
    if feature.example_index == facts["examples"]:
      facts["examples"] += 1
      facts["cut"] += feature.was_cut
      facts["labelled"] += feature.is_labelled
    if feature.is_labelled:
      problem.count(sums, feature.label)
    yield _make_row(feature, data, problem)

  total = facts["examples"]
  labelled = facts["labelled"]
  if 0 < labelled < total:
    # Rows without a label are taken to have each one as often as the rest.
    if data.kind == "train":
      sums = sums * (total / labelled)
    # Without labels in columns of their own, an empty cell is "no label".
    elif not problem.empty_is_label or isinstance(data.tables[0].label, tuple):
      fault = messages.describe_unlabelled(unlabelled, total - labelled, total)
      raise ValueError(f"{fault}: predictions are scored on all or on none")
  facts["label_sums"] = sums.tolist()


def _make_row(feature, data, problem) -> feature_files.Row:
  """Makes the row of a feature, whose length is that without padding."""
  encode = record_writer.int64_feature
  if problem.label_type is float:
    encode = record_writer.float_feature

  # A row to train on without a label is there for the teacher alone. Nothing
  # reads this feature of other sets, which have no loss: it is 1 there, as in
  # all examples of the original.
  is_real = feature.is_labelled or data.kind != "train"

  serialized = record_writer.encode_inputs(
    [feature.input_ids],
    [feature.segment_ids],
    data.settings.max_seq_length,
    label_ids=encode(np.ravel(feature.label).tolist()),
    is_real_example=record_writer.int64_feature([is_real]),
  )
  length = len(feature.input_ids)
  return feature_files.Row(serialized, length, feature.example_index)


def _read_texts(data, facts, unlabelled) -> Iterator[classification.Example]:
  """Yields the examples; counts empty texts, lists the first without a label.

  `unlabelled` gets their places.
  """
  for example in data.select(data.read(facts=facts)):
    texts = (example.text_a, example.text_b)
    facts["empty"] += any(t is not None and not t.strip() for t in texts)
    if data.kind != "train" and data.tables[0].group is not None:
      if not example.group:  # All of them would be one query.
        raise ValueError(
          f"{example.location}: the column {data.tables[0].group!r} is empty; "
          "expected the id of a query (--query_column)"
        )
    if example.label is None and len(unlabelled) < messages.PLACES_SHOWN:
      unlabelled.append(example.location)
    yield example


def describe_input(
  task: classification.ClassificationTask, trains: bool
) -> dict[str, Any]:
  """Returns what predictions have to know of a task's texts, besides flags.

  It is "has_text_pair" and, for the user's own training file, its "columns":
  "text" and "text_pair", by name or number, whether there is a "header", and
  the "count" of all.
  """
  described = {"has_text_pair": task.has_text_pair}
  # The training and test files of a benchmark differ in their columns.
  if task.name != "file" or not trains:
    return described

  [table] = task.train
  first = next(tables.read_rows(table.path)).cells
  columns = {"text": table.text, "text_pair": table.text_pair}
  columns |= {"header": bool(table.header), "count": len(first)}
  return described | {"columns": columns}


def choose_labels(
  task: classification.ClassificationTask,
  settings: Any,
  initial: Sequence[str] = (),
) -> tuple[str, ...]:
  """Returns the labels of a task, in the order of the head's outputs.

  The first of these that is known decides: an earlier run, --labels, the task,
  the training data, the head to start from. Without --labels, that head also
  decides the order of the task's labels or of those in the data; see
  `label_files.choose`.

  Args:
    task: with the paths of its files.
    settings: the flags of run_classifier.py.
    initial: the labels of the head that training starts from, if it has any.
  """
  labels_file = settings.labels_file

  # A regression has one output, a number.
  problem = classification_problems.PROBLEMS[task.problem]
  if not problem.has_labels:
    if settings.labels:
      raise ValueError("--labels: a regression has none")
    return ()

  # The training file is read for its labels only if nothing else names them.
  labels = tuple(settings.labels) or task.labels
  is_known = label_files.are_of_weights(labels_file)
  if not labels and task.train and not is_known:
    examples = classification.read_examples(*task.train)
    if not task.train[0].label_required:  # Only a teacher allows that.
      examples = (e for e in examples if e.label is not None)
    labels = classification.find_labels(
      examples, task.problem, settings.label_separator
    )

  # An earlier run has trained a head for labels in an order, which must stay.
  labels = label_files.choose(
    labels_file,
    labels,
    origin="the task's or those of --labels",
    head=initial,
    is_ordered=bool(settings.labels),
    flag="--labels",
  )

  # Where every text has exactly one label, one label leaves nothing to learn.
  if len(labels) < problem.least_labels:
    raise ValueError(
      f"--labels: expected two labels or more, found only {labels[0]}: pass "
      f"others, and an --output_dir without another {labels_file}"
    )
  return labels


def pool_outputs(
  data: ClassificationSet,
  results: dict[str, np.ndarray],
  window_pooling: str,
) -> tuple[np.ndarray, np.ndarray]:
  """Makes of the results for rows, which are windows, those for examples.

  Args:
    data: the set, whose features know the example of each row.
    results: logits, float32 [R, L], and label_ids of the R rows.
    window_pooling: "mean" or "max", of the windows of a text.

  Returns:
    Logits, float32 [N, L], and the targets of the N examples, in their order.
  """
  example_of_row = data.features.example_of_row
  logits = classification_results.pool_windows(
    results["logits"], example_of_row, window_pooling
  )

  # All windows of a text have its label.
  problem = classification_problems.PROBLEMS[data.settings.problem]
  targets = problem.targets(results["label_ids"])
  return logits, targets[classification_results.first_rows(example_of_row)]


def write_predictions(
  folder: str, data: ClassificationSet, answers: classification_results.Answers
) -> None:
  """Writes predictions.tsv, and test_results.tsv as the original did.

  Args:
    folder: gets the files.
    data: the set that was predicted; its texts are read again.
    answers: for all examples, in their order.
  """
  # The predictions are written beside the texts, which are read again: another
  # file by now would have them stand at wrong rows.
  data.check_unchanged()
  names = [f"probability_{label}" for label in answers.labels]
  separator = data.settings.label_separator

  def describe_rows():
    for example, predicted, probabilities in zip(
      data.examples(), answers.as_labels(), answers.probabilities, strict=True
    ):
      # Numbers have no labels, and so no columns of probabilities.
      rounded = map(_round, probabilities)
      yield {
        "id": example.example_id,
        "text": example.text_a,
        "text_pair": example.text_b or "",
        "label": _write_label(example.label or "", separator),
        "predicted": _write_label(predicted, separator),
        **dict(zip(names, rounded, strict=False)),
      }

  # Columns that no row would fill are left out.
  header = ["id", "text"]
  if any(table.text_pair is not None for table in data.tables):
    header.append("text_pair")
  if data.is_labelled:
    header.append("label")
  header += ["predicted", *names]

  path = os.path.join(folder, f"predictions{data.suffix}.tsv")
  tables.write_rows(path, describe_rows(), header)

  # A line of probabilities for each example, with the digits of float32, as in
  # the original.
  path = os.path.join(folder, f"test_results{data.suffix}.tsv")
  rows = answers.probabilities.astype(np.float32)
  files.write_lines(path, ("\t".join(map(str, row)) for row in rows))
  print(f"wrote {path}")


def _write_label(
  label: str | float | Iterable[str], separator: str
) -> str | float:
  if isinstance(label, (int, float)):
    return _round(label)
  return label if isinstance(label, str) else separator.join(label)


def _round(number: float) -> float:
  return float(f"{number:.6g}")
