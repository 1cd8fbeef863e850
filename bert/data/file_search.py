"""Finds the files that users name, and says which may be meant.

A path such as `gs://...` is looked for by TensorFlow.
"""

from collections.abc import Iterable, Sequence
import difflib
import glob
import itertools
import os
import re
import stat

from bert.data import files, remote


def expand_patterns(patterns: str, flag: str) -> list[str]:
  """Returns the files of patterns, separated by commas.

  Those of one pattern are sorted, and patterns keep their order: a file that
  two of them match comes twice. A ValueError names a pattern without a match.
  """
  found = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = _glob(pattern)
    if not matches:
      raise ValueError(f"--{flag}: no file matches {pattern!r}")
    found.extend(matches)
  if not found:
    raise ValueError(f"--{flag}: expected a file, a glob or a list of them")
  return found


def check_is_no_input(output_file: str | None, inputs: Iterable[str]) -> None:
  """Raises a ValueError if a program would write over its input."""
  taken = set(map(os.path.realpath, inputs))
  if output_file and os.path.realpath(output_file) in taken:
    raise ValueError(f"--output_file={output_file} is an input")


def _glob(pattern: str) -> list[str]:
  if remote.is_remote(pattern):
    with remote.os_errors(pattern):
      # A killed process may have left temporary files of `atomic`.
      is_part = re.compile(r"\.[0-9a-f]{8}\.tmp").search
      return sorted(p for p in remote.gfile().glob(pattern) if not is_part(p))
  # A file may have a name that reads as a glob: `notes[1].txt`.
  matches = [pattern] if os.path.exists(pattern) else glob.glob(pattern)
  return sorted(match for match in matches if not os.path.isdir(match))


# What a file of --data_dir may be called, by its purpose.
SPLITS = {
  "train": ["train"],
  "eval": ["dev", "valid", "val"],
  "predict": ["test"],
}


def find_one(
  folder: str, names: Iterable[str], endings: Sequence[str]
) -> str | None:
  """Returns the file of such a name and ending, maybe .gz or .xz; or None."""
  parts = itertools.product(names, endings, ("", ".gz", ".xz"))
  paths = (os.path.join(folder, "".join(part)) for part in parts)
  found = list(filter(files.exists, paths))
  if len(found) > 1:
    listing = " and ".join(map(os.path.basename, found))
    raise ValueError(f"--data_dir={folder}: holds {listing}; keep one of them")
  return found[0] if found else None


def list_folder(path: str) -> list[str]:
  """Returns the sorted names in a folder, local or remote; [] without one."""
  if not remote.is_remote(path):
    return sorted(os.listdir(path)) if os.path.isdir(path) else []
  with remote.os_errors(path):
    is_there = remote.gfile().isdir(path)
    names = remote.gfile().listdir(path) if is_there else []
    return sorted(name.rstrip("/") for name in names)


def describe_missing(folder: str, inside: str = "") -> str:
  """Says what is in a folder that was to hold more, and which one may be meant.

  Args:
    folder: the folder, or one that is not there.
    inside: about the name of a folder in it that may be meant.
  """
  if remote.is_remote(folder):
    return "there" if files.exists(folder) else "no such folder"
  if not os.path.isdir(folder):
    parent, name = os.path.split(folder.rstrip("/"))
    return f"no such folder{_suggest(parent, name)}"
  found = _list_visible(folder)
  listing = ", ".join(found[:5] + ["..."] * (len(found) > 5)) or "nothing"
  return f"it holds {listing}{_suggest(folder, inside)}"


def _list_visible(folder: str) -> list[str]:
  names = list_folder(folder or ".")
  return [name for name in names if not name.startswith(".")]


def _suggest(folder: str, name: str) -> str:
  """Asks whether a similar name in a folder is meant; "" without one."""

  def simplify(name: str) -> str:  # In any case, with and without hyphens.
    return re.sub(r"[\W_]", "", name.lower())

  similar = {simplify(found): found for found in _list_visible(folder)}
  for match in difflib.get_close_matches(simplify(name), similar, 1, 0.7):
    return f"; did you mean {os.path.join(folder, similar[match])}?"
  return ""


def refuse_pipes(path: str) -> None:
  """Raises a ValueError if a file or a folder's is a pipe, which may hang."""
  paths = [path, *(glob.glob(f"{glob.escape(path)}/*"))]
  for found in [] if remote.is_remote(path) else filter(os.path.exists, paths):
    if stat.S_ISFIFO(os.stat(found).st_mode):
      raise ValueError(f"{found}: a pipe; expected a file")
