"""SavedModels and Model Garden's checkpoints, made by Model Garden.

tests/fixtures holds them, and what Model Garden computes with them;
tests/fixtures/make_model_garden.py makes them.
"""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2

import any_model
from bert import heads
from bert.cli import model_folder
from bert.contrib import object_checkpoints
from bert.convert import models
from bert.weights import checkpoints
from paths import SHARED

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
GARDEN = ["functional", "subclassed", "older", "projected"]
SAVED_MODELS = ["hub", "fine_tuned"]
PUBLISHED = [
  SHARED / f"data/checkpoints/tf_hub_savedmodel_{name}/VARIABLES.txt"
  for name in ("L-2_H-256", "L-4_H-512")
]


@pytest.fixture(params=[*GARDEN, *SAVED_MODELS])
def source(request, tmp_path):
  """A fixture in a folder of its own, a SavedModel with its (empty) graph."""
  folder = tmp_path / request.param
  shutil.copytree(FIXTURES / request.param, folder)
  if request.param in SAVED_MODELS:
    (folder / "saved_model.pb").touch()
  return folder


def outputs_of(model, inputs):
  names = "input_word_ids", "input_mask", "input_type_ids"
  arguments = [inputs[name] for name in names]
  encoded = model.bert(*arguments)
  logits, next_sentence = model(*arguments, inputs["masked_lm_positions"])
  return {
    "sequence_output": encoded.sequence_output,
    "pooled_output": encoded.pooled_output,
    "mlm_logits": logits,
    "next_sentence": next_sentence,
  }


def test_computes_what_model_garden_does(source):
  reader = model_folder.open_model(str(source))
  expected = np.load(source / "expected.npz")
  width = 4 if source.name == "projected" else None
  config = dataclasses.replace(any_model.CONFIG, embedding_size=width)
  assert reader.config == config
  model = heads.PretrainingModel(reader.config)
  loaded = any_model.load(
    source, model, lambda name: not name.startswith("bert/")
  )
  found = outputs_of(model, expected)
  names = set(found) & set(expected)
  if "next_sentence" in names:
    # The trained pooler is that of the next sentence, not the encoder's.
    names.remove("pooled_output")
    assert not loaded.missing
  real = expected["input_mask"].astype(bool)
  for name in names:
    rows = real if name == "sequence_output" else slice(None)
    any_model.assert_near(found[name], expected[name], rows)


def read_keys(folder):
  return dict(checkpoints.read(checkpoints.find_checkpoint(str(folder))))


@pytest.mark.parametrize("name", [*GARDEN, "fine_tuned"])
def test_keys_do_where_full_names_are_missing(name, tmp_path):
  values = read_keys(FIXTURES / name)
  graph = trackable_object_graph_pb2.TrackableObjectGraph()
  graph.ParseFromString(values[object_checkpoints.GRAPH])
  for node in graph.nodes:
    for attribute in node.attributes:
      attribute.full_name = ""
  values[object_checkpoints.GRAPH] = graph.SerializeToString()
  checkpoints.write(str(tmp_path), values)
  found = any_model.values(tmp_path)
  expected = any_model.values(FIXTURES / name)
  # A head in a list has no name but its full one.
  expected.pop("cls/seq_relationship/output_weights", None)
  expected.pop("cls/seq_relationship/output_bias", None)
  assert found.keys() == expected.keys()
  assert all(np.array_equal(found[key], expected[key]) for key in found)


# Names of 2019, which TF-Hub's version 1 has, as Model Garden's converter made
# them of Google's names (official/nlp/bert/tf1_checkpoint_converter_lib.py).
NAMES_OF_2019 = (
  ("bert", "bert_model"),
  ("embeddings/word_embeddings", "word_embeddings/embeddings"),
  (
    "embeddings/token_type_embeddings",
    "embedding_postprocessor/type_embeddings",
  ),
  ("embeddings/position_emb", "embedding_postprocessor/position_emb"),
  ("embeddings/LayerNorm", "embedding_postprocessor/layer_norm"),
  ("attention/self", "self_attention"),
  ("attention/output/dense", "self_attention_output"),
  ("attention/output/LayerNorm", "self_attention_layer_norm"),
  ("intermediate/dense", "intermediate"),
  ("output/dense", "output"),
  ("output/LayerNorm", "output_layer_norm"),
  ("pooler/dense", "pooler_transform"),
)


def with_heads(name, value):
  """Gives the heads of attention an axis of their own, [H, N, D]."""
  if "self_attention/" in name:
    return value.reshape(*value.shape[:-1], 2, -1)
  is_output = name.endswith("self_attention_output/kernel")
  return value.reshape(2, -1, value.shape[-1]) if is_output else value


def test_reads_the_names_of_2019(tmp_path):
  values = any_model.values(FIXTURES / "functional")
  expected = {n: v for n, v in values.items() if n.startswith("bert/")}
  variables = []
  for name, value in expected.items():
    name = models.rename(name, NAMES_OF_2019)
    variables.append(tf.Variable(with_heads(name, value), name=name))
  tf.train.Checkpoint(v=variables).write(str(tmp_path / "variables/variables"))
  (tmp_path / "saved_model.pb").touch()
  found = any_model.values(tmp_path)
  assert found.keys() == expected.keys()
  assert all(np.array_equal(found[n], expected[n]) for n in found)
  assert model_folder.open_model(str(tmp_path)).config == any_model.CONFIG


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_reads_the_names_of_published_models(path, tmp_path):
  if not path.exists():
    pytest.skip(f"no {path}")
  values = {object_checkpoints.GRAPH: b""}
  for line in path.read_text().splitlines()[1:]:
    key, dtype, shape = line.split("\t")
    if dtype != "string":
      values[key] = np.zeros(json.loads(shape), dtype)
  checkpoints.write(str(tmp_path), values)
  reader = model_folder.open_model(str(tmp_path / "bert_model.ckpt"))
  layers, size = reader.config.num_hidden_layers, reader.config.hidden_size
  assert f"L-{layers}_H-{size}" in path.parent.name
  # The embeddings, the layers, the pooler and the head of masked words.
  assert len(reader.weights.shapes) == 5 + 16 * layers + 2 + 5
  assert reader.weights.shapes["cls/predictions/output_bias"] == (30522,)
  assert reader.do_lower_case is False
  rest = [name for name in reader.weights.unread if "keras_api" not in name]
  assert rest == [
    "layer-1/_func/bert_pack_inputs/save_counter",
    "layer-1/_func/layer-3/get_special_tokens_dict/save_counter",
    "layer_with_weights-1/bias",
    "layer_with_weights-1/kernel",
  ]


@pytest.mark.parametrize("source", ["hub"], indirect=True)
def test_converts_a_saved_model(source, tmp_path, capsys, monkeypatch):
  folder, output = source, tmp_path / "google"
  any_model.convert(input=folder, output=output)
  lines = capsys.readouterr().out.splitlines()
  assert lines.pop(2).startswith("finished in ")
  assert lines == [
    f"read {folder}/variables/variables: 2 layers of 8, --head=masked_lm",
    "not in it, taken: hidden_act='gelu'; else --bert_config_file",
    f"  wrote {output}:",
    "    bert_model.ckpt: 44 variables of the model",
    "    bert_config.json",
    "    vocab.txt: 30 tokens, do_lower_case=true",
    f"  next: python fill_mask.py --model={output} '--text=This is a [MASK].'",
  ]
  card = (output / "README.md").read_text()
  assert f"from a SavedModel, `{folder}/variables/variables`" in card
  assert "- not in it, taken: hidden_act='gelu'" in card
  # Its files are found from within, too.
  monkeypatch.chdir(folder / "variables")
  found = model_folder.open_model("variables")
  assert found.library == "a SavedModel" and found.vocab_file


def key_of(values, end):
  return next(key for key in values if end in key)


def drop(end):
  return lambda values: values.pop(key_of(values, end))


def rename(old, new):
  def change(values):
    key = key_of(values, old)
    values[key.replace(old, new)] = values.pop(key)
    values[object_checkpoints.GRAPH] = b""

  return change


def damage_graph(values):
  values[object_checkpoints.GRAPH] = b"\xff\xff"


def copy(values):
  key = key_of(values, "_type_embedding_layer/embeddings")
  values[f"teacher/{key}"] = values[key]


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("older", drop("layer_with_weights-2/emb"), "- bert/embeddings/token_type"),
    ("older", drop("5/_output_dense/bias"), "- bert/encoder/layer_1/output/de"),
    ("older", drop("4/_output_dense/bias"), "- bert/encoder/layer_0/output/de"),
    ("subclassed", copy, "both bert/embeddings/token_type_embeddings: two mod"),
    ("older", damage_graph, "its object graph is damaged"),
    (
      "subclassed",
      rename("0/_intermediate_dense/bias", "0/_gate/bias"),
      "its encoder is not a BERT's: + encoder/_transformer_layers/0/_gate/bias",
    ),
  ],
)
def test_says_what_is_wrong(name, change, message, tmp_path):
  values = read_keys(FIXTURES / name)
  change(values)
  checkpoints.write(str(tmp_path), values)
  with pytest.raises(ValueError) as error:
    any_model.read(tmp_path, vocab_file=str(FIXTURES / "hub/assets/vocab.txt"))
  assert message in str(error.value) and "\n" not in str(error.value)


def test_refuses_an_object_graph_without_a_bert(tmp_path):
  tf.train.Checkpoint(a=tf.Variable([1.0])).write(str(tmp_path / "x.ckpt"))
  with pytest.raises(ValueError, match="no BERT by Model Garden's names"):
    model_folder.open_model(str(tmp_path / "x.ckpt"))


@pytest.mark.parametrize(
  ("folder", "layers", "is_refused"),
  [("1", 4, True), ("small_1", 12, True), ("x", 12, False), ("2", 4, False)],
)
def test_refuses_modules_known_to_be_wrong(
  folder, layers, is_refused, tmp_path
):
  values = {"bert/embeddings/word_embeddings": np.zeros([3, 768], np.float32)}
  for layer in range(layers):
    name = f"bert/encoder/layer_{layer}/intermediate/dense/bias"
    values[name] = np.zeros([4], np.float32)
  variables = tmp_path / folder / "variables"
  variables.mkdir(parents=True)
  (tmp_path / folder / "tfhub_module.pb").touch()
  prefix = pathlib.Path(checkpoints.write(str(variables), values))
  (tmp_path / "link").symlink_to(variables)
  for path in (str(prefix), f"{tmp_path}/link/{prefix.name}"):
    if is_refused:
      with pytest.raises(ValueError, match="tensorflow/hub issue 661"):
        model_folder.open_model(path)
    else:
      assert len(model_folder.open_model(path).weights.shapes) == layers + 1
