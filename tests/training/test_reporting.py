"""The curves of a run: bounded, and continued where training resumes."""

import contextlib
import contextvars
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.training import reporting, training_plan


def make_reporter(folder, start=0, strategy=None):
  plan = training_plan.TrainingPlan(str(folder), 5000, train_batch_size=8)
  strategy = strategy or tf.distribute.get_strategy()
  return reporting.Reporter(plan, start, strategy)


def report(folder, steps):
  """Reports steps of a training, and an evaluation after the last one."""
  reporter = make_reporter(folder, steps[0] - 1)
  for step in steps:
    reporter.choose_count(1)
    reporter.add(step, 1, {"loss": float(step)}, 8)
  reporter.add_evaluation(steps[-1], {"eval_accuracy": 0.5})
  return reporting.read_curves(str(folder))


def test_every_second_of_many_points_is_kept_and_every_evaluation(tmp_path):
  *points, evaluation = report(tmp_path, range(1, 2003))
  assert points == [{"step": s, "loss": float(s)} for s in range(2, 2003, 2)]
  assert evaluation == {"step": 2002, "eval/accuracy": 0.5}


def test_the_speed_is_of_the_examples_of_all_tasks(tmp_path, monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  reporter = make_reporter(tmp_path)
  written = []
  context = contextvars.copy_context()
  context.run(reporting.ON_LOG.set, written.append)
  for step, batch_size in ((1, 8), (2, 4), (3, 32)):
    reporter.choose_count(1)
    now[0] += 1.0
    context.run(reporter.add, step, 1, {"loss": 1.0}, batch_size)
  context.run(reporter.add_evaluation, 3, {})
  assert "examples_per_second" not in written[0]
  # For 4 and 32 examples in two seconds; the first step compiles.
  assert written[1]["examples_per_second"] == 18.0


def test_lines_come_every_ten_seconds_and_at_the_end(
  tmp_path, monkeypatch, capsys
):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  reporter = make_reporter(tmp_path)
  for step in (1, 2, 3):
    reporter.choose_count(1)
    now[0] = 4.0 * step
    values = {f"part_{i}_loss": 1.0 for i in range(9)}
    reporter.add(step, 1, {"loss": 9.0, **values, "gradient_norm": 2.0}, 8)
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith("step 3/") and "  part_3 1  " in line
  assert len(line) < 120


def test_a_full_disk_leaves_no_file_of_curves_open(tmp_path, monkeypatch):
  closed = []
  writer = types.SimpleNamespace(close=lambda: closed.append(True))
  monkeypatch.setattr(tf.summary, "create_file_writer", lambda folder: writer)
  reporter = make_reporter(tmp_path)

  def write(path, lines):
    raise OSError("No space left on device")

  monkeypatch.setattr(reporting.files, "write_lines", write)
  with pytest.raises(OSError, match="No space"):
    reporter.close(0, is_finished=False)
  assert closed == [True]


def test_a_log_on_a_full_disk_ends_no_training(tmp_path, monkeypatch):
  reporter = make_reporter(tmp_path)
  with open("/dev/full", "w") as output, open("/dev/full", "w") as errors:
    monkeypatch.setattr("sys.stdout", output)
    monkeypatch.setattr("sys.stderr", errors)
    print("training from step 0")
    reporter.add_evaluation(1, {"eval_accuracy": 0.5})
    print("stopping early", flush=True)
    reporter.close(1, is_finished=False)
  assert reporting.read_curves(str(tmp_path))


def test_only_the_chief_writes_and_prints(tmp_path, capsys):
  other = types.SimpleNamespace(should_checkpoint=False)
  strategy = types.SimpleNamespace(extended=other)
  reporter = make_reporter(tmp_path, strategy=strategy)
  reporter.choose_count(1)
  reporter.add(1, 1, {"loss": 1.0}, 8)
  reporter.add_evaluation(1, {"eval_accuracy": 0.5})
  reporter.close(1, is_finished=True)
  assert list(tmp_path.iterdir()) == []
  assert capsys.readouterr() == ("", "")


def test_evaluations_push_out_no_points_of_training(tmp_path, monkeypatch):
  monkeypatch.setattr(reporting, "MOST_POINTS", 4)
  for step in range(1, 6):
    points = report(tmp_path, [step])
    if step < 5:
      assert len(points) == 2 * step
  evaluated = [p["step"] for p in points if "loss" not in p]
  assert evaluated == [1, 2, 3, 4, 5]
  assert [p["step"] for p in points if "loss" in p] == [2, 4]


def test_points_after_the_step_of_resuming_are_replaced(tmp_path):
  report(tmp_path, range(1, 5))
  *points, evaluation = report(tmp_path, range(4, 6))
  assert [(p["step"], p["loss"]) for p in points] == [
    *((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0), (5, 5.0))
  ]
  assert evaluation == {"step": 5, "eval/accuracy": 0.5}


def call_on_log(folder, function, strategy=None):
  """Reports two steps and an evaluation while a function listens."""
  reporter = make_reporter(folder, strategy=strategy)
  # A context of its own: no other test has the function.
  context = contextvars.copy_context()
  context.run(reporting.ON_LOG.set, function)
  for step in (1, 2):
    reporter.choose_count(1)
    context.run(reporter.add, step, 1, {"loss": float(step)}, 8)
  context.run(reporter.add_evaluation, 2, {"eval_accuracy": np.float64(0.5)})


def test_a_function_gets_what_tensorboard_gets_as_plain_numbers(
  tmp_path, monkeypatch
):
  written = []
  monkeypatch.setattr(
    "tensorflow.summary.scalar", lambda name, value: written.append(name)
  )
  got = []
  call_on_log(tmp_path, got.append)
  assert got.pop(1).pop("examples_per_second") > 0
  assert got == [{"step": 1, "loss": 1.0}, {"step": 2, "eval/accuracy": 0.5}]
  assert {type(v) for values in got for v in values.values()} == {int, float}
  assert written == ["loss", "loss", "examples_per_second", "eval/accuracy"]


def test_the_error_of_a_function_is_printed_once_and_ends_nothing(
  tmp_path, capsys
):
  def fail(values):
    raise KeyError("no such run")

  call_on_log(tmp_path, fail)
  warning = "warning: on_log raised KeyError('no such run'); training continues"
  assert capsys.readouterr().err.splitlines() == [
    warning,
    "evaluation at step 2:  accuracy 0.5",
  ]
  assert reporting.read_curves(str(tmp_path))[-1]["eval/accuracy"] == 0.5

  # Another error is news; Ctrl-C in the function is not its error.
  errors = [ValueError("full"), ValueError("full"), KeyboardInterrupt()]

  def fail_otherwise(values):
    raise errors.pop(0)

  with contextlib.suppress(KeyboardInterrupt):
    call_on_log(tmp_path, fail_otherwise)
  assert errors == []
  assert capsys.readouterr().err.count("full") == 1


def test_only_the_chief_calls_the_function(tmp_path):
  other = types.SimpleNamespace(should_checkpoint=False)
  got = []
  strategy = types.SimpleNamespace(extended=other)
  call_on_log(tmp_path, got.append, strategy)
  assert got == []
