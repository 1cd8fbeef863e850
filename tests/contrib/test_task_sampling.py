"""Which task makes which update."""

import numpy as np
import pytest

from bert import run_multitask
from bert.contrib import task_sampling


def flags(**values):
  """Returns settings of run_multitask.py."""
  return run_multitask.MultitaskSettings(
    tasks_file="", output_dir="", seed=1, **values
  )


def test_draws_depend_on_rates_seed_and_step_only():
  shares, weights = np.array([0.1, 0.3, 0.6]), np.ones([20_000, 3])
  draw = task_sampling.draw_tasks
  whole, expected = draw(shares, weights, seed=7), shares * 20_000
  sigma = np.sqrt(expected * (1 - shares))
  assert (abs(np.bincount(whole) - expected) < 3 * sigma).all()
  np.testing.assert_array_equal(draw(shares, weights[:10], 7), whole[:10])
  assert (draw(shares, weights, seed=8) != whole).any()


def test_a_task_without_weight_makes_no_update():
  weights = np.ones([100, 2])
  weights[:50, 0], weights[50:, 1] = 0.0, 0.0
  draws = task_sampling.draw_tasks(np.array([0.9, 0.1]), weights, seed=7)
  assert draws.tolist() == [1] * 50 + [0] * 50


def test_weights_are_linear_between_the_knots():
  def weights(weight):
    return task_sampling.weights_by_step(weight, 5).tolist()

  assert weights(0.5) == [0.5, 0.5, 0.5, 0.5, 0.5]
  assert weights([(0, 1.0), (4, 0.0)]) == [1.0, 0.75, 0.5, 0.25, 0.0]
  assert weights([(1, 0.0), (2, 1.0), (9, 1.0)]) == [0.0, 0.0, 1.0, 1.0, 1.0]


def test_annealed_shares_begin_in_proportion_and_end_nearly_even():
  shares = task_sampling.anneal(np.array([0.2, 0.8]), 3)
  np.testing.assert_allclose(shares[0], [0.2, 0.8])
  np.testing.assert_allclose(shares[1], [0.2**0.6, 0.8**0.6])
  np.testing.assert_allclose(shares[2], [0.2**0.2, 0.8**0.2])


def test_the_rows_of_a_task_are_those_of_its_own_updates():
  mine = task_sampling.TaskSteps(np.array([True, False, False, True, True]), 8)
  assert [mine.record_at(step) for step in range(6)] == [0, 8, 8, 8, 16, 24]


def test_a_low_temperature_draws_the_largest_task_most():
  shares = task_sampling.rates([10, 20], 2**21, 0.01)
  np.testing.assert_allclose(shares, [2.0**-100, 1.0])


@pytest.mark.parametrize(
  ("weights", "given", "reason"),
  [
    ([1.0, 1.0], [1e-6, 1.0], "it is drawn with a rate of 1e-06; "),
    # The share of 10 examples of 2,000,000 is too small for a number, even
    # where no other task may be drawn.
    ([1.0, 1.0], [None, None], "it is drawn with a rate of 0; "),
    ([1.0, [(1, 0.0), (2, 1.0)]], [None, None], "it is drawn with a rate of 0"),
    # It would begin at a step that the training does not reach.
    ([[(3, 0.0), (4, 1.0)], 1.0], [1.0, 1.0], "its weight is 0 at all of "),
  ],
)
def test_a_task_that_makes_no_update_is_refused(weights, given, reason):
  course = task_sampling.sample_tasks(
    weights, given, [10, 2_000_000], 3, flags(temperature=1e-3)
  )
  with pytest.raises(ValueError, match="task 'a' would make none of") as error:
    task_sampling.check_draws(course, ["a", "b"])
  fault = "--tasks_file: task 'a' would make none of the 3 updates, "
  assert str(error.value).startswith(fault + reason)


def test_a_task_that_shall_make_no_update_makes_none(capsys):
  course = task_sampling.sample_tasks(
    [0.0, 1.0], [1.0, 1.0], [10, 10], 3, flags()
  )
  task_sampling.check_draws(course, ["a", "b"], idle=["a"])
  said = capsys.readouterr().err
  assert said == "note: task a: its weight is 0: no update\n"


def test_a_task_that_is_drawn_early_only_makes_updates():
  weights = [[(0, 1.0), (2, 0.0)], [(1, 0.0), (2, 1.0)]]
  course = task_sampling.sample_tasks(
    weights, [1.0, 1.0], [10, 10], 1000, flags()
  )
  assert 0 in course.task_of_step[:2] and 0 not in course.task_of_step[2:]
  task_sampling.check_draws(course, ["a", "b"])


def test_every_setting_of_a_course_counts():
  def plan(**settings):
    return task_sampling.sample_tasks(
      [1.0, 1.0], [None, None], [100, 900], 2000, flags(**settings)
    )

  def assert_shares(course, *expected):
    np.testing.assert_allclose(course.shares, expected)

  plain, annealed = plan(), plan(schedule="annealed")
  assert_shares(plain, 0.1, 0.9)
  assert_shares(plan(examples_limit=300), 0.25, 0.75)
  assert_shares(plan(temperature=2.0), 0.25, 0.75)
  assert_shares(annealed, 0.1, 0.9)
  # Drawn by 0.1**0.2 and 0.9**0.2 at the end.
  late = [course.task_of_step[1900:].mean() for course in (plain, annealed)]
  assert late[0] == pytest.approx(0.9, abs=0.08)
  assert late[1] == pytest.approx(0.6, abs=0.12)
