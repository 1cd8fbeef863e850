"""Trained models whose folders lack something are refused."""

import json

import pytest

from cli import model_folder
from export import trained_models
import tiny
import tiny_models
from weights import checkpoints


def load_pretrained(folder):
  start = model_folder.open(str(folder), str(folder / "config.json"))
  kind = "fill_mask"
  return trained_models.load_pretrained(start.weights, start.config, True, kind)


def test_half_a_masked_lm_head(tmp_path):
  tiny_models.write_masked_lm(tmp_path, lambda name: "output_bias" not in name)
  with pytest.raises(ValueError, match="- cls/predictions/output_bias"):
    load_pretrained(tmp_path)


def test_guesses_of_a_causal_model(tmp_path):
  tiny.write_model(tmp_path, {"causal_attention": True})
  model = tiny_models.make_masked_lm(tmp_path)
  checkpoints.save(str(tmp_path), 0, checkpoints.model_variables(model), keep=0)
  with pytest.raises(ValueError, match="guesses of a causal model cannot be"):
    load_pretrained(tmp_path)


@pytest.mark.parametrize(
  ("more", "name"),
  [
    ({}, "vocab_file_sha256"),
    ({}, "do_lower_case"),
    ({"feature_based": True, "lstm_size": 8}, "feature_layers"),
  ],
)
def test_settings_that_lack_a_name(tmp_path, more, name):
  tiny_models.write_trained(tmp_path, "tagging", **more)
  path = tmp_path / "settings.json"
  content = json.loads(path.read_text())
  content.pop(name, None)
  path.write_text(json.dumps(content))
  message = f"damaged: its settings.json lacks {name}"
  with pytest.raises(ValueError, match=message):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))
