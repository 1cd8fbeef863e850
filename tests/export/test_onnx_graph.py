"""Tests of onnx_graph.py: ONNX Runtime computes what the models here do."""

import dataclasses
import json
import pathlib
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from encoders import encoder_table
from export import onnx_graph, signatures, trained_models
import heads
import modeling
from tasks import feature_tagger

onnxruntime = pytest.importorskip(
  "onnxruntime", reason="needs requirements/onnx.txt"
)
onnx = pytest.importorskip("onnx", reason="needs requirements/onnx.txt")

LABELS = 3
MASK_ID = 4
SIZES = {
  "vocab_size": 40,
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "max_position_embeddings": 24,
  "type_vocab_size": 2,
  "initializer_range": 0.7,  # Logits of size 1 and more.
}


def make_config(**fields):
  sizes = {"num_attention_heads": 4, "intermediate_size": 64}
  return modeling.BertConfig.from_dict(SIZES | sizes | fields)


@pytest.fixture(autouse=True)
def same_weights():
  keras.utils.set_random_seed(1)


def make_trained(kind, model):
  """Gives a model biases and gains, which are 0 and 1 in a new one."""
  source = np.random.default_rng(1)
  for variable in model.variables:
    noise = 0.1 * source.standard_normal(variable.shape)
    variable.assign(variable.numpy() + noise)
  config = getattr(model, "bert", model).config
  labels = ("x", "y", "z") if "label" in kind else ()
  return trained_models.TrainedModel(kind, config, model, True, labels)


def make_inputs(batch=3, length=12, seed=0):
  """Makes rows of several lengths, one of them full."""
  source = np.random.default_rng(seed)
  lengths = np.maximum(2, length - 3 * np.arange(batch))[:, None]
  mask = np.arange(length) < lengths
  ids = source.integers(5, 40, [batch, length]) * mask
  segments = (np.arange(length) > lengths // 2) & mask
  return [values.astype(np.int32) for values in (ids, mask, segments)]


def make_graph(trained, settings=()):
  # [MASK] is line 4 of 38, so that two rows of the embeddings have no token.
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "vocab.txt")
    path.write_text("\n".join(["a", "b", "c", "d", "[MASK]", *"e" * 33]) + "\n")
    prediction = {"max_seq_length": 24, **dict(settings)}
    trained = dataclasses.replace(trained, prediction=prediction)
    return signatures.Graph(trained, str(path))


def open_session(trained, settings=(), **options):
  graph = onnx_graph.build(make_graph(trained, settings), **options)
  with tempfile.TemporaryDirectory() as folder:
    graph.save(f"{folder}/model.onnx")
    return onnxruntime.InferenceSession(
      f"{folder}/model.onnx", providers=["CPUExecutionProvider"]
    )


def run(session, inputs):
  names = [output.name for output in session.get_outputs()]
  feeds = dict(zip(signatures.IDS, inputs, strict=True))
  return dict(zip(names, session.run(names, feeds), strict=True))


def assert_near(found, expected, tolerance=1e-4):
  expected = np.asarray(expected)
  assert found.dtype == expected.dtype
  np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
  assert np.abs(expected).max() > 0.05


@pytest.mark.parametrize("act", ["gelu", "gelu_erf", "relu", "tanh", "linear"])
def test_classifier_of_every_activation(act):
  model = heads.ClassifierModel(make_config(hidden_act=act), LABELS)
  session = open_session(make_trained("single_label", model))
  for batch, length in ((1, 2), (3, 12), (2, 24)):
    inputs = make_inputs(batch, length)
    logits = model(*inputs).numpy()
    found = run(session, inputs)
    assert_near(found["logits"], logits)
    assert_near(found["probabilities"], tf.nn.softmax(logits))


def test_narrow_embeddings():
  model = heads.ClassifierModel(make_config(embedding_size=8), LABELS)
  found = run(open_session(make_trained("single_label", model)), make_inputs())
  assert_near(found["logits"], model(*make_inputs()))


@pytest.mark.parametrize("encoder_type", ["text_cnn", "bilstm"])
def test_no_graph_of_other_encoders(encoder_type):
  config = encoder_table.make_config(SIZES | {"encoder_type": encoder_type})
  trained = make_trained("single_label", heads.ClassifierModel(config, LABELS))
  message = "--format=onnx takes Transformers .* --format=saved_model or litert"
  with pytest.raises(ValueError, match=message):
    open_session(trained)


def test_no_graph_of_lstms_on_features():
  model = feature_tagger.FeatureTaggerModel(
    make_config(), LABELS, layers=(-2, -1), lstm_size=8
  )
  with pytest.raises(ValueError, match="--format=onnx takes Transformers"):
    open_session(make_trained("tagging", model))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_transformers_that_are_causal_or_else_not_quite_bert(
  causal, normalized
):
  fields = json.loads(make_config().to_json_string())
  fields |= {"causal_attention": causal, "embedding_layer_norm": normalized}
  config = encoder_table.make_config(fields | {"layer_norm_eps": 0.1})
  model = heads.ClassifierModel(config, LABELS)
  session = open_session(make_trained("single_label", model))
  for batch, length in ((1, 2), (3, 12), (2, 24)):
    inputs = make_inputs(batch, length)
    found = run(session, inputs)
    assert_near(found["logits"], model(*inputs))
    is_lower = np.triu(found["attention_1"], 1).max() < 1e-6
    assert is_lower == (causal or length == 1)
  session = open_session(make_trained("single_label", model), quantizes=True)
  assert np.abs(run(session, inputs)["logits"] - model(*inputs)).max() < 1.0


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize("layer", [0, -1])
def test_vectors(pooling, layer):
  model = modeling.BertModel(make_config())
  settings = {"layer": layer, "pooling": pooling}
  session = open_session(make_trained("features", model), settings)
  inputs = make_inputs()
  states = model(*inputs, return_hidden_states=True).hidden_states[1:]
  expected = []
  for state, mask in zip(states[layer].numpy(), inputs[1], strict=True):
    rows = state[mask > 0]
    pools = {"cls": rows[0], "mean": rows.mean(0), "max": rows.max(0)}
    expected.append(pools[pooling])
  assert_near(run(session, inputs)["vectors"], np.stack(expected))


@pytest.mark.parametrize("embedding_size", [None, 8])
def test_guesses_of_masks(embedding_size):
  model = heads.PretrainingModel(make_config(embedding_size=embedding_size))
  session = open_session(make_trained("fill_mask", model), {"top_k": 2})
  inputs = make_inputs()
  inputs[0][0, [3, 7]] = inputs[0][2, 1] = MASK_ID
  found = run(session, inputs)
  positions = np.array([[3, 7], [-1, -1], [1, -1]], np.int32)
  np.testing.assert_array_equal(found["positions"], positions)
  logits = model(*inputs, np.maximum(positions, 0)).masked_lm_logits[..., :38]
  best, ids = tf.math.top_k(tf.nn.softmax(logits), 2)
  is_mask = positions >= 0
  assert_near(found["probabilities"][is_mask], best.numpy()[is_mask])
  np.testing.assert_array_equal(found["ids"][is_mask], ids.numpy()[is_mask])
  inputs[0][inputs[0] == MASK_ID] = 5
  assert run(session, inputs)["probabilities"].shape == (3, 0, 2)


def test_int8_is_near_and_a_quarter_of_the_kernels(tmp_path):
  config = make_config(
    initializer_range=0.1, hidden_size=64, intermediate_size=256
  )
  trained = make_trained("single_label", heads.ClassifierModel(config, LABELS))
  exact = run(open_session(trained), make_inputs())["logits"]
  session = open_session(trained, quantizes=True)
  logits = run(session, make_inputs())["logits"]
  assert 0 < np.abs(logits - exact).max() < 0.05
  graph = onnx_graph.build(make_graph(trained), quantizes=True)
  graph.save(str(tmp_path / "m.onnx"))
  model = onnx.load(tmp_path / "m.onnx")
  types = {t.name: t.data_type for t in model.graph.initializer}
  int8, float32 = 3, 1
  kernels = [name for name, kind in types.items() if kind == int8]
  assert len(kernels) == 2 * 6
  assert all(name.startswith("bert/encoder/layer_") for name in kernels)
  assert types["bert/embeddings/word_embeddings"] == float32
  assert types["bert/pooler/dense/kernel"] == float32
  assert types["output_weights"] == float32


def test_quantize():
  numbers, scales = onnx_graph.quantize(
    np.array([[1.27, 0.0, -0.3], [-0.646, 0.0, 0.1]], np.float32)
  )
  assert numbers.tolist() == [[127, 0, -127], [-65, 0, 42]]
  assert numbers.dtype == np.int8
  np.testing.assert_allclose(scales, [0.01, 1.0, 0.3 / 127])
