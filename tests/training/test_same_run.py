"""Settings of earlier runs in a folder: what is said of a change."""

import json

import pytest
import tensorflow as tf

from bert import heads
from bert.data import imports
from bert.training import same_run
from bert.weights import checkpoints
import tiny_models

FLAGS = ("learning_rate", "max_seq_length", "text_column", "eval_share", "seed")
FLAGS += ("tag_scheme",)
DATA = {
  "max_seq_length": 64,
  "text": "review",
  "files": [["train.tsv", "aa"], ["more.tsv", "bb"]],
}
EARLIER = {
  "learning_rate": 5e-05,
  "problem": "single_label",
  "held_out": {"eval_share": 0.2, "seed": 1},
  "seed": 1,
  "scheme": "iob2",
  "columns": {"text": "review", "header": False},
  "vocab_file_sha256": "ab",
  "training_features": "12",
  "training_data": DATA,
  "best_metric": "eval_accuracy",
  # What a run on several tasks records.
  "mrpc.learning_rate": 5e-05,
  "mrpc.vocab_file_sha256": "ab",
  "mrpc.training_features": "12",
  "mrpc.training_data": DATA,
}
OTHER_LENGTH = {"max_seq_length": 32}


def test_what_older_versions_held_out_is_compared(tmp_path):
  path = tmp_path / "settings.json"
  path.write_text(json.dumps({"eval_share and seed": [0.2, 1]}))
  same_run.compare(str(path), {"held_out": {"eval_share": 0.2, "seed": 1}})
  assert same_run.read_training(str(tmp_path))["held_out"] == (
    {"eval_share": 0.2, "seed": 1},
    str(path),
  )
  changed = {"held_out": {"eval_share": 0.2, "seed": 7}}
  with pytest.raises(ValueError, match=r"^--seed=7 \(was 1\): the runs of"):
    same_run.compare(str(path), changed, FLAGS)


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"learning_rate": 3e-5}, "--learning_rate=3e-05 (was 5e-05)"),
    ({"problem": "tagging"}, "the problem tagging (was single_label)"),
    (
      {"learning_rate": 3e-5, "problem": None, "best_metric": "eval_f1"},
      "--learning_rate=3e-05 (was 5e-05), the problem none (was single_label), "
      "the best metric f1 (was accuracy)",
    ),
    ({"best_metric": []}, "the best metric none (was accuracy)"),
    ({"best_metric": ["f1", 2]}, "the best metric f1,2 (was accuracy)"),
    ({"problem": {"kind": 1}}, "the problem {'kind': 1} (was single_label)"),
    (
      {"mrpc.learning_rate": 3e-5, "mrpc.vocab_file_sha256": "cd"},
      "mrpc.learning_rate=3e-05 (was 5e-05), mrpc.--vocab_file is another "
      "vocabulary",
    ),
    (
      {
        "learning_rate": 3e-5,
        "mrpc.training_data": {**DATA, **OTHER_LENGTH},
        "mrpc.training_features": "34",
      },
      "--learning_rate=3e-05 (was 5e-05), mrpc: --max_seq_length=32 (was 64)",
    ),
    (
      {"held_out": {"eval_share": 0.2, "seed": 7}, "seed": 7},
      "--seed=7 (was 1)",
    ),
    (
      {"columns": {"text": "2", "header": True}},
      "--text_column=2 (was review), the header true (was false)",
    ),
    ({"scheme": "iob1"}, "--tag_scheme=iob1 (was iob2)"),
    ({"vocab_file_sha256": "cd"}, "--vocab_file is another vocabulary"),
    (
      {"training_data": {**DATA, "max_seq_length": 32, "text": "2"}},
      "--max_seq_length=32 (was 64), --text_column=2 (was review)",
    ),
    (
      {
        "training_data": {
          **DATA,
          "files": [["train.tsv", "aa"], ["new.tsv", "c"]],
        }
      },
      "the data of new.tsv (was more.tsv)",
    ),
    (
      {
        "training_data": {
          **DATA,
          "files": [["train.tsv", "c"], ["more.tsv", "bb"]],
        }
      },
      "the data of train.tsv (was other lines)",
    ),
    (
      {"training_data": {**DATA, "files": [["train.tsv", "aa"]]}},
      "1 data files (was 2)",
    ),
    (
      {"training_data": DATA},
      "the training data, or a flag that shapes its features, was another",
    ),
  ],
)
def test_a_change_is_named_by_its_flag_or_file(tmp_path, changes, message):
  path = tmp_path / "training.json"
  path.write_text(json.dumps(EARLIER))
  same_run.compare(str(path), EARLIER, FLAGS)
  now = {**EARLIER, **changes}
  if "training_data" in changes:
    now["training_features"] = "34"
  with pytest.raises(ValueError) as error:
    same_run.compare(str(path), now, FLAGS)
  assert str(error.value) == (
    f"{message}: the runs of {path} had other settings: restore them, or "
    "choose another --output_dir"
  )


def test_data_without_files_are_compared_by_their_settings(tmp_path):
  path = tmp_path / "training.json"
  earlier = {"training_features": "1", "training_data": {"max_seq_length": 64}}
  path.write_text(json.dumps(earlier))
  now = {"training_features": "2", "training_data": OTHER_LENGTH}
  with pytest.raises(ValueError, match=r"^--max_seq_length=32 \(was 64\): "):
    same_run.compare(str(path), now, FLAGS)


def test_data_of_an_older_run_are_compared_as_a_whole(tmp_path):
  path = tmp_path / "training.json"
  path.write_text(json.dumps({"training_features": "12"}))
  now = {"training_features": "34", "training_data": DATA}
  with pytest.raises(ValueError, match="^the training data, or a flag that"):
    same_run.compare(str(path), now, FLAGS)


def test_weights_that_predict_in_bfloat16_are_those_that_were_trained(
  tmp_path, monkeypatch
):
  """Else what an evaluation tuned in bfloat16 is not used by an export."""
  trained = tiny_models.write_trained(tmp_path)
  # A process that only predicts has this, and then no float32 matrices.
  monkeypatch.setenv(imports.PACKS_WEIGHTS, "1")
  predicting = heads.ClassifierModel(trained.bert.config, 2, "mixed_bfloat16")
  variables = checkpoints.model_variables(predicting)
  checkpoints.load(checkpoints.find_checkpoint(str(tmp_path)), variables)
  assert tf.bfloat16 in {variable.dtype for variable in variables.values()}
  known = same_run.identify_weights(trained)
  assert same_run.identify_weights(predicting) == known
  # Their vectors differ, however.
  assert same_run.hash_weights(predicting) != same_run.hash_weights(trained)

  trained.output_bias.assign_add([1.0, 0.0])
  assert same_run.identify_weights(trained) != known
