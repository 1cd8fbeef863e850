"""report.html of a run: curves, results, settings, versions, time and files."""

from collections.abc import Iterator, Mapping
import contextlib
import datetime
import os
import platform
import sys
import urllib.parse

import keras
import numpy as np
import tensorflow as tf

from cli import program, shared_flags
from data import files
from tasks import plots
from training import reporting

_NAME = "report.html"
# What the names of their curves end in; all others are scores.
_CHARTS: dict[str, tuple[str, ...]] = {
  "Losses": ("loss", "_error"),
  "Perplexity": ("perplexity",),
  "Scores": (),
  "Scores above 1": (),
  "Thresholds": ("_threshold",),
  "Learning rate": ("learning_rate",),
  "Gradient norm": ("gradient_norm",),
}


@contextlib.contextmanager
def report_errors_as_notes() -> Iterator[None]:
  """Says in a line why a part of a report failed, and continues the run."""
  try:
    yield
  except Exception as error:  # What a run has found is worth more than this.
    print(f"note: missing in {_NAME}: {error!r}", file=sys.stderr)


@report_errors_as_notes()
def write(
  settings: shared_flags.ModelSettings,
  start: float,
  problem: str,
  sections: Mapping[str, str],
  score: str = "",
) -> None:
  """Writes the report, if flags ask for it; a failure only prints a note.

  The run, of a model for `problem`, began at `start`, by `time.monotonic`;
  `sections` are HTML by title, `score` is the best one, in words.
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
  facts += program.format_time(start) + f"; best: {score}" * bool(score)
  shown = {
    "Training": draw_curves(points),
    **sections,
    "Settings": _list_settings(settings),
    "Versions": plots.table(("", "version"), _list_versions()),
    "Files": _list_files(folder),
  }
  name = os.path.basename(os.path.abspath(folder))
  path = os.path.join(folder, _NAME)
  files.write_text(path, plots.page(f"Report: {name}", facts, shown))
  print(f"wrote {path}")


def write_tasks(
  settings: shared_flags.ModelSettings, start: float, scores: Mapping[str, str]
) -> None:
  """Writes the report of several tasks; scores are their best, in words."""
  # With evaluations in training there is one best score, of all tasks.
  best, *others = set(scores.values())
  best = "" if others else best
  rows = [
    (plots.Link(name, f"tasks/{name}/{_NAME}"), score.removeprefix(best))
    for name, score in scores.items()
  ]
  listed = plots.table(("report", "best"), rows)
  write(settings, start, "several tasks", {"Tasks": listed}, best)


def draw_curves(points: list[dict[str, float]]) -> str:
  """Draws the points of `reporting.read_curves`; "" without any."""
  curves: dict[str, dict[float, float]] = {}
  for point in sorted(points, key=lambda point: point["step"]):
    for name, value in point.items():
      if name != "step":
        curves.setdefault(name, {})[point["step"]] = value
  # Scores of one evaluation share a scale.
  groups_above_1 = {
    name.rpartition("/")[0]
    for name, curve in curves.items()
    if _choose_chart(name) == "Scores" and max(map(abs, curve.values())) > 1
  }
  charts: dict[str, dict[str, list[plots.Point]]] = {t: {} for t in _CHARTS}
  for name, curve in curves.items():
    title, points_of_curve = _choose_chart(name), list(curve.items())
    if title == "Scores" and name.rpartition("/")[0] in groups_above_1:
      title = "Scores above 1"
    # A single loss is also that of the task.
    if title != "Losses" or points_of_curve not in charts[title].values():
      charts[title][name] = points_of_curve
  drawn = "".join(
    plots.line_chart(title, ("step", ""), shown)
    for title, shown in charts.items()
  )
  return drawn and f'<div class="charts">{drawn}</div>'


def _choose_chart(name: str) -> str:
  """Returns the title of the chart of a curve."""
  for title, endings in _CHARTS.items():
    if name.endswith(endings):
      return title
  return "Scores"


def _list_settings(settings) -> str:
  rows = sorted(
    (name, str(value))
    for name, value in settings.flag_values().items()
    if value not in (None, "", ())
  )
  listed = plots.table(("flag", "value"), rows)
  return f"<details><summary>All flags with a value</summary>{listed}</details>"


def _list_versions():
  yield "Python", platform.python_version()
  for module in (tf, keras, np):
    yield module.__name__, module.__version__
  yield "system", platform.platform()


def _list_files(folder) -> str:
  found = program.list_files(folder)
  names = sorted(n for n in found if program.is_result(n) and n != _NAME)
  rows = ((plots.Link(n, urllib.parse.quote(n)), found[n].size) for n in names)
  return plots.table(("file", "bytes"), rows)
