"""Weights with seeded damage, 200 files of each format: whole tiny models.

Each file ends in the same arrays, or in one line. Formats without checksums,
safetensors and HDF5, may give other numbers, too. tests/convert tries the files
of PyTorch, tf_model.h5 and ONNX likewise, beside their readers.
"""

from collections.abc import Callable
import functools
import gzip
import json
import math
import pathlib
import random
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import any_model
from bert.convert import tf_files
from bert.weights import checkpoints
import fuzzing

pytestmark = pytest.mark.fuzz

FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def write_safetensors(folder):
  """A folder of Hugging Face."""
  any_model.write_google(f"{folder}_google")
  any_model.convert(input=f"{folder}_google", output=folder)


def write_safetensors_of_tensorflow(folder):
  """The same with the names and the layout of TensorFlow's classes."""
  source = FIXTURES / "tf_transformers" / "BertForPreTraining"
  shutil.copytree(source, folder)
  packed = folder / "tf_model.h5.gz"
  path = folder / "tf_model.h5"
  path.write_bytes(gzip.decompress(packed.read_bytes()))
  stored, _ = tf_files.open_datasets(str(path))
  tensors = {n.split("/", 2)[2]: v.load() for n, v in stored.items()}
  safetensors.numpy.save_file(
    tensors, folder / "model.safetensors", {"format": "tf"}
  )


def write_google(folder):
  """A checkpoint as a training saves it, with Adam's moments."""
  any_model.write_google(folder, slots=("adam_m", "adam_v"))


def write_parts(folder):
  """A checkpoint of TensorFlow 1 whose word embeddings are in two parts."""
  values = any_model.write_google(folder)
  name = "bert/embeddings/word_embeddings"
  parts = np.split(values.pop(name), 2)
  rows, width = parts[0].shape
  tf.raw_ops.SaveV2(
    prefix=checkpoints.find_checkpoint(str(folder)),
    tensor_names=[*values, name, name],
    shape_and_slices=[
      *([""] * len(values)),
      f"{2 * rows} {width} 0,{rows}:0,{width}",
      f"{2 * rows} {width} {rows},{rows}:0,{width}",
    ],
    tensors=[*values.values(), *parts],
  )


def write_first_format(folder):
  """A checkpoint in the V1 format, which TensorFlow reads."""
  values = any_model.write_google(folder)
  for path in (*folder.glob("model.ckpt-7.*"), folder / "checkpoint"):
    path.unlink()
  tf.raw_ops.Save(
    filename=str(folder / "bert_model.ckpt"),
    tensor_names=[*values],
    data=[*values.values()],
  )


def copy_fixture(name, folder):
  """A checkpoint of objects: Model Garden's, or that of a SavedModel."""
  shutil.copytree(FIXTURES / name, folder)
  if (folder / "variables").exists():
    (folder / "saved_model.pb").touch()


def write_gpt(folder):
  """GPT-1's numbers, in two files, as OpenAI published them."""
  folder.mkdir()
  # The positions, the tokens, and a layer.
  shapes = [[8, 64], [5, 64], [1, 64, 192], [192], [1, 64, 64], [64], [64]]
  shapes += [[64], [1, 64, 4], [4], [1, 4, 64], [64], [64], [64]]
  (folder / "params_shapes.json").write_text(json.dumps(shapes))
  count = sum(map(math.prod, shapes))
  numbers = np.random.default_rng(1).normal(size=count).astype(np.float32)
  for number, part in enumerate(np.array_split(numbers, 2)):
    np.save(folder / f"params_{number}.npy", part)


def unpack_keras_2(name, folder):
  """A file of keras-bert or bert-for-tf2."""
  folder.mkdir()
  packed = FIXTURES / "keras2" / f"{name}.h5.gz"
  (folder / f"{name}.h5").write_bytes(gzip.decompress(packed.read_bytes()))


class Format(NamedTuple):
  """What writes a model, and the pattern of the files that get damaged."""

  write: Callable[[pathlib.Path], object]
  pattern: str
  has_checksums: bool
  structure: int = 6000  # Bytes; what follows is mostly numbers.


FORMATS = {
  "safetensors": Format(write_safetensors, "model.safetensors", False),
  "safetensors of TensorFlow": Format(
    write_safetensors_of_tensorflow, "model.safetensors", False
  ),
  "checkpoint": Format(write_google, "model.ckpt-7.*", True),
  "checkpoint in parts": Format(write_parts, "model.ckpt-7.*", True),
  "checkpoint of the first format": Format(
    write_first_format, "bert_model.ckpt", True
  ),
  **{
    name: Format(
      functools.partial(copy_fixture, name), "bert_model.ckpt.*", True
    )
    for name in ("functional", "subclassed", "older", "projected")
  },
  **{
    name: Format(
      functools.partial(copy_fixture, name), "variables/variables.*", True
    )
    for name in ("hub", "fine_tuned")
  },
  "GPT-1": Format(write_gpt, "params_*.npy", False, 128),
  **{
    name: Format(functools.partial(unpack_keras_2, name), "*.h5", False)
    for name in ("keras_bert", "bert_for_tf2")
  },
}


def damage(content, number, structure, source):
  """Returns a file with faults anywhere, near its start, or behind its end."""
  if number % 10 == 9:
    return content + source.randbytes(source.randint(1, 100))
  end = len(content) if number % 4 < 2 else min(len(content), structure)
  return fuzzing.damaged(content[:end], source) + content[end:]


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_end_in_a_line(name, tmp_path):
  """200 files: arrays or one line, no hang, bounded memory."""
  write, pattern, has_checksums, structure = FORMATS[name]
  folder = tmp_path / "model"
  write(folder)
  paths = sorted(folder.glob(pattern))
  # A file of Keras 2 is opened by its name, everything else by its folder.
  opened = paths[0] if pattern == "*.h5" else folder
  expected = any_model.values(opened)
  source, refused = random.Random(name), 0
  for number in range(200):
    path = paths[number % len(paths)]
    content = path.read_bytes()
    damaged = damage(content, number // len(paths), structure, source)
    path.write_bytes(damaged)
    found = fuzzing.value_or_error_in_memory(any_model.values, opened)
    path.write_bytes(content)
    refused += found is None
    if found is not None and has_checksums:
      assert found.keys() == expected.keys()
      for variable, value in found.items():
        np.testing.assert_array_equal(value, expected[variable])
  print(f"{name}: {refused} of 200 refused")
  assert refused > 50
