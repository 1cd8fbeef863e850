"""Tests of bert.load on folders of trainings.

Exports where TensorFlow is not installed are tried in test_onnx_exports.py.
"""

import json
import re

import numpy as np
import pytest

import bert
from bert import heads
from bert.training import same_run
from bert.weights import checkpoints
import tiny
import tiny_models


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_trained(folder)
  return bert.load(folder)


def test_texts_pairs_and_lists(trained):
  assert trained.task == "single_label"
  assert trained.labels == ("neg", "pos")
  assert trained.inputs == ("text", "text_pair")
  one = trained("the film was good")
  assert list(one) == ["label", "probabilities", "truncated"]
  pair = {"text": "good", "text_pair": "a plot"}
  found = trained([("good", "a plot"), "the film was good", pair, ("good",)])
  assert found[0] == found[2] != found[3]
  assert found[1]["probabilities"] == pytest.approx(one["probabilities"])
  assert trained([]) == []


def test_the_thresholds_that_an_evaluation_tuned(tmp_path, capsys):
  trained = tiny_models.write_trained(
    tmp_path, "multi_label", doc_stride=None, window_pooling="mean"
  )
  content = {"weights": same_run.identify_weights(trained)}
  for thresholds, labels in (
    ({"neg": 0.0, "pos": 1.0}, ["neg"]),
    ({"neg": 1.0, "pos": 0.0}, ["pos"]),
  ):
    content["thresholds"] = thresholds
    (tmp_path / "thresholds.json").write_text(json.dumps(content))
    assert bert.load(tmp_path)("the film was good")["labels"] == labels
  assert not capsys.readouterr().err
  trained.output_bias.assign([9.0, 9.0])  # Both labels, without thresholds.
  checkpoints.save(
    str(tmp_path), 8, checkpoints.model_variables(trained), keep=1
  )
  found = bert.load(tmp_path)("the film was good")["labels"]
  assert found == tiny_models.LABELS
  assert (
    "thresholds.json was tuned for other weights" in capsys.readouterr().err
  )


def test_the_temperature_that_an_evaluation_fitted(tmp_path, capsys):
  trained = tiny_models.write_trained(tmp_path, layers=1)
  texts = ["the film was good", ("bad plot", "a")]
  plain = bert.load(tmp_path).predict_proba(texts)
  content = {
    "weights": same_run.identify_weights(trained),
    "softmax": {"temperature": 0.1},
  }
  (tmp_path / "temperature.json").write_text(json.dumps(content))

  # Powers of the probabilities, which add up to 1 again.
  expected = plain**10 / (plain**10).sum(-1, keepdims=True)
  assert not np.allclose(expected, plain, atol=1e-2)
  capsys.readouterr()
  export = tiny_models.export_onnx(tmp_path)
  assert "window_pooling mean  temperature 0.1" in capsys.readouterr().out
  for folder in (tmp_path, export):
    model = bert.load(folder)
    np.testing.assert_allclose(model.predict_proba(texts), expected, rtol=1e-4)
  assert "temperature 0.1" in (tmp_path / "export" / "README.md").read_text()


def test_weights_with_nan(tmp_path):
  model = tiny_models.write_masked_lm(tmp_path)
  (tmp_path / "config.json").rename(tmp_path / "bert_config.json")
  variables = checkpoints.model_variables(model)
  name = "bert/encoder/layer_1/output/dense/bias"
  variables[name].assign(np.full(variables[name].shape, np.nan, np.float32))
  checkpoints.save(str(tmp_path), 1, variables, keep=0)
  with pytest.raises(ValueError, match=f"model.ckpt-1: {name} holds NaN: its"):
    bert.load_encoder(tmp_path)


def test_other_folders(tmp_path):
  with pytest.raises(ValueError, match="/none: no such folder; expected the"):
    bert.load("/none")
  with pytest.raises(ValueError, match="holds nothing; expected the --export"):
    bert.load(tmp_path)
  for name in "abcdef":
    (tmp_path / name).touch()
  with pytest.raises(ValueError, match=r"holds a, b, c, d, e, \.\.\.; expec"):
    bert.load(tmp_path)
  folder = tmp_path / "pretrained"
  tiny.write_model(folder)
  message = "holds config.json, vocab.txt: a model without a task; train it"
  with pytest.raises(ValueError, match=message) as error:
    bert.load(folder)
  command = "python export_saved_model.py --model=.*/pretrained "
  command += "--task=features --export_dir=pretrained_export"
  assert re.search(
    f"or let `{command}` make it one of vectors", str(error.value)
  )
  tiny_models.write_trained(folder, "pretraining", heads.PretrainingModel)
  with pytest.raises(ValueError, match="its problem is pretraining; expected"):
    bert.load(folder)
