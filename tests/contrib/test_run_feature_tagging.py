"""run_feature_tagging.py: a BiLSTM on a frozen BERT labels words."""

import json

import pytest

from bert.contrib import run_feature_tagging
from bert.export import trained_models
import paths
import program_flags
import tiny
import tiny_models

PROGRAM = paths.ROOT / "bert" / "contrib" / "run_feature_tagging.py"
TRAINING = {
  "do_train": True,
  "do_eval": True,
  "num_train_epochs": 5,
  "train_batch_size": 8,
  "save_checkpoints_steps": 50,
  "max_seq_length": tiny.SEQUENCE,
}


def run(folder, **flags):
  return program_flags.run_main(
    run_feature_tagging,
    run_feature_tagging.FeatureTaggingSettings,
    **tiny.flags_for(folder, **flags),
  )


def read_metrics(path):
  return json.loads(path.read_text())["metrics"]


def test_features_of_a_frozen_model_are_tagged(tmp_path, capsys):
  tiny.write_tags(tmp_path / "train.txt", range(160))
  tiny.write_tags(tmp_path / "dev.txt", range(160, 200))
  tiny.write_tags(tmp_path / "test.txt", range(200, 220))
  tiny.write_model(tmp_path, {"num_hidden_layers": 2})
  flags = {"document_context": True, "feature_layers": "mix", "lstm_size": 16}
  training = {**TRAINING, "learning_rate": 2e-2}
  run(tmp_path, data_dir=tmp_path, **flags, **training)
  metrics = read_metrics(tmp_path / "out" / "eval_metrics.json")
  assert metrics["f1"] > 0.6  # Not 0.0, as at first.
  # An older version named the problem otherwise.
  path = tmp_path / "out" / "settings.json"
  settings = json.loads(path.read_text())
  older = {**settings, "problem": "tagging", "feature_based": True}
  path.write_text(json.dumps(older))
  del flags["document_context"]  # As in the training.
  run(tmp_path, data_dir=tmp_path, do_eval=True, **flags)
  assert "--document_context=true" in capsys.readouterr().err
  assert read_metrics(tmp_path / "out" / "eval_metrics.json") == metrics
  assert json.loads(path.read_text()) == settings
  vocab_file = str(tmp_path / "vocab.txt")
  trained = trained_models.load_output_dir(str(tmp_path / "out"), vocab_file)
  assert trained.model.lstms[1].forward_lstm.units == 16
  assert trained.training_settings["label_scheme"] == "iob2"
  flags["lstm_size"] = 9
  with pytest.raises(ValueError, match=r"--lstm_size=9 \(was 16\)"):
    run(tmp_path, data_dir=tmp_path, do_predict=True, **flags)


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({"freeze_layers": 1}, "this program freezes BERT as a whole: leave out "),
    ({"feature_layers": "-4,3"}, "--feature_layers=-4,3: expected mix, or num"),
  ],
)
def test_refuses(tmp_path, flags, message):
  tiny.write_model(tmp_path)
  tiny.write_tags(tmp_path / "train.txt", range(8))
  flags |= {"data_dir": tmp_path, "do_train": True}
  with pytest.raises(ValueError, match=f"^{message}"):
    run(tmp_path, **flags)


def test_an_old_flag_names_this_program(tmp_path):
  command = tiny.prepare("run_tagging", tmp_path)
  result = program_flags.run_here([*command, "--feature_based=true"])
  message = "use python -m bert.contrib.run_feature_tagging, with the flags of"
  program_flags.assert_refused(result, message)


@pytest.mark.parametrize(
  ("name", "value"), [("lstm_size", "8"), ("feature_layers", None)]
)
def test_changed_settings_are_named(tmp_path, name, value):
  more = {"lstm_size": 8, "feature_layers": ["-1"], name: value}
  tiny_models.write_trained(tmp_path, "feature_tagging", **more)
  with pytest.raises(ValueError, match=f"settings.json: {name} is {value!r}, "):
    trained_models.load_output_dir(str(tmp_path), str(tmp_path / "vocab.txt"))
