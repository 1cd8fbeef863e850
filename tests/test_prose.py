"""Bans words that make sentences hard to read."""

import re

import pytest

import paths

# Better: a noun, "Returns whether", "says", "skipped", "has no", "resumes".
BANNED = re.compile(
  r"# Of |Tells whether|\b(?:told|passed over|is none|goes on)\b"
)
PAGES = [
  *paths.ROOT.glob("*.md"),
  *(paths.ROOT / "docs").glob("*.md"),
  *(paths.ROOT / "models").glob("*/*.md"),
  *(paths.ROOT / "examples").glob("*.py"),
]


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.name)
def test_prose_has_no_banned_words(path):
  lines = path.read_text(encoding="utf-8").splitlines()
  assert not [
    f"{number}: {line}"
    for number, line in enumerate(lines, 1)
    if BANNED.search(line)
  ]
