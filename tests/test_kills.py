"""A run that is killed again and again ends as one that never was."""

import json
import random
import shutil
import subprocess
import time

import pytest

import tiny
from weights import checkpoints

STEPS = 600
# So large that a checkpoint of 16 MB takes a part of the time that shows.
CONFIG = {"vocab_size": 20_000, "hidden_size": 64, "num_hidden_layers": 2}
MOMENTS = ["start-up", "training", "writing", "training", "writing"]


def make_command(folder, data):
  return tiny.command(
    "run_pretraining",
    folder,
    CONFIG,
    input_file=f"{data}/*.tfrecord",
    do_train=True,
    num_train_steps=STEPS,
    save_checkpoints_steps=5,
    keep_checkpoint_max=3,
    iterations_per_loop=5,
    learning_rate=1e-3,
  )


def wait_for(process, condition):
  """Waits until a condition holds; fails if the process ends before."""
  deadline = time.monotonic() + 600  # Of a machine with other work, too.
  while not condition():
    assert process.poll() is None, "it ended before it could be killed"
    assert time.monotonic() < deadline
    time.sleep(0.0005)


def wait_until(moment, process, out, seconds):
  """Returns at a moment of a run, some time into it where that applies."""
  if moment == "start-up":
    time.sleep(4 * seconds)
    return
  before = checkpoints.saved_steps(str(out))
  wait_for(process, lambda: checkpoints.saved_steps(str(out)) != before)
  if moment == "training":
    time.sleep(seconds)
  else:
    wait_for(process, lambda: list(out.glob("*.writing*")))


def make_multitask_command(folder, data):
  entries = json.loads((data / "tasks.json").read_text())
  for name in ("config.json", "vocab.txt"):
    shutil.copy(data / name, folder)
  return tiny.tasks_command(
    folder,
    [entries["good"], entries["names"], entries["words"]],
    num_train_steps=STEPS,
    save_checkpoints_steps=5,
    keep_checkpoint_max=3,
    iterations_per_loop=5,
  )


@pytest.mark.slow
@pytest.mark.parametrize(
  ("make_command", "seed"),
  [(make_command, 1), (make_command, 2), (make_multitask_command, 3)],
)
def test_killed_five_times_and_resumed_ends_byte_for_byte_the_same(
  make_command, seed, tmp_path
):
  config = {"vocab_size": 150, "hidden_size": 512}
  tiny.write_model(tmp_path, config, "run_multitask")
  entries = tiny.write_tasks(tmp_path)
  (tmp_path / "tasks.json").write_text(json.dumps(entries))
  for number in range(3):
    first = 20 * number
    path = tmp_path / f"{number}.tfrecord"
    tiny.write_records(path, range(first, first + 10 * (number + 1)))
  whole, killed = tmp_path / "whole", tmp_path / "killed"
  whole.mkdir()
  killed.mkdir()
  subprocess.run(make_command(whole, tmp_path), check=True, capture_output=True)
  out, same_command = killed / "out", make_command(killed, tmp_path)
  generator = random.Random(seed)
  for moment in MOMENTS:
    process = subprocess.Popen(
      same_command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
      wait_until(moment, process, out, generator.random())
      assert process.poll() is None, "it ended before it could be killed"
    finally:
      process.kill()
      process.wait()
  result = subprocess.run(same_command, capture_output=True, text=True)
  assert result.returncode == 0, result.stderr
  assert "resuming at step " in result.stdout
  names = ["checkpoint"]
  for step in (STEPS - 10, STEPS - 5, STEPS):
    for suffix in ("data-00000-of-00001", "index"):
      names.append(f"model.ckpt-{step}.{suffix}")
  for name in names:
    assert (out / name).read_bytes() == (whole / "out" / name).read_bytes()
  found, expected = (
    sorted(p.name for p in folder.iterdir() if "tfevents" not in p.name)
    for folder in (out, whole / "out")
  )
  assert found == expected
