"""Plain text as words, and words as text."""

from collections.abc import Iterator, Sequence
import functools
import itertools
import re
import unicodedata


def split_words(
  text: str, by_character: bool = False
) -> Iterator[tuple[int, int]]:
  """Yields the start and the end of each word of a text.

  Chinese characters are words of their own, and punctuation at the ends of a
  word is; with `by_character` every character is.

  >>> [text[a:b] for text in ['The U.S., 中文!'] for a, b in split_words(text)]
  ['The', 'U.S', '.', ',', '中', '文', '!']
  """

  def is_lone(index):
    return by_character or _is_ideograph(text[index])

  for match in re.finditer(r"\S+", text):
    # Runs of characters that are words of their own, or that are not.
    for are_lone, group in itertools.groupby(range(*match.span()), is_lone):
      places = list(group)
      run_start = places[0]
      run_end = places[-1] + 1

      # The word is what is left when lone characters or punctuation are split
      # off in front, and punctuation behind; it may be nothing.
      start = run_start
      end = run_end
      while start < end and (are_lone or _is_punctuation(text[start])):
        start += 1
      while end > start and _is_punctuation(text[end - 1]):
        end -= 1

      for i in range(run_start, start):
        yield i, i + 1
      if start < end:
        yield start, end
      for i in range(end, run_end):
        yield i, i + 1


@functools.cache
def _is_ideograph(char: str) -> bool:
  return unicodedata.name(char, "").startswith("CJK ")


@functools.cache
def _is_punctuation(char: str) -> bool:
  if char.isascii():
    return not char.isalnum()
  return unicodedata.category(char).startswith("P")


def join_words(
  words: Sequence[str], separator: str = " "
) -> tuple[str, list[tuple[int, int]]]:
  """Joins words, "" between characters; returns the text and their places."""
  offsets = []
  start = 0
  for word in words:
    offsets.append((start, start + len(word)))
    start += len(word) + len(separator)
  return separator.join(words), offsets
