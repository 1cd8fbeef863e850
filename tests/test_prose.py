"""Bans words that make sentences hard to read, in code, docs and messages."""

import re
import subprocess

import paths

# Better: a noun, "Returns whether", "says", "skipped", "has no", "resumes".
BANNED = re.compile(
  r"# Of |Tells whether|\b(?:told|passed over|is none|goes on)\b"
)
SUFFIXES = ("css", "html", "js", "md", "py")


def test_no_file_has_banned_words():
  patterns = [f"*.{suffix}" for suffix in SUFFIXES]
  command = ["git", "ls-files", "-z", *patterns, ":!tests/test_prose.py"]
  listing = subprocess.check_output(command, cwd=paths.ROOT).decode()
  names = listing.removesuffix("\0").split("\0")
  assert [
    f"{name}:{number}: {line}"
    for name in names
    if (paths.ROOT / name).is_file()
    for number, line in enumerate(
      (paths.ROOT / name).read_text(encoding="utf-8").splitlines(), 1
    )
    if BANNED.search(line)
  ] == []
