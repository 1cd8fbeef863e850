"""The curves of a run: bounded, and continued where training resumes."""

import tensorflow as tf

from training import loop
from training import reporting


def report(folder, steps):
  """Reports steps of a training, and an evaluation after the last one."""
  plan = loop.TrainingPlan(str(folder), 5000, train_batch_size=8)
  strategy = tf.distribute.get_strategy()
  reporter = reporting.Reporter(plan, steps[0] - 1, strategy)
  for step in steps:
    reporter.choose_count(1)
    reporter.add(step, 1, {"loss": float(step)})
  reporter.add_evaluation(steps[-1], {"eval_accuracy": 0.5})
  return reporting.read_curves(str(folder))


def test_every_second_of_many_points_is_kept_and_every_evaluation(tmp_path):
  *points, evaluation = report(tmp_path, range(1, 2003))
  assert points == [{"step": s, "loss": float(s)} for s in range(2, 2003, 2)]
  assert evaluation == {"step": 2002, "eval/accuracy": 0.5}


def test_evaluations_push_out_no_points_of_training(tmp_path, monkeypatch):
  monkeypatch.setattr(reporting, "_MOST_POINTS", 4)
  for step in range(1, 6):
    points = report(tmp_path, [step])
    if step < 5:
      assert len(points) == 2 * step
  evaluated = [p["step"] for p in points if "loss" not in p]
  assert evaluated == [1, 2, 3, 4, 5]
  assert [p["step"] for p in points if "loss" in p] == [2, 4]


def test_points_after_the_step_of_resuming_are_replaced(tmp_path):
  report(tmp_path, range(1, 5))
  assert report(tmp_path, range(4, 6)) == [
    {"step": 1, "loss": 1.0},
    {"step": 2, "loss": 2.0},
    {"step": 3, "loss": 3.0},
    {"step": 4, "loss": 4.0},
    {"step": 5, "loss": 5.0},
    {"step": 5, "eval/accuracy": 0.5},
  ]
