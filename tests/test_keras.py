"""BERT as a Keras layer: fit, dropout, configs, saved models, checkpoints."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import any_model
import bert
from data import packing
from encoders import encoder_table
import heads
import modeling
import optimization
import paths
import program_flags
from tasks import feature_tagger
import tokenization
from weights import checkpoints

NAMES = ("input_ids", "input_mask", "segment_ids")
CONFIG = modeling.BertConfig(
  vocab_size=19,
  hidden_size=16,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=32,
  type_vocab_size=2,
  max_position_embeddings=16,
)
WITHOUT_DROPOUT = dataclasses.replace(
  CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
IDS = np.array([[2, 11, 5, 12, 3, 0], [2, 8, 13, 14, 15, 3]], np.int32)
MASK = (IDS > 0).astype(np.int32)
INPUTS = dict(zip(NAMES, (IDS, MASK, 0 * IDS), strict=True))


def make_classifier(encoder):
  """Puts a classifier of two labels on an encoder, as users of Keras do."""
  inputs = {
    name: keras.Input([None], dtype="int32", name=name) for name in NAMES
  }
  pooled = encoder(*inputs.values()).pooled_output
  pooled = keras.layers.Dropout(0.1)(pooled)
  initializer = modeling.make_initializer(encoder.config)
  scores = keras.layers.Dense(2, kernel_initializer=initializer)(pooled)
  return keras.Model(inputs, scores)


def test_dropout_draws_its_own_seeds_in_training():
  encoder = modeling.BertModel(CONFIG)
  plain = encoder(IDS).pooled_output
  keras.utils.set_random_seed(1)
  first, second = (encoder(IDS, training=True).pooled_output for _ in range(2))
  assert np.abs(first - second).max() > 1e-4 < np.abs(first - plain).max()
  keras.utils.set_random_seed(1)
  again = encoder(IDS, training=True).pooled_output
  np.testing.assert_array_equal(first, again)
  np.testing.assert_array_equal(
    plain, encoder(IDS, training=False).pooled_output
  )
  # A seed decides alone.
  seed = tf.constant([1, 2])
  np.testing.assert_array_equal(
    encoder(IDS, seed=seed).pooled_output,
    encoder(IDS, seed=seed, training=True).pooled_output,
  )


@pytest.mark.parametrize("has_dropout", [True, False])
def test_dropout_acts_in_fit(has_dropout):
  encoder = modeling.BertModel(CONFIG if has_dropout else WITHOUT_DROPOUT)
  inputs = {
    name: keras.Input([None], dtype="int32", name=name) for name in NAMES
  }
  model = keras.Model(inputs, encoder(*inputs.values()).pooled_output)
  model.compile(keras.optimizers.SGD(0.0), "mse")
  targets = np.zeros([2, 16], np.float32)
  losses = model.fit(INPUTS, targets, epochs=2, verbose=0).history["loss"]
  assert (losses[0] != losses[1]) == has_dropout
  assert not any("seed" in variable.path for variable in model.variables)


MODELS = {
  "classifier": lambda: heads.ClassifierModel(CONFIG, 2, dropout_rate=0.0),
  "tagger": lambda: heads.TaggerModel(CONFIG, 2, dropout_rate=0.0),
  "span": lambda: heads.SpanModel(CONFIG),
  "features": lambda: feature_tagger.FeatureTaggerModel(
    WITHOUT_DROPOUT, 2, layers=[-1], lstm_size=4
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
    CONFIG, 2, layers=[-1], lstm_size=4, dropout_rate=0.0
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


@pytest.mark.parametrize("name", encoder_table.ENCODERS)
def test_keras_files(tmp_path, name):
  config_class = encoder_table.ENCODERS[name].config_class
  is_bert = issubclass(config_class, modeling.BertConfig)
  fields = dataclasses.asdict(CONFIG)
  config = config_class(**fields) if is_bert else config_class(19, 16)
  model = make_classifier(encoder_table.make_encoder(config))
  model.save(tmp_path / "model.keras")
  again = keras.saving.load_model(tmp_path / "model.keras")
  np.testing.assert_array_equal(model(INPUTS), again(INPUTS))
  paths_of = [
    [v.path for v in m.variables if v.path.startswith("bert/")]
    for m in (model, again)
  ]
  assert paths_of[0] == paths_of[1] != []


def test_saved_models(tmp_path):
  models = {name: make() for name, make in MODELS.items()}
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


def save_google(folder, encoder, leaves_out="none"):
  folder.mkdir()
  (folder / "bert_config.json").write_text(encoder.config.to_json_string())
  variables = checkpoints.model_variables(encoder)
  kept = {n: v for n, v in variables.items() if leaves_out not in n}
  checkpoints.save(str(folder), 0, kept, keep=1)


def test_a_folder_of_google(tmp_path):
  encoder = encoder_table.make_encoder(CONFIG)
  save_google(tmp_path / "bert", encoder)
  again = bert.load_encoder(str(tmp_path / "bert"))
  np.testing.assert_array_equal(
    encoder(IDS).pooled_output, again(IDS).pooled_output
  )
  (tmp_path / "bert" / "bert_config.json").unlink()
  with pytest.raises(ValueError, match="bert: holds no bert_config.json"):
    bert.load_encoder(str(tmp_path / "bert"))


def test_a_missing_pooler_is_a_warning(tmp_path):
  save_google(tmp_path / "bert", modeling.BertModel(CONFIG), "/pooler/")
  with pytest.warns(UserWarning, match="lacks bert/pooler/dense/bias, bert/po"):
    bert.load_encoder(str(tmp_path / "bert"))


def test_a_folder_of_hugging_face(tmp_path):
  encoder = modeling.BertModel(any_model.CONFIG)
  any_model.write_google(tmp_path / "google", encoder)
  folder, inputs = tmp_path / "theirs", any_model.make_inputs()
  any_model.convert(input=tmp_path / "google", output=folder)
  again = bert.load_encoder(str(folder))
  np.testing.assert_allclose(
    encoder(*inputs).pooled_output, again(*inputs).pooled_output, atol=1e-5
  )


SMS = paths.SHARED / "data" / "sms_spam.tsv"
VOCAB = paths.SHARED / "data" / "vocab" / "uncased_vocab.txt"
LENGTH, BATCH, EPOCHS, RATE = 64, 32, 3, 3e-4


@pytest.mark.slow
@pytest.mark.skipif(not SMS.exists(), reason=f"{SMS} is absent")
def test_fit_learns_as_run_classifier_does(tmp_path):
  config = dataclasses.replace(
    CONFIG, vocab_size=30522, hidden_size=64, max_position_embeddings=LENGTH
  )
  save_google(tmp_path / "start", modeling.BertModel(config))
  lines = SMS.read_bytes().decode().split("\r\n")
  rows = [line for line in lines if line]
  parts = {"dev": rows[::5], "train": [r for i, r in enumerate(rows) if i % 5]}
  for name, lines in parts.items():
    text = "\n".join(["label\ttext", *lines])
    (tmp_path / f"{name}.tsv").write_text(text, "utf-8")
  result = program_flags.run_here(
    program_flags.command(
      "run_classifier",
      task_name="file",
      model=tmp_path / "start",
      vocab_file=VOCAB,
      data_dir=tmp_path,
      output_dir=tmp_path / "out",
      do_train=True,
      do_eval=True,
      max_seq_length=LENGTH,
      train_batch_size=BATCH,
      num_train_epochs=EPOCHS,
      learning_rate=RATE,
    )
  )
  assert result.returncode == 0, result.stderr
  path = tmp_path / "out" / "eval_metrics.json"
  wanted = json.loads(path.read_text())["metrics"]["accuracy"]

  tokenizer = tokenization.FullTokenizer(str(VOCAB))

  def load(lines):
    arrays = {name: np.zeros([len(lines), LENGTH], np.int32) for name in NAMES}
    for i, line in enumerate(lines):
      ids = tokenizer.encode(line.split("\t")[1])[: LENGTH - 2]
      packed = packing.pack(ids, [], cls_id=101, sep_id=102)
      for array, values in zip(arrays.values(), packed, strict=True):
        array[i, : len(values)] = values
    return arrays, np.array([line.startswith("spam") for line in lines], int)

  steps = EPOCHS * (len(parts["train"]) // BATCH)

  class Rate(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
      return optimization.learning_rate_at(step, RATE, steps, steps // 10)

  optimizer = keras.optimizers.AdamW(
    Rate(), weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0
  )
  optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
  model = make_classifier(bert.load_encoder(str(tmp_path / "start")))
  loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile(optimizer, loss, metrics=["accuracy"])
  keras.utils.set_random_seed(1)
  model.fit(*load(parts["train"]), batch_size=BATCH, epochs=EPOCHS, verbose=0)
  _, found = model.evaluate(*load(parts["dev"]), verbose=0)
  print(f"accuracy: run_classifier.py {wanted:.4f}, fit {found:.4f}")
  assert wanted > 0.95
  assert found == pytest.approx(wanted, abs=0.01)
