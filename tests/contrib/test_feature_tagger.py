"""The feature-based tagger: names, layers, what is trained."""

import numpy as np
import pytest
import tensorflow as tf

from any_model import CONFIG
from bert.contrib import feature_tagger

IDS = np.array([[2, 7, 8, 3, 0], [2, 9, 3, 0, 0]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEED = tf.constant([1, 2])


def make_feature_tagger(*layers):
  return feature_tagger.FeatureTaggerModel(CONFIG, 4, "float32", layers, 6)


@pytest.mark.parametrize("mixed", [False, True])
def test_names_of_a_feature_tagger(mixed):
  model = make_feature_tagger(*["mix"][:mixed], -1, -2)
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
  model = make_feature_tagger("mix", 0, -1)
  output = model.bert(IDS, MASK, 0 * IDS, return_hidden_states=True)
  first, *_, last = output.hidden_states
  features = model.features(IDS, MASK, 0 * IDS)
  np.testing.assert_allclose(features, (first + last) / 2, rtol=1e-6)
  model = make_feature_tagger(0)
  assert model.features(IDS, MASK, 0 * IDS).shape == [2, 5, 8]


@pytest.mark.parametrize(
  ("names", "layers"),
  [
    (["-2", "2"], [-2, 2]),
    (["mix", "-3", "0"], [-3, 0]),
    (["mix"], [0, 1, 2]),
  ],
)
def test_layers_that_are_used(names, layers):
  model = make_feature_tagger(*names)
  assert list(model.layers_used) == layers
  assert (model.mix is not None) == ("mix" in names)


@pytest.mark.parametrize(
  "names", [[], ["-4"], ["3"], ["last"], ["1", "mix"], ["mix", "mix"], [""]]
)
def test_layers_that_there_are_not(names):
  with pytest.raises(ValueError, match="expected mix, or numbers from -3 to 2"):
    make_feature_tagger(*names)


def test_only_what_is_on_top_of_frozen_features_gets_a_gradient():
  model = make_feature_tagger("mix", 0, -1)
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(model(IDS, MASK, 0 * IDS, SEED) ** 2)
  values = [v.value for v in model.variables]
  gradients = tape.gradient(loss, values)
  for variable, gradient in zip(model.variables, gradients, strict=True):
    assert (gradient is None) == variable.path.startswith("bert/")


def test_scalar_mix_is_the_mean_at_first():
  mix = feature_tagger.ScalarMix(2)
  mixed = mix([tf.constant([2.0, 4.0]), tf.constant([4.0, 0.0])])
  assert mixed.numpy().tolist() == [3, 2]
  mix.mix_weights.assign([np.log(3.0), 0.0])
  mix.scale.assign(2.0)
  mixed = mix([tf.constant([2.0, 4.0]), tf.constant([4.0, 0.0])])
  np.testing.assert_allclose(mixed, [5, 6], rtol=1e-6)
