"""Settings as flags, and how programs start: --help, wrong flags, logs."""

import ast
import dataclasses
import json
import re
import shlex
import subprocess
import sys

import pytest

from bert import __main__
from bert.cli import program, removed_flags, typed_flags
from bert.data import messages
import paths
import program_flags

# Starts programs with and without --help, and ends with 99 if that has imported
# TensorFlow.
LIGHT = """
import json, sys
sys.path[:0] = [".", "tests/helpers"]
import program_flags
ends = {}
for name in sys.argv[1:]:
  for flags in ([], ["--help"], ["--helpfull"]):
    end = program_flags.run_here([sys.executable, f"{name}.py", *flags])
    ends[" ".join([name, *flags])] = end.returncode, end.stdout, end.stderr
if "tensorflow" in sys.modules: sys.exit(99)
print(json.dumps(ends))
"""
PROGRAMS = sorted(
  path.stem
  for path in paths.ROOT.glob("*.py")
  if "program.run_program(" in path.read_text(encoding="utf-8")
)

_data = typed_flags.group("Data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(typed_flags.Settings):
  path: str = _data(typed_flags.REQUIRED, "A path.")
  names: tuple[str, ...] = _data(("a", "b"), "Names.")
  text: tuple[str, ...] = _data((), "A text.", repeated=True)
  size: int | None = _data(None, "A size.", least=1)
  rate: float = _data(0.5, "A rate.", least=0.0, most=1.0)
  kind: str = _data("x", "A kind.", choices=("x", "y"))
  is_new: bool = _data(False, "Whether it is new.")
  age: int = _data(1, "An age.", needs="is_new=false")
  tone: str = _data("c", "A tone.", needs=("kind=y", "size"))
  derived: int = 7  # No flag.


INTERRUPTED = """
from bert.cli import program, typed_flags

class Settings(typed_flags.Settings):
  @classmethod
  def define_flags(cls):
    raise KeyboardInterrupt

program.start(Settings)
"""


def test_ctrl_c_before_the_program_itself_is_a_line(tmp_path):
  """As while it imports TensorFlow, which takes seconds."""
  script = tmp_path / "start.py"
  script.write_text(INTERRUPTED)
  result = subprocess.run(
    [sys.executable, script],
    env={"PYTHONPATH": str(paths.ROOT)},
    capture_output=True,
    text=True,
  )
  assert result.returncode != 0
  assert result.stderr == "start.py: error: interrupted\n"


def test_values_have_the_types_of_their_fields():
  given = {"path": "p", "names": "c,d", "size": 3, "rate": 1, "is_new": True}
  settings = program_flags.read(Settings, lambda kind: kind.read(), **given)
  assert settings == Settings(
    path="p",
    names=("c", "d"),
    size=3,
    rate=1.0,
    is_new=True,
    given=frozenset(given),
  )
  assert list(settings.flag_values()) == list(Settings.flags_by_name())
  assert "derived" not in Settings.flags_by_name()


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({"age": 2, "is_new": True}, "--age=2 needs --is_new=false"),
    ({"tone": "d", "kind": "x"}, "--tone=d needs --kind=y or --size"),
  ],
)
def test_a_flag_without_effect_is_refused(given, message):
  with pytest.raises(ValueError, match=message):
    Settings.parse({"path": "p", **given})


def test_a_flag_with_what_it_needs_is_read():
  for given in ({"age": 2}, {"tone": "d", "kind": "y"}, {"tone": "c"}):
    assert Settings.parse({"path": "p", **given}).given == {"path", *given}


def test_values_of_a_json_object_are_those_of_a_command_line():
  settings = Settings.parse({"path": "p", "names": ["c"], "is_new": True})
  assert settings.names == ("c",) and settings.is_new
  assert settings.given == {"path", "names", "is_new"}


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({}, "missing path"),
    ({"path": "p", "colour": 1}, "no flag is called --colour"),
    (
      {"path": "p", "size": 0},
      "--size=0: expected a whole number of at least 1",
    ),
    ({"path": "p", "kind": "z"}, "--kind=z: expected one of x, y"),
  ],
)
def test_wrong_values_are_refused(given, message):
  with pytest.raises(ValueError) as error:
    Settings.parse(given)
  assert message in str(error.value)


@pytest.fixture(name="ends", scope="module")
def start_all():
  """Returns {command: (status, output, errors)}."""
  command = [sys.executable, "-c", LIGHT, *PROGRAMS]
  return json.loads(subprocess.check_output(command, cwd=paths.ROOT, text=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_the_docstring_and_every_flag_of_ours(name, ends):
  status, output, errors = ends[f"{name} --help"]
  assert (status, errors) == (0, "")
  source = (paths.ROOT / f"{name}.py").read_text(encoding="utf-8")
  docstring = ast.get_docstring(ast.parse(source), clean=False)
  assert output.startswith(docstring)
  # A "\\" at the end of a line that is not doubled joins it to the next.
  assert not re.search(r"\S +--\w+=\S+ {3}", docstring)
  assert "\nRequired:\n  --" in output
  assert max(map(len, output.splitlines())) <= 80
  assert "alsologtostderr" not in output


def shown_flags(output):
  return re.findall(r"^  --(\w+)=", output, re.MULTILINE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_shows_the_most_used_flags_and_helpfull_all_of_them(name, ends):
  short, full = (ends[f"{name} --{flag}"][1] for flag in ("help", "helpfull"))
  assert set(shown_flags(short)) <= set(shown_flags(full))
  # The required ones, and about ten more.
  assert len(shown_flags(short)) <= 20
  # The title of a group may change nothing but the flags below it.
  assert full.startswith(short.partition("\nRequired:")[0])
  is_whole = shown_flags(short) == shown_flags(full)
  number = len(shown_flags(full))
  assert is_whole != (f"--helpfull shows all {number}.\n" in short)


@pytest.mark.parametrize(
  "path", sorted(paths.ROOT.glob("configs/*.txt")), ids=lambda path: path.name
)
def test_a_preset_is_a_command_of_the_program_in_its_comment(path):
  text = path.read_text(encoding="utf-8")
  (program_name,) = re.findall(r"python (\w+)\.py --flagfile=", text)
  assert f"--flagfile=configs/{path.name} --model=$BERT" in text
  declared = program_flags.declared_flags(f"{program_name}.py")
  given = re.findall(r"^--(\w+)=(.+)$", text, re.MULTILINE)
  assert ("do_train", "true") in given
  for name, value in given:
    declared[name].parser.parse(value)  # A ValueError if it does not fit.


@pytest.mark.parametrize("name", PROGRAMS)
def test_missing_flags_are_told_in_one_line_before_tensorflow(name, ends):
  status, _, errors = ends[name]
  assert status == 1
  assert errors.startswith(f"{name}.py: error: missing --")
  assert errors.count("\n") == 1


def test_proposed_commands_are_quoted_for_the_shell():
  command = program.command("predict.py", export_dir="my export", port=None)
  assert command == "python predict.py '--export_dir=my export'"


def test_proposed_commands_begin_as_this_one_did(monkeypatch, tmp_path):
  monkeypatch.setattr(messages, "LAUNCHER", [])
  monkeypatch.setattr(sys, "argv", [str(paths.ROOT / "run_squad.py")])
  monkeypatch.chdir(tmp_path)
  begin = f"python {shlex.quote(str(paths.ROOT))}/predict.py"
  assert program.command("predict.py", port=1) == f"{begin} --port=1"
  monkeypatch.chdir(paths.ROOT)
  assert program.command("predict.py", port=1) == "python predict.py --port=1"

  monkeypatch.setattr("runpy.run_module", lambda *names, **changes: None)
  starts = {"bert/__main__.py": "python -m bert", "/usr/bin/bert": "bert"}
  for path, begin in starts.items():
    monkeypatch.setattr(sys, "argv", [path, "run_squad"])
    __main__.main()
    assert program.command("predict.py", port=1) == f"{begin} predict --port=1"


CLOSED = """
import sys
from bert.cli import program, typed_flags
class Settings(typed_flags.Settings): pass
def main():
  with open("file", "w") as file:
    print(repr(sys.stdin.read()), file.fileno() > 2)
  raise ValueError("refused")
program.run_program(main, Settings)
"""


def test_closed_streams_are_empty_and_hold_no_file(tmp_path):
  (tmp_path / "start.py").write_text(CLOSED)
  result = subprocess.run(
    ["sh", "-c", '"$0" start.py <&- 2>&-', sys.executable],
    cwd=tmp_path,
    env={"PYTHONPATH": str(paths.ROOT)},
    stdout=subprocess.PIPE,
    text=True,
  )
  assert (result.returncode, result.stdout) == (1, "'' True\n")


def test_an_unknown_program_writes_no_error_to_the_output(monkeypatch, capsys):
  monkeypatch.setattr(sys, "argv", ["bert", "run_squat"])
  monkeypatch.setattr(sys, "stderr", None)
  with pytest.raises(SystemExit):
    __main__.main()
  sys.stderr.close()
  assert capsys.readouterr().out == ""


OPENING = """
import dataclasses
from bert.cli import program, typed_flags

_data = typed_flags.group("Data")

@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(typed_flags.Settings):
  path: str = _data(None, "A path.")

program.run_program(lambda: open(Settings.read().path), Settings)
"""


def test_a_file_that_cannot_be_opened_is_named_with_its_flag(tmp_path):
  (tmp_path / "opening.py").write_text(OPENING)
  command = [sys.executable, str(tmp_path / "opening.py"), "--path=/gone"]
  result = program_flags.run_here(command)
  assert result.stderr == (
    "opening.py: error: --path=/gone: No such file or directory\n"
  )


def test_characters_that_the_terminal_lacks_are_printed_as_numbers():
  code = "from bert.cli import program, typed_flags\n"
  code += "class Settings(typed_flags.Settings): pass\n"
  code += "program.run_program(lambda: print('\u574f'), Settings)"
  command = [sys.executable, "-c", code]
  environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": str(paths.ROOT)}
  result = program_flags.run_command(command, **environment)
  assert (result.stdout, result.stderr) == ("\\u574f\n", "")


def test_a_reader_of_help_may_close_early():
  command = [sys.executable, "run_squad.py", "--help"]
  with subprocess.Popen(
    command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
  ) as process:
    process.stdout.close()
    assert process.stderr.read() == b""


def required(output):
  """Returns the flags that --help calls required, as it shows them."""
  part = output.split("\nRequired:\n")[1].split("\n\n")[0]
  return re.findall(r"^  --(\w+)=", part, re.MULTILINE)


def test_help_lists_as_required_what_is_required(ends):
  _, output, _ = ends["run_tagging --help"]
  assert required(output) == ["model", "output_dir"]
  assert re.search(
    r"fetches\s+it\.\s+Not\s+needed\s+with\s+--bert_config_file\s+and\s+--vocab_file\.",
    output,
  )
  _, output, _ = ends["create_pretraining_data --help"]
  assert required(output) == ["model", "input_file", "output_file"]
  assert required(ends["create_vocab --help"][1]) == [
    "input_file",
    "output_file",
  ]


def test_help_shows_groups_and_defaults(ends):
  _, output, _ = ends["run_pretraining --helpfull"]
  training = output[output.index("\nTraining:\n") :]
  assert training.startswith(
    "\nTraining:\n  --do_train=false\n      Whether to train.\n"
  )
  assert "\n  --learning_rate=5e-05\n" in training
  assert (
    "\n  --precision=float32  (float32, bfloat16, auto)\n      The " in output
  )


@pytest.mark.parametrize("flag", ["--old=1", "--noold"])
def test_a_flag_that_is_gone_names_the_command_for_it(flag, monkeypatch):
  new = "convert_checkpoint.py --new=..."
  monkeypatch.setitem(removed_flags.REPLACEMENTS, "old", new)
  path = str(paths.ROOT / "create_pretraining_data.py")
  result = program_flags.run_here([sys.executable, path, flag])
  name = flag.removeprefix("--").partition("=")[0]
  message = f"error: no flag is called --{name}: use {new}"
  program_flags.assert_refused(result, message)
