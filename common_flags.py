"""Runs a program's `main`; flags that two programs or more share.

TensorFlow is imported inside the functions that need it: the programs that only
read and write text and records start in a fraction of a second without it.
"""

from collections.abc import Callable
import os
import sys

from absl import app
from absl import flags

FLAGS = flags.FLAGS


def run_program(
  main: Callable[[], int | None], define_flags: Callable[[], None]
) -> None:
  """Parses the command line, calls `main` and exits with its status.

  What the user can mend (a ValueError, an OSError, a missing optional package)
  ends in one line on standard error and exit status 1; anything else is our own
  fault and keeps its traceback.

  Args:
    main: the program; returns None or its exit status.
    define_flags: declares the program's flags with absl.
  """
  define_flags()

  def call_main(argv: list[str]) -> int:
    program = os.path.basename(argv[0])
    if argv[1:]:
      return _fail(program, f"unexpected argument {argv[1]!r}; see --help")
    try:
      return main() or 0
    except (ValueError, OSError, ImportError) as error:
      return _fail(program, str(error))
    except KeyboardInterrupt:
      return _fail(program, "interrupted", status=130)

  app.run(call_main)


def _fail(program: str, message: str, status: int = 1) -> int:
  print(f"{program}: error: {message}", file=sys.stderr)
  return status
