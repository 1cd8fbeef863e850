"""The table of encoders, and what each of them has to do."""

import functools
import json
import shutil
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, optimization
from bert.encoders import compiled, encoder_table
from bert.training import memory, training_plan
from bert.weights import checkpoints
import tiny_training

SIZES = {
  "vocab_size": 40,
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "max_position_embeddings": 16,
  "type_vocab_size": 2,
  "initializer_range": 0.2,
}
OTHERS = {
  "transformer": {"num_attention_heads": 2, "intermediate_size": 32},
  "text_cnn": {"num_filters": 8},
}
CONFIGS = {
  name: encoder_table.make_config(
    SIZES | {"encoder_type": name} | OTHERS.get(name, {})
  )
  for name in ("transformer", "text_cnn", "bilstm")
}
SMALL = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1}
TRANSFORMER = SMALL | {"num_attention_heads": 2}
CAUSAL = TRANSFORMER | {"causal_attention": True}
TEXT_CNN = {"encoder_type": "text_cnn"}
IDS = np.array([[2, 5, 6, 7, 3], [2, 7, 3, 0, 0]], np.int32)
MASK = (IDS > 0).astype(np.int32)
SEED = tf.constant([1, 2])
every_encoder = pytest.mark.parametrize("name", CONFIGS)
# Takes long for each, and all share the code that it is about.
slow = [pytest.param(name, marks=pytest.mark.slow) for name in [*CONFIGS][1:]]
one_encoder_unless_slow = pytest.mark.parametrize(
  "name", ["transformer", *slow]
)


def make(name, dtype="float32"):
  keras.utils.set_random_seed(1)
  return encoder_table.make_encoder(CONFIGS[name], dtype)


@every_encoder
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_shapes_dtypes_and_names(name, dtype):
  encoder = make(name, dtype)
  output = encoder(IDS, MASK, return_hidden_states=True)
  assert output.sequence_output.shape == (2, 5, 16)
  assert output.pooled_output.shape == (2, 16)
  assert [state.shape for state in output.hidden_states] == [(2, 5, 16)] * 3
  expected = "bfloat16" if "bfloat16" in dtype else "float32"
  assert {x.dtype.name for x in (*output[:2], *output[2])} == {expected}
  assert {v.dtype for v in encoder.variables} == {"float32"}
  assert encoder.embeddings.word_embeddings.shape == (40, 16)
  paths = [v.path for v in encoder.variables]
  # What freezing, layer-wise rates and gradual unfreezing go by.
  layers = [optimization.layer_of(path) for path in paths]
  pooler = [path for path in paths if optimization.layer_of(path) is None]
  assert set(layers) == {0, 1, 2, None}
  assert {path.rsplit("/", 2)[0] for path in pooler} == {"bert/pooler"}
  assert paths == [v.path for v in make(name).variables]


@every_encoder
def test_the_user_s_keras_json_changes_nothing(name):
  expected = make(name)(IDS, MASK)
  keras.config.set_floatx("float16")
  keras.config.set_image_data_format("channels_first")
  try:
    found = make(name)(IDS, MASK)
  finally:
    keras.config.set_floatx("float32")
    keras.config.set_image_data_format("channels_last")
  for ours, theirs in zip(found[:2], expected[:2], strict=True):
    np.testing.assert_array_equal(ours, theirs)


@every_encoder
def test_padding_and_its_tokens_change_nothing(name):
  encoder = make(name)
  padded = encoder(np.where(MASK, IDS, 9), MASK, return_hidden_states=True)
  alone = encoder(IDS[1:, :3], return_hidden_states=True)
  close = functools.partial(np.testing.assert_allclose, atol=2e-6)
  close(padded.pooled_output[1:], alone.pooled_output)
  states = zip(padded.hidden_states, alone.hidden_states, strict=True)
  for state, other in states:
    close(state[1:, :3], other)


@every_encoder
def test_only_a_seed_makes_it_random(name):
  encoder = make(name)
  first, again, dropped, redrawn = (
    encoder(IDS, MASK, seed=seed).sequence_output.numpy()
    for seed in (None, None, SEED, SEED)
  )
  np.testing.assert_array_equal(first, again)
  np.testing.assert_array_equal(dropped, redrawn)
  assert not np.allclose(first, dropped)


@every_encoder
def test_moving_a_mask_changes_what_is_guessed(name):
  model = heads.PretrainingModel(CONFIGS[name])
  texts = (1, np.array([[2, 4, 6, 7, 3]])), (3, np.array([[2, 6, 7, 4, 3]]))
  logits = [
    model(ids, np.ones_like(ids), 0 * ids, np.array([[at]])).masked_lm_logits
    for at, ids in texts
  ]
  assert np.abs(logits[0] - logits[1]).max() > 0.1


def differentiate(name, dtype="float32", recomputes=False, **options):
  encoder = make(name, dtype)
  if recomputes:
    memory.recompute_layers(encoder)

  @tf.function(autograph=False, **options)
  def compute():
    with tf.GradientTape() as tape:
      output = encoder(IDS, MASK, seed=SEED)
      tokens = tf.cast(output.sequence_output, tf.float32) * MASK[..., None]
      pooled = tf.cast(output.pooled_output, tf.float32)
      weights = tf.cos(tf.range(16.0))  # A plain sum has no gradient.
      loss = tf.reduce_sum(tokens**2 * weights)
      loss += tf.reduce_sum(pooled * weights)
    return tape.gradient(loss, {v.path: v.value for v in variables})

  variables = encoder.trainable_variables
  gradients = compute()
  assert [path for path, x in gradients.items() if x is None] == []
  return {k: tf.convert_to_tensor(x).numpy() for k, x in gradients.items()}


@every_encoder
def test_every_variable_has_a_gradient(name):
  for path, gradient in differentiate(name).items():
    assert np.abs(gradient).max() > 0, path


@one_encoder_unless_slow
@pytest.mark.parametrize(
  "dtype", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)]
)
def test_gradients_can_be_recomputed(name, dtype):
  gradients = differentiate(name, dtype)
  again = differentiate(name, dtype, recomputes=True)
  for path, gradient in gradients.items():
    # Several gradients of one tensor may be added in another order.
    ulp = 2**-8 * np.abs(gradient).max() if dtype != "float32" else 0
    atol = 4 * ulp + 1e-5
    np.testing.assert_allclose(gradient, again[path], rtol=1e-5, atol=atol)


@one_encoder_unless_slow
def test_xla_compiles_it(name):
  """What a TPU needs."""
  compiled = differentiate(name, jit_compile=True)
  for path, gradient in differentiate(name).items():
    np.testing.assert_allclose(compiled[path], gradient, atol=1e-4)


@pytest.mark.slow  # tests/test_programs.py resumes a transformer.
@every_encoder
def test_resumes_to_the_bit(name, tmp_path):
  options = {"config": CONFIGS[name], "save_checkpoints_steps": 2}
  tiny_training.run(tmp_path / "whole", 4, **options)
  without = shutil.ignore_patterns("*-4.*")
  shutil.copytree(tmp_path / "whole", tmp_path / "parts", ignore=without)
  tiny_training.run(tmp_path / "parts", 4, **options)
  whole = tiny_training.saved(tmp_path / "whole", 4)
  parts = tiny_training.saved(tmp_path / "parts", 4)
  assert whole.keys() == parts.keys()
  for path, value in whole.items():
    np.testing.assert_array_equal(value, parts[path], err_msg=path)


def make_module(encoder, shape):
  module = tf.Module()
  module.weights = [variable.value for variable in encoder.variables]
  specs = [tf.TensorSpec(shape, tf.int32, x) for x in ("ids", "mask")]
  module.pool = tf.function(lambda *x: encoder(*x).pooled_output, specs)
  return module


@every_encoder
def test_saved_models_hold_it(name, tmp_path):
  encoder = make(name)
  tf.saved_model.save(make_module(encoder, [None, None]), str(tmp_path))
  loaded = tf.saved_model.load(str(tmp_path))
  for part in (slice(None), slice(1)):  # Sizes are those of the call.
    inputs = IDS[part], MASK[part]
    expected = encoder(*inputs).pooled_output
    np.testing.assert_allclose(loaded.pool(*inputs), expected, atol=1e-6)


@one_encoder_unless_slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # It is to be a package.
def test_litert_holds_it(name):
  encoder = make(name)
  module = make_module(encoder, [1, 5])
  convert = tf.lite.TFLiteConverter.from_concrete_functions
  content = convert([module.pool.get_concrete_function()], module).convert()
  runner = tf.lite.Interpreter(model_content=content).get_signature_runner()
  [found] = runner(ids=IDS[1:], mask=MASK[1:]).values()
  expected = encoder(IDS[1:], MASK[1:]).pooled_output
  np.testing.assert_allclose(found, expected, atol=1e-6)


@every_encoder
def test_more_tokens_take_more_memory(name):
  config, model = CONFIGS[name], heads.ClassifierModel(CONFIGS[name], 2)
  optimizer = optimization.create_optimizer(
    model.trainable_variables, 1e-4, num_train_steps=2, num_warmup_steps=1
  )
  plan = training_plan.TrainingPlan("", 2, 8, max_seq_length=8)
  task = training_plan.TrainingTask(model, optimizer, None, None, plan)
  size = memory.size_of_update(task, {"input_ids": tf.TensorSpec([8, 8])})
  assert size.trained_layers == 2
  sizes = (size, size._replace(sequences=16))
  needed = [memory.estimate(config, size) for size in sizes]
  assert 0 < needed[0] < needed[1]


@every_encoder
def test_the_config_survives_a_round_trip(name, tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text(CONFIGS[name].to_json_string())
  config = checkpoints.read_config(str(path))
  assert config == CONFIGS[name]
  assert ("encoder_type" in path.read_text()) == (name != "transformer")


@pytest.mark.parametrize("name", [*CONFIGS, "causal"])
def test_what_a_config_says_of_its_encoder_is_true(name):
  fields = {**CAUSAL, "encoder_type": "variant", "type_vocab_size": 2}
  config = CONFIGS.get(name) or encoder_table.make_config(fields)
  encoder = encoder_table.make_encoder(config)
  output, changed = (encoder(ids, MASK) for ids in (IDS, IDS + 4 * (IDS == 7)))
  # The token 7, which another one takes the place of, is no first one.
  is_same = np.allclose(output[0][:, 0], changed[0][:, 0], atol=1e-6)
  assert is_same != config.is_bidirectional
  states = {
    "cls": output.sequence_output[:, 0],
    "last": tf.gather(output.sequence_output, MASK.sum(1) - 1, batch_dims=1),
    "max": heads.pool(output.sequence_output, MASK, "max"),
  }
  pooled = encoder.pooler.dense(states[config.pooler_input])
  np.testing.assert_allclose(output.pooled_output, pooled, atol=1e-6)
  paths = {v.path for v in heads.PretrainingModel(config).variables}
  name = "bert/embeddings/LayerNorm/gamma"
  assert (name in paths) == config.has_embedding_norm
  name = "cls/predictions/transform/dense/kernel"
  assert (name in paths) == config.has_lm_transform


def test_an_old_config_names_its_encoder_when_it_is_written_again():
  config = encoder_table.make_config(CAUSAL)
  written = json.loads(config.to_json_string())
  assert written["encoder_type"] == "variant"
  # Runs compare it with files of earlier ones, which state the default.
  assert written["layer_norm_eps"] == modeling.LAYER_NORM_EPSILON
  assert encoder_table.make_config(written) == config


@every_encoder
def test_attention_is_returned_or_refused(name):
  encoder = make(name)
  if name == "transformer":
    probs = encoder(IDS, MASK, return_attention_probs=True).attention_probs
    assert [p.shape for p in probs] == [(2, 2, 5, 5)] * 2
  else:
    with pytest.raises(ValueError, match="Model returns no attention"):
      encoder(IDS, MASK, return_attention_probs=True)


@every_encoder
def test_the_config_of_another_encoder_is_refused(name):
  other = "transformer" if name != "transformer" else "text_cnn"
  with pytest.raises(TypeError, match="Model takes a .*Config, not a .*Config"):
    encoder_table.find_encoder(name).model_class(CONFIGS[other])


def test_a_file_without_encoder_type_is_of_a_transformer(tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text(json.dumps(TRANSFORMER))
  config = checkpoints.read_config(str(path))
  assert config == modeling.BertConfig(30, 8, 1, 2)
  assert "encoder_type" not in config.to_json_string()
  named = TRANSFORMER | {"encoder_type": "transformer"}
  assert encoder_table.make_config(named) == config
  assert type(encoder_table.make_encoder(config)) is compiled.BertModel


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"encoder_type": "rnn"}, "known: transformer, text_cnn, bilstm"),
    ({"encoder_type": ["rnn"]}, "encoder_type is ['rnn']; known: transfor"),
    ({"encoder_type": "gpt"}, "encoder_type is 'gpt'; known: transformer"),
    ({"encoder_type": "a.b"}, "encoder_type is 'a.b'; known: transformer"),
    (
      TEXT_CNN | {"num_attention_heads": 2},
      "unknown keys: num_attention_heads",
    ),
    ({"filter_sizes": [2]}, "unknown keys: filter_sizes"),
    ({"encoder_type": "bilstm", "hidden_size": 3}, "hidden_size is 3; expec"),
    ({**CAUSAL, "embedding_size": 4}, "embedding_size is 4; with causal_att"),
    ({**CAUSAL, "layer_norm_eps": 0}, "layer_norm_eps is 0; expected a numb"),
    (TEXT_CNN | {"filter_sizes": []}, "filter_sizes is []"),
    (TEXT_CNN | {"filter_sizes": [0]}, "filter_sizes is [0]"),
    (TEXT_CNN | {"filter_sizes": [2, 2]}, "filter_sizes is [2, 2]"),
    (TEXT_CNN | {"filter_sizes": 3}, "filter_sizes is 3"),
    (TEXT_CNN | {"filter_sizes": ["2"]}, "filter_sizes is ['2']"),
  ],
)
def test_refuses(fields, message, tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text(json.dumps({**SMALL, **fields}))
  with pytest.raises(ValueError) as caught:
    checkpoints.read_config(str(path))
  assert str(caught.value).startswith(f"{path}: ")
  assert message in str(caught.value)


def test_what_an_encoder_of_contrib_fails_to_import_is_named(monkeypatch):
  monkeypatch.delitem(sys.modules, "bert.contrib.variant", raising=False)
  monkeypatch.setitem(sys.modules, "keras", None)
  with pytest.raises(ImportError, match="import of keras halted"):
    encoder_table.find_encoder("variant")
