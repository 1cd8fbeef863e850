"""What all programs that train promise, each on a tiny task of its own."""

import importlib
import json
import math
import re
import shlex
import shutil
import sys

import numpy as np
import pytest

from bert.data import atomic
from bert.weights import checkpoints
import paths
import program_flags
import programs
import same_training
import tiny

# The last trains on two tasks at once.
PROGRAMS = [*tiny.TRAINERS, "run_multitask"]
# The steps of a run of `tiny.prepare`, and of its checkpoint before the last.
STEPS = 6
SAVED = 4
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def fast(*chosen, of=PROGRAMS):
  """Leaves the other programs to `make test-slow`."""
  return pytest.mark.parametrize(
    "run",
    [
      name if name in chosen else pytest.param(name, marks=pytest.mark.slow)
      for name in of
    ],
    indirect=True,
  )


# The others train, resume and refuse by the same code as the classifier;
# their own tests train each of them.
FAST = ("run_pretraining", "run_classifier", "run_squad")


@pytest.fixture(
  name="run",
  scope="module",
  params=[
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
    for name in PROGRAMS
  ],
)
def train(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp(request.param)
  return programs.train(tiny.prepare(request.param, folder, DROPOUT))


def test_a_killed_run_resumes_to_the_same_bytes(run, tmp_path):
  programs.assert_resumes(run, tmp_path / "killed")


@pytest.mark.slow
def test_a_run_whose_newest_checkpoint_is_damaged_resumes_before_it(
  run, tmp_path
):
  folder = tmp_path / "damaged"
  shutil.copytree(run.out, folder)
  prefix = folder / f"model.ckpt-{STEPS}"
  # A byte of any variable: a resume reads all of them.
  tiny.damage(f"{prefix}.data-00000-of-00001", 5000)
  result = run.again(output_dir=folder)
  assert result.stderr.count(f"; trying {folder}/model.ckpt-{SAVED}\n") == 1
  assert f"resuming at step {SAVED} of {STEPS}" in result.stdout
  paths.assert_same(folder, run.out)


@pytest.mark.slow
def test_bfloat16_and_recomputed_layers_train_as_float32(run, tmp_path):
  flags = {"precision": "bfloat16", "recompute": True}
  run.again(output_dir=tmp_path, **flags)
  ours, theirs, before = (
    dict(checkpoints.read(str(folder / f"model.ckpt-{step}")))
    for folder, step in ((tmp_path, STEPS), (run.out, STEPS), (run.out, SAVED))
  )
  assert {v.dtype.name for v in ours.values()} == {"float32", "int64"}
  # Measured: 0.03 to 0.21 of what the last two updates move. The numbers
  # differ, or nothing would have been computed in bfloat16.
  moved = distance(before, theirs)
  assert 0.01 * moved < distance(ours, theirs) < 0.5 * moved


def distance(ours, theirs):
  """Returns how far the weights are apart; without the state of AdamW."""
  others = ("adam_m", "adam_v", "global_step", same_training.KEY_BIAS)
  return math.sqrt(
    sum(
      np.square(ours[name] - value).sum()
      for name, value in theirs.items()
      if not name.endswith(others)
    )
  )


@pytest.mark.slow
def test_a_second_run_leaves_the_same_bytes(run, tmp_path):
  run.again(output_dir=tmp_path)
  paths.assert_same(tmp_path, run.out)


# All programs are called by the same code.
@fast("run_classifier")
def test_a_call_from_python_leaves_the_same_bytes(run, tmp_path):
  """And it returns the scores of the files; see also test_calls.py."""
  program = importlib.import_module(f"bert.{run.program}")
  flags = program_flags.read_command(run.command)
  result = program.run(**{**flags, "output_dir": tmp_path})
  paths.assert_same(tmp_path, run.out)
  if (tmp_path / "eval_results.txt").exists():
    scores = tiny.read_results(tmp_path)
    assert result.scores.items() >= scores.items()


def test_it_ends_with_the_files_it_wrote(run):
  """And with the best score; see test_run_pretraining.py for its own."""
  if run.program == "run_pretraining":
    pytest.skip("it names the folder alone")
  if run.program == "run_multitask":
    pytest.skip("its tasks end so, one after the other")
  end = run.output[run.output.rindex("finished in ") :]
  internal = r"model\.ckpt-|checkpoint$|events|.*\.tf_record"
  names = {p.name for p in run.out.iterdir() if p.is_file()}
  names = sorted(n for n in names if not re.match(internal, n))
  assert f"\n  wrote to {run.out}: {', '.join(names)}\n" in end
  # Which of the evaluations is best depends on the program; run_squad.py says
  # the score of its answers before it.
  best = r"\n  (eval_f1 [\d.]+; )?best: eval_\w+ [\d.]+ at step [246]"
  assert re.search(best, end)


# All programs print their next command by `program.print_end`, so one suffices
# in the fast suite.
@fast("run_classifier", of=tiny.FINE_TUNERS)
def test_the_next_command_works(run):
  command = shlex.split(run.output.split("\n  next: ")[1])
  assert command[:2] == ["python", "export_saved_model.py"]
  command[:2] = [sys.executable, paths.ROOT / command[1]]
  program_flags.succeed([str(part) for part in command])


# What holds the predictions, and what says where a row was.
PREDICTIONS = {
  "run_classifier": ("predictions.tsv", r"^\d+\t"),
  "run_squad": ("nbest_predictions.json", r""),
  "run_tagging": ("predictions.jsonl", r'"id": \d+'),
  "run_multiple_choice": ("predictions.tsv", r"^\d+\t"),
  "run_embedding": ("predictions.tsv", r"^\d+\t"),
}


# The others' tests compare predictions with the rows of their files.
@fast("run_classifier", "run_squad", of=tiny.FINE_TUNERS)
def test_the_best_weights_predict_rows_in_the_order_of_the_file(run, tmp_path):
  """Reversed, from an output folder that has its best weights alone."""
  for path in run.out.iterdir():
    if path.is_dir():
      shutil.copytree(path, tmp_path / path.name)
    elif not re.match("model.ckpt|checkpoint", path.name):
      shutil.copy(path, tmp_path)
  name, place = PREDICTIONS[run.program]
  (tmp_path / name).unlink()
  split = "dev" if run.program == "run_squad" else "test"
  (tmp_path / "data").mkdir()
  path = tiny.write_split(run.program, tmp_path / "data", split, True)
  flags = {"output_dir": tmp_path, "predict_file": path, "do_train": False}
  result = run.again(**flags)
  assert "weights from the best evaluation, at step " in result.stdout
  before, after = (read_rows(run, f / name, place) for f in (run.out, tmp_path))
  for ours, theirs in zip(after[::-1], before, strict=True):
    program_flags.assert_same_text(ours, theirs)


def read_rows(run, path, place):
  """Returns predictions as text, without numbers that count the rows."""
  text = path.read_text()
  if run.program == "run_squad":
    return [json.dumps(item) for item in json.loads(text).items()]
  lines = text.splitlines()[path.suffix == ".tsv" :]
  return [re.sub(place, "", line) for line in lines]


# The loop decides it; of the others, a resumed run evaluates and predicts.
@fast("run_pretraining", "run_classifier")
def test_a_finished_run_has_nothing_to_do(run):
  before = paths.contents(run.out)
  result = run.again()
  assert f"step {STEPS} of {STEPS}: nothing to do" in result.stdout
  assert "note:" not in result.stderr
  assert paths.contents(run.out) == before


# What a run may not change beside the flags that no run may, and what is said;
# {} is the folder of its data, whose words.txt has the words in another order.
SETTINGS = {
  "run_pretraining": [
    (
      {"input_file": "{}/dev", "train_batch_size": 8},
      # Other data stand first, and are not named by where they are.
      "error: --input_file=1 file of ",
      " (was 1 file of ",
      "--train_batch_size=8 (was 16)",
      "cannot resume at step 6",
      "--new_phase=true",
    ),
    (
      {"num_train_steps": 8, "num_warmup_steps": 3},
      "--num_train_steps=8 (was 6), --num_warmup_steps=3 (was 2)",
    ),
    ({"precision": "bfloat16"}, "--precision=bfloat16 (was float32)"),
  ],
  "run_classifier": [
    ({"precision": "bfloat16"}, "--precision=bfloat16 (was float32)"),
    ({"do_lower_case": False}, "--do_lower_case=false (was true)"),
    ({"max_seq_length": 12}, "--max_seq_length=12 (was 16)"),
    (
      {"problem": "regression", "class_weights": ""},
      "--problem=regression (was single_label)",
    ),
    ({"labels": "pos,neg"}, "has the labels neg, pos; the task's or those"),
    ({"vocab_file": "{}/words.txt"}, "--vocab_file is another vocabulary"),
    (
      {"bias_correction": True},
      "--bias_correction=true (was false): the runs of ",
    ),
    # Best weights are those of one metric and file.
    ({"best_metric": "loss"}, "--best_metric=loss (was accuracy)"),
    ({"eval_file": "{}/test.tsv"}, "the data of test.tsv (was dev.tsv)"),
    # Programs would always take the best weights of before.
    ({"eval_every_steps": 0}, "{}/out: its best weights, of step "),
  ],
  "run_squad": [
    ({"doc_stride": 3}, "--doc_stride=3 (was 4)"),
    ({"padding_competes": False}, "--padding_competes=false (was true)"),
    ({"max_answer_length": 2}, "--max_answer_length=2 (was 30)"),
  ],
  "run_embedding": [({"pooling": "cls"}, "--pooling=cls (was mean)")],
}


def test_a_run_with_other_settings_leaves_the_folder_alone(run):
  words = tiny.PROGRAMS[run.program].vocabulary or []
  (run.folder / "words.txt").write_text("\n".join(words[::-1]) + "\n")
  before = paths.contents(run.out)
  common = {"learning_rate": 0.5, "seed": 7, "train_batch_size": 10}
  names = [f"{name}={value} (was " for name, value in common.items()]
  for flags, *messages in [(common, *names), *SETTINGS.get(run.program, ())]:
    flags = {k: str(value).format(run.folder) for k, value in flags.items()}
    result = run.again(program_flags.run_here, **flags)
    for message in messages:
      program_flags.assert_refused(result, message.format(run.folder))
  assert paths.contents(run.out) == before


def test_a_folder_that_is_trained_in_is_left_alone(run, tmp_path):
  with atomic.claim_folder(str(tmp_path)):
    result = run.again(program_flags.run_here, output_dir=tmp_path)
    message = f"{tmp_path}: another process is writing"
    program_flags.assert_refused(result, message)
    assert not list(tmp_path.iterdir())
