"""tf_model.h5 of transformers 2 to 4, and files that lead elsewhere.

tests/fixtures/tf_transformers holds models that transformers 4.49 wrote, and
what it computes with them; tests/fixtures/make_tf_transformers.py makes them.
"""

import gzip
import json
import pathlib
import random
import shutil

import h5py
import numpy as np
import pytest
import safetensors.numpy

import any_model
from bert import heads
from bert.cli import model_folder
from bert.convert import tf_files
import fuzzing

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "tf_transformers"
TABLE = "bert/tf_bert_for_pre_training/bert/embeddings/word_embeddings/weight:0"
NORM = "bert/tf_bert_for_pre_training/bert/embeddings/LayerNorm/beta:0"
# For each class: our model, the outputs of theirs.
CASES = {
  "BertForPreTraining": (
    heads.PretrainingModel,
    ("prediction_logits", "seq_relationship_logits"),
  ),
  "BertForSequenceClassification": (
    lambda config: heads.ClassifierModel(config, 3),
    ["logits"],
  ),
  "DistilBertForMaskedLM": (heads.PretrainingModel, ["logits"]),
}


def unpack(folder, name="BertForPreTraining"):
  """Copies a fixture; returns its tf_model.h5."""
  shutil.copytree(FIXTURES / name, folder)
  path = folder / "tf_model.h5"
  path.write_bytes(gzip.decompress((folder / "tf_model.h5.gz").read_bytes()))
  return path


@pytest.fixture
def path(tmp_path):
  return unpack(tmp_path / "model")


def read_all(path):
  tensors = tf_files.open_file(str(path))
  return {name: tensor.load() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", CASES)
def test_computes_what_tensorflow_classes_did(name, tmp_path):
  make_model, outputs = CASES[name]
  folder = unpack(tmp_path / "model", name).parent
  expected = np.load(folder / "expected.npz")
  model = make_model(model_folder.open_model(str(folder)).config)
  ids, mask = expected["input_ids"], expected["attention_mask"]
  segments = dict(expected).get("token_type_ids", np.zeros_like(ids))
  inputs = [np.int32(x) for x in (ids, mask, segments)]
  if make_model is heads.PretrainingModel:
    inputs.append(np.tile(np.arange(6, dtype=np.int32), [2, 1]))

  # A BERT has all variables of its class; DistilBERT no pooler and no next
  # sentence.
  may_lack = ("bert/pooler/", "cls/seq_rel") if "Distil" in name else ("none",)
  loaded = any_model.load(folder, model, lambda name: name.startswith(may_lack))
  assert not loaded.unused
  found = model(*inputs)
  found = found if isinstance(found, tuple) else [found]
  for ours, key in zip(found, outputs, strict=False):
    by_token = expected[key].ndim > 2
    rows = mask.astype(bool) if by_token else slice(None)
    any_model.assert_near(ours, expected[key], rows)


def test_a_classifier_of_tensorflow_is_converted(tmp_path):
  folder = unpack(tmp_path / "model", "BertForSequenceClassification").parent
  tokens = "\n".join(any_model.TOKENS[:11])
  (folder / "vocab.txt").write_text(tokens)
  assert any_model.read(folder).head == "classifier"
  any_model.convert(input=folder, output=tmp_path / "google")
  found = any_model.values(tmp_path / "google")
  for name, value in any_model.values(folder).items():
    assert np.array_equal(found[name], value), name


def variables_of(path):
  """Returns the variables of a file by their names in shards."""
  variables = {}

  def add(name, item):
    if isinstance(item, h5py.Dataset):
      variables[name.split("/", 2)[2]] = item[()]

  with h5py.File(path) as file:
    file.visititems(add)
  return variables


def test_shards_and_safetensors_of_tensorflow(path):
  """By their published layouts: this file's variables under their names."""
  expected = any_model.values(path)
  variables = variables_of(path)
  path.unlink()
  names = sorted(variables)
  index = {}
  for number, part in enumerate((names[::2], names[1::2]), 1):
    shard = f"tf_model-0000{number}-of-00002.h5"
    with h5py.File(path.parent / shard, "w") as file:
      for name in part:
        file[name] = variables[name]
      file.attrs["layer_names"] = [name.encode() for name in part]
    index |= {f"tf_bert_for_pre_training/{name}": shard for name in part}
  index_path = path.parent / "tf_model.h5.index.json"
  index_path.write_text(json.dumps({"weight_map": index}))
  sharded = any_model.values(path.parent)
  index_path.unlink()
  safetensors.numpy.save_file(
    variables, path.parent / "model.safetensors", {"format": "tf"}
  )
  safe = any_model.values(path.parent)
  for found in (sharded, safe):
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in found)


# Files that lead elsewhere.


@pytest.fixture
def secret(tmp_path):
  """A file with numbers that no model may show."""
  with h5py.File(tmp_path / "secret.h5", "w") as file:
    file["x"] = np.ones(4, np.float32)
  return str(tmp_path / "secret.h5")


def link(file, secret):
  file[NORM] = h5py.ExternalLink(secret, "x")


def link_softly(file, secret):
  file[NORM] = h5py.SoftLink("/nowhere")


def place_outside(file, secret):
  file.create_dataset(NORM, (4,), "f4", external=[(secret, 0, 16)])


def make_virtual(file, secret):
  layout = h5py.VirtualLayout((4,), "f4")
  layout[:] = h5py.VirtualSource(secret, "x", (4,))
  file.create_virtual_dataset(NORM, layout)


def compress(file, secret):
  shape = (1 << 30,)
  file.create_dataset(NORM, shape, "f4", chunks=(1 << 20,), compression="gzip")


def never_write(file, secret):
  file.create_dataset(NORM, (1 << 60,), "f4")


def refer(file, secret):
  file.create_dataset(NORM, (4,), h5py.ref_dtype)
  file[NORM][0] = file[TABLE].ref


def write_text(file, secret):
  file[NORM] = "text"


def grow(file, secret):
  file[NORM] = np.zeros(30_000, np.float32)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (link, "does not fit its config: - bert/embeddings/LayerNorm/beta"),
    (link_softly, "does not fit its config: - bert/embeddings/LayerNorm/b"),
    *(
      (change, f"not readable: '{NORM[:60]}")
      for change in (
        place_outside,
        make_virtual,
        compress,
        never_write,
        refer,
        write_text,
      )
    ),
    (grow, "/beta: shape (30000,), its config's is (4,)"),
  ],
)
def test_numbers_from_elsewhere_are_refused(change, message, path, secret):
  with h5py.File(path, "a") as file:
    # A head has a copy, which would take its place.
    del file[NORM], file["mlm___cls"]
    change(file, secret)
  with pytest.raises(ValueError) as caught:
    any_model.read(path.parent)
  assert message in str(caught.value)
  assert len(str(caught.value).splitlines()) == 1


def test_copies_that_differ_are_refused(path):
  with h5py.File(path, "a") as file:
    file["mlm___cls/" + TABLE.partition("/")[2]][0, 0] = 9
  with pytest.raises(ValueError, match="holds two 'bert/.*weight:0' that diff"):
    model_folder.open_model(str(path))


@pytest.mark.fuzz
def test_damaged_files_end_in_a_line(path, tmp_path):
  """200 files: numbers or one line, and bounded memory."""
  source, refused = random.Random(3), 0
  valid = path.read_bytes()
  for number in range(200):
    # Half of the faults in the first fifth, where most of the structure is.
    damaged = fuzzing.damaged(valid, source)
    if number % 2:
      damaged = fuzzing.damaged(valid[:12_000], source) + valid[12_000:]
    target = tmp_path / f"{number}.h5"
    target.write_bytes(damaged)
    refused += fuzzing.value_or_error_in_memory(read_all, target) is None
  assert 50 < refused < 200
