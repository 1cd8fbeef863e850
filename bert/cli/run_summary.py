"""What a training run leaves in its folder, and the summary that says so."""

from collections.abc import Mapping
import contextlib
import os
from typing import NamedTuple

import tensorflow as tf

from bert.cli import program
from bert.training import model_selection
from bert.weights import checkpoints

# Prefixes of the names of files that only programs read.
_INTERNAL = ("model.ckpt-", "checkpoint", "events.out.tfevents.")


class File(NamedTuple):
  """The state of a file; a file that replaces it has another time."""

  time: int  # In nanoseconds, of the last change.
  size: int  # In bytes.


def list_files(folder: str) -> dict[str, File]:
  """Returns the files in a folder, by name."""
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


def show(
  folder: str,
  start: float,
  before: Mapping[str, File],
  score: str,
  can_export: bool = True,
) -> None:
  """Prints a run's time, score and new files, and the command to export it."""
  now = list_files(folder)
  changed = dict(now.items() - before.items())
  new = sorted(filter(is_result, changed))
  lines, export = [score] if score else [], ""
  if new:
    lines.append(f"wrote to {folder}: {', '.join(new)}")
  steps = checkpoints.saved_steps(folder)
  if steps:
    sizes = [now[n].size for n in now if n.startswith("model.ckpt-")]
    line = f"checkpoints: {len(steps)}, {sum(sizes) / 1e6:,.1f} MB"
    if len(steps) > 1:
      line += "; --keep_checkpoint_max=1 keeps only the newest"
    elif checkpoints.has_slots(folder, steps[0]):
      line += (
        ", from which training can go on; a complete training deletes the "
        "older ones, unless you pass --keep_checkpoint_max"
      )
    lines.append(line)
  has_best = model_selection.best_step(folder) is not None
  if has_best:
    sizes = [file.size for file in list_files(f"{folder}/best").values()]
    lines.append(f"best/: the best weights alone, {sum(sizes) / 1e6:,.1f} MB")
  has_weights = steps or has_best
  if has_weights and can_export:
    folder = folder.rstrip("/")
    flags = {"model": folder, "export_dir": f"{folder}_export"}
    export = program.command("export_saved_model.py", **flags)
  program.print_end(start, *lines, command=export)
