"""Classification of texts and pairs: examples, their labels, their features.

A `ClassificationTask` lists files, a `Table` the columns of one.
`read_examples` reads them, `make_features` makes the inputs of the model.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import math
import re
from typing import NamedTuple

from bert import tokenization
from bert.data import file_search, packing, tables

Label = int | list[int] | float

PROBLEMS = ("single_label", "multi_label", "regression")
_LARGEST_FLOAT = 3.4e38  # Records and models have 32 bits for a number.
INTEGER = re.compile(r"-?[0-9]{1,18}")


class Example(NamedTuple):
  """A text or a pair of texts, with its label where it is known."""

  example_id: str  # As in the file, else its number there, from 0.
  text_a: str
  text_b: str | None
  # None if it is not known; a tuple of several for a list in a JSON file.
  label: str | tuple[str, ...] | None
  location: str  # "path:line".
  group: str | None  # XNLI's language.


class Table(NamedTuple):
  """A file of examples and its columns; None: the file has no such column."""

  path: str
  text: tables.Column
  text_pair: tables.Column | None = None
  label: tables.Column | None = None
  id: tables.Column | None = None
  header: bool | None = None  # See `tables.read_columns`.
  label_required: bool = True  # Else a column of that name may be missing.
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
  """A task: its files, labels and scores."""

  name: str
  labels: tuple[str, ...]  # (): none (regression), or to be found in the data.
  problem: str  # One of PROBLEMS.
  train: tuple[Table, ...]  # Read one after the other.
  dev: tuple[tuple[str, Table], ...]  # Each with a name, such as "matched".
  test: tuple[tuple[str, Table], ...]
  metrics: tuple[str, ...]  # The first one selects the best checkpoint.
  submissions: tuple[str, ...] = ()  # GLUE's file name for each test set.

  @property
  def has_text_pair(self) -> bool:
    """Whether inputs are pairs, by the training files or else the others."""
    tables = self.train or [table for _, table in (*self.dev, *self.test)]
    return any(table.text_pair is not None for table in tables)

  def sets(self, kind: str) -> list[tuple[str, tuple[Table, ...]]]:
    """Returns the sets to "train", "eval" or "predict", at least one."""
    sets = {
      "train": [("train", self.train)] if self.train else [],
      "eval": [(name, (table,)) for name, table in self.dev],
      "predict": [(name, (table,)) for name, table in self.test],
    }[kind]
    if not sets:
      share = ", or --eval_share" if kind == "eval" else ""
      names = " or ".join(file_search.SPLITS[kind])
      raise ValueError(
        f"--do_{kind}: the task has no such data; pass --{kind}_file, or a "
        f"--data_dir that holds {names}{share}"
      )
    return sets


class Feature(NamedTuple):
  """An input of the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

  input_ids: list[int]  # Not padded.
  segment_ids: list[int]  # 0 up to the first [SEP], then 1.
  label: Label  # See `make_label_encoder`.
  example_index: int  # From 0; the windows of a long text share it.
  was_cut: bool  # Tokens of the example are in none of its features.
  is_labelled: bool  # Whether the label of the example is known.


# Reading examples.


def read_examples(
  *files: Table, counts: dict[str, int] | None = None
) -> Iterator[Example]:
  """Yields the examples of files, no more than a row being in memory.

  Rows without a label that are left out are added to `counts`, by the name
  "left_out". A ValueError names the line of a row that is wrong, the first
  lines that lack their label, or a file that holds no example.
  """
  for table in files:
    renamed, other_groups, count = dict(table.renamed_labels), set(), 0
    unlabelled, places = 0, []
    for location, cells in tables.read_columns(
      table.path,
      (table.text, table.text_pair, table.label, table.id, table.group),
      optional=() if table.label_required else (table.label,),
      header=table.header,
      skips_short_rows=table.skips_short_rows,
      allows_long_rows=table.allows_long_rows,
    ):
      text, text_pair, label, example_id, group = cells
      if table.groups and group not in table.groups:
        other_groups.add(group)
        continue
      if text_pair is not None:
        text_pair = tables.to_text(text_pair, location, table.text_pair)
      if example_id is None:
        example_id = str(count + unlabelled)
      label = _to_label(label, location, table)
      if label is None and table.label_required and table.label is not None:
        unlabelled += 1
        if len(places) < tables.PLACES_SHOWN:
          places.append(location)
        if counts is not None:
          counts["left_out"] += 1
        continue
      count += 1
      if unlabelled and not table.skips_unlabelled:
        continue  # The rest is read only to say how many rows have no label.
      yield Example(
        tables.to_scalar(example_id, location, table.id),
        tables.to_text(text, location, table.text),
        text_pair,
        renamed.get(label, label),
        location,
        group,
      )
    if unlabelled and not (table.skips_unlabelled and count):
      total = count + unlabelled
      fault = tables.describe_unlabelled(places, unlabelled, total)
      has_flag = table.skips_unlabelled is False
      cure = "; --skip_unlabelled=true leaves them out" if has_flag else ""
      raise ValueError(f"{fault}{cure}")
    if not count:
      reason = "holds no example"
      if other_groups:
        others = tables.list_names(sorted(other_groups))
        reason += f" of {', '.join(table.groups)}; it has {others}"
      raise ValueError(f"{table.path}: {reason}")


def _to_label(value, location, table) -> str | tuple[str, ...] | None:
  if isinstance(value, list):
    items = (tables.to_scalar(item, location, table.label) for item in value)
    value = tuple(items)
  elif value is not None:
    value = tables.to_scalar(value, location, table.label)
  is_label = table.label_required and table.empty_is_label
  return value if value or is_label else None


# Labels.


def find_labels(
  examples: Iterable[Example], problem: str, separator: str = ","
) -> list[str]:
  """Returns all labels of examples, sorted: as numbers if all are integers.

  `problem` is "single_label", or "multi_label" with a separator of the labels
  of an example. A ValueError names the line of an example without a label, or
  the file if its labels are too few or most of them occur only once.
  """
  counts, path = collections.Counter(), ""
  for example in examples:
    path = path or example.location.rpartition(":")[0]
    counts.update(set(_split_label(example, problem, separator)))
  labels = sorted(counts)
  if len(labels) < (2 if problem == "single_label" else 1):
    found = tables.list_names(labels) or "rows without one"
    raise ValueError(
      f"{path}: expected two labels or more, found only {found}; is it the"
      " right column?"
    )
  rare = [label for label in labels if counts[label] == 1]
  if len(labels) > 20 and 2 * len(rare) > len(labels):
    raise ValueError(
      f"{path}: {len(rare)} of its {len(labels)} labels occur only once"
      f" ({tables.list_names(rare[:3])}, ...); is it the right column? If so,"
      " write all of them, one a line, to labels.txt in --output_dir"
    )
  if all(map(INTEGER.fullmatch, labels)):
    labels.sort(key=int)
  return labels


def make_label_encoder(
  labels: Sequence[str], problem: str, separator: str = ","
) -> Callable[[Example], Label]:
  """Returns the function that turns an example's label into numbers.

  It gives the number of the label in `labels` (single_label), 1 for each label
  that the example has and 0 for the others (multi_label), or the number that
  the label is (regression); zeros for a label of None.
  """
  numbers = {label: number for number, label in enumerate(labels)}

  def encode(example):
    if problem == "regression":
      return _to_float(example)
    is_set = [0] * len(labels)
    if example.label is None:
      return is_set if problem == "multi_label" else 0
    for label in _split_label(example, problem, separator):
      if label not in numbers:
        raise ValueError(
          f"{example.location}: unknown label {label[:99]!r}; known:"
          f" {tables.list_names(labels)}"
        )
      if problem == "single_label":
        return numbers[label]
      is_set[numbers[label]] = 1
    return is_set

  return encode


def _split_label(example: Example, problem: str, separator: str) -> list[str]:
  """Returns the labels of an example: exactly one of a single-label problem."""
  label, is_single = example.label, problem == "single_label"
  if not separator:
    raise ValueError("--label_separator: expected a character, found none")
  if label is None or (is_single and not label):
    raise ValueError(f"{example.location}: no label")
  if is_single and not isinstance(label, str):
    raise ValueError(
      f"{example.location}: a list of labels; expected one (several need "
      "--problem=multi_label)"
    )
  if is_single:
    return [label]
  if isinstance(label, str):
    label = map(str.strip, label.split(separator))
  return list(filter(None, label))


def _to_float(example: Example) -> float:
  if example.label is None:
    return 0.0
  try:
    # Not as Python reads it: to float(), 1_0 is 10.
    value = float(str(example.label).replace("_", "?"))
  except ValueError:
    value = math.nan
  if not abs(value) <= _LARGEST_FLOAT:  # NaN fails, too.
    text = repr(example.label)[:99] if example.label else "nothing"
    raise ValueError(f"{example.location}: expected a number, found {text}")
  return value


def weigh_classes(given: Sequence[str], counts: Sequence[int]) -> list[float]:
  """Returns the weight of each label in the loss, from --class_weights.

  Those are numbers as text, one a label and not all 0; ["balanced"]; or
  nothing, for ones; anything else is a ValueError. `counts` says how often each
  label is in the training data.
  """
  if list(given) == ["balanced"]:
    # Every label then weighs as much as any other, and an example 1 on average.
    return [sum(counts) / (len(counts) * max(1, count)) for count in counts]
  if not given:
    return [1.0] * len(counts)
  try:
    weights = [float(weight) for weight in given]
  except ValueError:
    weights = []
  are_numbers = all(0 <= weight <= _LARGEST_FLOAT for weight in weights)
  if len(weights) != len(counts) or not are_numbers or not any(weights):
    raise ValueError(
      f"--class_weights={','.join(given)}: expected 'balanced' or "
      f"{len(counts)} numbers from 0, one for each label, not all of them 0"
    )
  return weights


def average_logits(
  problem: str, sums: Sequence[float], total: int
) -> list[float]:
  """Returns the outputs that say the same of all examples, and say it best.

  `sums` has how many of `total` examples have each label of "multi_label", to
  which one more with and one without it are added; or the sum of the numbers.
  """
  if problem == "regression":
    return [sums[0] / total]
  return [math.log((count + 1) / (total - count + 1)) for count in sums]


# Features.


def make_features(
  examples: Iterable[Example],
  tokenizer: tokenization.FullTokenizer,
  encode_label: Callable[[Example], Label],
  max_seq_length: int,
  doc_stride: int | None = None,
) -> Iterator[Feature]:
  """Turns examples into inputs of the model.

  Args:
    encode_label: see `make_label_encoder`.
    max_seq_length: the most tokens of a feature, [CLS] and [SEP] included.
    doc_stride: tokens between the beginnings of the windows of a long text, or
      of the second text of a pair; the first one is in every window, and
      truncated only if less than a stride would be left for the second. None:
      the longer text is truncated token by token, as in the original. A
      ValueError if windows would leave tokens out.
  """
  check_doc_stride(doc_stride, max_seq_length)
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for index, example in enumerate(examples):
    ids_a = tokenizer.encode(example.text_a)
    ids_b = tokenizer.encode(example.text_b) if example.text_b else []
    label, is_labelled = encode_label(example), example.label is not None
    pairs, was_cut = _fit(ids_a, ids_b, max_seq_length, doc_stride)
    for part_a, part_b in pairs:
      ids, _, segments = packing.pack(
        part_a, part_b, cls_id=cls_id, sep_id=sep_id
      )
      yield Feature(ids, segments, label, index, was_cut, is_labelled)


def check_doc_stride(doc_stride: int | None, max_seq_length: int) -> None:
  """Checks that windows leave no token out; a ValueError if they do."""
  if doc_stride is not None and not 0 < doc_stride <= max_seq_length - 2:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected 1 to {max_seq_length - 2}, so that"
      f" no token is left out at --max_seq_length={max_seq_length}"
    )


def _fit(ids_a, ids_b, max_seq_length, doc_stride):
  """Returns pairs of ids that fit, and whether tokens are in none of them."""
  room = max_seq_length - (3 if ids_b else 2)
  if len(ids_a) + len(ids_b) <= room:
    return [(ids_a, ids_b)], False
  if ids_b and room < 2:
    raise ValueError(
      f"--max_seq_length={max_seq_length}: expected at least 5 for a pair:"
      " [CLS], a token, [SEP], a token and [SEP]"
    )
  if doc_stride is None:
    packing.truncate_pair(ids_a, ids_b, room)
    return [(ids_a, ids_b)], True
  if ids_b and doc_stride >= room:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected at most {room - 1} for pairs at"
      f" --max_seq_length={max_seq_length}"
    )
  long = ids_b or ids_a
  kept_a = ids_a[: room - min(doc_stride, len(ids_b))] if ids_b else []
  parts = [
    long[part.start : part.start + part.length]
    for part in packing.make_windows(len(long), room - len(kept_a), doc_stride)
  ]
  if not ids_b:
    return [(part, []) for part in parts], False
  return [(kept_a, part) for part in parts], len(kept_a) < len(ids_a)
