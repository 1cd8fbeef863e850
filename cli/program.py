"""How a program starts and ends: flags, --help, errors in one line.

A program that needs TensorFlow parses its flags before the import, which takes
seconds. Its file begins with the imports that its flags need, continues with

  def define_flags(): ...

  if __name__ == "__main__":
    program.start(define_flags)

and only then imports the rest. It ends with `program.run_program(main)`. One
that starts without TensorFlow just ends with `run_program(main, define_flags)`.
"""

from collections.abc import Callable, Iterable
import difflib
import math
import os
import signal
import sys
import tempfile
import textwrap

from absl import app, flags

from data import progress, shortage

FLAGS = flags.FLAGS

# Hides TensorFlow's own log if set before the import. Errors that matter to
# users reach Python as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_HELP = {"-h", "-help", "--help", "-helpfull", "--helpfull", "--helpshort"}
_REQUIRED = "Required"
# The groups of --help: their titles, and the flags declared before each.
_groups: list[tuple[str, set[str]]] = []
# Flags that are required unless another is given: name -> the other flag.
_alternatives: dict[str, str] = {}


def group(title: str) -> None:
  """Begins a group of --help; flags declared afterwards belong to it.

  Groups with the same title are joined. Required flags have their own group.
  """
  _groups.append((title, set(FLAGS)))


def require_unless(other: str, *names: str) -> None:
  """Makes flags required if another one is not given."""
  _alternatives.update(dict.fromkeys(names, other))


def start(define_flags: Callable[[], None]) -> None:
  """Parses the command line, answers --help, then imports TensorFlow.

  A misspelt, missing or wrong flag ends the program before the import.
  """
  _parse_flags(define_flags)
  import_tensorflow()


def run_program(
  main: Callable[..., int | None],
  define_flags: Callable[[], None] | None = None,
  takes_others: bool = False,
) -> None:
  """Calls `main` and exits with its status.

  Errors the user can fix (a ValueError, an OSError, a missing optional package)
  print one line on standard error and exit with status 1; others are bugs and
  keep their traceback.

  Args:
    main: the program; returns None or its exit status.
    define_flags: declares the program's flags with absl; not needed after
      `start`.
    takes_others: `main` takes a list of the arguments that are not flags.
  """
  others = _parse_flags(define_flags, takes_others) if define_flags else []

  def call_main(argv: list[str]) -> int:
    try:
      return (main(others) if takes_others else main()) or 0
    except (ValueError, OSError, ImportError) as error:
      return _fail(_describe(error))
    except KeyboardInterrupt:
      return _fail("interrupted", status=130)
    except Exception as error:
      message = _describe_failure(error)
      if not message:
        raise
      return _fail(message)

  app.run(call_main, flags_parser=lambda argv: argv)


def import_tensorflow() -> None:
  """Imports TensorFlow and hides the lines that its libraries log meanwhile.

  They report a missing CUDA and the like, and no setting hides them. They are
  shown if the import fails; TF_CPP_MIN_LOG_LEVEL=0 always shows them.
  """
  if os.environ["TF_CPP_MIN_LOG_LEVEL"] in ("0", "1"):
    import tensorflow  # noqa: F401

    return
  try:
    log = tempfile.TemporaryFile()
  except OSError:  # Where no folder for it is left, the lines are shown.
    import tensorflow  # noqa: F401

    return
  sys.stderr.flush()
  stderr = os.dup(2)
  with log:
    os.dup2(log.fileno(), 2)
    is_imported = False
    try:
      import tensorflow  # noqa: F401

      is_imported = True
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
      if not is_imported:
        log.seek(0)
        os.write(2, log.read())


def _parse_flags(define_flags, takes_others=False) -> list[str]:
  """Declares and parses the flags; returns the other arguments."""
  _groups.clear()
  _alternatives.clear()
  known = set(FLAGS)
  define_flags()
  names = [name for name in FLAGS if name not in known]
  arguments = sys.argv[1:]
  if "--" in arguments:
    arguments = arguments[: arguments.index("--")]
  if not _HELP.isdisjoint(arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A pager may close early.
    print(describe_flags(names))
    sys.exit(0)
  FLAGS.set_gnu_getopt(takes_others)  # Flags may follow arguments.
  fault = ""
  try:
    _, *others = FLAGS(sys.argv, known_only=takes_others)
    _check_floats()
  except flags.UnrecognizedFlagError as error:
    # Our flags, not absl's.
    closest = difflib.get_close_matches(error.flagname, names, 1)
    hint = f": did you mean --{closest[0]}?" if closest else "; see --help"
    sys.exit(_fail(f"no flag is called --{error.flagname}{hint}"))
  except flags.Error as error:
    fault = str(error)
  # Flags stay unparsed if one is wrong.
  missing = _describe_missing(names) if FLAGS.is_parsed() else ""
  if missing or fault:
    sys.exit(_fail(f"{missing or fault}; see --help"))
  if others and not takes_others:
    sys.exit(_fail(f"unexpected argument {others[0]!r}; see --help"))
  return others


def _check_floats() -> None:
  """Refuses nan and inf, which pass every flag's bounds."""
  for name in FLAGS:
    value = FLAGS[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise flags.IllegalFlagValueError(
        f"flag --{name}={value}: expected a finite number"
      )


def _is_required(flag: flags.Flag) -> bool:
  # Only the message of absl's own check shows it.
  messages = [validator.message for validator in flag.validators]
  return flag.name in _alternatives or any(
    "other than None" in message for message in messages
  )


def _describe_missing(names: Iterable[str]) -> str:
  """Names the required flags without a value; returns "" if all have one."""
  missing = [n for n in names if _is_required(FLAGS[n]) and not FLAGS[n].value]
  plain = [f"--{name}" for name in missing if name not in _alternatives]
  for other in dict.fromkeys(_alternatives.values()):
    replaced = [f"--{n}" for n in missing if _alternatives.get(n) == other]
    if replaced and not FLAGS[other].value:
      plain.append(f"--{other} (or {', '.join(replaced)})")
  return f"missing {', '.join(plain)}" if plain else ""


def describe_flags(names: Iterable[str]) -> str:
  """Returns the text of --help."""
  by_title = {_REQUIRED: []}
  for name in names:
    title = _REQUIRED
    if not _is_required(FLAGS[name]):
      earlier = [title for title, before in _groups if name not in before]
      title = earlier[-1] if earlier else "Flags"
    by_title.setdefault(title, []).append(_describe_flag(FLAGS[name]))
  parts = [(sys.modules["__main__"].__doc__ or "").strip()]
  parts += [
    "\n".join([f"{title}:", *described])
    for title, described in by_title.items()
    if described
  ]
  parts.append("The default follows =; ... means no default.")
  return "\n\n".join(parts)


def _describe_flag(flag: flags.Flag) -> str:
  default = flag.default
  if isinstance(default, bool):
    default = str(default).lower()
  elif isinstance(default, list):
    default = ",".join(default)
  elif default is None:
    default = "..."
  line = f"  --{flag.name}={default}"
  values = getattr(flag.parser, "enum_values", None)
  if values:
    line += f"  ({', '.join(values)})"
    line = textwrap.fill(line, 80, subsequent_indent=" " * 6)
  # Drops what absl adds: the values before, how to repeat it after.
  text = flag.help.removeprefix(f"<{'|'.join(values or [])}>: ")
  text = text.partition(";\n    repeat")[0]
  if flag.name in _alternatives:
    text += f" Not needed with --{_alternatives[flag.name]}."
  text = textwrap.fill(text, 74)
  return f"{line}\n{textwrap.indent(text, ' ' * 6)}"


def _describe(error: Exception) -> str:
  if isinstance(error, OSError) and error.filename and error.strerror:
    return f"{error.filename}: {error.strerror}"  # Without "[Errno 2]".
  return str(error)


def _fail(message: str, status: int = 1) -> int:
  progress.clear()
  program = os.path.basename(sys.argv[0])
  line = "; ".join(message.splitlines())
  print(f"{program}: error: {line}", file=sys.stderr)
  return status


def _describe_failure(error: Exception) -> str | None:
  """Describes failures that are not bugs: lost workers, lack of memory."""
  if _is_of_lost_worker(error):
    return (
      "another worker of TF_CONFIG has ended or cannot be reached: start all "
      "of them again, and they resume from the last checkpoint"
    )
  fault = shortage.describe(error)
  return None if fault is None else f"out of memory: {fault}".rstrip(": ")


def _is_of_lost_worker(error: Exception) -> bool:
  if "distribution" not in FLAGS or FLAGS.distribution != "multi_worker":
    return False
  from inputs import training_input

  return isinstance(error, training_input.LOST_WORKER_ERRORS)
