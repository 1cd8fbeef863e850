"""Questions with several answers to choose from: SWAG, and your own.

`read_examples` reads them, `make_features` makes an input of the model for each
choice. Section 4.4 of the paper.
"""

from collections.abc import Iterable, Iterator
import re
from typing import Any, NamedTuple

from bert import tokenization
from bert.data import packing, tables


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
  "label" and "id". A ValueError names path and line of a row that is wrong.
  """
  is_json = tables.find_format(path) == "jsonl"
  rows = _read_json_rows(path) if is_json else _read_table_rows(path)

  index = -1
  for index, (location, cells) in enumerate(rows):
    context, question, label, example_id, choices = cells

    # Without an id, the number of the question names it in predictions.
    if example_id is None:
      example_id = str(index)
    example = Example(
      tables.to_scalar(example_id, location, "id"),
      _to_text(context, location, "context"),
      _to_text(question, location, "question"),
      tuple(_to_text(choice, location, "choices") for choice in choices),
      _to_label(label, location),
      location,
    )
    _check(example)
    yield example

  # No row came: the number is still that before the first.
  if index < 0:
    raise ValueError(f"{path}: holds no example")


def _read_json_rows(path: str) -> Iterator[tables.Row]:
  """Yields rows of [context, question, label, id, choices], of any types.

  Only the choices are sure to be a list. A key that a row may lack gives None.
  """
  optional = ("context", "question", "label", "id")
  columns = list(optional) + ["choices"]
  for row in tables.read_columns(path, columns, optional=optional):
    choices = row.cells[-1]
    if not isinstance(choices, list):
      raise ValueError(
        f"{row.location}: 'choices' must be a list of strings, found"
        f" {tables.describe(choices)}"
      )
    yield row


def _read_table_rows(path: str) -> Iterator[tables.Row]:
  """Yields the rows of CSV or TSV as `_read_json_rows` does; cells are text."""
  # The header says how many columns of choices there are.
  header = next(tables.read_rows(path), None)
  names = [cell.strip() for cell in header.cells] if header else []
  columns = ["sent1", "sent2", "label", "id"] + find_endings(names)
  optional = ("sent2", "label", "id")

  for location, cells in tables.read_columns(path, columns, optional=optional):
    context, question, label, example_id, *choices = cells

    # A question with fewer choices than the header has empty cells at its end.
    while choices and not choices[-1].strip():
      choices.pop()
    yield tables.Row(location, [context, question, label, example_id, choices])


def find_endings(names: Iterable[str]) -> list[str]:
  """Returns the columns of the choices, as many as a header has of them."""
  count = sum(bool(re.fullmatch(r"ending\d+", name)) for name in names)
  return [f"ending{number}" for number in range(max(1, count))]


def _check(example: Example) -> None:
  """Raises a ValueError if an example is nothing to choose from."""
  count = len(example.choices)
  fault = ""
  if count < 2:
    fault = f"expected two choices or more, found {count}"
  elif not (example.context or example.question):
    fault = "neither a context nor a question"
  elif "" in example.choices:
    fault = f"choice {example.choices.index('')} is empty"
  elif example.label is not None and not 0 <= example.label < count:
    fault = (
      f"the label {example.label} is not one of the {count} choices: expected "
      f"0 to {count - 1}"
    )
  if fault:
    raise ValueError(f"{example.location}: {fault}")


def _to_text(value: Any, location: str, name: str) -> str:
  """Returns a text; a ValueError if JSON has another type there."""
  return "" if value is None else tables.to_text(value, location, name).strip()


def _to_label(value: Any, location: str) -> int | None:
  """Returns the number of the right choice; None if the cell is empty."""
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
  # Python refuses to read thousands of digits; twenty are as wrong a number.
  return int(text[:20])


class ChoiceFeature(NamedTuple):
  """The inputs of the model for one example, a list for each choice."""

  input_ids: list[list[int]]  # [CLS] context [SEP] question choice [SEP].
  segment_ids: list[list[int]]  # 0 up to the first [SEP], then 1.
  label: int | None
  was_cut: bool  # Tokens of some choice are not in its input.
  location: str  # "path:line".


def make_features(
  examples: Iterable[Example],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
) -> Iterator[ChoiceFeature]:
  """Turns examples into inputs of the model.

  The longer of the two texts is truncated, token by token.

  Args:
    examples: contexts with choices.
    tokenizer: makes the ids of their tokens.
    max_seq_length: the most tokens of an input, [CLS] and [SEP] included.

  Raises:
    ValueError: the length does not hold a token of each text.
  """
  if max_seq_length < 5:
    raise ValueError(
      f"--max_seq_length={max_seq_length}: expected at least 5: [CLS], a token,"
      " [SEP], a token and [SEP]"
    )
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  room = max_seq_length - 3
  for example in examples:
    # Without a context, the question stands there.
    first = example.context or example.question
    before = example.question if example.context else ""

    # Long texts are encoded once, not for each choice; one token more than fits
    # shows that some are truncated. No token spans a space, so that what is
    # after a question that fills the room changes nothing.
    ids_first = tokenizer.encode(first)[: room + 1]
    ids_before = tokenizer.encode(before)[: room + 1]

    packed = []
    was_cut = False
    for choice in example.choices:
      # Copies, because truncation shortens the lists.
      ids_a = ids_first.copy()
      ids_b = ids_before.copy()
      if len(ids_b) <= room:
        ids_b = tokenizer.encode(f"{before} {choice}".strip())
      was_cut = was_cut or len(ids_a) + len(ids_b) > room
      packing.truncate_pair(ids_a, ids_b, room)
      packed.append(packing.pack(ids_a, ids_b, cls_id=cls_id, sep_id=sep_id))

    yield ChoiceFeature(
      [choice.input_ids for choice in packed],
      [choice.segment_ids for choice in packed],
      example.label,
      was_cut,
      example.location,
    )
