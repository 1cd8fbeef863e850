"""Where the project stands, and the data beside it; what folders hold."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


def contents(folder):
  """Returns the files in a folder and below, but for those that hold times."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob("*")
    if path.is_file() and not re.match(r"events|report\.html", path.name)
  }


def differences(first, second):
  """Returns the names of files that are not the same in both `contents`."""
  names = first.keys() | second.keys()
  return sorted(n for n in names if first.get(n) != second.get(n))
