"""ONNX graphs that torch exported: as the model they were made of.

tests/fixtures/onnx holds one, and what transformers computes with its model;
tests/fixtures/make_onnx.py made them, and makes others here if torch is there.
"""

import gzip
import importlib
import pathlib
import random
import sys

import numpy as np
import onnx
from onnx import numpy_helper
import pytest

import any_model
from bert import modeling
from bert.cli import model_folder
import fuzzing
import program_flags

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
CONTENT = gzip.decompress((FIXTURES / "onnx/bert.onnx.gz").read_bytes())
WORDS = "embeddings.word_embeddings.weight"


def opened(path):
  return model_folder.open_model(str(path))


@pytest.fixture(name="file")
def write_file(tmp_path):
  path = tmp_path / "bert" / "bert.onnx"
  path.parent.mkdir()
  path.write_bytes(CONTENT)
  return path


def test_the_config_is_found_from_within_the_folder_of_the_graph(
  file, monkeypatch
):
  folder = file.parent.parent
  (folder / "config.json").write_text("{}")
  monkeypatch.chdir(file.parent.rename(folder / "onnx"))
  with pytest.raises(ValueError, match=f"{folder}/config.json: no model_type"):
    opened("bert.onnx")


def test_a_graph_computes_what_transformers_does(file):
  expected = np.load(FIXTURES / "onnx" / "expected.npz")
  model = opened(file.parent)
  assert model.library == "an ONNX file"
  assert model.config == modeling.BertConfig(
    **any_model.SIZES | {"num_hidden_layers": 1},
    type_vocab_size=2,
    hidden_act="gelu_erf",
  )
  encoder, missing = model_folder.make_encoder(model)
  assert not missing
  names = ("input_ids", "attention_mask", "token_type_ids")
  found = encoder(*(expected[name] for name in names))
  tokens = expected["attention_mask"].astype(bool)
  any_model.assert_near(
    found.sequence_output, expected["sequence_output"], tokens
  )
  any_model.assert_near(found.pooled_output, expected["pooled_output"])


def test_weights_are_read_anew_after_they_were_released(file):
  weights = opened(file).weights
  first = weights.read("bert/pooler/dense/kernel")
  weights.release()
  np.testing.assert_array_equal(weights.read("bert/pooler/dense/kernel"), first)


@pytest.fixture(name="graph")
def read_graph():
  return onnx.load_from_string(CONTENT)


def save(graph, path, **external):
  onnx.save(graph, path, **external)
  return path


def test_large_weights_stand_beside_the_graph(file, graph, tmp_path):
  path = save(
    graph,
    tmp_path / "model.onnx",
    save_as_external_data=True,
    location="model.onnx.data",
    size_threshold=100,
  )
  found, expected = any_model.values(path), any_model.values(file)
  assert found.keys() == expected.keys()
  for name, value in expected.items():
    np.testing.assert_array_equal(found[name], value, name)
  (tmp_path / "model.onnx.data").write_bytes(b"\0" * 99)
  with pytest.raises(ValueError, match="has more values than are stored") as e:
    any_model.values(path)
  assert str(path) in str(e.value)


def test_a_link_does_not_lead_out_of_the_folder(graph, tmp_path):
  path = tmp_path / "folder" / "model.onnx"
  path.parent.mkdir()
  data = {"save_as_external_data": True, "size_threshold": 100}
  save(graph, path, location="data", **data)
  (path.parent / "data").rename(tmp_path / "data")
  (path.parent / "data").symlink_to(tmp_path / "data")
  with pytest.raises(ValueError, match="symbolic link") as error:
    any_model.values(path)
  assert len(str(error.value).splitlines()) == 1


def test_half_precision_is_read(graph, tmp_path):
  [table] = [t for t in graph.graph.initializer if t.name.endswith(WORDS)]
  half = numpy_helper.to_array(table).astype(np.float16)
  table.CopyFrom(numpy_helper.from_array(half, table.name))
  values = any_model.values(save(graph, tmp_path / "half.onnx"))
  np.testing.assert_array_equal(values["bert/embeddings/word_embeddings"], half)


def first(graph, operation):
  return next(node for node in graph.graph.node if node.op_type == operation)


def lead_elsewhere(graph):
  [table] = [t for t in graph.graph.initializer if t.name.endswith(WORDS)]
  table.ClearField("raw_data")
  table.data_location = onnx.TensorProto.EXTERNAL
  table.external_data.add(key="location", value="../secret")


def make_huge(graph):
  graph.graph.initializer[0].dims[0] = 1 << 40


def make_integers(graph):
  graph.graph.initializer[0].data_type = onnx.TensorProto.INT8


def forget_words(graph):
  for tensor in graph.graph.initializer:
    tensor.name = tensor.name.replace("word_emb", "emb")


def share_a_bias(graph):
  for node in graph.graph.node:
    if node.op_type == "Add" and node.input[0].endswith("key.bias"):
      node.input[0] = node.input[0].replace("key", "query")


def quantize(graph):
  first(graph, "MatMul").op_type = "MatMulInteger"


def optimize(graph):
  first(graph, "LayerNormalization").domain = "com.microsoft"


def count_positions(graph):
  first(graph, "Shape").op_type = "CumSum"


def point_a_shape_at_itself(graph):
  for node in graph.graph.node:
    if node.op_type == "Concat":
      node.input[-1] = node.output[0]


CRAFTED = {
  lead_elsewhere: "'../secret' is not the name of a file beside it",
  make_huge: "has more values than are stored",
  make_integers: "holds INT8; expected FLOAT",
  forget_words: f"no {WORDS}: expected a BERT as torch exports it",
  share_a_bias: "query.bias' is the bias of several layers",
  quantize: "it has the operation 'MatMulInteger': pass the file as torch",
  optimize: "it has the operation 'LayerNormalization': pass the file as",
  count_positions: "its positions are RoBERTa's: expected a BERT",
  point_a_shape_at_itself: "",
}


@pytest.mark.parametrize("change", CRAFTED)
def test_a_crafted_graph_ends_in_one_line(change, graph, tmp_path):
  change(graph)
  path = save(graph, tmp_path / "model.onnx")
  with pytest.raises(ValueError, match="model.onnx") as error:
    any_model.values(path)
  message = str(error.value)
  assert message.startswith(f"{path}: ")
  assert CRAFTED[change] in message
  assert len(message.splitlines()) == 1


def test_every_truncation_ends_in_one_line(tmp_path):
  path = tmp_path / "model.onnx"
  for end in range(0, len(CONTENT), len(CONTENT) // 50):
    path.write_bytes(CONTENT[:end])
    with pytest.raises(ValueError, match="model.onnx") as error:
      any_model.values(path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.fuzz
def test_damaged_files_end_in_a_line(tmp_path):
  """200 files: numbers or one line, no process, bounded memory."""
  source, refused = random.Random(1), 0
  for number in range(200):
    path = tmp_path / f"{number}.onnx"
    path.write_bytes(fuzzing.damaged(CONTENT, source))
    value = fuzzing.value_or_error_in_memory(any_model.values, path)
    refused += value is None
  assert 50 < refused < 200


def test_several_graphs_are_a_choice(tmp_path):
  for name in ("a.onnx", "b.onnx"):
    (tmp_path / name).write_bytes(CONTENT)
  with pytest.raises(ValueError, match="several models, name one: .*b.onnx"):
    opened(tmp_path)


def test_without_the_package_one_line_says_what_to_install(file, monkeypatch):
  monkeypatch.setitem(sys.modules, "onnx", None)
  with pytest.raises(ImportError, match="pip install -r requirements/onnx.txt"):
    opened(file)


def test_a_program_takes_the_file(file, tmp_path):
  tokens = "\n".join(any_model.TOKENS)
  (tmp_path / "vocab.txt").write_text(tokens)
  (tmp_path / "in.txt").write_text("word1 word24\n")
  vectors = []
  for model in (file, file.parent):
    program_flags.succeed(
      program_flags.command(
        "extract_features",
        model=model,
        vocab_file=tmp_path / "vocab.txt",
        input_file=tmp_path / "in.txt",
        output_file=tmp_path / "out.jsonl",
        max_seq_length=6,
        layers=-1,
      )
    )
    vectors.append((tmp_path / "out.jsonl").read_bytes())
  assert vectors[0] == vectors[1]


CASES = [
  ("BertModel", 17, {}),
  ("BertModel", 12, {"hidden_act": "gelu_new", "layer_norm_eps": 1e-6}),
  ("BertModel", 17, {"hidden_act": "relu", "num_attention_heads": 4}),
  ("BertForMaskedLM", 17, {}),
  ("BertForPreTraining", 14, {}),
  ("BertForSequenceClassification", 17, {"num_labels": 3}),
  ("BertForTokenClassification", 14, {"num_labels": 3}),
  ("BertForQuestionAnswering", 17, {}),
]


@pytest.mark.slow
@pytest.mark.parametrize("has_config", [False, True])
@pytest.mark.parametrize(("name", "opset", "fields"), CASES)
def test_a_graph_is_the_folder_of_its_model(
  name, opset, fields, has_config, tmp_path, monkeypatch
):
  pytest.importorskip("torch")
  pytest.importorskip("transformers")
  monkeypatch.syspath_prepend(FIXTURES)
  make_onnx = importlib.import_module("make_onnx")
  model = make_onnx.make_model(name, **fields)
  model.save_pretrained(tmp_path / "folder")
  path = tmp_path / "graph" / "onnx" / "model.onnx"
  path.parent.mkdir(parents=True)
  make_onnx.export(model, str(path), opset)
  if has_config:  # Where Optimum has it.
    config = (tmp_path / "folder" / "config.json").read_text()
    (tmp_path / "graph" / "config.json").write_text(config)
  expected = any_model.values(tmp_path / "folder")
  found = any_model.values(tmp_path / "graph")
  assert found.keys() == expected.keys()
  for variable, value in expected.items():
    np.testing.assert_array_equal(found[variable], value, variable)
  theirs, ours = opened(tmp_path / "folder"), opened(tmp_path / "graph")
  assert ours.config == theirs.config
  if has_config:
    assert (ours.problem, ours.labels) == (theirs.problem, theirs.labels)
