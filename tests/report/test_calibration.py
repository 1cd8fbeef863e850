"""Calibration by hand, in closed form, by scikit-learn and by SciPy."""

import math

import numpy as np
import pytest

from bert.report import calibration, metrics


def test_the_error_by_hand():
  # Ranges of a fifteenth: 0.5 and 0.52 share the one from 7/15 to 8/15; 0.8 is
  # 12/15, the upper end of its range; 0 is in the first one, 1 in the last.
  probabilities = np.array([0.5, 0.52, 0.8, 0.0, 1.0])
  right = np.array([1, 0, 1, 0, 0])
  assert calibration.group(probabilities, right) == [
    (0, 1, 0.0, 0.0),
    (7, 2, 0.51, 0.5),
    (11, 1, 0.8, 1.0),
    (14, 1, 1.0, 0.0),
  ]
  expected = (2 * 0.01 + 0.2 + 1.0) / 5
  found = calibration.expected_error(probabilities, right)
  assert found == pytest.approx(expected)


def test_the_error_by_scikit_learn():
  sklearn = pytest.importorskip("sklearn.calibration")
  source = np.random.default_rng(1)
  probabilities = source.uniform(0.2, 1, 1000)
  right = source.uniform(size=1000) < probabilities**2
  shares, means = sklearn.calibration_curve(right, probabilities, n_bins=15)
  counts, _ = np.histogram(probabilities, 15, (0, 1))
  expected = (counts[counts > 0] * np.abs(shares - means)).sum() / 1000
  assert expected > 0.1
  found = calibration.expected_error(probabilities, right)
  assert found == pytest.approx(expected, rel=1e-9)


def test_a_temperature_in_closed_form():
  # Every answer is as sure, with a margin of 2, and three of four are right:
  # the sigmoid of 2 / T is 3/4 where 2 / T is the logarithm of 3.
  logits = np.array([[2, 0], [7, 5], [0, 2], [-2, 0]], np.float32)
  targets = np.array([0, 0, 1, 0])
  found = calibration.fit_temperature(logits, targets)
  assert found == pytest.approx(2 / math.log(3), rel=1e-5)
  shares = metrics.softmax(logits / found).max(-1)
  assert shares == pytest.approx(0.75, rel=1e-5)
  right = np.array([1, 1, 1, 0])
  assert calibration.expected_error(shares, right) < 1e-5


@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_a_temperature_by_scipy(true):
  optimize = pytest.importorskip("scipy.optimize")
  source = np.random.default_rng(2)
  logits = source.normal(size=[500, 5]) * 3
  # Labels drawn from the softmax at the true temperature.
  noise = source.gumbel(size=logits.shape)
  targets = (logits / true + noise).argmax(-1)

  def loss(log_temperature):
    scaled = logits / np.exp(log_temperature)
    rows = np.log(np.exp(scaled).sum(-1))
    return (rows - scaled[np.arange(500), targets]).mean()

  found = calibration.fit_temperature(logits.astype(np.float32), targets)
  best = optimize.minimize_scalar(
    loss, bounds=(-2.9, 2.9), method="bounded", options={"xatol": 1e-9}
  )
  assert found == pytest.approx(math.exp(best.x), rel=2e-5)
  assert found == pytest.approx(true, rel=0.15)


def test_temperatures_have_bounds():
  logits = np.eye(2, dtype=np.float32)
  for targets, expected in (([0, 1], 0.05), ([1, 0], 20.0), ([0, 0], 20.0)):
    found = calibration.fit_temperature(logits, np.array(targets))
    assert found == expected
  # Logits that say nothing, and a softmax whose smaller number is 0.
  for factor, expected in ((0, 20.0), (1e4, 0.05)):
    found = calibration.fit_temperature(factor * logits, np.array([0, 1]))
    assert found == expected
