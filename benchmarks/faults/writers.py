"""Kills, or gives no room to, the programs that write a file or a folder."""

from collections.abc import Callable, Iterator
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from typing import Any, NamedTuple

import processes
import rows
import storage

import program_flags
import tiny

# A model needs threads, which this process may not have: see processes.py.
_WRITE_MODELS = """
import pathlib, sys
import tiny_models
folder = pathlib.Path(sys.argv[1])
for name in ("trained", "encoder"):
  (folder / name).mkdir()
tiny_models.write_trained(folder / "trained")
tiny_models.write_masked_lm(folder / "encoder")
tiny_models.write_modules(folder / "encoder")
tiny_models.run_export(folder / "trained", format="saved_model")
"""


class Writer(NamedTuple):
  """A program, and two ways to call it that write different things.

  Attributes:
    program: its name.
    flag: of the path that it writes to.
    flags: all others; paths are below the folder of `make_inputs`.
    old: those that differ when it writes what a later run writes over. None:
      it refuses a path that exists.
    unequal: names of files that two equal runs write differently.
    resumes: what a fault leaves may be a part, which the next run completes.
  """

  program: str
  flag: str
  flags: dict[str, Any]
  old: dict[str, Any] | None = None
  unequal: tuple[str, ...] = ()
  resumes: bool = False

  def start(
    self,
    folder: pathlib.Path,
    is_old: bool = False,
    prepare: Callable[[], None] = lambda: None,
  ) -> processes.Child:
    """Starts it in a folder of `make_inputs`; it writes to folder/out."""
    flags = {**self.flags, **((self.old or {}) if is_old else {})}
    flags[self.flag] = pathlib.Path("out", "written")
    command = program_flags.command(self.program, **flags)

    def prepare_there():
      os.chdir(folder)
      prepare()

    return processes.Child(command, folder / "log", prepare_there)

  def write(self, folder: pathlib.Path, is_old=False) -> dict[str, bytes]:
    """Writes into a folder that is empty; returns all files there."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    (folder / "out").mkdir()
    child = self.start(folder, is_old)
    assert child.wait() == 0, child.text()
    return self.contents(folder)

  def contents(self, folder: pathlib.Path) -> dict[str, bytes]:
    """Returns the files in folder/out, by their paths there."""
    out = folder / "out"
    return {
      str(path.relative_to(out)): b""
      if path.name in self.unequal
      else path.read_bytes()
      for path in out.rglob("*")
      if path.is_file()
    }


_ENCODER = {
  "bert_config_file": "encoder/config.json",
  "vocab_file": "encoder/vocab.txt",
  "init_checkpoint": "encoder",
  "max_seq_length": 16,
}
_TEXTS = {"input_file": "lines.txt", **_ENCODER}
_CONVERSION = {"input": "encoder", "bert_config_file": "encoder/config.json"}

WRITERS = (
  Writer(
    "create_vocab",
    "output_file",
    {"input_file": "words.txt", "vocab_size": 1500},
    {"vocab_size": 1200},
  ),
  Writer("extract_features", "output_file", _TEXTS, {"layers": "0"}),
  Writer(
    "fill_mask",
    "output_file",
    {**_TEXTS, "output_format": "jsonl"},
    {"top_k": 2},
  ),
  Writer("convert_checkpoint", "output", _CONVERSION),
  Writer(
    "convert_checkpoint",
    "output",
    {**_CONVERSION, "output_format": "hugging_face"},
  ),
  Writer(
    "export_saved_model",
    "export_dir",
    {"model_dir": "trained"},
    unequal=("fingerprint.pb",),
  ),
  Writer(
    "predict",
    "output_file",
    {"export_dir": "trained/export", "input_file": "lines.txt"},
    {"input_file": "words.txt"},
  ),
  Writer(
    "search",
    "index_file",
    {"model": "encoder", "input_file": "lines.txt", "query": "good"},
    resumes=True,
  ),
)


def make_inputs(folder: pathlib.Path) -> None:
  """Makes the models and texts that the writers read."""
  folder.mkdir(parents=True)
  source = random.Random(1)
  words = [
    "".join(source.choices("abcdefghij", k=source.randint(3, 9)))
    for _ in range(3000)
  ]
  lines = (" ".join(source.choices(words, k=12)) for _ in range(2000))
  (folder / "words.txt").write_text("\n".join(lines) + "\n")
  texts = (tiny.make_text(n, tiny.GOOD + ["[MASK]"]) for n in range(400))
  (folder / "lines.txt").write_text(
    "\n".join(f"{text} [MASK]" for text in texts) + "\n"
  )
  subprocess.run(
    [sys.executable, "-c", _WRITE_MODELS, str(folder)],
    check=True,
    cwd=processes.ROOT / "tests/helpers",
    env={**os.environ, "PYTHONPATH": str(processes.ROOT)},
  )


class Round(NamedTuple):
  """What stands in the folder before a fault, and what the writer writes."""

  writer: Writer
  old: dict[str, bytes]
  new: dict[str, bytes]
  seconds: float  # That it takes.


def _rounds(folder: pathlib.Path, count: int) -> Iterator[Round]:
  """Yields rounds, the writers in turns, the second time over older files."""
  make_inputs(folder)
  whole = {}
  for number in range(count):
    turn, place = divmod(number, len(WRITERS))
    writer = WRITERS[place]
    if place not in whole:
      start = time.monotonic()
      new = writer.write(folder)
      whole[place] = new, time.monotonic() - start
    is_over = turn % 2 == 1 and writer.old is not None
    old = writer.write(folder, is_old=True) if is_over else {}
    yield Round(writer, old, *whole[place])


def _reset(folder, one):
  """Leaves in the folder what stood there before the round."""
  shutil.rmtree(folder / "out", ignore_errors=True)
  (folder / "out").mkdir()
  for name, content in one.old.items():
    (folder / "out" / name).write_bytes(content)


def _compare(row, folder, one) -> None:
  """Counts the round, and looks at what a fault has left."""
  row.rounds += 1
  row.note(f"{one.writer.program}.py")
  left = one.writer.contents(folder)
  names = () if one.writer.resumes else one.old.keys() | one.new.keys()
  for name in names:
    if left.get(name) not in (one.old.get(name), one.new.get(name)):
      row.lost += 1
      row.complain(f"{one.writer.program}: {name} is neither old nor new")

  # The same command then writes what it writes without a fault, and removes
  # what the fault has left.
  child = one.writer.start(folder)
  child.wait()
  again = one.writer.contents(folder)
  if child.status == 0 and again == one.new:
    row.recovered += 1
  else:
    others = [
      n for n in again.keys() | one.new.keys() if again.get(n) != one.new.get(n)
    ]
    row.complain(f"{one.writer.program}: {others}, {child.text()[-2000:]}")


def kill_writing(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Kills a program at a random moment while it makes what it writes."""
  row = rows.Row("SIGKILL of programs that write a file or a folder")
  generator = random.Random(seed)
  for one in _rounds(folder, rounds):
    # It may be faster than the whole one was: then it is started anew.
    seconds = one.seconds
    status = 0
    while status == 0:
      _reset(folder, one)
      child = one.writer.start(folder)
      time.sleep(generator.uniform(0, seconds))
      child.kill()
      status = child.status
      seconds *= 0.8
    if status != -9:
      row.complain(f"status {status}: {child.text()[-2000:]}")
    _compare(row, folder, one)
  return row


def fill_writing(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Lets the disk be full at a random byte of the largest file."""
  row = rows.Row("full disk, programs that write a file or a folder")
  generator = random.Random(seed)
  for one in _rounds(folder, rounds):
    _reset(folder, one)
    limit = generator.randrange(2000, max(map(len, one.new.values())))
    child = one.writer.start(
      folder, prepare=lambda limit=limit: storage.limit_files(limit)
    )
    child.wait()
    if child.error():
      row.note("ended in one line")
    else:
      row.complain(f"status {child.status}: {child.text()[-2000:]}")
    _compare(row, folder, one)
  return row
