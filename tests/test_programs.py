"""What all programs that train promise, each on a tiny task of its own."""

import importlib
import json
import math
import pathlib
import re
import shlex
import shutil
import sys
from typing import NamedTuple

import numpy as np
import pytest

from bert.data import atomic
from bert.weights import checkpoints
import paths
import program_flags
import tiny

# The last trains on two tasks at once.
PROGRAMS = [*tiny.TRAINERS, "run_multitask"]
# The steps of a run of `tiny.prepare`, and of its checkpoint before the last.
STEPS = 6
SAVED = 4
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


class Run(NamedTuple):
  """A finished run of a program."""

  program: str
  command: list[str]
  out: pathlib.Path
  output: str

  def again(self, run=program_flags.succeed, **flags):
    """Runs the command with other flags."""
    return run([*self.command, *program_flags.arguments(flags)])


def fast(*programs, of=PROGRAMS):
  """Leaves the other programs to `make test-slow`."""
  return pytest.mark.parametrize(
    "run",
    [
      name if name in programs else pytest.param(name, marks=pytest.mark.slow)
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
  command = tiny.prepare(request.param, folder, DROPOUT)
  result = program_flags.succeed(command)
  return Run(request.param, command, folder / "out", result.stdout)


def test_a_killed_run_resumes_to_the_same_bytes(run, tmp_path):
  whole, killed = paths.contents(run.out), tmp_path / "killed"
  results = [n for n in whole if "eval_results" in n or "predict" in n]
  last = [n for n in whole if f"model.ckpt-{STEPS}." in n]
  shutil.copytree(run.out, killed)
  for name in [*results, *last]:
    (killed / name).unlink()
  if "evaluations.jsonl" in whole:
    # A run is evaluated every two steps: these are the lines up to SAVED.
    lines = whole["evaluations.jsonl"].decode().splitlines()[: SAVED // 2]
    (killed / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
  # A killed run may leave half a checkpoint, or data without an index.
  (killed / f"model.ckpt-{STEPS}.writing.index.tempstate1").write_bytes(b"half")
  (killed / "model.ckpt-5.data-00000-of-00001").write_bytes(b"whole")
  result = run.again(output_dir=killed)
  assert f"resuming at step {SAVED} of {STEPS}" in result.stdout
  assert paths.differences(paths.contents(killed), whole) == []


@pytest.mark.slow
def test_a_run_whose_newest_checkpoint_is_damaged_resumes_before_it(
  run, tmp_path
):
  folder = tmp_path / "damaged"
  shutil.copytree(run.out, folder)
  prefix = folder / f"model.ckpt-{STEPS}"
  tiny.damage(f"{prefix}.data-00000-of-00001", 5000)
  result = run.again(output_dir=folder)
  assert result.stderr.count(f"; trying {folder}/model.ckpt-{SAVED}\n") == 1
  assert f"resuming at step {SAVED} of {STEPS}" in result.stdout
  found, wanted = paths.contents(folder), paths.contents(run.out)
  assert paths.differences(found, wanted) == []


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
  return math.sqrt(
    sum(
      np.square(ours[name] - value).sum()
      for name, value in theirs.items()
      if not name.endswith(("adam_m", "adam_v", "global_step", "key/bias"))
    )
  )


@pytest.mark.slow
def test_a_second_run_leaves_the_same_bytes(run, tmp_path):
  run.again(output_dir=tmp_path)
  found, wanted = paths.contents(tmp_path), paths.contents(run.out)
  assert paths.differences(found, wanted) == []


# All programs are called by the same code.
@fast("run_pretraining", "run_classifier")
def test_a_call_from_python_leaves_the_same_bytes(run, tmp_path):
  """And it returns the scores of the files; see also test_calls.py."""
  program = importlib.import_module(f"bert.{run.program}")
  flags = program_flags.read_command(run.command)
  result = program.run(**{**flags, "output_dir": tmp_path})
  found, wanted = paths.contents(tmp_path), paths.contents(run.out)
  assert paths.differences(found, wanted) == []
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
  # Which of the evaluations is best depends on the program.
  assert re.search(r"\n  best: eval_\w+ [\d.]+ at step [246]", end)


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


def test_a_run_with_other_settings_leaves_the_folder_alone(run):
  before = paths.contents(run.out)
  flags = {"seed": 7, "train_batch_size": 10, "learning_rate": 0.5}
  result = run.again(program_flags.run_here, **flags)
  for name in ("seed", "train_batch_size", "learning_rate"):
    program_flags.assert_refused(result, name)
  assert paths.contents(run.out) == before


def test_a_folder_that_is_trained_in_is_left_alone(run, tmp_path):
  with atomic.claim_folder(str(tmp_path)):
    result = run.again(program_flags.run_here, output_dir=tmp_path)
    message = f"{tmp_path}: another process is writing"
    program_flags.assert_refused(result, message)
    assert not list(tmp_path.iterdir())
