"""The losses of all programs: pure sums, whose weights no output changes."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf

from bert import (
  heads,
  run_classifier,
  run_embedding,
  run_multiple_choice,
  run_pretraining,
  run_squad,
  run_tagging,
)
from bert.contrib import causal_language_model
from bert.tasks import distillation
import tiny_training

ROWS = 4
LABELS = {"label_ids": [[0], [2], [1], [1]], "is_real_example": [1, 1, 0, 1]}
MANY = {"label_ids": [[0, 1, 1]] * ROWS, "is_real_example": [1, 1, 0, 1]}
NUMBERS = {"label_ids": [[0.5]] * ROWS, "is_real_example": [1, 1, 0, 1]}
TAGS = {"label_ids": [[0, 2, 9, 1]] * ROWS, "label_mask": [[1, 0, 1, 1]] * ROWS}
SPANS = {"start_positions": [1, 2, 0, 3], "end_positions": [2, 3, 0, 3]}
SPANS["input_mask"] = [[1, 1, 1, 1]] * ROWS
TEXTS = {"text_ids": [[[n, 0], [9 + n, 0]] for n in range(ROWS)]}
TEXTS["number"] = [[0.0], [0.5], [1.0], [0.2]]
WORDS = {
  "input_ids": [[1, 2, 3, 0]] * ROWS,
  "input_mask": [[1, 1, 1, 0]] * ROWS,
}
SQUAD = types.SimpleNamespace(padding_competes=False)


def classifies(problem):
  weights = tf.constant([1.0, 2.0, 3.0])
  return functools.partial(
    run_classifier.loss, problem_name=problem, class_weights=weights
  )


def compares(objective):
  settings = types.SimpleNamespace(objective=objective, temperature=0.1)
  return functools.partial(run_embedding.loss, settings=settings)


def teaches(problem, loss):
  return distillation.add_teacher(loss, 0.5, problem, temperature=2.0)


def make_spans(draw):
  return heads.SpanOutput(draw([ROWS, 4]), draw([ROWS, 4]))


def make_guesses(draw):
  return heads.PretrainingOutput(draw([ROWS, 4, 40]), draw([ROWS, 2]))


def make_tensor(*shape):
  return lambda draw: draw([ROWS, *shape])


# By the name of the task: its loss, what draws outputs, features, weights.
LOSSES = {
  "single_label": (
    classifies("single_label"),
    make_tensor(3),
    LABELS,
    {"classification_loss": 1 + 3 + 2},
  ),
  "multi_label": (
    classifies("multi_label"),
    make_tensor(3),
    MANY,
    {"classification_loss": 3},
  ),
  "regression": (
    classifies("regression"),
    make_tensor(1),
    NUMBERS,
    {"classification_loss": 3},
  ),
  "a student": (
    teaches("single_label", classifies("single_label")),
    make_tensor(3),
    LABELS | {"teacher_logits": [[1.0, 2.0, 0.0]] * ROWS},
    {"classification_loss": 6, "distillation_loss": ROWS},
  ),
  "tagging": (run_tagging.loss, make_tensor(4, 3), TAGS, {"tagging_loss": 8}),
  "tags of a teacher": (
    teaches("tagging", run_tagging.loss),
    make_tensor(4, 3),
    TAGS | {"teacher_logits": [[[1.0, 2.0, 0.0]] * 4] * ROWS},
    {"tagging_loss": 8, "distillation_loss": 12},
  ),
  "spans of a teacher": (
    teaches(
      "question_answering", functools.partial(run_squad.loss, settings=SQUAD)
    ),
    make_spans,
    SPANS | {"teacher_logits": [[[1.0, 2.0]] * 4] * ROWS},
    {"span_loss": ROWS, "distillation_loss": ROWS},
  ),
  "spans": (
    functools.partial(run_squad.loss, settings=SQUAD),
    make_spans,
    SPANS,
    {"span_loss": ROWS},
  ),
  "multiple_choice": (
    run_multiple_choice.loss,
    make_tensor(3),
    LABELS,
    {"choice_loss": ROWS},
  ),
  "pairs of texts": (
    compares("pairs"),
    make_tensor(2, 8),
    TEXTS,
    {"embedding_loss": ROWS},
  ),
  "scores of pairs": (
    compares("scores"),
    make_tensor(2, 8),
    TEXTS,
    {"embedding_loss": ROWS},
  ),
  "causal_lm": (
    causal_language_model.loss,
    make_tensor(3, 40),
    WORDS,
    {"causal_lm_loss": 2 * ROWS, "causal_lm_accuracy": 2 * ROWS},
  ),
  "pretraining": (
    run_pretraining.loss,
    make_guesses,
    tiny_training.random_rows(ROWS),
    None,
  ),
}


OF_TOKENS = ("tagging", "tags of a teacher", "causal_lm")


def find_sources(tensor):
  """Returns the operations on which a tensor of a graph depends."""
  found, left = set(), [tensor.op]
  while left:
    operation = left.pop()
    if operation not in found:
      found.add(operation)
      left += [source.op for source in operation.inputs]
      left += operation.control_inputs
  return found


def make_outputs(name, seed):
  source = np.random.default_rng(seed)
  return LOSSES[name][1](
    lambda shape: tf.constant(source.normal(size=shape), tf.float32)
  )


@pytest.mark.parametrize("name", LOSSES)
def test_weights_do_not_need_the_forward_pass(name):
  """Not even to check shapes, so that TensorFlow prunes it."""
  loss, _, features, expected = LOSSES[name]
  features = {name: tf.constant(value) for name, value in features.items()}
  outputs = make_outputs(name, 1)

  def describe(value):
    shape = value.shape.as_list()
    if name in OF_TOKENS:  # Batches differ in the length of their texts.
      shape[1] = None
    return tf.TensorSpec(shape, value.dtype)

  specs = tf.nest.map_structure(describe, (outputs, features))
  graph = tf.function(
    lambda outputs, features: loss(outputs, features), autograph=False
  ).get_concrete_function(*specs)
  count = len(tf.nest.flatten(outputs))
  given = {tensor.op for tensor in graph.inputs[:count]}
  for found, (total, weight) in graph.structured_outputs.items():
    assert find_sources(total) & given, found
    assert not find_sources(weight) & given, found
    if expected:
      assert loss(outputs, features)[found][1] == expected[found]
