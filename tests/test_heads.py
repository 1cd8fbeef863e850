"""The heads of taggers: shapes, names, padding, and an LSTM by hand."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from encoders import bilstm
import heads
import modeling

CONFIG = modeling.BertConfig(
  vocab_size=20,
  hidden_size=8,
  num_hidden_layers=3,
  num_attention_heads=2,
  intermediate_size=16,
  max_position_embeddings=12,
  type_vocab_size=2,
)
IDS = np.array([[2, 7, 8, 3, 0], [2, 9, 3, 0, 0]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEED = tf.constant([1, 2])


def make_feature_tagger(layers, mixed=False):
  return heads.FeatureTaggerModel(CONFIG, 4, "float32", layers, mixed, 6)


@pytest.mark.parametrize("mixed", [False, True])
def test_names_of_a_feature_tagger(mixed):
  model = make_feature_tagger((-1, -2), mixed)
  names = {v.path: tuple(v.shape) for v in model.trainable_variables}
  size = 8 if mixed else 2 * 8
  expected = {"output_weights": (4, 12), "output_bias": (4,)}
  for side in ("forward", "backward"):
    for index, inputs in enumerate((size, 12)):
      expected |= {
        f"lstm_{index}/{side}/input_weights": (inputs, 24),
        f"lstm_{index}/{side}/recurrent_weights": (6, 24),
        f"lstm_{index}/{side}/bias": (24,),
      }
  if mixed:
    expected |= {"scalar_mix/mix_weights": (2,), "scalar_mix/scale": ()}
  assert names == expected
  assert "bert/embeddings/word_embeddings" in [v.path for v in model.variables]


def test_features_of_single_layers():
  states = make_encoder_states(model := make_feature_tagger((0, -1), True))
  features = model._features(IDS, MASK, 0 * IDS)
  np.testing.assert_allclose(features, (states[0] + states[-1]) / 2, rtol=1e-6)
  model = make_feature_tagger((0,))
  assert model._features(IDS, MASK, 0 * IDS).shape == [2, 5, 8]


def make_encoder_states(model):
  output = model.bert(IDS, MASK, 0 * IDS, return_hidden_states=True)
  return output.hidden_states


@pytest.mark.parametrize(
  "names, expected",
  [
    (["-2", "3"], ([-2, 3], False)),
    (["mix", "-4", "0"], ([-4, 0], True)),
    (["mix"], ([0, 1, 2, 3], True)),
  ],
)
def test_read_feature_layers(names, expected):
  assert heads.read_feature_layers(names, 3) == expected


@pytest.mark.parametrize(
  "names", [[], ["-5"], ["4"], ["last"], ["1", "mix"], ["mix", "mix"], [""]]
)
def test_read_feature_layers_that_there_are_not(names):
  with pytest.raises(ValueError, match="expected mix, or numbers from -4 to 3"):
    heads.read_feature_layers(names, 3)


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
    lambda: make_feature_tagger((-1, -2)),
    lambda: make_feature_tagger((0, -1), True),
  ],
)
def test_padding_does_not_change_what_is_tagged(make):
  model = make()
  padded = model(IDS, MASK, 0 * IDS)
  alone = model(IDS[1:, :3], MASK[1:, :3], 0 * IDS[1:, :3])
  assert padded.shape == (2, 5, 4) and padded.dtype == tf.float32
  np.testing.assert_allclose(padded[1:, :3], alone, atol=1e-2)
  if model.compute_dtype == "float32":
    np.testing.assert_allclose(padded[1:, :3], alone, atol=1e-5)
  assert not np.allclose(model(IDS, MASK, 0 * IDS, SEED), padded)  # Dropout.
  # Keras has not left a prefix behind for the names of the next model.
  paths = [v.path for v in model.variables]
  assert [v.path for v in make().variables] == paths


def test_only_what_is_on_top_of_frozen_features_gets_a_gradient():
  model = make_feature_tagger((0, -1), True)
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(model(IDS, MASK, 0 * IDS, SEED) ** 2)
  values = [v.value for v in model.variables]
  gradients = tape.gradient(loss, values)
  for variable, gradient in zip(model.variables, gradients, strict=True):
    assert (gradient is None) == variable.path.startswith("bert/")


def test_scalar_mix_is_the_mean_at_first():
  mix = heads.ScalarMix(2)
  mixed = mix([tf.constant([2.0, 4.0]), tf.constant([4.0, 0.0])])
  assert mixed.numpy().tolist() == [3, 2]
  mix.mix_weights.assign([np.log(3.0), 0.0])
  mix.scale.assign(2.0)
  mixed = mix([tf.constant([2.0, 4.0]), tf.constant([4.0, 0.0])])
  np.testing.assert_allclose(mixed, [5, 6], rtol=1e-6)


def test_lstm_by_hand():
  lstm = bilstm.Lstm(1, name="lstm")
  lstm.build([None, None, 1])
  lstm.input_weights.assign([[0.5, 0.1, 2.0, 1.0]])
  lstm.recurrent_weights.assign([[1.0, -1.0, 0.5, 0.3]])
  lstm.bias.assign([0.1, 0.2, 0.3, 0.4])

  def sigmoid(x):
    return 1 / (1 + np.exp(-x))

  hidden = memory = 0.0
  expected = []
  for x in (1.0, -2.0):
    memory *= sigmoid(0.1 * x - hidden + 0.2 + 1)
    memory += sigmoid(0.5 * x + hidden + 0.1) * np.tanh(
      2 * x + 0.5 * hidden + 0.3
    )
    hidden = sigmoid(x + 0.3 * hidden + 0.4) * np.tanh(memory)
    expected.append(hidden)
  found = lstm(tf.constant([[[1.0]], [[-2.0]]]), tf.ones([2, 1, 1]))
  np.testing.assert_allclose(found[:, 0, 0], expected, rtol=1e-5)


def test_the_gradient_of_an_lstm_is_that_of_differences():
  lstm = bilstm.Lstm(3, name="lstm")
  lstm.build([None, None, 2])
  x = np.random.default_rng(0).normal(size=[4, 2, 2]).astype(np.float32)
  mask = np.ones([4, 2, 1], np.float32)
  mask[3, 1] = 0
  values = [tf.constant(x), *(v.value for v in lstm.variables)]

  def loss(*values):
    inputs = tf.tensordot(values[0], values[1], 1) + values[3]
    return tf.reduce_sum(bilstm._run(inputs, values[2], mask) ** 2)

  found, expected = tf.test.compute_gradient(loss, values, delta=2**-7)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=2e-3)


def test_the_second_lstm_reads_from_the_right():
  layer = bilstm.BiLstm(3, 2, name="lstm")
  layer.build()
  layer.backward_lstm.input_weights.assign(layer.forward_lstm.input_weights)
  layer.backward_lstm.recurrent_weights.assign(
    layer.forward_lstm.recurrent_weights
  )
  x = np.random.default_rng(0).normal(size=[1, 4, 3]).astype(np.float32)
  found = layer(x, tf.constant([[1, 1, 1, 0]])).numpy()
  turned = layer(x[:, [2, 1, 0]], tf.ones([1, 3], tf.int32)).numpy()
  np.testing.assert_allclose(found[0, :3, 2:], turned[0, ::-1, :2], atol=1e-6)


def call_with_predictions(model, *inputs):
  return tuple(model(*inputs[:3], np.array([[1], [2]], np.int32), inputs[3]))


@pytest.mark.parametrize(
  "model",
  [
    lambda: heads.PretrainingModel(CONFIG),
    lambda: heads.ClassifierModel(CONFIG, 4),
    lambda: heads.TaggerModel(CONFIG, 4),
    lambda: heads.SpanModel(CONFIG),
    lambda: make_feature_tagger((0, -1), True),
  ],
)
def test_whatever_is_trained_has_a_gradient(model):
  """The original leaves out, and makes no slots for, what has none."""
  model = model()
  call = model
  if isinstance(model, heads.PretrainingModel):
    call = functools.partial(call_with_predictions, model)
  with tf.GradientTape() as tape:
    outputs = call(IDS, MASK, np.zeros_like(IDS), SEED)
    loss = sum(tf.reduce_sum(x * x) for x in tf.nest.flatten(outputs))
  variables = model.trainable_variables
  gradients = tape.gradient(loss, [v.value for v in variables])
  pairs = zip(variables, gradients, strict=True)
  assert [v.path for v, gradient in pairs if gradient is None] == []


@pytest.mark.parametrize("make", [heads.ClassifierModel, heads.TaggerModel])
def test_a_head_drops_though_its_encoder_does_not(make):
  config = dataclasses.replace(
    CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
  )
  model = make(config, 2)
  assert model.dropout_rate == 0.1
  model.dropout_rate = 0.5
  ids = np.array([[1, 5, 6, 2]], np.int32)
  seeds = None, tf.constant([1, 2])
  whole, dropped = (model(ids, ids * 0 + 1, ids * 0, seed) for seed in seeds)
  assert np.abs(whole - dropped).max() > 1e-4
