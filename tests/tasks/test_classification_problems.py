"""Tests of the kinds of labels, on cases computed by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert.tasks import (
  classification,
  classification_problems,
  classification_results,
)

PROBLEMS = classification_problems.PROBLEMS
CASES = (
  ("single_label", [0.0, np.log(3.0)], [0.25, 0.75], 0, np.log(4.0)),
  ("multi_label", [0.0, np.log(3.0)], [0.5, 0.75], [1, 0], np.log(8.0) / 2),
  ("regression", [2.5], [2.5], 1.0, 2.25),
)


@pytest.mark.parametrize(
  ("problem", "logits", "shares", "target", "loss"), CASES
)
def test_probabilities_and_losses(problem, logits, shares, target, loss):
  logits, targets = np.float32([logits]), np.array([target])
  found = PROBLEMS[problem].activate(logits)
  np.testing.assert_allclose(found, [shares], rtol=1e-6)
  assert PROBLEMS[problem].losses(logits, targets) == pytest.approx([loss])


@pytest.mark.parametrize(
  ("problem", "logits", "shares", "target", "loss"), CASES
)
def test_the_loss_of_training_is_that_of_scores(
  problem, logits, shares, target, loss
):
  label_ids = np.reshape(target, [1, -1])
  weights = tf.constant([2.0, 2.0])  # Only the ratios count.
  losses, factor = PROBLEMS[problem].loss(
    tf.constant([logits], tf.float32), label_ids, weights
  )
  assert losses.numpy() == pytest.approx([loss])
  assert np.all(factor == (2.0 if problem == "single_label" else 1.0))


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_large_logits_do_not_overflow(problem):
  logits = np.array([[-1000.0, 1000.0]], np.float32)
  targets = np.array([1] if problem == "single_label" else [[0, 1]])
  with np.errstate(all="raise", under="ignore"):
    probabilities = PROBLEMS[problem].activate(logits)
    assert PROBLEMS[problem].losses(logits, targets).tolist() == [0.0]
  assert probabilities.tolist() == [[0.0, 1.0]]


def test_the_first_bias_is_what_says_the_same_of_all_best():
  odds = PROBLEMS["multi_label"].first_bias([0, 1, 2], 2)
  assert odds == pytest.approx([math.log(1 / 3), 0.0, math.log(3)])
  assert PROBLEMS["regression"].first_bias([-7.5], 3) == [-2.5]
  assert PROBLEMS["single_label"].first_bias([1, 2], 3) is None


class Count(classification_problems.Regression):
  """How often something occurs: its logarithm is learned."""

  name = "count"
  answer_name = "count"
  score_names = ("mean_error",)
  selecting = ("mean_error",)

  def first_bias(self, sums, total):
    return [math.log(sums[0] / total)]

  def activate(self, logits):
    return np.exp(logits)

  def losses(self, logits, targets):  # By Poisson's distribution.
    return np.exp(logits[:, 0]) - logits[:, 0] * targets

  def score(self, answers, targets):
    error = np.abs(answers.predictions - targets).mean()
    return None, {"mean_error": float(error)}


def test_another_problem_is_another_class(monkeypatch):
  monkeypatch.setitem(PROBLEMS, "count", Count())
  encode = classification.make_label_encoder((), "count")
  examples = [
    classification.Example("0", text, None, label, "x.tsv:1", None)
    for text, label in (("a", "4"), ("b", "2"))
  ]
  targets = np.array([encode(example) for example in examples])
  answers = classification_results.answer(np.log([[2.0], [2.0]]), "count", ())
  assert answers.as_labels() == pytest.approx([2.0, 2.0])
  names = classification_results.metric_names("count", ())
  scores = classification_results.score(answers, targets, names)
  assert scores.metrics["mean_error"] == pytest.approx(1.0)
  assert {*names} == {*scores.metrics}
  text = classification_results.describe(examples, scores)
  assert "mean error" in text
