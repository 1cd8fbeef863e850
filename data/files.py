"""Paths, text and output files: globs, lines of UTF-8, all-or-nothing writing.

TensorFlow is imported only for a path such as `gs://...`, inside the function
that meets one: importing it takes seconds and hundreds of megabytes. Where it
is not installed, `use_file_system` puts something else in its place.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import errno
import fcntl
import functools
import glob
import gzip
import hashlib
import io
import itertools
import json
import lzma
import math
import os
import re
import shutil
import sys
from typing import Any, BinaryIO
import zlib

STANDARD_INPUT = "-"  # What `read_lines` calls it.

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}

_file_system: Any = None  # Of remote paths; None: TensorFlow's.


def is_remote(path: str) -> bool:
  """Returns whether only TensorFlow, or its stand-in, can open the path."""
  return "://" in path


def use_file_system(file_system: Any) -> None:
  """Replaces TensorFlow as the opener of remote paths.

  Args:
    file_system: has the functions of `tf.io.gfile` that are used here, which
      raise `OSError`; None for TensorFlow's own.
  """
  global _file_system
  _file_system = file_system


def _remote() -> Any:
  if _file_system:
    return _file_system
  import tensorflow as tf  # Slow; only remote paths need it.

  return tf.io.gfile


def expand_patterns(patterns: str, flag: str) -> list[str]:
  """Returns the files that comma-separated glob patterns match.

  Returns:
    The files in the order of the patterns; sorted by name within one.

  Raises:
    ValueError: a pattern matches no file.
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
  """Raises a ValueError if a program would write over what it reads."""
  if output_file and os.path.realpath(output_file) in {
    os.path.realpath(path) for path in inputs
  }:
    raise ValueError(f"--output_file={output_file} is an input")


def _glob(pattern: str) -> list[str]:
  if is_remote(pattern):
    with _os_errors(pattern):
      # Not what a process that was killed left of `_replace_remote`.
      is_part = re.compile(r"\.[0-9a-f]{8}\.tmp").search
      return sorted(p for p in _remote().glob(pattern) if not is_part(p))
  # A file may have a name that reads as a glob: `notes[1].txt`.
  matches = [pattern] if os.path.exists(pattern) else glob.glob(pattern)
  return sorted(match for match in matches if not os.path.isdir(match))


def find_one(
  folder: str, names: Iterable[str], endings: Sequence[str]
) -> str | None:
  """Returns the file of a folder with one of the names and endings.

  .gz or .xz may follow; None if there is no such file.

  Raises:
    ValueError: there are several.
  """
  paths = [
    os.path.join(folder, name + ending + compression)
    for name in names
    for ending in endings
    for compression in ("", ".gz", ".xz")
  ]
  found = list(filter(exists, paths))
  if len(found) > 1:
    listing = " and ".join(map(os.path.basename, found))
    raise ValueError(f"--data_dir={folder}: holds {listing}; keep one of them")
  return found[0] if found else None


def read_lines(path: str, keeps_returns: bool = False) -> Iterator[str]:
  r"""Yields the lines of a UTF-8 text without their "\n".

  Only "\n" ends a line: U+2028 or "\f" within one are text.

  Args:
    path: see `read_raw_lines`.
    keeps_returns: keeps "\r". TensorFlow's GFile, with which the original reads
      lines, drops each one.

  Raises:
    ValueError: the bytes are not UTF-8, with the offset (after decompression)
      of the first bad one, or the compressed file is damaged.
  """
  offset = 0
  for line in read_raw_lines(path):
    try:
      text = line.decode("utf-8")
    except UnicodeDecodeError as error:
      raise ValueError(
        f"{path}: byte offset {offset + error.start}: not UTF-8 "
        f"({error.reason})"
      ) from None
    offset += len(line)
    text = text.removesuffix("\n")
    yield text if keeps_returns else text.replace("\r", "")


def read_raw_lines(path: str) -> Iterator[bytes]:
  r"""Yields the lines of a file, with their "\n".

  A name that ends in `.gz` or `.xz` is decompressed on the way; no more than a
  line and the buffers are in memory.

  Args:
    path: a local file, a remote one that TensorFlow can open, or "-", which is
      the standard input.

  Raises:
    ValueError: the compressed file is damaged.
  """
  if path == STANDARD_INPUT:
    yield from sys.stdin.buffer
    return
  with open_bytes(path) as file:
    lines = file
    if path.endswith(".gz"):
      lines = gzip.open(file)
    elif path.endswith(".xz"):
      lines = _split_lines(_decompress_xz(file))
    elif is_remote(path):  # GFile's own lines lack "\r".
      lines = _split_lines(iter(lambda: file.read(1 << 18), b""))
    try:
      yield from lines
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
      raise ValueError(f"{path}: damaged compressed file ({error})") from None


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
  parts = []
  for piece in pieces:
    *ends, rest = piece.split(b"\n")
    for end in ends:
      yield b"".join([*parts, end, b"\n"])
      parts = []
    parts.append(rest)
  if last := b"".join(parts):
    yield last


def _decompress_xz(file: BinaryIO) -> Iterator[bytes]:
  """Yields pieces of all streams; `lzma.open` drops what follows a bad one."""
  decoder = lzma.LZMADecompressor()
  while block := file.read(1 << 14):
    # Zeros may stand between two streams.
    while block := block.lstrip(b"\0") if decoder.eof else block:
      if decoder.eof:
        decoder = lzma.LZMADecompressor()
      yield decoder.decompress(block)
      block = decoder.unused_data
  if not decoder.eof:
    raise EOFError("it ends too early")


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
  """Opens a local or a remote file to read its bytes as they are."""
  opener = _remote().GFile if is_remote(path) else open
  with _os_errors(path), opener(path, "rb") as file:
    yield file


def hash_file(path: str) -> str:
  """Returns the SHA-256 of a file's bytes in hexadecimal."""
  digest = hashlib.sha256()
  with open_bytes(path) as file:
    while block := file.read(1 << 20):
      digest.update(block)
  return digest.hexdigest()


def known_size(paths: Sequence[str]) -> int | None:
  """Returns how many bytes of text files hold; None if their end will tell."""
  known = (os.path.isfile(p) and p[-3:] not in (".gz", ".xz") for p in paths)
  return sum(map(os.path.getsize, paths)) if all(known) else None


class Text:
  """The lines of several files, counted as they pass.

  The number of different lines is estimated in a few megabytes, however many
  there are: each line sets the bit of its hash; the unset bits are counted
  (linear counting: Whang et al., 1990). The error is below 0.1 % up to a
  hundred million different lines.
  """

  _HASH_BITS = 1 << 25

  def __init__(self, paths: list[str]):
    """Takes files that `read_lines` can read."""
    self._paths = paths
    self._lines = self._bytes = 0
    self._seen = bytearray(self._HASH_BITS // 8)
    self._total_bytes = known_size(paths)

  def lines(self) -> Iterator[str]:
    """Yields the lines of all files in turn."""
    for path in self._paths:
      for line in read_lines(path):
        encoded = line.encode("utf-8")
        self._bytes += len(encoded) + 1
        if encoded := encoded.strip():
          self._lines += 1
          bit = zlib.crc32(encoded) % self._HASH_BITS
          self._seen[bit >> 3] |= 1 << (bit & 7)
        yield line

  def part_read(self) -> float | None:
    """Returns the part that has passed, 0 to 1; None if that is unknown."""
    return self._total_bytes and min(self._bytes / self._total_bytes, 1)

  def part_repeated(self) -> float:
    """Returns the part of lines that equal an earlier one; NaN if too many.

    (Over 300 million different ones, of which no longer each sets a bit.)
    """
    unset = self._HASH_BITS - int.from_bytes(self._seen, "little").bit_count()
    if unset < 1000:
      return math.nan
    different = -self._HASH_BITS * math.log(unset / self._HASH_BITS)
    return max(0, 1 - different / max(self._lines, 1))


@contextlib.contextmanager
def replace_on_success(path: str) -> Iterator[str]:
  """Gives a temporary name that becomes `path` if the body succeeds.

  Whatever stops the body, a power cut included, `path` is either complete or as
  it was before: the file is on the disk before it is renamed. Two processes
  that write one path at once do not disturb each other; the last one wins. The
  temporary file is hidden, so no glob takes it for an output. What a killed
  process left behind is removed by the next one that writes `path`.

  Args:
    path: the file to write; missing folders are made.

  Yields:
    The path of an empty file in the folder of `path`. Write to it, and close it
    in the body.

  Raises:
    OSError: `path` is a folder or a device, or the disk is full.
  """
  if is_remote(path):
    with _replace_remote(path) as temporary:
      yield temporary
    return
  target = os.path.realpath(path)  # Keeps a symbolic link a link.
  if path.endswith("/") or (
    os.path.exists(target) and not os.path.isfile(target)
  ):
    raise OSError(f"{path}: cannot write, it is not a regular file")
  os.makedirs(os.path.dirname(target), exist_ok=True)
  with (
    explained_full_disk(path),
    _temporary(target, lambda path: open(path, "x").close()) as temporary,
  ):
    yield temporary
    publish(temporary, target)


@contextlib.contextmanager
def explained_full_disk(path: str) -> Iterator[None]:
  """Names a file or folder in the error of a disk without room for it."""
  try:
    yield
  except OSError as error:
    if error.errno in _NO_ROOM and error.filename is None:
      raise OSError(f"{path}: {error.strerror}") from None
    raise


def publish(temporary: str, path: str) -> None:
  """Renames a complete file; a power cut leaves the old or the new one."""
  if is_remote(path):
    with _os_errors(path):
      _remote().rename(temporary, path, overwrite=True)
    return
  _sync(temporary)
  os.replace(temporary, path)
  _sync(os.path.dirname(path))


def _sync(path: str) -> None:
  """Waits until a local file, or the names in a folder, are on the disk."""
  descriptor = os.open(path or ".", os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def _temporary(target: str, make: Callable[[str], None]) -> Iterator[str]:
  """Makes a hidden file or folder beside a path; removes it if it is left.

  It is locked while the body runs: what is there without a lock was left by a
  process that was killed, and is removed.
  """
  for path in _find_temporaries(target):
    # Another process may remove it first.
    with contextlib.suppress(FileNotFoundError), _locked(path) as is_locked:
      if is_locked:
        _remove(path)
  folder, name = os.path.split(target)
  with contextlib.ExitStack() as stack:
    path = ""
    while not os.path.exists(path):
      path = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
      make(path)
      stack.callback(_remove, path)
      # Before it is locked, another process may remove it.
      with contextlib.suppress(FileNotFoundError):
        stack.enter_context(_locked(path))
    yield path


@contextlib.contextmanager
def _locked(path: str) -> Iterator[bool | None]:
  """Locks a local file or folder while the body runs; a kill unlocks it, too.

  Yields:
    Whether no other process had locked it; None if its file system has no
    locks.
  """
  descriptor = os.open(path, os.O_RDONLY)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    is_locked = True
  except BlockingIOError:
    is_locked = False
  except OSError:
    is_locked = None
  try:
    yield is_locked
  finally:
    os.close(descriptor)


def _is_in_use(path: str) -> bool:
  with contextlib.suppress(FileNotFoundError), _locked(path) as is_locked:
    return is_locked is False
  return False


def _find_temporaries(target: str) -> list[str]:
  folder, name = os.path.split(target)
  is_temporary = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.tmp")
  names = filter(is_temporary.fullmatch, os.listdir(folder or "."))
  return [os.path.join(folder, name) for name in names]


def _remove(path: str) -> None:
  if os.path.isdir(path):
    shutil.rmtree(path, ignore_errors=True)
  else:
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)


@contextlib.contextmanager
def claim_folder(path: str) -> Iterator[None]:
  """Makes a folder and keeps other processes from claiming it meanwhile.

  Raises:
    OSError: another process has claimed it.
  """
  if is_remote(path):
    yield
    return
  os.makedirs(path, exist_ok=True)
  with _locked(path) as is_locked:
    if is_locked is False:
      raise OSError(
        f"{path}: another process is writing to this folder; wait for its end "
        "or choose another folder"
      )
    yield


@contextlib.contextmanager
def _replace_remote(path: str) -> Iterator[str]:
  temporary = f"{path}.{os.urandom(4).hex()}.tmp"
  with _os_errors(path):
    _remote().makedirs(os.path.dirname(path))
    try:
      yield temporary
      publish(temporary, path)
    finally:
      if _remote().exists(temporary):
        _remote().remove(temporary)


@contextlib.contextmanager
def _os_errors(path: str) -> Iterator[None]:
  """Turns TensorFlow's errors about a remote path into `OSError`."""
  if _file_system or not is_remote(path):
    yield
    return
  import tensorflow as tf  # Slow; only remote paths need it.

  try:
    yield
  except tf.errors.OpError as error:
    raise OSError(f"{path}: {error.message}") from None


@contextlib.contextmanager
def replace_all_on_success(paths: list[str]) -> Iterator[list[str]]:
  """Gives temporary names for several files that appear almost together.

  They are renamed one by one when all are on the disk: a kill in between, which
  takes milliseconds, leaves some of them as they were.

  Args:
    paths: the files to write, see `replace_on_success`.

  Raises:
    OSError: another process is writing one of them; the files of two runs would
      be mixed.
  """
  with contextlib.ExitStack() as stack:
    temporaries = [
      stack.enter_context(replace_on_success(path)) for path in paths
    ]
    for path in itertools.filterfalse(is_remote, paths):
      others = set(_find_temporaries(os.path.realpath(path))) - {*temporaries}
      if any(map(_is_in_use, others)):
        raise OSError(
          f"{path}: another process is writing it; wait for its end or choose "
          "another name"
        )
    yield temporaries
    for path in itertools.filterfalse(is_remote, temporaries):
      _sync(path)


@contextlib.contextmanager
def working_folder(path: str) -> Iterator[str]:
  """Makes a folder for what is written on the way to `path`; removes it.

  What a killed process left behind is removed by the next one. Beside a remote
  path it has the same name each time, so only one process may write that.
  """
  if not is_remote(path):
    with _temporary(path, os.makedirs) as folder:
      yield folder
    return
  folder = f"{path}.work"
  with _os_errors(path):
    try:
      _remove_remote_folder(folder)
      _remote().makedirs(folder)
      yield folder
    finally:
      _remove_remote_folder(folder)


def _remove_remote_folder(path: str) -> None:
  if _remote().exists(path):
    _remote().rmtree(path)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
  """Gives a temporary folder that becomes `path` if the body succeeds.

  Its files are on the disk before it is renamed; see `replace_on_success`.

  Raises:
    OSError: it cannot be made, or is not empty.
  """
  if is_remote(path):
    path = path.rstrip("/")
    with working_folder(path) as temporary, _os_errors(path):
      yield temporary
      _remove_remote_folder(path)
      _remote().rename(temporary, path)
    return
  path = os.path.realpath(path)  # A link to an empty folder stays one.
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with _temporary(path, os.mkdir) as temporary:
    yield temporary
    for folder, _, names in os.walk(temporary):
      for name in names:
        _sync(os.path.join(folder, name))
      _sync(folder)
    os.rename(temporary, path)
    _sync(os.path.dirname(path))


def exists(path: str) -> bool:
  """Returns whether a file or folder is there, local or remote."""
  if not is_remote(path):
    return os.path.exists(path)
  with _os_errors(path):
    return _remote().exists(path)


def remove(path: str) -> None:
  """Removes a file, local or remote, if it is there."""
  if not is_remote(path):
    _remove(path)
  elif exists(path):
    with _os_errors(path):
      _remote().remove(path)


def write_text(path: str, text: str) -> None:
  """Writes a small UTF-8 file whole or not at all; makes missing folders."""
  write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, content: bytes) -> None:
  """Writes a small file whole or not at all; makes missing folders."""
  with replace_on_success(path) as temporary:
    with open_for_writing(temporary) as file:
      file.write(content)


def write_json(path: str, content: Any) -> None:
  """Writes JSON, indented, whole or not at all."""
  write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str, kind: type = dict) -> Any:
  """Reads a JSON object, or with kind=list a list; a ValueError for others."""
  text = "\n".join(read_lines(path, keeps_returns=True)).removeprefix("\ufeff")
  try:
    content = json.loads(text)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path}: not a JSON file: {error}") from None
  if not isinstance(content, kind):
    named = "object" if kind is dict else "list"
    raise ValueError(f"{path}: expected a JSON {named}")
  return content


def read_json_if_any(path: str) -> dict[str, Any]:
  """Reads a JSON object; {} if there is no such file."""
  return read_json(path) if exists(path) else {}


def write_lines(path: str, lines: Iterable[str]) -> None:
  """Writes lines of UTF-8, which may be many, whole or not at all."""
  with open_lines(path) as write:
    for line in lines:
      write(line)


@contextlib.contextmanager
def open_lines(path: str | None) -> Iterator[Callable[[str], None]]:
  """Gives a function that writes lines of UTF-8, whole or not at all.

  Args:
    path: of the file; None for the standard output, line by line.
  """
  if not path:
    if isinstance(sys.stdout, io.TextIOWrapper):
      sys.stdout.reconfigure(encoding="utf-8")  # Whatever the locale.
    yield functools.partial(print, flush=True)
    return
  with replace_on_success(path) as temporary:
    with open_for_writing(temporary) as file:
      yield lambda line: file.write(f"{line}\n".encode())


def open_for_writing(path: str) -> BinaryIO:
  """Opens a local or a remote file to write bytes to it."""
  if is_remote(path):
    return _remote().GFile(path, "wb")
  return open(path, "wb", buffering=1 << 18)
