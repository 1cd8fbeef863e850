"""Tests of onnx_graph.py: ONNX Runtime computes what TensorFlow does."""

import dataclasses
import platform
import shutil
import subprocess
import sys
import tracemalloc

import keras
import numpy as np
import pytest

from bert import heads, modeling
from bert.contrib import feature_tagger
from bert.encoders import encoder_table
from bert.export import exporting, model_functions, onnx_graph, trained_models

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
  return encoder_table.make_config(SIZES | sizes | fields)


@pytest.fixture(autouse=True)
def same_weights():
  keras.utils.set_random_seed(1)


@pytest.fixture
def make_graph(tmp_path):
  def make(kind, model, **settings):
    """Gives a model biases and gains, which are 0 and 1 in a new one."""
    source = np.random.default_rng(1)
    for variable in model.variables:
      noise = 0.1 * source.standard_normal(variable.shape)
      variable.assign(variable.numpy() + noise)
    config = getattr(model, "bert", model).config
    labels = ("x", "y", "z") if kind in ("single_label", "tagging") else ()
    trained = trained_models.TrainedModel(kind, config, model, True, labels)
    prediction = {"max_seq_length": 24, **settings}
    # The rows 5 to 36, 38 and 39 of the embeddings have no token.
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["a", "b", "c", "d", "[MASK]", *"e" * 33]) + "\n")
    trained = dataclasses.replace(trained, answer_settings=prediction)
    return model_functions.ModelFunctions(trained, str(path))

  return make


def make_inputs(batch=3, length=12, seed=0):
  """Makes rows of several lengths, one of them full."""
  source = np.random.default_rng(seed)
  lengths = np.maximum(2, length - 3 * np.arange(batch))[:, None]
  mask = np.arange(length) < lengths
  ids = source.integers(5, 40, [batch, length]) * mask
  segments = (np.arange(length) > lengths // 2) & mask
  return [values.astype(np.int32) for values in (ids, mask, segments)]


@pytest.fixture
def open_session(tmp_path):
  def open_session(graph, **options):
    """Returns the function of a graph in ONNX from inputs to outputs."""
    # A session maps its weights, so each has a file of its own.
    path = str(tmp_path / f"{len(list(tmp_path.iterdir()))}.onnx")
    onnx_graph.build(graph, **options).save(path)
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]

    def run(inputs):
      feeds = dict(zip(heads.HeadModel.input_names, inputs, strict=True))
      return dict(zip(names, session.run(names, feeds), strict=True))

    return run

  return open_session


def assert_same(found, graph, inputs):
  """Compares the outputs of ONNX Runtime with those of TensorFlow."""
  for name, expected in graph.compute(*inputs).items():
    assert found[name].dtype == expected.dtype.as_numpy_dtype, name
    np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-4)
    assert np.abs(expected).max() > 0.05


@pytest.mark.parametrize(
  "fields",
  [
    *({"hidden_act": x} for x in "gelu gelu_erf relu tanh linear".split()),
    {"embedding_size": 8},
    {"causal_attention": True, "layer_norm_eps": 0.1},
    {"causal_attention": True, "embedding_layer_norm": False},
    {"causal_attention": False, "embedding_layer_norm": False},
  ],
)
def test_configs(make_graph, open_session, fields):
  model = heads.ClassifierModel(make_config(**fields), LABELS)
  graph = make_graph("single_label", model)
  run = open_session(graph)
  for batch, length in ((1, 2), (3, 12), (2, 24)):
    inputs = make_inputs(batch, length)
    found = run(inputs)
    assert_same(found, graph, inputs)
    is_lower = np.triu(found["attention_1"], 1).max() < 1e-6
    assert is_lower == fields.get("causal_attention", False)
  logits = open_session(graph, quantizes=True)(inputs)["logits"]
  assert np.abs(logits - found["logits"]).max() < 1.0


@pytest.mark.parametrize("encoder_type", ["text_cnn", "bilstm", ""])
def test_no_graph_of_other_encoders_and_heads(make_graph, encoder_type):
  model = feature_tagger.FeatureTaggerModel(
    make_config(), LABELS, feature_layers=(-2, -1), lstm_size=8
  )
  if encoder_type:
    config = encoder_table.make_config(SIZES | {"encoder_type": encoder_type})
    model = heads.ClassifierModel(config, LABELS)
  message = "--format=onnx takes Transformers .* --format=saved_model or litert"
  with pytest.raises(ValueError, match=message):
    onnx_graph.build(make_graph("tagging", model))


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
@pytest.mark.parametrize("layer", [0, -1])
def test_vectors(make_graph, open_session, pooling, layer):
  model, inputs = modeling.BertModel(make_config()), make_inputs()
  settings = {"layer": layer, "pooling": pooling, "normalize": layer == 0}
  graph = make_graph("features", model, **settings)
  assert_same(open_session(graph)(inputs), graph, inputs)


@pytest.mark.parametrize("embedding_size", [None, 8])
def test_guesses_of_masks(make_graph, open_session, embedding_size):
  model = heads.PretrainingModel(make_config(embedding_size=embedding_size))
  graph, inputs = make_graph("fill_mask", model, top_k=2), make_inputs()
  inputs[0][0, [3, 7]] = inputs[0][2, 1] = MASK_ID
  run = open_session(graph)
  found, is_mask = run(inputs), np.array([[1, 1], [0, 0], [1, 0]]) > 0
  assert found["positions"].tolist() == [[3, 7], [-1, -1], [1, -1]]
  expected = graph.compute(*inputs)
  for name in ("ids", "probabilities"):
    wanted = expected[name].numpy()[is_mask]
    np.testing.assert_allclose(found[name][is_mask], wanted, atol=1e-4)
  inputs[0][inputs[0] == MASK_ID] = 5
  assert run(inputs)["probabilities"].shape == (3, 0, 2)


def test_int8_is_near_and_a_quarter_of_the_kernels(
  make_graph, open_session, tmp_path
):
  sizes = {"hidden_size": 64, "intermediate_size": 256}
  config = make_config(initializer_range=0.1, **sizes)
  graph = make_graph("single_label", heads.ClassifierModel(config, LABELS))
  exact = open_session(graph)(make_inputs())["logits"]
  logits = open_session(graph, quantizes=True)(make_inputs())["logits"]
  assert 0 < np.abs(logits - exact).max() < 0.05
  onnx_graph.build(graph, quantizes=True).save(str(tmp_path / "int8.onnx"))
  tensors = onnx.load(tmp_path / "int8.onnx").graph.initializer
  int8, float32 = (
    {tensor.name for tensor in tensors if tensor.data_type == kind}
    for kind in (3, 1)
  )
  assert len(int8) == 2 * 6
  assert all(name.startswith("bert/encoder/layer_") for name in int8)
  assert "bert/embeddings/word_embeddings" in float32
  assert {"bert/pooler/dense/kernel", "output_weights"} < float32


def test_other_guesses_do_not_pass_as_the_same(make_graph):
  model = heads.PretrainingModel(make_config())
  graph = make_graph("fill_mask", model, top_k=3)

  def change(names, places):
    def run(inputs):
      found = graph.run(inputs)
      for name in names:
        found[name] = found[name][..., places]
      return found

    return run

  same = change((), ())
  assert exporting._compare(graph, same) == 0
  with pytest.raises(ValueError, match="gives ids that differ by"):
    exporting._compare(graph, change(["ids"], [1, 0, 2]))
  for bias in model.variables:  # All tokens are as likely, so none is wrong.
    if "cls/predictions" in bias.path:
      bias.assign(np.zeros(bias.shape))
  assert exporting._compare(graph, change(["ids"], [1, 0, 2])) == 0


def test_large_constants_are_not_copied_to_be_written(tmp_path):
  path = str(tmp_path / "model.onnx")
  table = np.arange(1 << 22, dtype=np.float32).reshape(2, -1)
  graph = onnx_graph.Graph({"table": table, "one": np.ones(1)}, False)
  graph.output("x", graph.add("Add", graph.weight("table"), 1.0), [2, 1 << 21])
  tracemalloc.start()
  graph.save(path)
  assert tracemalloc.get_traced_memory()[1] < table.nbytes / 2
  tracemalloc.stop()
  session = onnxruntime.InferenceSession(path)
  ids = dict.fromkeys(heads.HeadModel.input_names, np.zeros([1, 1], np.int32))
  assert np.array_equal(session.run(["x"], ids)[0], table + 1)


def test_the_file_of_constants_is_there_if_all_are_small(tmp_path):
  graph = onnx_graph.Graph({"one": np.ones(1, np.float32)}, False)
  graph.output("x", graph.weight("one"), [1])
  graph.save(str(tmp_path / "model.onnx"))
  assert (tmp_path / "model.onnx.data").read_bytes() == b""


def test_quantize():
  numbers, scales = onnx_graph.quantize(
    np.array([[1.27, 0.0, -0.3], [-0.646, 0.0, 0.1]], np.float32)
  )
  assert numbers.tolist() == [[127, 0, -127], [-65, 0, 42]]
  assert numbers.dtype == np.int8
  np.testing.assert_allclose(scales, [0.01, 1.0, 0.3 / 127])


def test_no_sum_of_two_int8_products_saturates():
  """Processors without VNNI add two, with activations of 255, in 16 bits."""
  numbers, scales = onnx_graph.quantize(
    np.float32([[1.0, 1.0], [1.0, -1.0], [-0.2, -1.0]])
  )
  assert numbers.tolist() == [[64, 127], [64, -127], [-13, -127]]
  np.testing.assert_allclose(scales, [2 / 127, 1 / 127])
  kernel = np.random.default_rng(1).standard_normal([64, 500])
  numbers, _ = onnx_graph.quantize(kernel.astype(np.float32))
  for part in (np.maximum(numbers, 0), np.minimum(numbers, 0)):
    sums = 255 * part.reshape([32, 2, 500]).astype(int).sum(1)
    # Near the limits of 16 bits, and not above.
    assert 32_000 < np.abs(sums).max() <= 32_767


RUN = """
import sys, numpy, onnxruntime
path, batch = sys.argv[1], numpy.load(sys.argv[2])
session = onnxruntime.InferenceSession(path)
numpy.save(sys.argv[3], session.run(["logits"], dict(batch))[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(
  not shutil.which("qemu-x86_64") or platform.machine() != "x86_64",
  reason="needs qemu-user",
)
def test_int8_answers_are_the_same_without_vnni(make_graph, tmp_path):
  """As a processor of 2013 has it, whose sums of two products saturate."""
  graph = make_graph("single_label", heads.ClassifierModel(make_config(), 3))
  model, batch = str(tmp_path / "model.onnx"), str(tmp_path / "batch.npz")
  onnx_graph.build(graph, quantizes=True).save(model)
  np.savez(
    batch, **dict(zip(heads.HeadModel.input_names, make_inputs(), strict=True))
  )
  found = []
  for emulator in ([], ["qemu-x86_64", "-cpu", "Haswell"]):
    path = str(tmp_path / f"{len(emulator)}.npy")
    command = [*emulator, sys.executable, "-c", RUN, model, batch, path]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found.append(np.load(path))
  assert np.abs(found[0]).max() > 0.5
  np.testing.assert_allclose(*found, rtol=0, atol=1e-3)
