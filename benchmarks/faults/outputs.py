"""Cuts the power, and starts two runs that write to one place."""

import json
import os
import pathlib
import random
import shutil
import time

import kills
import processes
import rows
import trainings

_REFUSED = "another process is writing"


class Disk:
  """What a disk holds for sure: what was synced to it.

  Args:
    folder: of this object, for copies of what was synced.
  """

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    folder.mkdir(parents=True)

  def adopt(self, out: pathlib.Path) -> None:
    """Takes what is in a folder for synced."""
    for path in filter(pathlib.Path.is_file, out.glob("*")):
      self._note(path)
    if out.exists():
      self._note(out)

  def watch(self) -> None:
    """Notes from now on what this process syncs."""
    sync = os.fsync

    def sync_and_note(descriptor):
      sync(descriptor)
      self._note(pathlib.Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    os.fsync = sync_and_note

  def _note(self, path):
    # A file keeps its contents when it is renamed, so they are kept by inode.
    if not path.is_dir():
      shutil.copyfile(path, self._content(path.stat().st_ino))
      return

    names = {entry.name: entry.inode() for entry in os.scandir(path)}
    # At once: it may be read while it is written.
    written = self._listing(path).with_suffix(".new")
    written.write_text(json.dumps(names))
    written.replace(self._listing(path))

  def cut_power(self, out: pathlib.Path) -> None:
    """Leaves of a folder only what was synced: names, and their contents."""
    listing = self._listing(out)
    names = json.loads(listing.read_text()) if listing.exists() else {}

    is_file = {name: (out / name).is_file() for name in names}
    shutil.rmtree(out)
    out.mkdir()

    # A name that was synced without its contents is an empty file.
    for name in filter(is_file.get, names):
      content = self._content(names[name])
      if content.exists():
        shutil.copyfile(content, out / name)
      else:
        (out / name).touch()

  def _content(self, inode):
    return self._folder / f"file-{inode}"

  def _listing(self, path):
    return self._folder / f"folder-{str(path).replace('/', '-')}"


def cut_power(whole: trainings.Whole, rounds: int, seed: int) -> rows.Row:
  """Lets a training end, and all that was not synced be lost."""
  row = rows.Row("power cut")
  generator = random.Random(seed)
  chain = kills.Chain(whole, row)

  while row.rounds < rounds:
    disk = Disk(chain.out.parent / f"disk-{time.monotonic_ns()}")
    disk.adopt(chain.out)

    child = chain.start(disk.watch)
    chain.wait_for_saved(child, generator.randint(1, 5))
    time.sleep(generator.uniform(0, 0.1))
    if chain.has_ended(child):
      continue

    child.kill()
    saved = trainings.saved_steps(chain.out)
    disk.cut_power(chain.out)

    # Killed between its renaming and the sync of its folder, one may be gone.
    lost = len(saved) - len(trainings.saved_steps(chain.out))
    row.note("in training" if not lost else "while saving")
    if lost > 1:
      row.lost += 1
      row.complain(f"{lost} of the checkpoints {saved} were not synced")
    chain.end_round()
  chain.finish()
  return row


def share_training(whole: trainings.Whole, rounds: int, seed: int) -> rows.Row:
  """Starts the same training twice: one is refused, the other ends well."""
  row = rows.Row("two trainings into one folder")
  generator = random.Random(seed)
  for number in range(rounds):
    # The second starts within six seconds: in the first one's start-up, while
    # it trains, or when it has ended.
    out = whole.training.folder / f"shared-{number}"
    first = whole.training.start(out)
    time.sleep(generator.uniform(0, 6))

    # Another log, which is named after the folder.
    log = whole.training.folder / f"second-{number}.log"
    second = processes.Child(whole.training.make_command(out), log)
    statuses = sorted([first.wait(), second.wait()])
    row.rounds += 1

    refused = [c for c in (first, second) if _REFUSED in c.error()]
    faults = whole.check_end(out)

    if statuses == [0, 1] and len(refused) == 1 and not faults:
      row.recovered += 1
      row.note(f"the {'first' if refused[0] is first else 'second'} refused")
    elif statuses == [0, 0] and not faults:
      row.recovered += 1
      row.note("one after the other")
    else:
      row.lost += bool(faults)
      row.complain(f"{statuses}, {faults}: {first.text()} {second.text()}")
    shutil.rmtree(out)
  return row


def share_records(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Makes two sorts of records under the same names at once."""
  row = rows.Row("two runs into the same records")
  generator = random.Random(seed)
  records = kills.Records(folder)
  variant = 1  # Three files.

  # What each of them makes alone, and how long one takes.
  start = time.monotonic()
  made = [records.make(1, variant), records.make(2, variant)]
  seconds = (time.monotonic() - start) / 2

  while row.rounds < rounds:
    records.clear()
    children = [records.start(1, variant)]
    time.sleep(generator.uniform(0, seconds / 2))
    children.append(records.start(2, variant))
    errors = [c.communicate(timeout=processes.SECONDS)[1] for c in children]
    row.rounds += 1

    # All files must be of one run: of one that ended well, or none at all.
    refused = [e for e in errors if _REFUSED in e and len(e.splitlines()) == 1]
    good = [children.index(c) for c in children if not c.returncode]

    if records.contents() in [made[number] for number in good]:
      row.recovered += 1
      row.note("one refused" if refused else "one after the other")
    elif not good and len(refused) == 2 and not records.contents():
      row.recovered += 1
      row.note("both refused")
    else:
      row.lost += 1
      row.complain(f"{errors}, left: {sorted(records.contents())}")
  return row
