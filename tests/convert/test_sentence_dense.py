"""The Dense module of sentence-transformers, on tiny models.

The library's own vectors are in tests/test_sentence_transformers.py.
"""

import json
import math
import pathlib
import shutil

import numpy as np
import pytest
import safetensors.numpy

import any_model
import bert
from bert import run_embedding
from bert.serving import formats
import program_flags
import sentence_folder
import tiny
import tiny_models

WIDTH = 16  # The tiny model's.
NUMBERS = 6  # A vector has as many after a Dense.
TEXTS = ["the film was good", "bad", "", "a very very awful plot a film"]
TANH = "torch.nn.modules.activation.Tanh"
# Written out, without TensorFlow.
FUNCTIONS = {
  TANH: np.tanh,
  "torch.nn.modules.linear.Identity": lambda x: x,
  "torch.nn.modules.activation.ReLU": lambda x: x * (x > 0),
  "torch.nn.modules.activation.GELU": np.vectorize(
    lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))
  ),
  "torch.nn.modules.activation.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def draw(seed=5):
  """Returns a matrix as torch has it, [out, in], and a bias."""
  source = np.random.default_rng(seed)
  kernel = source.normal(0, 0.4, [NUMBERS, WIDTH]).astype("f4")
  return {"linear.weight": kernel, "linear.bias": kernel[:, 0].copy()}


def add_dense(folder, tensors=None, normalizes=True, **settings):
  """Puts a Dense behind the pooling of a folder; returns its own."""
  modules = json.loads((folder / "modules.json").read_text())[:2]
  names = ["Dense", "Normalize"] if normalizes else ["Dense"]
  modules += [
    {"path": f"{i}_{name}", "type": f"sentence_transformers.models.{name}"}
    for i, name in enumerate(names, 2)
  ]
  (folder / "modules.json").write_text(json.dumps(modules))
  place = folder / "2_Dense"
  place.mkdir(exist_ok=True)
  stated = {"in_features": WIDTH, "out_features": NUMBERS, **settings}
  (place / "config.json").write_text(json.dumps(stated))
  weights = draw() if tensors is None else tensors
  safetensors.numpy.save_file(weights, place / "model.safetensors")
  return place


@pytest.fixture
def folder(tmp_path):
  """Returns an encoder of sentences that pools by the mean."""
  path = tmp_path / "model"
  path.mkdir()
  tiny_models.write_masked_lm(path)
  tiny_models.write_modules(path, max_seq_length=12)
  add_dense(path)
  return path


@pytest.fixture
def pooled(folder):
  """Returns the vectors before the Dense, [N, H]."""
  return extract(folder, pooling="mean", layers="-1")


def extract(folder, **flags):
  return sentence_folder.extract(folder, TEXTS, **flags)


def vectors_of(folder):
  return np.array(bert.load(folder).encode(TEXTS))


def through(pooled, activation=TANH, normalizes=True, has_bias=True):
  """Returns what a Dense makes of vectors, computed by NumPy."""
  weights = draw()
  made = pooled @ weights["linear.weight"].T
  made = FUNCTIONS[activation](made + has_bias * weights["linear.bias"])
  lengths = np.linalg.norm(made, axis=1, keepdims=True)
  return made / lengths if normalizes else made


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_vectors_go_through_the_layer(folder, pooled, activation):
  has_bias = activation != TANH
  weights = draw() if has_bias else {"linear.weight": draw()["linear.weight"]}
  add_dense(
    folder, weights, False, bias=has_bias, activation_function=activation
  )
  wanted = through(pooled, activation, False, has_bias)
  assert np.ptp(wanted, axis=0).max() > 0.1
  np.testing.assert_allclose(extract(folder), wanted, atol=1e-6)
  np.testing.assert_allclose(vectors_of(folder), wanted, atol=1e-6)
  path = tiny_models.export_onnx(
    folder, activation, model_dir="", vocab_file="", model=folder
  )
  np.testing.assert_allclose(vectors_of(path), wanted, atol=1e-5)


def test_it_is_said_and_exported(folder, pooled, capsys):
  wanted = through(pooled)
  np.testing.assert_allclose(extract(folder), wanted, atol=1e-6)
  printed = capsys.readouterr()
  place = folder / "2_Dense" / "model.safetensors"
  line = f"after the pooling comes the dense layer {place}, 16 to 6 numbers, "
  assert f"{line}tanh\n" in printed.err
  # The command that the program prints exports the same vectors.
  [command] = [x for x in printed.out.splitlines() if "export_saved_model" in x]
  assert "--pooling" not in command and "--layer=-1" in command


@pytest.mark.slow
def test_every_format_has_it(folder, pooled):
  for format in formats.FORMATS:
    # The program itself loads the export again and compares.
    path = tiny_models.run_export(
      folder, format, model_dir="", vocab_file="", model=folder, format=format
    )
    settings = json.loads(pathlib.Path(path, "export.json").read_text())
    assert settings["settings"]["dense"] == "16 to 6 numbers, tanh"
    if formats.FORMATS[format].engines:
      found = vectors_of(path)
      np.testing.assert_allclose(found, through(pooled), atol=1e-5)


def test_an_index_notices_another_layer(folder):
  before = bert.load(folder).weights_sha256
  add_dense(folder, draw(seed=6))
  assert bert.load(folder).weights_sha256 != before


def test_a_conversion_keeps_it(folder, pooled, tmp_path):
  there, back = tmp_path / "there", tmp_path / "back"
  shutil.copy(folder / "config.json", folder / "bert_config.json")
  any_model.convert(input=folder, output=there)
  any_model.convert(input=there, output=back)
  for path in (there, back):
    np.testing.assert_allclose(vectors_of(path), through(pooled), atol=1e-6)
    for name in ("config.json", "model.safetensors"):
      found = (path / "2_Dense" / name).read_bytes()
      assert found == (folder / "2_Dense" / name).read_bytes()


NAN = {**draw(), "linear.bias": np.full([NUMBERS], np.nan, "f4")}
FAULTS = {
  "model.safetensors does not fit its config.json: + residual.weight": (
    {**draw(), "residual.weight": draw()["linear.weight"]},
    {},
  ),
  "does not fit its config.json: + linear.bias": (None, {"bias": False}),
  "linear.weight: shape (6, 16), its config.json's is (6, 8)": (
    None,
    {"in_features": 8},
  ),
  "model.safetensors: linear.bias holds NaN": (NAN, {}),
  "linear.weight holds int8; expected floating-point numbers": (
    {name: value.astype("i1") for name, value in draw().items()},
    {},
  ),
  "takes vectors of 4 numbers; the model's have 16": (
    {**draw(), "linear.weight": np.ones([NUMBERS, 4], "f4")},
    {"in_features": 4},
  ),
}


@pytest.mark.parametrize("message", FAULTS)
def test_other_weights_are_refused(folder, message):
  tensors, settings = FAULTS[message]
  place = add_dense(folder, tensors, **settings)
  for read in (bert.load, extract):
    with pytest.raises(ValueError) as caught:
      read(folder)
    assert message in str(caught.value)
    assert str(place) in str(caught.value) and "\n" not in str(caught.value)


def test_a_training_refuses_it(folder, tmp_path):
  (tmp_path / "pairs.tsv").write_text("the film\tgood\nbad\tplot\n")
  with pytest.raises(ValueError) as caught:
    program_flags.run_main(
      run_embedding,
      run_embedding.EmbeddingSettings,
      model=folder,
      train_file=tmp_path / "pairs.tsv",
      output_dir=tmp_path / "out",
      max_seq_length=tiny.SEQUENCE,
      do_train=True,
    )
  assert str(caught.value) == (
    f"--model={folder}: a Dense module follows its pooling, which this program "
    "does not train: to train the model without it, pass --pooling=mean"
  )
  assert not (tmp_path / "out").exists()
