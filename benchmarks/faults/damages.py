"""Damages checkpoints and records, and lets every reader meet them."""

from collections.abc import Callable
import pathlib
import random
import re
import shutil

import processes
import rows
import trainings

import program_flags
import tiny

LAST = "model.ckpt-40"  # What is damaged; the one before it is of step 30.
PROGRAM_ROUNDS = 2  # The others go through the reader alone, which is faster.


def _truncate(path, generator):
  content = path.read_bytes()
  path.write_bytes(content[: generator.randrange(len(content))])


def _flip_bit(path, generator):
  content = bytearray(path.read_bytes())
  content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
  path.write_bytes(bytes(content))


def _remove(path, generator):
  path.unlink()


FAULTS: dict[str, tuple[Callable, str]] = {
  "data cut short": (_truncate, trainings.DATA),
  "index cut short": (_truncate, trainings.INDEX),
  "bit of data flipped": (_flip_bit, trainings.DATA),
  "bit of index flipped": (_flip_bit, trainings.INDEX),
  "data missing": (_remove, trainings.DATA),
  "index missing": (_remove, trainings.INDEX),
}


def damage_checkpoints(
  folder: pathlib.Path, fault: str, rounds: int, seed: int
) -> rows.Row:
  """Damages the newest checkpoint; readers have to find the one before it."""
  row = rows.Row(f"checkpoint: {fault}")
  generator = random.Random(seed)
  change, end = FAULTS[fault]

  # A run of 60 steps, cut off after step 40, whose checkpoint is damaged.
  whole = trainings.pretraining(folder, steps=60, every=10).run_whole()
  for number in range(rounds):
    out = whole.copy(f"damaged-{number}", 40)
    change(out / f"{LAST}{end}", generator)
    row.rounds += 1

    # The reader compares what it gets with the checkpoints of the whole run.
    child = read(folder / "read.log", "restore", out, whole.out)
    if child.status:
      row.lost += 1
      row.complain(child.text()[-3000:])
      continue
    row.note(child.text().splitlines()[-1])

    if number < PROGRAM_ROUNDS:
      row.note("with run_pretraining.py")
      row.recovered += _goes_on(row, whole, out)
    else:
      row.recovered += 1
    shutil.rmtree(out)
  return row


def _goes_on(row, whole, out):
  """Returns whether the training resumes where it should, and says so."""
  child = whole.training.start(out)
  child.wait()

  # A bit without a use leaves step 40 whole; then nothing is to be said.
  said = child.text().count(f"; trying {out}/model.ckpt-30\n")
  step = 30 if said else 40

  faults = whole.check_end(out)
  if f"resuming at step {step}" not in child.text() or said > 1:
    faults.append("not said once")
  if faults:
    row.complain(f"{faults}: {child.text()[-3000:]}")
  return not faults


def read(log: pathlib.Path, *arguments) -> processes.Child:
  """Runs readers.py, whose last line says what became of it."""
  script = pathlib.Path(__file__).with_name("readers.py")
  child = processes.Child(["", str(script), *map(str, arguments)], log)
  child.wait()
  return child


def read_by_programs(folder: pathlib.Path, seed: int) -> rows.Row:
  """Lets every program that takes an output folder meet a damaged one."""
  row = rows.Row("checkpoint damaged, other programs")
  generator = random.Random(seed)

  # Programs that take a pre-trained model.
  folder.mkdir(parents=True)
  child = read(folder / "write.log", "write", folder / "out")
  assert not child.status, child.text()
  _flip_bit(folder / "out" / f"{LAST}{trainings.DATA}", generator)
  before = f"; trying {folder}/out/model.ckpt-30\n"
  for command in _commands(folder):
    _run_once(row, command, folder / "program.log", [before])

  # Programs that take a fine-tuned one: its best weights are damaged, and the
  # checkpoint of the same step has them, too.
  tuned = trainings.fine_tuning(folder / "tuned").run_whole()
  (best,) = (tuned.out / "best").glob(f"*{trainings.DATA}")
  _flip_bit(best, generator)
  step = best.name.removesuffix(trainings.DATA)

  for command in _tuned_commands(tuned):
    line = f"; trying {tuned.out}/{step}\n"
    _run_once(row, command, folder / "program.log", [line])
  return row


def _commands(folder):
  model = {
    "bert_config_file": folder / "out" / "config.json",
    "vocab_file": folder / "out" / "vocab.txt",
    "init_checkpoint": folder / "out",
    "max_seq_length": tiny.SEQUENCE,
  }
  texts = folder / "out" / "texts.txt"

  yield program_flags.command(
    "fill_mask", input_file=texts, score=True, **model
  )
  yield program_flags.command(
    "extract_features",
    input_file=texts,
    output_file=folder / "vectors.jsonl",
    layers=-1,
    **model,
  )
  yield program_flags.command(
    "convert_checkpoint",
    input=folder / "out",
    output=folder / "converted",
    bert_config_file=model["bert_config_file"],
    vocab_file=model["vocab_file"],
  )


def _tuned_commands(tuned):
  folder = tuned.training.folder
  yield [
    *tuned.training.make_command(tuned.out),
    "--do_train=false",
    "--do_eval=true",
  ]
  yield program_flags.command(
    "export_saved_model",
    model_dir=tuned.out,
    vocab_file=folder / "vocab.txt",
    export_dir=folder / "export",
  )


def _run_once(row, command, log, lines):
  child = processes.Child(command, log)
  child.wait()
  row.rounds += 1
  row.note(pathlib.Path(command[1]).name)
  if child.status or any(child.text().count(line) != 1 for line in lines):
    row.complain(f"status {child.status}: {child.text()[-3000:]}")
  else:
    row.recovered += 1


def damage_records(
  folder: pathlib.Path, is_compressed: bool, rounds: int, seed: int
) -> rows.Row:
  """Cuts a file of records short, or flips a bit, wherever it is."""
  kind = "compressed records" if is_compressed else "records"
  row = rows.Row(f"{kind} damaged")
  generator = random.Random(seed)

  folder.mkdir(parents=True)
  path = folder / "examples.tfrecord"
  tiny.write_records(path, range(300), compress=is_compressed)
  good = path.read_bytes()

  for number in range(rounds):
    # Rounds cut the file and flip a bit in turns.
    offset = generator.randrange(1, len(good))
    content = bytearray(good)
    content[offset] ^= 1 << generator.randrange(8)
    is_cut = number % 2 == 0
    path.write_bytes(good[:offset] if is_cut else bytes(content))

    child = read(folder / "read.log", "records", path)
    row.rounds += 1
    line = child.text().splitlines()[-1]

    # The error has to name the file and the byte where the record begins. Plain
    # records have 261 bytes each; in a compressed file, the byte is a place of
    # the decompressed content, which is not checked.
    name = rf"{re.escape(str(path))}(?:, decompressed)?"
    byte = re.search(rf"^error: {name}: .*byte (\d+)", line)
    begin = offset // 261 * 261
    is_named = byte and (is_compressed or int(byte[1]) == begin)

    # A bit may have no use; then all records are read.
    if not child.status and (is_named or line == "unharmed"):
      row.recovered += 1
      row.note("named" if is_named else "unharmed: the bit has no use")
    else:
      row.complain(f"byte {offset}, cut: {is_cut}: {child.text()[-3000:]}")
  return row
