"""The core does not know its extras: it has no word of theirs.

An extra may add files and a program, but no flag, field or `if` to a core file.
"""

import re

import pytest

import house
import paths

# Words of what stands in contrib; the names of its modules are not all of them.
WORDS = (
  r"causal",
  r"feature_based",
  r"\bgpt",
  r"init_layers",
  r"jieba",
  r"\b(bi)?_?lstm",
  r"mecab",
  r"\brelations?\b",
  r"relation_",
  r"teacher_(only|vectors)",
  r"\btext_?cnn",
  r"word_vectors",
)
# They find extras by name, or name the command in the place of an old flag.
TABLES = (
  "bert/cli/removed_flags.py",
  "bert/convert/formats.py",
  "bert/encoders/encoder_table.py",
  "bert/vocabularies/vocabulary_table.py",
)
CORE = [
  path
  for path in house.product_files()
  if house.place_of(path) not in ("contrib", "examples")
  and path.as_posix() not in TABLES
]


# The last one is the ending of problems that only extras train.
@pytest.mark.parametrize("word", [*WORDS, r'"_lm"'])
def test_no_core_file_has_a_word_of_an_extra(word):
  found = [
    f"{path}:{number}: {line}"
    for path in CORE
    for number, line in enumerate(
      (paths.ROOT / path).read_text(encoding="utf-8").splitlines(), 1
    )
    if re.search(word, line, re.IGNORECASE)
  ]
  assert not found


def test_every_word_is_one_of_an_extra():
  extras = [
    (paths.ROOT / path).read_text(encoding="utf-8")
    for path in house.product_files()
    if house.place_of(path) == "contrib" or path.as_posix() in TABLES
  ]
  for word in WORDS:
    assert any(re.search(word, text, re.IGNORECASE) for text in extras), word
