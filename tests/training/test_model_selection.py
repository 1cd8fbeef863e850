"""Best and last evaluations, and that no kill leaves them half done."""

import contextlib
import itertools
import math
import os

import pytest
import tensorflow as tf

from bert.training import model_selection
from bert.weights import checkpoints
import paths

ACCURACIES = {100: 0.5, 200: 0.75, 300: 0.75, 400: 0.7}


def make(folder, values=ACCURACIES, metric="eval_accuracy", patience=0):
  history = model_selection.History(str(folder), metric, patience)
  for step, value in values.items():
    history.add(step, {metric: value, "loss": 1.0})
  return history


def test_evaluations_are_lines_of_json_that_another_history_reads(tmp_path):
  make(tmp_path, {100: 0.1 + 0.2, 200: math.nan, 300: math.inf})
  assert (tmp_path / "evaluations.jsonl").read_text().splitlines() == [
    '{"step": 100, "eval_accuracy": 0.30000000000000004, "loss": 1.0}',
    '{"step": 200, "eval_accuracy": NaN, "loss": 1.0}',
    '{"step": 300, "eval_accuracy": Infinity, "loss": 1.0}',
  ]
  first, second, third = make(tmp_path, {}).results.values()
  assert first == {"eval_accuracy": 0.1 + 0.2, "loss": 1.0}
  assert math.isnan(second["eval_accuracy"])
  assert third["eval_accuracy"] == math.inf


def test_a_worker_that_does_not_write_decides_the_same(tmp_path):
  make(tmp_path, {100: 0.5, 200: 0.4})
  before = (tmp_path / "evaluations.jsonl").read_bytes()
  history = model_selection.History(
    str(tmp_path), "eval_accuracy", patience=2, writes=False
  )
  results = history.record(300, lambda step: {"eval_accuracy": 0.3}, {})
  assert results == {"eval_accuracy": 0.3}
  assert history.should_stop() and history.best == 100
  history.record(400, lambda step: {"eval_accuracy": 0.6}, weights(400))
  history.forget_after(0)
  assert history.best is None
  assert (tmp_path / "evaluations.jsonl").read_bytes() == before
  assert [path.name for path in tmp_path.iterdir()] == ["evaluations.jsonl"]


@pytest.mark.parametrize(
  ("metric", "values", "best"),
  [
    ("eval_accuracy", {}, None),
    ("eval_accuracy", {1: 0.5, 2: 0.7, 3: 0.6}, 2),
    ("eval_accuracy", {1: 0.5, 2: 0.7, 3: 0.7}, 2),  # The earliest.
    ("eval_accuracy", {1: math.nan, 2: -0.1, 3: math.nan}, 2),
    ("eval_accuracy", {1: math.nan}, None),
    ("eval_loss", {1: 0.5, 2: 0.3, 3: 0.4}, 2),
    ("mean_squared_error", {1: 0.5, 2: 0.3, 3: 0.3}, 2),
    ("eval_lm/perplexity", {1: 300.0, 2: 50.0, 3: 100.0}, 2),
    ("eval_lossless", {1: 0.5, 2: 0.3}, 1),
  ],
)
def test_best(metric, values, best, tmp_path):
  history = model_selection.History(str(tmp_path), metric)
  for step, value in values.items():
    history.add(step, {metric: value})
  assert history.best == best


@pytest.mark.parametrize(
  ("patience", "values", "stops"),
  [
    (2, [0.5, 0.7, 0.6], False),
    (2, [0.5, 0.7, 0.6, 0.7], True),  # As good is not better.
    (2, [0.7, 0.6, 0.8], False),
    (3, [math.nan] * 3, True),
    (1, [], False),
    (0, [0.7, 0.6, 0.6, 0.6], False),  # Never.
  ],
)
def test_patience(patience, values, stops, tmp_path):
  history = make(tmp_path, dict(enumerate(values)), patience=patience)
  assert history.should_stop() == stops


def test_summary(tmp_path):
  assert make(tmp_path / "a").summary() == (
    "best: eval_accuracy 0.75 at step 200 (evaluations: 4, after the best: 2)"
  )
  only = make(tmp_path / "c", {1: 0.5})
  assert only.summary() == "eval_accuracy 0.5"  # There was no choice.
  assert make(tmp_path / "b", {1: math.nan}).summary() == (
    "no eval_accuracy to go by (evaluations: 1)"
  )


def test_forgets_what_a_killed_run_will_do_again(tmp_path):
  history = make(tmp_path)
  history.forget_after(199)
  assert 200 not in history.results
  assert history.best == make(tmp_path, {}).best == 100
  history.forget_after(0)
  assert history.best is None
  assert (tmp_path / "evaluations.jsonl").read_text() == ""


GOOD = '{"step": 100, "eval_accuracy": 0.5}\n'


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ('{"step": 100, "eval_acc', ":1: not JSON"),
    (GOOD + "\n", ":2: not JSON"),
    (GOOD + "[200, 0.5]\n", ":2: expected .*step.* got '.200, 0.5.'"),
    (GOOD + '{"step": 200.5, "eval_accuracy": 1}', ":2: expected"),
    (GOOD + '{"step": true, "eval_accuracy": 1}', ":2: expected"),
    (GOOD + '{"eval_accuracy": 1}', ":2: expected"),
    (GOOD + '{"step": -1, "eval_accuracy": 1}', ":2: expected"),
    (GOOD + GOOD, ":2: step 100 follows step 100"),
    ('{"step": 1, "eval_accuracy": "0.5"}', ":1: expected"),
    ('{"step": 1, "eval_f1": 1, "a": 2}', ":1: .*known are a, eval_f1; mend"),
  ],
)
def test_a_damaged_file_is_refused_with_its_line(text, message, tmp_path):
  path = tmp_path / "evaluations.jsonl"
  path.write_text(text)
  with pytest.raises(ValueError, match=message) as caught:
    make(tmp_path, {})
  assert str(caught.value).startswith(f"{path}:")
  assert path.read_text() == text


def test_an_unknown_metric_lists_the_known(tmp_path):
  history = model_selection.History(str(tmp_path), "eval_f1")
  with pytest.raises(ValueError, match="'eval_f1'; known are b, eval_accuracy"):
    history.add(100, {"eval_accuracy": 0.5, "b": 1.0})
  assert history.best is None
  assert not (tmp_path / "evaluations.jsonl").exists()


def weights(value):
  return {"bert/kernel": tf.Variable([float(value)]), "bias": tf.Variable(2.0)}


def train(folder, scores, resumed_at=0):
  """Evaluates at every step; the weights of a step are its number."""
  history = model_selection.History(str(folder), "eval_accuracy")
  history.forget_after(resumed_at)
  for step, value in scores.items():
    if step >= resumed_at:
      results = history.record(
        step, lambda step: {"eval_accuracy": scores[step]}, weights(step)
      )
      assert results == {"eval_accuracy": value}


def best_files(folder):
  return sorted(os.listdir(folder / "best"))


def test_keeps_the_best_weights_alone(tmp_path):
  train(tmp_path, ACCURACIES)
  assert best_files(tmp_path) == [
    "checkpoint",
    "model.ckpt-200.data-00000-of-00001",
    "model.ckpt-200.index",
  ]
  assert model_selection.best_step(str(tmp_path)) == 200
  prefix = str(tmp_path / "best" / "model.ckpt-200")
  shapes = checkpoints.open_weights(prefix).shapes
  assert sorted(shapes) == ["bert/kernel", "bias"]
  variables = weights(0)
  assert model_selection.restore_best(str(tmp_path), variables) == 200
  assert variables["bert/kernel"].numpy() == 200.0


def test_without_best_weights_nothing_is_restored(tmp_path):
  train(tmp_path, {100: math.nan})
  variables = weights(7)
  assert model_selection.best_step(str(tmp_path)) is None
  assert model_selection.restore_best(str(tmp_path), variables) is None
  assert variables["bert/kernel"].numpy() == 7.0


def test_an_evaluation_is_not_made_twice(tmp_path):
  train(tmp_path, {100: 0.5})
  before = (tmp_path / "best" / "model.ckpt-100.index").stat().st_mtime_ns
  history = model_selection.History(str(tmp_path), "eval_accuracy")

  def fail(step):
    raise AssertionError("evaluated again")

  history.record(100, fail, weights(100))
  after = (tmp_path / "best" / "model.ckpt-100.index").stat().st_mtime_ns
  assert after == before


def test_later_best_weights_are_forgotten_too(tmp_path):
  """A run that falls back trains again, perhaps towards other weights."""
  train(tmp_path, {100: 0.5, 200: 0.9})
  train(tmp_path, {100: 0.5, 200: 0.4}, resumed_at=100)
  assert model_selection.best_step(str(tmp_path)) == 100
  assert "model.ckpt-200.index" not in best_files(tmp_path)
  history = model_selection.History(str(tmp_path), "eval_accuracy")
  scores = history.results.values()
  assert [found["eval_accuracy"] for found in scores] == [0.5, 0.4]
  history.forget_after(50)
  assert best_files(tmp_path) == []  # --model would look for what one names.


class KilledError(BaseException):
  """Stands for SIGKILL: nothing that follows it changes a file."""


def kill_before_change(count, monkeypatch):
  """Allows `count` changes to files; returns [those left]; [-1]: killed."""
  left = [count]

  def guard(owner, name):
    change = getattr(owner, name)

    def guarded(*args, **options):
      left[0] -= 1
      if left[0] < 0:
        raise KilledError
      return change(*args, **options)

    monkeypatch.setattr(owner, name, guarded)

  for name in ("replace", "remove"):
    guard(os, name)
  for name in ("rename", "remove", "makedirs"):
    guard(tf.io.gfile, name)
  guard(tf.raw_ops, "SaveV2")
  return left


# least_kills: a run makes at least so many changes of files, and is killed
# before each. Fewer kills would mean that `kill_before_change` misses changes.
@pytest.mark.parametrize(
  ("before", "resumed_at", "scores", "least_kills"),
  [
    ({}, 100, {100: 0.5}, 7),  # The first best weights.
    ({100: 0.5}, 200, {200: 0.9}, 9),  # They replace others.
    ({100: 0.5}, 200, {200: 0.4}, 2),  # No better.
    ({100: 0.5, 200: 0.9}, 100, {100: 0.5, 200: 0.4}, 12),  # It fell back.
  ],
)
def test_a_kill_at_any_moment_changes_nothing_in_the_end(
  before, resumed_at, scores, least_kills, tmp_path, monkeypatch
):
  train(tmp_path / "whole", before)
  train(tmp_path / "whole", scores, resumed_at)
  expected = paths.contents(tmp_path / "whole")
  for kills in itertools.count():
    folder = tmp_path / f"killed-{kills}"
    train(folder, before)
    with monkeypatch.context() as patch:
      left = kill_before_change(kills, patch)
      with contextlib.suppress(KilledError):
        train(folder, scores, resumed_at)
    # Whoever predicts now finds whole weights or none.
    model_selection.restore_best(str(folder), weights(0))
    train(folder, scores, resumed_at)
    assert paths.contents(folder) == expected, kills
    if left[0] >= 0:
      break
  assert kills >= least_kills
