"""The files in which a run records itself: who writes and compares which."""

import hashlib
import json
import types
from typing import NamedTuple
import zlib

import numpy as np
import pytest
import tensorflow as tf

from bert import modeling
from bert.training import same_run
from bert.weights import checkpoints
import tiny_models

MODEL = {"problem": "single_label", same_run.VOCABULARY: "ab"}
ANSWERS = {"max_seq_length": 64, "thresholds": [0.2, 0.5]}
TRAINING = {"learning_rate": 5e-05, "evaluation_features": "12"}
FLAGS = ("learning_rate",)


def record(training=TRAINING, **changes):
  return same_run.RunRecord({**MODEL, **changes}, ANSWERS, training, FLAGS)


def write_json(folder, name, values):
  folder.mkdir(exist_ok=True)
  (folder / name).write_text(json.dumps(values))


def read_json(folder, name):
  return json.loads((folder / name).read_text())


def save(folder, step=3):
  """Writes a checkpoint, without which nothing was trained in a folder."""
  folder.mkdir(exist_ok=True)
  return checkpoints.write(str(folder), {"global_step": np.int64(step)}, step)


@pytest.fixture
def folders(tmp_path):
  """The folder of a run, and one whose weights it uses; they agree with it."""
  both = tmp_path / "own", tmp_path / "trained"
  for folder in both:
    write_json(folder, "settings.json", MODEL)
    write_json(folder, "training.json", TRAINING)
    save(folder)
  return both


def check(folders, run):
  same_run.check(*map(str, folders), run)


def test_a_run_that_agrees_says_nothing(folders, capsys):
  check(folders, record())
  check(folders, record(training=None))
  captured = capsys.readouterr()
  assert captured.out == captured.err == ""


@pytest.mark.parametrize("of", [0, 1])
def test_a_prediction_agrees_with_the_models_of_both_folders(folders, of):
  write_json(folders[of], "settings.json", {**MODEL, "problem": "tagging"})
  with pytest.raises(ValueError) as error:
    check(folders, record(training=None))
  assert str(error.value) == (
    "the problem single_label (was tagging): the runs of "
    f"{folders[of]}/settings.json had other settings: restore them, or choose "
    "another --output_dir"
  )


def test_a_training_agrees_with_its_own_folder(folders):
  own, other = folders
  # What the folder of the first weights was trained for does not matter.
  write_json(other, "settings.json", {**MODEL, "problem": "tagging"})
  write_json(other, "training.json", {"learning_rate": 1.0})
  check(folders, record())
  write_json(own, "training.json", {"learning_rate": 1.0})
  check([own, own], record(training=None))
  with pytest.raises(ValueError, match=r"^--learning_rate=5e-05 \(was 1.0\): "):
    check(folders, record())
  write_json(own, "settings.json", {"problem": "tagging"})
  with pytest.raises(ValueError, match="^the problem single_label"):
    check(folders, record())


def test_without_a_checkpoint_another_training_may_begin(folders):
  own, _ = folders
  write_json(own, "training.json", {"learning_rate": 1.0})
  checkpoints.delete(str(own), 3)
  check(folders, record())


def test_a_checkpoint_of_which_nothing_is_known_is_reported(folders, capsys):
  own, _ = folders
  (own / "training.json").unlink()
  check(folders, record())
  assert capsys.readouterr().err == (
    f"note: no {own}/training.json: how the checkpoint beside it was trained "
    "is not known, so that none of learning_rate, evaluation_features is "
    "compared\n"
  )
  # Without a checkpoint, nothing is amiss.
  checkpoints.delete(str(own), 3)
  check(folders, record())
  assert capsys.readouterr().err == ""


def resume(folder, writes=True, **changes):
  settings = {**TRAINING, **changes}
  same_run.resume_training(str(folder), settings, writes, FLAGS)


def test_a_training_is_recorded_by_one_worker(tmp_path):
  resume(tmp_path, writes=False)
  assert list(tmp_path.iterdir()) == []
  resume(tmp_path)
  assert read_json(tmp_path, "training.json") == TRAINING


def test_a_resumed_training_has_the_settings_of_before(tmp_path):
  resume(tmp_path)
  resume(tmp_path, learning_rate=1.0)  # Its updates were lost.
  save(tmp_path)
  with pytest.raises(ValueError, match=r"^--learning_rate=2.0 \(was 1.0\): "):
    resume(tmp_path, learning_rate=2.0)
  assert read_json(tmp_path, "training.json")["learning_rate"] == 1.0


class Example(NamedTuple):
  text: str


def held_out_set(*texts):
  return types.SimpleNamespace(
    numbers=frozenset(range(len(texts))),
    kind="eval",
    examples=lambda: map(Example, texts),
  )


def test_a_training_writes_what_later_runs_need(tmp_path, capsys):
  write_json(tmp_path, "training.json", {"evaluation_features": "old"})
  run = record(training={"learning_rate": 1.0})
  same_run.write(str(tmp_path), "elsewhere", run, [held_out_set("é")])
  assert read_json(tmp_path, "settings.json") == MODEL
  assert read_json(tmp_path, "prediction.json") == ANSWERS
  # A run that does not evaluate keeps what an earlier one recorded of that.
  assert read_json(tmp_path, "training.json") == {
    "evaluation_features": "old",
    "learning_rate": 1.0,
  }
  (path,) = tmp_path.glob("*.jsonl")
  assert path.read_text(encoding="utf-8") == '{"text": "é"}\n'
  assert capsys.readouterr().out == f"wrote {path}: 1 examples to evaluate on\n"


def test_a_prediction_leaves_the_records_of_the_training(folders, capsys):
  own, trained = folders
  write_json(trained, "prediction.json", ANSWERS)
  same_run.write(str(own), str(trained), record(training=None))
  assert not (own / "prediction.json").exists()
  assert capsys.readouterr().err == ""

  earlier = {"max_seq_length": 32, "thresholds": None}
  write_json(trained, "prediction.json", earlier)
  same_run.write(str(own), str(trained), record(training=None, problem="x"))
  assert read_json(own, "settings.json")["problem"] == "x"
  assert read_json(own, "training.json") == TRAINING
  assert read_json(trained, "prediction.json") == earlier
  assert capsys.readouterr().err == (
    "note: this run predicts with max_seq_length 64 instead of 32, thresholds "
    "0.2,0.5 instead of none; the training and exports of its folder have what "
    f"is in {trained}/prediction.json, and keep what was tuned for that\n"
  )


@pytest.mark.parametrize("is_other", [True, False])
def test_what_was_tuned_for_other_answers_is_removed(folders, capsys, is_other):
  """A training that has nothing to do may still answer otherwise."""
  own, _ = folders
  answers = {**ANSWERS, "max_seq_length": 32} if is_other else ANSWERS
  write_json(own, "prediction.json", answers)
  write_json(own, "temperature.json", {})
  same_run.write(str(own), str(own), record())
  assert read_json(own, "prediction.json") == ANSWERS
  assert (own / "temperature.json").exists() != is_other
  path = own / "temperature.json"
  assert capsys.readouterr().err == is_other * (
    f"note: removed {path}: tuned with another max_seq_length\n"
  )


def test_what_predictions_need_is_read_with_its_file(tmp_path):
  write_json(tmp_path, "settings.json", {"problem": "tagging"})
  write_json(tmp_path, "prediction.json", {"max_seq_length": 64})
  write_json(tmp_path, "training.json", TRAINING)
  assert same_run.read_training(str(tmp_path)) == {
    "problem": ("tagging", f"{tmp_path}/settings.json"),
    "max_seq_length": (64, f"{tmp_path}/prediction.json"),
  }


PHASES = [
  {"first_step": 0, "first_record": 0, "precision": "float32"},
  {"first_step": 2, "first_record": 16, "precision": "bfloat16"},
  {"first_step": 9, "first_record": 72, "precision": "lost"},
]


@pytest.mark.parametrize(
  ("training", "precision"),
  [
    ({"learning_rate": 1, "precision": "bfloat16"}, "bfloat16"),
    ({"my.task.precision": "bfloat16", "precision_of": "x"}, "bfloat16"),
    ({"learning_rate": 1}, None),
    # Updates after the newest checkpoint are made again.
    ({"phases": PHASES}, "bfloat16"),
  ],
)
def test_a_training_resumes_with_its_precision(tmp_path, training, precision):
  write_json(tmp_path, "training.json", training)
  assert same_run.read_precision(str(tmp_path)) is None  # Without a checkpoint.
  for step in (0, 1, 3):
    save(tmp_path, step)
  path = f"{tmp_path}/training.json"
  expected = precision and (precision, path)
  assert same_run.read_precision(str(tmp_path)) == expected


def test_a_folder_of_a_training_is_known_by_its_settings(tmp_path):
  def is_of_training():
    return same_run.is_of_training(str(tmp_path))

  assert not is_of_training()
  path = tmp_path / "settings.json"
  for text in ('{"editor": "vi"}', "// An editor's, not JSON."):
    path.write_text(text)
    assert not is_of_training()
  # Beside a model, a file that cannot be read is damaged.
  (tmp_path / "bert_config.json").write_text("{}")
  with pytest.raises(ValueError, match="settings.json"):
    is_of_training()
  write_json(tmp_path, "settings.json", MODEL)
  assert is_of_training()


def test_the_config_of_a_folder_is_compared_by_field(tmp_path):
  config = modeling.BertConfig(vocab_size=9, hidden_size=24)
  same_run.check_config(str(tmp_path), config)  # It has no file yet.
  path = tmp_path / "bert_config.json"
  path.write_text(config.to_json_string())
  same_run.check_config(str(tmp_path), config)
  other = modeling.BertConfig(vocab_size=7, hidden_size=12)
  with pytest.raises(ValueError) as error:
    same_run.check_config(str(tmp_path), other)
  assert str(error.value) == (
    f"--output_dir={tmp_path} belongs to another model (hidden_size: 24, "
    "not 12, vocab_size: 9, not 7): choose another folder, or pass "
    f"--bert_config_file={path}"
  )


def test_digests_are_of_all_bytes_in_the_order_of_the_names():
  values = {"b": [[1.0, 2.0]], "a": [3.0]}
  variables = {name: tf.Variable(value) for name, value in values.items()}
  content = np.float32([3, 1, 2])
  checksum = zlib.crc32(content.tobytes())
  assert same_run.digest_of_values(variables) == f"{checksum:08x}"
  half = content.astype(tf.bfloat16.as_numpy_dtype)
  checksum = zlib.crc32(half.tobytes())
  assert same_run.digest_of_values(variables, tf.bfloat16) == f"{checksum:08x}"


@pytest.mark.parametrize("of", ["classifier", "mean", "encoder"])
def test_the_pooler_decides_answers_only_where_it_is_used(tmp_path, of):
  model = tiny_models.write_trained(tmp_path)
  if of == "mean":
    model.pooling = "mean"
  elif of == "encoder":
    model = model.bert
  variables = checkpoints.model_variables(model)
  digest = hashlib.sha256()
  for name in sorted(variables):
    if of == "classifier" or "/pooler/" not in name:
      digest.update(variables[name].numpy().tobytes())
  assert same_run.hash_weights(model) == digest.hexdigest()

  before = same_run.identify_weights(model)
  bias = variables["bert/pooler/dense/bias"]
  bias.assign_add(tf.ones_like(bias))
  assert (same_run.identify_weights(model) != before) == (of == "classifier")
