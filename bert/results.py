"""What a training that was called from Python returns."""

from collections.abc import Mapping
import dataclasses
import html
import os
import re
from typing import Any

from bert.data import file_search, files, remote

# The files of scores. The group of the first is the suffix of the set. The
# second has scores of predictions whose labels are known, and their names begin
# with its group.
_EVALUATION = re.compile(r"eval_results(.*)\.txt")
_PREDICTION = re.compile(r"(predict.*)_metrics\.json")


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
  """A finished run. All of it is in `output_dir`; nothing is kept in memory.

  Attributes:
    output_dir: the folder that the run wrote to, with report.html.
    scores: what the run has scored at its end, by the names in its files, such
      as "eval_accuracy"; of several seeds or tasks, with the folder in front:
      "seed-1/eval_accuracy". {} without an evaluation.
    is_encoder: whether the model is a pre-trained one, without a task.
  """

  output_dir: str
  scores: Mapping[str, float]
  is_encoder: bool = False
  # The absolute path of a local one.
  _path: str = dataclasses.field(init=False, default="", compare=False)

  def __post_init__(self):
    object.__setattr__(self, "_path", _absolute(self.output_dir))

  @property
  def _folder(self) -> str:
    """The folder as it was named, or its path if another folder is current."""
    is_there = _absolute(self.output_dir) == self._path
    return self.output_dir if is_there else self._path

  @property
  def history(self) -> list[dict[str, float]]:
    """The curves of the training, a dict for each point, in their order.

    Each has "step"; points of training have "loss", "learning_rate" and
    "gradient_norm", evaluations the scores, such as "eval/accuracy".
    """
    # Imported late: this loads TensorFlow.
    from bert.training import reporting

    points = []
    for prefix, folder in _find_folders(self._folder).items():
      for point in reporting.read_curves(folder):
        step = point.pop("step")
        values = {f"{prefix}{name}": value for name, value in point.items()}
        points.append({"step": step, **values})
    return points

  def load(self) -> Any:
    """Returns the trained model: a `bert.Model`, or the encoder alone.

    An encoder, a Keras layer, is what pre-training makes. Several seeds make
    several models, so a ValueError names their folders: `bert.load` one.
    """
    from bert import loading

    if self.is_encoder:
      return loading.load_encoder(self._folder)
    return loading.load(self._folder)

  def __repr__(self) -> str:
    scores = ", ".join(f"{k} {v:.4g}" for k, v in self.scores.items())
    return f"<Result in {self.output_dir}: {scores or 'no scores'}>"

  def _repr_html_(self) -> str:
    """Returns what a notebook shows: a table of the scores, and the curves."""
    from bert.cli import run_report
    from bert.report import plots

    table = plots.table(("score", "value"), self.scores.items())
    curves = run_report.draw_curves(self.history)
    # Side by side, so that both show without scrolling.
    both = '<div style="display: flex; flex-wrap: wrap; gap: 2em">'
    both += f'<div>{table}</div><div style="flex: 1">{curves}</div></div>'
    page = plots.page(self.output_dir, "", {"Scores and curves": both}, {})

    # A frame, because the page's style must not change the notebook's.
    return (
      f'<iframe srcdoc="{html.escape(page)}" width="100%" height="600" '
      'style="border: 0"></iframe>'
    )


def _absolute(folder: str) -> str:
  """Returns the path of a folder that is the same in any current folder."""
  return folder if remote.is_remote(folder) else os.path.abspath(folder)


# The files of all folders of a run, by folder and name, with their states.
Files = dict[tuple[str, str], Any]


def list_files(output_dir: str) -> Files:
  """Returns the files that hold scores, with times that show a change."""
  from bert.cli import run_report

  return {
    (prefix, name): state
    for prefix, folder in _find_folders(output_dir).items()
    for name, state in run_report.list_files(folder).items()
    if _EVALUATION.fullmatch(name) or _PREDICTION.fullmatch(name)
  }


def read_scores(output_dir: str, before: Files) -> dict[str, float]:
  """Reads the scores that a run has written.

  Args:
    output_dir: the run's.
    before: from `list_files` when the run began: older scores do not count.
  """
  scores = {}
  changed = dict(list_files(output_dir).items() - before.items())
  for prefix, name in sorted(changed):
    path = os.path.join(output_dir, prefix, name)
    # A task with several sets, such as MNLI, has a file for each of them.
    if match := _EVALUATION.fullmatch(name):
      place = prefix + (f"{match[1][1:]}/" if match[1] else "")
      for line in files.read_lines(path):
        key, value = line.split(" = ")
        scores[f"{place}{key}"] = float(value)

    # JSON has no NaN: the file says null.
    elif match := _PREDICTION.fullmatch(name):
      for key, value in files.read_json(path)["metrics"].items():
        value = float("nan") if value is None else value
        scores[f"{prefix}{match[1]}_{key}"] = value
  return scores


def _find_folders(output_dir: str) -> dict[str, str]:
  """Returns the folders with results, by what precedes their scores' names."""
  folders = {"": output_dir}
  tasks = os.path.join(output_dir, "tasks")
  for parent, pattern, before in (
    (output_dir, "seed-", ""),  # --seeds
    (tasks, "", "tasks/"),  # run_multitask.py
  ):
    for name in file_search.list_folder(parent):
      if name.startswith(pattern):
        folders[f"{before}{name}/"] = os.path.join(parent, name)
  return folders
