"""Whether what flags name can be read and written, before any work begins.

Remote paths are left out, as asking for them needs TensorFlow; but not a folder
that a program replaces.
"""

from collections.abc import Callable
import glob
import os
import stat

from bert.data import file_search, files, hub, remote


def check(flag: str, kind: str, value: str) -> None:
  """Raises a ValueError, which names the flag, if a path cannot be used.

  Args:
    flag: its name, without hyphens.
    kind: a key of `_FAULTS`, which says what the flag names.
    value: of the flag; may be a list, separated by commas, of several kinds.
  """
  if not remote.is_remote(value) or kind == "empty_folder":
    if fault := _of_name(value) or _FAULTS[kind](flag, value):
      raise ValueError(f"--{flag}={value}: {fault}")


def _of_name(path: str) -> str:
  """Says why neither TensorFlow nor our files of JSON can hold a name."""
  try:
    path.encode()
  except UnicodeEncodeError:
    return "a name that is not UTF-8; rename it"
  return ""


def _of_files(flag: str, patterns: str) -> str:
  # A ValueError if no file matches.
  for path in file_search.expand_patterns(patterns, flag):
    if fault := _of_file(flag, path):
      return f"{path}: {fault}"
  return ""


def _of_input(flag: str, patterns: str) -> str:
  return "" if patterns == files.STANDARD_INPUT else _of_files(flag, patterns)


def _of_file(flag: str, path: str) -> str:
  if not os.path.exists(path):
    missing = file_search.describe_missing(path)
    return missing.replace("no such folder", "no such file", 1)
  if os.path.isdir(path):
    return "a folder; expected a file"
  if not os.access(path, os.R_OK):
    return "it may not be read"
  return _of_name(path)  # A pattern may have found it.


def _of_stored_file(flag: str, path: str) -> str:
  fault = _of_file(flag, path)
  is_pipe = not fault and stat.S_ISFIFO(os.stat(path).st_mode)
  return "a pipe; expected a file, for it is read twice" if is_pipe else fault


def _of_folder(flag: str, path: str) -> str:
  if not os.path.exists(path):
    return file_search.describe_missing(path)
  return "" if os.path.isdir(path) else "a file; expected a folder"


def _of_checkpoint(flag: str, path: str) -> str:
  """Looks for a folder, a file, or the files of which it is the prefix."""
  prefix = glob.escape(path)
  if os.path.exists(path) or os.path.exists(f"{path}.index"):
    return ""
  is_old = glob.glob(f"{prefix}-?????-of-?????")  # TensorFlow's first format.
  return "" if is_old else f"no checkpoint there (no {path}.index)"


def _of_model(flag: str, path: str) -> str:
  """Leaves names of the Hub to the fetch, which asks for them once."""
  is_there = hub.is_name(path) or not _of_checkpoint(flag, path)
  return "" if is_there else file_search.describe_missing(path)


def _of_new_files(flag: str, names: str) -> str:
  for path in filter(None, map(str.strip, names.split(","))):
    if os.path.isdir(path):
      return f"{path} is a folder; expected the name of a file"
    if fault := _find_obstacle(path):
      return fault
  return ""


def _of_new_folder(flag: str, path: str) -> str:
  if os.path.exists(path) and not os.path.isdir(path):
    return "not a folder; expected a folder, which may be new"
  return _find_obstacle(path)


def _of_empty_folder(flag: str, path: str) -> str:
  is_folder, list_folder = os.path.isdir, os.listdir
  if remote.is_remote(path):
    is_folder, list_folder = remote.gfile().isdir, remote.gfile().listdir
  if files.exists(path) and not (is_folder(path) and not list_folder(path)):
    return "is there already; name a folder that is new or empty"
  if os.path.ismount(path):  # The new folder takes its place at the end.
    return "a mount point; name a folder in it"
  return "" if remote.is_remote(path) else _find_obstacle(path)


def _find_obstacle(path: str) -> str:
  """Says why a path and its missing folders cannot be made; "" if they can."""
  if os.path.exists(path):
    return ""  # A file is replaced; what is done to a folder depends on it.
  folder = os.path.dirname(os.path.abspath(path))
  while not os.path.exists(folder):
    folder = os.path.dirname(folder)
  if not os.path.isdir(folder):
    return f"{folder} is a file, not a folder: name another place, or move it"
  can_write = os.access(folder, os.W_OK | os.X_OK)
  return "" if can_write else f"{folder} may not be written to"


# What a flag may name, and what says why it cannot be used, or "".
_FAULTS: dict[str, Callable[[str, str], str]] = {
  "file": _of_stored_file,
  "files": _of_files,  # Patterns, separated by commas; and pipes.
  "input": _of_input,  # The same, or - for the standard input.
  "folder": _of_folder,
  "checkpoint": _of_checkpoint,
  "model": _of_model,  # A folder, a checkpoint, or a name of the Hub.
  "new_files": _of_new_files,  # Names, separated by commas.
  "new_folder": _of_new_folder,  # New, or to be added to.
  "empty_folder": _of_empty_folder,  # New or empty; it is replaced by another.
}
