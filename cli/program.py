"""How a program starts and ends: flags parsed, errors told in one line.

TensorFlow is imported inside the functions that need it: the programs that only
read and write text and records start in a fraction of a second without it.
"""

from collections.abc import Callable
import math
import os
import sys

from absl import app
from absl import flags

FLAGS = flags.FLAGS

# Hides TensorFlow's own log, if set before it is imported: what is an error to
# the user reaches Python as an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def run_program(
  main: Callable[..., int | None],
  define_flags: Callable[[], None],
  takes_others: bool = False,
) -> None:
  """Parses the command line, calls `main` and exits with its status.

  What the user can mend (a ValueError, an OSError, a missing optional package)
  ends in one line on standard error and exit status 1; anything else is our own
  fault and keeps its traceback.

  Args:
    main: the program; returns None or its exit status.
    define_flags: declares the program's flags with absl.
    takes_others: `main` takes a list, in which it gets what is no flag of ours.
  """
  define_flags()
  FLAGS.set_gnu_getopt(takes_others)  # Ours may stand behind others.

  def call_main(argv: list[str]) -> int:
    program = os.path.basename(argv[0])
    if argv[1:] and not takes_others:
      return _fail(program, f"unexpected argument {argv[1]!r}; see --help")
    try:
      return (main(argv[1:]) if takes_others else main()) or 0
    except (ValueError, OSError, ImportError) as error:
      return _fail(program, _describe(error))
    except KeyboardInterrupt:
      return _fail(program, "interrupted", status=130)
    except Exception as error:
      message = _describe_failure(error)
      if not message:
        raise
      return _fail(program, message)

  def parse_flags(argv: list[str]) -> list[str]:
    try:
      rest = FLAGS(argv, known_only=takes_others)
      _check_floats()
      return rest
    except flags.Error as error:
      sys.exit(_fail(os.path.basename(argv[0]), f"{error}; see --help"))

  app.run(call_main, flags_parser=parse_flags)


def _check_floats() -> None:
  """Refuses nan and inf, which pass every bound of a flag."""
  for name in FLAGS:
    value = FLAGS[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise flags.IllegalFlagValueError(
        f"flag --{name}={value}: expected a finite number"
      )


def _describe(error: Exception) -> str:
  if isinstance(error, OSError) and error.filename and error.strerror:
    return f"{error.filename}: {error.strerror}"  # Without "[Errno 2]".
  return str(error)


def _fail(program: str, message: str, status: int = 1) -> int:
  line = "; ".join(message.splitlines())  # Of absl's, a line for each flag.
  print(f"{program}: error: {line}", file=sys.stderr)
  return status


def _describe_failure(error: Exception) -> str | None:
  """Puts what is no fault of ours in words: lost workers, too little memory."""
  if _is_of_lost_worker(error):
    return (
      "another worker of TF_CONFIG has ended or cannot be reached: start all "
      "of them again, and they go on from the last checkpoint"
    )
  fault = str(error) if isinstance(error, MemoryError) else None
  if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's.
    from training import memory

    fault = memory.describe_fault(error)
  return None if fault is None else f"out of memory: {fault}".rstrip(": ")


def _is_of_lost_worker(error: Exception) -> bool:
  if "distribution" not in FLAGS or FLAGS.distribution != "multi_worker":
    return False
  from training import loop

  return isinstance(error, loop.LOST_WORKER_ERRORS)
