"""Makes faults happen, again and again, and prints the outcome of each kind.

python benchmarks/faults/campaign.py --rounds=20 --output=faults.json

Kills programs, fills disks and damages files while tiny models are trained, and
looks whether anything that had been saved is lost, and whether the same command
then comes to the end that it has without a fault. Prints the table of
docs/reliability.md, in which each row says how many seconds it took; the exit
status is 1 if a round lost something or did not recover. Needs Linux; the full
tmpfs and the read-only folder need root, and are left out without it.
"""

import argparse
import json
import os
import pathlib
import random
import sys
import tempfile
import time

import damages
import kills
import lost_workers
import outputs
import rows
import storage
import trainings
import writers

# A checkpoint of 16 MB, whose writing takes a while.
_LARGE = {"vocab_size": 20_000, "hidden_size": 64, "num_hidden_layers": 2}


class Campaign:
  """The kinds of faults, each a method that returns its rows.

  Args:
    folder: to work in.
    rounds: of every kind; some, which take long, have fewer.
    seed: decides the moments and the places.
  """

  def __init__(self, folder: pathlib.Path, rounds: int, seed: int):
    self._folder = folder
    self._rounds = rounds
    self._seed = seed
    self._few = max(2, rounds // 4)
    self._whole = None

  def _whole_pretraining(self):
    if not self._whole:
      training = trainings.pretraining(self._folder / "pretraining")
      self._whole = training.run_whole()
    return self._whole

  def training(self):
    """SIGKILL of pre-training, of fine-tuning and of several tasks."""
    # What the interrupted trainings are compared with.
    tuning = trainings.fine_tuning(self._folder / "tuning").run_whole()
    tasks = trainings.several_tasks(self._folder / "tasks").run_whole()

    for kind, whole in (
      ("SIGKILL of pre-training", self._whole_pretraining()),
      ("SIGKILL of fine-tuning", tuning),
      ("SIGKILL of several tasks", tasks),
    ):
      yield kills.kill_training(whole, kind, self._rounds, self._seed)

  def saving(self):
    """SIGKILL while a checkpoint is written."""
    training = trainings.pretraining(self._folder / "large", 400, 5, _LARGE)
    yield kills.kill_saving(training.run_whole(), self._rounds, self._seed)

  def records(self):
    """SIGKILL of making records."""
    folder = self._folder / "records"
    yield kills.kill_making_records(folder, self._rounds, self._seed)

  def writing(self):
    """SIGKILL and a full disk of programs that write a file or a folder."""
    folder, seed = self._folder, self._seed
    # Each of the programs has as many rounds, half of them over older files.
    rounds = self._rounds * len(writers.WRITERS)
    yield writers.kill_writing(folder / "writers", rounds, seed)
    yield writers.fill_writing(folder / "writers-disk", rounds, seed)

  def disk(self):
    """A full disk."""
    rounds = self._rounds
    seed = self._seed
    folder = self._folder / "disk"
    yield storage.fill_by_limit(self._whole_pretraining(), self._few, seed)
    yield storage.fill_disk(folder, self._few, seed)
    yield storage.fill_making_records(folder / "records", rounds, seed)
    yield storage.fill_answering(folder / "answering", self._few, seed)

  def readonly(self):
    """A folder that cannot be written."""
    whole = self._whole_pretraining()
    yield storage.forbid_writing(whole, self._few, self._seed)

  def checkpoints(self):
    """Damaged checkpoints."""
    for number, fault in enumerate(damages.FAULTS):
      folder = self._folder / f"checkpoints-{number}"
      yield damages.damage_checkpoints(folder, fault, self._rounds, self._seed)
    yield damages.read_by_programs(self._folder / "programs", self._seed)

  def tfrecords(self):
    """Damaged records."""
    for is_compressed in (False, True):
      yield damages.damage_records(
        self._folder / f"tfrecords-{is_compressed}",
        is_compressed,
        self._rounds,
        self._seed,
      )

  def power(self):
    """A power cut: what was not synced is lost."""
    whole = self._whole_pretraining()
    yield outputs.cut_power(whole, self._rounds, self._seed)

  def sharing(self):
    """Two runs into one output."""
    whole = self._whole_pretraining()
    yield outputs.share_training(whole, self._few, self._seed)
    folder = self._folder / "shared"
    yield outputs.share_records(folder, self._rounds, self._seed)

  def workers(self):
    """One worker of two killed, or with other data."""
    folder = self._folder / "workers"
    few = self._few
    yield lost_workers.kill_worker(folder / "killed", few, self._seed)
    yield lost_workers.give_other_data(folder / "other", few, self._seed)

  def clock(self):
    """A clock that jumps by an hour, back and forth, and SIGKILL besides."""
    kind = "clock jumps by an hour, and SIGKILL"
    yield kills.kill_training(
      self._whole_pretraining(), kind, self._few, self._seed, jump
    )


KINDS = [name for name in vars(Campaign) if not name.startswith("_")]


def jump() -> None:
  """Makes the clock of this process, and the files' times, jump by an hour."""
  real_time = time.time
  real_time_ns = time.time_ns
  generator = random.Random(os.getpid())

  # By chance, a call is an hour early, an hour late or right, so that code that
  # orders files or waits by this clock fails.
  time.time = lambda: real_time() + generator.choice([-3600, 0, 3600])
  time.time_ns = lambda: (
    real_time_ns() + generator.choice([-1, 0, 1]) * 3600 * (10**9)
  )

  # Newer checkpoints may now have older times.
  for path in pathlib.Path(tempfile.gettempdir()).rglob("model.ckpt-*"):
    now = time.time()
    os.utime(path, (now, now))


def run(kinds: list[str], rounds: int, seed: int) -> list[dict]:
  """Runs the campaign; prints each row when it is done."""
  done = []

  # Everything lies below this folder, where `jump` finds the checkpoints.
  with tempfile.TemporaryDirectory(prefix="faults-") as folder:
    tempfile.tempdir = folder
    campaign = Campaign(pathlib.Path(folder), rounds, seed)

    for kind in kinds:
      for row in getattr(campaign, kind)():
        done.append(row.as_dict())
        print(json.dumps(done[-1]), file=sys.stderr, flush=True)
  return done


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--rounds", type=int, default=20)
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--kinds", default=",".join(KINDS))
  parser.add_argument("--output", help="a file for the rows, as JSON")
  options = parser.parse_args()

  print(f"seed {options.seed}, {options.rounds} rounds", flush=True)
  done = run(options.kinds.split(","), options.rounds, options.seed)
  print(rows.as_table(done))

  if options.output:
    pathlib.Path(options.output).write_text(json.dumps(done, indent=2) + "\n")
  return any(r["lost"] or r["recovered"] != r["rounds"] for r in done)


if __name__ == "__main__":
  sys.exit(main())
