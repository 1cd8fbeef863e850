"""Tests of bert/vocabularies/vocabulary_table.py: copies, and remote files."""

import os

import pytest

from bert.data import files
from bert.vocabularies import vocabulary_table


def test_remote_vocabularies_are_copied_and_read(tmp_path):
  (tmp_path / "vocab.txt").write_text("[UNK]\nthe\n")
  vocabulary_table.copy(str(tmp_path / "vocab.txt"), "ram://copied")
  path = vocabulary_table.find(["ram://copied"])
  assert path == "ram://copied/vocab.txt"
  assert vocabulary_table.load_vocab(path) == {"[UNK]": 0, "the": 1}
  for read in (vocabulary_table.load_vocab, files.hash_file):
    with pytest.raises(OSError, match="ram://nowhere/vocab.txt: "):
      read("ram://nowhere/vocab.txt")


@pytest.mark.parametrize("earlier", ["vocab.txt", "vocab.words"])
def test_vocabularies_of_two_models_are_not_mixed(tmp_path, earlier):
  old, new = tmp_path / earlier, tmp_path / "new.txt"
  old.write_text("[UNK]\nold\n")
  new.write_text("[UNK]\nnew\n")
  with pytest.raises(ValueError, match=f"{earlier}: .*new.txt: choose another"):
    vocabulary_table.copy(str(new), str(tmp_path))
  assert sorted(os.listdir(tmp_path)) == sorted([earlier, "new.txt"])
  vocabulary_table.copy(str(old), str(tmp_path))  # The same one again.


PLAIN = vocabulary_table.WORD_PIECES
ACCENTS = vocabulary_table.ACCENTS
MECAB = vocabulary_table.KINDS[".ipadic"]
WORDS = vocabulary_table.KINDS[".words"]


@pytest.mark.parametrize(
  ("vocab_file", "asked", "lower", "strips", "expected"),
  [
    ("vocab.txt", None, True, None, PLAIN),
    ("vocab.txt", None, True, True, PLAIN),
    ("vocab.txt", None, True, False, ACCENTS),
    # Text with capitals keeps its accents anyway.
    ("vocab.txt", None, False, False, PLAIN),
    ("", None, True, False, ACCENTS),
    ("vocab.txt", ACCENTS, True, None, ACCENTS),
    # A dictionary's words have accents; they are not those of WordPieces.
    ("vocab.txt", MECAB, True, False, MECAB),
    ("vocab.words", None, True, None, WORDS),
  ],
)
def test_the_kind_of_a_vocabulary(vocab_file, asked, lower, strips, expected):
  asked = asked and (asked, "tokenizer_config.json")
  kind = vocabulary_table.choose_kind(vocab_file, asked, lower, strips)
  assert kind is expected


@pytest.mark.parametrize(
  ("vocab_file", "asked", "lower", "strips", "message"),
  [
    ("vocab.txt", ACCENTS, True, True, "=true: x.json keeps accents: leave"),
    ("vocab.accents", None, True, True, "=true: vocab.accents keeps accents"),
    ("vocab.txt", None, False, True, "=true: text is not lower-cased: leave"),
    (
      "vocab.words",
      None,
      True,
      False,
      "=false: vocab.words is not a vocab.txt",
    ),
  ],
)
def test_accents_that_contradict_a_vocabulary(
  vocab_file, asked, lower, strips, message
):
  asked = asked and (asked, "x.json")
  with pytest.raises(ValueError, match=f"--strip_accents{message}"):
    vocabulary_table.choose_kind(vocab_file, asked, lower, strips)
