"""The architecture: names, shapes, dtypes, what a config may say."""

import dataclasses
import json
import math
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import any_model
from bert import heads, modeling
from bert.contrib import variant
from bert.encoders import compiled
from bert.weights import checkpoints

CONFIG = dataclasses.replace(any_model.CONFIG, num_hidden_layers=1)
IDS = np.array([[1, 5, 6, 2], [1, 7, 2, 0]])


def test_paths_are_the_names_in_googles_checkpoints():
  """The second model of a process has the same."""
  first, second = (
    sorted(v.path for v in heads.PretrainingModel(CONFIG).variables)
    for _ in range(2)
  )
  assert first == second
  assert first == [
    "bert/embeddings/LayerNorm/beta",
    "bert/embeddings/LayerNorm/gamma",
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
    "bert/embeddings/word_embeddings",
    "bert/encoder/layer_0/attention/output/LayerNorm/beta",
    "bert/encoder/layer_0/attention/output/LayerNorm/gamma",
    "bert/encoder/layer_0/attention/output/dense/bias",
    "bert/encoder/layer_0/attention/output/dense/kernel",
    "bert/encoder/layer_0/attention/self/key/bias",
    "bert/encoder/layer_0/attention/self/key/kernel",
    "bert/encoder/layer_0/attention/self/query/bias",
    "bert/encoder/layer_0/attention/self/query/kernel",
    "bert/encoder/layer_0/attention/self/value/bias",
    "bert/encoder/layer_0/attention/self/value/kernel",
    "bert/encoder/layer_0/intermediate/dense/bias",
    "bert/encoder/layer_0/intermediate/dense/kernel",
    "bert/encoder/layer_0/output/LayerNorm/beta",
    "bert/encoder/layer_0/output/LayerNorm/gamma",
    "bert/encoder/layer_0/output/dense/bias",
    "bert/encoder/layer_0/output/dense/kernel",
    "bert/pooler/dense/bias",
    "bert/pooler/dense/kernel",
    "cls/predictions/output_bias",
    "cls/predictions/transform/LayerNorm/beta",
    "cls/predictions/transform/LayerNorm/gamma",
    "cls/predictions/transform/dense/bias",
    "cls/predictions/transform/dense/kernel",
    "cls/seq_relationship/output_bias",
    "cls/seq_relationship/output_weights",
  ]


def test_output_shapes():
  output = modeling.BertModel(CONFIG)(
    IDS, return_hidden_states=True, return_attention_probs=True
  )
  assert output.sequence_output.shape == (2, 4, 8)
  assert output.pooled_output.shape == (2, 8)
  assert [state.shape for state in output.hidden_states] == [(2, 4, 8)] * 2
  assert [probs.shape for probs in output.attention_probs] == [(2, 2, 4, 4)]
  assert modeling.BertModel(CONFIG)(IDS).hidden_states == ()


def bert_in_numpy(bert, ids, mask, segments):
  """Computes a BERT as the papers write it: states, attention, pooled output.

  Args:
    bert: has the config and the weights.
    ids: int [B, S], as `segments`.
    mask: int [B, S], or [B, S, S] with a row for each token.
    segments: 0 or 1.
  """
  config = bert.config
  weights = {v.path.removeprefix("bert/"): v.numpy() for v in bert.variables}

  def dense(x, name):
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

  def norm(x, name):
    x = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((x**2).mean(-1, keepdims=True) + config.layer_norm_eps)
    gamma, beta = (weights[f"{name}/LayerNorm/{n}"] for n in ("gamma", "beta"))
    return x / deviation * gamma + beta

  def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))

  def split(x):
    x = x.reshape(*x.shape[:2], config.num_attention_heads, config.head_size)
    return x.transpose(0, 2, 1, 3)

  x = weights["embeddings/word_embeddings"][ids]
  x = x + weights["embeddings/token_type_embeddings"][segments]
  x = x + weights["embeddings/position_embeddings"][: ids.shape[1]]
  x = norm(x, "embeddings")
  if "embeddings/project/kernel" in weights:
    x = dense(x, "embeddings/project")

  states, attention = [x], []
  for layer in range(config.num_hidden_layers):
    name = f"encoder/layer_{layer}"
    query, key, value = (
      split(dense(x, f"{name}/attention/self/{part}"))
      for part in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(2, 3) / math.sqrt(config.head_size)
    rows = mask[:, None] if mask.ndim == 2 else mask
    scores = np.exp(scores) * rows[:, None]
    attention.append(scores / scores.sum(-1, keepdims=True))

    context = (attention[-1] @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    attended = dense(context, f"{name}/attention/output/dense")
    attended = norm(attended + x, f"{name}/attention/output")
    wide = gelu(dense(attended, f"{name}/intermediate/dense"))
    x = norm(dense(wide, f"{name}/output/dense") + attended, f"{name}/output")
    states.append(x)
  return states, attention, np.tanh(dense(x[:, 0], "pooler/dense"))


@pytest.mark.parametrize("embedding_size", [None, 4])
@pytest.mark.parametrize("form", ["a row a text", "a row a token", "none"])
def test_the_outputs_are_those_of_the_formulas(embedding_size, form):
  config = dataclasses.replace(
    any_model.CONFIG, embedding_size=embedding_size, layer_norm_eps=0.1
  )
  bert = modeling.BertModel(config)
  any_model.draw(bert.variables)
  ids, mask, segments = any_model.make_inputs()
  if form == "a row a token":
    # Each token sees those before it.
    mask = np.tril(np.ones([12, 12], np.int32)) * mask[:, None]
  inputs = {"input_mask": mask, "segment_ids": segments}
  if form == "none":
    inputs = {}
    mask, segments = np.ones_like(ids), np.zeros_like(ids)

  found = bert(
    ids, **inputs, return_hidden_states=True, return_attention_probs=True
  )
  states, attention, pooled = bert_in_numpy(bert, ids, mask, segments)
  any_model.assert_near(found.sequence_output, states[-1])
  any_model.assert_near(found.pooled_output, pooled)
  for ours, theirs in zip(found.hidden_states, states, strict=True):
    any_model.assert_near(ours, theirs)
  for ours, theirs in zip(found.attention_probs, attention, strict=True):
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_padding_changes_nothing():
  bert = modeling.BertModel(CONFIG)
  mask = np.array([[1, 1, 1, 0]])
  padded = bert(IDS[1:], mask, return_attention_probs=True)
  alone = bert(IDS[1:, :3]).sequence_output
  np.testing.assert_allclose(padded.sequence_output[:, :3], alone, 1e-5)
  assert not np.any(padded.attention_probs[0][..., 3])


def test_length_is_dynamic_in_a_graph():
  bert = modeling.BertModel(CONFIG)
  graph = tf.function(
    lambda ids: bert(ids).pooled_output
  ).get_concrete_function(tf.TensorSpec([None, None], tf.int64))
  for length in (1, 4, 12):
    ids = tf.ones([3, length], tf.int64)
    np.testing.assert_allclose(graph(ids), bert(ids).pooled_output, atol=1e-6)


def test_a_sequence_beyond_the_position_table_is_an_error():
  bert = modeling.BertModel(CONFIG)
  assert bert(np.ones([1, 12], np.int32)).sequence_output.shape == (1, 12, 8)
  with pytest.raises(ValueError) as caught:
    bert(np.ones([1, 13], np.int32))
  assert (
    "a sequence of 13 tokens is longer than max_position_embeddings (12) of "
    "the config" in str(caught.value)
  )


def test_bfloat16_keeps_weights_and_logits_in_float32():
  keras.utils.set_random_seed(1)
  exact = heads.PretrainingModel(CONFIG)
  keras.utils.set_random_seed(1)
  half = heads.PretrainingModel(CONFIG, "mixed_bfloat16")
  assert {v.dtype for v in half.variables} == {"float32"}
  inputs = (IDS, np.ones_like(IDS), np.zeros_like(IDS), IDS[:, 2:3] * 0 + 1)
  assert half.bert(*inputs[:3]).sequence_output.dtype == tf.bfloat16
  assert half(*inputs).masked_lm_logits.dtype == tf.float32
  np.testing.assert_allclose(
    half(*inputs).masked_lm_logits, exact(*inputs).masked_lm_logits, atol=0.02
  )


def test_every_part_has_the_precision_of_the_whole(monkeypatch):
  bert = modeling.BertModel(CONFIG, "mixed_bfloat16")
  waiting, names = [bert], set()
  while waiting:
    layer = waiting.pop()
    assert layer.dtype_policy.name == "mixed_bfloat16", layer.path
    names.add(layer.name)
    waiting += [part for part, _ in getattr(layer, "parts", ())]
  assert {"LayerNorm", "dense", "query", "output", "pooler"} <= names

  # A cast of a whole table would cost more than its rows.
  gather, types = tf.gather, []

  def spy(table, *arguments, **options):
    types.append(table.dtype)
    return gather(table, *arguments, **options)

  monkeypatch.setattr(tf, "gather", spy)
  bert(IDS)
  assert types == [tf.float32, tf.float32]


def test_activations_at_one():
  one = tf.constant(1.0)
  values = {name: float(f(one)) for name, f in modeling.ACTIVATIONS.items()}
  expected = {"gelu": 0.841192, "gelu_erf": 0.841345, "gelu_exact": 0.841345}
  expected |= {"linear": 1.0, "relu": 1.0, "tanh": 0.761594}
  assert values == pytest.approx(expected, abs=1e-6)


def test_gelu_has_the_gradient_of_its_formula():
  x = tf.constant([-3.0, -1.0, 0.0, 0.5, 2.0])
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    formula = 0.5 * x * (1 + tf.tanh(inner))
    ours = modeling.gelu(x)
  expected = tape.gradient(formula, x)
  np.testing.assert_allclose(tape.gradient(ours, x), expected, atol=1e-6)


class TestDropout:
  SEED = tf.constant([3, 4])

  def test_only_a_training_of_keras_draws_a_seed(self):
    assert modeling.choose_seed(None, False) is None
    assert modeling.choose_seed(self.SEED, True) is self.SEED
    drawn = [modeling.choose_seed(None, True) for _ in range(20)]
    assert {(tuple(seed.shape), seed.dtype) for seed in drawn} == {
      ((2,), tf.int32)
    }
    numbers = np.stack(drawn)
    assert numbers.min() >= 0 and numbers.max() > 2**30
    bert = modeling.BertModel(CONFIG)
    whole, dropped = (
      bert(IDS, training=trains).pooled_output for trains in (False, True)
    )
    assert np.abs(whole - dropped).max() > 1e-6

  def test_none_without_a_seed_or_a_rate(self):
    x = tf.ones([5])
    assert modeling.dropout(x, 0.5, None) is x
    assert modeling.dropout(x, 0.0, self.SEED) is x

  @pytest.mark.parametrize("rate", [0.1, 0.5])
  def test_rate_and_scale(self, rate):
    y = modeling.dropout(tf.ones([1000, 1001]), rate, self.SEED).numpy()
    assert (y == 0).mean() == pytest.approx(rate, abs=1e-3)
    np.testing.assert_allclose(y[y != 0], 1 / (1 - rate), rtol=1e-6)

  def test_the_elements_that_are_kept(self):
    # 9 elements are decided by 5 draws of 32 bits, half of the last unused.
    kept = modeling.draw_kept(tf.ones([3, 3]), 0.5, self.SEED)
    assert kept.numpy().astype(int).tolist() == [
      [0, 1, 1],
      [1, 0, 1],
      [1, 0, 0],
    ]
    # 0.25 of the 16-bit numbers, to the number.
    bits = tf.random.stateless_uniform(
      [50_000], self.SEED, None, dtype=tf.uint32, alg="philox"
    )
    numbers = bits.numpy().view(np.uint16)
    kept = modeling.draw_kept(tf.ones([1000, 100]), 0.25, self.SEED)
    np.testing.assert_array_equal(kept.numpy().ravel(), numbers >= 2**14)

  def test_the_scale_is_unbiased_in_bfloat16(self):
    """The factor, rounded to bfloat16, would make all 0.2 % too small."""
    x = np.random.default_rng(1).uniform(1, 2, [300, 1000])
    x = tf.cast(x, tf.bfloat16)
    attended = compiled.dropout_matmul(
      x, tf.eye(1000, None, None, x.dtype), 0.1, self.SEED
    )
    for y in (modeling.dropout(x, 0.1, self.SEED), attended):
      x, y = tf.cast(x, tf.float32).numpy(), tf.cast(y, tf.float32).numpy()
      assert (y / x)[y != 0].mean() == pytest.approx(1 / 0.9, rel=1e-4)

  def test_is_a_function_of_the_seed_with_and_without_xla(self):
    def draw(step):  # As the loop and the layers do: int64, then int32.
      seed = modeling.fold_in(tf.constant([12345, 0]), step)
      seed = modeling.fold_in(modeling.fold_in(seed, tf.constant(1)), 3)
      return modeling.dropout(tf.ones([64, 33]), 0.1, seed)

    step = tf.constant(7, tf.int64)
    compiled = tf.function(draw, jit_compile=True)
    assert np.array_equal(draw(step), compiled(step))
    assert not np.array_equal(draw(step), draw(step + 1))

  @pytest.mark.parametrize("module", [modeling, compiled])
  def test_every_place_has_its_rate_and_seed(self, module, monkeypatch):
    drawn, draw = [], modeling.draw_kept

    def spy(x, rate, seed):
      drawn.append((rate, *seed.numpy().tolist()))
      return draw(x, rate, seed)

    monkeypatch.setattr(modeling, "draw_kept", spy)
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
    config = dataclasses.replace(CONFIG, num_hidden_layers=2, **rates)
    module.BertModel(config)(IDS, seed=self.SEED)
    assert [rate for rate, *_ in drawn] == [0.2] + [0.3, 0.2, 0.2] * 2
    # A run that another version began must draw the same when it resumes.
    assert [tuple(seed) for _, *seed in drawn] == [
      (-1860230133, 0),
      (-1276514819, 0),
      (-1276514819, 1),
      (-2021741057, 1),
      (457831322, 0),
      (457831322, 1),
      (1177931861, 1),
    ]


class TestConfig:
  def write(self, tmp_path, **fields):
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps({"vocab_size": 30, **fields}))
    return str(path)

  @pytest.mark.parametrize(
    ("fields", "activation"),
    [
      ({"directionality": "bidi", "pooler_fc_size": 768}, "gelu"),
      ({"hidden_act": "GELU"}, "gelu"),
      ({"hidden_act": None}, "linear"),
      ({"hidden_act": ""}, "linear"),
    ],
  )
  def test_reads_what_the_original_reads(self, tmp_path, fields, activation):
    path = self.write(tmp_path, **fields)
    assert modeling.BertConfig.from_json_file(path) == modeling.BertConfig(
      30, hidden_act=activation
    )

  def test_the_text_of_a_file(self):
    config = modeling.BertConfig(30, embedding_size=64)
    assert config.to_json_string() == (
      """{
  "attention_probs_dropout_prob": 0.1,
  "embedding_size": 64,
  "hidden_act": "gelu",
  "hidden_dropout_prob": 0.1,
  "hidden_size": 768,
  "initializer_range": 0.02,
  "intermediate_size": 3072,
  "max_position_embeddings": 512,
  "num_attention_heads": 12,
  "num_hidden_layers": 12,
  "type_vocab_size": 16,
  "vocab_size": 30
}
"""
    )
    assert (config.embedding_width, config.head_size) == (64, 64)
    assert config.layer_norm_epsilon == 1e-12
    relative = variant.VariantConfig(**any_model.SIZES)
    fields = json.loads(relative.to_json_string())
    assert fields["encoder_type"] == "variant"
    plain = modeling.BertConfig(30, layer_norm_eps=1e-5)
    assert (plain.embedding_width, plain.layer_norm_epsilon) == (768, 1e-5)

  @pytest.mark.parametrize(
    ("fields", "message"),
    [
      ({"vocab_size": 0}, "vocab_size is 0; expected an integer above 0"),
      ({"vocab_size": True}, "vocab_size is True; expected an integer above 0"),
      ({"hidden_size": 8.0}, "hidden_size is 8.0; expected an integer above 0"),
      (
        {"embedding_size": 0},
        "embedding_size is 0; expected an integer above 0",
      ),
      (
        {"hidden_dropout_prob": None},
        "hidden_dropout_prob is None; expected a number from 0 to 0.999",
      ),
      (
        {"attention_probs_dropout_prob": -0.1},
        "attention_probs_dropout_prob is -0.1; expected a number from 0 to "
        "0.999",
      ),
      (
        {"initializer_range": -1},
        "initializer_range is -1; expected 0 or more",
      ),
      (
        {"initializer_range": math.inf},
        "initializer_range is inf; expected 0 or more",
      ),
      (
        {"initializer_range": "x" * 99},
        f"initializer_range is '{'x' * 79}; expected 0 or more",
      ),
      ({"layer_norm_eps": 0}, "layer_norm_eps is 0; expected a number above 0"),
      (
        {"layer_norm_eps": True},
        "layer_norm_eps is True; expected a number above 0",
      ),
      (
        {"hidden_act": "selu"},
        "hidden_act is 'selu'; known: gelu, gelu_erf, gelu_exact, linear, "
        "relu, tanh",
      ),
      (
        {"hidden_size": 64, "num_attention_heads": 12},
        "num_attention_heads (12) does not divide hidden_size (64)",
      ),
    ],
  )
  def test_impossible_values(self, fields, message):
    with pytest.raises(ValueError) as caught:
      modeling.BertConfig(**{"vocab_size": 30, **fields})
    assert str(caught.value) == message

  def test_values_at_their_limits(self):
    modeling.BertConfig(
      1,
      hidden_size=1,
      num_attention_heads=1,
      hidden_dropout_prob=0,
      attention_probs_dropout_prob=0.999,
      initializer_range=0,
      layer_norm_eps=sys.float_info.max,
    )

  @pytest.mark.parametrize(
    ("fields", "message"),
    [
      ({}, "vocab_size is missing"),
      (
        {"vocab_size": 30, "encoder_type": "bilstm"},
        "encoder_type is 'bilstm'; expected None",
      ),
      ({"c": 1, "a\n": 1}, "unknown keys: 'a\\n', c"),
    ],
  )
  def test_impossible_files(self, fields, message):
    with pytest.raises(ValueError) as caught:
      modeling.BertConfig.from_dict(fields)
    assert str(caught.value) == message

  def test_survives_a_round_trip(self, tmp_path):
    fields = json.loads(CONFIG.to_json_string())
    assert modeling.BertConfig.from_dict(fields) == CONFIG

  @pytest.mark.parametrize(
    ("fields", "message"),
    [
      ({"hiden_size": 8}, "unknown keys: hiden_size"),
      ({"pooler_types": ""}, "unknown keys: pooler_types"),
      ({"two\nlines": 8}, r"unknown keys: 'two\nlines'"),
      ({"hidden_size": ["long"] * 99}, "is ['long', 'long', 'long', 'long',"),
      ({"hidden_size": 10, "num_attention_heads": 4}, "(4) does not divide"),
      ({"hidden_act": "swish"}, "hidden_act is 'swish'; known: gelu, gelu_erf"),
      ({"num_hidden_layers": 0}, "num_hidden_layers is 0; expected an integer"),
      ({"vocab_size": "30"}, "vocab_size is '30'; expected an integer"),
      (
        {"hidden_dropout_prob": 0.99999},
        "hidden_dropout_prob is 0.99999; expected a number from 0 to 0.999",
      ),
    ],
  )
  def test_refuses(self, fields, message, tmp_path):
    path = self.write(tmp_path, **fields)
    with pytest.raises(ValueError) as caught:
      checkpoints.read_config(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400

  @pytest.mark.parametrize(
    ("content", "message"),
    [
      (b'{"vocab_size": %s}' % (b"9" * 5000), "json: not a JSON file: Exceeds"),
      (b"{}", "vocab_size is missing"),
      (None, "bert_config.json"),
    ],
  )
  def test_refuses_a_file(self, content, message, tmp_path):
    path = tmp_path / "bert_config.json"
    if content is not None:
      path.write_bytes(content)
    with pytest.raises((ValueError, OSError), match=message):
      checkpoints.read_config(str(path))

  @pytest.mark.parametrize(
    ("name", "layers", "hidden"),
    [
      ("tiny", 2, 128),
      ("mini", 4, 256),
      ("small", 4, 512),
      ("medium", 8, 512),
      ("base", 12, 768),
      ("large", 24, 1024),
    ],
  )
  def test_published_sizes(self, name, layers, hidden):
    config = modeling.BertConfig.from_json_file(f"configs/bert_{name}.json")
    assert config == modeling.BertConfig(
      vocab_size=30522,
      hidden_size=hidden,
      num_hidden_layers=layers,
      num_attention_heads=hidden // 64,
      intermediate_size=4 * hidden,
      type_vocab_size=2,
    )


def test_weights_start_at_the_deviation_of_the_config():
  config = dataclasses.replace(CONFIG, vocab_size=2000, initializer_range=0.1)
  table = modeling.BertModel(config).embeddings.word_embeddings.numpy()
  # Cut off at two deviations, which leaves 0.88 of one.
  assert abs(table.std() - 0.088) < 0.003 and np.abs(table).max() <= 0.2
  # All weights do; biases begin at 0, and the scales of norms at 1.
  flat = modeling.BertModel(dataclasses.replace(CONFIG, initializer_range=0.0))
  for variable in flat.variables:
    expected = 1.0 if variable.path.endswith("gamma") else 0.0
    assert np.all(variable.numpy() == expected), variable.path


def test_softmax_and_statistics_are_float32():
  bert = modeling.BertModel(CONFIG, "mixed_bfloat16")
  probs, *_ = bert(IDS, return_attention_probs=True).attention_probs
  assert probs.dtype == tf.float32
  sums = tf.reduce_sum(probs, -1).numpy()
  np.testing.assert_allclose(sums, np.ones_like(sums), atol=1e-6)
  norm = bert.embeddings.layer_norm
  x = tf.constant([[1000.0, 1004.0, 1008.0, 1012.0] * 2], tf.bfloat16)
  expected = [[-1.3416, -0.4472, 0.4472, 1.3416] * 2]
  np.testing.assert_allclose(tf.cast(norm(x), tf.float32), expected, atol=0.01)


def test_another_encoders_config_is_a_wrong_type():
  config = variant.VariantConfig(**any_model.SIZES)
  with pytest.raises(TypeError) as caught:
    modeling.BertModel(config)
  # A program's `import modeling` is the same file under another name.
  assert str(caught.value) == (
    "BertModel takes a bert.modeling.BertConfig, not a "
    "bert.contrib.variant.VariantConfig"
  )


def test_a_model_that_is_made_frozen_trains_nothing():
  assert modeling.BertModel(CONFIG, trainable=False).trainable_variables == []
  again = modeling.BertModel(CONFIG, name="other", trainable=False).get_config()
  assert again["config"] == json.loads(CONFIG.to_json_string())
  model = modeling.BertModel.from_config(again)
  assert model.name == "other" and model.config == CONFIG
  assert model.trainable_variables == []


def test_attention_that_layers_do_not_keep_is_refused(monkeypatch):
  bert = modeling.BertModel(CONFIG)
  call = type(bert.encoder).call

  def call_without(*arguments, **options):
    states, attention = call(*arguments, **options)
    return states, [None for _ in attention]

  monkeypatch.setattr(type(bert.encoder), "call", call_without)
  assert bert(IDS).attention_probs == ()
  with pytest.raises(ValueError) as caught:
    bert(IDS, return_attention_probs=True)
  assert (
    "BertModel returns no attention; in a training, layers that are recorded "
    "once or recomputed keep none" in str(caught.value)
  )
