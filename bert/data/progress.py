"""Shows how far long work is: a live line, or lines of a log.

A terminal and a notebook have a live line, which renews itself. Notes are
printed apart from it, and from the results of a program.
"""

import contextlib
import datetime
import os
import select
import shutil
import sys
import time

_SECONDS_PER_LIVE_LINE = 0.2
_SECONDS_PER_LINE = 10.0
_BAR = 20  # Characters.
_WIDEST_LINE = 100

_is_shown = False  # Whether there is a live line.


def clear() -> None:
  """Erases the live line, if there is one; call it before printing others."""
  if _is_shown:
    _renew("")


def _renew(text, part=None):
  """Replaces the live line; without text, erases it.

  Args:
    text: of the new line.
    part: of the work that is done, 0 to 1; None shows no bar on a terminal.
  """
  global _is_shown
  _is_shown = bool(text)
  if _is_in_notebook():
    # Other processes need nothing of it.
    from bert.data import notebook_line

    notebook_line.show(text, part or 0.0)
    return

  # A longer line would wrap, and could not be erased. The escape sequence
  # erases what the line before has left.
  if part is not None:
    text = f"[{'#' * round(_BAR * part):-<{_BAR}}] {text}"
  width = min(_WIDEST_LINE, shutil.get_terminal_size().columns - 1)
  _write(f"\r\x1b[K{text[:width]}", end="")


def _is_in_notebook() -> bool:
  """Returns whether standard error appears below a cell of a notebook."""
  # The kernel has imported the module of its own streams. A user may have put
  # another stream in their place.
  iostream = sys.modules.get("ipykernel.iostream")
  return iostream is not None and isinstance(sys.stderr, iostream.OutStream)


def note(text: object) -> None:
  """Prints a line to standard error, in the place of a live line."""
  clear()
  _write(text)


def _write(text, end="\n"):
  """Writes to standard error; that it cannot be read must not end any work."""
  if sys.stderr is None:  # To `print` this would be the standard output.
    return
  try:
    print(text, end=end, file=sys.stderr, flush=True)
  except OSError:
    leave_broken_streams()


def leave_broken_streams() -> None:
  """Lets output that nobody can read go nowhere, instead of raising an error.

  Ctrl-C ends `| tee`, too, before the program has saved its work. A terminal
  may be closed, and the disk of a log be full.
  """
  for stream in (sys.stdout, sys.stderr):
    # There may be no stream; in a notebook, say, it has no file.
    with contextlib.suppress(AttributeError, OSError, ValueError):
      if _is_broken(stream):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _is_broken(stream) -> bool:
  try:
    stream.flush()  # What could not be written is still waiting.
  except OSError:
    return True
  # A pipe whose reader has ended, or a closed terminal, is in the state of an
  # error.
  poll = select.poll()
  poll.register(stream.fileno(), select.POLLOUT)
  return any(event & select.POLLERR for _, event in poll.poll(0))


def open_missing_streams() -> None:
  """Opens the null device for each standard stream that was closed.

  Python has None in its place: there is nothing to read or write then, and
  `print` writes errors to the standard output. The next file that is opened
  would take its descriptor, and what libraries log.
  """
  for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
    # A new file has the smallest descriptor that is free: that of the stream.
    if getattr(sys, name) is None:
      stream = open(os.devnull, mode, errors="backslashreplace")  # noqa: SIM115
      setattr(sys, name, stream)


class Progress:
  """Prints a line from time to time during long work.

  On a terminal and in a notebook it is one line with a bar, renewed several
  times a second, which `clear` erases. Elsewhere there is a plain line every
  few seconds.
  """

  def __init__(self, total: int, start: int = 0):
    """Begins to measure the time.

    Args:
      total: all units of the work, such as updates. 0 if unknown; 1 if `done`
        is to be a part of the work, 0 to 1.
      start: units that were done before, which do not count for the speed.
    """
    self.total = total
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    self._is_live = is_terminal or _is_in_notebook()
    self._printed = time.monotonic()
    self.restart(start)
    # When the first batch was done, and how many units; None before it. Unlike
    # after `restart`, what comes before it may be the compilation of a model.
    self._warm: tuple[float, float] | None = None

  def restart(self, done: int) -> None:
    """Measures the speed from now on, after `done` units and a warm-up."""
    self._begin, self._begin_done = time.monotonic(), done
    self._warm = self._begin, done

  def is_due(self) -> bool:
    """Returns whether it is time for the next line."""
    wait = _SECONDS_PER_LIVE_LINE if self._is_live else _SECONDS_PER_LINE
    return time.monotonic() - self._printed >= wait

  def units_per_second(self, done: float) -> float:
    """Returns the mean speed since the start; 0 before anything is done."""
    elapsed = time.monotonic() - self._begin
    return (done - self._begin_done) / elapsed if elapsed > 0 else 0.0

  def eta(self, done: float) -> str:
    """Returns the time that is left as [D days, ]H:MM:SS, "?" if unknown.

    It is unknown until the second time that one asks, if nothing called
    `restart`: what comes before the first batch or part, such as the
    compilation of a model, would promise hours instead of minutes.
    """
    if self._warm is None:
      self._warm = time.monotonic(), done

    # At the speed since then.
    begin, behind = self._warm
    elapsed = time.monotonic() - begin
    units = done - behind
    left = 0.0
    if done < self.total:
      if units <= 0:
        return "?"
      left = (self.total - done) * elapsed / units
    return str(datetime.timedelta(seconds=round(left)))

  def print_part(self, doing: str, part: float | None) -> None:
    """Prints, if it is time, how long the work has taken and how long it will.

    Args:
      doing: what the program does, for the line.
      part: how much of it is done, 0 to 1; None if unknown.
    """
    # Estimated at every call, also if no line is due: what comes before the
    # first part, such as splitting all texts into tokens, must not count.
    left = f", {part:.0%}, {self.eta(part)} to go" if part else ""
    if not self.is_due():
      return
    seconds = int(time.monotonic() - self._begin)
    elapsed = datetime.timedelta(seconds=seconds)
    self.print_line(f"{doing}, {elapsed} elapsed{left}", part or 0)

  def print_line(self, text: str, done: float | None = None) -> None:
    """Prints to standard error, if it is read, and starts to wait again.

    With `done`, the units that are done, a terminal or a notebook shows a bar
    in a line that the next one replaces. Without it, the line stays.
    """
    self._printed = time.monotonic()
    if done is None or not self._is_live:
      note(text)
      return
    _renew(text, min(1.0, done / self.total) if self.total else None)
