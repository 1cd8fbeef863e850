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
  for match in re.finditer(r"\S" if by_character else r"\S+", text):
    chars = enumerate(match[0], match.start())
    for is_lone, group in itertools.groupby(
      chars, lambda char: _is_ideograph(char[1])
    ):
      offsets = [offset for offset, _ in group]
      if is_lone:
        yield from ((offset, offset + 1) for offset in offsets)
      else:
        yield from _peel(text, offsets[0], offsets[-1] + 1)


def _peel(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
  """Splits punctuation from the beginning and the end of a word."""
  first, last = start, end
  while first < last and _is_punctuation(text[first]):
    first += 1
  while last > first and _is_punctuation(text[last - 1]):
    last -= 1
  yield from ((i, i + 1) for i in range(start, first))
  if first < last:
    yield first, last
  yield from ((i, i + 1) for i in range(last, end))


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
