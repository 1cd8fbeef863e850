"""SavedModels: two with the same names, and damaged ones."""

import shutil
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.data import files
from bert.serving import formats, tensorflow_engine

IDS = {
  name: np.full([1, 2], value, np.int32)
  for name, value in (("input_ids", 3), ("input_mask", 1), ("segment_ids", 0))
}


def save(folder, value):
  """Saves a function of ids with a variable, a constant and a loop."""
  module = tf.Module()
  module.weights = [tf.Variable([value, 1.0], name="a/b")]

  def compute(input_ids, input_mask, segment_ids):
    total = tf.zeros([2])
    for _ in tf.range(input_ids[0, 0]):
      total += module.weights[0]
    return {"total": total + tf.constant([0.5, 0.0])}

  names = ("input_ids", "input_mask", "segment_ids")
  specs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]
  function = tf.function(compute, input_signature=specs)
  tf.saved_model.save(module, str(folder), signatures={"ids": function})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("model")
  save(path / "one", 5.0)
  save(path / "two", 7.0)
  return path


def test_files_of_two_exports(folder, tmp_path):
  saved_model = formats.FORMATS["saved_model"]
  one = folder / "one"
  hashes = {
    name: files.hash_file(str(one / name)) for name in saved_model.hashed
  }
  card = types.SimpleNamespace(hashes=hashes)
  load = saved_model.engines["tensorflow"]
  engine = load(str(one), card, 0, [])
  assert engine.run(IDS)["total"].tolist() == [15.5, 3.0]

  # A new export that is copied over an old one, and stopped half-way.
  mixed = shutil.copytree(one, tmp_path / "mixed")
  shutil.copytree(
    folder / "two" / "variables", mixed / "variables", dirs_exist_ok=True
  )
  with pytest.raises(ValueError, match="not the file that export.json descr"):
    load(str(mixed), card, 0, [])

  # Earlier exports state the hashes of their vocabulary alone.
  card.hashes = {"vocab.txt": ""}
  engine = load(str(mixed), card, 0, [])
  assert engine.run(IDS)["total"].tolist() == [21.5, 3.0]


def test_two_models_with_the_same_names(folder):
  one, two = (
    tensorflow_engine.Engine(str(folder / name)) for name in ("one", "two")
  )
  assert one.run(IDS)["total"].tolist() == [15.5, 3.0]
  assert two.run(IDS)["total"].tolist() == [21.5, 3.0]


@pytest.mark.parametrize(
  ("name", "size"),
  [
    ("saved_model.pb", 0),
    ("saved_model.pb", 900),
    ("variables/variables.index", 10),
    ("variables/variables.data-00000-of-00001", 3),
  ],
)
def test_damaged_files(folder, tmp_path, name, size):
  shutil.copytree(folder / "one", tmp_path / "one")
  path = tmp_path / "one" / name
  path.write_bytes(path.read_bytes()[:size])
  with pytest.raises(ValueError, match="one: not a readable export: "):
    tensorflow_engine.Engine(str(tmp_path / "one"))
