"""BERT as a Keras layer: fit, dropout, configs, saved models, checkpoints."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import any_model
import bert
from bert import heads, modeling, tokenization
from bert.contrib import feature_tagger
from bert.encoders import encoder_table
import bert.keras
from bert.weights import checkpoints
import tiny

NAMES = ("input_ids", "input_mask", "segment_ids")
CONFIG = dataclasses.replace(any_model.CONFIG, initializer_range=0.3)
WITHOUT_DROPOUT = dataclasses.replace(CONFIG, **tiny.NO_DROPOUT)
IDS = np.array([[2, 11, 5, 12, 3, 0], [2, 8, 13, 14, 15, 3]], np.int32)
MASK = (IDS > 0).astype(np.int32)
INPUTS = dict(zip(NAMES, (IDS, MASK, 0 * IDS), strict=True))


def make_inputs():
  return {name: keras.Input([None], dtype="int32", name=name) for name in NAMES}


def make_classifier(encoder):
  """Puts a classifier of two labels on an encoder, as users of Keras do."""
  inputs = make_inputs()
  pooled = encoder(*inputs.values()).pooled_output
  pooled = keras.layers.Dropout(0.1)(pooled)
  initializer = modeling.make_initializer(encoder.config)
  scores = keras.layers.Dense(2, kernel_initializer=initializer)(pooled)
  return keras.Model(inputs, scores)


def test_dropout_draws_its_own_seeds_in_training():
  encoder = modeling.BertModel(CONFIG)

  def pool(**options):
    return encoder(IDS, **options).pooled_output.numpy()

  keras.utils.set_random_seed(1)
  first, second = pool(training=True), pool(training=True)
  assert np.abs(first - second).max() > 1e-4 < np.abs(first - pool()).max()
  keras.utils.set_random_seed(1)
  np.testing.assert_array_equal(first, pool(training=True))
  # A seed decides alone.
  seed = tf.constant([1, 2])
  np.testing.assert_array_equal(pool(seed=seed), pool(seed=seed, training=True))


@pytest.mark.parametrize("has_dropout", [True, False])
def test_dropout_acts_in_fit(has_dropout):
  encoder = modeling.BertModel(CONFIG if has_dropout else WITHOUT_DROPOUT)
  inputs = make_inputs()
  model = keras.Model(inputs, encoder(*inputs.values()).pooled_output)
  model.compile(keras.optimizers.SGD(0.0), "mse")
  targets = np.zeros([2, 8], np.float32)
  losses = model.fit(INPUTS, targets, epochs=2, verbose=0).history["loss"]
  assert (losses[0] != losses[1]) == has_dropout
  assert not any("seed" in variable.path for variable in model.variables)


MODELS = {
  "classifier": lambda: heads.ClassifierModel(CONFIG, 2, dropout_rate=0.0),
  "tagger": lambda: heads.TaggerModel(CONFIG, 2, dropout_rate=0.0),
  "span": lambda: heads.SpanModel(CONFIG),
  "features": lambda: feature_tagger.FeatureTaggerModel(
    WITHOUT_DROPOUT, 2, feature_layers=[-1], lstm_size=4
  ),
}


@pytest.mark.parametrize("name", MODELS)
def test_dropout_of_heads_acts_in_training(name):
  model = MODELS[name]()
  outputs = [
    np.stack(tf.nest.flatten(model(IDS, MASK, 0 * IDS, training=is_training)))
    for is_training in (True, True, False, False)
  ]
  assert np.abs(outputs[0] - outputs[1]).max() > 1e-5
  np.testing.assert_array_equal(outputs[2], outputs[3])


def test_a_frozen_encoder_has_no_dropout():
  model = feature_tagger.FeatureTaggerModel(
    CONFIG, 2, feature_layers=[-1], lstm_size=4, dropout_rate=0.0
  )
  first, second = (model(IDS, MASK, 0 * IDS, training=True) for _ in range(2))
  np.testing.assert_array_equal(first, second)


def test_config_of_the_layer():
  encoder = modeling.BertModel(CONFIG, "mixed_bfloat16", name="encoder")
  encoder.trainable = False
  content = json.loads(json.dumps(encoder.get_config()))
  again = modeling.BertModel.from_config(content)
  assert again.config == CONFIG and again.name == "encoder"
  assert again.compute_dtype == "bfloat16" and not again.trainable
  assert again.variables and not again.trainable_variables
  content["config"]["hidden_sise"] = 3
  with pytest.raises(ValueError, match="unknown keys: hidden_sise"):
    modeling.BertModel.from_config(content)


@pytest.mark.parametrize("name", ["transformer", "text_cnn", "bilstm"])
def test_keras_files(tmp_path, name):
  config_class = encoder_table.find_encoder(name).config_class
  is_bert = issubclass(config_class, modeling.BertConfig)
  fields = dataclasses.asdict(CONFIG)
  config = config_class(**fields) if is_bert else config_class(30, 8)
  model = make_classifier(encoder_table.make_encoder(config))
  model.save(tmp_path / "model.keras")
  again = keras.saving.load_model(tmp_path / "model.keras")
  np.testing.assert_array_equal(model(INPUTS), again(INPUTS))
  paths_of = [
    [v.path for v in m.variables if v.path.startswith("bert/")]
    for m in (model, again)
  ]
  assert paths_of[0] == paths_of[1] != []


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", ["classifier", "tagger", "span", "features"])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_keras_files_of_heads(tmp_path, name, dtype):
  keras.config.set_dtype_policy(dtype)
  model = MODELS[name]()
  keras.config.set_dtype_policy("float32")
  outputs = model(*INPUTS.values())
  model.save(tmp_path / "model.keras")
  again = keras.saving.load_model(tmp_path / "model.keras")
  assert again.get_config() == model.get_config()
  assert again.bert.dtype_policy.name == dtype
  for a, b in zip(
    tf.nest.flatten(outputs),
    tf.nest.flatten(again(*INPUTS.values())),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_the_global_policy_is_followed(tmp_path, dtype):
  any_model.write_google(tmp_path, encoder_table.make_encoder(CONFIG))
  keras.config.set_dtype_policy(dtype)
  try:
    encoders = [
      modeling.BertModel(CONFIG),
      bert.load_encoder(str(tmp_path)),
      heads.TaggerModel(CONFIG, 2).bert,
      bert.load_encoder(str(tmp_path), "float32"),
    ]
  finally:
    keras.config.set_dtype_policy("float32")
  found = [encoder(IDS).pooled_output.dtype.name for encoder in encoders]
  assert found == [dtype.removeprefix("mixed_")] * 3 + ["float32"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8_from_float32"])
def test_other_policies_are_refused(dtype):
  keras.config.set_dtype_policy(dtype)
  try:
    with pytest.raises(
      ValueError, match=f"dtype is {dtype}; known: float32, m"
    ):
      heads.ClassifierModel(CONFIG, 2)
  finally:
    keras.config.set_dtype_policy("float32")


def test_two_encoders_in_one_model(tmp_path):
  encoder = encoder_table.make_encoder(CONFIG)
  any_model.write_google(tmp_path, encoder)
  inputs = make_inputs()
  pooled = [
    bert.load_encoder(str(tmp_path), name=name)(*inputs.values()).pooled_output
    for name in ("questions", "answers")
  ]
  model = keras.Model(inputs, pooled)
  for output in model(INPUTS):
    np.testing.assert_array_equal(
      encoder(*INPUTS.values()).pooled_output, output
    )


def test_saved_models(tmp_path):
  models = {name: MODELS[name]() for name in ("classifier", "span", "features")}
  models["functional"] = make_classifier(modeling.BertModel(CONFIG))
  for name, model in models.items():
    tf.saved_model.save(model, str(tmp_path / name))
    serve = tf.saved_model.load(str(tmp_path / name)).signatures
    serve = serve["serving_default"]
    is_functional = name == "functional"
    expected = model(INPUTS) if is_functional else model(*INPUTS.values())
    keys = ("inputs", "inputs_1", "inputs_2") if is_functional else NAMES
    tensors = map(tf.constant, INPUTS.values())
    found = serve(**dict(zip(keys, tensors, strict=True)))
    found = [found[key] for key in sorted(found, reverse=True)]
    for a, b in zip(found, tf.nest.flatten(expected), strict=True):
      np.testing.assert_allclose(a, b, atol=1e-5)


def test_folders_of_google_and_hugging_face(tmp_path):
  encoder = encoder_table.make_encoder(CONFIG)
  any_model.write_google(tmp_path / "google", encoder)
  any_model.convert(input=tmp_path / "google", output=tmp_path / "theirs")
  for name in ("google", "theirs"):
    again = bert.load_encoder(str(tmp_path / name))
    np.testing.assert_array_equal(
      encoder(IDS).pooled_output, again(IDS).pooled_output
    )


def test_a_missing_pooler_is_a_warning_and_a_missing_config_an_error(tmp_path):
  (tmp_path / "bert_config.json").write_text(CONFIG.to_json_string())
  variables = checkpoints.model_variables(modeling.BertModel(CONFIG))
  kept = {n: v for n, v in variables.items() if "/pooler/" not in n}
  checkpoints.save(str(tmp_path), 0, kept, keep=1)
  with pytest.warns(UserWarning, match="lacks bert/pooler/dense/bias, bert/po"):
    bert.load_encoder(str(tmp_path))
  (tmp_path / "bert_config.json").unlink()
  with pytest.raises(ValueError, match="holds no bert_config.json"):
    bert.load_encoder(str(tmp_path))


@pytest.mark.slow
def test_fit_learns_as_run_classifier_does(tmp_path):
  epochs, rate, train, dev = 6, 2e-3, range(320), range(320, 400)
  tiny.write_tsv(tmp_path / "train.tsv", train)
  tiny.write_tsv(tmp_path / "dev.tsv", dev)
  flags = {"num_train_epochs": epochs, "learning_rate": rate, "do_eval": True}
  flags |= {"data_dir": tmp_path, "do_train": True}
  tiny.succeed("run_classifier", tmp_path, **flags)
  wanted = tiny.read_results(tmp_path / "out")["eval_accuracy"]
  tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))

  def encode(numbers):
    texts, labels = zip(*tiny.make_examples(numbers), strict=True)
    ids = [[2, *tokenizer.encode(text), 3] for text in texts]
    ids = keras.utils.pad_sequences(ids, tiny.SEQUENCE, padding="post")
    features = (ids, (ids > 0).astype("int32"), np.zeros_like(ids))
    labels = np.array([label == "pos" for label in labels], int)
    return dict(zip(NAMES, features, strict=True)), labels

  optimizer = bert.keras.AdamW(rate, 320 // 8 * epochs)
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  keras.utils.set_random_seed(1)
  model = make_classifier(modeling.BertModel(config))
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(optimizer, loss, metrics=["accuracy"])
  model.fit(*encode(train), batch_size=8, epochs=epochs, verbose=0)
  _, found = model.evaluate(*encode(dev), verbose=0)
  assert wanted > 0.95
  assert found == pytest.approx(wanted, abs=0.05)
