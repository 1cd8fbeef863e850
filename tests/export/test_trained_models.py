"""Trained models whose folders lack something are refused."""

import json

import pytest

from cli import model_folder
from export import exporting, trained_models
import heads
import modeling
import tiny
import tiny_models
from weights import checkpoints

BIAS = "cls/predictions/output_bias"
KERNEL = "cls/predictions/transform/dense/kernel"


@pytest.mark.parametrize(
  ("config", "removed", "message"),
  [
    ({}, BIAS, f"- {BIAS}"),
    ({}, KERNEL, f"no masked-LM head, it lacks {KERNEL}: give one that was pr"),
    ({"causal_attention": True}, BIAS, "only fill_mask.py makes a causal"),
  ],
)
def test_weights_that_guess_no_masks(tmp_path, config, removed, message):
  tiny.write_model(tmp_path, config)
  variables = checkpoints.model_variables(tiny_models.make_masked_lm(tmp_path))
  variables.pop(removed, None)
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  start = model_folder.open(str(tmp_path), str(tmp_path / "config.json"))
  with pytest.raises(ValueError, match=message):
    trained_models.load_pretrained(
      start.weights, start.config, True, "fill_mask"
    )


def test_the_head_of_a_task_is_not_left_out_silently(tmp_path, capsys):
  tiny.write_model(tmp_path)
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  variables = checkpoints.model_variables(heads.ClassifierModel(config, 2))
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  weights = model_folder.open(str(tmp_path)).weights
  trained = trained_models.load_pretrained(weights, config, True)
  assert (trained.kind, trained.has_text_pair) == ("features", True)
  assert "has the head of a task, output_weights, which is left out" in (
    capsys.readouterr().err
  )


def test_lengths_are_compared_before_an_export():
  prediction = {"max_seq_length": 16, "max_query_length": 4}
  trained = trained_models.TrainedModel(
    kind="question_answering",
    config=modeling.BertConfig(30),
    model=None,
    do_lower_case=True,
    prediction=prediction,
  )
  values = {"max_query_length": 12}
  assert trained_models.override(trained, values).prediction == {
    "max_seq_length": 16,
    "max_query_length": 12,
  }
  message = "--max_seq_length=16: expected more than --max_query_length=13 and"
  with pytest.raises(ValueError, match=message):
    trained_models.override(trained, {"max_query_length": 13})


@pytest.mark.parametrize(
  "name", ["vocab_file_sha256", "do_lower_case", "feature_layers"]
)
def test_settings_that_lack_a_name(tmp_path, name):
  more = {"feature_based": True, "lstm_size": 8, "feature_layers": "-1"}
  tiny_models.write_trained(tmp_path, "tagging", **more)
  path = tmp_path / "settings.json"
  content = json.loads(path.read_text())
  del content[name]
  path.write_text(json.dumps(content))
  message = f"damaged: its settings.json lacks {name}"
  with pytest.raises(ValueError, match=message):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))


def test_an_export_of_a_model_with_one_segment_is_loaded(tmp_path):
  tiny.write_model(tmp_path, {"type_vocab_size": 1})
  variables = checkpoints.model_variables(tiny_models.make_masked_lm(tmp_path))
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  weights = model_folder.open(str(tmp_path)).weights
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  trained = trained_models.load_pretrained(weights, config, True, "features")
  assert not trained.has_text_pair
  folder = str(tmp_path / "export")
  result = exporting.write(
    folder, trained, str(tmp_path / "vocab.txt"), "saved_model"
  )
  assert "gives the same" in result
