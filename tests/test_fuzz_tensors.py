"""Configs, safetensors and checkpoints on damaged and on malicious files.

TensorFlow's reader, which ends the process at malicious checkpoints, reads only
those of the V1 format: if a test ends the process, that is the fault found.
"""

import json
import pathlib

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

import any_model
from convert import formats
import fuzzing
import tiny_index
from weights import checkpoints

pytestmark = pytest.mark.fuzz

CONFIG = {"vocab_size": 30, "hidden_size": 8, "num_attention_heads": 2}
HUGGING_FACE_CONFIG = {
  "model_type": "bert",
  "architectures": ["BertModel"],
  "num_hidden_layers": 1,
  "pruned_heads": {},
  "layer_norm_eps": 1e-12,
  **CONFIG,
}
VALUES = {
  "a": np.array([[1, 2, 3]], np.float32),
  "global_step": np.array(7, np.int64),
  "text": np.array([b"x", b"yy"]),
}
ODD_SIZES = [-1, 0, 1, 2, 1 << 20, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1]
sizes = st.sampled_from(ODD_SIZES) | st.integers(-9, 99)
shapes = st.lists(sizes, max_size=4) | st.just([1] * 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("fuzz")


# Configs.


@given(
  fuzzing.any_bytes()
  | fuzzing.mutated(json.dumps(CONFIG).encode())
  | fuzzing.mutated(json.dumps(HUGGING_FACE_CONFIG).encode())
  | (
    fuzzing.mutated_json(CONFIG) | fuzzing.mutated_json(HUGGING_FACE_CONFIG)
  ).map(lambda value: json.dumps(value).encode())
)
def test_configs(folder, content):
  path = folder / "bert_config.json"
  path.write_bytes(content)
  config = fuzzing.value_or_error_in_memory(formats.read_config, path)
  if config:
    path.write_text(config.to_json_string())
    assert formats.read_config(str(path)) == config


# Safetensors.


def make_safetensors(header, data):
  text = json.dumps(header).encode()
  return len(text).to_bytes(8, "little") + text + data


HEADER = {
  "a": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]},
  "b": {"dtype": "BF16", "shape": [2], "data_offsets": [12, 16]},
  "__metadata__": {"format": "pt"},
}
SAFETENSORS = make_safetensors(HEADER, bytes(range(16)))


FOLDER_FILES = {
  "config.json": json.dumps(HUGGING_FACE_CONFIG).encode(),
  "model.safetensors.index.json": json.dumps(
    {"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors"}}
  ).encode(),
  "m-1.safetensors": SAFETENSORS,
}


@pytest.mark.parametrize("name", FOLDER_FILES)
@given(data=st.data())
def test_hugging_face_folders(tmp_path_factory, name, data):
  folder = tmp_path_factory.getbasetemp() / "hugging_face"
  folder.mkdir(exist_ok=True)
  for other, content in FOLDER_FILES.items():
    (folder / other).write_bytes(content)
  valid = FOLDER_FILES[name]
  changed = fuzzing.mutated(valid)
  if name.endswith(".json"):
    changed |= fuzzing.mutated_json(json.loads(valid)).map(
      lambda value: json.dumps(value).encode()
    )
  (folder / name).write_bytes(data.draw(changed))
  fuzzing.value_or_error_in_memory(any_model.values, folder)


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
  """Returns the prefix and the bytes of the files of a checkpoint."""
  prefix = checkpoints.write(str(tmp_path_factory.mktemp("valid")), VALUES)
  names = [".index", ".data-00000-of-00001"]
  contents = {}
  for name in names:
    with open(prefix + name, "rb") as file:
      contents[name] = file.read()
  return contents


def write_checkpoint(folder, files):
  prefix = folder / "x.ckpt"
  for suffix, content in files.items():
    prefix.with_name(prefix.name + suffix).write_bytes(content)
  return prefix


@given(data=st.data())
def test_damaged_checkpoints(folder, checkpoint, data):
  suffix = data.draw(st.sampled_from(sorted(checkpoint)))
  content = data.draw(faults(checkpoint[suffix]) | fuzzing.any_bytes())
  prefix = write_checkpoint(folder, checkpoint | {suffix: content})
  fuzzing.value_or_error_in_memory(read_checkpoint, prefix)


def faults(content):
  """Returns a strategy for what a disk does to a file."""
  places = st.integers(0, len(content) - 1)
  flip = st.tuples(places, st.integers(0, 7)).map(
    lambda place: overwrite(content, *place)
  )
  return flip | places.map(lambda end: content[:end])


def overwrite(content, place, bit):
  content = bytearray(content)
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
rows = st.one_of(
  odd_entries.map(lambda entry: [*ENTRIES[:1], (b"a", entry)]),
  fuzzing.mutated(tiny_index.make_entry()).map(
    lambda entry: [*ENTRIES[:1], (b"a", entry)]
  ),
  st.lists(st.tuples(st.binary(max_size=2), odd_entries), max_size=3).map(
    lambda others: [*ENTRIES[:1], *sorted(others)]
  ),
  fuzzing.mutated(ENTRIES[0][1]).map(lambda h: [(b"", h), *ENTRIES[1:]]),
)
blocks = rows.map(tiny_index.make_block) | fuzzing.mutated(
  tiny_index.make_block(ENTRIES)
)
odd_handles = st.lists(
  st.sampled_from([0, 1, 1 << 33, 1 << 50, (1 << 64) - 6]),
  min_size=2,
  max_size=2,
).map(lambda numbers: b"".join(map(tiny_index.varint, numbers)))


@given(index=st.builds(tiny_index.make_table, blocks, st.none() | odd_handles))
def test_malicious_checkpoints(folder, index):
  files = {".index": index, ".data-00000-of-00001": tiny_index.DATA}
  prefix = write_checkpoint(folder, files)
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
  return {
    suffix: pathlib.Path(prefix + suffix).read_bytes()
    for suffix in (".index", ".data-00000-of-00001")
  }


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


def flip_bits(content, places):
  for place, bit in places:
    content = overwrite(content, place, bit)
  return content


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
  assert read_checkpoint(str(write_checkpoint(folder, checkpoint))).keys() == (
    VALUES.keys()
  )
  block = tiny_index.first_block(partitioned[".index"])
  files = partitioned | {".index": tiny_index.make_table(block)}
  values = read_checkpoint(str(write_checkpoint(folder, files)))
  assert values["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
  index = tiny_index.make_table(tiny_index.make_block(ENTRIES))
  files = {".index": index, ".data-00000-of-00001": tiny_index.DATA}
  values = read_checkpoint(str(write_checkpoint(folder, files)))
  assert values["b"].tolist() == [1, 2]
  path = tmp_path / "first.ckpt"
  path.write_bytes(first_format)
  assert read_checkpoint(str(path))["a"].tolist() == [1, 2]
  for name, content in FOLDER_FILES.items():
    (tmp_path / name).write_bytes(content)
  assert set(any_model.values(tmp_path)) == {"a", "b"}
