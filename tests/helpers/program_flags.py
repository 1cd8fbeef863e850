"""Runs the programs with flags: here, or in processes of their own.

  run_main        calls `main` of a program; the test sees what it raises
  read            only reads the settings that flags make
  run_here        runs a command line in this process, up to its exit status
  succeed         the same, and fails the test if the status is not 0
  run_command     runs a command line in a process: seconds for TensorFlow alone
  declared_flags  starts a program up to where it would parse its flags

`command` makes the command line. `tiny.command`, `tiny.run` and `tiny.succeed`
add the flags that the tiny data of a program need.
"""

import contextlib
import gc
import io
import os
import re
import runpy
import subprocess
import sys
from unittest import mock

from absl import app, flags
import pytest

import paths

# What TensorFlow prints while it is imported; no setting hides it. A line of
# one of our programs begins with the name of the program.
_NOISE = re.compile(
  r"WARNING: All log messages before|[IWE]0000 |To enable the following"
)


def run_main(program, settings_class, arguments_of_main=(), **values):
  """Checks these flags, calls `program.main`, and returns its status.

  Args:
    program: its module.
    settings_class: the class that declares its flags.
    arguments_of_main: by name.
    **values: of flags; the other flags have their defaults.
  """

  def check_and_run(settings_class):
    settings_class.read().check()
    return program.main(**dict(arguments_of_main))

  return read(settings_class, check_and_run, **values)


def read(settings_class, read_settings, **values):
  """Returns the settings that a program reads from flags of these values.

  Args:
    settings_class: the class that declares the flags.
    read_settings: makes the settings of the class, while the flags are parsed.
    **values: of flags; the other flags have their defaults.
  """
  # absl has one set of flags a process: this program's flags go again.
  before = set(flags.FLAGS)
  settings_class.define_flags()
  try:
    flags.FLAGS(["program", *arguments(values)])
    return read_settings(settings_class)
  finally:
    _forget_flags(before)


def command(program, **values):
  """Returns the command line of a program, such as "predict", with flags."""
  return [sys.executable, str(paths.ROOT / f"{program}.py"), *arguments(values)]


def arguments(values):
  """Returns flags as a command line has them."""
  return [f"--{name}={value}" for name, value in values.items()]


def read_command(command):
  """Returns the flags of a `command`, by name; all values are texts."""
  return dict(word[2:].split("=", 1) for word in command[2:])


def run_here(arguments):
  """Is `run_command` in this process, which is faster."""
  app.define_help_flags()  # absl defines them only once: they must stay.
  before = set(flags.FLAGS)
  gradients = _custom_gradients()
  output, errors = io.StringIO(), io.StringIO()
  _, program, *_ = arguments
  try:
    with (
      mock.patch.object(sys, "argv", arguments[1:]),
      contextlib.redirect_stdout(output),
      contextlib.redirect_stderr(errors),
      pytest.raises(SystemExit) as end,
    ):
      runpy.run_path(program, run_name="__main__")
  finally:
    _forget_flags(before)
    _forget_graphs(gradients)
  return subprocess.CompletedProcess(
    arguments, end.value.code or 0, output.getvalue(), errors.getvalue()
  )


def _custom_gradients():
  """Names the gradients that TensorFlow has traced, if it is imported."""
  ops = sys.modules.get("tensorflow.python.framework.ops")
  return set(ops.gradient_registry.list()) if ops else set()


def _forget_graphs(before):
  """Frees the graphs of a program, as the end of its process would.

  TensorFlow keeps the gradients of each traced `tf.custom_gradient`, and with
  them their graphs, for ever: `make test-slow` grew to 9 GB a process.
  """
  new = _custom_gradients() - before
  for name in new:
    if name.startswith("CustomGradient-"):
      ops = sys.modules["tensorflow.python.framework.ops"]
      del ops.gradient_registry._registry[name]
  if new:
    gc.collect()


def succeed(arguments):
  """Runs a command line in this process, with success; returns the result."""
  result = run_here(arguments)
  assert result.returncode == 0, result.stderr
  return result


def error_lines(errors):
  """Returns the lines on standard error that are the program's own."""
  return [line for line in errors.splitlines() if not _NOISE.match(line)]


def assert_refused(result, message):
  """Checks that a run ended in one line with this in it, and status 1."""
  lines = error_lines(result.stderr)
  assert result.returncode == 1, result.stderr
  assert len(lines) == 1, result.stderr
  program = os.path.basename(result.args[1])
  assert lines[0].startswith(f"{program}: error: "), lines
  assert message in lines[0]


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def assert_same_text(ours, theirs, tolerance=1e-5):
  """Compares texts; numbers in them within a tolerance, or 1e-4 of them.

  Args:
    ours: a text.
    theirs: a text with the same words.
    tolerance: of numbers, absolute. Two devices add up in another order than
      one: their results are compared with 1e-4.
  """
  assert _NUMBER.split(ours) == _NUMBER.split(theirs)
  numbers = [list(map(float, _NUMBER.findall(x))) for x in (ours, theirs)]
  assert numbers[0] == pytest.approx(numbers[1], rel=1e-4, abs=tolerance)


class _Declared(BaseException):
  """Ends a program where it would parse its flags."""


def declared_flags(program):
  """Returns the flags that a program declares, absl's flags by name.

  Args:
    program: its file in the root, such as "predict.py".
  """

  def stop(values, argv, known_only=False):
    raise _Declared({name: values[name] for name in values})

  with mock.patch.object(flags.FlagValues, "__call__", stop):
    try:
      run_here([sys.executable, str(paths.ROOT / program)])
    except _Declared as declared:
      return declared.args[0]
  raise AssertionError(f"{program} parses no flags")


def _forget_flags(kept):
  for name in set(flags.FLAGS) - kept:
    delattr(flags.FLAGS, name)
  flags.FLAGS.unparse_flags()


def run_command(arguments, **environment):
  """Runs a command; returns its exit status, output and errors as text."""
  return subprocess.run(
    arguments,
    capture_output=True,
    text=True,
    env={**os.environ, **environment},
    timeout=300,
  )
