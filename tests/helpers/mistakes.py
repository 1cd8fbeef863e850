"""Reads the mistakes of tests/mistakes, makes them, and writes docs/errors.md.

A file of tests/mistakes is a transcript:

  ## The vocabulary

  What all of the mistakes below have in common, and how they are mended.

  A word stands twice
  $ printf '[PAD]\n[UNK]\nthe\nthe\n' > vocab.txt
  $ run_classifier --max_seq_length=8
  vocab.txt:4: ...

Commands are made in a copy of the folder of `mistakes_world.write`; a program
is called with the flags of `GIVEN`, with which it works, and then with those
that stand there; `--name=` takes one away. The last line is what the program
says at its end after "error: ", where $PWD stands for the folder. A title ends
in "(late)" where the program loads TensorFlow, or prints something, before it
finds out. To change a message, change it here, too; a failing test shows it.

  PYTHONPATH=. python tests/helpers/mistakes.py    writes docs/errors.md anew
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import typing
from typing import NamedTuple
from unittest import mock

from bert.cli import typed_flags
import paths
import program_flags

FOLDER = paths.ROOT / "tests" / "mistakes"
PAGE = paths.ROOT / "docs" / "errors.md"
LATE = " (late)"
# What every program is given. The files are those of `mistakes_world.write`.
_MODEL = "--bert_config_file=config.json --vocab_file=vocab.txt"
_SHORT = "--max_seq_length=16"
_STEPS = "--train_batch_size=4 --num_train_steps=2"
_EPOCH = "--train_batch_size=4 --num_train_epochs=1"
_TRAIN = f"{_MODEL} {_SHORT} --output_dir=out --do_train {_EPOCH}"
_TEXTS = f"{_MODEL} {_SHORT} --init_checkpoint=bert_model.ckpt"
_RECORDS = "--input_file=texts.txt --output_file=x.tfrecord"
_RECORDS += f" --vocab_file=vocab.txt {_SHORT}"
_PRETRAIN = "--bert_config_file=config.json --output_dir=out --do_train"
_PRETRAIN += f" {_SHORT} {_STEPS} --input_file=records"
_PRETRAIN += " --max_predictions_per_seq=4"
GIVEN = {
  "create_vocab": "--input_file=texts.txt --output_file=new.txt",
  "create_pretraining_data": _RECORDS,
  "create_pretraining_data_beam": f"{_RECORDS} --documents_per_block=2",
  "run_pretraining": _PRETRAIN,
  "run_distillation": f"{_PRETRAIN} --vocab_file=vocab.txt --teacher=large",
  "run_classifier": f"{_TRAIN} --task_name=file --train_file=train.tsv",
  "run_squad": f"{_TRAIN} --train_file=train.json --max_query_length=4",
  "run_tagging": f"{_TRAIN} --train_file=tags.txt",
  "run_multiple_choice": f"{_TRAIN} --train_file=swag.csv",
  "run_embedding": f"{_TRAIN} --train_file=pairs.tsv",
  "run_multitask": f"{_TRAIN} --tasks_file=tasks.json",
  "extract_features": f"{_TEXTS} --input_file=texts.txt --layers=-1 "
  "--output_file=new.jsonl",
  "fill_mask": f"{_TEXTS} --input_file=texts.txt --score",
  "search": "--input_file=texts.txt --index_file=new.npy --model=vectors",
  "export_saved_model": "--export_dir=new --model_dir=trained",
  "predict": "--export_dir=export",
  "convert_checkpoint": f"{_MODEL} --input=bert_model.ckpt --output=new",
}


class Mistake(NamedTuple):
  """One mistake, and what a program says of it."""

  title: str
  is_late: bool  # Whether the program may load TensorFlow to find it.
  setup: list[str]  # Commands of a shell.
  command: list[str]  # The program, and its flags after those of `GIVEN`.
  line: str


class Section(NamedTuple):
  """Mistakes with something in common."""

  title: str
  text: str  # How they are mended.
  mistakes: list[Mistake]


def read_sections(path):
  """Reads a file of tests/mistakes."""
  sections = []
  for block in path.read_text().strip().split("\n\n"):
    if block.startswith("## "):
      sections.append(Section(block.removeprefix("## "), "", []))
    elif "\n$ " not in block:
      section = sections.pop()
      sections.append(section._replace(text=f"{section.text}\n\n{block}"))
    else:
      sections[-1].mistakes.append(read_mistake(block))
  return sections


def read_mistake(block):
  title, *commands, line = block.split("\n")
  assert all(command.startswith("$ ") for command in commands), block
  *setup, command = [command.removeprefix("$ ") for command in commands]
  is_late = title.endswith(LATE)
  title = title.removesuffix(LATE)
  return Mistake(title, is_late, setup, shlex.split(command), line)


def read_all():
  """Returns the sections of all files, which have numbers for their order."""
  return [s for p in sorted(FOLDER.glob("*.txt")) for s in read_sections(p)]


def make(mistake, world):
  """Makes a mistake in the current folder; returns how the program ended.

  Args:
    mistake: to make.
    world: the folder of `mistakes_world.write`, which is copied where files
      change.

  Returns:
    The exit status, the output, the errors, and the names of the files that
    the program has changed.
  """
  here = world
  if mistake.setup or mistake.is_late:
    here = world.with_name("copy")
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(world, here)
    script = "set -e\n" + "\n".join(mistake.setup)
    subprocess.run(["sh", "-c", script], cwd=here, check=True)
  os.chdir(here)
  before = everything(here)
  name, *flags = mistake.command
  command = [sys.executable, str(paths.ROOT / f"{name}.py")]
  end = program_flags.run_here([*command, *GIVEN[name].split(), *flags])
  changed = paths.differences(before, everything(here))
  errors = end.stderr.replace(f"{os.path.realpath(here)}/", "$PWD/")
  # The page shows what is proposed to somebody in the folder of the programs.
  errors = errors.replace(f"`python {paths.ROOT}/", "`python ")
  return end.returncode, end.stdout, errors, changed


def everything(folder):
  """Returns the contents of files, and folders, which may be empty."""
  folders = {str(p): b"" for p in folder.rglob("*") if p.is_dir()}
  return paths.contents(folder) | folders


# Calls a function of this file where TensorFlow is not.
_WITHOUT_TENSORFLOW = """
import json, pathlib, sys
sys.modules["tensorflow"] = sys.modules["keras"] = None
import mistakes
rows, world = json.load(sys.stdin)
rows = [mistakes.Mistake(*row) for row in rows]
ends = [mistakes.make(row, pathlib.Path(world)) for row in rows]
print(json.dumps(ends))
"""


def make_without_tensorflow(rows, world):
  """Makes mistakes in a process whose programs cannot import TensorFlow.

  Args:
    rows: the mistakes.
    world: see `make`.

  Returns:
    What `make` returns, for each of them.
  """
  places = [paths.ROOT, paths.ROOT / "tests" / "helpers"]
  result = subprocess.run(
    [sys.executable, "-c", _WITHOUT_TENSORFLOW],
    input=json.dumps([rows, str(world)]),
    capture_output=True,
    text=True,
    cwd=world,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
  )
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout.splitlines()[-1])


def settings_class(name):
  """Returns the class of a program's settings, such as of "predict"."""

  def stop(settings, takes_others=False):
    raise _Parsed(settings)

  with mock.patch.object(typed_flags, "parse_command_line", stop):
    try:
      program_flags.run_here([sys.executable, str(paths.ROOT / f"{name}.py")])
    except _Parsed as parsed:
      return parsed.args[0]
  raise AssertionError(f"{name} parses no flags")


class _Parsed(BaseException):
  """Ends a program where it would parse its flags; has their class."""


# Values that flags of paths refuse, by what the flags name; in `world`, data
# is an empty folder.
_PATHS = {
  "file": ("no/such", "data"),
  "files": ("no/such", "data"),
  "input": ("no/such", "data"),
  "folder": ("no/such", "vocab.txt"),
  "checkpoint": ("no/such",),
  "model": ("./no/such",),
  "new_files": ("data", "vocab.txt/new"),
  "new_folder": ("vocab.txt", "vocab.txt/new"),
  "empty_folder": ("trained", "vocab.txt", "vocab.txt/new"),
}


def wrong_values(name):
  """Lists (flag, value): each wrong type, bound, choice and path of a program.

  Args:
    name: of the program, such as "predict".
  """
  settings = settings_class(name)
  hints = typing.get_type_hints(settings)
  values = []
  for flag, declared in settings.flags_by_name().items():
    types = set(typing.get_args(hints[flag]) or [hints[flag]])
    wrong = list(_PATHS.get(declared.path, ()))
    if declared.choices:
      wrong.append("nothing")
    elif bool in types:
      wrong += ["maybe", "2"]
    elif int in types:
      wrong += ["many", "1.5"]
    elif float in types:
      wrong += ["many", "nan", "inf"]
    if declared.least is not None:
      wrong.append(str(declared.least - 1))
    if declared.most is not None:
      wrong.append(str(declared.most + 1))
    values += [(flag, value) for value in wrong]
  return values


_INTRODUCTION = """# Errors, and how to mend them

A program that cannot do what it was asked to do prints one line and ends with
status 1; it has written nothing then, but for the features of texts in
`--output_dir`, which the next run uses. The line begins with the flag, or with
the file and its row, and says the value, what was expected, and where it is not
plain, the cure. Look for a part of your line on this page. What is not here and
ends in a traceback is a fault of this project.

This page is made of the {count} mistakes that `tests/test_mistakes.py` makes,
line for line (`PYTHONPATH=. python tests/helpers/mistakes.py` writes it anew).
It gives the flags of the {programs} programs {values:,} wrong values, too:
words and fractions for numbers, numbers beyond their bounds, unknown choices,
files that are not there, and folders in the place of files.
"""


def make_page():
  """Returns the text of docs/errors.md."""
  sections = read_all()
  parts = [
    _INTRODUCTION.format(
      count=sum(len(section.mistakes) for section in sections),
      programs=len(GIVEN),
      values=sum(len(wrong_values(name)) for name in GIVEN),
    )
  ]
  for section in sections:
    parts.append(f"## {section.title}{section.text}\n")
    rows = ["| what is wrong | program | what it says |", "|---|---|---|"]
    # The same mistake with several programs stands once.
    programs = {}
    for mistake in section.mistakes:
      key = (mistake.title, mistake.line)
      programs.setdefault(key, {})[f"`{mistake.command[0]}`"] = None
    for (title, line), names in programs.items():
      line = line.replace("$PWD", "/...").replace("|", "\\|")
      rows.append(f"| {title} | {', '.join(names)} | {_as_code(line)} |")
    parts.append("\n".join(rows) + "\n")
  return "\n".join(parts)


def _as_code(line):
  """Returns a line as code, in so many backticks that it ends at its end."""
  return f"`` {line} ``" if "`" in line else f"`{line}`"


if __name__ == "__main__":
  PAGE.write_text(make_page())
