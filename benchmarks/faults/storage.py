"""Fills the disk, and takes away the right to write to a folder."""

from collections.abc import Iterator
import contextlib
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess

import kills
import processes
import rows
import trainings

_SUFFIX = trainings.DATA


def limit_files(size: int) -> None:
  """Makes writing past a size fail as it does on a full disk, with EFBIG."""
  signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Disk:
  """A file system of its own in a folder, in memory; for root only."""

  def __init__(self, folder: pathlib.Path, size: int):
    self._folder = folder
    folder.mkdir(parents=True)
    self._mount("tmpfs", f"size={size}")

  def _mount(self, kind, options):
    command = ["mount", "-t", "tmpfs", "-o", options, kind, str(self._folder)]
    subprocess.run(command, check=True, capture_output=True)

  def change(self, options: str) -> None:
    """Changes its size, or whether it can be written: ro, rw."""
    self._mount("tmpfs", f"remount,{options}")

  def close(self) -> None:
    """Takes it away."""
    subprocess.run(["umount", "--lazy", str(self._folder)], check=True)


@contextlib.contextmanager
def disk(folder: pathlib.Path, size: int) -> Iterator[Disk | None]:
  """Gives a small file system; None if this user may not make one."""
  try:
    mounted = Disk(folder, size)
  except (OSError, subprocess.CalledProcessError):
    yield None
    return
  try:
    yield mounted
  finally:
    mounted.close()


def fill_by_limit(whole: trainings.Whole, rounds: int, seed: int) -> rows.Row:
  """Lets the writing of a checkpoint fail at some byte of it."""
  row = rows.Row("full disk (RLIMIT_FSIZE), training")
  generator = random.Random(seed)
  chain = kills.Chain(whole, row)

  last = trainings.saved_steps(whole.out)[-1]
  size = (whole.out / f"model.ckpt-{last}{_SUFFIX}").stat().st_size

  for _ in range(rounds):
    limit = generator.randrange(2000, size)  # Else the config does not fit.
    _fail(chain, lambda limit=limit: limit_files(limit))
  chain.finish()
  return row


def fill_disk(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Lets a training fill its disk, which then grows a little."""
  row = rows.Row("full disk (tmpfs), training")
  generator = random.Random(seed)
  whole = trainings.pretraining(folder / "run", steps=400, every=5).run_whole()
  data = whole.out / f"model.ckpt-400{_SUFFIX}"
  size = data.stat().st_size
  full = 1 << 30  # A gigabyte: room for all.
  free = 50_000  # Bytes, at first.

  chain = kills.Chain(whole, row)
  with disk(chain.out, free) as mounted:
    if not mounted:
      row.note("not tried: only root can mount")
      return row

    # In each round the disk grows by a third of a checkpoint to two of them.
    while row.rounds < rounds:
      free += int(size * generator.uniform(0.3, 2))
      mounted.change(f"size={free}")
      _fail(chain)

    mounted.change(f"size={full}")
    chain.finish()
  return row


def _fail(chain, prepare=None, message="cannot be written"):
  """Runs a training that has to end in one line."""
  child = chain.start(prepare)
  child.wait()
  chain.watch(child)

  error = child.error()
  if message in error or "No space left" in error:
    chain.row.note("ended in one line")
  else:
    chain.row.complain(f"status {child.status}: {child.text()[-3000:]}")

  if left := trainings.leftovers(chain.out):
    chain.row.complain(f"left behind: {left}")
  chain.end_round()


def fill_answering(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Lets the disk be full while run_squad.py keeps logits and answers on it."""
  row = rows.Row("full disk (tmpfs), run_squad.py")
  generator = random.Random(seed)

  # A whole prediction, and how many bytes it writes.
  training, prediction = trainings.answering(folder)
  trained = training.run_whole()
  whole = trainings.Whole(prediction, folder / "answered")
  shutil.copytree(trained.out, whole.out)
  before = _count_bytes(whole.out)
  child = prediction.start(whole.out)
  assert child.wait() == 0, child.text()
  needed = _count_bytes(whole.out) - before

  with disk(folder / "disk", 1 << 30) as mounted:
    if not mounted:
      row.note("not tried: only root can mount")
      return row

    out = folder / "disk" / "out"
    while row.rounds < rounds:
      # A trained folder, and room for a part of what is written.
      shutil.rmtree(out, ignore_errors=True)
      shutil.copytree(trained.out, out)
      free = 50_000 + int(needed * generator.uniform(0, 1))
      mounted.change(f"size={_count_pages(out) + free}")

      child = prediction.start(out)
      child.wait()
      row.rounds += 1
      if "No space left" in child.error():
        row.note("ended in one line")
      elif child.status:
        row.complain(f"status {child.status}: {child.text()[-3000:]}")

      # With room, the same command then makes the same answers.
      mounted.change(f"size={1 << 30}")
      child = prediction.start(out)
      child.wait()
      faults = whole.check_results(out)
      row.recovered += not (child.status or faults)
      if child.status or faults:
        row.complain(f"{faults}: {child.text()[-3000:]}")
  return row


def _count_bytes(folder):
  return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def _count_pages(folder):
  """Returns what files take on a disk, which gives whole pages."""
  sizes = [p.stat().st_size for p in folder.rglob("*") if p.is_file()]
  return sum(-(-size // 4096) * 4096 for size in sizes)


def fill_making_records(
  folder: pathlib.Path, rounds: int, seed: int
) -> rows.Row:
  """Lets the disk be full at some byte of the records."""
  row = rows.Row("full disk, making records")
  generator = random.Random(seed)
  records = kills.Records(folder / "limit")

  for number in range(rounds):
    # What is made without a fault; every second round, older records stay.
    variant = number % len(kills.VARIANTS)
    records.clear()
    new = records.make(1, variant)
    old = records.make(2, variant) if number % 2 else {}
    if not old:
      records.clear()

    limit = generator.randrange(1, max(map(len, new.values())))
    child = records.start(
      1, variant, preexec_fn=lambda limit=limit: limit_files(limit)
    )
    _, errors = child.communicate(timeout=processes.SECONDS)
    row.rounds += 1

    if child.returncode == 1 and len(errors.splitlines()) == 1:
      row.note("ended in one line")
    else:
      row.complain(f"status {child.returncode}: {errors}")

    # Nothing is left of the new ones, and the old ones are whole.
    if records.contents() != old:
      row.lost += 1
      row.complain(f"left behind: {sorted(records.contents())}")
    row.recovered += records.make(1, variant) == new
  return row


def forbid_writing(whole: trainings.Whole, rounds: int, seed: int) -> rows.Row:
  """Takes away the right to write, before a start or while it trains."""
  row = rows.Row("read-only output folder")
  generator = random.Random(seed)
  chain = kills.Chain(whole, row)

  while row.rounds < rounds:
    chain.out.mkdir(exist_ok=True)
    is_early = row.rounds % 2 == 0
    if is_early and not _set_writable(chain.out, False):
      row.note("not tried: needs root and chattr")
      return row

    child = chain.start()
    try:
      if not is_early:
        chain.wait_for_saved(child, generator.randint(1, 5))
        _set_writable(chain.out, False)
      child.wait()
    finally:
      _set_writable(chain.out, True)

    # At the start the error names the flag, in training the checkpoint.
    if chain.has_ended(child):
      continue
    chain.watch(child)

    expected = "--output_dir=" if is_early else "model.ckpt-"
    if expected in child.error() and str(chain.out) in child.error():
      row.note("at the start" if is_early else "in training")
    else:
      row.complain(f"status {child.status}: {child.text()[-3000:]}")
    chain.end_round()

  chain.finish()
  return row


def _set_writable(folder, is_writable):
  """Sets the right to write; root's own does not end at the mode."""
  if os.geteuid():
    folder.chmod(0o700 if is_writable else 0o500)
    return True
  command = ["chattr", "-i" if is_writable else "+i", str(folder)]
  try:
    return not subprocess.run(command, capture_output=True).returncode
  except OSError:
    return False
