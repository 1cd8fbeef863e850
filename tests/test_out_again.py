"""What we train opens elsewhere: in each reader itself, with the same answers.

The tests of the formats (test_transformers.py, contrib/test_keras_hub.py, ...)
compare every head; here a model takes the whole way, from a training and back
to texts.
"""

import os

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest
import tensorflow as tf

import any_model
import bert
from bert import tokenization
from bert.convert import models
from bert.weights import checkpoints
import program_flags
import tiny
import tiny_models

pytestmark = pytest.mark.slow  # Two trainings: twenty seconds.


def load_reader(name, file="bench"):
  return pytest.importorskip(name, reason=f"needs requirements/{file}.txt")


@pytest.fixture(name="run", scope="module")
def train_a_classifier(tmp_path_factory):
  """The output folder of a training."""
  folder = tmp_path_factory.mktemp("classifier")
  # Weights so large that texts get answers of their own.
  config = {"initializer_range": 0.7}
  program_flags.succeed(tiny.prepare("run_classifier", folder, config))
  return folder / "out"


@pytest.fixture(scope="module")
def expected(run):
  """Texts, and the probabilities that the program wrote, [N, labels]."""
  rows = (run / "predictions.tsv").read_text().splitlines()
  rows = [row.split("\t") for row in rows[1:]]
  texts = [row[1] for row in rows]
  probabilities = np.array([row[-2:] for row in rows], np.float32)
  assert len(texts) == 7 and np.ptp(probabilities[:, 0]) > 0.02
  return texts, probabilities


def convert(run, format):
  folder = run.parent / format
  any_model.convert(input=run, output=folder, output_format=format)
  return str(folder)


def test_transformers_answers_as_our_program(run, expected):
  torch = load_reader("torch")
  transformers = load_reader("transformers")
  folder = convert(run, "hugging_face")
  answer = transformers.pipeline(
    "text-classification", folder, framework="pt", top_k=None
  )
  assert isinstance(answer.model, torch.nn.Module)
  texts, probabilities = expected
  for scores, row in zip(answer(texts), probabilities, strict=True):
    found = {score["label"]: score["score"] for score in scores}
    assert [found["neg"], found["pos"]] == pytest.approx(row, abs=1e-5)


def test_keras_hub_answers_as_our_program(run, expected):
  keras_hub = load_reader("keras_hub", "keras_hub")
  folder = convert(run, "keras_hub")
  model = keras_hub.models.BertTextClassifier.from_preset(folder)
  texts, probabilities = expected
  logits = model.predict(texts, verbose=0)
  np.testing.assert_allclose(tf.nn.softmax(logits), probabilities, atol=1e-5)


def test_onnx_runtime_answers_as_our_program(run, expected):
  onnx = load_reader("onnx", "onnx")
  onnxruntime = load_reader("onnxruntime", "onnx")
  path = os.path.join(tiny_models.export_onnx(run), "model.onnx")
  onnx.checker.check_model(path, full_check=True)
  session = onnxruntime.InferenceSession(path)
  tokenizer = tokenization.FullTokenizer(str(run / "vocab.txt"))
  texts, probabilities = expected
  for text, row in zip(texts, probabilities, strict=True):
    ids = [2, *tokenizer.encode(text), 3]
    inputs = {
      "input_ids": ids,
      "input_mask": [1] * len(ids),
      "segment_ids": [0] * len(ids),
    }
    feeds = {
      item.name: np.array([inputs[item.name]], np.int32)
      for item in session.get_inputs()
    }
    (logits,) = session.run(["logits"], feeds)
    np.testing.assert_allclose(tf.nn.softmax(logits[0]), row, atol=1e-5)


def test_sentence_transformers_computes_our_vectors(tmp_path):
  load_reader("torch")
  library = load_reader("sentence_transformers")
  program_flags.succeed(tiny.prepare("run_embedding", tmp_path))
  run = tmp_path / "out"
  theirs = library.SentenceTransformer(
    convert(run, "hugging_face"), device="cpu"
  )
  texts = [tiny.make_text(number, tiny.GOOD) for number in range(50)]
  ours = bert.load(run).encode(texts)
  np.testing.assert_allclose(theirs.encode(texts), ours, atol=1e-5)


def test_the_original_would_restore_a_run(run):
  """TF1's Saver restores all that it has by these names, Adam's included."""
  config = checkpoints.read_config(str(run / "bert_config.json"))
  shapes = models.variables(config, "classifier", labels=2)
  prefix = checkpoints.latest_checkpoint(str(run))
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    variables = []
    for name, shape in shapes.items():
      for suffix in ("", "/adam_m", "/adam_v"):
        variables.append(tf.compat.v1.get_variable(name + suffix, shape))
    step = tf.compat.v1.train.get_or_create_global_step()
    tf.compat.v1.train.Saver().restore(session, prefix)
    assert session.run(step) == 6
    values = session.run({v.op.name: v for v in variables})
  # It reads these two files by the names that the README of the original has.
  assert {"vocab.txt", "bert_config.json"} <= {*os.listdir(run)}
  stored = dict(checkpoints.read(prefix))
  assert {*stored} == {*values, "global_step"}
  for name, value in values.items():
    assert np.array_equal(value, stored[name]), name
