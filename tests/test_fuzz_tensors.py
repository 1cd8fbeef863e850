"""Configs, safetensors and checkpoints on damaged and on malicious files.

TensorFlow's reader is called in this process: if one of these tests ends it,
that is the fault found.
"""

import json
import pathlib
import resource

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.util import saved_tensor_slice_pb2

import fuzzing
import modeling
import tiny_index
from weights import checkpoints
from weights import safetensors_files

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
MOST_MEMORY = 400_000  # KB that no small file may ask for.
ODD_SIZES = [-1, 0, 1, 2, 1 << 20, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1]
ODD_DTYPES = [*types_pb2.DataType.values(), 99, -1]
sizes = st.sampled_from(ODD_SIZES) | st.integers(-9, 99)
shapes = st.lists(sizes, max_size=4) | st.just([1] * 300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("fuzz")


def value_or_error(read, path):
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  value = fuzzing.value_or_error(read, path)
  after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  assert after - before < MOST_MEMORY
  return value


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
  config = value_or_error(modeling.BertConfig.from_json_file, path)
  if config:
    path.write_text(config.to_json_string())
    assert modeling.BertConfig.from_json_file(str(path)) == config


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


def read_safetensors(path):
  file = safetensors_files.SafetensorsFile(path)
  return {name: file.read(name) for name in file.entries}


@given(
  fuzzing.any_bytes()
  | fuzzing.mutated(SAFETENSORS)
  | fuzzing.mutated_json(HEADER).map(lambda h: make_safetensors(h, bytes(16)))
  | st.builds(
    lambda shape, offsets: make_safetensors(
      {"a": {"dtype": "U8", "shape": shape, "data_offsets": offsets}}, bytes(9)
    ),
    shapes,
    st.tuples(sizes, sizes),
  )
)
def test_safetensors(folder, content):
  path = folder / "model.safetensors"
  path.write_bytes(content)
  values = value_or_error(read_safetensors, path)
  if values:
    # bfloat16 is widened.
    assert sum(v.nbytes for v in values.values()) <= 2 * len(content)


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
  value_or_error(lambda path: dict(checkpoints.read(path)), folder)


# Checkpoints.


def read_checkpoint(prefix):
  """Reads a checkpoint in each of the ways there are."""
  # Some faults show only when a variable is read.
  shapes = checkpoints.read_shapes(prefix)
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
  content = data.draw(
    fuzzing.mutated(checkpoint[suffix])
    | fuzzing.mutated(checkpoint[suffix][-48:]).map(
      lambda footer: checkpoint[suffix][:-48] + footer
    )
    | fuzzing.any_bytes()
  )
  prefix = write_checkpoint(folder, checkpoint | {suffix: content})
  value_or_error(read_checkpoint, prefix)


ENTRIES = [
  (b"", tiny_index.make_header()),
  (b"a", tiny_index.make_entry()),
  (b"b", tiny_index.make_entry()),
]
odd_entries = st.builds(
  tiny_index.make_entry,
  shape=shapes,
  dtype=st.sampled_from([1, 7, 9, *ODD_DTYPES]),
  offset=st.sampled_from([0, *ODD_SIZES]),
  size=sizes | st.just(8),
  shard=st.integers(-1, 2),
  slices=st.lists(st.lists(st.tuples(sizes, sizes), max_size=2), max_size=2),
)
one_entry_changed = st.one_of(
  odd_entries.map(lambda e: [ENTRIES[0], (b"a", e)]),
  fuzzing.mutated(tiny_index.make_entry()).map(
    lambda e: [ENTRIES[0], (b"a", e)]
  ),
  st.lists(st.tuples(st.binary(max_size=2), odd_entries), max_size=3),
  sizes.map(
    lambda n: [(b"", tiny_index.make_header(max(n, -9) % (1 << 31)))] + ENTRIES
  ),
)
tables = st.one_of(
  one_entry_changed.map(tiny_index.make_block).map(tiny_index.make_table),
  fuzzing.mutated(tiny_index.make_block(ENTRIES)).map(tiny_index.make_table),
  st.tuples(
    *[st.sampled_from([0, 1, 1 << 33, 1 << 50, (1 << 64) - 6])] * 2
  ).map(
    lambda h: tiny_index.make_table(
      tiny_index.make_block(ENTRIES),
      tiny_index.varint(h[0]) + tiny_index.varint(h[1]),
    )
  ),
)


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
  # A byte more or less would be a block that is refused at once.
  index = data.draw(
    st.lists(
      st.tuples(st.integers(0, len(block) - 1), st.integers(0, 255)), max_size=3
    ).map(lambda changes: tiny_index.make_table(overwrite(block, changes)))
    | fuzzing.mutated(block).map(tiny_index.make_table)
  )
  prefix = write_checkpoint(folder, partitioned | {".index": index})
  value_or_error(read_checkpoint, prefix)


def overwrite(content, changes):
  content = bytearray(content)
  for place, byte in changes:
    content[place] = byte
  return bytes(content)


@given(index=tables)
def test_malicious_checkpoints(folder, index):
  files = {".index": index, ".data-00000-of-00001": tiny_index.DATA}
  value_or_error(read_checkpoint, write_checkpoint(folder, files))


# The V1 format.


def make_meta(shape, dtype, starts=(0,), lengths=(2,)):
  meta = saved_tensor_slice_pb2.SavedTensorSlices()
  meta.meta.versions.producer = 1
  tensor = meta.meta.tensor.add(name="a")
  tensor.MergeFromString(b"\x18" + tiny_index.varint(dtype % (1 << 64)))
  for axis in shape:
    tensor.shape.dim.add(size=axis)
  extents = tensor.slice.add().extent
  for start, length in zip(starts, lengths, strict=False):
    extents.add(start=start, length=length)
  return meta.SerializeToString()


def make_data(values=(1.0, 2.0)):
  slices = saved_tensor_slice_pb2.SavedTensorSlices()
  slices.data.name = "a"
  slices.data.slice.extent.add(start=0, length=2)
  slices.data.data.float_val.extend(values)
  return slices.SerializeToString()


# The name, the number of axes, start and length, so coded that they are sorted.
DATA_KEY = b"\0a\0\1\1\1\x80\x82"


def make_v1(meta, data):
  return tiny_index.make_block([(b"", meta), (DATA_KEY, data)])


V1 = make_v1(make_meta([2], 1), make_data())
v1_tables = st.one_of(
  st.builds(
    make_meta,
    shapes,
    st.sampled_from([1, *ODD_DTYPES]),
    st.lists(sizes, max_size=2),
    st.lists(sizes, max_size=2),
  ).map(lambda meta: tiny_index.make_table(make_v1(meta, make_data()))),
  st.lists(st.just(1.0), max_size=4).map(
    lambda values: tiny_index.make_table(
      make_v1(make_meta([2], 1), make_data(values))
    )
  ),
  fuzzing.mutated(V1).map(tiny_index.make_table),
  fuzzing.mutated(tiny_index.make_table(V1)),
)


@given(content=v1_tables)
def test_checkpoints_of_the_first_format(tmp_path_factory, content):
  path = tmp_path_factory.getbasetemp() / "first.ckpt"
  path.write_bytes(content)
  value_or_error(read_checkpoint, path)


# What is mutated is valid.


def test_valid_files_are_read(folder, tmp_path, checkpoint, partitioned):
  assert read_checkpoint(str(write_checkpoint(folder, checkpoint))).keys() == (
    VALUES.keys()
  )
  block = tiny_index.first_block(partitioned[".index"])
  index = tiny_index.make_table(block)
  values = checkpoints.read(
    str(write_checkpoint(folder, partitioned | {".index": index}))
  )
  assert dict(values)["a"].tolist() == [[1, 2, 3], [4, 5, 6]]
  index = tiny_index.make_table(tiny_index.make_block(ENTRIES))
  files = {".index": index, ".data-00000-of-00001": tiny_index.DATA}
  values = read_checkpoint(str(write_checkpoint(folder, files)))
  assert values["b"].tolist() == [1, 2]
  path = tmp_path / "first.ckpt"
  path.write_bytes(tiny_index.make_table(V1))
  assert read_checkpoint(str(path))["a"].tolist() == [1, 2]
  for name, content in FOLDER_FILES.items():
    (tmp_path / name).write_bytes(content)
  assert set(dict(checkpoints.read(str(tmp_path)))) == {"a", "b"}
