"""Paths, text and output files: globs, lines of UTF-8, all-or-nothing writing.

TensorFlow is imported only for a path such as `gs://...`, inside the function
that meets one: importing it takes seconds and hundreds of megabytes. Where it
is not installed, `use_file_system` puts something else in its place.
"""

import codecs
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import errno
import functools
import glob
import gzip
import hashlib
import lzma
import math
import os
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
  """Opens remote paths otherwise than by TensorFlow from now on.

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

  Args:
    patterns: globs or plain names, for example `news/*.txt,books.txt.gz`.
    flag: the flag that holds them, for the error message.

  Returns:
    The patterns' files in the order of the patterns; sorted by name within one.

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


def _glob(pattern: str) -> list[str]:
  if is_remote(pattern):
    with _os_errors(pattern):
      return sorted(_remote().glob(pattern))
  # A file may have a name that reads as a glob: `notes[1].txt`.
  matches = [pattern] if os.path.exists(pattern) else glob.glob(pattern)
  return sorted(match for match in matches if not os.path.isdir(match))


def read_lines(path: str) -> Iterator[str]:
  r"""Yields the lines of a UTF-8 text without their "\n".

  Only "\n" ends a line: U+2028, "\f" or "\r" within one are text. A name that
  ends in `.gz` or `.xz` is decompressed on the way; no more than a line and the
  buffers are in memory.

  Args:
    path: a local file, a remote one that TensorFlow can open, or "-", which is
      the standard input.

  Raises:
    ValueError: the bytes are not UTF-8, with the offset (after decompression)
      of the first bad one, or the compressed file is damaged.
    OSError: the file cannot be read.
  """
  offset = 0
  with _os_errors(path), _open_for_reading(path) as source:
    lines = iter(source)
    while line := _next_line(lines, path):
      try:
        text = line.decode("utf-8")
      except UnicodeDecodeError as error:
        raise ValueError(
          f"{path}: byte offset {offset + error.start}: not UTF-8 "
          f"({error.reason})"
        ) from None
      offset += len(line)
      yield text.removesuffix("\n")


def read_chunks(path: str, size: int = 1 << 20) -> Iterator[str]:
  """Yields a UTF-8 text in parts of `size` bytes, wherever its lines end.

  Args:
    path: as for `read_lines`, whose errors it raises.
    size: of a part, after decompression.
  """
  offset, rest = 0, b""
  with _os_errors(path), _open_for_reading(path) as source:
    chunks = iter(lambda: source.read(size), b"")
    while True:
      chunk = _next_line(chunks, path)
      whole = rest + chunk
      try:
        # A character may be cut in two, but not at the end of the file.
        text, used = codecs.utf_8_decode(whole, "strict", not chunk)
      except UnicodeDecodeError as error:
        raise ValueError(
          f"{path}: byte offset {offset + error.start}: not UTF-8 "
          f"({error.reason})"
        ) from None
      if text:
        yield text
      if not chunk:
        return
      offset, rest = offset + used, whole[used:]


def _next_line(lines: Iterator[bytes], path: str) -> bytes:
  """Returns the next line with its newline; nothing at the end."""
  try:
    return next(lines, b"")
  except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
    raise ValueError(f"{path}: damaged compressed file ({error})") from None


def open_bytes(path: str) -> BinaryIO:
  """Opens a local or a remote file to read its bytes as they are."""
  if is_remote(path):
    return _remote().GFile(path, "rb")
  return open(path, "rb")


def hash_file(path: str) -> str:
  """Returns the SHA-256 of a file's bytes in hexadecimal."""
  digest = hashlib.sha256()
  with open_bytes(path) as file:
    while block := file.read(1 << 20):
      digest.update(block)
  return digest.hexdigest()


@contextlib.contextmanager
def _open_for_reading(path: str) -> Iterator[BinaryIO]:
  with contextlib.ExitStack() as stack:
    if path == STANDARD_INPUT:
      yield sys.stdin.buffer  # Not ours to close.
      return
    source = stack.enter_context(open_bytes(path))
    if path.endswith(".gz"):
      source = stack.enter_context(gzip.open(source))
    elif path.endswith(".xz"):
      source = stack.enter_context(lzma.open(source))
    yield source


class Text:
  """The lines of several files, counted as they pass.

  The number of different lines is estimated in a few megabytes, however many
  there are: each line sets the bit of its hash, and the bits still unset tell
  (linear counting: Whang et al., 1990). The error is below 0.1 % up to a
  hundred million different lines.
  """

  _HASH_BITS = 1 << 25

  def __init__(self, paths: list[str]):
    """Takes files that `read_lines` can read."""
    self._paths = paths
    self._lines = self._bytes = 0
    self._seen = bytearray(self._HASH_BITS // 8)
    # How much text a compressed file holds shows only at its end.
    known = not any(p.endswith((".gz", ".xz")) or is_remote(p) for p in paths)
    self._total_bytes = sum(map(os.path.getsize, paths)) if known else None

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
    """Returns the part of the lines with text that equal an earlier one."""
    unset = self._HASH_BITS - int.from_bytes(self._seen, "little").bit_count()
    different = -self._HASH_BITS * math.log(max(unset, 1) / self._HASH_BITS)
    return max(0, 1 - different / max(self._lines, 1))


@contextlib.contextmanager
def replace_on_success(path: str) -> Iterator[str]:
  """Gives a temporary name that becomes `path` if the body succeeds.

  Whatever stops the body, `path` is either complete or as it was before. The
  temporary file is hidden, so no glob takes it for an output, and its name is
  always the same, so the next run overwrites what a killed one left behind.

  Args:
    path: the file to write; missing folders are made.

  Yields:
    The path to write to, in the folder of `path`. Close the file in the body.

  Raises:
    OSError: `path` is a folder or a device, or the disk is full.
  """
  if is_remote(path):
    with _replace_remote(path) as temporary:
      yield temporary
    return
  target = os.path.realpath(path)  # Keeps a symbolic link a link.
  if os.path.exists(target) and not os.path.isfile(target):
    raise OSError(f"{path}: cannot write, it is not a regular file")
  folder, name = os.path.split(target)
  os.makedirs(folder, exist_ok=True)
  temporary = os.path.join(folder, f".{name}.tmp")
  try:
    _remove_if_exists(temporary)
    yield temporary
    os.replace(temporary, target)
  except OSError as error:
    if error.errno in _NO_ROOM and error.filename is None:
      raise OSError(f"{path}: {error.strerror}") from None
    raise
  finally:
    _remove_if_exists(temporary)


def _remove_if_exists(path: str) -> None:
  with contextlib.suppress(FileNotFoundError):
    os.remove(path)


@contextlib.contextmanager
def _replace_remote(path: str) -> Iterator[str]:
  temporary = f"{path}.tmp"
  with _os_errors(path):
    _remote().makedirs(os.path.dirname(path))
    try:
      yield temporary
      _remote().rename(temporary, path, overwrite=True)
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
  """Gives temporary names for several files that appear together.

  Args:
    paths: the files to write, see `replace_on_success`.

  Yields:
    The paths to write to, in the same order.
  """
  with contextlib.ExitStack() as stack:
    yield [stack.enter_context(replace_on_success(path)) for path in paths]


@contextlib.contextmanager
def working_folder(path: str) -> Iterator[str]:
  """Makes a folder for what is written on the way to `path`; removes it.

  Its name is always the same: the next run clears away what a killed one left.

  Args:
    path: the file that the work is for; the folder is beside it.

  Yields:
    The folder, in which files can be written.
  """
  folder, name = os.path.split(path)
  working = os.path.join(folder, f".{name}.work")
  if is_remote(path):
    working = f"{path}.work"
  try:
    _remove_folder(working)
    if is_remote(path):
      with _os_errors(path):
        _remote().makedirs(working)
    else:
      os.makedirs(working)
    yield working
  finally:
    _remove_folder(working)


def _remove_folder(path: str) -> None:
  if not is_remote(path):
    shutil.rmtree(path, ignore_errors=True)
    return
  with _os_errors(path):
    if _remote().exists(path):
      _remote().rmtree(path)


def exists(path: str) -> bool:
  """Returns whether a file or folder is there, local or remote."""
  if not is_remote(path):
    return os.path.exists(path)
  with _os_errors(path):
    return _remote().exists(path)


def write_text(path: str, text: str) -> None:
  """Writes a small UTF-8 file whole or not at all; makes missing folders.

  Raises:
    OSError: it cannot be written.
  """
  _write_pieces(path, [text])


def write_lines(path: str, lines: Iterable[str]) -> None:
  """Writes lines of UTF-8, which may be many, whole or not at all.

  Raises:
    OSError: it cannot be written.
  """
  _write_pieces(path, (line + "\n" for line in lines))


@contextlib.contextmanager
def open_lines(path: str | None) -> Iterator[Callable[[str], None]]:
  """Gives a function that writes lines of UTF-8, whole or not at all.

  Args:
    path: of the file; none for the standard output, line by line.

  Raises:
    OSError: it cannot be written.
  """
  if not path:
    yield functools.partial(print, flush=True)
    return
  with replace_on_success(path) as temporary:
    with open_for_writing(temporary) as file:
      yield lambda line: file.write(f"{line}\n".encode())


def _write_pieces(path: str, pieces: Iterable[str]) -> None:
  with replace_on_success(path) as temporary, _os_errors(path):
    with open_for_writing(temporary) as output:
      for piece in pieces:
        output.write(piece.encode("utf-8"))


def open_for_writing(path: str) -> BinaryIO:
  """Opens a local or a remote file to write bytes to it."""
  if is_remote(path):
    return _remote().GFile(path, "wb")
  return open(path, "wb")
