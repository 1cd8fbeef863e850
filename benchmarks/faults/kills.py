"""Kills trainings and the making of records at random moments."""

import itertools
import pathlib
import random
import re
import shutil
import subprocess
import time

import processes
import rows
import trainings

import program_flags

_RESUMED = re.compile(r"^(?:resuming at|training from) step (\d+)", re.M)


class Chain:
  """A training that is stopped and started again until it comes to its end.

  Every start has to go on at the newest checkpoint that the last stop found,
  and to remove what that left behind; every checkpoint, and the end, have to be
  those of the whole run, byte for byte. Then it begins anew.

  Args:
    whole: the run that nothing stopped.
    row: to fill.
    prepare: called in each process first.
  """

  def __init__(self, whole: trainings.Whole, row: rows.Row, prepare=None):
    self._whole = whole
    self.row = row
    self._prepare = prepare or (lambda: None)
    self._numbers = itertools.count()
    self._begin()

  def _begin(self):
    name = f"{self.row.kind.replace(' ', '-')}-{next(self._numbers)}"
    self.out = self._whole.training.folder / name
    self._newest = 0  # The step to go on at.
    self._waiting = 0  # Rounds of which it is not known whether all is well.

  def start(self, prepare=None) -> processes.Child:
    """Starts the training, again."""
    self._is_resumed = False
    return self._whole.training.start(self.out, prepare or self._prepare)

  def watch(self, child: processes.Child) -> bool:
    """Looks whether it has gone on, and how; returns whether it has."""
    # The program prints once per start at which step it resumes.
    match = not self._is_resumed and _RESUMED.search(child.text())
    if match:
      self._is_resumed = True

      # Only now is it known whether the rounds before were survived.
      faults = []
      if int(match[1]) != self._newest:
        self.row.lost += self._waiting
        faults.append(f"{self._newest} was saved, it went on at {match[1]}")
      left = trainings.leftovers(self.out)
      if faults or left:
        self.row.complain(f"{faults}, left behind: {left}")
      else:
        self.row.recovered += self._waiting
      self._waiting = 0
    return self._is_resumed

  def wait_for_saved(self, child: processes.Child, count: int) -> None:
    """Waits until it has saved `count` more checkpoints, or has ended."""
    wanted = len(trainings.saved_steps(self.out)) + count
    processes.wait_until(
      lambda: (
        child.poll() is not None
        or self.watch(child)
        and len(trainings.saved_steps(self.out)) >= wanted
      )
    )

  def end_round(self) -> None:
    """Looks at what a fault has left."""
    self.row.rounds += 1
    self._waiting += 1

    # All that had been saved must be there, equal to the whole run's.
    steps = trainings.saved_steps(self.out)
    faults = self._whole.check(self.out, steps)
    newest = steps[-1] if steps else 0
    if newest < self._newest or faults:
      self.row.lost += 1
      self.row.complain(
        f"{self._newest} was saved, {newest} is there; {faults}"
      )
    self._newest = newest

  def has_ended(self, child: processes.Child) -> bool:
    """Returns whether the training has come to its end; begins anew if so."""
    if child.poll() != 0:
      return False
    self._compare_end(child)
    shutil.rmtree(self.out)
    self._begin()
    return True

  def finish(self) -> None:
    """Lets the training come to its end."""
    if self._waiting or self._newest:
      child = self.start()
      child.wait()
      self._compare_end(child)

  def _compare_end(self, child):
    if child.status:
      self.row.complain(f"status {child.status}: {child.text()[-2000:]}")
      return
    self.watch(child)
    if faults := self._whole.check_end(self.out):
      # Whichever round it was, none is proved.
      self.row.recovered = 0
      self.row.complain(f"the end is another: {faults}")


def kill_training(
  whole: trainings.Whole, kind: str, rounds: int, seed: int, prepare=None
) -> rows.Row:
  """Kills a training at moments spread over start-up, steps and saving."""
  row = rows.Row(kind)
  generator = random.Random(seed)
  chain = Chain(whole, row, prepare)

  start_up = 4.0  # Seconds until the first checkpoint; measured below.
  while row.rounds < rounds:
    child = chain.start()

    # Any moment of the start-up or of the 2.5 seconds that follow it.
    moment = generator.uniform(0, start_up + 2.5)
    while child.poll() is None and time.monotonic() < child.started + moment:
      if chain.watch(child) and not trainings.saved_steps(chain.out):
        start_up = time.monotonic() - child.started
      time.sleep(0.002)

    if chain.has_ended(child):
      continue
    _kill(chain, child)
  chain.finish()
  return row


def _kill(chain, child):
  child.kill()
  if child.status != -9:
    chain.row.complain(f"status {child.status}: {child.text()[-2000:]}")
  resumed = chain.watch(child)
  left = trainings.leftovers(chain.out) if chain.out.exists() else []
  chain.row.note(
    "while saving" if left else "in training" if resumed else "in start-up"
  )
  chain.end_round()


def kill_saving(whole: trainings.Whole, rounds: int, seed: int) -> rows.Row:
  """Kills a training while it writes a checkpoint."""
  row = rows.Row("SIGKILL while a checkpoint is written")
  generator = random.Random(seed)
  chain = Chain(whole, row)

  while row.rounds < rounds:
    child = chain.start()
    for _ in range(generator.randint(1, 3)):
      _wait_for_saving(chain, child)
    time.sleep(generator.uniform(0, 0.03))  # It takes about that long.

    if not chain.has_ended(child):
      _kill(chain, child)
  chain.finish()
  return row


def _wait_for_saving(chain, child):
  """Waits until a checkpoint begins to be written, or the program ends."""

  def is_saving():
    return chain.watch(child) and any(chain.out.glob("*.writing*"))

  for wanted in (False, True):
    processes.wait_until(
      lambda wanted=wanted: child.poll() is not None or is_saving() == wanted,
      pause=0.0002,
    )


VARIANTS = (
  {"output_file": "out"},
  {"output_file": "a,b,c", "compress": True},
  {"output_file": "out", "documents_per_block": 8, "num_processes": 2},
)


class Records:
  """Text in a folder, and the records that are made of it."""

  def __init__(self, folder: pathlib.Path):
    folder.mkdir(parents=True)
    self.folder = folder

    # Each of the 400 sentences is a document: an empty line or two follow it.
    words = [f"word{number}" for number in range(200)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (folder / "vocab.txt").write_text("\n".join(special + words) + "\n")
    source = random.Random(1)
    sentences = [
      " ".join(source.choices(words, k=12)) + "\n" * source.choice([1, 1, 1, 2])
      for _ in range(400)
    ]

    (folder / "text.txt").write_text("\n".join(sentences))

  def start(self, seed=1, variant=0, **options) -> subprocess.Popen:
    """Starts to make records."""
    command = program_flags.command(
      "create_pretraining_data",
      input_file="text.txt",
      vocab_file="vocab.txt",
      random_seed=seed,
      dupe_factor=60,
      max_seq_length=64,
      **VARIANTS[variant],
    )
    return subprocess.Popen(
      command,
      cwd=self.folder,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
      **options,
    )

  def contents(self) -> dict[str, bytes]:
    """Returns the files in the folder, but for what the records come from."""
    return {
      path.name: path.read_bytes() if path.is_file() else b""
      for path in self.folder.iterdir()
      if path.name not in ("text.txt", "vocab.txt", "lost+found")
    }

  def make(self, seed, variant=0) -> dict[str, bytes]:
    """Makes records anew; returns the files."""
    child = self.start(seed, variant)
    _, errors = child.communicate(timeout=processes.SECONDS)
    assert child.returncode == 0, errors
    return self.contents()

  def clear(self) -> None:
    """Removes all records."""
    for name in self.contents():
      (self.folder / name).unlink()


def kill_making_records(
  folder: pathlib.Path, rounds: int, seed: int
) -> rows.Row:
  """Kills the making of records, into an empty folder and over older ones."""
  row = rows.Row("SIGKILL of making records")
  generator = random.Random(seed)
  records = Records(folder)

  # What each variant makes with each of two seeds, and how long it takes.
  made = {}
  seconds = {}
  for variant, one in itertools.product(range(len(VARIANTS)), (1, 2)):
    start = time.monotonic()
    made[variant, one] = records.make(one, variant)
    seconds[variant] = time.monotonic() - start
    records.clear()

  while row.rounds < rounds:
    # Every second round writes over the records of another seed.
    variant = row.rounds % len(VARIANTS)
    is_over = row.rounds % 2
    old = records.make(2, variant) if is_over else {}

    child = records.start(1, variant)
    time.sleep(generator.uniform(0, seconds[variant]))
    workers = _children(child.pid)
    child.kill()
    child.communicate()
    if child.returncode != -9:  # It was faster this time.
      records.clear()
      continue

    row.rounds += 1
    row.note("over older ones" if is_over else "where none were")
    _compare_records(row, records, old, made[variant, 1], workers)

    # The same command then makes what it makes without a kill.
    again = records.make(1, variant)
    row.recovered += again == made[variant, 1]
    records.clear()
  return row


def _compare_records(row, records, old, new, workers):
  """Checks that each file is the old or the new one, and no worker lives on."""
  contents = records.contents()
  for name in new:
    if name not in contents and name not in old:
      continue
    if contents.get(name) not in (old.get(name), new[name]):
      row.lost += 1
      row.complain(f"{name} is neither old nor new")

  # A killed process cannot remove them; the next one does.
  if any(name.startswith(".") for name in contents):
    row.note("with temporary files left")

  if not processes.wait_until(
    lambda: not any(map(_is_alive, workers)), seconds=10
  ):
    row.complain("a worker process lives on")


def _children(pid):
  listing = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
  return listing.read_text().split() if listing.exists() else []


def _is_alive(pid):
  status = pathlib.Path(f"/proc/{pid}/status")
  return status.exists() and "State:\tZ" not in status.read_text()
