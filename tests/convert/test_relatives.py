"""ELECTRA and DistilBERT as BERTs, with transformers as the oracle."""

import json
import os

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest

import any_model
from any_model import SIZES
from bert import heads, modeling
from bert.cli import model_folder
from bert.convert import huggingface, models
from bert.weights import checkpoints
from paths import SHARED


def save_theirs(name, folder, **fields):
  """Saves a model of transformers; returns it."""
  torch = pytest.importorskip("torch", reason="needs requirements/bench.txt")
  transformers = pytest.importorskip("transformers")
  config_class = "ElectraConfig" if "Elec" in name else "DistilBertConfig"
  settings = getattr(transformers, config_class)(**fields)
  torch.manual_seed(3)
  model = getattr(transformers, name)(settings).eval()
  for parameter in model.parameters():
    parameter.data += 0.3 * torch.randn(parameter.shape)
  model.save_pretrained(folder)
  return model


def outputs_of(model, inputs):
  import torch

  with torch.no_grad():
    return model(*(torch.tensor(np.int64(x)) for x in inputs))


def load(folder, model):
  """Loads a folder, of which a pooler may be missing; returns its reader."""
  loaded = any_model.load(
    folder, model, lambda name: "/pooler/" in name or "seq_relationship" in name
  )
  assert all("pooler" in n or "seq_rel" in n for n in loaded.missing)
  return model_folder.open_model(str(folder))


@pytest.mark.parametrize("width", [4, 8])
def test_electra_is_computed_as_transformers_does(width, tmp_path):
  inputs = any_model.make_inputs()
  theirs = save_theirs(
    "ElectraForPreTraining", tmp_path, **SIZES, embedding_size=width
  )
  config = model_folder.open_model(str(tmp_path)).config
  assert config.embedding_size == (4 if width == 4 else None)
  model = modeling.BertModel(config)
  reader = load(tmp_path, model)
  expected = outputs_of(theirs.electra, inputs).last_hidden_state
  real = inputs[1].astype(bool)
  any_model.assert_near(model(*inputs).sequence_output, expected, real)
  names = (
    "dense.bias dense.weight dense_prediction.bias dense_prediction.weight"
  )
  unread = [f"discriminator_predictions.{name}" for name in names.split()]
  assert [*reader.weights.unread] == unread


DISTILBERT_SIZES = {
  "vocab_size": 30,
  "dim": 8,
  "hidden_dim": 12,
  "n_layers": 2,
  "n_heads": 2,
  "max_position_embeddings": 12,
}


def test_distilbert_is_computed_as_transformers_does(tmp_path):
  ids, mask, segments = any_model.make_inputs()
  theirs = save_theirs("DistilBertForMaskedLM", tmp_path, **DISTILBERT_SIZES)
  config = model_folder.open_model(str(tmp_path)).config
  assert config == modeling.BertConfig(
    **SIZES, type_vocab_size=2, hidden_act="gelu_erf"
  )
  model = heads.PretrainingModel(config)
  assert load(tmp_path, model).weights.unread == ()
  positions = np.tile(np.arange(12, dtype=np.int32), [3, 1])
  # Segments do not matter, as there are none.
  logits, _ = model(ids, mask, segments, positions)
  expected = outputs_of(theirs, (ids, mask)).logits
  any_model.assert_near(logits, expected, mask.astype(bool))


def test_a_tagger_comes_along_and_another_classifier_does_not(tmp_path):
  def open_weights(name):
    save_theirs(f"DistilBertFor{name}", tmp_path / name, **DISTILBERT_SIZES)
    return model_folder.open_model(str(tmp_path / name)).weights

  tagger = open_weights("TokenClassification")
  assert tagger.shapes["output_weights"] == (2, 8)
  # Its classifier stands on a dense layer with a ReLU, not on BERT's pooler.
  classifier = open_weights("SequenceClassification")
  assert "output_weights" not in classifier.shapes
  unread = "classifier.bias classifier.weight"
  unread += " pre_classifier.bias pre_classifier.weight"
  assert [*classifier.unread] == unread.split()


def write_electra(folder, config):
  """Writes a BERT as google-research/electra names its variables."""
  values = {}
  encoder = modeling.BertModel(config)
  for name, variable in checkpoints.model_variables(encoder).items():
    if "/pooler/" not in name:
      name = name.replace("bert/", "electra/", 1)
      name = name.replace("/embeddings/project/", "/embeddings_project/")
      values[name] = variable.numpy()
      values[f"{name}/adam_m"] = np.zeros(variable.shape, np.float32)
  values["discriminator_predictions/dense/bias"] = np.zeros(8, np.float32)
  values["generator/encoder/layer_0/output/dense/bias"] = np.zeros(4)
  values["global_step"] = np.int64(5)
  folder.mkdir()
  checkpoints.write(str(folder), values)
  (folder / "vocab.txt").write_text("\n".join(any_model.TOKENS) + "\n")
  return values


def test_reads_checkpoints_of_electra(tmp_path, capsys):
  config = modeling.BertConfig(**SIZES, type_vocab_size=2, embedding_size=4)
  folder, output = tmp_path / "electra", tmp_path / "out"
  values = write_electra(folder, config)
  with pytest.raises(
    ValueError, match="holds no bert_config.json: pass --bert"
  ):
    any_model.convert(input=folder, output=output)
  (folder / "bert_config.json").write_text(config.to_json_string())
  any_model.convert(input=folder, output=output)
  assert capsys.readouterr().out.splitlines()[1:4] == [
    "left out: 40 variables of the state of the training",
    "left out: discriminator_predictions/dense/bias, "
    "generator/encoder/layer_0/output/dense/bias",
    "not in it: bert/pooler/dense/kernel, bert/pooler/dense/bias",
  ]
  found = dict(checkpoints.read(str(output / "bert_model.ckpt")))
  assert len(found) == 39
  name = "encoder/layer_1/attention/self/key/kernel"
  assert np.array_equal(found[f"bert/{name}"], values[f"electra/{name}"])
  projection = values["electra/embeddings_project/kernel"]
  assert np.array_equal(found["bert/embeddings/project/kernel"], projection)
  written = json.loads((output / "bert_config.json").read_text())
  assert written["embedding_size"] == 4
  named = r"BertModel \(--head=encoder\): - bert/pooler/dense/bias; "
  flags = {"output_format": "hugging_face", "head": "encoder"}
  with pytest.raises(ValueError, match=named):
    any_model.convert(input=output, output=tmp_path / "hf", **flags)


# The config.json of the Chinese BERTs, without the usual fields.
CHINESE = {
  "architectures": ["BertForMaskedLM"],
  "model_type": "bert",
  "directionality": "bidi",
  "pooler_fc_size": 768,
  "pooler_type": "first_token_transform",
  "output_past": True,
  "gradient_checkpointing": False,
  "layer_norm_eps": 1e-12,
  "hidden_act": "gelu",
  "type_vocab_size": 2,
  "vocab_size": 21128,
}


def test_chinese_berts_are_berts(tmp_path):
  """BERT-wwm, RoBERTa-wwm-ext and MacBERT: the config and the names."""
  config = huggingface.to_bert_config("config.json", CHINESE)
  assert (config.vocab_size, config.hidden_act) == (21128, "gelu_erf")
  path = SHARED / "data/checkpoints/chinese_wwm.index_only/VARIABLES.txt"
  if not path.exists():
    pytest.skip(f"no {path}")
  names = {line.split("\t")[0] for line in path.read_text().splitlines()}
  assert names >= set(models.variables(config, "encoder"))
