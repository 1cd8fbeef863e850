"""Programs that are called from Python: as from the shell, without its ends."""

import csv
import inspect
import json
import pathlib
import random
import shutil
import signal
import sys

from absl import flags
import keras
import numpy as np
import pytest
import tensorflow as tf

from bert import run_classifier, run_pretraining
from bert.training import reporting
import paths
import program_flags
import tiny


def rows_of(numbers):
  return [
    {"text": t, "label": label} for t, label in tiny.make_examples(numbers)
  ]


ROWS = rows_of(range(50))


@pytest.fixture(name="given")
def write_classifier(tmp_path):
  """The flags of a short training, by name; it works in `tmp_path`/out."""
  return tiny.classifier_flags(tmp_path)


@pytest.fixture(name="whole", scope="module")
def run_to_the_end(tmp_path_factory):
  """The result of such a training, and what it logged."""
  given = tiny.classifier_flags(tmp_path_factory.mktemp("whole"))
  given |= {"class_weights": [1, 3], "do_eval": True, "best_metric": None}
  logged = []
  return run_classifier.run(**given, on_log=logged.append), logged


def assert_same(result, whole):
  """Compares scores and files, checkpoints included, but no folders' names."""
  assert result.scores == whole.scores
  paths.assert_same(result.output_dir, whole.output_dir)


def test_values_of_python_are_those_of_a_command_line(given, whole, tmp_path):
  given |= {
    "learning_rate": np.float32(1e-3),
    "train_batch_size": 16,
    "data_dir": tmp_path,
    "output_dir": tmp_path / "other",
    "class_weights": ("1", "3"),
  }
  assert_same(run_classifier.run(**given), whole[0])


def test_a_result_reads_what_the_run_wrote(given, whole):
  result, logged = whole
  out = pathlib.Path(result.output_dir)
  assert result.scores == {
    name: pytest.approx(value) for name, value in tiny.read_results(out).items()
  }
  assert repr(result).startswith(f"<Result in {out}: eval_accuracy ")

  # 6 updates, and evaluations after 2, 4 and 6.
  steps = [p["step"] for p in result.history if "loss" in p]
  evaluated = [p["step"] for p in result.history if "eval/accuracy" in p]
  assert (steps, evaluated) == ([1, 2, 3, 4, 5, 6], [2, 4, 6])
  assert {p["step"] for p in logged if "eval/accuracy" in p} == {2, 4, 6}
  assert reporting.ON_LOG.get() is None

  # The page is in an attribute: it must not end there.
  page = result._repr_html_()
  assert page.count('"') == 8 and "eval_accuracy" in page

  model = result.load()
  assert model("a good film")["label"] in ("pos", "neg")
  # Nothing is scored when nothing runs: the scores of before do not count.
  shutil.copytree(out, given["output_dir"])
  given |= {"do_train": False, "do_eval": False, "do_predict": True}
  again = run_classifier.run(**given)
  assert set(again.scores) == {
    f"predict_{name}" for name in ("accuracy", "loss", "macro_f1")
  }


@pytest.mark.slow  # tests/test_run_classifier.py trains from two seeds.
def test_seeds_have_scores_and_curves_of_their_own(given):
  given |= {"seeds": [1, 2], "eval_every_steps": 0, "num_train_epochs": 1}
  result = run_classifier.run(**given)
  assert {name.split("/")[0] for name in result.scores} == {"seed-1", "seed-2"}
  assert result.history[-1].keys() > {"step", "seed-2/loss"}


def test_a_run_does_what_it_has_data_for(given, tmp_path):
  """And a task_name need not be said: the data are the user's own."""
  for name in ("do_train", "do_eval", "do_predict", "data_dir", "task_name"):
    del given[name]
  train, dev, test = (tmp_path / f"{n}.tsv" for n in ("train", "dev", "test"))
  out = tmp_path / "out"

  result = run_classifier.run(**given, train_file=train, eval_file=dev)
  assert result.scores.keys() >= {"eval_accuracy", "global_step"}
  assert not (out / "predictions.tsv").exists()

  result = run_classifier.run(**given, predict_file=test)
  assert (out / "predictions.tsv").exists()


def test_rows_in_memory_are_as_good_as_a_file(given, tmp_path):
  del given["data_dir"]
  path = tmp_path / "rows.jsonl"
  path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
  given |= {"eval_share": 0.2}
  result = run_classifier.run(**given, train_data=ROWS)
  out = tmp_path / "other"
  of_file = run_classifier.run(**{**given, "output_dir": out}, train_file=path)
  assert result.scores == of_file.scores
  assert result.history == of_file.history

  # The same rows resume, here to more epochs, and are not written twice.
  before = set(paths.contents(tmp_path / "out"))
  run_classifier.run(**{**given, "num_train_epochs": 2.5}, train_data=ROWS)
  new = set(paths.contents(tmp_path / "out")) - before
  assert not [name for name in new if "train_data" in name]

  # Other rows are refused, and leave nothing.
  before = paths.contents(tmp_path / "out")
  with pytest.raises(ValueError, match="train_data"):
    run_classifier.run(**given, train_data=ROWS[:40])
  assert paths.differences(paths.contents(tmp_path / "out"), before) == []


def test_a_run_leaves_the_process_as_it_was(given):
  names = set(flags.FLAGS)
  random.seed(1)
  np.random.seed(2)
  keras.utils.set_random_seed(3)
  tf.get_logger().setLevel("INFO")
  longest_cell = csv.field_size_limit()

  def draw():
    return [
      random.random(),
      np.random.rand(),
      float(tf.random.uniform([])),
      float(keras.random.uniform([])),
    ]

  expected = [draw(), draw()]
  keras.utils.set_random_seed(3)
  drawn = [draw()]
  handler = signal.getsignal(signal.SIGINT)
  run_classifier.run(**given)
  drawn.append(draw())

  assert drawn == expected
  assert signal.getsignal(signal.SIGINT) is handler
  assert tf.get_logger().level == 20
  assert set(flags.FLAGS) == names
  assert csv.field_size_limit() == longest_cell


@pytest.mark.slow
def test_programs_in_one_process_do_not_see_each_other(given, tmp_path):
  (tmp_path / "records").mkdir()
  command = tiny.prepare("run_pretraining", tmp_path / "records")
  pretraining = program_flags.read_command(command)
  first = run_pretraining.run(**pretraining)
  run_classifier.run(**{**given, "learning_rate": 0.5})
  out = tmp_path / "other"
  second = run_pretraining.run(**{**pretraining, "output_dir": out})

  assert first.scores == second.scores
  assert type(second.load()).__name__ == "BertModel"


def test_ctrl_c_saves_and_the_same_call_continues(given, whole):
  def interrupt(values):
    if values["step"] == 2:
      signal.raise_signal(signal.SIGINT)

  with pytest.raises(KeyboardInterrupt):
    run_classifier.run(**given, on_log=interrupt)
  assert_same(run_classifier.run(**given), whole[0])


def test_a_function_that_ends_the_process_ends_it(given):
  """Only the training's own signals are taken for signals."""
  with pytest.raises(SystemExit) as end:
    run_classifier.run(**given, on_log=lambda values: sys.exit("enough"))
  assert end.value.code == "enough"


def test_the_folder_of_predictions_has_no_model(given, whole, tmp_path):
  given |= {"do_train": False, "do_eval": False, "do_predict": True}
  given |= {"init_checkpoint": whole[0].output_dir, "class_weights": None}
  result = run_classifier.run(**given)
  message = "/out: scores or predictions of a model, without its weights: "
  with pytest.raises(ValueError, match=message):
    result.load()


def test_a_run_says_its_flags():
  """Editors show the signature, `help` the flags as --helpfull does."""
  signature = inspect.signature(run_classifier.run)
  assert signature.parameters["task_name"].default == "file"
  assert signature.parameters["learning_rate"].default == 5e-5
  assert signature.parameters["output_dir"].default is inspect.Parameter.empty
  assert "train_data" in signature.parameters
  assert "--learning_rate=5e-05\n      The learning rate" in (
    run_classifier.run.__doc__
  )
