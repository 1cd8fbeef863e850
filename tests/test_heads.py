"""The heads: shapes, names, padding, gradients, dropout."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from any_model import CONFIG, SIZES, draw
from bert import heads, modeling
from bert.contrib import feature_tagger, relations, variant
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
  # As in `fit`, too.
  drawn = model(IDS, MASK, 0 * IDS, training=True)
  assert np.abs(whole - drawn).max() > 1e-4


SEGMENTS = np.array([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]], np.int32)
DENSE = heads.VectorDense(
  np.eye(8, 3, dtype=np.float32), np.float32([0, 1, 2]), "tanh", "dense.bin"
)
MODELS = {
  "pretraining": heads.PretrainingModel,
  "classifier": lambda config, dtype: heads.ClassifierModel(config, 4, dtype),
  "span": heads.SpanModel,
  "vectors": lambda config, dtype: heads.VectorModel(
    modeling.BertModel(config, dtype), DENSE
  ),
}
# The variables behind the encoder's, those of Google's names but for vectors.
VARIABLES = {
  "pretraining": {
    "cls/predictions/transform/dense/kernel": [8, 8],
    "cls/predictions/transform/dense/bias": [8],
    "cls/predictions/transform/LayerNorm/gamma": [8],
    "cls/predictions/transform/LayerNorm/beta": [8],
    "cls/predictions/output_bias": [30],
    "cls/seq_relationship/output_weights": [2, 8],
    "cls/seq_relationship/output_bias": [2],
  },
  "classifier": {"output_weights": [4, 8], "output_bias": [4]},
  "span": {"cls/squad/output_weights": [2, 8], "cls/squad/output_bias": [2]},
  "vectors": {"dense/kernel": [8, 3], "dense/bias": [3]},
}


@pytest.mark.parametrize("name", MODELS)
def test_what_a_model_is_made_of(name):
  model = MODELS[name](CONFIG, "mixed_bfloat16")
  assert model.name == name
  assert model.dtype_policy.name == "mixed_bfloat16"
  assert model.bert.dtype_policy.name == "mixed_bfloat16"
  shapes = {v.path: list(v.shape) for v in model.variables}
  if name == "pretraining":
    assert model.heads.dtype_policy.name == "mixed_bfloat16"
  encoder = [v.path for v in model.bert.variables]
  assert {n: s for n, s in shapes.items() if n not in encoder} == (
    VARIABLES[name]
  )
  assert MODELS[name](CONFIG, None).bert.dtype_policy.name == "float32"


def test_heads_of_a_narrow_word_table():
  config = dataclasses.replace(CONFIG, embedding_size=4)
  head = heads.PretrainingModel(config).heads.predictions
  assert head.transform.dense.kernel.shape == (8, 4)
  assert head.transform.layer_norm.gamma.shape == (4,)
  assert head.output_bias.shape == (30,)


def test_a_decoder_without_a_transform():
  config = variant.VariantConfig(**SIZES, causal_attention=True)
  model = heads.PretrainingModel(config)
  draw(model.variables)
  assert model.heads.predictions.transform is None
  states = model.bert(IDS, MASK, SEGMENTS).sequence_output
  table = model.bert.embeddings.word_embeddings
  scores = states[:, 1] @ tf.transpose(table.value)
  found = model(IDS, MASK, SEGMENTS, np.array([[1], [1]], np.int32))
  np.testing.assert_allclose(
    found.masked_lm_logits[:, 0],
    scores + model.heads.predictions.output_bias,
    rtol=1e-4,
    atol=1e-5,
  )


@pytest.mark.parametrize("name", MODELS)
def test_biases_begin_at_zero(name):
  model = MODELS[name](CONFIG, None)
  if name == "vectors":
    model = model.bert
  biases = [v for v in model.variables if v.path.endswith(("bias", "beta"))]
  assert biases and not any(np.any(bias) for bias in biases)


@pytest.mark.parametrize(
  ("make", "uses_pooler"),
  [
    (heads.PretrainingModel, True),
    (lambda config: heads.ClassifierModel(config, 2), True),
    (lambda config: heads.ClassifierModel(config, 2, pooling="max"), False),
    (lambda config: heads.TaggerModel(config, 2), False),
    (heads.SpanModel, False),
    (lambda config: MODELS["vectors"](config, None), False),
  ],
)
def test_a_pooler_that_is_not_used_is_not_trained(make, uses_pooler):
  model = make(CONFIG)
  assert model.uses_pooler is uses_pooler
  is_trained = "bert/pooler/dense/kernel" in [
    v.path for v in model.trainable_variables
  ]
  # A layer on finished vectors trains nothing.
  assert is_trained == (uses_pooler or isinstance(model, heads.VectorModel))


def test_the_scores_of_spans():
  model = heads.SpanModel(CONFIG)
  draw(model.variables)
  states = model.bert(IDS, MASK, SEGMENTS).sequence_output.numpy()
  scores = states @ model.output_weights.numpy().T + model.output_bias.numpy()
  found = model(IDS, MASK, SEGMENTS)
  np.testing.assert_allclose(found.start_logits, scores[..., 0], rtol=1e-5)
  np.testing.assert_allclose(found.end_logits, scores[..., 1], rtol=1e-5)
  named = model.named_outputs(IDS, MASK, SEGMENTS)
  assert list(named) == ["start_logits", "end_logits"]
  np.testing.assert_array_equal(named["end_logits"], found.end_logits)

  # With a seed, and as Keras asks for it, there is dropout.
  dropped = model(IDS, MASK, SEGMENTS, SEED).start_logits
  states = model.bert(IDS, MASK, SEGMENTS, SEED).sequence_output.numpy()
  scores = states @ model.output_weights.numpy().T + model.output_bias.numpy()
  np.testing.assert_allclose(dropped, scores[..., 0], rtol=1e-5)
  drawn = model(IDS, MASK, SEGMENTS, training=True).start_logits
  assert np.abs(drawn - found.start_logits).max() > 1e-3


def test_the_guesses_of_words_and_of_the_next_sentence():
  model = heads.PretrainingModel(CONFIG)
  draw(model.variables)
  places = np.array([[1, 2], [2, 0]], np.int32)
  found = model(IDS, MASK, SEGMENTS, places)
  encoded = model.bert(IDS, MASK, SEGMENTS)
  for ours, theirs in zip(found, model.guess(encoded, places), strict=True):
    np.testing.assert_array_equal(ours, theirs)
  head = model.heads.seq_relationship
  scores = encoded.pooled_output @ tf.transpose(head.output_weights)
  np.testing.assert_allclose(
    found.next_sentence_logits, scores + head.output_bias, rtol=1e-5
  )

  # As with spans: a seed, or Keras in training, drops.
  dropped = model(IDS, MASK, SEGMENTS, places, SEED)
  encoded = model.bert(IDS, MASK, SEGMENTS, SEED)
  for ours, theirs in zip(dropped, model.guess(encoded, places), strict=True):
    np.testing.assert_array_equal(ours, theirs)
  drawn = model(IDS, MASK, SEGMENTS, places, training=True)
  assert np.abs(drawn[0] - found[0]).max() > 1e-3


@pytest.mark.parametrize("pooling", ["", "mean"])
def test_a_classifier_is_made_again_of_its_config(pooling):
  model = heads.ClassifierModel(CONFIG, 4, "mixed_bfloat16", 0.3, pooling)
  config = model.get_config()
  assert config.pop("config")["hidden_size"] == 8
  assert config == {
    "dtype": "mixed_bfloat16",
    "num_labels": 4,
    "dropout_rate": 0.3,
    "pooling": pooling,
  }
  again = heads.ClassifierModel.from_config(model.get_config())
  assert again.get_config() == model.get_config()
  assert again.bert.config == CONFIG
  assert keras.saving.get_registered_name(type(model)) == "bert>ClassifierModel"


def test_models_of_a_training():
  settings = {"pooling": "max"}
  model = heads.ClassifierModel.from_training(CONFIG, 3, settings)
  assert (model.num_labels, model.pooling) == (3, "max")
  assert model.dtype_policy.name == model.bert.dtype_policy.name == "float32"
  # A regression has no label, but an output. Older runs recorded no pooling.
  model = heads.ClassifierModel.from_training(CONFIG, 0, {})
  assert (model.num_labels, model.pooling) == (1, "")
  assert list(model.named_outputs(IDS, MASK, SEGMENTS)) == ["logits"]
  model = heads.SpanModel.from_training(CONFIG, 0, {})
  assert model.dtype_policy.name == "float32" and model.bert.config == CONFIG


def test_models_of_a_training_are_float32_whatever_keras_is():
  keras.config.set_dtype_policy("mixed_bfloat16")
  try:
    for make in (heads.ClassifierModel, heads.SpanModel):
      assert make.from_training(CONFIG, 2, {}).compute_dtype == "float32"
  finally:
    keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("floatx", ["float16", "float64"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_heads_are_float32_whatever_the_user_s_keras_json_says(floatx, dtype):
  makers = {
    **MODELS,
    "tagger": lambda config, dtype: heads.TaggerModel(config, 4, dtype),
    "features": lambda config, dtype: feature_tagger.FeatureTaggerModel(
      config, 4, dtype, ["mix"], 6
    ),
    "relations": lambda config, dtype: relations.VectorModel(config, dtype, 5),
  }
  keras.config.set_floatx(floatx)
  try:
    for make in makers.values():
      model = make(CONFIG, dtype)
      types = {variable.dtype for variable in model.variables}
      assert types == {"float32"}
      features = dict(input_ids=IDS, input_mask=MASK, segment_ids=SEGMENTS)
      features["masked_lm_positions"] = IDS[:, :2] * 0
      output = heads.forward(model, features, None)
      if isinstance(model, heads.VectorModel):
        output = model.project(tf.cast(output.pooled_output, tf.float32))
      assert {x.dtype for x in tf.nest.flatten(output)} == {tf.float32}
  finally:
    keras.config.set_floatx("float32")


def test_the_scores_of_a_classifier():
  model = heads.ClassifierModel(CONFIG, 2, dropout_rate=0.5)
  draw(model.variables)
  found = model(IDS, MASK, SEGMENTS, SEED)
  # The encoder's dropout has the number 0, that of the head 1.
  pooled = model.bert(
    IDS, MASK, SEGMENTS, modeling.fold_in(SEED, 0)
  ).pooled_output
  pooled = modeling.dropout(pooled, 0.5, modeling.fold_in(SEED, 1))
  scores = pooled @ tf.transpose(model.output_weights) + model.output_bias
  np.testing.assert_allclose(found, scores, rtol=1e-5)


def test_new_heads_have_their_deviations():
  weights, bias = heads.make_output(100, 200)
  # The original has 0.02, whatever the config says, cut off at two deviations.
  assert 0.016 < weights.numpy().std() < 0.019
  assert np.abs(weights).max() <= 0.04 and not np.any(bias)
  config = dataclasses.replace(CONFIG, initializer_range=0.0)
  head = heads.PretrainingModel(config).heads.seq_relationship
  assert not np.any(head.output_weights)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_without_labels_the_output_is_the_vector(pooling):
  model = heads.ClassifierModel(CONFIG, 0, pooling=pooling)
  draw(model.variables)
  states = model.bert(IDS, MASK, SEGMENTS).sequence_output
  expected = heads.pool(states, tf.constant(MASK), pooling)
  np.testing.assert_allclose(model(IDS, MASK, SEGMENTS), expected, rtol=1e-5)


def test_the_next_sentence_can_be_left_out():
  model = heads.PretrainingModel(CONFIG)
  before = {v.path for v in model.trainable_variables}
  model.freeze_next_sentence()
  assert before - {v.path for v in model.trainable_variables} == {
    "bert/pooler/dense/kernel",
    "bert/pooler/dense/bias",
    "cls/seq_relationship/output_weights",
    "cls/seq_relationship/output_bias",
  }


def test_a_forward_takes_the_inputs_of_the_model():
  model = heads.ClassifierModel(CONFIG, 2)
  draw(model.variables)
  names = ("input_mask", "label_ids", "segment_ids", "input_ids")
  features = dict(zip(names, (MASK, None, SEGMENTS, IDS), strict=True))
  for seed in (None, SEED):
    np.testing.assert_array_equal(
      heads.forward(model, features, seed), model(IDS, MASK, SEGMENTS, seed)
    )


@pytest.mark.parametrize(
  ("pooling", "expected"),
  [
    ("cls", [[-1, 2], [5, -3]]),
    ("mean", [[-2, 3], [5, -3]]),
    ("max", [[-1, 4], [5, -3]]),
  ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_vectors_of_texts(pooling, expected, dtype):
  # Padding is no zero, and no smaller than tokens.
  states = np.array(
    [[[-1, 2], [-3, 4], [9, 9]], [[5, -3], [-9, 9], [9, 9]]], dtype
  )
  mask = tf.constant([[1, 1, 0], [1, 0, 0]])
  found = heads.pool(tf.constant(states), mask, pooling)
  assert found.dtype == dtype and found.numpy().tolist() == expected


def test_vectors_of_length_1():
  vectors = np.float32([[[3, 4], [0, 0]], [[-6e-11, 8e-11], [0, 2]]])
  found = heads.normalize(tf.constant(vectors))
  expected = [[[0.6, 0.8], [0, 0]], [[-0.6, 0.8], [0, 1]]]
  np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_dense_layer_on_vectors():
  assert DENSE.describe() == "8 to 3 numbers, tanh"
  encoder = modeling.BertModel(CONFIG)
  draw(encoder.variables)
  model = heads.VectorModel(encoder, DENSE)
  found = model.project(tf.constant([[[0.5, -0.5, 0, 7, 7, 7, 7, 7]]]))
  np.testing.assert_allclose(found, np.tanh([[[0.5, 0.5, 2.0]]]), rtol=1e-6)

  # Called, it is the encoder.
  for options in ({}, {"seed": SEED}, {"return_hidden_states": True}):
    ours, theirs = (
      call(IDS, MASK, SEGMENTS, **options) for call in (model, encoder)
    )
    for one, other in zip(
      tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True
    ):
      np.testing.assert_array_equal(one, other)

  # It fits vectors of its own size.
  with pytest.raises(ValueError, match="^d.bin: takes vectors of 3 numbers; t"):
    heads.VectorModel(encoder, DENSE._replace(kernel=np.eye(3), source="d.bin"))
