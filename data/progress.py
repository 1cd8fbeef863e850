"""Tells how long work has still to go: the terminal's lines and their ETA."""

import datetime
import sys
import time


class Progress:
  """Prints a line at most every few seconds while work goes on.

  Args:
    total: units of work in all.
    start: units done before this run; they do not count for the speed.
    unit: what is counted, for "3,120 records/s".
    seconds_per_line: the least time between two lines.
  """

  def __init__(
    self,
    total: int,
    start: int = 0,
    unit: str = "steps",
    seconds_per_line: float = 10.0,
  ):
    self.total, self.unit = total, unit
    self._seconds_per_line = seconds_per_line
    self._printed = time.monotonic()
    # Speed is measured from here; `restart` moves it past a slow first call.
    self._begin, self._begin_done = self._printed, start

  def restart(self, done: int) -> None:
    """Measures the speed from now on, with `done` units behind."""
    self._begin, self._begin_done = time.monotonic(), done

  def is_due(self) -> bool:
    """Tells whether it is time for the next line."""
    return time.monotonic() - self._printed >= self._seconds_per_line

  def units_per_second(self, done: int) -> float:
    """Returns the mean speed since the start; 0 before anything is done."""
    elapsed = time.monotonic() - self._begin
    return (done - self._begin_done) / elapsed if elapsed > 0 else 0.0

  def eta(self, done: int) -> str:
    """Returns the time that is left as [D days, ]H:MM:SS, "?" if unknown."""
    speed = self.units_per_second(done)
    if speed <= 0:
      return "?"
    left = round((self.total - done) / speed)
    return str(datetime.timedelta(seconds=left))

  def print_line(self, text: str) -> None:
    """Prints to standard error and starts the wait for the next line."""
    self._printed = time.monotonic()
    print(text, file=sys.stderr, flush=True)
