"""The gradients of a batch, in both precisions, in parts and as a whole."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, optimization
from bert.training import step, training_plan
import replicas
import tiny_training

CONFIG = dataclasses.replace(tiny_training.CONFIG, num_hidden_layers=2)
FEATURES = {"ids": tf.constant([[1, 2, 3, 4], [5, 6, 7, 8]])}
SEED = tf.constant([1, 2])
SOURCE = tiny_training.make_input(tiny_training.random_rows(1))
WEIGHTS = {"class_loss": tf.constant(2.0)}


def forward(model, features, seed):
  ids = features["ids"]
  return model(ids, tf.ones_like(ids), tf.zeros_like(ids), seed)


def loss(logits, features):
  total, weight = tf.reduce_sum(logits**2), tf.shape(features["ids"])[0]
  return {"class_loss": (total, tf.cast(weight, tf.float32))}


def make(dtype, freeze_layers=0):
  model = heads.ClassifierModel(CONFIG, 3, dtype)
  optimizer = optimization.create_optimizer(
    model.trainable_variables, 1e-3, 10, 0, freeze_layers=freeze_layers
  )
  return model, optimizer


def make_passes(model, optimizer, parts=1):
  plan = training_plan.TrainingPlan("", 1, 2, parts)
  task = training_plan.TrainingTask(
    model, optimizer, loss, SOURCE, plan, forward
  )
  return step.make_passes(task, counts_rows=True)


@tf.function(autograph=False)
def differentiate(model, variables):
  """Differentiates by variables that every layer casts for itself."""
  with tf.GradientTape() as tape:
    total, _ = loss(forward(model, FEATURES, SEED), FEATURES)["class_loss"]
    objective = total / WEIGHTS["class_loss"]
  return [tf.convert_to_tensor(g) for g in tape.gradient(objective, variables)]


@pytest.mark.parametrize("freeze_layers", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_gradients_are_those_by_the_variables(dtype, freeze_layers):
  model, optimizer = make(dtype, freeze_layers)
  compute = make_passes(model, optimizer)
  _, found, _ = compute(FEATURES, SEED, WEIGHTS)
  expected = differentiate(model, optimizer.variables)
  for path, gradient, other in zip(
    optimizer.paths, found, expected, strict=True
  ):
    is_cast = dtype == "mixed_bfloat16" and path.endswith("/kernel")
    assert gradient.dtype == (tf.bfloat16 if is_cast else tf.float32), path
    values = tf.cast(gradient, tf.float32)
    np.testing.assert_allclose(values, other, rtol=1e-5, atol=1e-9)
  is_frozen = "bert/encoder/layer_0/intermediate/dense/kernel" in [
    v.path for v in model.variables if v.path not in optimizer.paths
  ]
  assert is_frozen == bool(freeze_layers)


def test_a_loss_of_no_weight_is_0_and_moves_nothing():
  """As that of masked tokens in a batch without them: 0 / 0 is 0 here."""
  model, optimizer = make("float32")
  results = make_passes(model, optimizer)(
    FEATURES, SEED, {"class_loss": tf.constant(0.0)}
  )
  for gradient in results.gradients:
    np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_parts_are_added_up_in_float32():
  model, optimizer = make("mixed_bfloat16")
  parts = make_passes(model, optimizer)
  compute = make_passes(model, optimizer, parts=2)
  _, found, _ = compute(FEATURES, SEED, WEIGHTS)
  expected = []
  for i in range(2):
    part = {"ids": FEATURES["ids"][i : i + 1]}
    seed = modeling.fold_in(SEED, i)
    expected.append(step.to_float32(parts(part, seed, WEIGHTS)).gradients)
  for gradient, first, second in zip(found, *expected, strict=True):
    assert gradient.dtype == tf.float32
    np.testing.assert_allclose(gradient, first + second, rtol=1e-5, atol=1e-9)


def test_a_bfloat16_gradient_updates_as_the_same_in_float32():
  values = []
  for dtype in (tf.float32, tf.bfloat16):
    model, optimizer = make("mixed_bfloat16")
    for variable in optimizer.variables:
      variable.assign(tf.fill(variable.shape, 0.5))
    # Representable in bfloat16; their squares' sum is not.
    given = [tf.fill(v.shape, tf.cast(0.0703125, dtype)) for v in model.weights]
    norm, _ = optimizer.clip_and_apply(given, tf.constant(0, tf.int64))
    values.append([norm, *optimizer.variables])
  for value, other in zip(*values, strict=True):
    np.testing.assert_array_equal(value, other)


def make_replica_step(passes, **fields):
  """Returns the third update, of one variable, by given passes."""
  variable = keras.Variable([1.0], name="weight")
  optimizer = optimization.create_optimizer([variable], 1e-3, 10, 0)
  plan = training_plan.TrainingPlan("", 10, 2, seed=7)
  task = training_plan.TrainingTask(
    variable, optimizer, loss, SOURCE, plan, **fields
  )
  global_step = tf.Variable(2, dtype=tf.int64, trainable=False)

  def sum_weights(features):
    return {"class_loss": tf.cast(tf.shape(features["ids"])[0], tf.float32)}

  return step.make_replica_step(task, passes, global_step, sum_weights)


def test_the_seed_and_the_factor_are_of_the_step():
  given = []

  def passes(features, seed, divisors):
    given.append((seed.numpy().tolist(), float(divisors["class_loss"])))
    sums = {"class_loss": tf.constant(3.0)}
    return step.StepResults(sums, [tf.constant([4.0])], tf.zeros([1]))

  # Two rows, whose loss counts eight times at the third update.
  factors = np.array([1.0, 2.0, 8.0], np.float32)
  losses, norm, _ = make_replica_step(passes, loss_factors=factors)(FEATURES)
  assert given == [([-1322775685, 0], 0.25)]
  assert losses.numpy().tolist() == [[3.0, 2.0]] and float(norm) == 4.0


def test_replicas_are_added_up_in_float32():
  strategy = replicas.two_replicas()

  def passes(features, seed, divisors):
    # In bfloat16, 1 + 2**-9 is 1.
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    share = tf.where(tf.equal(number, 0), 1.0, 2.0**-9)
    gradient = tf.cast([share], tf.bfloat16)
    return step.StepResults({"class_loss": share}, [gradient], tf.zeros([1]))

  with strategy.scope():
    update = make_replica_step(passes)
  losses, norm, _ = tf.function(strategy.run)(update, (FEATURES,))
  for value, other in zip(losses.values, norm.values, strict=True):
    assert value.numpy().tolist() == [[1 + 2**-9, 4.0]]
    assert float(other) == 1 + 2**-9
