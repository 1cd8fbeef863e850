"""Words in texts: splitting a text into words, joining words to a text."""

from collections.abc import Iterator, Sequence
import functools
import itertools
import re
import unicodedata


def split(text: str, by_character: bool = False) -> Iterator[tuple[int, int]]:
  """Yields the start and the end of each word of a text.

  >>> [text[a:b] for text in ['The U.S., 中文!'] for a, b in split(text)]
  ['The', 'U.S', '.', ',', '中', '文', '!']
  """

  def is_lone(index):
    return by_character or _is_ideograph(text[index])

  for match in re.finditer(r"\S+", text):
    for are_lone, group in itertools.groupby(range(*match.span()), is_lone):
      places = list(group)
      first, last = places[0], places[-1] + 1
      # Punctuation is split from both ends of a word.
      while first < last and (are_lone or _is_punctuation(text[first])):
        first += 1
      while last > first and _is_punctuation(text[last - 1]):
        last -= 1
      yield from ((i, i + 1) for i in places if i < first)
      if first < last:
        yield first, last
      yield from ((i, i + 1) for i in places if i >= last)


@functools.cache
def _is_ideograph(char: str) -> bool:
  return unicodedata.name(char, "").startswith("CJK ")


@functools.cache
def _is_punctuation(char: str) -> bool:
  if char.isascii():
    return not char.isalnum()
  return unicodedata.category(char).startswith("P")


def join(
  words: Sequence[str], separator: str = " "
) -> tuple[str, list[tuple[int, int]]]:
  """Joins words to a text; returns it and the start and end of each in it.

  Args:
    separator: between words; nothing, if words are characters.
  """
  offsets, start = [], 0
  for word in words:
    offsets.append((start, start + len(word)))
    start += len(word) + len(separator)
  return separator.join(words), offsets
