"""Signatures of SavedModels: strings answered as Python answers them."""

import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, tokenization
from bert.data import packing
from bert.export import model_functions, saved_model, trained_models
import paths
import program_flags
import tiny
import tiny_models

SEQUENCE = 16
CONFIG = modeling.BertConfig.from_dict(
  {**tiny.SQUAD_CONFIG, "initializer_range": 0.7, "num_hidden_layers": 2}
)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
  path.write_text("\n".join(tiny.SQUAD_VOCABULARY) + "\n")
  return str(path)


@pytest.fixture
def save(vocab_file, tmp_path):
  def save(kind, model, settings=None, **fields):
    """Saves a model; returns what calls its signatures with lists."""
    prediction = {"max_seq_length": SEQUENCE, **(settings or {})}
    trained = trained_models.TrainedModel(
      kind, CONFIG, model, True, answer_settings=prediction, **fields
    )
    saved_model.save(
      str(tmp_path), model_functions.ModelFunctions(trained, vocab_file)
    )
    loaded = tf.saved_model.load(str(tmp_path))

    def call(name, *values):
      names = sorted(loaded.signatures[name].structured_input_signature[1])
      inputs = dict(zip(names, map(tf.constant, values), strict=True))
      outputs = loaded.signatures[name](**inputs)
      return {k: value.numpy() for k, value in outputs.items()}

    call.names = sorted(loaded.signatures)
    call.loaded = loaded  # Else its variables would be deleted.
    return call

  return save


def random_texts(count, most, seed=1):
  source, words = random.Random(seed), tiny.SQUAD_VOCABULARY[5:]
  texts = (
    source.choices(words, k=source.randrange(most)) for _ in range(count)
  )
  return list(map(" ".join, texts))


@pytest.fixture
def pack(vocab_file):
  python = tokenization.FullTokenizer(vocab_file)

  def pack(a, b=""):
    ids = python.encode(a), python.encode(b)
    packing.truncate_pair(*ids, SEQUENCE - (3 if b else 2))
    packed = packing.pack(*ids, cls_id=2, sep_id=3)
    return [tf.constant([values]) for values in packed]

  return pack


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_classifier(save, pack, problem):
  model = heads.ClassifierModel(CONFIG, 3)
  thresholds = (0.5, 0.9, 0.1) if problem == "multi_label" else ()
  call = save(problem, model, labels=("x", "y", "z"), thresholds=thresholds)
  assert call.names == ["attention", "ids", "serving_default"]
  texts, pairs = random_texts(6, 12), random_texts(6, 9, seed=2)
  pairs[0] = texts[1] = ""
  outputs = call("serving_default", texts, pairs)
  for row, (a, b) in enumerate(zip(texts, pairs, strict=True)):
    ids = pack(a, b)
    logits = model(*ids).numpy()[0]
    if problem == "single_label":
      expected = np.exp(logits) / np.exp(logits).sum()
      assert outputs["label"][row] == b"xyz"[logits.argmax() :][:1]
    else:
      expected = 1 / (1 + np.exp(-logits))
      chosen = [expected[0] >= 0.5, expected[1] >= 0.9, expected[2] >= 0.1]
      assert outputs["chosen"][row].tolist() == chosen
    shares = outputs["probabilities"][row]
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    found = call("ids", *ids)["logits"][0]
    np.testing.assert_allclose(found, logits, atol=1e-5)
    assert outputs["labels"][row].tolist() == [b"x", b"y", b"z"]
    tokens = len(a.split()) + len(b.split())
    room = SEQUENCE - (3 if b else 2)
    assert outputs["truncated"][row] == (tokens > room)
  # Some of the six pairs are truncated, and some are not.
  assert outputs["truncated"].tolist().count(True) in range(1, 6)
  nothing = np.array([], str)
  none = call("serving_default", nothing, nothing)
  assert {len(values) for values in none.values()} == {0}


def test_regression_of_single_texts(save, pack):
  model = heads.ClassifierModel(CONFIG, 1)
  call = save("regression", model, has_text_pair=False)
  outputs = call("serving_default", ["the old house"])
  assert sorted(outputs) == ["truncated", "value"]
  expected = model(*pack("the old house")).numpy()[0, 0]
  assert outputs["value"][0] == pytest.approx(expected, abs=1e-5)


def test_attention(save, pack):
  model = heads.ClassifierModel(CONFIG, 2)
  call = save("single_label", model, labels=("x", "y"))
  ids = pack("the house")
  probs = model.bert(*ids, return_attention_probs=True).attention_probs
  found, expected = call("attention", *ids)["attention"], np.stack(probs, 1)
  np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_vectors(save, pack, pooling):
  model = modeling.BertModel(CONFIG)
  call = save("features", model, {"layer": -2, "pooling": pooling})
  texts, pairs = ["the old house", "", "red"], ["", "", "a tree"]
  vectors = call("serving_default", texts, pairs)["vectors"]
  for text, pair, found in zip(texts, pairs, vectors, strict=True):
    states = model(*pack(text, pair), return_hidden_states=True).hidden_states
    state = states[-2].numpy()[0]
    expected = {"cls": state[0], "mean": state.mean(0), "max": state.max(0)}
    np.testing.assert_allclose(found, expected[pooling], atol=1e-5)


def test_guesses(save, pack):
  model = heads.PretrainingModel(CONFIG)
  call = save("fill_mask", model, {"top_k": 3})
  ids = [values.numpy() for values in pack("the house was a tree")]
  ids[0][0, [2, 4]] = tiny.SQUAD_VOCABULARY.index("[MASK]")
  outputs = call("ids", *ids)
  assert outputs["positions"].tolist() == [[2, 4]]
  logits = model(*ids, tf.constant([[2, 4]])).masked_lm_logits.numpy()[0]
  best = np.argsort(-logits, axis=-1)[:, :3]
  assert outputs["ids"][0].tolist() == best.tolist()
  shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  expected = np.take_along_axis(shares, best, -1)
  np.testing.assert_allclose(outputs["probabilities"][0], expected, atol=1e-5)


def test_a_full_disk_ends_in_a_line_and_leaves_nothing(tmp_path, monkeypatch):
  """With the error that TensorFlow raised under RLIMIT_FSIZE."""
  tiny_models.write_trained(tmp_path)

  def save(module, path, *arguments, **options):
    message = f"{path}/saved_model.pb; File too large"
    raise tf.errors.OutOfRangeError(None, None, message)

  monkeypatch.setattr(tf.saved_model, "save", save)
  with pytest.raises(OSError, match="export: cannot be written: .*too large"):
    tiny_models.run_export(tmp_path, format="saved_model")
  assert not list(tmp_path.glob("*export*"))


@pytest.mark.slow
def test_only_a_saved_model_needs_tensorflow_text():
  # Its import takes 120 MB, which `bert.load` of a folder need not pay.
  code = "import sys; from bert.export import exporting, onnx_graph; "
  code += "sys.exit('tensorflow_text' in sys.modules)"
  result = program_flags.run_command(
    [sys.executable, "-c", code], PYTHONPATH=str(paths.ROOT)
  )
  assert result.returncode == 0, result.stderr
