"""Trained models whose folders lack something are refused."""

import json

import pytest

from bert import heads, modeling
from bert.cli import model_folder
from bert.export import exporting, trained_models
from bert.weights import checkpoints
import tiny
import tiny_models

BIAS = "cls/predictions/output_bias"
KERNEL = "cls/predictions/transform/dense/kernel"


@pytest.mark.parametrize(
  ("config", "removed", "message"),
  [
    ({}, BIAS, f"- {BIAS}"),
    ({}, KERNEL, f"no masked-LM head, it lacks {KERNEL}: give one that was pr"),
    ({"causal_attention": True}, BIAS, "only fill_mask.py makes its guesses"),
  ],
)
def test_weights_that_guess_no_masks(tmp_path, config, removed, message):
  tiny.write_model(tmp_path, config)
  variables = checkpoints.model_variables(tiny_models.make_masked_lm(tmp_path))
  variables.pop(removed, None)
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  start = model_folder.open_model(str(tmp_path), str(tmp_path / "config.json"))
  with pytest.raises(ValueError, match=message):
    trained_models.load_pretrained(
      start.weights, start.config, True, "fill_mask"
    )


def test_the_head_of_a_task_is_not_left_out_silently(tmp_path, capsys):
  tiny.write_model(tmp_path)
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  variables = checkpoints.model_variables(heads.ClassifierModel(config, 2))
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  weights = model_folder.open_model(str(tmp_path)).weights
  trained = trained_models.load_pretrained(weights, config, True)
  assert (trained.kind, trained.has_text_pair) == ("features", True)
  assert "has the head of a task, output_weights, which is left out" in (
    capsys.readouterr().err
  )


def test_lengths_are_compared_before_an_export():
  prediction = {
    "max_seq_length": 16,
    **tiny_models.PREDICTION["question_answering"],
  }
  trained = trained_models.TrainedModel(
    kind="question_answering",
    config=modeling.BertConfig(30),
    model=None,
    do_lower_case=True,
    answer_settings=prediction,
  )
  values = {"max_query_length": 12}
  found = trained_models.override(trained, values).answer_settings
  assert found == prediction | values
  for name, value, message in (
    ("max_query_length", 13, "=16: expected more than --max_query_length=13 a"),
    ("max_seq_length", 513, "max_seq_length is 513, expected 3 to 512"),
  ):
    with pytest.raises(ValueError, match=message):
      trained_models.override(trained, {name: value})


@pytest.mark.parametrize(
  ("file", "name", "value", "expected"),
  [
    ("prediction", "window_pooling", "median", "mean or max"),
    ("prediction", "max_seq_length", -1, "3 to 16"),
    ("prediction", "max_seq_length", 10**9, "3 to 16"),
    ("prediction", "doc_stride", 1.5, "1 to 999999 or None"),
    ("prediction", "has_text_pair", "no", "bool"),
    ("settings", "do_lower_case", "yes", "bool"),
  ],
)
def test_changed_settings_are_named(tmp_path, file, name, value, expected):
  tiny_models.write_trained(tmp_path)
  path = tmp_path / f"{file}.json"
  content = json.loads(path.read_text())
  path.write_text(json.dumps(content | {name: value}))
  message = f"{path}: {name} is {value!r}, expected {expected}"
  with pytest.raises(ValueError, match=message):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))


def test_a_setting_that_is_newer_than_a_training_is_none(tmp_path):
  tiny_models.write_trained(tmp_path)
  path = tmp_path / "prediction.json"
  content = json.loads(path.read_text())
  del content["doc_stride"]  # As if its flag had come later.
  path.write_text(json.dumps(content))
  model = exporting.in_memory(str(tmp_path), str(tmp_path / "vocab.txt"), None)
  assert model.card.settings == {
    "doc_stride": None,
    "window_pooling": "mean",
    "temperature": None,
  }


def test_pairs_for_a_model_of_one_segment_are_refused(tmp_path):
  tiny_models.write_trained(tmp_path)
  for name, changes in (
    ("bert_config.json", {"type_vocab_size": 1}),
    ("prediction.json", {"has_text_pair": True}),
  ):
    content = json.loads((tmp_path / name).read_text())
    (tmp_path / name).write_text(json.dumps(content | changes))
  message = "prediction.json: has_text_pair is true, but the model has one seg"
  with pytest.raises(ValueError, match=message):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))


def test_a_problem_of_another_type(tmp_path):
  tiny_models.write_trained(tmp_path, problem=["tagging"])
  with pytest.raises(ValueError, match=r"its problem is \['tagging'\]; expec"):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))


@pytest.mark.parametrize("name", ["vocab_file_sha256", "do_lower_case"])
def test_settings_that_lack_a_name(tmp_path, name):
  tiny_models.write_trained(tmp_path, "tagging")
  path = tmp_path / "settings.json"
  content = json.loads(path.read_text())
  del content[name]
  path.write_text(json.dumps(content))
  message = f"{path}: {name} is None, expected "
  with pytest.raises(ValueError, match=message):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))


def test_an_export_of_a_model_with_one_segment_is_loaded(tmp_path):
  tiny.write_model(tmp_path, {"type_vocab_size": 1})
  variables = checkpoints.model_variables(tiny_models.make_masked_lm(tmp_path))
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  weights = model_folder.open_model(str(tmp_path)).weights
  config = checkpoints.read_config(str(tmp_path / "config.json"))
  trained = trained_models.load_pretrained(weights, config, True, "features")
  assert not trained.has_text_pair
  folder = str(tmp_path / "export")
  result = exporting.write(
    folder, trained, str(tmp_path / "vocab.txt"), "saved_model"
  )
  assert "gives the same" in result
