"""Phases of a run: what may not change, and which record comes next."""

import json

import pytest

from bert.training import same_run

FIRST = {"input_file": "a", "seed": 1, "train_batch_size": 8, "rate": 0.1}


def enter(folder, step, is_new=False, writes=True, **changes):
  settings = {**FIRST, **changes}
  return same_run.enter_phase(
    str(folder), step, settings, is_new_phase=is_new, writes=writes
  )


def test_one_phase_continues_from_a_checkpoint(tmp_path):
  assert enter(tmp_path, 0).record_at(5) == 40
  assert enter(tmp_path, 5).record_at(5) == 40
  written = json.loads((tmp_path / "training.json").read_text())
  assert written == {"phases": [{"first_step": 0, "first_record": 0, **FIRST}]}
  # Without a checkpoint it begins anew.
  assert enter(tmp_path, 0, rate=0.2).settings["rate"] == 0.2
  assert enter(tmp_path, 3, rate=0.2).record_at(3) == 24


def test_a_change_is_refused_with_both_values(tmp_path):
  enter(tmp_path, 0)
  with pytest.raises(ValueError) as caught:
    enter(tmp_path, 5, rate=0.2, train_batch_size=16)
  assert str(caught.value) == (
    "--train_batch_size=16 (was 8), --rate=0.2 (was 0.1): the run of "
    f"{tmp_path}/training.json cannot resume at step 5 with changed settings: "
    "restore them, choose another --output_dir, or start a new phase with "
    "--new_phase=true"
  )


def test_a_setting_that_was_not_recorded_differs(tmp_path):
  enter(tmp_path, 0)
  with pytest.raises(ValueError, match=r"^--new=1 \(was not recorded\): the "):
    enter(tmp_path, 5, new=1)


def test_one_worker_writes_the_phases(tmp_path, capsys):
  enter(tmp_path, 0)
  capsys.readouterr()
  before = (tmp_path / "training.json").read_text()
  enter(tmp_path, 5, True, writes=False, rate=0.2)
  assert (tmp_path / "training.json").read_text() == before
  assert capsys.readouterr().out == (
    "new phase from step 5 and record 40: --rate=0.2 (was 0.1)\n"
  )


def test_the_last_of_three_phases_continues(tmp_path):
  enter(tmp_path, 0)
  enter(tmp_path, 5, True, rate=0.2)
  third = enter(tmp_path, 7, True, rate=0.3)
  assert enter(tmp_path, 7, rate=0.3) == third
  # The second has made updates: no other one continues at its end.
  assert enter(tmp_path, 7, rate=0.2).first_step == 5
  with pytest.raises(ValueError, match=r"^--rate=0.1 \(was 0.2\)"):
    enter(tmp_path, 7)


def test_other_data_begin_at_their_first_record(tmp_path):
  enter(tmp_path, 0)
  phase = enter(tmp_path, 5, True, input_file="b", train_batch_size=4)
  assert (phase.record_at(5), phase.record_at(7)) == (0, 8)
  # The same command again is the same phase, whenever it was killed.
  for step in (5, 7):
    again = enter(tmp_path, step, True, input_file="b", train_batch_size=4)
    assert again == phase
  assert enter(tmp_path, 7, False, input_file="b", train_batch_size=4) == phase


def test_a_phase_without_an_update_is_forgotten(tmp_path):
  first = enter(tmp_path, 0)
  enter(tmp_path, 5, True, input_file="b")  # Killed before its first update.
  assert enter(tmp_path, 5) == first
  written = json.loads((tmp_path / "training.json").read_text())
  assert [phase["first_step"] for phase in written["phases"]] == [0]
  enter(tmp_path, 5, True, input_file="b")
  phase = enter(tmp_path, 5, True, rate=0.2)
  assert (phase.first_step, phase.record_at(5)) == (5, 40)
  with pytest.raises(ValueError, match="--rate=0.1 .was 0.2."):
    enter(tmp_path, 6)


def test_the_same_data_go_on_where_they_were(tmp_path):
  enter(tmp_path, 0)
  phase = enter(tmp_path, 5, True, train_batch_size=4)
  assert (phase.record_at(5), phase.record_at(7)) == (40, 48)
  phase = enter(tmp_path, 7, True, train_batch_size=16)
  assert phase.record_at(8) == 64


def test_a_phase_after_the_checkpoint_is_forgotten(tmp_path):
  """The newest checkpoint was damaged, and an older one is used."""
  enter(tmp_path, 0)
  enter(tmp_path, 5, True, rate=0.2)
  assert enter(tmp_path, 3).record_at(3) == 24
  assert enter(tmp_path, 3, True, rate=0.3).first_step == 3


def test_a_damaged_file_is_named(tmp_path):
  for text in ("", "[]", '{"phases": [{}]}', '{"phases": [1]}'):
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(
      ValueError,
      match=r"training.json: not the phases of a run \(.*\); delete it to go "
      "on with the settings given$",
    ):
      enter(tmp_path, 5)


def test_a_checkpoint_of_unknown_training_is_told(tmp_path, capsys):
  enter(tmp_path, 0)
  enter(tmp_path, 5)
  assert capsys.readouterr().err == ""
  (tmp_path / "training.json").unlink()
  assert enter(tmp_path, 5).record_at(5) == 40
  assert capsys.readouterr().err == (
    f"note: no {tmp_path}/training.json: how the checkpoint of step 5 was "
    "trained is not known, so that none of input_file, seed, "
    "train_batch_size, rate is compared\n"
  )
