"""Finds the files that users name; for a name without a file, suggests one.

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

# As create_pretraining_data.py --num_shards and Apache Beam name their files.
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})(.*)")


def expand_patterns(patterns: str, flag: str) -> list[str]:
  """Returns the files of patterns, separated by commas.

  The files of one pattern are sorted, and patterns keep their order: a file
  that two patterns match comes twice. A ValueError names the flag and a pattern
  without a match.
  """
  paths = []
  for pattern in filter(None, map(str.strip, patterns.split(","))):
    matches = _glob(pattern)
    # What could the user have meant?
    if not matches:
      fault = f"--{flag}: no file matches {pattern!r}"
      if os.path.isdir(pattern):
        fault += f", a folder; expected files, such as {pattern.rstrip('/')}/*"
      elif not (remote.is_remote(pattern) or glob.has_magic(pattern)):
        fault += _suggest(*os.path.split(pattern))
      raise ValueError(fault)

    paths.extend(matches)

  # An empty flag, or one of commas alone, has no pattern.
  if not paths:
    raise ValueError(f"--{flag}: expected a file, a glob or a list of them")
  return paths


def check_shards(paths: Iterable[str]) -> None:
  """Raises a ValueError if files are of two sets of shards of one name.

  A glob finds both: those of a run with another number of shards hold the same
  text again.
  """
  counts = {}
  for path in paths:
    if match := _SHARD.fullmatch(path):
      name, count, ending = match.groups()
      first, other = counts.setdefault((name, ending), (path, count))
      if other != count:
        raise ValueError(
          f"{first}: of another set of shards than {path}: delete one set, or "
          "name the files of the other alone"
        )


def check_is_complete(patterns: str, flag: str) -> None:
  """Raises a ValueError if a glob finds shards of a set that lacks others.

  The job that makes the others may not have ended. Shards that are there may be
  left to other uses, and files that are named one by one are what is meant.
  """
  for pattern in filter(glob.has_magic, map(str.strip, patterns.split(","))):
    matches = _glob(pattern)
    # A name may read as a glob; see `_glob`.
    shards = map(_SHARD.fullmatch, set(matches) - {pattern})
    for name, count, ending in sorted({m.groups() for m in shards if m}):
      every = (f"{name}-{i:05}-of-{count}{ending}" for i in range(int(count)))
      for shard in every:
        if shard not in matches and not files.exists(shard):
          raise ValueError(
            f"--{flag}={pattern}: lacks {shard}: wait for its job, or name the "
            "files one by one"
          )


def check_new_shard(path: str) -> None:
  """Raises a ValueError if a set of another size is beside a new shard."""
  name = path.rpartition("-of-")[0].rpartition("-")[0]
  check_shards([*_glob(f"{glob.escape(name)}-?????-of-?????"), path])


def check_is_no_input(output_file: str | None, inputs: Iterable[str]) -> None:
  """Raises a ValueError if a program would write over its input."""
  taken = set(map(os.path.realpath, inputs))
  if output_file and os.path.realpath(output_file) in taken:
    raise ValueError(
      f"--output_file={output_file} is an input; name another file"
    )


def _glob(pattern: str) -> list[str]:
  """Returns the sorted files that match a pattern, without local folders."""
  if remote.is_remote(pattern):
    with remote.os_errors(pattern):
      # A killed process may have left temporary files of `atomic`.
      is_part = re.compile(r"\.[0-9a-f]{8}\.tmp").search
      is_name = glob.has_magic(pattern) and files.exists(pattern)
      matches = [pattern] if is_name else remote.gfile().glob(pattern)
      return sorted(path for path in matches if not is_part(path))

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
  """Finds the one file of a purpose in a folder, such as train.tsv.gz.

  Args:
    folder: the value of --data_dir.
    names: what the file may be called, such as `SPLITS["train"]`.
    endings: what may follow the name; .gz or .xz may follow the ending.

  Returns:
    The path; None if there is no such file.

  Raises:
    ValueError: there are two of them: which is meant?
  """
  parts = itertools.product(names, endings, ("", ".gz", ".xz"))
  candidates = (os.path.join(folder, "".join(part)) for part in parts)
  paths = list(filter(files.exists, candidates))
  if len(paths) > 1:
    listing = " and ".join(map(os.path.basename, paths))
    raise ValueError(f"--data_dir={folder}: holds {listing}; keep one of them")
  return paths[0] if paths else None


def list_folder(path: str) -> list[str]:
  """Returns the sorted names in a folder, local or remote; [] without one."""
  if not remote.is_remote(path):
    return sorted(os.listdir(path)) if os.path.isdir(path) else []

  # TensorFlow puts a slash behind the names of remote folders.
  with remote.os_errors(path):
    is_there = remote.gfile().isdir(path)
    names = remote.gfile().listdir(path) if is_there else []
    return sorted(name.rstrip("/") for name in names)


def describe_missing(folder: str, inside: str = "") -> str:
  """Says what a folder holds, where something was missed; suggests a name.

  Args:
    folder: the folder, or one that is not there.
    inside: the name that was missed in it. A similar one is suggested.
  """
  if remote.is_remote(folder):
    return "there" if files.exists(folder) else "no such folder"

  if os.path.isfile(folder):
    return "a file, not a folder"
  if not os.path.isdir(folder):
    parent, name = os.path.split(folder.rstrip("/"))
    return f"no such folder{_suggest(parent, name)}"

  # A few names are enough to see that it is the wrong folder.
  names = _list_visible(folder)
  more = ["..."] if len(names) > 5 else []
  listing = ", ".join(names[:5] + more) or "nothing"
  return f"it holds {listing}{_suggest(folder, inside)}"


def _list_visible(folder: str) -> list[str]:
  names = list_folder(folder or ".")
  return [name for name in names if not name.startswith(".")]


def _suggest(folder: str, name: str) -> str:
  """Asks whether a similar name in a folder is meant; "" without one."""

  # Capitals, hyphens and underscores do not count.
  def simplify(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())

  names = {simplify(name): name for name in _list_visible(folder)}
  for match in difflib.get_close_matches(simplify(name), names, 1, 0.7):
    return f"; did you mean {os.path.join(folder, names[match])}?"
  return ""


def refuse_pipes(path: str) -> None:
  """Raises a ValueError if a path, or a file in a folder, is a pipe.

  Opening a pipe that nobody writes to waits for ever.
  """
  if remote.is_remote(path):
    return
  for name in [path, *glob.glob(f"{glob.escape(path)}/*")]:
    if os.path.exists(name) and stat.S_ISFIFO(os.stat(name).st_mode):
      raise ValueError(f"{name}: a pipe; expected a file")
