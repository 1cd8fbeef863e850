"""The layer that is recorded once computes what all layers would."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import any_model
from bert import modeling
from bert.encoders import compiled
from bert.training import recorded_layer

CONFIG = dataclasses.replace(
  any_model.CONFIG, num_hidden_layers=3, initializer_range=0.2
)
IDS = np.array([[1, 5, 6, 2], [1, 7, 2, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])


def make(dtype="float32", model_class=compiled.BertModel):
  keras.utils.set_random_seed(1)
  return model_class(CONFIG, dtype)


def differentiate(bert):
  """Returns outputs and gradients of a graph, as an update makes them."""

  @tf.function(autograph=False)
  def compute():
    with tf.GradientTape() as tape:
      output = bert(IDS, MASK, seed=tf.constant([1, 2]))
      states = [tf.cast(x, tf.float32) for x in output[:2]]
      loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in states])
    gradients = tape.gradient(loss, [v.value for v in bert.variables])
    return states, [tf.convert_to_tensor(gradient) for gradient in gradients]

  return compute()


@pytest.mark.parametrize(
  ("dtype", "tolerance"),
  [
    ("float32", 1e-6),
    pytest.param("mixed_bfloat16", 2e-2, marks=pytest.mark.slow),
  ],
)
def test_outputs_and_gradients_do_not_change(dtype, tolerance):
  bert = make(dtype)
  states, gradients = differentiate(bert)
  recorded_layer.record_once(bert)
  states_again, gradients_again = differentiate(bert)
  for a, b in zip(states, states_again, strict=True):
    np.testing.assert_allclose(a, b, atol=tolerance)
  for variable, a, b in zip(
    bert.variables, gradients, gradients_again, strict=True
  ):
    scale = max(np.abs(a).max(), 0.1)
    name = variable.path
    np.testing.assert_allclose(
      a / scale, b / scale, atol=tolerance, err_msg=name
    )


def test_it_is_recorded_once_for_all_layers(monkeypatch):
  recorded = []
  plain = compiled.EncoderLayer.call

  def call(self, *args):
    recorded.append(self.name)
    return plain(self, *args)

  monkeypatch.setattr(compiled.EncoderLayer, "call", call)
  bert = make()
  differentiate(bert)
  assert recorded == ["layer_0", "layer_1", "layer_2"]
  recorded.clear()

  # Also if several tasks share the encoder, and ask for it twice.
  recorded_layer.record_once(bert)
  recorded_layer.record_once(bert)
  differentiate(bert)
  assert recorded == ["layer_0"]


def test_calls_without_a_seed_return_the_attention_as_ever():
  bert = make()
  expected = bert(IDS, MASK, return_attention_probs=True)
  recorded_layer.record_once(bert)
  output = bert(IDS, MASK, return_attention_probs=True)
  for a, b in zip(
    output.attention_probs, expected.attention_probs, strict=True
  ):
    np.testing.assert_array_equal(a, b)
  with pytest.raises(ValueError, match="returns no attention"):
    bert(IDS, MASK, seed=tf.constant([1, 2]), return_attention_probs=True)


class DeeperLayer(compiled.EncoderLayer):
  """A layer that knows its number."""

  def call(self, hidden, input_mask, seed=None):
    hidden, probs = super().call(hidden, input_mask, seed)
    return hidden * (1 + int(self.name.removeprefix("layer_"))), probs


class DeeperModel(compiled.BertModel):
  """Its layers differ in more than their weights."""

  block_class = DeeperLayer


class GrowingModel(compiled.BertModel):
  """Its layers have a dropout that grows from one to the next."""

  def __init__(self, config, dtype=None, **kwargs):
    super().__init__(config, dtype, **kwargs)
    for i, block in enumerate(self.encoder.blocks):
      for layer in block._flatten_layers():
        if isinstance(layer, modeling.Layer):
          layer.config = dataclasses.replace(
            config, hidden_dropout_prob=0.1 * i
          )


class SummingEncoder(modeling.Encoder):
  """It returns the sum of all layers."""

  def call(self, hidden, input_mask, seed=None):
    states, attention = super().call(hidden, input_mask, seed)
    return [*states[:-1], tf.add_n(states)], attention


class SummingModel(compiled.BertModel):
  """Its encoder does more than call its layers."""

  def make(self, part_class, name, *args):
    is_encoder = part_class is modeling.Encoder
    part_class = SummingEncoder if is_encoder else part_class
    return super().make(part_class, name, *args)


@pytest.mark.parametrize(
  "model_class",
  [DeeperModel, GrowingModel, SummingModel, modeling.BertModel],
)
def test_models_whose_layers_are_not_alike_are_left_alone(model_class):
  bert = make(model_class=model_class)
  recorded_layer.record_once(bert)
  assert "call" not in vars(bert.encoder)
