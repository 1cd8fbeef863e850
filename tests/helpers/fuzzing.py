"""Random input for readers: valid files that went wrong, and what must follow.

`make test` tries few examples, always the same; `make test-slow` tries many,
others each time (the profiles are in conftest.py).
"""

import contextlib
import json
import pathlib
import signal

from hypothesis import strategies as st
import psutil

_SECONDS = 20  # An example takes milliseconds; more than this is a hang.
# Bytes that no small file may ask for. Damaged ones asked for less than 1 MB;
# the rest is for what a library loads or keeps at its first use.
_MOST_MEMORY = 100 << 20
_LONGEST_MESSAGE = 2000  # Characters: no file may fill the terminal.

# What files hold where nobody expects it.
_ODDITIES = [
  *(b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xed\xa0\x80"),
  *(b"\n", b"\r", b"\r\n", b"\n\n", b"\t", b" ", b",", b'"', b'""', b"\\"),
  *("\u2028\x1c\x85\xa0\u3000".encode(), "\U0001f600e\u0301".encode()),
  *(b"{", b"}", b"[", b"]", b":", b"{}", b"[]", b"[[]]", b"null", b"true"),
  *(b"0", b"-1", b"1.5", b"1e999", b"-Infinity", b"NaN", b"9" * 5000),
  *(b"\\ud800", b'"\\udc00"', b"[" * 3000, b'{"a":' * 3000, b"[" * 400),
  *(b"\xff" * 8, b"\x7f" * 8, b"\x80" * 10),
]


def any_bytes():
  """Returns a strategy for bytes that were never a file."""
  pieces = st.sampled_from(_ODDITIES) | st.binary(max_size=20)
  return st.lists(pieces, max_size=8).map(b"".join)


def mutated(*valid):
  """Returns a strategy for valid files with a few faults."""
  return st.sampled_from(valid).flatmap(
    lambda content: st.lists(_fault(len(content)), max_size=5).map(
      lambda faults: _apply(content, faults)
    )
  )


def _fault(length):
  places = st.integers(0, length)
  sizes = st.integers(1, 8) | places
  return st.one_of(
    st.tuples(st.just("insert"), places, st.sampled_from(_ODDITIES)),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("overwrite"), places, st.sampled_from(_ODDITIES)),
    st.tuples(st.just("flip"), places, st.integers(0, 7)),
    st.tuples(st.just("delete"), places, sizes),
    st.tuples(st.just("double"), places, sizes),
    st.tuples(st.just("truncate"), places, st.none()),
  )


def _apply(content, faults):
  for kind, place, what in faults:
    head, tail = content[:place], content[place:]
    if kind == "insert":
      content = head + what + tail
    elif kind == "overwrite":
      content = head + what + tail[len(what) :]
    elif kind == "flip" and tail:
      content = head + bytes([tail[0] ^ 1 << what]) + tail[1:]
    elif kind == "delete":
      content = head + tail[what:]
    elif kind == "double":
      content = head + tail[:what] + tail
    elif kind == "truncate":
      content = head
  return content


def damaged(content, source):
  """Returns a file with one to three faults, perhaps cut off.

  Args:
    content: a valid file.
    source: a `random.Random`.
  """
  content = bytearray(content)
  if source.random() < 0.3:
    del content[source.randrange(len(content)) :]
  for _ in range(source.randint(1, 3)):
    if content:
      place = source.randrange(len(content))
      content[place : place + 1] = source.choice(
        [bytes([source.randrange(256)]), b"", b"\xff" * 8, bytes(8)]
      )
  return bytes(content)


def json_values():
  """Returns a strategy for whatever JSON can hold."""
  scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "0", " ", "a b", "\n", "\ud800", "x" * 999]),
    st.sampled_from([10**400, -1, 0, 1, 2, 1 << 64, float("inf")]),
  )
  return st.recursive(
    scalars,
    lambda inner: (
      st.lists(inner, max_size=3)
      | st.dictionaries(st.sampled_from(["a", "text", "id"]), inner, max_size=3)
    ),
    max_leaves=5,
  )


@st.composite
def mutated_json(draw, valid):
  """Draws a JSON value in which up to three parts have been replaced."""
  value = json.loads(json.dumps(valid))
  for _ in range(draw(st.integers(1, 3))):
    value = _replace_part(draw, value)
  return value


def _replace_part(draw, value):
  is_container = isinstance(value, (dict, list)) and value
  if not is_container or draw(st.integers(0, 9)) == 0:
    return draw(json_values())
  keys = list(value) if isinstance(value, dict) else range(len(value))
  key = draw(st.sampled_from(keys))
  if draw(st.integers(0, 9)) == 0:
    del value[key]
  else:
    value[key] = _replace_part(draw, value[key])
  return value


class HangError(BaseException):
  """What runs on and on; nothing that is tested catches it."""


@contextlib.contextmanager
def time_limit():
  """Interrupts a body that hangs; within another limit, that one holds."""
  if signal.getitimer(signal.ITIMER_REAL)[0]:
    yield
    return

  def interrupt(number, frame):
    raise HangError(f"no result after {_SECONDS} s")

  before = signal.signal(signal.SIGALRM, interrupt)
  signal.setitimer(signal.ITIMER_REAL, _SECONDS)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def value_or_error(read, path):
  """Returns what `read(path)` returns; None after a ValueError for the user.

  Any other exception fails the test that calls this.
  """
  with time_limit():
    try:
      return read(str(path))
    except ValueError as error:
      message = str(error)

  # An error for the user names the file, in one line that fits the terminal.
  assert str(path) in message
  assert len(message.splitlines()) == 1, message
  assert len(message) < _LONGEST_MESSAGE, message
  return None


def check_writable(value):
  """Checks that what was read can be written to a file of UTF-8."""
  text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=str)
  text.encode("utf-8")


def value_or_error_in_memory(read, path):
  """Does as `value_or_error`; the file must not ask for much memory."""
  # Linux forgets the peak of a process that writes this. Otherwise a reader
  # could take, unseen, whatever the process has needed before.
  pathlib.Path("/proc/self/clear_refs").write_text("5")
  before = psutil.Process().memory_info().rss
  value = value_or_error(read, path)
  assert _peak_memory() - before < _MOST_MEMORY
  return value


def _peak_memory():
  """Returns the most bytes that the process has held at once."""
  lines = pathlib.Path("/proc/self/status").read_text().splitlines()
  [kilobytes] = (line.split()[1] for line in lines if "VmHWM" in line)
  return int(kilobytes) << 10
