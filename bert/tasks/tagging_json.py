"""Sentences of JSON Lines: words and their tags, or a text and its entities.

  {"tokens": ["Al", "ran"], "ner_tags": ["B-PER", "O"]}
  {"text": "Al ran", "entities": [{"start": 0, "end": 2, "label": "PER"}]}

`tags` is another name of `ner_tags`. Either may have numbers, if the names of
the tags are given. Places count the characters of the text, from 0, and the end
is the place after the last one.
"""

import bisect
from collections.abc import Iterator, Sequence
import itertools
import re
from typing import Any, NamedTuple

from bert.data import messages, progress, tables
from bert.tasks import tagging_words

_ENDING = re.compile(r"\.(jsonl|ndjson|json)(\.gz|\.xz)?$", re.IGNORECASE)
_TAGS = ("tags", "ner_tags")
# A number of a tag or a character; Python refuses to read thousands of digits.
_NUMBER = re.compile("[0-9]{1,18}")


class Row(NamedTuple):
  """A sentence."""

  location: str
  words: Sequence[str]
  tags: Sequence[str] | None  # In IOB2, where they were entities.
  # Where the row is a text: that, and the start and the end of each word.
  text: str | None = None
  offsets: Sequence[tuple[int, int]] = ()
  num_inexact: int = 0  # Entities that begin or end within a word.


class _Entity(NamedTuple):
  start: int
  end: int
  label: str


def is_json(path: str) -> bool:
  """Returns whether a file is JSON Lines, by its name."""
  return _ENDING.search(path) is not None


def read(path: str, names: Sequence[str] = ()) -> Iterator[Row]:
  """Yields the sentences of a file.

  Args:
    path: the file.
    names: of the tags, by their numbers; () if the file has no numbers.

  Raises:
    ValueError: names the line of a row that is wrong.
  """
  for location, values in tables.read_rows(path):
    if "tokens" not in values and "text" in values:
      yield _read_text(values, location)
      continue

    words = _read_list(values, "tokens", location)

    # A file to predict may lack tags.
    keys = [key for key in _TAGS if values.get(key) is not None]
    if len(keys) > 1:
      raise ValueError(f"{location}: both 'tags' and 'ner_tags': keep one")

    # Each word has a tag, a name or the number of one.
    tags = None
    for key in keys:
      found = _read_list(values, key, location)
      if len(found) != len(words):
        raise ValueError(
          f"{location}: {len(words)} and {len(found)} 'tokens' and {key!r}; "
          "expected as many of both"
        )
      tags = [_name_tag(tag, names, location) for tag in found]
    yield Row(location, words, tags)


def note_inexact(path: str, names: Sequence[str] = ()) -> None:
  """Says how many entities of texts begin or end within a word."""
  first = ""
  total = 0
  for row in read(path, names):
    total += row.num_inexact
    first = first or (row.location if total else "")
  if total:
    progress.note(
      f"note: {first}: an entity begins or ends within a word; of "
      f"{total:,} such entities, the words are learned and scored as a whole"
    )


def _read_list(values, key: str, location: str) -> list[str]:
  """Returns a list of words or tags; a ValueError if it has anything else."""
  items = values.get(key)
  if not (isinstance(items, list) and items):
    raise ValueError(
      f"{location}: expected a list of texts under the key {key!r}, found "
      f"{tables.describe(items) if key in values else 'no such key'}"
    )
  for item in items:
    # predictions.txt has a word a line, and tabs between its columns.
    if not (isinstance(item, str) and item) or re.search(r"[\t\r\n]", item):
      raise ValueError(
        f"{location}: expected texts without tabs and line breaks in {key!r}, "
        f"found {messages.shorten(repr(item))}"
      )
  return items


def _name_tag(tag: str, names: Sequence[str], location: str) -> str:
  """Returns a tag, or its name if the file has its number."""
  if not isinstance(tag, tables.Number):
    return tag
  if _NUMBER.fullmatch(tag) and int(tag) < len(names):
    return names[int(tag)]
  cure = f"a number from 0 to {len(names) - 1}, as --labels has {len(names)}"
  raise ValueError(
    f"{location}: the tag {messages.shorten(tag)} is a number: expected "
    f"{cure if names else '--labels with the names of the tags'}"
  )


def _read_text(values, location: str) -> Row:
  """Splits a text into words, and makes tags of its entities."""
  text = tables.to_text(values["text"], location, "text")
  offsets = list(tagging_words.split_words(text))
  if not offsets:
    raise ValueError(f"{location}: expected a word in 'text', found none")
  words = [text[start:end] for start, end in offsets]

  if values.get("entities") is None:  # A file to predict may lack them.
    return Row(location, words, None, text, offsets)

  # A word has the tag of the first entity that has a character of it: texts to
  # predict are split into the same words, without a look at entities.
  entities = _read_entities(values["entities"], text, location)
  tags = ["O"] * len(words)
  num_inexact = 0
  starts, ends = zip(*offsets, strict=True)
  for entity in entities:
    # The numbers of the words that end after its start and start before its
    # end.
    touched = range(
      bisect.bisect_right(ends, entity.start),
      bisect.bisect_left(starts, entity.end),
    )
    if not touched:
      place = f"{entity.start} to {entity.end}"
      raise ValueError(f"{location}: the entity from {place} has no word")

    # Texts have entities such as "New York" of "New Yorkers".
    first, last = offsets[touched[0]], offsets[touched[-1]]
    num_inexact += first[0] < entity.start or last[1] > entity.end

    free = [number for number in touched if tags[number] == "O"]
    for number in free:
      tags[number] = f"{'B' if number == free[0] else 'I'}-{entity.label}"
  return Row(location, words, tags, text, offsets, num_inexact)


def _read_entities(items: Any, text: str, location: str) -> list[_Entity]:
  """Returns the entities of a text, by place; a ValueError if they overlap."""
  if not isinstance(items, list):
    raise ValueError(
      f"{location}: expected a list under the key 'entities', found "
      f"{tables.describe(items)}"
    )
  entities = sorted(_read_entity(item, text, location) for item in items)
  for one, other in itertools.pairwise(entities):
    if other.start < one.end:
      raise ValueError(
        f"{location}: the entities from {one.start} to {one.end} ({one.label}) "
        f"and from {other.start} to {other.end} ({other.label}) overlap; a "
        "word has one tag"
      )
  return entities


def _read_entity(item: Any, text: str, location: str) -> _Entity:
  """Returns an entity; a ValueError if it is not in the text."""
  values: dict[str, Any] = item if isinstance(item, dict) else {}
  start, end, label = (values.get(k, "") for k in ("start", "end", "label"))
  places = [n for n in (start, end) if isinstance(n, tables.Number)]
  if len(places) < 2 or not all(map(_NUMBER.fullmatch, places)):
    raise ValueError(
      f"{location}: expected entities as {{'start': 0, 'end': 2, 'label': "
      f"'PER'}}, found {messages.shorten(repr(item))}"
    )
  if not int(start) < int(end) <= len(text):
    raise ValueError(
      f"{location}: an entity from {start} to {end}: expected a place in the "
      f"text, which has {len(text)} characters"
    )

  # A tag stands in a line of predictions.txt, and in one of labels.txt.
  is_line = isinstance(label, str) and label == " ".join(label.split())
  if not (is_line and label):
    raise ValueError(
      f"{location}: expected a label without tabs, line breaks and double "
      f"spaces, found {messages.shorten(repr(label))}"
    )
  return _Entity(int(start), int(end), str(label))
