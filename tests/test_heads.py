"""The heads: shapes, names, padding, gradients, dropout."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from any_model import CONFIG
from bert import heads
from bert.contrib import feature_tagger
import tiny

IDS = np.array([[2, 7, 8, 3, 0], [2, 9, 3, 0, 0]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEED = tf.constant([1, 2])


def make_feature_tagger(*layers):
  return feature_tagger.FeatureTaggerModel(CONFIG, 4, "float32", layers, 6)


def test_names_of_a_tagger():
  model = heads.TaggerModel(CONFIG, 4)
  trained = {v.path for v in model.trainable_variables}
  others = {v.path for v in model.variables} - trained
  assert {"output_weights", "output_bias"} <= trained
  assert others == {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


@pytest.mark.parametrize(
  "make",
  [
    lambda: heads.TaggerModel(CONFIG, 4),
    lambda: heads.TaggerModel(CONFIG, 4, "mixed_bfloat16"),
    lambda: make_feature_tagger(-1, -2),
    lambda: make_feature_tagger("mix", 0, -1),
  ],
)
def test_padding_does_not_change_what_is_tagged(make):
  model = make()
  padded = model(IDS, MASK, 0 * IDS)
  alone = model(IDS[1:, :3], MASK[1:, :3], 0 * IDS[1:, :3])
  assert padded.shape == (2, 5, 4) and padded.dtype == tf.float32
  tolerance = 1e-5 if model.compute_dtype == "float32" else 1e-2
  np.testing.assert_allclose(padded[1:, :3], alone, atol=tolerance)
  assert not np.allclose(model(IDS, MASK, 0 * IDS, SEED), padded)  # Dropout.
  # Keras has not left a prefix behind for the names of the next model.
  paths = [v.path for v in model.variables]
  assert [v.path for v in make().variables] == paths


@pytest.mark.parametrize(
  "model",
  [
    lambda: heads.PretrainingModel(CONFIG),
    lambda: heads.ClassifierModel(CONFIG, 4),
    lambda: heads.TaggerModel(CONFIG, 4),
    lambda: heads.SpanModel(CONFIG),
    lambda: make_feature_tagger("mix", 0, -1),
  ],
)
def test_whatever_is_trained_has_a_gradient(model):
  """The original leaves out, and makes no slots for, what has none."""
  model, inputs = model(), [IDS, MASK, 0 * IDS]
  if isinstance(model, heads.PretrainingModel):
    inputs.append(np.array([[1], [2]], np.int32))
  with tf.GradientTape() as tape:
    outputs = model(*inputs, seed=SEED)
    loss = sum(tf.reduce_sum(x * x) for x in tf.nest.flatten(outputs))
  variables = model.trainable_variables
  gradients = tape.gradient(loss, [v.value for v in variables])
  pairs = zip(variables, gradients, strict=True)
  assert [v.path for v, gradient in pairs if gradient is None] == []


@pytest.mark.parametrize("make", [heads.ClassifierModel, heads.TaggerModel])
def test_a_head_drops_though_its_encoder_does_not(make):
  model = make(dataclasses.replace(CONFIG, **tiny.NO_DROPOUT), 2)
  assert model.dropout_rate == 0.1
  model.dropout_rate = 0.5
  whole, dropped = (model(IDS, MASK, 0 * IDS, seed) for seed in (None, SEED))
  assert np.abs(whole - dropped).max() > 1e-4
