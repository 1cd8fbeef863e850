"""What a training run leaves in its folder: the summary, and report.html.

The report has curves, results, settings, versions, time and files.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import datetime
import os
import platform
import sys
import types
from typing import NamedTuple
import urllib.parse

import keras
import numpy as np
import tensorflow as tf

from bert.cli import program, shared_flags
from bert.data import files, progress
from bert.report import charts, plots, score_kinds
from bert.training import model_selection, reporting
from bert.weights import checkpoints

# What answers without a model get: a name and a score, by the curve beside it.
Guesses = Mapping[str, tuple[str, float]]

_NAME = "report.html"
_MOST_TILES = 4  # Scores at the top.
# The charts below that of losses, if there is something to draw in them.
_CHARTS = ("Perplexity", "Scores", "Scores above 1", "Thresholds")
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


def summarize(
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


@contextlib.contextmanager
def report_errors_as_notes() -> Iterator[None]:
  """Says in a line why a part of a report failed, and continues the run."""
  try:
    yield
  except Exception as error:  # What a run has found is worth more than this.
    progress.note(f"note: missing in {_NAME}: {error!r}")


@report_errors_as_notes()
def write(
  settings: shared_flags.ModelSettings,
  start: float,
  problem: str,
  sections: Mapping[str, str],
  score: str = "",
  scores: Mapping[str, float] = types.MappingProxyType({}),
  guesses: Guesses = types.MappingProxyType({}),
) -> None:
  """Writes the report, if flags ask for it; a failure only prints a note.

  The run, of a model for `problem`, began at `start`, by `time.monotonic`;
  `sections` are HTML by title, `score` is one in words, and `scores`
  are those to show first, the most important one at their head; `guesses` are
  of answers without a model, by the curves to draw them beside.
  """
  if not settings.report:
    return
  folder = settings.output_dir
  points = reporting.read_curves(folder)
  # What was evaluated when a killed run was resumed is only there.
  for point in reporting.read_curves(folder, name="evaluations.jsonl"):
    points.append({k.replace("eval_", "eval/", 1): v for k, v in point.items()})
  time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
  facts = f"{os.path.basename(sys.argv[0])}, {problem}; {time}; took "
  facts += program.format_time(start)
  if score:
    facts += f"; {score}"
  names = [n for n in scores if score_kinds.find(n).says_how_good]
  scores = {name: scores[name] for name in names[:_MOST_TILES]}
  versions = [("Python", platform.python_version())]
  versions += [(m.__name__, m.__version__) for m in (tf, keras, np)]
  versions.append(("system", platform.platform()))
  shown = {
    "Training": draw_curves(points, scores, guesses),
    **sections,
    "Settings": _list_settings(settings),
    "Versions": plots.table(("", "version"), versions),
    "Files": _list_files(folder),
  }
  name = os.path.basename(os.path.abspath(folder))
  path = os.path.join(folder, _NAME)
  files.write_text(path, plots.page(f"Report: {name}", facts, shown, scores))
  print(f"wrote {path}")


def draw_curves(
  points: list[dict[str, float]],
  chosen: Collection[str] = (),
  guesses: Guesses = types.MappingProxyType({}),
) -> str:
  """Draws curves, and beside the losses the scores `chosen`; "" without any.

  `guesses` are (name, value), by the curve that they are a yardstick of.
  """
  curves: dict[str, dict[float, float]] = {}
  for point in sorted(points, key=lambda point: point["step"]):
    for name, value in point.items():
      if name != "step":
        curves.setdefault(name, {})[point["step"]] = value
  # Scores of one evaluation share a scale.
  groups_above_1 = {
    name.rpartition("/")[0]
    for name, curve in curves.items()
    if score_kinds.find(name).chart == "Scores"
    and max(map(abs, curve.values())) > 1
  }
  by_title: dict[str, dict[str, list[charts.Point]]] = {
    title: {}
    for title in ("Losses", *_CHARTS, "Learning rate", "Gradient norm")
  }
  for name, curve in curves.items():
    title, points_of_curve = score_kinds.find(name).chart, list(curve.items())
    if title == "Scores" and name.rpartition("/")[0] in groups_above_1:
      title = "Scores above 1"
    # A single loss is also that of the task.
    if title != "Losses" or points_of_curve not in by_title[title].values():
      by_title[title][name] = points_of_curve
  names = {f"eval/{name}" for name in chosen}
  drawn = _draw_charts(by_title, names, guesses)
  return drawn and f'<div class="charts">{drawn}</div>'


def _draw_charts(by_title, chosen, guesses) -> str:
  """Draws charts of curves; those of losses and rates with a second scale."""

  def scale(title, axis, lines):
    # An evaluation's yardstick has the name of the training's, and is last.
    names = sorted(lines, key=lambda name: name.startswith("eval/"))
    levels = dict(guesses[name] for name in names if name in guesses)
    return charts.Scale(title, axis, lines, levels)

  losses, rates = by_title.pop("Losses"), by_title.pop("Learning rate")
  norms = by_title.pop("Gradient norm")
  scales = [by_title[t] for t in ("Scores", "Scores above 1") if by_title[t]]
  scores = scales[0] if len(scales) == 1 else {}
  names = chosen & scores.keys() or set(scores)
  beside = {name: scores.pop(name) for name in list(scores) if name in names}
  if len(losses) + len(beside) > charts.MOST_LINES and beside:
    parts = {n: losses[n] for n in losses if n not in ("loss", "eval/loss")}
    losses = {n: losses[n] for n in losses if n not in parts}
    by_title = {"Parts of the loss": parts, **by_title}
  drawn = charts.line_chart(
    "step",
    scale("Losses", "loss", losses),
    scale("Scores", "score", beside),
    smoothed=[name for name in losses if not name.startswith("eval/")],
  )
  for title, shown in by_title.items():
    drawn += charts.line_chart("step", scale(title, "", shown))
  return drawn + charts.line_chart(
    "step", scale("Learning rate", "", rates), scale("Gradient norm", "", norms)
  )


def _list_settings(settings) -> str:
  rows = sorted(
    (name, str(value))
    for name, value in settings.flag_values().items()
    if value not in (None, "", ())
  )
  listed = plots.table(("flag", "value"), rows)
  return f"<details><summary>All flags with a value</summary>{listed}</details>"


def _list_files(folder) -> str:
  found = list_files(folder)
  names = sorted(n for n in found if is_result(n) and n != _NAME)
  rows = ((plots.Link(n, urllib.parse.quote(n)), found[n].size) for n in names)
  return plots.table(("file", "bytes"), rows)
