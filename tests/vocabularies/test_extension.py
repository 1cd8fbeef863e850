"""Tests of bert/vocabularies/extension.py: which tokens are added."""

import collections
import itertools
import json
import random

import pytest

from bert import tokenization
from bert.cli import vocab_settings
from bert.vocabularies import extension

LETTERS = "abcd"
OLD = ["[PAD]", "[UNK]", "[unused0]", "[CLS]", "[unused1]", *LETTERS]
OLD += [f"##{letter}" for letter in LETTERS]


def count_tokens(words, vocab):
  """Counts the tokens of a text with the tokenizer alone."""
  split = tokenization.WordpieceTokenizer(dict.fromkeys(vocab)).split_word
  return sum(count * len(split(word)) for word, count in words.items())


def test_tokens_are_added_by_what_they_save(capsys):
  words = {"abc": 10, "dab": 5, "bdab": 4, "a": 99}
  found = list(extension.extend(OLD, words, 3))
  # abc saves 20 tokens; of the 8 that ##dab would save with bdab, bdab saves
  # 12, and dab 10.
  assert found == [
    *("[PAD]", "[UNK]", "abc", "[CLS]", "bdab"),
    *OLD[5:],
    "dab",
  ]
  assert capsys.readouterr().out == (
    "3 new tokens, 2 of them in rows of [unusedN]: 26.2% fewer tokens (118 "
    "instead of 160); the last one saves 10\n"
  )


def test_parts_of_words_count_in_all_words():
  words = dict.fromkeys(["abcd", "bbcd", "cbcd", "dbcd", "ab"], 2)
  assert list(extension.extend(OLD, words, 1))[2] == "##bcd"


def test_a_token_that_leaves_an_unknown_rest_is_not_added():
  # With "ab", which would save 9, the rest of abc would be ##c: no token.
  old = ["[UNK]", "a", "##b", "##bc"]
  with pytest.raises(
    ValueError, match="--extend: each word of --input_file is"
  ):
    extension.extend(old, {"abc": 1, "a": 3}, 0)
  found = extension.extend(old, {"ab": 9, "abc": 1}, 5)
  assert list(found) == [*old, "abc"]


@pytest.mark.parametrize("seed", range(20))
def test_savings_are_those_of_the_tokenizer(seed, capsys):
  source = random.Random(seed)
  words = collections.Counter(
    "".join(source.choices(LETTERS, [4, 3, 2, 1], k=source.randint(1, 7)))
    for _ in range(60)
  )
  found = list(extension.extend(OLD, words, 6))
  before, after = count_tokens(words, OLD), count_tokens(words, found)
  assert f"({after} instead of {before})" in capsys.readouterr().out
  # The first one is the best of all that there could be.
  first = found[2]
  substrings = {
    ("##" if start else "") + word[start:end]
    for word in words
    for start, end in itertools.combinations(range(len(word) + 1), 2)
  }
  sizes = {t: count_tokens(words, [*OLD, t]) for t in substrings - {*OLD}}
  assert sizes[first] == min(sizes.values())
  # Another order of the words changes nothing.
  again = extension.extend(OLD, dict(reversed(words.items())), 6)
  assert list(again) == found


def test_only_so_many_candidates_are_remembered(monkeypatch):
  # A word of four letters has six. Those of abcd save 27, 18, 18, 9, 9 and 9.
  words = {"ddaa": 1, "dcba": 1, "abcd": 9}
  found = extension.extend(OLD, words, 9)
  assert [*found][2] == "abcd"
  assert [*found][4:] == ["dcba", *OLD[5:], "ddaa"]

  monkeypatch.setattr(extension, "_MOST_CANDIDATES", 3)
  found = extension.extend(OLD, words, 9)
  assert list(found) == ["[PAD]", "[UNK]", "abcd", *OLD[3:]]


def test_tokens_may_be_longer_than_those_of_the_vocabulary():
  word = "abcd" * 12
  assert list(extension.extend(OLD, {word: 1}, 1))[2] == word
  with pytest.raises(ValueError, match="is one token already"):
    extension.extend(OLD, {"abcd" * 13: 1}, 1)


def test_pieces_that_continue_a_word_are_spelled_as_such():
  spell = extension.Speller(["ab", "##ab", "a", "##a", "##b"]).spell
  assert spell("abab") == ["ab", "##ab"]
  assert spell("##abb") == ["##ab", "##b"]
  assert spell("##abc") == spell("abc") == ["[UNK]"]


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"[UNK]\na\n\na\n", "v.txt:4: 'a' is on line 2, too; expected a token on"),
    (b"a\n\xff\n", "v.txt:2: not UTF-8"),
    (b"\n", "v.txt: empty; expected one token a line"),
    (b"", "v.txt: empty; expected one token a line"),
  ],
)
def test_a_bad_vocabulary_is_refused(tmp_path, monkeypatch, content, message):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "v.txt").write_bytes(content)
  with pytest.raises(ValueError, match=message):
    extension.read("v.txt")


def test_lines_are_read_as_they_are(tmp_path):
  (tmp_path / "v.txt").write_bytes("\ufeff[PAD]\r\n \u2028\na\n".encode())
  assert extension.read(str(tmp_path / "v.txt")) == ["[PAD]", " \u2028", "a"]


@pytest.mark.parametrize(
  ("stated", "flags", "message"),
  [
    (
      {"do_lower_case": False},
      {},
      "do_lower_case is False: pass --do_lower_case=false",
    ),
    (
      {"do_lower_case": True},
      {"do_lower_case": False},
      "do_lower_case is True: pass --do_lower_case=true",
    ),
    (
      {"do_lower_case": True, "strip_accents": False},
      {},
      "tokenizer_config.json keeps accents: pass --strip_accents=false",
    ),
    (None, {"strip_accents": False}, "are cased: pass --do_lower_case=false"),
  ],
)
def test_the_casing_is_the_models(tmp_path, stated, flags, message):
  if stated:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(stated))
  settings = vocab_settings.VocabSettings(
    input_file="",
    output_file="",
    extend=str(tmp_path / "vocab.txt"),
    **{"do_lower_case": True, **flags},
  )
  tokens = ["film", "word"] if stated else ["Film", "Word", "word"]
  with pytest.raises(ValueError, match=message):
    vocab_settings.check_casing(settings, tokens)
