"""The loss of a student beside its teacher."""

import numpy as np
import pytest
import tensorflow as tf

from bert.tasks import distillation


def compare(problem, student, teacher, temperature=1.0, **others):
  """Returns the sum and the weight as floats."""
  features = {k: tf.constant(v) for k, v in others.items()}
  features["teacher_logits"] = tf.constant(teacher)
  total, weight = distillation.soft_loss(
    problem, tf.constant(student), features, temperature
  )
  return float(total), float(weight)


# One text with the logits log 1 and log 3, which its teacher doubts: its
# probabilities are 1/2 and 1/2. At a temperature of 2 the student's odds are
# the square root of 3.
QUARTERS, HALVES = [0.0, np.log(3.0)], [0.0, 0.0]
ENTROPY = -0.5 * np.log(0.25) - 0.5 * np.log(0.75)
ROOT = np.sqrt(3.0)
SOFTER = -0.5 * np.log(1 / (1 + ROOT)) - 0.5 * np.log(ROOT / (1 + ROOT))


@pytest.mark.parametrize(
  ("problem", "student", "teacher", "temperature", "others", "expected"),
  [
    ("single_label", [QUARTERS], [HALVES], 1.0, {}, (ENTROPY, 1.0)),
    ("single_label", [QUARTERS], [HALVES], 2.0, {}, (4 * SOFTER, 1.0)),
    (
      # Each label is a coin: 1/2 and 3/4 of the student, 1/2 of the teacher.
      "multi_label",
      [[0.0, np.log(3.0)]],
      [[0.0, 0.0]],
      1.0,
      {},
      ((np.log(2.0) + ENTROPY) / 2, 1.0),
    ),
    ("regression", [[1.5], [2.0]], [[1.0], [4.0]], 2.0, {}, (4.25, 2.0)),
    (
      # The first of three tokens begins a word; the teacher has a fourth.
      "tagging",
      [[QUARTERS, [5.0, 1.0], [9.0, 9.0]]],
      [[HALVES, [1.0, 7.0], [0.0, 0.0], [0.0, 0.0]]],
      2.0,
      {"label_mask": [[1, 0, 0]]},
      (4 * SOFTER, 1.0),
    ),
    (
      # Starts as above; the ends are the teacher's, log 2 nats. Padding does
      # not count, whatever its logits are.
      "question_answering",
      [[[0.0, 1.0], [np.log(3.0), 1.0], [8.0, 8.0]]],
      [[[0.0, 2.0], [0.0, 2.0], [3.0, -3.0]]],
      1.0,
      {"input_mask": [[1, 1, 0]]},
      ((ENTROPY + np.log(2.0)) / 2, 1.0),
    ),
  ],
)
def test_a_student_is_compared_with_its_teacher(
  problem, student, teacher, temperature, others, expected
):
  student = np.array(student, np.float32)
  teacher = np.array(teacher, np.float32)
  found = compare(problem, student, teacher, temperature, **others)
  assert found == pytest.approx(expected, rel=1e-6)


def test_numbers_have_no_temperature():
  student, teacher = [[0.1], [0.3]], [[0.7], [2.1]]
  softened = compare("regression", student, teacher, 3.0)
  assert softened == compare("regression", student, teacher)


LOGITS = tf.constant([[0.5, -1.0, 2.0], [0.0, 3.0, 1.0]])


def task_loss(logits, features):
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits([2, 0], logits)
  return {"task_loss": (tf.reduce_sum(losses), tf.constant(2.0))}


def blend(
  alpha, student, teacher=LOGITS, problem="single_label", temperature=1.0
):
  loss = distillation.add_teacher(task_loss, alpha, problem, temperature)
  return loss(student, {"teacher_logits": teacher})


def test_a_teacher_without_a_share_leaves_the_loss_of_the_task():
  student = LOGITS + [1.0, 0.0, 2.0]
  losses = blend(1.0, student)
  alone = task_loss(student, {})["task_loss"]
  assert [float(x) for x in losses["task_loss"]] == [float(x) for x in alone]
  assert [float(x) for x in losses["distillation_loss"]] == [0.0, 2.0]


def test_shares_add_up_to_one():
  student = LOGITS + [1.0, 0.0, 2.0]
  whole, half = blend(0.0, student), blend(0.25, student)
  assert float(whole["task_loss"][0]) == 0.0
  total = float(whole["distillation_loss"][0])
  assert float(half["distillation_loss"][0]) == pytest.approx(0.75 * total)
  alone = float(task_loss(student, {})["task_loss"][0])
  assert float(half["task_loss"][0]) == pytest.approx(0.25 * alone)


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_student_that_equals_its_teacher_has_no_gradient(
  problem, temperature
):
  with tf.GradientTape() as tape:
    tape.watch(LOGITS)
    losses = blend(
      0.0, LOGITS, tf.identity(LOGITS.numpy()), problem, temperature=temperature
    )
    loss = losses["distillation_loss"][0]
  gradient = tape.gradient(loss, LOGITS)
  np.testing.assert_allclose(gradient, np.zeros([2, 3]), atol=1e-6)


def test_the_gradient_keeps_its_size_at_a_high_temperature():
  student = LOGITS + [1.0, 0.0, 2.0]
  norms = []
  for temperature in (10.0, 20.0):
    with tf.GradientTape() as tape:
      tape.watch(student)
      losses = blend(0.0, student, temperature=temperature)
      loss = losses["distillation_loss"][0]
    norms.append(float(tf.norm(tape.gradient(loss, student))))
  assert norms[1] == pytest.approx(norms[0], rel=0.1)


def test_starts_and_ends_become_one_tensor():
  starts, ends = tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 4.0]])
  found = distillation.as_logits((starts, ends))
  assert found.numpy().tolist() == [[[1.0, 3.0], [2.0, 4.0]]]
