"""What a model learns of its teacher's relations and vectors."""

import numpy as np
import pytest
import tensorflow as tf

from bert.contrib import relations

MASK = [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]


def softmax(x):
  exponents = np.exp(x - x.max(-1, keepdims=True))
  return exponents / exponents.sum(-1, keepdims=True)


def draw(seed, size):
  return np.random.default_rng(seed).normal(size=(2, 5, size))


def attention_of(x, head, size):
  part = x[:, head * size : (head + 1) * size]
  return softmax(part @ part.T / np.sqrt(size))


def test_the_loss_is_the_divergence_of_attention_of_a_tensor_to_itself():
  theirs, ours = (
    [draw(i, 8) for i in range(3)],
    [draw(i, 12) for i in (3, 4, 5)],
  )
  expected = np.zeros(2)
  for row, length in enumerate((3, 5)):
    for teacher, student in zip(theirs, ours, strict=True):
      for head in range(4):
        p = attention_of(teacher[row, :length], head, 2)
        q = attention_of(student[row, :length], head, 3)
        expected[row] += (p * np.log(p / q)).sum() / length / 4
  found = relations.relation_loss(
    *(tf.constant(x, tf.float32) for x in (theirs, ours)), tf.constant(MASK), 4
  )
  assert found.numpy() == pytest.approx(expected, rel=1e-5)


def test_equal_relations_have_no_loss_whatever_is_in_the_padding():
  one = np.float32(draw(1, 8))
  other = one.copy()
  other[0, 3:] = 99
  arguments = [tf.constant(one)] * 3, [tf.constant(other)] * 3
  loss = relations.relation_loss(*arguments, tf.constant(MASK), 2)
  assert loss.numpy() == pytest.approx([0, 0], abs=1e-6)


def test_vectors_are_means_of_tokens_compared_by_their_cosine():
  ours = [[[3.0, 0.0], [5.0, 0.0], [9.0, 9.0]], [[0.0, 1.0]] * 3]
  theirs = [
    [[0.0, 0.0, 2.0]] * 3,
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [7.0] * 3],
  ]
  projection = [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
  found, wanted = (
    relations.pool(tf.constant(states), tf.constant([[1, 1, 0]] * 2))
    for states in (ours, theirs)
  )
  loss = relations.vector_loss(wanted, tf.matmul(found, projection))
  assert loss.numpy() == pytest.approx([0, 1 - np.sqrt(0.5)], abs=1e-6)
