"""Describes a lack of memory, without TensorFlow: predict.py has only data/."""

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
