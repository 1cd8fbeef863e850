"""Runs a program of this package by its name.

  python -m bert run_classifier --task_name=mrpc ...
  bert run_classifier --task_name=mrpc ...

The second form is there after `pip install`. Without a program both list all
of them.
"""

import ast
import os
import pathlib
import runpy
import signal
import sys

import bert
from bert.data import messages, progress

# What stands in a program, but not in `modeling.py` and its like.
_START = 'if __name__ == "__main__":'


def find_programs() -> dict[str, pathlib.Path]:
  """Returns the files of the programs by name."""
  # The root of a clone is the last place of the package; a wheel has one place,
  # where the package's own files stand beside the programs.
  folder = pathlib.Path(bert.__path__[-1])
  return {
    path.stem: path
    for path in sorted(folder.glob("[a-z]*.py"))
    if _START in path.read_text(encoding="utf-8")
  }


def describe_programs() -> str:
  """Returns the programs, a line each: the first of its docstring."""
  lines = ["usage: bert PROGRAM [--flag=value ...]; PROGRAM --help shows flags"]
  for name, path in find_programs().items():
    # The docstring is parsed, since importing a program may load TensorFlow.
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    lines.append(f"  {name:29} {(docstring or '').partition(chr(10))[0]}")
  return "\n".join(lines)


def main() -> None:
  """Runs the program that the command line names."""
  progress.open_missing_streams()
  arguments = sys.argv[1:]
  if not arguments or arguments[0] in ("-h", "--help"):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A pager may close early.
    print(describe_programs())
    return

  if arguments[0] == "--version":
    print(bert.__version__)
    return

  # People type the name as they see it in a clone, with .py.
  name = arguments[0].removesuffix(".py")
  if name not in find_programs():
    print(
      f"bert: error: no program is called {arguments[0]!r}; expected one of "
      f"{', '.join(find_programs())}",
      file=sys.stderr,
    )
    sys.exit(1)

  # As if the program's file had been started: error messages begin with the
  # name in argv[0], and the program runs only as `__main__`.
  is_module = os.path.basename(sys.argv[0]) == "__main__.py"
  messages.LAUNCHER[:] = ["python", "-m", "bert"] if is_module else ["bert"]
  sys.argv = [f"{name}.py", *arguments[1:]]
  runpy.run_module(f"bert.{name}", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
  main()
