"""Signatures give what TensorFlow's own loader gives, and faults are named."""

import shutil

import pytest
import tensorflow as tf

from serving import signature_loader


def save(folder, value):
  """Saves a function with a variable, a constant, a loop and a condition."""
  module = tf.Module()
  module.weights = [tf.Variable([value, 1.0], name="a/b")]
  words = tf.constant(["odd", "even"])

  def compute(text, count):
    total = tf.zeros([2])
    for _ in tf.range(count):
      total += module.weights[0]
    if count > 2:
      total = -total
    word = tf.gather(words, tf.cast(count % 2 == 0, tf.int32))
    return {"total": total, "word": tf.strings.join([text, word])}

  specs = [
    tf.TensorSpec([None], tf.string, "text"),
    tf.TensorSpec([], tf.int32, "count"),
  ]
  function = tf.function(compute, input_signature=specs)
  other = tf.function(lambda: {"weight": module.weights[0][:1]})
  signatures = {"compute": function, "other": other.get_concrete_function()}
  tf.saved_model.save(module, str(folder), signatures=signatures)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  path = tmp_path_factory.mktemp("model")
  save(path / "one", 5.0)
  save(path / "two", 7.0)
  return path


def compute(signatures, text, count):
  outputs = signatures(
    "compute", count=tf.constant(count), text=tf.constant(text)
  )
  assert sorted(outputs) == ["total", "word"]
  return outputs["total"].numpy().tolist(), outputs["word"].numpy().tolist()


def test_signatures_of_two_models_with_the_same_names(folder):
  one, two = (
    signature_loader.Signatures(str(folder / name)) for name in ("one", "two")
  )
  two.prepare("compute", text=tf.constant([""]), count=tf.constant(0))
  assert compute(one, ["a", "b"], 2) == ([10.0, 2.0], [b"aeven", b"beven"])
  assert compute(two, ["c"], 3) == ([-21.0, -3.0], [b"codd"])
  assert one("other")["weight"].numpy() == [5.0]
  assert two("other")["weight"].numpy() == [7.0]


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
  with pytest.raises((ValueError, OSError, tf.errors.OpError)):
    signatures = signature_loader.Signatures(str(tmp_path / "one"))
    signatures.prepare("compute", text=tf.constant([""]), count=tf.constant(0))
