"""How a program starts and ends: its flags, errors in one line, a summary.

  if __name__ == "__main__":
    program.start(ClassifierSettings)

`start` parses and checks the flags, see `typed_flags`, before the import of
TensorFlow, which takes seconds; the file then imports what needs it, and ends
with `program.run_program(main)`. One that starts without TensorFlow just ends
with `run_program(main, Settings)`, which parses and checks them, too.
"""

from collections.abc import Callable
import contextvars
import datetime
import io
import os
import shlex
import signal
import sys
import time
from typing import Any

from absl import app

from bert.cli import typed_flags
from bert.data import imports, messages, progress

FLAGS = typed_flags.FLAGS
# The name of the program that a call from Python runs; see bert/calls.py.
CALLED: contextvars.ContextVar[str] = contextvars.ContextVar(
  "CALLED", default=""
)

_HELP = {"-h", "-help", "--help", "--helpshort"}
_FULL_HELP = {"-helpfull", "--helpfull"}


def start(settings_class: type[typed_flags.Settings]) -> None:
  """Parses and checks the flags, and only then imports TensorFlow."""
  _parse_flags(settings_class)
  settings = settings_class.read()

  # The checks look at values and at files: errors come before the import, too.
  if status := _call(settings.check):
    sys.exit(status)
  imports.import_tensorflow(getattr(settings, "packs_weights", False))


def run_program(
  main: Callable[..., int | None],
  settings_class: type[typed_flags.Settings] | None = None,
  takes_others: bool = False,
) -> None:
  """Calls `main` and exits with its status.

  Errors the user can fix (a ValueError, an OSError, a missing optional package)
  print one line on standard error and exit with status 1; any other exception
  is a bug and keeps its traceback.

  Args:
    main: the work of the program; None or an exit status is its result.
    settings_class: of the settings to parse and check; None after `start`,
      which did so.
    takes_others: whether `main` takes a list of the arguments that are not
      flags.
  """
  words = _parse_flags(settings_class, takes_others) if settings_class else []

  def work() -> int | None:
    if settings_class:
      settings_class.read().check()
    return main(words) if takes_others else main()

  # Here or in `start` the flags have been parsed: absl is not to do it again.
  app.run(lambda argv: _call(work), flags_parser=lambda argv: argv)


def _call(work: Callable[[], int | None]) -> int:
  """Returns the exit status of a function; describes its error in one line."""
  try:
    return work() or 0
  except (ValueError, OSError, ImportError) as error:
    return _fail(describe_error(error))
  except KeyboardInterrupt:
    # A shell's status for Ctrl-C: 128 + SIGINT.
    return _fail("interrupted", status=130)
  except Exception as error:
    # A lack of memory and lost workers have exceptions of TensorFlow's own.
    message = _describe_failure(error)
    if not message:
      raise
    return _fail(message)


def _parse_flags(settings_class, takes_others=False) -> list[str]:
  """Declares and parses the flags; returns the other arguments."""
  # Ctrl-C may come during the imports that follow, which take seconds.
  sys.excepthook = _end_in_a_line
  progress.open_missing_streams()
  # A label with a letter that the terminal lacks must not end a training.
  if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")

  settings_class.define_flags()
  # absl's --help lists flags of modules; ours has the docstring and groups.
  arguments = sys.argv[1:]
  if "--" in arguments:
    arguments = arguments[: arguments.index("--")]
  shows_all = not _FULL_HELP.isdisjoint(arguments)
  if shows_all or not _HELP.isdisjoint(arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A pager may close early.
    introduction = sys.modules["__main__"].__doc__ or ""
    print(typed_flags.describe_flags(settings_class, shows_all, introduction))
    sys.exit(0)

  try:
    words = typed_flags.parse_command_line(settings_class, takes_others)
    settings_class.read()
  except ValueError as error:
    sys.exit(_fail(str(error)))
  return words


def _end_in_a_line(error_class, error, trace) -> None:
  """Describes Ctrl-C outside of `main` in a line; prints other tracebacks."""
  if error_class is KeyboardInterrupt:
    _fail("interrupted")
  else:
    sys.__excepthook__(error_class, error, trace)


def program_name() -> str:
  """Returns the name of the running program, such as "run_classifier.py"."""
  return CALLED.get() or os.path.basename(sys.argv[0])


def describe_error(error: Exception) -> str:
  """Returns the message of an error; of a file, with the flag that names it."""
  if not (isinstance(error, OSError) and error.filename and error.strerror):
    return str(error)

  # Python's own message would be "[Errno 2] No such file or directory: ...".
  path = str(error.filename)
  values = typed_flags.VALUES.get()
  for flag in values:
    if values[flag].value == path:
      return f"--{flag}={path}: {error.strerror}"
  return f"{path}: {error.strerror}"


def _fail(message: str, status: int = 1) -> int:
  line = "; ".join(message.splitlines())
  progress.note(f"{program_name()}: error: {line}")
  return status


def _describe_failure(error: Exception) -> str | None:
  """Describes failures that are not bugs: lost workers, lack of memory."""
  if "distribution" in FLAGS and FLAGS.distribution == "multi_worker":
    # This loads TensorFlow, which a program with several workers has loaded.
    from bert.inputs import training_input

    if isinstance(error, training_input.LOST_WORKER_ERRORS):
      return (
        "another worker has ended or cannot be reached: start all of them "
        "again, and they resume from the last checkpoint"
      )
  fault = messages.describe_shortage(error)
  return None if fault is None else f"out of memory: {fault}".rstrip(": ")


def print_end(
  start: float,
  *lines: str,
  command: str = "",
  write: Callable[[str], object] = print,
) -> None:
  """Prints what ends a program: its time, these lines and the next command.

  Args:
    start: when the program began, by `time.monotonic`.
    *lines: printed indented, one each.
    command: what the user may run next; "" for nothing.
    write: takes the text; `print` writes it to the standard output.
  """
  after = [f"next: {command}"] if command else []
  title = f"finished in {format_time(start)}"
  write("\n  ".join([title, *lines, *after]))


def command(name: str, **flags: Any) -> str:
  """Returns the command line of a program; flags of None are left out."""
  spelled = {False: "false", True: "true"}
  given = [
    f"--{name}={spelled[value] if isinstance(value, bool) else value}"
    for name, value in flags.items()
    if value is not None
  ]
  return shlex.join([*messages.start_of(name), *given])


def format_time(start: float) -> str:
  """Returns the time since a moment of `time.monotonic` in words."""
  seconds = time.monotonic() - start
  if seconds < 60:
    return f"{seconds:.1f} s"
  return str(datetime.timedelta(seconds=round(seconds)))
