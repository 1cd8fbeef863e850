"""Questions with several answers to choose from: SWAG, and your own.

`read_examples` reads them, `make_features` makes an input of the model for each
choice, `encode_feature` a record of all choices of a question. Section 4.4 of
the paper.
"""

from collections.abc import Iterable, Iterator
import itertools
import re
from typing import Any, NamedTuple

from data import packing, record_writer, tables
import tokenization

_SWAG_CHOICE = "ending"


class Example(NamedTuple):
  """A context, perhaps a question, and the choices."""

  example_id: str  # As in the file, else its number there, from 0.
  context: str
  question: str  # Stands before each choice; may be empty.
  choices: tuple[str, ...]
  label: int | None  # The number of the right choice, from 0; None: not known.
  location: str  # "path:line".


def read_examples(path: str) -> Iterator[Example]:
  """Yields the examples of a file, no more than a row being in memory.

  A CSV or TSV file has SWAG's columns: sent1, sent2, ending0, ending1 and so
  on, label, and perhaps id; more choices than a row has are empty. A row of
  JSON Lines is {"context": ..., "choices": [...]}, and perhaps "question",
  "label" and "id". Labels are numbers from 0.

  Raises:
    ValueError: a row is damaged, lacks something or has a label of no choice;
      the message begins with path and line.
  """
  is_json = tables.find_format(path) == "jsonl"
  read = _read_json if is_json else _read_columns
  example = None
  for example in read(path):
    _check(example)
    yield example
  if example is None:
    raise ValueError(f"{path}: holds no example")


def _check(example: Example) -> None:
  count = len(example.choices)
  if count < 2:
    raise ValueError(
      f"{example.location}: expected two choices or more, found {count}"
    )
  if not (example.context + example.question).strip():
    raise ValueError(f"{example.location}: neither a context nor a question")
  for number, choice in enumerate(example.choices):
    if not choice.strip():
      raise ValueError(f"{example.location}: choice {number} is empty")
  if example.label is not None and not 0 <= example.label < count:
    raise ValueError(
      f"{example.location}: the label {example.label} is not one of the "
      f"{count} choices: expected 0 to {count - 1}"
    )


def _read_columns(path: str) -> Iterator[Example]:
  header = next(tables.read_rows(path), None)
  if header is None:
    return
  names = [name.strip() for name in header.cells]
  endings = list(
    itertools.takewhile(
      lambda name: name in names,
      (f"{_SWAG_CHOICE}{number}" for number in itertools.count()),
    )
  )
  for name in names:
    if re.fullmatch(rf"{_SWAG_CHOICE}\d+", name) and name not in endings:
      missing = f"{_SWAG_CHOICE}{len(endings)}"
      raise ValueError(f"{path}: a column {name!r}, but none {missing!r}")
  columns = ["sent1", "sent2", "label", "id", *(endings or ["ending0"])]
  rows = tables.read_columns(
    path, columns, optional=("label", "id", "sent2"), header=True
  )
  for index, (location, values) in enumerate(rows):
    context, question, label, example_id, *choices = values
    while choices and not choices[-1].strip():
      choices.pop()  # This question has fewer than others.
    yield Example(
      str(index) if example_id is None else example_id.strip(),
      context.strip(),
      (question or "").strip(),
      tuple(choice.strip() for choice in choices),
      _to_label(label, location),
      location,
    )


def _read_json(path: str) -> Iterator[Example]:
  columns = ["context", "question", "choices", "label", "id"]
  rows = tables.read_columns(
    path, columns, optional=("context", "question", "label", "id")
  )
  for index, (location, values) in enumerate(rows):
    context, question, choices, label, example_id = values
    if not isinstance(choices, list):
      raise ValueError(
        f"{location}: 'choices' must be a list of strings, found"
        f" {tables.describe(choices)}"
      )
    yield Example(
      str(index)
      if example_id is None
      else tables.to_scalar(example_id, location, "id"),
      _to_text(context, location, "context"),
      _to_text(question, location, "question"),
      tuple(_to_text(choice, location, "choices") for choice in choices),
      _to_label(label, location),
      location,
    )


def _to_text(value: Any, location: str, name: str) -> str:
  return "" if value is None else tables.to_text(value, location, name).strip()


def _to_label(value: Any, location: str) -> int | None:
  if value is None or (isinstance(value, str) and not value.strip()):
    return None
  text = value.strip() if isinstance(value, str) else ""
  # Not int(): it takes "1_0" and "²" is a digit to str.isdigit().
  if not (text.isascii() and text.removeprefix("-").isdecimal()):
    description = repr(text) if text else tables.describe(value)
    raise ValueError(
      f"{location}: expected the number of the right choice, found "
      f"{description[:99]}"
    )
  return int(text[:20])


class Feature(NamedTuple):
  """The inputs of the model for one example, a list for each choice."""

  input_ids: list[list[int]]  # [CLS] context [SEP] question choice [SEP].
  segment_ids: list[list[int]]  # 0 up to the first [SEP], then 1.
  label: int  # 0 if it is not known.
  was_cut: bool  # Tokens of some choice are not in its input.


def make_features(
  examples: Iterable[Example],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
) -> Iterator[Feature]:
  """Turns examples into inputs of the model, in their order.

  Args:
    max_seq_length: the most tokens of an input, [CLS] and [SEP] included; a
      longer one is truncated, the longer text first, token by token.
  """
  if max_seq_length < 5:
    raise ValueError(
      f"--max_seq_length={max_seq_length}: expected at least 5: [CLS], a token,"
      " [SEP], a token and [SEP]"
    )
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  room = max_seq_length - 3
  for example in examples:
    packed, was_cut = [], False
    for choice in example.choices:
      # Without a context, the question stands there.
      first = example.context or example.question
      before = example.question if example.context else ""
      ids_a = tokenizer.encode(first)
      ids_b = tokenizer.encode(f"{before} {choice}" if before else choice)
      was_cut = was_cut or len(ids_a) + len(ids_b) > room
      packing.truncate_pair(ids_a, ids_b, room)
      packed.append(packing.pack(ids_a, ids_b, cls_id=cls_id, sep_id=sep_id))
    yield Feature(
      [choice.input_ids for choice in packed],
      [choice.segment_ids for choice in packed],
      example.label or 0,
      was_cut,
    )


def encode_feature(
  feature: Feature, max_seq_length: int, num_choices: int
) -> bytes:
  """Encodes a feature as a tf.train.Example.

  Returns:
    The serialized input_ids, input_mask and segment_ids, int64 [num_choices *
    max_seq_length], padded with 0; choice_mask, int64 [num_choices], 1 for a
    real choice, 0 for padding; label_ids, int64 [1].
  """
  names = ("input_ids", "input_mask", "segment_ids")
  values = {name: [] for name in names}
  for ids, segments in zip(feature.input_ids, feature.segment_ids, strict=True):
    choice = (ids, [1] * len(ids), segments)
    padding = [0] * (max_seq_length - len(ids))
    for name, numbers in zip(names, choice, strict=True):
      values[name] += numbers + padding
  size, mask = num_choices * max_seq_length, [1] * len(feature.input_ids)
  return record_writer.encode_example(
    {
      **{n: record_writer.padded_feature(values[n], size) for n in names},
      "choice_mask": record_writer.padded_feature(mask, num_choices),
      "label_ids": record_writer.int64_feature([feature.label]),
    }
  )
