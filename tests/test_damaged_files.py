"""Damaged and lost files are never used; whole ones are."""

import functools
import sys

import pytest
import tensorflow as tf

from bert.cli import model_folder
from bert.inputs import training_input
from bert.training import model_selection, workers
from bert.weights import checkpoints
import program_flags
import tiny
import tiny_training

DATA, INDEX = "data-00000-of-00001", "index"


def write(folder, *steps, keep=0):
  """Saves 1.0 at step 1, 2.0 at step 2 and so on."""
  folder.mkdir(exist_ok=True)
  for step in steps:
    variables = {"a": tf.Variable([float(step)] * 50)}
    checkpoints.save(str(folder), step, variables, keep)


def read(folder, restore=checkpoints.restore):
  """Returns the step that was restored, and the first number."""
  variables = {"a": tf.Variable([0.0] * 50)}
  return restore(str(folder), variables), variables["a"].numpy()[0]


def damage(folder, step):
  # After `write`, a byte in the middle of the 200 bytes of a.
  tiny.damage(folder / f"model.ckpt-{step}.{DATA}", 100)


def lose_index(folder, step):
  (folder / f"model.ckpt-{step}.index").unlink()


def test_two_faults_of_a_checkpoint_are_one_line(tmp_path, capsys):
  weights = {"b": tf.Variable([1.0] * 50)}
  everything = {"a/adam_m": tf.Variable([1.0] * 50), **weights}
  for step in (1, 2):
    checkpoints.save(str(tmp_path), step, everything, 0)
  # The tensors lie in the order of their names, with 200 bytes each: these are
  # a byte of a/adam_m and a byte of b.
  tiny.damage(tmp_path / f"model.ckpt-2.{DATA}", 100)
  tiny.damage(tmp_path / f"model.ckpt-2.{DATA}", 300)
  assert checkpoints.restore(str(tmp_path), weights) == 1
  assert checkpoints.restore(str(tmp_path), everything) == 1
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(f"{tmp_path}/model.ckpt-2: b is damaged: ")


@pytest.mark.parametrize(
  ("fault", "line"),
  [
    (damage, "{}/model.ckpt-2: a is damaged: "),
    (lose_index, "{}/model.ckpt-2.index is missing; trying {}/model.ckpt-1"),
  ],
)
def test_every_reader_takes_the_checkpoint_before(
  fault, line, tmp_path, capsys
):
  write(tmp_path, 1, 2)
  fault(tmp_path, 2)
  assert read(tmp_path) == (1, 1.0)
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/model.ckpt-1"
  said = capsys.readouterr().err.splitlines()
  assert said[0].startswith(line.format(tmp_path, tmp_path))
  assert said[0].endswith(f"; trying {tmp_path}/model.ckpt-1")
  assert len(said) == 1  # Not once for every reader of a program.


def test_a_named_checkpoint_is_read_or_refused(tmp_path):
  write(tmp_path, 1, 2)
  damage(tmp_path, 2)
  prefix = f"{tmp_path}/model.ckpt-2"
  assert checkpoints.find_checkpoint(prefix) == prefix
  with pytest.raises(ValueError, match="model.ckpt-2: a is damaged"):
    list(checkpoints.read(prefix))


def test_training_does_not_begin_anew_where_the_only_index_is_lost(tmp_path):
  write(tmp_path, 2)
  lose_index(tmp_path, 2)
  with pytest.raises(ValueError) as caught:
    read(tmp_path)
  assert str(caught.value) == (
    f"{tmp_path}/model.ckpt-2.index is missing, and there is no older "
    f"checkpoint: put it back, or delete model.ckpt-2.{DATA} to begin anew"
  )


@pytest.mark.parametrize("before", [[], [1]])
def test_a_kill_between_two_renames_is_no_loss(
  before, tmp_path, capsys, caplog
):
  write(tmp_path, *before, 2)
  index = tmp_path / "model.ckpt-2.index"
  index.rename(tmp_path / "model.ckpt-2.writing.index")
  assert read(tmp_path) == ((1, 1.0) if before else (None, 0.0))
  assert not capsys.readouterr().err
  assert not caplog.records
  checkpoints.remove_temporary_files(str(tmp_path))
  assert not list(tmp_path.glob("model.ckpt-2*"))


def test_only_files_of_a_checkpoint_are_taken_for_temporary(tmp_path):
  write(tmp_path, 1)
  left = ("model.ckpt-2.writing.index", "bert_model.ckpt.writing.index.temp1")
  left += (".checkpoint.0123abcd.tmp",)  # A kill left it half.
  kept = ("plan.writing.md", "my.model.ckpt-2.writing.index")
  for name in (*left, *kept):
    (tmp_path / name).touch()
  checkpoints.remove_temporary_files(str(tmp_path))
  assert {path.name for path in tmp_path.iterdir()} == {
    *("checkpoint", f"model.ckpt-1.{DATA}", "model.ckpt-1.index", *kept)
  }


def test_a_damaged_later_checkpoint_does_not_push_out_the_good_ones(tmp_path):
  write(tmp_path, 1, 3)
  damage(tmp_path, 3)
  assert read(tmp_path) == (1, 1.0)
  write(tmp_path, 2, keep=1)
  assert checkpoints.saved_steps(str(tmp_path)) == [2, 3]
  assert read(tmp_path) == (2, 2.0)
  state = (tmp_path / "checkpoint").read_text()
  assert state.startswith('model_checkpoint_path: "model.ckpt-2"\n')
  assert "model.ckpt-3" not in state


def test_stopping_at_a_step_that_is_damaged_saves_it(tmp_path, monkeypatch):
  tiny_training.run(tmp_path, 4, save_checkpoints_steps=2)
  damage(tmp_path, 4)
  calls = []

  # The loop calls it before each update. Training resumes at step 2, so two
  # calls let steps 3 and 4 be made, and the third one stops it.
  def agree(strategy, count, stopping):
    calls.append(count)
    return count, len(calls) > 2

  monkeypatch.setattr(workers, "agree", agree)
  step, _ = tiny_training.run(tmp_path, 6, iterations_per_loop=1)
  assert step == 4
  assert tiny_training.saved(tmp_path, 4)["global_step"] == 4


# How a line starts and how it ends; {} is the folder.
BEST_IS_DAMAGED = (
  "{}/best/model.ckpt-1: a is damaged: ",
  "; trying {}/model.ckpt-1",
)


@pytest.mark.parametrize(
  ("fault", "is_kept", "restored", "lines"),
  [
    (damage, True, (1, 1.0), [BEST_IS_DAMAGED]),
    (lose_index, True, (None, 0.0), [("", "; trying the newest weights")]),
    (
      damage,
      False,
      (None, 0.0),
      [
        BEST_IS_DAMAGED,
        (
          "{}/model.ckpt-1: a is damaged: ",
          "; trying the newest weights",
        ),
      ],
    ),
  ],
)
def test_damaged_best_weights_are_those_of_their_step_or_skipped(
  fault, is_kept, restored, lines, tmp_path, capsys
):
  write(tmp_path, 1, 2)
  write(tmp_path / "best", 1)
  fault(tmp_path / "best", 1)
  if not is_kept:
    damage(tmp_path, 1)
  assert read(tmp_path, model_selection.restore_best) == restored
  said = capsys.readouterr().err.splitlines()
  for line, (start, end) in zip(said, lines, strict=True):
    assert line.startswith(start.format(tmp_path))
    assert line.endswith(end.format(tmp_path))


def test_damaged_best_weights_are_no_model_to_start_from(tmp_path):
  """--model=FOLDER means the best weights: others would not be those."""
  write(tmp_path, 1, 2)
  write(tmp_path / "best", 1)
  damage(tmp_path / "best", 1)
  found = model_folder.find_weights(str(tmp_path))
  weights = checkpoints.open_weights(checkpoints.find_checkpoint(found))
  with pytest.raises(ValueError, match=f"{found}/model.ckpt-1: a is damaged: "):
    weights.read("a")


def test_damaged_best_weights_are_mended(tmp_path):
  """For the end of a training deletes the older checkpoints."""
  write(tmp_path, 1, 2)
  write(tmp_path / "best", 1)
  damage(tmp_path / "best", 1)
  mend = functools.partial(model_selection.restore_best, mends=True)
  assert read(tmp_path, mend) == (1, 1.0)
  checkpoints.delete_before(str(tmp_path), 2)
  assert checkpoints.saved_steps(str(tmp_path)) == [2]
  assert read(tmp_path, model_selection.restore_best) == (1, 1.0)


PROGRAM = """
from absl import flags
import tensorflow as tf
from bert.cli import devices, program

def main():
  raise tf.errors.UnavailableError(None, None, "Socket closed\\nand more")

if __name__ == "__main__":
  program.run_program(main, devices.DeviceSettings)
"""


def test_a_lost_worker_is_one_line(tmp_path, monkeypatch):
  monkeypatch.setenv("TF_CONFIG", "{}")
  program = tmp_path / "lose_worker.py"
  program.write_text(PROGRAM)
  command = [sys.executable, str(program), "--distribution=multi_worker"]
  result = program_flags.run_here(command)
  program_flags.assert_refused(
    result, "another worker has ended or cannot be reached"
  )
  with pytest.raises(tf.errors.UnavailableError):  # Nobody to be lost.
    program_flags.run_here(command[:2])


def test_a_lost_worker_is_not_looked_for_in_the_records():
  find_fault = functools.partial(pytest.fail, "reads all records")
  with pytest.raises(tf.errors.UnavailableError):
    with training_input.naming_bad_record(find_fault):
      raise tf.errors.UnavailableError(None, None, "Socket closed")
