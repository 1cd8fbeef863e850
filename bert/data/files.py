"""Reads and writes files: bytes, lines of UTF-8, JSON.

What is written is complete or not there; see `atomic`.

A path such as `gs://...` is opened by TensorFlow.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import contextlib
import functools
import gzip
import hashlib
import io
import json
import lzma
import os
import sys
import tokenize
from typing import Any, BinaryIO
import zipfile
import zlib

from bert.data import atomic, messages, progress, remote

STANDARD_INPUT = "-"  # Its path, for `read_lines`.
# What numpy raises, besides an OSError, at a .npy or .npz that is damaged or
# something else. It reads the head of an array with Python's tokenizer, makes
# room for the shape that stands there, and takes an .npz for a zip file.
DAMAGED_ARRAY = (
  *(ValueError, LookupError, AttributeError, EOFError, MemoryError),
  *(RuntimeError, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


@contextlib.contextmanager
def open_bytes(path: str) -> Iterator[BinaryIO]:
  """Opens a local or a remote file to read its bytes as they are."""
  opener = remote.gfile().GFile if remote.is_remote(path) else open
  with remote.os_errors(path), opener(path, "rb") as file:
    yield file


Opener = Callable[[str], contextlib.AbstractContextManager[BinaryIO]]


def read_lines(
  path: str, keeps_returns: bool = False, opener: Opener = open_bytes
) -> Iterator[str]:
  r"""Yields the lines of a UTF-8 text without their "\n"; see `read_raw_lines`.

  Only "\n" ends a line: U+2028 or "\f" within one are text. Each "\r" is
  dropped, as by TensorFlow's GFile, with which the original reads, unless kept.

  Args:
    path: of a plain file, .gz or .xz; "-" is the standard input.
    keeps_returns: whether each "\r" stays; a cell of CSV may hold one.
    opener: gives the file of a path; Beam has one of its own.

  Raises:
    ValueError: names the line that is not UTF-8.
  """
  for number, line in enumerate(read_raw_lines(path, opener), 1):
    try:
      text = line.decode("utf-8")
    except UnicodeDecodeError as error:
      name = "standard input" if path == STANDARD_INPUT else path
      fault = messages.describe_encoding(error)
      raise ValueError(f"{name}:{number}: {fault}") from None
    text = text.removesuffix("\n")
    yield text if keeps_returns else text.replace("\r", "")


def read_raw_lines(path: str, opener: Opener = open_bytes) -> Iterator[bytes]:
  r"""Yields the lines of a file, with their "\n"; "-" is the standard input.

  A name that ends in `.gz` or `.xz` is decompressed on the way, of which no
  more than a line and the buffers are in memory.
  """
  if path == STANDARD_INPUT:
    yield from sys.stdin.buffer
    return
  with opener(path) as file:
    # What is compressed is decompressed as it is read. The lines of
    # TensorFlow's GFile lack "\r", so remote files are cut into lines here.
    lines: Iterable[bytes] = file
    if path.endswith(".gz"):
      lines = gzip.open(file)
    elif path.endswith(".xz"):
      lines = _join_lines(_decompress_xz(file))
    elif remote.is_remote(path):
      lines = _join_lines(iter(lambda: file.read(1 << 18), b""))

    # Damage shows in the middle of reading only.
    try:
      yield from lines
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, EOFError) as error:
      raise ValueError(
        f"{path}: damaged compressed file ({error}); copy or compress it again"
      ) from None


def _decompress_xz(file: BinaryIO) -> Iterator[bytes]:
  """Decompresses all streams of a file, a file being one or several.

  `lzma.open` would do, but it ignores junk behind a stream.
  """
  decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
  for packed in iter(lambda: file.read(1 << 12), b""):
    while packed:
      # Behind a stream there may be padding, then the next stream.
      if decompressor.eof:
        packed = packed.lstrip(b"\0")
        if not packed:
          break
        decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
      yield decompressor.decompress(packed)
      packed = decompressor.unused_data
  if not decompressor.eof:
    raise EOFError("its end is missing")


def _join_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
  """Yields the lines of a file that comes in pieces of any length."""
  # The parts of the line that is not complete yet. It may be as long as the
  # file: it is joined once, at its end.
  parts = []
  for piece in pieces:
    *ends, rest = piece.split(b"\n")
    for end in ends:
      yield b"".join([*parts, end, b"\n"])
      parts = []
    parts.append(rest)

  # The last line may have no "\n".
  if last := b"".join(parts):
    yield last


def hash_file(path: str, digest: Any = None) -> str:
  """Returns the hash of a file's bytes in hexadecimal.

  `digest` is a hash of hashlib that has taken what comes before; default:
  SHA-256, of nothing.
  """
  digest = digest or hashlib.sha256()
  with open_bytes(path) as file:
    while block := file.read(1 << 20):
      digest.update(block)
  return digest.hexdigest()


def exists(path: str) -> bool:
  """Returns whether a file or folder is there, local or remote."""
  if not remote.is_remote(path):
    return os.path.exists(path)
  with remote.os_errors(path):
    return remote.gfile().exists(path)


def above(folder: str, name: str) -> tuple[str, ...]:
  """Returns the folder above one of a name; () above one of another name.

  Best weights are in best/ of a run's folder, which has their labels, casing
  and vocabulary. Links to it, slashes behind it and paths from within it hide
  its name, so the real path counts.

  Args:
    folder: its path, local or remote.
    name: such as "best".
  """
  path = folder.rstrip("/")
  real = path if remote.is_remote(path) else os.path.realpath(folder)
  parent, found = os.path.split(real)
  if found != name:
    return ()
  # Messages show it as the user wrote it, if that leads there.
  spelled = os.path.dirname(path) or "."
  return (spelled if os.path.realpath(spelled) == parent else parent,)


def remove(path: str) -> None:
  """Removes a file if it is there; an OSError if it is a folder."""
  remove_file = remote.remove if remote.is_remote(path) else os.remove
  with remote.os_errors(path), contextlib.suppress(FileNotFoundError):
    remove_file(path)


@contextlib.contextmanager
def _open_new(path: str) -> Iterator[BinaryIO]:
  with atomic.replace_on_success(path) as temp, open_for_writing(temp) as file:
    yield file


def write_bytes(path: str, content: bytes) -> None:
  """Writes a small file whole or not at all; makes missing folders."""
  with _open_new(path) as file:
    file.write(content)


def write_text(path: str, text: str) -> None:
  """Writes a small UTF-8 file whole or not at all; makes missing folders."""
  write_bytes(path, text.encode("utf-8"))


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


def check_values(
  values: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]]
) -> None:
  """Raises a ValueError if a value is not allowed; NaN never is.

  Args:
    values: by name; a name that is missing has the value None.
    allowed: by name, a list of what fits: a type, a range of integers, or the
      value itself.
  """
  for name, choices in allowed.items():
    value = values.get(name)
    is_nan = value != value  # Only NaN differs from itself.
    if is_nan or not any(_fits(value, choice) for choice in choices):
      expected = " or ".join(map(_describe_choice, choices))
      raise ValueError(f"{name} is {value!r:.80}, expected {expected}")


def _fits(value: Any, choice: Any) -> bool:
  if isinstance(choice, range):
    return type(value) is int and value in choice
  if isinstance(choice, type):
    return type(value) is choice  # For isinstance, True would be an int.
  return value == choice


def _describe_choice(choice: Any) -> str:
  if isinstance(choice, range):
    return f"{choice.start} to {choice.stop - 1}"
  return getattr(choice, "__name__", str(choice))


def write_lines(path: str, lines: Iterable[str]) -> None:
  """Writes lines of UTF-8, which may be many, whole or not at all."""
  with open_lines(path) as write:
    for line in lines:
      write(line)


@contextlib.contextmanager
def open_lines(path: str | None) -> Iterator[Callable[[str], object]]:
  """Gives a function that writes lines of UTF-8, whole or not at all.

  Without a path it writes to the standard output, line by line; the program
  ends with success if that is closed, as by `| head`.
  """
  if not path:
    # UTF-8 whatever the locale says.
    if isinstance(sys.stdout, io.TextIOWrapper):
      sys.stdout.reconfigure(encoding="utf-8")
    try:
      yield functools.partial(print, flush=True)
    except BrokenPipeError:
      progress.leave_broken_streams()
      sys.exit(0)
    return

  with _open_new(path) as file:
    yield lambda line: file.write(f"{line}\n".encode())


def open_for_writing(path: str) -> BinaryIO:
  """Opens a local or a remote file to write bytes to it."""
  if remote.is_remote(path):
    return remote.gfile().GFile(path, "wb")
  return open(path, "wb", buffering=1 << 18)
