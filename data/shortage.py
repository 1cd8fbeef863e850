"""Describes a lack of memory, without TensorFlow: predict.py has only data/."""

from collections.abc import Iterator
import contextlib
import re

_REASON = re.compile(
  r"(OOM when|[Ff]ailed to allocate|[Oo]ut of memory)[^\n]*?(?= on /|$)",
  re.MULTILINE,
)


def describe(error: Exception) -> str | None:
  """Describes a lack of memory; returns None for any other error.

  TensorFlow's ResourceExhaustedError also stands for a full disk.
  """
  if isinstance(error, MemoryError):
    return str(error)
  if type(error).__name__ != "ResourceExhaustedError":
    return None
  match = _REASON.search(getattr(error, "message", str(error)))
  return match and match[0]


@contextlib.contextmanager
def naming_flags(doing: str, cures: str) -> Iterator[None]:
  """Turns a lack of memory into a MemoryError that names flags to change."""
  try:
    yield
  except Exception as error:
    fault = describe(error)
    if fault is None:
      raise
    raise MemoryError(f"while {doing}: {fault}: {cures}") from error
