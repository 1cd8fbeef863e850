"""Which checkpoint is best, and when to stop: scores and weights of a run.

Every evaluation during training is a line of `evaluations.jsonl`; the weights
that scored best are in `best/`. If the process is killed, both may be older
than the newest checkpoint; resuming updates them.
"""

from collections.abc import Callable, Mapping
import json
import math

import tensorflow as tf

from bert.data import files, progress
from bert.report import score_kinds
from bert.weights import checkpoints

_EVALUATIONS = "evaluations.jsonl"


class History:
  """The scores of a run's evaluations, kept in `folder/evaluations.jsonl`.

  A line is {"step": 100, "eval_accuracy": 0.9, ...}, maybe with NaN. A
  ValueError says that an existing file is damaged or lacks the metric.

  Args:
    folder: of the run.
    metric: the score that decides; bert/report/score_kinds.py says whether
      lower is better.
    patience: evaluations in a row without a better score; 0 never stops.
    writes: whether to write scores and weights: one of several workers does.
  """

  def __init__(
    self, folder: str, metric: str, patience: int = 0, writes: bool = True
  ):
    self.folder = folder
    self.metric = metric
    self.patience = patience
    self.writes = writes

    # Scores by step; steps ascend. A resumed run begins with the scores of its
    # file, so that patience counts as if nothing had interrupted it.
    self._path = tf.io.gfile.join(folder, _EVALUATIONS)
    self.results = self._read() if files.exists(self._path) else {}

  def _read(self):
    results: dict[int, dict[str, float]] = {}  # Steps ascend.
    for number, line in enumerate(files.read_lines(self._path), 1):
      try:
        # A run only appends later steps, so any other order is a fault.
        step, scores = _parse(line)
        if results and step <= max(results):
          raise ValueError(f"step {step} follows step {max(results)}")
        self._check_metric(scores)
      except ValueError as error:
        raise ValueError(
          f"{self._path}:{number}: {error}; mend the file, or delete it to "
          "forget the scores so far"
        ) from None
      results[step] = scores
    return results

  def _check_metric(self, scores):
    if self.metric not in scores:
      raise ValueError(
        f"no score is called {self.metric!r}; known are "
        f"{', '.join(sorted(scores)) or 'none'}"
      )

  def _write(self):
    # The whole file is written anew: a kill leaves the old one or the new one,
    # but no half line.
    if self.writes:
      lines = ({"step": step, **v} for step, v in self.results.items())
      files.write_lines(self._path, map(json.dumps, lines))

  def add(self, step: int, results: Mapping[str, float]) -> None:
    """Appends the scores of a later step; they must hold the metric."""
    # `record` adds no step twice, and `forget_after` has dropped later steps.
    assert step > max(self.results, default=-1), step
    self._check_metric(results)
    self.results[step] = {n: float(value) for n, value in results.items()}
    self._write()

  def forget_after(self, step: int) -> None:
    """Drops the scores and best weights of steps that will be made again."""
    best = best_step(self.folder)
    if self.writes and best is not None and best > step:
      folder = _best_folder(self.folder)
      # --model looks for this file, so it goes before the weights it names.
      files.remove(tf.io.gfile.join(folder, "checkpoint"))
      checkpoints.delete(folder, best)

    # These steps will be evaluated again, and `add` takes a step only once.
    kept = {s: scores for s, scores in self.results.items() if s <= step}
    if kept != self.results:
      self.results = kept
      self._write()

  def record(
    self,
    step: int,
    evaluate: Callable[[int], Mapping[str, float]],
    variables: Mapping[str, tf.Variable],
  ) -> dict[str, float]:
    """Evaluates a step; keeps its scores, and its weights if they are best.

    Call it after the training checkpoint of the step is saved; if it is killed
    and called again at that checkpoint, it does the rest. A ValueError says
    that weights cannot be written; the best so far are untouched.

    Args:
      step: the number of updates made so far.
      evaluate: takes the step, returns scores by name; must be deterministic.
      variables: the weights, by their names in a checkpoint.

    Returns:
      The scores of the step.
    """
    # The step may have its scores from before a kill: they would be the same.
    if step not in self.results:
      self.add(step, evaluate(step))

    # The step may be evaluated, but a kill have prevented the copy of weights.
    is_best = self.best == step
    if self.writes and is_best and not _is_complete(self.folder, step):
      # `_is_complete` wants nothing else in the folder: no files that a kill
      # left half written, and by `keep` no weights of an earlier best step.
      folder = _best_folder(self.folder)
      tf.io.gfile.makedirs(folder)
      checkpoints.remove_temporary_files(folder)
      checkpoints.save(folder, step, variables, keep=1)
    return self.results[step]

  @property
  def best(self) -> int | None:
    """The step of the best score, the first of equals; None if all are NaN."""
    values = {n: scores[self.metric] for n, scores in self.results.items()}
    # NaN compares as neither better nor worse, so it must not take part.
    steps = [step for step, value in values.items() if not math.isnan(value)]

    # Both functions return the first of equals, which is the earliest step.
    choose = min if score_kinds.find(self.metric).is_better_if_lower else max
    return choose(steps, key=lambda step: values[step], default=None)

  def _since_best(self):
    """Counts the evaluations after the best one, or all if all gave NaN."""
    # If all scores are NaN, patience must run out as well.
    best = self.best
    return sum(best is None or step > best for step in self.results)

  def should_stop(self) -> bool:
    """Returns whether patience has run out."""
    # Without patience (0), training never stops early.
    return 0 < self.patience <= self._since_best()

  def summary(self) -> str:
    """Returns one line: the best score, and its step if there are several."""
    best = self.best
    count = len(self.results)
    since = self._since_best()

    # All scores are NaN.
    if best is None:
      return f"no {self.metric} to go by (evaluations: {count})"

    # With one evaluation there was nothing to choose from.
    score = f"{self.metric} {self.results[best][self.metric]:.4g}"
    if count == 1:
      return score
    return (
      f"best: {score} at step {best} "
      f"(evaluations: {count}, after the best: {since})"
    )


def best_step(folder: str) -> int | None:
  """Returns the step of the best weights of a run, None if there are none."""
  # `record` keeps one; a kill while it writes may leave two.
  steps = checkpoints.saved_steps(_best_folder(folder))
  return steps[-1] if steps else None


def restore_best(
  folder: str, variables: Mapping[str, tf.Variable], mends: bool = False
) -> int | None:
  """Loads the best weights of a run; returns their step, None without any.

  If they are damaged, a line on standard error says so, and the training
  checkpoint of the same step is loaded instead, if it still exists.

  Args:
    folder: of the run.
    variables: the weights, by their names in a checkpoint.
    mends: whether to write damaged best weights again from that checkpoint,
      which a later training may delete.
  """
  # Without a folder of best weights, `restore` returns None, and so does this.
  try:
    return checkpoints.restore(_best_folder(folder), variables)
  except checkpoints.DamagedCheckpointError as error:
    fault = str(error)

  # The training's checkpoint of the best step has the same weights.
  step = best_step(folder)
  if step in checkpoints.saved_steps(folder):
    prefix = checkpoints.checkpoint_prefix(folder, step)
    progress.note(f"{fault}; trying {prefix}")
    try:
      checkpoints.load(prefix, variables)

      # A later training may delete the checkpoint that was just read.
      if mends:
        checkpoints.save(_best_folder(folder), step, variables, keep=1)
      return step
    except checkpoints.DamagedCheckpointError as error:
      fault = str(error)

  # The caller loads the newest weights when this returns None.
  progress.note(f"{fault}; trying the newest weights")
  return None


def _best_folder(folder):
  return tf.io.gfile.join(folder, "best")


def _is_complete(folder, step):
  """Returns whether best/ holds the weights of a step, and nothing else."""
  # A copy that a kill interrupted lacks files, or has temporary ones as well.
  path = _best_folder(folder)
  name = f"model.ckpt-{step}"
  expected = ["checkpoint", f"{name}.data-00000-of-00001", f"{name}.index"]
  return sorted(checkpoints.list_folder(path)) == expected


def _parse(line):
  """Reads a line of evaluations.jsonl: step, scores by name."""
  try:
    entry = json.loads(line)
  except json.JSONDecodeError as error:
    raise ValueError(f"not JSON ({error.msg})") from None
  scores = entry if isinstance(entry, dict) else {}
  step = scores.pop("step", None)

  # A bool is an int to Python, but neither a step nor a score.
  kinds = {type(value) for value in scores.values()}
  if type(step) is not int or step < 0 or not kinds <= {int, float}:
    raise ValueError(f'expected {{"step": 100, scores by name}}, got {line!r}')
  return step, {name: float(value) for name, value in scores.items()}
