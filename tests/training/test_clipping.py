"""The norm that clips: a row for every token, however the batch is split."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import heads
import optimization
import replicas
import tiny_training
from training import loop, training_plan

# Rows with few words, so that most of them are repeated.
ROWS = {
  "input_ids": np.array([[1, 2, 2, 3]] * 4 + [[1, 4, 4, 4]] * 4, np.int32),
  "label": np.array([0, 1, 1, 0, 1, 1, 0, 1], np.int32),
}


def loss_fn(model, features, seed):
  ids = features["input_ids"]
  logits = model(ids, tf.ones_like(ids), tf.zeros_like(ids), seed)
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    features["label"],
    50.0 * logits,  # Large: the norm is far above 1.
  )
  count = tf.cast(tf.size(losses), tf.float32)
  return {"label_loss": (tf.reduce_sum(losses), count)}


def make_model():
  keras.utils.set_random_seed(1)
  return heads.ClassifierModel(tiny_training.NO_DROPOUT, 2, dropout_rate=0.0)


def original_norm(densifies):
  """The norm of the first step, as TensorFlow computes the original's."""
  model = make_model()
  features = {name: tf.constant(value) for name, value in ROWS.items()}
  with tf.GradientTape() as tape:
    total, weight = loss_fn(model, features, None)["label_loss"]
    loss = total / weight
  variables = [v.value for v in model.trainable_variables]
  gradients = tape.gradient(loss, variables)
  if densifies:
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
  return float(tf.clip_by_global_norm(gradients, 1.0)[1])


def train(folder, strategy, parts=1):
  """Takes two steps; returns the norm of the first and the weights after."""
  norms = []
  with strategy.scope():
    model = make_model()
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-2, num_train_steps=2, num_warmup_steps=0
    )
  apply = optimizer.clip_and_apply

  def keep_norm(*args):
    norm, rate = apply(*args)
    tf.py_function(lambda x: norms.append(float(x)), [norm], [])
    return norm, rate

  optimizer.clip_and_apply = keep_norm
  plan = training_plan.TrainingPlan(
    str(folder), 2, train_batch_size=8, gradient_accumulation_steps=parts
  )
  source = tiny_training.make_input(ROWS)
  task = training_plan.TrainingTask(model, optimizer, loss_fn, source, plan)
  loop.train(strategy, {"": task}, plan)
  return norms[0], tiny_training.saved(folder, 2)


@pytest.fixture(name="whole", scope="module")
def train_on_whole_batches(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  return train(folder, tf.distribute.get_strategy())


def test_repeated_words_are_not_added_up_before_clipping(whole):
  norm, _ = whole
  assert norm == pytest.approx(original_norm(densifies=False), rel=1e-5)
  assert abs(original_norm(densifies=True) / norm - 1) > 1e-2


@pytest.mark.parametrize(
  ("devices", "parts"),
  [(1, 4), pytest.param(2, 1, marks=pytest.mark.slow), (2, 2)],
)
def test_the_norm_does_not_depend_on_how_a_batch_is_split(
  devices, parts, whole, tmp_path
):
  expected, weights = whole
  strategy = tf.distribute.get_strategy()
  if devices == 2:
    strategy = replicas.two_replicas()
  norm, parted = train(tmp_path, strategy, parts)
  assert norm == pytest.approx(expected, rel=1e-5)
  for name, value in weights.items():
    if "key/bias" not in name:  # Its gradient is rounding alone.
      np.testing.assert_allclose(parted[name], value, atol=1e-5, err_msg=name)


def test_row_norms_by_hand():
  rows = tf.IndexedSlices(
    tf.constant([[1.0, 2.0], [3.0, 0.0]]), tf.constant([5, 5]), [9, 2]
  )
  norms = optimization.row_norms([tf.constant([7.0]), rows])
  assert norms.numpy().tolist() == [0.0, 7.0]  # (1 + 4 + 9) / 2


class Named:
  """A variable with a path."""

  def __init__(self, path, value):
    self.path, self.value = path, tf.Variable(value)


def test_rows_count_in_the_norm_and_their_sum_in_the_update():
  optimizer = optimization.create_optimizer(
    [Named("a", [1.0, 1.0]), Named("b", [1.0])], 0.1, 9, 0
  )
  # Rows [3, 0] and [0, 4] of one word would be [3, 4]; here they are [8, 0] and
  # [-5, 4], which have the same sum: 64 + 25 + 16, and 144 of b, make 249.
  gradients = [tf.constant([3.0, 4.0]), tf.constant([12.0])]
  norm, _ = optimizer.clip_and_apply(gradients, 0, tf.constant([52.5, 0.0]))
  assert float(norm) == pytest.approx(249**0.5)
  np.testing.assert_allclose(
    optimizer.adam_m[0], np.array([0.3, 0.4]) / 249**0.5, rtol=1e-6
  )
