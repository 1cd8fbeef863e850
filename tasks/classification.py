"""Classification of texts and pairs: examples, their labels, their features.

A `ClassificationTask` lists files, a `Table` the columns of one.
`read_examples` reads them, `make_features` makes the inputs of the model, and
`encode_feature` the records of the original program.
"""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import math
import re
from typing import Any, NamedTuple

from data import packing, record_writer, tables
from tasks import windows
import tokenization

Label = int | list[int] | float

PROBLEMS = ("single_label", "multi_label", "regression")
_LARGEST_FLOAT = 3.4e38  # Records and models have 32 bits for a number.
INTEGER = re.compile(r"-?[0-9]{1,18}")
# With at least this many examples, labels that all differ are a wrong column.
_TOO_MANY_LONE_LABELS = 20


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


class Feature(NamedTuple):
  """An input of the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

  input_ids: list[int]  # Not padded.
  segment_ids: list[int]  # 0 up to the first [SEP], then 1.
  label: Label  # See `make_label_encoder`.
  example_index: int  # From 0; the windows of a long text share it.
  was_cut: bool  # Tokens of the example are in none of its features.


# Reading examples.


def read_examples(table: Table) -> Iterator[Example]:
  """Yields the examples of a file, no more than a row being in memory.

  Raises:
    ValueError: a row or a column is missing or damaged; the message begins with
      the path and, where there is one, the line.
  """
  renamed = dict(table.renamed_labels)
  groups_seen = set()
  count = 0
  for location, (text, text_pair, label, id, group) in _read_columns(table):
    if table.groups and group not in table.groups:
      groups_seen.add(group)
      continue
    value = _to_label(label, location, table)
    if text_pair is not None:
      text_pair = tables.to_text(text_pair, location, table.text_pair)
    yield Example(
      str(count) if id is None else tables.to_scalar(id, location, table.id),
      tables.to_text(text, location, table.text),
      text_pair,
      renamed.get(value, value),
      location,
      group,
    )
    count += 1
  if groups_seen and not count:
    raise ValueError(
      f"{table.path}: holds no example of {', '.join(table.groups)}; it has"
      f" {tables.list_names(sorted(groups_seen))}"
    )
  if not count:
    raise ValueError(f"{table.path}: holds no example")


def _read_columns(table: Table) -> Iterator[tables.Values]:
  columns = (table.text, table.text_pair, table.label, table.id, table.group)
  return tables.read_columns(
    table.path,
    columns,
    optional=() if table.label_required else (table.label,),
    header=table.header,
    skips_short_rows=table.skips_short_rows,
    allows_long_rows=table.allows_long_rows,
  )


def _to_label(
  value: Any, location: str, table: Table
) -> str | tuple[str, ...] | None:
  if value is None:
    if table.label_required and table.label is not None:
      raise ValueError(f"{location}: no label")
    return None
  if isinstance(value, list):
    if not value and not table.label_required:
      return None
    return tuple(
      tables.to_scalar(item, location, table.label) for item in value
    )
  label = tables.to_scalar(value, location, table.label)
  return label if label or table.label_required else None


# Labels.


def find_labels(
  examples: Iterable[Example], problem: str, separator: str = ","
) -> list[str]:
  """Collects the labels of examples, for their numbers.

  Args:
    separator: stands between the labels of an example in multi-label problems.

  Returns:
    Each label once: in the order of numbers if all of them are integers, else
    in that of their characters. None for regression.

  Raises:
    ValueError: an example has no label, there is only one, or each example has
      one of its own.
  """
  if problem == "regression":
    return []
  counts = collections.Counter()
  path = ""
  for example in examples:
    path = path or example.location.rpartition(":")[0]
    counts.update(set(_split_label(example, problem, separator)))
  labels = sorted(counts)
  if len(labels) < (2 if problem == "single_label" else 1):
    raise ValueError(
      f"{path}: expected two labels or more, found only"
      f" {tables.list_names(labels) or 'rows without one'}; is it the right"
      " column?"
    )
  if len(labels) > _TOO_MANY_LONE_LABELS and counts.total() == len(labels):
    raise ValueError(
      f"{path}: each of its {len(labels)} labels occurs only once"
      f" ({tables.list_names(labels[:3])}, ...); is it the right column?"
    )
  if all(map(INTEGER.fullmatch, labels)):
    labels.sort(key=int)
  return labels


def make_label_encoder(
  labels: Sequence[str], problem: str, separator: str = ","
) -> Callable[[Example], Label]:
  """Returns the function that turns an example's label into numbers.

  Args:
    labels: all labels, in the order of their numbers; none for regression.

  Returns:
    A function that gives the number of the label (single_label), 1 for each of
    the labels that the example has and 0 for the others (multi_label), or the
    number that the label is (regression). An example whose label is None, as in
    test data, gets zeros. The function raises a ValueError that begins with the
    location if the label is empty, not one of `labels`, or not a number.
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


def _split_label(
  example: Example, problem: str, separator: str
) -> tuple[str, ...]:
  """Returns the labels of an example: exactly one of a single-label problem."""
  if not separator:
    raise ValueError("--label_separator: expected a character, found none")
  label, is_single = example.label, problem == "single_label"
  if is_single and isinstance(label, tuple) and label:
    raise ValueError(
      f"{example.location}: a list of labels; expected one (several need"
      " --problem=multi_label)"
    )
  if label is None or (is_single and not label):
    raise ValueError(f"{example.location}: no label")
  if is_single:
    return (label,)
  if isinstance(label, str):
    label = map(str.strip, label.split(separator))
  return tuple(filter(None, label))


def weigh_classes(given: Sequence[str], counts: Sequence[int]) -> list[float]:
  """Returns the weight of each label in the loss, from --class_weights.

  Args:
    given: "balanced", or a number for each label; empty for equal weights.
    counts: how often each label is in the training data.
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

  Args:
    problem: "multi_label", for the frequencies of the labels, or "regression",
      for the mean.
    sums: how many of `total` examples have each label, each counted as if one
      example more had it, and another had not; or the sum of the numbers.
  """
  if problem == "regression":
    return [sums[0] / total]
  return [math.log((count + 1) / (total - count + 1)) for count in sums]


def _to_float(example: Example) -> float:
  if example.label is None:
    return 0.0
  try:
    # Not as Python reads it: to float(), 1_0 is 10.
    value = float(str(example.label).replace("_", "?"))
  except (TypeError, ValueError):
    value = math.nan
  if not abs(value) <= _LARGEST_FLOAT:  # NaN fails, too.
    text = repr(example.label)[:99] if example.label else "nothing"
    raise ValueError(f"{example.location}: expected a number, found {text}")
  return value


# Features.


def make_features(
  examples: Iterable[Example],
  tokenizer: tokenization.FullTokenizer,
  encode_label: Callable[[Example], Label],
  max_seq_length: int,
  doc_stride: int | None = None,
) -> Iterator[Feature]:
  """Turns examples into inputs of the model.

  Without `doc_stride`, a text is truncated at its end; of a pair, the longer
  text token by token, as in the original. With it, the text (of a pair, the
  second one) becomes several windows of as many tokens as fit, each of which
  begins `doc_stride` tokens after the one before. The first text of a pair is
  in every window; it is truncated only if fewer than min(doc_stride, length of
  the second) tokens would be left for the second.

  Args:
    max_seq_length: the most tokens of a feature, [CLS] and [SEP] included.
    doc_stride: tokens between the beginnings of windows; None: no windows.
  """
  check_doc_stride(doc_stride, max_seq_length)
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for index, example in enumerate(examples):
    ids_a = tokenizer.encode(example.text_a)
    ids_b = tokenizer.encode(example.text_b) if example.text_b else []
    label = encode_label(example)
    pairs, was_cut = _fit(ids_a, ids_b, max_seq_length, doc_stride)
    for window_a, window_b in pairs:
      packed = packing.pack(window_a, window_b, cls_id=cls_id, sep_id=sep_id)
      yield Feature(packed.input_ids, packed.segment_ids, label, index, was_cut)


def check_doc_stride(doc_stride: int | None, max_seq_length: int) -> None:
  """Checks that windows leave no token out; a ValueError if they do."""
  if doc_stride is not None and not 0 < doc_stride <= max_seq_length - 2:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected 1 to {max_seq_length - 2}, so that"
      f" no token is left out at --max_seq_length={max_seq_length}"
    )


def _fit(
  ids_a: list[int],
  ids_b: list[int],
  max_seq_length: int,
  doc_stride: int | None,
) -> tuple[list[tuple[list[int], list[int]]], bool]:
  """Returns the windows of a pair, and whether tokens are in none of them."""
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
  if not ids_b:
    parts = _split(ids_a, room, doc_stride)
    return [(part, []) for part in parts], False
  if doc_stride >= room:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected at most {room - 1} for pairs at"
      f" --max_seq_length={max_seq_length}"
    )
  kept_a = ids_a[: room - min(doc_stride, len(ids_b))]
  parts = _split(ids_b, room - len(kept_a), doc_stride)
  return [(kept_a, part) for part in parts], len(kept_a) < len(ids_a)


def _split(ids: list[int], size: int, stride: int) -> list[list[int]]:
  """Returns the parts of a text that its windows hold."""
  parts = windows.make_windows(len(ids), size, stride)
  return [ids[part.start : part.start + part.length] for part in parts]


_IS_REAL_EXAMPLE = record_writer.int64_feature([1])


def encode_feature(feature: Feature, max_seq_length: int) -> bytes:
  """Encodes a feature as a record of the original's, a tf.train.Example.

  Returns:
    The serialized input_ids, input_mask and segment_ids, int64
    [max_seq_length], padded with 0; is_real_example, int64 [1], a 1; label_ids,
    int64 [1] (single_label), int64 [labels] (multi_label) or float [1]
    (regression).
  """
  label = feature.label
  labels = label if isinstance(label, list) else [label]
  encode = record_writer.int64_feature
  if isinstance(label, float):
    encode = record_writer.float_feature
  return record_writer.encode_inputs(
    feature.input_ids,
    feature.segment_ids,
    max_seq_length,
    label_ids=encode(labels),
    is_real_example=_IS_REAL_EXAMPLE,
  )
