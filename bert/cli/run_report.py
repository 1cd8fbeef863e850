"""What a training run leaves in its folder: the summary, and report.html.

The report has curves, results, settings, versions, time and files.
"""

from collections.abc import Collection, Iterator, Mapping
import contextlib
import datetime
import os
import platform
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

# The scores of guessing without a model, by the name of the curve to compare:
# how it guesses, such as "word frequencies", and its score.
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
  """Returns the files in a folder, by name; {} if there is no folder."""
  states = {}
  names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ()
  for name in names:
    # A temporary file may have gone since the folder was listed.
    with contextlib.suppress(tf.errors.NotFoundError):
      stat = tf.io.gfile.stat(os.path.join(folder, name))
      if not stat.is_directory:
        states[name] = File(stat.mtime_nsec, stat.length)
  return states


def is_result(name: str) -> bool:
  """Returns whether a file is for people, by its name."""
  return not name.startswith(_INTERNAL) and ".tf_record" not in name


def summarize(
  folder: str,
  start: float,
  before: Mapping[str, File],
  score_text: str,
  can_export: bool = True,
) -> None:
  """Prints a run's time, score and new files, and the command to export it.

  Args:
    folder: the --output_dir.
    start: when the program began, by `time.monotonic`.
    before: the files that were in the folder then, from `list_files`.
    score_text: the best score in words, or "".
    can_export: whether export_saved_model.py knows the task.
  """
  lines = [score_text] if score_text else []

  # A file is new, too, if it was there before and has been replaced.
  now = list_files(folder)
  changed = dict(now.items() - before.items())
  new = sorted(filter(is_result, changed))
  if new:
    lines.append(f"wrote to {folder}: {', '.join(new)}")

  # Checkpoints are what fills a disk: their size, and how to have fewer.
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

  export = ""
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
  purpose: str,
  sections: Mapping[str, str],
  score_text: str = "",
  scores: Mapping[str, float] = types.MappingProxyType({}),
  guesses: Guesses = types.MappingProxyType({}),
) -> None:
  """Writes the report, if flags ask for it; a failure only prints a note.

  Args:
    settings: all flags of the program; they are listed in the report.
    start: when the program began, by `time.monotonic`.
    purpose: what the model is for, such as "pre-training".
    sections: HTML by title, in their order.
    score_text: the best score in words, or "".
    scores: to show in large type, the most important one first.
    guesses: to draw as dotted lines among the curves.
  """
  if not settings.report:
    return

  # The curves are in two files. If a run was killed and resumed, some
  # evaluations are only in the second, where eval/f1 has the name eval_f1.
  folder = settings.output_dir
  points = reporting.read_curves(folder)
  for point in reporting.read_curves(folder, name="evaluations.jsonl"):
    points.append({k.replace("eval_", "eval/", 1): v for k, v in point.items()})

  # The line below the title.
  time = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
  facts = f"{program.program_name()}, {purpose}; {time}; took "
  facts += program.format_time(start)
  if score_text:
    facts += f"; {score_text}"

  # A few scores in large type. A loss does not say how good a model is.
  names = [n for n in scores if score_kinds.find(n).says_how_good]
  scores = {name: scores[name] for name in names[:_MOST_TILES]}

  # The program's own sections come after the curves. Empty ones are left out.
  versions = [("Python", platform.python_version())]
  versions += [(m.__name__, m.__version__) for m in (tf, keras, np)]
  versions.append(("system", platform.platform()))
  content = {
    "Training": draw_curves(points, scores, guesses),
    **sections,
    "Settings": _list_settings(settings),
    "Versions": plots.table(("", "version"), versions),
    "Files": _list_files(folder),
  }

  name = os.path.basename(os.path.abspath(folder))
  path = os.path.join(folder, _NAME)
  files.write_text(path, plots.page(f"Report: {name}", facts, content, scores))
  print(f"wrote {path}")


def draw_curves(
  points: list[dict[str, float]],
  chosen: Collection[str] = (),
  guesses: Guesses = types.MappingProxyType({}),
) -> str:
  """Draws the curves of a training as charts, side by side.

  Args:
    points: values by name, among them "step"; in any order.
    chosen: the scores, without "eval/", that share the chart of the losses.
    guesses: drawn as dotted lines.

  Returns:
    HTML, or "" without any curve.
  """
  # From points to curves: values by step, by name.
  curves: dict[str, dict[float, float]] = {}
  for point in sorted(points, key=lambda point: point["step"]):
    for name, value in point.items():
      if name != "step":
        curves.setdefault(name, {})[point["step"]] = value

  # Scores up to 1 and scores up to 100 need different scales. The scores of one
  # evaluation stay together: in SQuAD all go to 100, even a small one.
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
    title = score_kinds.find(name).chart
    points_of_curve = list(curve.items())
    if title == "Scores" and name.rpartition("/")[0] in groups_above_1:
      title = "Scores above 1"

    # With one task, "loss" and the loss of the task are the same curve.
    if title != "Losses" or points_of_curve not in by_title[title].values():
      by_title[title][name] = points_of_curve

  names = {f"eval/{name}" for name in chosen}
  drawn = _draw_charts(by_title, names, guesses)
  return drawn and f'<div class="charts">{drawn}</div>'


def _draw_charts(by_title, chosen, guesses) -> str:
  """Draws charts of curves: losses with scores, learning rates with norms."""

  def scale(title, axis, lines):
    # Training and evaluation guess alike, and a chart has one dotted line for a
    # name: the evaluation's, which comes last and replaces the training's.
    names = sorted(lines, key=lambda name: name.startswith("eval/"))
    levels = dict(guesses[name] for name in names if name in guesses)
    return charts.Scale(title, axis, lines, levels)

  losses = by_title.pop("Losses")
  learning_rates = by_title.pop("Learning rate")
  norms = by_title.pop("Gradient norm")

  # The chosen scores (or all, if none is chosen) have the right-hand scale of
  # the losses. If scores need two scales, they have charts of their own.
  scales = [by_title[t] for t in ("Scores", "Scores above 1") if by_title[t]]
  scores = scales[0] if len(scales) == 1 else {}
  names = chosen & scores.keys() or set(scores)
  beside = {name: scores.pop(name) for name in list(scores) if name in names}

  # Too many lines for one chart: only the total losses stay with the scores.
  if len(losses) + len(beside) > charts.MOST_LINES and beside:
    parts = {n: losses[n] for n in losses if n not in ("loss", "eval/loss")}
    losses = {n: losses[n] for n in losses if n not in parts}
    by_title = {"Parts of the loss": parts, **by_title}

  # The losses of batches jump, and are smoothed; an evaluation is not.
  drawn = charts.line_chart(
    "step",
    scale("Losses", "loss", losses),
    scale("Scores", "score", beside),
    smoothed=[name for name in losses if not name.startswith("eval/")],
  )
  for title, lines in by_title.items():
    drawn += charts.line_chart("step", scale(title, "", lines))

  return drawn + charts.line_chart(
    "step",
    scale("Learning rate", "", learning_rates),
    scale("Gradient norm", "", norms),
  )


def _list_settings(settings) -> str:
  """Makes a table, closed at first, of the flags that have a value."""
  rows = sorted(
    (name, str(value))
    for name, value in settings.flag_values().items()
    if value not in (None, "", ())
  )
  listed = plots.table(("flag", "value"), rows)
  return f"<details><summary>All flags with a value</summary>{listed}</details>"


def _list_files(folder) -> str:
  """Makes a table of the results in a folder, with links and sizes."""
  states = list_files(folder)
  names = sorted(n for n in states if is_result(n) and n != _NAME)
  rows = ((plots.Link(n, urllib.parse.quote(n)), states[n].size) for n in names)
  return plots.table(("file", "bytes"), rows)
