"""Mistakes of users, each of which ends in one line: tests/mistakes has them.

`helpers/mistakes.py` says how to write one. docs/errors.md is made of them.
"""

import re

import pytest

import mistakes
import mistakes_world
import paths
import program_flags

SECTIONS = mistakes.read_all()
ALL = [mistake for section in SECTIONS for mistake in section.mistakes]
EARLY = [mistake for mistake in ALL if not mistake.is_late]
LATE = [mistake for mistake in ALL if mistake.is_late]
# How a line begins: with a flag, with a file and the place in it, or with what
# has no name yet.
_BEGIN = re.compile(
  r"--\w+|[\w./-]+(?:, decompressed)?(?::| does not fit| belongs)|missing "
  r"|no flag is called |nothing to do|no data|unexpected argument "
  r"|Missing value for flag --|pass one of|the problem |no block of"
  r"|there is no block|an evaluation while|\d+ training examples"
)
# What was expected, or how to go on.
_CURE = re.compile(
  r"expected|needs |\bpass |did you mean|see --help|\buse |write |give one"
  r"|name |add |leave|put |copy|convert it|choose|lower|start (the|from)|run on"
  r"|remove|takes one name|is the same for all"
  r"|is it the|not word pieces|is a \w+ missing|is there a|known: "
  r"|(keys|columns) are|has only"
  r"|at most|makes one|trains a|made for another|=true leaves"
)
# What makes room for a flag that takes the place of another.
INSTEAD = {
  ("convert_checkpoint", "model"): ["--input="],
  ("export_saved_model", "model"): ["--model_dir="],
  ("export_saved_model", "init_checkpoint"): [
    "--model_dir=",
    "--bert_config_file=config.json",
  ],
}
# Where what is missing is all that can be said.
_PLAIN = re.compile(
  r"no such (file|folder)|no file matches|no checkpoint there|holds no "
  r"|is empty|not a JSON file|no length of a record|damaged or cut short"
  r"|must be |no label|never closed|half of a surrogate|has no 'id'"
  r"|no effect with|does not fit|not a SentencePiece model"
  r"|vocab_size is missing"
  r"|unknown keys|does not divide|not a readable checkpoint|is damaged"
  r"|No such file or directory"
  r"|ended before|is above the config's|times one device|it holds|takes it;"
  r"|are not where answer_start says"
)


@pytest.fixture(name="world", scope="module")
def write_world(tmp_path_factory):
  world = tmp_path_factory.mktemp("mistakes") / "world"
  world.mkdir()
  mistakes_world.write(world)
  return world


@pytest.fixture(name="ends", scope="module")
def make_early(world):
  return mistakes.make_without_tensorflow(EARLY, world)


def has_cure(line):
  return bool(_CURE.search(line) or _PLAIN.search(line))


def name_of(mistake):
  return f"{mistake.command[0]}: {mistake.title}"


def error_of(name, end):
  """Returns the line of a program that was refused."""
  status, _, errors, _ = end
  lines = program_flags.error_lines(errors)
  assert status == 1, errors
  begin = f"{name}.py: error: "
  assert [line.startswith(begin) for line in lines].count(True) == 1, errors
  assert lines[-1].startswith(begin), errors
  return lines[-1].removeprefix(begin)


@pytest.mark.parametrize("place", range(len(EARLY)), ids=map(name_of, EARLY))
def test_it_ends_in_one_line_without_tensorflow(place, ends):
  mistake, end = EARLY[place], ends[place]
  assert error_of(mistake.command[0], end) == mistake.line
  _, output, errors, changed = end
  assert (output, errors.count("\n"), changed) == ("", 1, [])


@pytest.mark.parametrize("mistake", LATE, ids=name_of)
def test_it_ends_in_one_line(mistake, world, monkeypatch):
  """Features may be there, and what a program prints before."""
  monkeypatch.chdir(world)
  end = mistakes.make(mistake, world)
  assert error_of(mistake.command[0], end) == mistake.line
  *_, changed = end
  allowed = r"(.*/)?out(/tasks)?(/\w+)?|out/.*tf_record(\.index\.npz)?"
  assert [name for name in changed if not re.fullmatch(allowed, name)] == []


@pytest.mark.parametrize("mistake", ALL, ids=name_of)
def test_the_line_names_the_place_and_the_cure(mistake):
  assert _BEGIN.match(mistake.line), mistake.line
  assert has_cure(mistake.line), mistake.line


# All programs declare their flags by the same code.
@pytest.mark.parametrize(
  "name",
  [
    name
    if name in ("run_classifier", "predict")
    else pytest.param(name, marks=pytest.mark.slow)
    for name in mistakes.GIVEN
  ],
)
def test_each_flag_refuses_what_it_does_not_take(name, world):
  values = mistakes.wrong_values(name)
  rows = [
    mistakes.Mistake("", False, [], [name, *flags, f"--{flag}={value}"], "")
    for flag, value in values
    for flags in [INSTEAD.get((name, flag), [])]
  ]
  ends = mistakes.make_without_tensorflow(rows, world)
  for (flag, value), end in zip(values, ends, strict=True):
    line = error_of(name, end)
    assert line.startswith((f"--{flag}={value}", f"--{flag}: no file")), line
    assert value in line, line
    assert has_cure(line), line
    assert end[3] == []


def test_every_program_is_tried():
  programs = paths.ROOT.glob("*.py")
  named = {p.stem for p in programs if "program.run_program(" in p.read_text()}
  assert named == mistakes.GIVEN.keys()
  assert named == {mistake.command[0] for mistake in ALL}


def test_the_page_is_made_of_the_mistakes():
  """`PYTHONPATH=. python tests/helpers/mistakes.py` writes it anew."""
  assert mistakes.PAGE.read_text() == mistakes.make_page()
