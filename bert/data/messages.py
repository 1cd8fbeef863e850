"""Words for messages: lists, commands, faults of text, batches and memory."""

import codecs
from collections.abc import Iterable, Sequence
import os
import re
import sys

# What stands before the name of a program that was not started as a file; see
# bert/__main__.py.
LAUNCHER: list[str] = []

_NAMES_SHOWN = 20
PLACES_SHOWN = 3  # Rows with the same fault in a message.
_SHORTAGE = re.compile(
  r"(OOM when|[Ff]ailed to allocate|[Oo]ut of memory)[^\n]*?(?= on /|$)",
  re.MULTILINE,
)


def list_names(names: Iterable[str]) -> str:
  """Joins names for an error message: the first 20, each cut to one line."""
  names = list(names)
  more = ", ..." if len(names) > _NAMES_SHOWN else ""
  return ", ".join(map(shorten, names[:_NAMES_SHOWN])) + more


def shorten(text: str) -> str:
  r"""Returns text for an error message: its beginning, on one line.

  >>> shorten(" two\r\nlines")
  'two lines'
  """
  # A cell may be a book: only its beginning is looked at.
  text = " ".join(text[:160].split())
  return text if len(text) <= 40 else f"{text[:40]}..."


def describe_unlabelled(
  places: Sequence[str],
  count: int,
  total: int,
  names: tuple[str, str] = ("label", "rows"),
) -> str:
  """Says where the first rows without a label are, and how many there are.

  Args:
    places: of such rows, as "path:line", at least the first `PLACES_SHOWN`.
    count: of all such rows.
    total: of all rows.
    names: of a label, and of the rows.

  >>> describe_unlabelled(["a.tsv:3", "a.tsv:4"], count=2, total=9)
  'a.tsv:3, a.tsv:4: no label; 2 of 9 rows have none'
  """
  label, rows = names
  first = list(places[:PLACES_SHOWN])
  more = ["..."] if count > len(first) else []
  listing = ", ".join(first + more)
  return f"{listing}: no {label}; {count:,} of {total:,} {rows} have none"


def check_split(batch_size: int, replicas: int, parts: int) -> None:
  """Raises a ValueError if replicas or micro-batches would differ in size.

  Args:
    batch_size: rows per update.
    replicas: how many devices share them, over all workers.
    parts: micro-batches of a replica.
  """
  if batch_size % (replicas * parts):
    raise ValueError(
      f"--train_batch_size={batch_size} cannot be split evenly over {replicas} "
      f"replicas and {parts} accumulation steps: expected a multiple of "
      f"{replicas * parts}"
    )


def start_of(program: str) -> list[str]:
  """Returns the words that start a program, as this one was started.

  >>> start_of("predict.py")
  ['python', 'predict.py']
  """
  if LAUNCHER:
    return [*LAUNCHER, program.removesuffix(".py")]
  # A file that was started elsewhere has the others beside it.
  folder = os.path.dirname(sys.argv[0])
  path = os.path.join(folder, program)
  is_elsewhere = os.path.realpath(folder) != os.getcwd()
  return ["python", path if is_elsewhere and os.path.exists(path) else program]


def check_unicode(text: str, name: str) -> None:
  """Raises a ValueError that begins with a name if no file can hold a text."""
  # JSON may write an emoji as two escapes. One of them alone is a character to
  # Python, but UTF-8 has no bytes for it.
  try:
    text.encode()
  except UnicodeEncodeError as error:
    half = f"\\u{ord(text[error.start]):04x}"
    raise ValueError(f"{name} holds {half}, half of a surrogate pair") from None


def describe_encoding(error: UnicodeDecodeError) -> str:
  r"""Shows the bytes around what is not UTF-8, and says how to convert them.

  All readers of text end their messages with it, after the place.
  `tokenization.py`, which stands alone, has a copy.

  >>> try: "un café".encode("latin1").decode()
  ... except UnicodeDecodeError as error: describe_encoding(error)
  "not UTF-8: b'un caf\\xe9'; convert it, of Latin-1 by iconv -f latin1 -t utf8"
  """
  # Nobody can tell from the bytes which encoding of 8 bits it is; Latin-1 is
  # the likeliest. UTF-16 begins with a byte-order mark.
  content = error.object
  name, code = "Latin-1", "latin1"
  if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
    name, code = "UTF-16", "utf16"
  around = content[max(0, error.start - 20) : error.start + 20]
  cure = f"convert it, of {name} by iconv -f {code} -t utf8"
  return f"not UTF-8: {around!r}; {cure}"


def describe_shortage(error: Exception) -> str | None:
  """Describes a lack of memory; None for other errors, as of a full disk."""
  if isinstance(error, MemoryError):
    return str(error)

  # TensorFlow's error, by its name: this file does not import TensorFlow. The
  # same error may be of a full disk.
  if type(error).__name__ != "ResourceExhaustedError":
    return None
  match = _SHORTAGE.search(getattr(error, "message", str(error)))
  return match and match[0]
