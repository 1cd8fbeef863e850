"""Entities, the schemes of their tags, and the words of texts."""

import pytest

from bert.tasks import tagging_schemes, tagging_words

# Entities that touch, of one type and of two, and one of three words.
CONVERSIONS = {
  "iob1": "I-A B-A O I-B I-A I-A I-A",
  "iob2": "B-A B-A O B-B B-A I-A I-A",
  "iobes": "S-A S-A O S-B B-A I-A E-A",
  "bmes": "S-A S-A O S-B B-A M-A E-A",
  "bilou": "U-A U-A O U-B B-A I-A L-A",
  "bmewo": "W-A W-A O W-B B-A M-A E-A",
}


@pytest.mark.parametrize("source", CONVERSIONS)
@pytest.mark.parametrize("target", CONVERSIONS)
def test_tags_are_converted_between_schemes(source, target):
  tags = CONVERSIONS[source].split()
  found = tagging_schemes.convert_tags(tags, target)
  assert found == tuple(CONVERSIONS[target].split())


def test_tags_without_a_type_or_a_scheme_are_converted():
  convert = tagging_schemes.convert_tags
  assert convert(["B", "I", "O", "B"], "bmes") == ("B", "E", "O", "S")
  assert convert(["NN", "I-X"], "none") == ("NN", "I-X")


def test_entities_are_read_as_conlleval_reads_them():
  # Its rules: B after anything, I after O, after another type and after E.
  tags = "I-A I-A I-B B-B I-B O E-A I-A S-A S-A M-A E-A B".split()
  assert tagging_schemes.find_entities(tags) == [
    ("A", 0, 2),
    ("B", 2, 3),
    ("B", 3, 5),
    ("A", 6, 7),
    ("A", 7, 8),
    ("A", 8, 9),
    ("A", 9, 10),
    ("A", 10, 12),
    ("", 12, 13),
  ]


def test_plain_text_is_split():
  def split(text, by_character=False):
    offsets = tagging_words.split_words(text, by_character)
    return " ".join(text[start:end] for start, end in offsets)

  assert split("He (Al) saw U.S. troops.") == "He ( Al ) saw U.S . troops ."
  assert split("我在IBM工作，。") == "我 在 IBM 工 作 ， 。"
  assert split("在 IBM\n", by_character=True) == "在 I B M"


@pytest.mark.parametrize("separator", [" ", ""])
def test_words_are_joined(separator):
  words = ("Al", "saw", "Me")
  text, offsets = tagging_words.join_words(words, separator)
  assert text == separator.join(words)
  assert tuple(text[start:end] for start, end in offsets) == words
