"""Starts programs again and again and pays for their imports once.

This process imports TensorFlow and the programs, but computes nothing, so that
it has one thread and can be forked: a child is the program as it is after its
imports. `prepare` is called in the child, before the program.
"""

from collections.abc import Callable, Sequence
import os
import pathlib
import runpy
import sys
import time
import traceback

# Before numpy is imported: its threads would not survive a fork. Nor would that
# of pyarrow, which Keras imports by way of scikit-learn, where it is installed.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers")]

import run_classifier  # noqa: E402, F401
import run_multitask  # noqa: E402, F401
import run_pretraining  # noqa: E402, F401

SECONDS = 600  # What ends later than that hangs.


class Child:
  """A program in a process of its own.

  Args:
    command: the interpreter, the program, its flags.
    log: where its output and errors go, together.
    prepare: see above.
  """

  def __init__(
    self,
    command: Sequence[str],
    log: pathlib.Path,
    prepare: Callable[[], None] = lambda: None,
  ):
    self.command = command
    self._log = log
    self.status = None
    log.write_bytes(b"")
    self.started = time.monotonic()
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not survive"

    # What is left in a buffer would be written by the child once more.
    sys.stdout.flush()
    sys.stderr.flush()

    self.pid = os.fork()
    if not self.pid:
      _become(command, log, prepare)

  def poll(self) -> int | None:
    """Returns the status, negative for a signal; None while it runs."""
    if self.status is None:
      pid, status = os.waitpid(self.pid, os.WNOHANG)
      if pid:
        self.status = os.waitstatus_to_exitcode(status)
    return self.status

  def kill(self) -> None:
    """Ends it at once, if it has not ended."""
    if self.poll() is None:
      os.kill(self.pid, 9)
      self.wait()

  def wait(self, seconds: float = SECONDS) -> int | None:
    """Waits until it ends; returns the status, None if it does not end."""
    wait_until(lambda: self.poll() is not None, seconds)
    return self.status

  def text(self) -> str:
    """Returns what it has written so far."""
    return self._log.read_text(errors="replace")

  def error(self) -> str:
    """Returns the error it ended in, "" if that is not one line."""
    lines = self.text().splitlines()
    program = os.path.basename(self.command[1])
    is_one = "Traceback" not in self.text() and self.status == 1
    start = f"{program}: error: "
    last = lines[-1] if lines else ""
    return last.removeprefix(start) if is_one and start in last else ""


def _become(command, log, prepare):
  """Runs the program in the child, and never returns."""
  status = 70  # EX_SOFTWARE of sysexits.h: an exception of the program.
  try:
    # Descriptors 1 and 2, since libraries in C write there, too.
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    for number in (1, 2):
      os.dup2(file, number)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)

    prepare()
    sys.argv = list(command[1:])
    runpy.run_path(command[1], run_name="__main__")
    status = 0
  except SystemExit as end:
    status = end.code or 0
  except Exception:
    traceback.print_exc()
  finally:
    # No exit handlers run: whatever was registered before the fork is the
    # parent's.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait_until(
  condition: Callable[[], bool], seconds: float = SECONDS, pause: float = 0.002
) -> bool:
  """Waits for a condition; returns whether it came about in time."""
  deadline = time.monotonic() + seconds
  while not condition():
    if time.monotonic() > deadline:
      return False
    time.sleep(pause)
  return True
