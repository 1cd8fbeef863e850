"""The norm that clips: a row for every token, however the batch is split."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert import heads, optimization
from bert.training import loop, reporting, training_plan
import replicas
import same_training
import tiny_training

# Rows with few words, so that most of them are repeated.
ROWS = {
  "input_ids": np.array([[1, 2, 2, 3]] * 4 + [[1, 4, 4, 4]] * 4, np.int32),
  "label": np.array([0, 1, 1, 0, 1, 1, 0, 1], np.int32),
}


def forward(model, features, seed):
  ids = features["input_ids"]
  logits = model(ids, tf.ones_like(ids), tf.zeros_like(ids), seed)
  return 50.0 * logits  # Large: the norm is far above 1.


def loss(logits, features):
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    features["label"], logits
  )
  count = tf.cast(tf.size(features["label"]), tf.float32)
  return {"label_loss": (tf.reduce_sum(losses), count)}


def make_model():
  keras.utils.set_random_seed(1)
  return heads.ClassifierModel(tiny_training.NO_DROPOUT, 2, dropout_rate=0.0)


def original_norm(densifies):
  """The norm of the first step, as TensorFlow computes the original's."""
  model = make_model()
  features = {name: tf.constant(value) for name, value in ROWS.items()}
  with tf.GradientTape() as tape:
    outputs = forward(model, features, None)
    total, weight = loss(outputs, features)["label_loss"]
    mean = total / weight
  variables = [v.value for v in model.trainable_variables]
  gradients = tape.gradient(mean, variables)
  if densifies:
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
  return float(tf.clip_by_global_norm(gradients, 1.0)[1])


def train(folder, strategy, parts=1):
  """Takes two steps; returns the norm of the first and the weights after."""
  with strategy.scope():
    model = make_model()
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-2, num_train_steps=2, num_warmup_steps=0
    )
  plan = training_plan.TrainingPlan(str(folder), 2, 8, parts)
  source = tiny_training.make_input(ROWS)
  task = training_plan.TrainingTask(
    model, optimizer, loss, source, plan, forward
  )
  loop.train(strategy, {"": task}, plan)
  norm = reporting.read_curves(str(folder))[0]["gradient_norm"]
  return norm, tiny_training.saved(folder, 2)


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
  [
    pytest.param(1, 4, marks=pytest.mark.slow),
    pytest.param(2, 1, marks=pytest.mark.slow),
    (2, 2),
  ],
)
def test_the_norm_does_not_depend_on_how_a_batch_is_split(
  devices, parts, whole, tmp_path
):
  expected, weights = whole
  norm, parted = train(tmp_path, replicas.strategy_of(devices), parts)
  assert norm == pytest.approx(expected, rel=1e-5)
  same_training.assert_weights_close(parted, weights)
