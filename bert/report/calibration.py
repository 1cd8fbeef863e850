"""How far probabilities are from what happens, and the temperature that helps.

Chuan Guo et al., "On Calibration of Modern Neural Networks", 2017. Shapes: N
examples, L labels.
"""

import math

import numpy as np

from bert.report import metrics

RANGES = 15  # From 0 to 1, equally wide, as in the paper.
# Temperatures beyond them would say that a model is right always, or never
# knows anything. Data that ask for one cannot say which temperature is right.
LEAST, MOST = 0.05, 20.0
# The scores of a temperature: itself, the expected calibration error with it,
# and that of the probabilities as they were trained.
NAMES = ("temperature", "calibration_error", "untuned_calibration_error")
_HALVINGS = 40  # They leave 11 digits or more of a temperature.


def group(
  probabilities: np.ndarray, right: np.ndarray
) -> list[tuple[int, int, float, float]]:
  """Groups predictions by the range that their probability is in.

  Range m of M, from 1, has the probabilities above (m - 1) / M up to m / M
  (section 2 of the paper); the first one has 0, too.

  Args:
    probabilities: of predictions, float [N].
    right: whether they are, bool or 0 and 1 [N].

  Returns:
    For each range with predictions: its number from 0, how many there are,
    their mean probability, and the share of right ones.
  """
  above = np.ceil(probabilities.astype(np.float64) * RANGES).astype(np.int8)
  return metrics.average_groups(np.maximum(above, 1) - 1, probabilities, right)


def expected_error(probabilities: np.ndarray, right: np.ndarray) -> float:
  """Computes the expected calibration error (equation 3 of the paper).

  It is the mean distance of the probability from the share of right ones, over
  the ranges of `group`, weighted by their numbers of predictions.

  >>> expected_error(np.array([0.75, 0.75, 1.0]), np.array([1, 0, 1]))
  0.16666666666666666
  """
  ranges = group(probabilities, right)
  return sum(n * abs(p - share) for _, n, p, share in ranges) / len(right)


def fit_temperature(logits: np.ndarray, targets: np.ndarray) -> float:
  """Finds the T for which softmax(logits / T) has the least cross entropy.

  The largest logit stays the largest, so no prediction changes (section 4.2 of
  the paper).

  Args:
    logits: float [N, L].
    targets: the right labels, int [N].

  Returns:
    T with 6 digits, the same for the same numbers; LEAST or MOST if the cross
    entropy still falls there.
  """
  # Less that of the target: then the mean under the softmax is the slope of
  # the cross entropy by 1 / T.
  logits = logits.astype(np.float64)
  logits -= logits[np.arange(len(targets)), targets][:, None]

  def slope(log_temperature):
    shares = metrics.softmax(logits / math.exp(log_temperature))
    return (shares * logits).sum(-1).mean()

  # The cross entropy is convex in 1 / T, so the slope falls as T rises, and has
  # one root at most. Logits that are all equal have the slope 0 everywhere.
  low, high = math.log(LEAST), math.log(MOST)
  if slope(high) >= 0:
    return MOST
  if slope(low) <= 0:
    return LEAST

  # The range is halved in log T, in which 1/2 and 2 are equally far from 1.
  for _ in range(_HALVINGS):
    middle = (low + high) / 2
    if slope(middle) > 0:
      low = middle
    else:
      high = middle
  return float(f"{math.exp(low):.6g}")
