"""Damaged and malicious weights of other libraries, as in other fuzz tests."""

import json
import pathlib
import shutil

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import any_model
from cli import model_folder
from convert import architecture
from convert import keras_hub
from convert import object_checkpoints
import fuzzing
import modeling
from weights import checkpoints

pytestmark = pytest.mark.fuzz

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
CONFIG = modeling.BertConfig(
  vocab_size=3,
  hidden_size=2,
  num_hidden_layers=1,
  num_attention_heads=1,
  intermediate_size=2,
  max_position_embeddings=2,
  type_vocab_size=2,
)
VALUES = {
  name: np.ones(shape, np.float32)
  for name, shape in architecture.variables(CONFIG, "encoder").items()
}


def change(content):
  """Returns a strategy for a file that went wrong."""
  changed = fuzzing.mutated(content)
  try:
    value = json.loads(content)
  except ValueError:
    return changed
  return changed | fuzzing.mutated_json(value).map(
    lambda value: json.dumps(value).encode()
  )


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
  """Returns the folder of a BERT for KerasHub."""
  folder = tmp_path_factory.mktemp("valid")
  values = {
    **VALUES,
    "output_weights": np.ones([3, 2], np.float32),
    "output_bias": np.ones(3, np.float32),
  }
  tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  keras_hub.write(str(folder), CONFIG, values, tokens, True)
  assert len(any_model.values(folder)) == len(values)
  return folder


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "task.json"])
@given(data=st.data())
def test_keras_hub_folders(tmp_path_factory, preset, name, data):
  """The weights are read by KerasHub itself, which is slow to make a model."""
  folder = tmp_path_factory.getbasetemp() / "keras_hub"
  shutil.copytree(preset, folder, dirs_exist_ok=True)
  content = (preset / name).read_bytes()
  (folder / name).write_bytes(data.draw(change(content)))
  fuzzing.value_or_error_in_memory(model_folder.open, folder)


@given(data=st.data())
def test_shards_of_keras_hub(tmp_path_factory, preset, data):
  folder = tmp_path_factory.getbasetemp() / "shards"
  folder.mkdir(exist_ok=True)
  shutil.copy(preset / "config.json", folder)
  shutil.copy(preset / "model.weights.h5", folder / "m_0.weights.h5")
  index = {"weight_map": {"/layers/dense/vars": ["m_0.weights.h5"]}}
  changed = data.draw(change(json.dumps(index).encode()))
  (folder / "model.weights.json").write_bytes(changed)
  fuzzing.value_or_error_in_memory(model_folder.open, folder)


names = st.text(
  st.sampled_from("/._S0159") | st.characters(codec="utf-8"), max_size=12
)


@pytest.mark.parametrize("name", ["older", "subclassed", "fine_tuned"])
@given(data=st.data())
def test_object_graphs(tmp_path_factory, name, data):
  folder = tmp_path_factory.getbasetemp() / "objects"
  folder.mkdir(exist_ok=True)
  path = checkpoints.find_checkpoint(str(FIXTURES / name))
  reader = tf.train.load_checkpoint(path)
  keys = sorted(reader.get_variable_to_shape_map())
  values = {key: reader.get_tensor(key) for key in keys}
  graph = values.pop(object_checkpoints.GRAPH)
  keys.remove(object_checkpoints.GRAPH)
  for _ in range(data.draw(st.integers(0, 3))):
    key = data.draw(st.sampled_from(keys))
    value = values.pop(key, None)
    if value is None or data.draw(st.booleans()):
      continue
    place = data.draw(st.integers(0, len(key)))
    shape = data.draw(st.sampled_from([value.shape, (), (0,), (2, 1, 3)]))
    new = key[:place] + data.draw(names) + key[place:]
    values[new or "x"] = np.zeros(shape, value.dtype)
  graph = data.draw(st.just(b"") | st.just(graph) | fuzzing.mutated(graph))
  values[object_checkpoints.GRAPH] = graph
  listed = sorted(values)
  tf.raw_ops.SaveV2(
    prefix=str(folder / "x.ckpt"),
    tensor_names=listed,
    shape_and_slices=[""] * len(listed),
    tensors=[tf.constant(values[name]) for name in listed],
  )
  fuzzing.value_or_error_in_memory(any_model.values, folder / "x.ckpt")


DISTILBERT = {
  "model_type": "distilbert",
  "vocab_size": 3,
  "dim": 2,
  "hidden_dim": 2,
  "n_layers": 1,
  "n_heads": 1,
  "max_position_embeddings": 2,
}
ELECTRA = {
  **json.loads(CONFIG.to_json_string()),
  "model_type": "electra",
  "embedding_size": 1,
}


@pytest.mark.parametrize("settings", [DISTILBERT, ELECTRA])
@given(data=st.data())
def test_relatives(tmp_path_factory, settings, data):
  folder = tmp_path_factory.getbasetemp() / "relatives"
  folder.mkdir(exist_ok=True)
  tensors = {
    name: np.ones([2, 2], np.float32)
    for name in data.draw(
      st.lists(
        st.sampled_from(
          [
            "distilbert.transformer.layer.0.attention.q_lin.weight",
            "transformer.layer.0.attention.q_lin.weight",
            "vocab_projector.weight",
            "electra.embeddings_project.weight",
            "embeddings.word_embeddings.weight",
            "pre_classifier.weight",
            "classifier.weight",
          ]
        )
        | names
      )
    )
  }
  safetensors.numpy.save_file(tensors, folder / "model.safetensors")
  content = data.draw(change(json.dumps(settings).encode()))
  (folder / "config.json").write_bytes(content)
  fuzzing.value_or_error_in_memory(any_model.values, folder)
