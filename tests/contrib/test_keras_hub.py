"""KerasHub's folders, with KerasHub itself as the oracle."""

import dataclasses
import json
import shutil

import keras
import numpy as np
import pytest

import any_model
from bert.cli import model_folder

keras_hub = pytest.importorskip(
  "keras_hub", reason="needs requirements/bench.txt"
)
import h5py

from bert import heads
from bert.contrib import keras_hub as keras_hub_folders
from bert.convert import writing
from bert.weights import checkpoints

LABELS = 3


def theirs_of(inputs):
  names = "token_ids", "padding_mask", "segment_ids"
  return dict(zip(names, inputs, strict=True))


def make_backbone(layers=2):
  return keras_hub.models.BertBackbone(
    vocabulary_size=30,
    num_layers=layers,
    num_heads=2,
    hidden_dim=8,
    intermediate_dim=12,
    max_sequence_length=12,
  )


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
  """The folder of a BertTextClassifier."""
  folder = tmp_path_factory.mktemp("preset") / "there"
  tokenizer = keras_hub.models.BertTokenizer(any_model.TOKENS, lowercase=True)
  model = keras_hub.models.BertTextClassifier(
    make_backbone(),
    LABELS,
    keras_hub.models.BertTextClassifierPreprocessor(tokenizer, 12),
  )
  any_model.draw(model.weights)
  model.save_to_preset(str(folder))
  return folder


def test_keras_hub_computes_what_we_do(tmp_path):
  ours = heads.ClassifierModel(any_model.CONFIG, LABELS)
  any_model.write_google(tmp_path, ours)
  folder = str(tmp_path / "there")
  assert writing.write("keras_hub", folder, any_model.read(tmp_path)) == [
    "model.weights.h5: 41 variables, for BertTextClassifier",
    "vocab.txt: 30 tokens, do_lower_case=true",
  ]
  theirs = keras_hub.models.BertTextClassifier.from_preset(folder)
  inputs = any_model.make_inputs()
  any_model.assert_near(ours(*inputs), theirs(theirs_of(inputs)))
  backbone = keras_hub.models.BertBackbone.from_preset(folder)
  any_model.assert_near(
    ours.bert(*inputs).pooled_output,
    backbone(theirs_of(inputs))["pooled_output"],
  )
  tokenizer = keras_hub.models.BertTokenizer.from_preset(folder)
  assert list(tokenizer(["W\u00f3rd3 word24"])[0]) == [8, 29]


def read_all(path):
  values = {}

  def add(name, item):
    if isinstance(item, h5py.Dataset) and not name.startswith("optimizer"):
      values[name] = item[()]

  with h5py.File(path) as file:
    file.visititems(add)
  return values


def test_a_round_trip_is_equal_to_the_bit(preset, tmp_path, capsys):
  google, back = tmp_path / "google", tmp_path / "back"
  any_model.convert(input=preset, output=google)
  assert capsys.readouterr().out.splitlines()[0] == (
    f"read {preset}: 2 layers of 8, --head=classifier"
  )
  any_model.convert(input=google, output=back, output_format="keras_hub")
  for name in ("model.weights.h5", "task.weights.h5"):
    before, after = read_all(preset / name), read_all(back / name)
    assert before.keys() == after.keys()
    assert all(before[n].tobytes() == after[n].tobytes() for n in before)
  ours, theirs = (
    json.loads((path / "config.json").read_text())["config"]
    for path in (back, preset)
  )
  differing = {key for key in theirs if ours[key] != theirs[key]}
  assert differing <= {"name", "dtype"}


def test_a_model_is_read_anew_after_it_was_assigned(preset, monkeypatch):
  """Its arrays must not stay in memory during a training."""
  weights = model_folder.open_model(str(preset)).weights
  load, loads = keras.Model.load_weights, []

  def count(model, path, *arguments, **options):
    loads.append(path)
    return load(model, path, *arguments, **options)

  monkeypatch.setattr(keras.Model, "load_weights", count)
  model = heads.ClassifierModel(any_model.CONFIG, LABELS)
  checkpoints.assign(weights, checkpoints.model_variables(model))
  # The backbone once for all its variables, and once more for a later one.
  backbone = str(preset / keras_hub_folders.WEIGHTS)
  assert loads.count(backbone) == 1
  weights.read("output_bias")
  assert loads.count(backbone) == 2


def test_reads_shards(tmp_path):
  backbone = make_backbone(layers=1)
  backbone.save_to_preset(str(tmp_path), max_shard_size=3e-6)
  assert len(list(tmp_path.glob("*.h5"))) > 1
  values = any_model.values(tmp_path)
  # The embeddings, a layer and the pooler.
  assert len(values) == 5 + 16 + 2
  layer = backbone.get_layer("transformer_layer_0")._self_attention_layer
  assert np.array_equal(
    values["bert/encoder/layer_0/attention/self/key/kernel"],
    np.reshape(layer._key_dense.kernel.numpy(), [8, 8]),
  )


def test_leaves_the_masked_lm_head_unread(tmp_path, preset):
  model = keras_hub.models.BertMaskedLM(
    keras_hub.models.BertBackbone.from_preset(str(preset))
  )
  model.save_to_preset(str(tmp_path))
  opened = model_folder.open_model(str(tmp_path))
  assert "cls/predictions/output_bias" not in opened.weights.shapes
  assert opened.weights.unread == ("task.weights.h5",)


@pytest.mark.parametrize(
  ("name", "change", "message"),
  [
    ("config.json", None, "No such file or directory: '"),
    ("config.json", {"num_layers": 3}, "is of 2,036 numbers, the weights are"),
    ("config.json", b'{"class_name": "Albert"}', "'Albert'; expected KerasH"),
    ("config.json", {"num_layers": 1}, "the weights are 1,504"),
    ("config.json", {"num_heads": "2"}, "n: num_heads is '2'; exp"),
    ("config.json", {"vocabulary_size": None}, "n: vocabulary_size is Non"),
    ("config.json", {"dropout": 2}, "n: dropout is 2; expected a number from"),
    ("config.json", {"num_heads": 1}, "not the weights of config.json"),
    ("config.json", {"hidden_dim": 16}, "the weights are 1,504"),
    ("config.json", {"vocabulary_size": 1 << 40}, "the weights are 1,504"),
    ("tokenizer.json", {"split_on_cjk": False}, "r.json: split_on_cjk is F"),
    ("model.weights.h5", b"\x89HDF\r\n", "h5: not the weights of config.json"),
  ],
)  # fmt: skip
def test_a_bad_folder_is_refused_in_one_line(
  name, change, message, tmp_path, preset
):
  """Changes are fields of a JSON file, a whole content, or None to delete."""
  folder = tmp_path / "there"
  shutil.copytree(preset, folder)
  path = folder / name
  if change is None:
    path.unlink()
  elif isinstance(change, bytes):
    path.write_bytes(change)
  else:
    contents = json.loads(path.read_text())
    contents.get("config", contents).update(change)
    path.write_text(json.dumps(contents))
  with pytest.raises((ValueError, OSError)) as error:
    any_model.read(str(folder), head="classifier")
  assert message in str(error.value) and "\n" not in str(error.value)


def test_a_data_set_in_the_place_of_layers_is_refused(tmp_path, preset):
  folder = tmp_path / "there"
  shutil.copytree(preset, folder)
  with h5py.File(folder / "model.weights.h5", "w") as file:
    file["layers"] = [1.0]
  with pytest.raises(ValueError, match="h5: not the weights of config.json"):
    any_model.read(str(folder))


def test_what_keras_hub_cannot_say_is_refused(tmp_path, preset):
  model = any_model.read(str(preset))
  for fields, message in (
    ({"hidden_act": "gelu_erf"}, "this config has 'gelu_erf' and "),
    ({"hidden_dropout_prob": 0.2}, r"has 'gelu' and \(0.2, 0.1\)"),
  ):
    config = dataclasses.replace(model.config, **fields)
    changed = dataclasses.replace(model, config=config)
    with pytest.raises(ValueError, match=message):
      writing.write("keras_hub", str(tmp_path / "out"), changed)


def test_a_note_names_accents_that_keras_hub_keeps(preset, capsys):
  any_model.read(str(preset))
  assert "strip_accents is False; here accents are" in capsys.readouterr().err
