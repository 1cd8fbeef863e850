"""What a program prints at its end: time, files, best score, next command."""

import contextlib
import datetime
import os
import shlex
import time
from typing import NamedTuple, TextIO

from data import files

# Prefixes of the names of files that only programs read.
_INTERNAL = ("model.ckpt-", "checkpoint", "events.out.tfevents.")


class File(NamedTuple):
  """The state of a file; a file that replaces it has another time."""

  time: int  # In nanoseconds, of the last change.
  size: int  # In bytes.


class Start(NamedTuple):
  """How a run began; `begin` makes it."""

  time: float  # Of the monotonic clock, in seconds.
  files: dict[str, File]  # In the run's folder, by name.


def print_end(
  start: float, *lines: str, command: str = "", file: TextIO | None = None
) -> None:
  """Prints the block that ends a program.

  Args:
    start: when it began, by `time.monotonic`.
    *lines: what was written, and how good it is.
    command: the next one; "" for none.
    file: where to print; None for standard output.
  """
  seconds = time.monotonic() - start
  took = f"{seconds:.1f} s"
  if seconds >= 60:
    took = str(datetime.timedelta(seconds=round(seconds)))
  after = [f"next: {command}"] if command else []
  print("\n  ".join([f"finished in {took}", *lines, *after]), file=file)


def begin(folder: str) -> Start:
  """Notes when a run begins, and the files in its folder, if there is one."""
  return Start(time.monotonic(), _list_files(folder))


def _list_files(folder) -> dict[str, File]:
  import tensorflow as tf  # Programs without it end here too.

  found = {}
  for name in tf.io.gfile.listdir(folder) if files.exists(folder) else ():
    with contextlib.suppress(tf.errors.NotFoundError):  # Temporary ones.
      stat = tf.io.gfile.stat(os.path.join(folder, name))
      if not stat.is_directory:
        found[name] = File(stat.mtime_nsec, stat.length)
  return found


def print_summary(folder: str, start: Start, score: str) -> None:
  """Prints a run's time, score and files, and the next command."""
  from training import model_selection
  from weights import checkpoints

  now = _list_files(folder)
  new = sorted(
    name
    for name, file in now.items()
    if file != start.files.get(name)
    and not name.startswith(_INTERNAL)
    and ".tf_record" not in name
  )
  lines, command = [f"best: {score}"] if score else [], ""
  if new:
    lines.append(f"wrote to {folder}: {', '.join(new)}")
  steps = checkpoints.saved_steps(folder)
  if steps:
    sizes = [now[n].size for n in now if n.startswith("model.ckpt-")]
    line = f"checkpoints: {len(steps)}, {sum(sizes) / 1e6:,.1f} MB"
    if len(steps) > 1:
      line += "; --keep_checkpoint_max=1 keeps only the newest"
    lines.append(line)
  if steps or model_selection.best_step(folder) is not None:
    folder = folder.rstrip("/")
    arguments = (f"--model={folder}", f"--export_dir={folder}_export")
    command = shlex.join(["python", "export_saved_model.py", *arguments])
  print_end(start.time, *lines, command=command)
