"""Every flag of the programs that train has an effect, or is refused."""

import sys
from unittest import mock

import pytest

from cli import program
import program_flags
import tiny

# Functions that read all flags, to record, compare or copy them.
BOOKKEEPING = {"flag_values", "check_needs", "_has", "replace", "describe_run"}
# Flags that a run on this machine cannot use, and why they are not refused.
ACCEPTED = {
  "num_tpu_cores",  # Commands of the original have it; --help says: ignored.
  "deterministic",  # Has an effect on GPUs, where the command is the same.
}
RUNS = [
  *[(name, {}) for name in tiny.TRAINERS],
  *[
    ("run_embedding", {"objective": name})
    for name in ("scores", "sentences", "labels")
  ],
]


def prepare(name, folder, flags):
  """Returns the tiny command of a program, for an objective if it has some."""
  objective, config = flags.get("objective", "pairs"), ()
  if objective == "sentences":
    config = {"hidden_dropout_prob": 0.1}
  command = tiny.prepare(name, folder, config)
  if objective == "labels":
    flags = {**flags, "do_predict": False}
  for split, numbers in tiny.SPLITS.items() if objective != "pairs" else ():
    path = folder / f"{split}.tsv"
    if objective == "labels":
      tiny.write_tsv(path, numbers)
    elif objective == "sentences" and split == "train":
      texts = [tiny.make_text(n, tiny.GOOD) for n in numbers]
      path.write_text("\n".join(texts) + "\n")
    else:
      tiny.write_partners(path, numbers, third=lambda n: str(n % 5))
  return [*command, *program_flags.arguments(flags)]


def run_and_record(command):
  """Runs a command; returns the names of what it read of its settings."""
  names = set()

  def read(self, name):
    caller = sys._getframe(1).f_code.co_qualname
    if BOOKKEEPING.isdisjoint(caller.split(".")) and caller != "Settings.check":
      names.add(name)
    return object.__getattribute__(self, name)

  with mock.patch.object(program.Settings, "__getattribute__", read):
    program_flags.succeed(command)
  return names


def another_value(flag):
  """Returns a value, as text, that is not the default of a flag of absl."""
  if flag.flag_type() == "bool":
    return str(not flag.default).lower()
  if flag.flag_type() == "float":
    return str(flag.default / 2 if flag.default else 0.5)
  if flag.flag_type() == "int":
    return str((flag.default or 0) + 1)
  choices = getattr(flag.parser, "enum_values", None) or ["x", "y"]
  return next(value for value in choices if value != flag.default)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), RUNS)
def test_a_flag_is_read_or_refused(name, flags, tmp_path):
  command = prepare(name, tmp_path, flags)
  read = run_and_record(command)
  declared = program_flags.declared_flags(f"{name}.py")
  ours = {f for f, flag in declared.items() if not flag.help.startswith("absl")}
  known = {argument[2:].partition("=")[0] for argument in command[2:]}
  absl = set(program_flags.flags.FLAGS) | {"help", "helpfull", "helpshort"}
  unread = ours - absl - read - known - ACCEPTED
  accepted = []
  for flag in sorted(unread):
    given = f"--{flag}={another_value(declared[flag])}"
    result = program_flags.run_here([*command, given])
    if result.returncode != 1 or f"--{flag} needs --" not in result.stderr:
      accepted.append(f"{given}: {result.stderr}")
  assert not accepted, "\n".join(accepted)
