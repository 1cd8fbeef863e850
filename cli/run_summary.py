"""What a program prints at its end: time, files, best score, next command."""

import contextlib
import datetime
import os
import shlex
import time
from typing import NamedTuple, TextIO

# Prefixes of the names of files that only programs read.
_INTERNAL = ("model.ckpt-", "checkpoint", "events.out.tfevents.")


class File(NamedTuple):
  """The state of a file; a file that replaces it has another time."""

  time: int  # In nanoseconds, of the last change.
  size: int  # In bytes.


class Start(NamedTuple):
  """How a run began; `begin` makes it."""

  time: float  # Seconds of the monotonic clock.
  files: dict[str, File]  # In the run's folder, by name.


def print_end(
  start: float, *lines: str, command: str = "", file: TextIO | None = None
) -> None:
  """Prints the block that ends a program begun at `start` of `time.monotonic`.

  It holds what was written and how good it is, and the next command.
  """
  after = [f"next: {command}"] if command else []
  title = f"finished in {format_time(start)}"
  print("\n  ".join([title, *lines, *after]), file=file)


def format_time(start: float) -> str:
  """Returns the time since a moment of `time.monotonic` in words."""
  seconds = time.monotonic() - start
  if seconds < 60:
    return f"{seconds:.1f} s"
  return str(datetime.timedelta(seconds=round(seconds)))


def begin(folder: str) -> Start:
  """Notes when a run begins, and the files in its folder, if there is one."""
  return Start(time.monotonic(), list_files(folder))


def list_files(folder: str) -> dict[str, File]:
  """Returns the files in a folder, by name."""
  import tensorflow as tf  # Programs without it end here too.

  found = {}
  for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
    with contextlib.suppress(tf.errors.NotFoundError):  # Temporary ones.
      stat = tf.io.gfile.stat(os.path.join(folder, name))
      if not stat.is_directory:
        found[name] = File(stat.mtime_nsec, stat.length)
  return found


def is_result(name: str) -> bool:
  """Returns whether a file is for people, by its name."""
  return not name.startswith(_INTERNAL) and ".tf_record" not in name


def print_summary(
  folder: str, start: Start, score: str, can_export: bool = True
) -> None:
  """Prints a run's time, score and files, and the command to export it."""
  from training import model_selection
  from weights import checkpoints

  now = list_files(folder)
  changed = dict(now.items() - start.files.items())
  new = sorted(filter(is_result, changed))
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
  has_weights = steps or model_selection.best_step(folder) is not None
  if has_weights and can_export:
    folder = folder.rstrip("/")
    arguments = (f"--model={folder}", f"--export_dir={folder}_export")
    command = shlex.join(["python", "export_saved_model.py", *arguments])
  print_end(start.time, *lines, command=command)
