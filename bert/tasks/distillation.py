"""Knowledge distillation: a model learns from the logits of a teacher, too.

See Hinton et al. 2015, https://arxiv.org/abs/1503.02531. At a temperature T,

  loss = alpha * loss of the task
         + (1 - alpha) * T^2 * soft loss(student / T, teacher / T)

where T^2 keeps the size of the gradients. Shapes: B batch, S sequence, L
labels. Logits are float32 [B, L]; for tagging [B, S, L]; for questions
[B, S, 2], of starts and ends.
"""

from typing import Any

import tensorflow as tf

from bert.inputs import training_input
from bert.training import training_plan

Features = training_input.Features
FEATURE = "teacher_logits"  # Its S may be longer, by padding.
_NEVER = -1e9  # Far below any logit.


def as_logits(outputs: Any) -> tf.Tensor:
  """Returns outputs as one tensor; only those of questions are two."""
  return tf.stack(outputs, -1) if isinstance(outputs, tuple) else outputs


# The functions of LOSSES. Each takes logits of both models, divided by the
# temperature, and returns losses and their weights, float32 of one shape.


def _compare_classes(student, teacher, features):
  targets = tf.nn.softmax(teacher)
  losses = tf.nn.softmax_cross_entropy_with_logits(targets, student)
  return losses, _count_rows(features)


def _compare_labels(student, teacher, features):
  targets = tf.sigmoid(teacher)
  losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, student)
  return tf.reduce_mean(losses, -1), _count_rows(features)


def _compare_numbers(student, teacher, features):
  return tf.square(student - teacher)[:, 0], _count_rows(features)


def _compare_tags(student, teacher, features):
  losses, _ = _compare_classes(student, teacher, features)
  # Only the first token of each word is predicted.
  return losses, tf.cast(features["label_mask"], tf.float32)


def _compare_spans(student, teacher, features):
  # The softmax is over the tokens, of which padding is no answer.
  padding = 1.0 - tf.cast(features["input_mask"], tf.float32)[:, :, None]
  targets = tf.nn.softmax(teacher + _NEVER * padding, 1)
  losses = tf.nn.softmax_cross_entropy_with_logits(
    targets, student + _NEVER * padding, 1
  )
  return tf.reduce_mean(losses, -1), _count_rows(features)


def _count_rows(features):
  """Returns a weight of 1 for each row; no weight depends on the student."""
  return tf.ones(tf.shape(features[FEATURE])[:1])


LOSSES = {  # By the problem of a model, as settings.json names it.
  "single_label": _compare_classes,
  "multi_label": _compare_labels,
  "regression": _compare_numbers,
  "tagging": _compare_tags,
  "question_answering": _compare_spans,
}


def soft_loss(
  problem_name: str, student: tf.Tensor, features: Features, temperature: float
) -> tuple[tf.Tensor, tf.Tensor]:
  """Compares logits with the teacher's.

  Args:
    problem_name: one of LOSSES.
    student: the logits of the model that learns.
    features: with the teacher's logits as FEATURE.
    temperature: divides both logits; a higher one makes the teacher's
      probabilities of unlikely labels count more.

  Returns:
    The sum of the losses, times the temperature squared, and the sum of their
    weights. Losses are squared errors for a regression, and otherwise cross
    entropies in nats.
  """
  # Batches are trimmed to their longest row; the teacher's logits are not.
  teacher = features[FEATURE]
  if teacher.shape.rank == 3:
    teacher = teacher[:, : tf.shape(student)[1]]

  # A regression has no distribution that a temperature could soften.
  if problem_name == "regression":
    temperature = 1.0

  losses, weights = LOSSES[problem_name](
    student / temperature, teacher / temperature, features
  )
  total = tf.reduce_sum(losses * weights) * temperature**2
  return total, tf.reduce_sum(weights)


def add_teacher(
  loss: training_plan.Loss, alpha: float, problem_name: str, temperature: float
) -> training_plan.Loss:
  """Wraps the loss of a task, so that it learns from a teacher, too.

  Args:
    loss: of the task.
    alpha: its share, from 0 to 1; `soft_loss` has the rest.
    problem_name: see `soft_loss`.
    temperature: see `soft_loss`.
  """

  def wrapped(outputs, features):
    losses = {
      name: (alpha * total, weight)
      for name, (total, weight) in loss(outputs, features).items()
    }
    student = as_logits(outputs)
    total, weight = soft_loss(problem_name, student, features, temperature)
    return {**losses, "distillation_loss": ((1 - alpha) * total, weight)}

  return wrapped
