"""Trained models whose folders lack something are refused."""

import json

import pytest

from cli import model_folder
from export import trained_models
import tiny
import tiny_models
from weights import checkpoints


@pytest.mark.parametrize(
  ("config", "message"),
  [
    ({}, "- cls/predictions/output_bias"),
    ({"causal_attention": True}, "only fill_mask.py makes a causal"),
  ],
)
def test_weights_that_guess_no_masks(tmp_path, config, message):
  tiny.write_model(tmp_path, config)
  variables = checkpoints.model_variables(tiny_models.make_masked_lm(tmp_path))
  del variables["cls/predictions/output_bias"]
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  start = model_folder.open(str(tmp_path), str(tmp_path / "config.json"))
  with pytest.raises(ValueError, match=message):
    trained_models.load_pretrained(
      start.weights, start.config, True, "fill_mask"
    )


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
