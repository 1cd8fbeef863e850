"""bert.keras: BERT's AdamW in `fit` makes the updates of the programs."""

import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import modeling, run_classifier
from bert.encoders import encoder_table
from bert.inputs import feature_sets
import bert.keras
from bert.weights import checkpoints
import paths
import replicas
import tiny

RATE = 2e-3  # For a tiny model, instead of the example's.
NAMES = ("input_ids", "input_mask", "segment_ids")
PAGE = (paths.ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def make_model(encoder, steps):
  """Runs the example that puts a layer on an encoder and compiles it."""
  blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
  (code,) = [code for code in blocks if "model.compile(" in code]
  code = code.replace("(3e-4,", f"({RATE},")
  names = {"encoder": encoder, "steps": steps, "NAMES": NAMES, "bert": bert}
  exec(compile(code, "docs/python.md", "exec"), names)
  return names["model"]


def test_losses_of_fit_are_those_of_the_program(tmp_path, monkeypatch):
  """20 updates of changing batches; the rate of both rises and falls."""
  # Both draw other masks.
  monkeypatch.setattr(modeling, "dropout", lambda x, rate, seed: x)
  sources = []
  make_input = feature_sets.FeatureSet.training_input
  monkeypatch.setattr(
    feature_sets.FeatureSet,
    "training_input",
    lambda *args: sources.append(make_input(*args)) or sources[-1],
  )
  # Weights so large that gradients are clipped.
  tiny.write_model(tmp_path, {"initializer_range": 0.5})
  examples = tiny.make_examples(range(40))
  given = {
    "train_data": [{"text": t, "label": label} for t, label in examples],
    "max_seq_length": tiny.SEQUENCE,
    "train_batch_size": 8,
    "warmup_proportion": 0.1,
  }
  # The head starts with the weights of a short training, too.
  start = run_classifier.run(
    **given,
    bert_config_file=tmp_path / "config.json",
    vocab_file=tmp_path / "vocab.txt",
    num_train_epochs=1,
    output_dir=tmp_path / "start",
  )
  result = run_classifier.run(
    **given,
    model=start.output_dir,
    num_train_epochs=4,
    learning_rate=RATE,
    iterations_per_loop=1,  # Each update is a point of the curves.
    output_dir=tmp_path / "out",
  )
  wanted = [point["loss"] for point in result.history]

  model = make_model(bert.load_encoder(start.output_dir), 20)
  reader = tf.train.load_checkpoint(
    checkpoints.latest_checkpoint(start.output_dir)
  )
  head = [reader.get_tensor(f"output_{name}") for name in ("weights", "bias")]
  model.get_layer("output").set_weights([head[0].T, head[1]])
  source = sources[-1]
  batches = source.rows().batch(8).take(20)
  batches = batches.map(lambda numbers, serialized: source.parse(serialized))
  batches = batches.map(lambda x: ({n: x[n] for n in NAMES}, x["label_ids"]))
  # An epoch reports the mean loss of its batches: of one.
  history = model.fit(
    batches, epochs=20, steps_per_epoch=1, shuffle=False, verbose=0
  ).history
  assert len(wanted) == 20 and max(wanted) - min(wanted) > 0.1
  assert max(point["gradient_norm"] for point in result.history) > 1.5
  np.testing.assert_allclose(history["loss"], wanted, atol=1e-4)

  # The weights after the last update are equal, too.
  variables = {v.path: v for v in model.trainable_variables}
  reader = tf.train.load_checkpoint(
    checkpoints.latest_checkpoint(result.output_dir)
  )
  for path in ("bert/embeddings/word_embeddings", "bert/pooler/dense/kernel"):
    np.testing.assert_allclose(
      variables[path], reader.get_tensor(path), atol=1e-5
    )


def make_small():
  """A word table of a sentence with a repeated word, and a layer."""
  keras.utils.set_random_seed(1)
  ids = keras.Input([4], dtype="int32")
  words = keras.layers.Embedding(5, 3, name="words")(ids)
  output = keras.layers.Dense(1, name="output")(keras.ops.mean(words, axis=1))
  return keras.Model(ids, output)


IDS, TARGETS = np.array([[1, 1, 1, 2], [3, 1, 4, 4]]), np.array([[9.0], [-9.0]])


@pytest.mark.parametrize("corrects_bias", [False, True])
@pytest.mark.slow
def test_a_file_has_what_the_next_update_needs(tmp_path, corrects_bias):
  whole, part = make_small(), make_small()
  for model, epochs in ((whole, 6), (part, 2)):
    optimizer = bert.keras.AdamW(0.1, 6, 2, corrects_bias)
    model.compile(optimizer, "mse")
    model.fit(IDS, TARGETS, epochs=epochs, shuffle=False, verbose=0)
  part.save(tmp_path / "part.keras")

  again = keras.saving.load_model(tmp_path / "part.keras")
  assert again.optimizer.get_config() == whole.optimizer.get_config()
  again.fit(IDS, TARGETS, epochs=4, shuffle=False, verbose=0)
  for found, wanted in zip(again.variables, whole.variables, strict=True):
    np.testing.assert_array_equal(found, wanted)
  assert int(again.optimizer.iterations) == 6


@pytest.mark.slow
def test_another_process_opens_a_file(tmp_path):
  tiny.write_model(tmp_path)
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  encoder = encoder_table.make_encoder(config)
  make_model(encoder, 20).save(tmp_path / "model.keras")
  code = "import keras, bert.keras; "
  code += "print(keras.saving.load_model('model.keras').optimizer.name)"
  command = [sys.executable, "-c", code]
  environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
  shown = subprocess.run(
    command,
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=True,
    env=environment,
  ).stdout
  assert shown == "bert_adamw\n"


@pytest.mark.slow
def test_callbacks_read_the_learning_rate():
  model = make_small()
  model.compile(bert.keras.AdamW(0.1, 5, num_warmup_steps=2), "mse")
  rates = []
  callback = keras.callbacks.LambdaCallback(
    on_epoch_begin=lambda *_: rates.append(float(model.optimizer.learning_rate))
  )
  model.fit(IDS, TARGETS, epochs=6, callbacks=[callback], verbose=0)
  np.testing.assert_allclose(rates, [0, 0.05, 0.06, 0.04, 0.02, 0], atol=1e-7)
  # Nobody can change it without an error.
  with pytest.raises(AttributeError):
    model.optimizer.learning_rate = 0.1


@pytest.mark.slow
def test_float16_scales_the_loss(tmp_path):
  tiny.write_model(tmp_path)
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  keras.config.set_dtype_policy("mixed_float16")
  try:
    model = make_model(encoder_table.make_encoder(config), 20)
  finally:
    keras.config.set_dtype_policy("float32")
  inputs = {name: np.ones([8, 4], np.int32) for name in NAMES}
  inputs["segment_ids"][:] = 0
  labels = np.ones([8], np.int32)
  history = model.fit(inputs, labels, epochs=20, verbose=0).history
  assert history["loss"][-1] < history["loss"][0] - 0.1


@pytest.mark.slow
def test_what_it_refuses():
  with pytest.raises(ValueError, match="num_train_steps is 0, expected 1"):
    bert.keras.AdamW(2e-5, 0)
  with pytest.raises(TypeError, match="clipnorm"):
    bert.keras.AdamW(2e-5, 1, clipnorm=1.0)

  model = make_small()
  model.compile(bert.keras.AdamW(2e-5, 9), "mse")
  model.fit(IDS, TARGETS, verbose=0)
  model.get_layer("words").trainable = False
  model.compile(model.optimizer, "mse")
  with pytest.raises(ValueError, match="compile with a new AdamW"):
    model.fit(IDS, TARGETS, verbose=0)

  with (
    replicas.two_replicas().scope(),
    pytest.raises(ValueError, match="one de"),
  ):
    model = make_small()
    model.compile(bert.keras.AdamW(2e-5, 9), "mse")
    model.fit(IDS, TARGETS, verbose=0)
