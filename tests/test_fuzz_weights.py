"""Damaged and malicious weights: values or one line, and little memory.

TensorFlow's reader, which ends the process at malicious checkpoints, reads only
those of the V1 format: if a test ends the process, that is the fault found.
"""

import json
import pathlib
import shutil
import types

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from tensorflow.core.framework import types_pb2

import any_model
from bert import modeling
from bert.cli import model_folder
from bert.contrib import keras_hub, object_checkpoints
from bert.convert import formats, models
from bert.weights import checkpoints
import fuzzing
import tiny_index

pytestmark = pytest.mark.fuzz

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
CONFIG = {"vocab_size": 3, "hidden_size": 2, "intermediate_size": 2}
CONFIG |= {"num_hidden_layers": 1, "num_attention_heads": 1}
CONFIG |= {"max_position_embeddings": 2, "type_vocab_size": 2}
HUGGING_FACE_CONFIG = {
  "model_type": "bert",
  "architectures": ["BertModel"],
  "pruned_heads": {},
  "layer_norm_eps": 1e-12,
  **CONFIG,
}
# A config.json, and the names of tensors.
RELATIVES = {
  "distilbert": (
    {"model_type": "distilbert", "vocab_size": 3, "max_position_embeddings": 2}
    | {"dim": 2, "hidden_dim": 2, "n_layers": 1, "n_heads": 1},
    (
      "distilbert.transformer.layer.0.attention.q_lin.weight",
      "transformer.layer.0.attention.k_lin.weight",
      "vocab_projector.weight",
      "embeddings.word_embeddings.weight",
      "pre_classifier.weight",
      "classifier.weight",
      "\n/..",
    ),
  ),
  "electra": (
    {**CONFIG, "model_type": "electra", "embedding_size": 1},
    ("electra.embeddings_project.weight", "embeddings.LayerNorm.gamma"),
  ),
}
VALUES = {
  "a": np.array([[1, 2, 3]], np.float32),
  "global_step": np.array(7, np.int64),
  "text": np.array([b"x", b"yy"]),
}
ODD_SIZES = [-1, 0, 1, 2, 1 << 20, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1]
sizes = st.sampled_from(ODD_SIZES) | st.integers(-9, 99)
shapes = st.lists(sizes, max_size=4) | st.just([1] * 300)
names = st.text(
  st.sampled_from("/._S0159") | st.characters(codec="utf-8"), max_size=12
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("fuzz")


def as_json(value):
  return json.dumps(value).encode()


def change(content):
  """Returns a strategy for a file that went wrong."""
  changed = fuzzing.mutated(content)
  try:
    value = json.loads(content)
  except ValueError:
    return changed
  return changed | fuzzing.mutated_json(value).map(as_json)


# Folders of other libraries.


configs = change(as_json(CONFIG)) | change(as_json(HUGGING_FACE_CONFIG))


@given(fuzzing.any_bytes() | configs)
def test_configs(folder, content):
  path = folder / "bert_config.json"
  path.write_bytes(content)
  config = fuzzing.value_or_error_in_memory(formats.read_config, path)
  if config:
    path.write_text(config.to_json_string())
    assert formats.read_config(str(path)) == config


HEADER = as_json(
  {
    "a": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]},
    "b": {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]},
    "__metadata__": {"format": "pt"},
  }
)
SHARD = len(HEADER).to_bytes(8, "little") + HEADER + bytes(range(16))
HUGGING_FACE = {
  "config.json": as_json(HUGGING_FACE_CONFIG),
  "model.safetensors.index.json": as_json(
    {"weight_map": dict.fromkeys("ab", "m-1.safetensors")}
  ),
  "m-1.safetensors": SHARD,
}


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
  """Returns a folder with a valid folder of each library."""
  folder = tmp_path_factory.mktemp("valid")
  for library in ("hugging_face", "keras_hub", "shards", *RELATIVES):
    (folder / library).mkdir()
  for name, content in HUGGING_FACE.items():
    (folder / "hugging_face" / name).write_bytes(content)
  for name, (settings, tensors) in RELATIVES.items():
    (folder / name / "config.json").write_bytes(as_json(settings))
    ones = {tensor: np.ones([2, 2], np.float32) for tensor in tensors}
    safetensors.numpy.save_file(ones, folder / name / "model.safetensors")
  config = modeling.BertConfig.from_dict(CONFIG)
  shapes = models.variables(config, "encoder")
  shapes |= {"output_weights": (3, 2), "output_bias": (3,)}
  values = {n: np.ones(shape, np.float32) for n, shape in shapes.items()}
  tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  preset, shards = folder / "keras_hub", folder / "shards"
  model = types.SimpleNamespace(
    config=config, vocabulary=tokens, do_lower_case=True
  )
  keras_hub.write(str(preset), model, values)
  assert len(any_model.values(preset)) == len(values)
  shutil.copy(preset / "config.json", shards)
  shutil.copy(preset / "model.weights.h5", shards / "m_0.weights.h5")
  index = {"weight_map": {"/layers/dense/vars": ["m_0.weights.h5"]}}
  (shards / "model.weights.json").write_bytes(as_json(index))
  return folder


@pytest.mark.parametrize(
  ("library", "name"),
  [
    *(("hugging_face", name) for name in HUGGING_FACE),
    *(
      ("keras_hub", f"{name}.json") for name in ("config", "tokenizer", "task")
    ),
    ("shards", "model.weights.json"),
    *((name, "config.json") for name in RELATIVES),
  ],
)
@given(data=st.data())
def test_folders(tmp_path_factory, valid, library, name, data):
  folder = tmp_path_factory.getbasetemp() / library
  shutil.copytree(valid / library, folder, dirs_exist_ok=True)
  content = (valid / library / name).read_bytes()
  (folder / name).write_bytes(data.draw(change(content)))
  # KerasHub reads its weights itself, and is slow to make a model.
  is_ours = library not in ("keras_hub", "shards")
  read = any_model.values if is_ours else model_folder.open_model
  fuzzing.value_or_error_in_memory(read, folder)


@pytest.mark.parametrize("name", ["older", "subclassed", "fine_tuned"])
@given(data=st.data())
def test_object_graphs(tmp_path_factory, name, data):
  folder = tmp_path_factory.getbasetemp() / "objects"
  folder.mkdir(exist_ok=True)
  path = checkpoints.find_checkpoint(str(FIXTURES / name))
  values = dict(checkpoints.read(path))
  graph = values.pop(object_checkpoints.GRAPH)
  keys = sorted(values)
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
  prefix = checkpoints.write(str(folder), values)
  fuzzing.value_or_error_in_memory(any_model.values, prefix)


# Checkpoints.


def read_checkpoint(prefix):
  """Reads a checkpoint in each of the ways there are."""
  # Some faults show only when a variable is read.
  shapes = checkpoints.open_weights(prefix).shapes
  for read in (checkpoints.read_step, load_checkpoint):
    fuzzing.value_or_error(read, prefix)
  values = dict(checkpoints.read(prefix))
  assert {name: np.shape(v) for name, v in values.items()} == shapes
  return values


def load_checkpoint(prefix):
  variables = {"a": tf.Variable([[0.0, 0.0, 0.0]])}
  return checkpoints.load(prefix, variables, lambda name: True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
  """Returns the bytes of the files of a checkpoint."""
  folder = tmp_path_factory.mktemp("valid")
  return contents_of(checkpoints.write(str(folder), VALUES))


def contents_of(prefix):
  return {
    suffix: pathlib.Path(prefix + suffix).read_bytes()
    for suffix in (".index", ".data-00000-of-00001")
  }


def write_checkpoint(folder, files):
  prefix = folder / "x.ckpt"
  for suffix, content in files.items():
    prefix.with_name(prefix.name + suffix).write_bytes(content)
  return prefix


def with_data(index):
  return {".index": index, ".data-00000-of-00001": tiny_index.DATA}


@given(data=st.data())
def test_damaged_checkpoints(folder, checkpoint, data):
  suffix = data.draw(st.sampled_from(sorted(checkpoint)))
  content = data.draw(faults(checkpoint[suffix]) | fuzzing.any_bytes())
  prefix = write_checkpoint(folder, checkpoint | {suffix: content})
  fuzzing.value_or_error_in_memory(read_checkpoint, prefix)


def faults(content):
  """Returns a strategy for what a disk does to a file."""
  places = st.integers(0, len(content) - 1)
  flips = st.tuples(places, st.integers(0, 7))
  flipped = flips.map(lambda flip: flip_bits(content, [flip]))
  return flipped | places.map(lambda end: content[:end])


def flip_bits(content, places):
  content = bytearray(content)
  for place, bit in places:
    content[place] ^= 1 << bit
  return bytes(content)


ENTRIES = [
  tiny_index.HEADER,
  (b"a", tiny_index.make_entry()),
  (b"b", tiny_index.make_entry()),
]
odd_entries = st.builds(
  tiny_index.make_entry,
  shape=shapes,
  dtype=st.sampled_from([1, 1, 1, 7, 9, *types_pb2.DataType.values(), 99, -1]),
  offset=st.sampled_from([0, *ODD_SIZES]),
  size=sizes | st.just(8),
  shard=st.integers(-1, 2),
  slices=st.lists(st.lists(st.tuples(sizes, sizes), max_size=2), max_size=2),
)
changed_entries = odd_entries | fuzzing.mutated(tiny_index.make_entry())
rows = st.one_of(
  changed_entries.map(lambda entry: [*ENTRIES[:1], (b"a", entry)]),
  st.lists(st.tuples(st.binary(max_size=2), odd_entries), max_size=3).map(
    lambda others: [*ENTRIES[:1], *sorted(others)]
  ),
  fuzzing.mutated(ENTRIES[0][1]).map(lambda h: [(b"", h), *ENTRIES[1:]]),
)
blocks = rows.map(tiny_index.make_block)
blocks |= fuzzing.mutated(tiny_index.make_block(ENTRIES))
odd_varints = st.sampled_from([0, 1, 1 << 33, 1 << 50, (1 << 64) - 6]).map(
  tiny_index.varint
)
odd_handles = st.tuples(odd_varints, odd_varints).map(b"".join)


@given(index=st.builds(tiny_index.make_table, blocks, st.none() | odd_handles))
def test_malicious_checkpoints(folder, index):
  prefix = write_checkpoint(folder, with_data(index))
  fuzzing.value_or_error_in_memory(read_checkpoint, prefix)


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory):
  """Returns the bytes of the files of a checkpoint in two parts."""
  prefix = str(tmp_path_factory.mktemp("parts") / "x")
  parts = tf.constant([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]])
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=["a", "a"],
    shape_and_slices=["2 3 0,1:0,3", "2 3 1,1:0,3"],
    tensors=list(parts),
  )
  return contents_of(prefix)


@given(data=st.data())
def test_malicious_parts(folder, partitioned, data):
  block = tiny_index.first_block(partitioned[".index"])
  # Whoever inserts a byte damages the block, whoever replaces one an entry.
  places = st.tuples(st.integers(0, len(block) - 1), st.integers(0, 7))
  changed = fuzzing.mutated(block)
  changed |= st.lists(places, max_size=3).map(lambda p: flip_bits(block, p))
  index = tiny_index.make_table(data.draw(changed))
  prefix = write_checkpoint(folder, partitioned | {".index": index})
  fuzzing.value_or_error_in_memory(read_checkpoint, prefix)


@pytest.fixture(scope="module")
def first_format(tmp_path_factory):
  """Returns the bytes of a checkpoint in the V1 format."""
  path = tmp_path_factory.mktemp("first") / "x.ckpt"
  tf.raw_ops.Save(
    filename=str(path), tensor_names=["a"], data=[tf.constant([1.0, 2.0])]
  )
  return path.read_bytes()


@given(data=st.data())
def test_checkpoints_of_the_first_format(folder, first_format, data):
  path = folder / "first.ckpt"
  path.write_bytes(data.draw(faults(first_format)))
  fuzzing.value_or_error_in_memory(read_checkpoint, path)


# What is mutated is valid.


def test_valid_files_are_read(
  folder, tmp_path, checkpoint, partitioned, first_format
):
  values = read_checkpoint(str(write_checkpoint(folder, checkpoint)))
  assert values.keys() == VALUES.keys()
  block = tiny_index.first_block(partitioned[".index"])
  files = partitioned | {".index": tiny_index.make_table(block)}
  values = read_checkpoint(str(write_checkpoint(folder, files)))
  assert values["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
  index = tiny_index.make_table(tiny_index.make_block(ENTRIES))
  values = read_checkpoint(str(write_checkpoint(folder, with_data(index))))
  assert values["b"].tolist() == [1, 2]
  path = tmp_path / "first.ckpt"
  path.write_bytes(first_format)
  assert read_checkpoint(str(path))["a"].tolist() == [1, 2]
  for name, content in HUGGING_FACE.items():
    (tmp_path / name).write_bytes(content)
  assert set(any_model.values(tmp_path)) == {"a", "b"}
