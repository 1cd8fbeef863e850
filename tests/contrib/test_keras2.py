"""Files that keras-bert and bert-for-tf2 wrote, with what these compute.

tests/fixtures/make_keras2.py makes them; they need a Keras of their own.
"""

import gzip
import json
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf

import any_model
from bert import heads, tokenization
from bert.cli import model_folder
import paths
import program_flags

FIXTURES = paths.ROOT / "tests" / "fixtures" / "keras2"
CONFIG = any_model.CONFIG


def unpack(name, folder):
  """Writes the file of a fixture, a vocabulary and a config; its path."""
  path = folder / f"{name}.h5"
  path.write_bytes(gzip.decompress((FIXTURES / f"{name}.h5.gz").read_bytes()))
  shutil.copy(FIXTURES / "vocab.txt", folder)
  (folder / "bert_config.json").write_text(CONFIG.to_json_string())
  return path


def save_weights(path):
  """Makes of a saved model what `save_weights` writes: no description."""
  with h5py.File(path) as file, h5py.File(f"{path}.new", "w") as new:
    for layer in file["model_weights"]:
      file.copy(f"model_weights/{layer}", new)
    new.attrs["keras_version"] = "2.15.0"
  shutil.move(f"{path}.new", path)


def outputs_of(path, expected, masks_padding):
  """Returns what our models compute of the texts, by the names of a fixture."""
  config = model_folder.open_model(str(path)).config
  assert config == CONFIG
  model = heads.PretrainingModel(config)
  loaded = any_model.load(
    path, model, lambda name: "/pooler/" in name or name.startswith("cls/")
  )
  ids = np.int32(expected["input_ids"])
  mask = np.int32(ids > 0) if masks_padding else np.ones_like(ids)
  inputs = [ids, mask, np.zeros_like(ids)]
  encoded = model.bert(*inputs)
  positions = np.tile(np.arange(12, dtype=np.int32), [len(ids), 1])
  words, next_sentence = model(*inputs, positions)
  words = np.reshape(tf.nn.softmax(words), [len(ids), 12, -1])
  outputs = {
    "first": encoded.sequence_output[:, 0],
    "pooled": encoded.pooled_output,
    "words": words[:3],
    "next_sentence": tf.nn.softmax(next_sentence),
  }
  return loaded, outputs


@pytest.mark.parametrize("name", ["keras_bert", "bert_for_tf2"])
def test_computes_what_its_writer_does(name, tmp_path):
  path = unpack(name, tmp_path)
  expected = np.load(FIXTURES / f"{name}.npz")

  # Its tokenizer and ours make the same ids of 50 texts.
  tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
  for text, row in zip(expected["texts"], expected["input_ids"], strict=True):
    ids = [2, *tokenizer.encode(str(text)), 3]
    assert ids == row[: len(ids)].tolist() and not row[len(ids) :].any()

  # Without mask_zero=True, tokens of bert-for-tf2 see the padding.
  loaded, found = outputs_of(path, expected, name == "keras_bert")
  names = set(found) & set(expected)
  assert len(names) == (4 if name == "keras_bert" else 1)
  assert bool(loaded.missing) == (name == "bert_for_tf2")
  for key in names:
    np.testing.assert_allclose(found[key], expected[key], atol=1e-5)


def test_what_is_not_carried_is_listed(tmp_path):
  opened = model_folder.open_model(str(unpack("bert_for_tf2", tmp_path)))
  assert opened.weights.unread == (
    "classes/classes/bias:0",
    "classes/classes/kernel:0",
  )
  assert opened.library == "Keras 2"


def test_a_description_of_the_model_makes_a_config(tmp_path):
  path = unpack("keras_bert", tmp_path)
  (tmp_path / "bert_config.json").unlink()
  opened = model_folder.open_model(str(path))
  assert opened.config == CONFIG
  assert opened.assumed == ("hidden_act",)
  expected = any_model.values(path)
  save_weights(path)
  again = any_model.values(path)
  assert again.keys() == expected.keys()
  assert all(np.array_equal(again[n], expected[n]) for n in expected)
  with pytest.raises(ValueError, match="holds no bert_config.json: pass"):
    any_model.read(path)


def test_programs_take_the_file_or_its_folder(tmp_path):
  path = unpack("keras_bert", tmp_path)
  flags = {"text": "word1 [MASK] word2", "max_seq_length": 12}
  answers = [
    program_flags.succeed(
      program_flags.command("fill_mask", **flags, **model)
    ).stdout
    for model in (
      {"model": tmp_path},
      {
        "init_checkpoint": path,
        "vocab_file": tmp_path / "vocab.txt",
        "bert_config_file": tmp_path / "bert_config.json",
      },
    )
  ]
  assert answers[0] == answers[1] and "word" in answers[0]
  any_model.convert(input=tmp_path, output=tmp_path / "google")
  found, expected = map(any_model.values, (tmp_path / "google", path))
  assert all(np.array_equal(found[n], expected[n]) for n in expected)


def drop(name):
  def change(file):
    del file[name]

  return change


def copy_to(name):
  return lambda file: file.copy("bert", file, name)


def add_adapter(file):
  file["bert/bert/encoder/layer_0/output/adapter-down/kernel:0"] = np.ones(3)


def link_elsewhere(file):
  name = "bert/bert/encoder/layer_0/output/dense/bias:0"
  del file[name]
  file[name] = h5py.ExternalLink("/etc/passwd", "/x")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (drop("bert"), "holds no BERT by the names of keras-bert or bert-for-tf2"),
    (copy_to("bert_2"), "two models are in it; save one"),
    (add_adapter, "its encoder is not a BERT's: + bert/bert/encoder/layer_0/o"),
    (
      drop("bert/bert/encoder/layer_1/output/dense/bias:0"),
      "- bert/encoder/la",
    ),
    (link_elsewhere, "- bert/encoder/layer_0/output/dense/bias"),
  ],
)
def test_a_bad_file_is_refused_in_one_line(change, message, tmp_path):
  path = unpack("bert_for_tf2", tmp_path)
  with h5py.File(path, "a") as file:
    change(file)
  with pytest.raises(ValueError) as error:
    any_model.read(path)
  text = str(error.value)
  assert message in text and str(path) in text and "\n" not in text


def test_a_description_of_another_model_is_refused(tmp_path):
  path = unpack("keras_bert", tmp_path)
  with h5py.File(path, "a") as file:
    text = json.loads(json.dumps(file.attrs["model_config"]))
    file.attrs["model_config"] = text.replace('"head_num": 2', '"head_num": 3')
  with pytest.raises(ValueError, match=r"h5: not the weights of a BERT: "):
    model_folder.open_model(str(path))
