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
