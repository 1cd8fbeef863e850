"""Classification of texts and pairs: examples, their labels, their features.

A `ClassificationTask` lists files, a `Table` the columns of one.
`read_examples` reads them, `make_features` makes the inputs of the model.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import re
from typing import Any, NamedTuple

from bert import tokenization
from bert.data import file_search, messages, packing, tables
from bert.tasks import classification_columns, classification_problems

Label = classification_problems.Label

INTEGER = re.compile(r"-?[0-9]{1,18}")


class Example(NamedTuple):
  """A text or a pair of texts, with its label where it is known."""

  example_id: str  # As in the file, else its number there, from 0.
  text_a: str
  text_b: str | None
  label: classification_problems.Cell
  location: str  # "path:line".
  group: str | None  # XNLI's language, or the id of a query.


# Its fields are part of the features' key: a new field, even with a default,
# makes all features anew, and runs that were begun before refuse to resume.
class Table(NamedTuple):
  """A file of examples and its columns; None: the file has no such column."""

  path: str
  text: tables.Column
  text_pair: tables.Column | None = None
  # Several: one for each label, see `classification_columns`.
  label: tables.Column | tuple[str, ...] | None = None
  id: tables.Column | None = None
  header: bool | None = None  # See `tables.read_columns`.
  # Otherwise the column may be missing, or its cell empty: an unknown label.
  label_required: bool = True
  group: tables.Column | None = None
  groups: tuple[str, ...] = ()  # If any, only rows of these are read.
  renamed_labels: tuple[tuple[str, str], ...] = ()  # (in the file, in the task)
  skips_short_rows: bool = False  # See `tables.read_columns`.
  allows_long_rows: bool = False  # See `tables.read_columns`.
  # Whether rows without a label that is required are left out; None: the
  # program has no flag for that.
  skips_unlabelled: bool | None = None
  empty_is_label: bool = False  # An empty cell says that no label applies.


class ClassificationTask(NamedTuple):
  """A task: its files, labels and scores.

  --do_eval scores the sets of `dev` and writes files `eval_...`; --do_predict
  answers the sets of `test` and writes `predictions...`.
  """

  name: str
  labels: tuple[str, ...]  # (): none (regression), or to be found in the data.
  problem: str  # One of `classification_problems.PROBLEMS`.
  train: tuple[Table, ...]  # Read one after the other.
  dev: tuple[tuple[str, Table], ...]  # Each with a name, such as "matched".
  test: tuple[tuple[str, Table], ...]
  metrics: tuple[str, ...]  # The first one selects the best checkpoint.
  submissions: tuple[str, ...] = ()  # GLUE's file name for each test set.

  @property
  def has_text_pair(self) -> bool:
    """Whether inputs are pairs, by the training files or else the others."""
    files = self.train or [table for _, table in self.dev + self.test]
    return any(table.text_pair is not None for table in files)

  def sets(self, kind: str) -> list[tuple[str, tuple[Table, ...]]]:
    """Returns the sets to "train", "eval" or "predict", at least one."""
    sets = {
      "train": [("train", self.train)] if self.train else [],
      "eval": [(name, (table,)) for name, table in self.dev],
      "predict": [(name, (table,)) for name, table in self.test],
    }[kind]
    if not sets:
      # GLUE's diagnostic set has only texts to predict.
      if self.name != "file":
        raise ValueError(
          f"--do_{kind}: the task {self.name} has no such data; it has texts "
          "for --do_predict, with a model that was trained on mnli"
        )

      share = ", or --eval_share" if kind == "eval" else ""
      names = " or ".join(file_search.SPLITS[kind])
      raise ValueError(
        f"--do_{kind}: the task has no such data; pass --{kind}_file, or a "
        f"--data_dir that holds {names}{share}"
      )
    return sets


class ClassificationFeature(NamedTuple):
  """An input of the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

  input_ids: list[int]  # Not padded.
  segment_ids: list[int]  # 0 up to the first [SEP], then 1.
  label: Label  # See `make_label_encoder`.
  example_index: int  # From 0; the windows of a long text share it.
  was_cut: bool  # Tokens of the example are in none of its features.
  is_labelled: bool  # Whether the label of the example is known.


# Reading examples.


def read_examples(
  *files: Table, facts: dict[str, int] | None = None
) -> Iterator[Example]:
  """Yields the examples of files, no more than a row being in memory.

  Rows without a label that are left out are added to `facts`, by the name
  "left_out". A ValueError names the line of a row that is wrong, the first
  lines that lack their label, or a file that holds no example.
  """
  for table in files:
    yield from _read_table(table, facts)


def _read_table(table: Table, facts) -> Iterator[Example]:
  """Yields the examples of a file; a ValueError if labels are missing."""
  renamed: dict[Any, str] = dict(table.renamed_labels)
  kept = 0
  unlabelled = 0
  places = []
  for number, (location, cells) in enumerate(_read_rows(table)):
    text, text_pair, example_id, group, *labels = cells
    label = _to_label(labels, location, table)

    # A label that is missing is an error, unless a flag leaves the row out. It
    # is raised at the end of the file, to say how many rows it concerns. GLUE's
    # test files have no column of labels at all: that is no error.
    if label is None and table.label_required and table.label is not None:
      unlabelled += 1
      if len(places) < messages.PLACES_SHOWN:
        places.append(location)
      if facts is not None:
        facts["left_out"] += 1
      continue
    kept += 1
    if unlabelled and not table.skips_unlabelled:
      continue  # The rest is read only to say how many rows have no label.

    # In JSON Lines a cell may be of any type.
    if group is not None and not isinstance(group, str):
      group = tables.to_scalar(group, location, table.group)
    example_id = str(number) if example_id is None else example_id
    if text_pair is not None:
      text_pair = tables.to_text(text_pair, location, table.text_pair)
    yield Example(
      tables.to_scalar(example_id, location, table.id),
      tables.to_text(text, location, table.text),
      text_pair,
      renamed.get(label, label),
      location,
      group,
    )

  if unlabelled and not (table.skips_unlabelled and kept):
    total = kept + unlabelled
    fault = messages.describe_unlabelled(places, unlabelled, total)
    has_flag = table.skips_unlabelled is False
    cure = "; --skip_unlabelled=true leaves them out" if has_flag else ""
    raise ValueError(f"{fault}{cure}")


def _read_rows(table: Table) -> Iterator[tuple[str, tuple]]:
  """Yields place and cells of the rows of a table's groups: at least one."""
  is_empty = True
  other_groups = set()
  labels = table.label if isinstance(table.label, tuple) else (table.label,)

  for location, cells in tables.read_columns(
    table.path,
    (table.text, table.text_pair, table.id, table.group, *labels),
    optional=() if table.label_required else labels,
    header=table.header,
    skips_short_rows=table.skips_short_rows,
    allows_long_rows=table.allows_long_rows,
  ):
    # One file may have the rows of several sets, such as XNLI's languages.
    group = cells[3]
    if table.groups and group not in table.groups:
      other_groups.add(group)
      continue
    is_empty = False
    yield location, cells

  if is_empty:
    reason = "holds no example"
    if other_groups:
      listing = messages.list_names(sorted(other_groups))
      reason += f" of {', '.join(table.groups)}; it has {listing}"
    raise ValueError(f"{table.path}: {reason}")


def _to_label(cells, location, table) -> classification_problems.Cell:
  """Returns the label in the cells of a row: several for a list in JSON."""
  if isinstance(table.label, tuple):
    return classification_columns.read(cells, location, table.label)

  [value] = cells
  if isinstance(value, list):
    items = (tables.to_scalar(item, location, table.label) for item in value)
    value = tuple(items)
  elif value is not None:
    value = tables.to_scalar(value, location, table.label)

  # An empty cell is an unknown label. Only for several labels does it say that
  # none applies, and that not in a file to predict, where all may be unknown.
  keeps_empty = table.label_required and table.empty_is_label
  return value if value or keeps_empty else None


# Labels.


def find_labels(
  examples: Iterable[Example], problem_name: str, separator: str = ","
) -> list[str]:
  """Returns all labels of examples, sorted: as numbers if all are integers.

  Args:
    examples: of the training data.
    problem_name: "single_label" or "multi_label".
    separator: what is between the labels of an example, for "multi_label".

  Raises:
    ValueError: names the line of an example without a label, or the file if its
      labels are too few or most of them occur only once.
  """
  problem = classification_problems.PROBLEMS[problem_name]
  counts = collections.Counter()
  path = ""
  for example in examples:
    path = path or example.location.rpartition(":")[0]
    with _naming_line(example):
      counts.update(set(problem.split(example.label, separator)))

  labels = sorted(counts)
  if len(labels) < problem.least_labels:
    least = "a label" if problem.least_labels == 1 else "two labels"
    listing = messages.list_names(labels) or "rows without one"
    raise ValueError(
      f"{path}: expected {least} or more, found only {listing}; is it the"
      " right column?"
    )

  # Many labels, most of which occur once, are rather ids or texts: the wrong
  # column would train for hours.
  rare = [label for label in labels if counts[label] == 1]
  if len(labels) > 20 and 2 * len(rare) > len(labels):
    raise ValueError(
      f"{path}: {len(rare)} of its {len(labels)} labels occur only once"
      f" ({messages.list_names(rare[:3])}, ...); is it the right column? If so,"
      " pass all of them with --labels"
    )
  if all(map(INTEGER.fullmatch, labels)):
    labels.sort(key=int)
  return labels


def make_label_encoder(
  labels: Sequence[str], problem_name: str, separator: str = ","
) -> Callable[[Example], Label]:
  """Returns the function that turns an example's label into numbers.

  Args:
    labels: in the order of the head's outputs; () for a regression.
    problem_name: one of `classification_problems.PROBLEMS`.
    separator: what is between the labels of an example, for "multi_label".

  Returns:
    A function of an example. It gives the number of the label in `labels`
    (single_label), a list with 1 for each label that the example has and 0 for
    the rest (multi_label), or the number that the label is (regression); zeros
    for a label of None. A ValueError names the line of a wrong label.
  """
  problem = classification_problems.PROBLEMS[problem_name]
  numbers = {label: number for number, label in enumerate(labels)}

  def encode(example):
    with _naming_line(example):
      return problem.encode(example.label, numbers, separator)

  return encode


@contextlib.contextmanager
def _naming_line(example: Example) -> Iterator[None]:
  """Adds the line of an example to an error about its label."""
  try:
    yield
  except ValueError as error:
    raise ValueError(f"{example.location}: {error}") from None


def weigh_classes(
  given: Sequence[str], label_sums: Sequence[int]
) -> list[float]:
  """Returns the weight of each label in the loss.

  Args:
    given: the values of --class_weights: numbers as text, one a label and not
      all 0; or ["balanced"]; or nothing, for ones.
    label_sums: how often each label is in the training data; of a regression
      one number, the sum of the labels.

  Raises:
    ValueError: `given` is anything else.
  """
  num_labels = len(label_sums)
  if list(given) == ["balanced"]:
    # Every label then weighs as much as any other, and an example of one label
    # 1 on average.
    total = sum(label_sums)
    return [total / (num_labels * max(1, count)) for count in label_sums]
  if not given:
    return [1.0] * num_labels

  try:
    weights = [float(weight) for weight in given]
  except ValueError:
    weights = []

  # NaN is not at least 0, and infinity is above the largest.
  largest = classification_problems.LARGEST_FLOAT
  are_numbers = all(0 <= weight <= largest for weight in weights)
  if len(weights) != num_labels or not are_numbers or not any(weights):
    raise ValueError(
      f"--class_weights={','.join(given)}: expected 'balanced' or "
      f"{num_labels} numbers from 0, one for each label, not all of them 0"
    )
  return weights


# Features. Whoever makes other features of the same input raises `version` in
# `classification_data.find_sets`; otherwise old feature files are used.


def make_features(
  examples: Iterable[Example],
  tokenizer: tokenization.FullTokenizer,
  encode_label: Callable[[Example], Label],
  max_seq_length: int,
  doc_stride: int | None = None,
) -> Iterator[ClassificationFeature]:
  """Turns examples into inputs of the model.

  Args:
    examples: texts or pairs of texts.
    tokenizer: makes the ids of their tokens.
    encode_label: see `make_label_encoder`.
    max_seq_length: the most tokens of a feature, [CLS] and [SEP] included.
    doc_stride: tokens between the beginnings of the windows of a long text, or
      of the second text of a pair; the first one is in every window, and
      truncated only if less than a stride would be left for the second. None:
      the longer text is truncated token by token, as in the original.

  Raises:
    ValueError: windows would leave tokens out, or a label is wrong.
  """
  packing.check_doc_stride(doc_stride, max_seq_length)
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for index, example in enumerate(examples):
    ids_a = tokenizer.encode(example.text_a)
    ids_b = tokenizer.encode(example.text_b) if example.text_b else []
    label = encode_label(example)
    is_labelled = example.label is not None

    pairs, was_cut = _fit(ids_a, ids_b, max_seq_length, doc_stride)
    for part_a, part_b in pairs:
      ids, _, segments = packing.pack(
        part_a, part_b, cls_id=cls_id, sep_id=sep_id
      )
      yield ClassificationFeature(
        ids, segments, label, index, was_cut, is_labelled
      )


def _fit(ids_a, ids_b, max_seq_length, doc_stride):
  """Returns pairs of ids that fit, and whether tokens are in none of them."""
  # [CLS] a [SEP], or [CLS] a [SEP] b [SEP].
  room = max_seq_length - (3 if ids_b else 2)
  if len(ids_a) + len(ids_b) <= room:
    return [(ids_a, ids_b)], False
  if ids_b and room < 2:
    raise ValueError(
      f"--max_seq_length={max_seq_length}: expected at least 5 for a pair:"
      " [CLS], a token, [SEP], a token and [SEP]"
    )

  # The original's way: what does not fit is lost.
  if doc_stride is None:
    packing.truncate_pair(ids_a, ids_b, room)
    return [(ids_a, ids_b)], True
  if ids_b and doc_stride >= room:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected at most {room - 1} for pairs at"
      f" --max_seq_length={max_seq_length}"
    )

  def cut_windows(ids, size):
    return [
      ids[window.start : window.start + window.length]
      for window in packing.make_windows(len(ids), size, doc_stride)
    ]

  if not ids_b:
    return [(part, []) for part in cut_windows(ids_a, room)], False

  # The first text, such as a question, is in every window. It leaves room for
  # a stride of the second, or for all of a shorter one.
  kept_a = ids_a[: room - min(doc_stride, len(ids_b))]
  parts = cut_windows(ids_b, room - len(kept_a))
  return [(kept_a, part) for part in parts], len(kept_a) < len(ids_a)
