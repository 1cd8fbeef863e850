"""Splitting texts into words, and joining words."""

import pytest

from tasks import tagging_words


@pytest.mark.parametrize(
  ("text", "by_character", "words"),
  [
    ("He (Al) saw U.S. troops.", False, "He ( Al ) saw U.S . troops ."),
    ("我在IBM工作，。", False, "我 在 IBM 工 作 ， 。"),
    ("在 IBM\n", True, "在 I B M"),
  ],
)
def test_plain_text_is_split(text, by_character, words):
  offsets = list(tagging_words.split(text, by_character))
  assert [text[start:end] for start, end in offsets] == words.split()


@pytest.mark.parametrize("separator", [" ", ""])
def test_words_are_joined(separator):
  words = ("Al", "saw", "Me")
  text, offsets = tagging_words.join(words, separator)
  assert text == separator.join(words)
  assert tuple(text[start:end] for start, end in offsets) == words
