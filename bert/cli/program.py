"""How a program starts and ends: settings, --help, errors in one line.

A program's flags are the fields of a frozen dataclass:

  _data = program.group("Data")

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class ClassifierSettings(program.Settings):
    task_name: str = _data(None, "The task to learn.", required=True)
    labels: tuple[str, ...] = _data((), "The labels.")

  if __name__ == "__main__":
    program.start(ClassifierSettings)

`start` parses and checks them before the import of TensorFlow, which takes
seconds; the file then imports what needs it, and ends with
`program.run_program(main)`. One that starts without TensorFlow just ends with
`run_program(main, Settings)`, which parses and checks them, too.

What can be known to be wrong without TensorFlow is a ValueError or an OSError
of `check`, which a class extends: first `super().check()`, then its own. The
paths of flags are checked by `group(...)(None, "...", path="file")` alone.
`ClassifierSettings.read()` returns the values; nothing reads a flag after it.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import dataclasses
import datetime
import difflib
import io
import itertools
import math
import os
import re
import shlex
import signal
import sys
import textwrap
import time
import types
import typing
from typing import Any, NamedTuple, Self, TextIO

from absl import app, flags

from bert.cli import removed_flags
from bert.data import imports, path_checks, progress, remote

FLAGS = flags.FLAGS

_HELP = {"-h", "-help", "--help", "-helpfull", "--helpfull", "--helpshort"}
_REQUIRED = "Required"
# Prefixes of the names of files that only programs read.
_INTERNAL = ("model.ckpt-", "checkpoint", "events.out.tfevents.")


class Flag(NamedTuple):
  """A flag besides its name, type and default, which are the field's."""

  group: str  # The title in --help.
  text: str
  least: float | None = None
  most: float | None = None
  choices: Sequence[str] = ()
  required: bool = False
  unless: str = ""  # Another flag, without which this one is required.
  repeated: bool = False  # Given once for each value, without commas.
  # Without one of these it has no effect, and is refused: "teacher" stands for
  # any value, "problem=multi_label" for this one.
  needs: str | tuple[str, ...] = ()
  path: str = ""  # What it names, a kind that `path_checks.check` takes.


def group(title: str) -> Callable[..., Any]:
  """Returns the function that declares fields of one group of --help."""

  def declare(default: Any, text: str, **options: Any) -> Any:
    flag = Flag(title, text, **options)
    return dataclasses.field(default=default, metadata={"flag": flag})

  return declare


def narrow(kind: type["Settings"], name: str, *needs: str) -> Any:
  """Returns the field of a flag of other settings, which here needs others."""
  flag = kind.flags_by_name()[name]._replace(needs=needs)
  return dataclasses.field(default=getattr(kind, name), metadata={"flag": flag})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The base class of settings; a field that `group` makes is a flag."""

  given: frozenset[str] = frozenset()  # Names of the flags the user gave.

  @classmethod
  def flags_by_name(cls) -> dict[str, Flag]:
    """Returns the flags by name, in the order of the fields."""
    fields = dataclasses.fields(cls)
    return {f.name: f.metadata["flag"] for f in fields if f.metadata}

  @classmethod
  def define_flags(cls, values: flags.FlagValues = FLAGS) -> None:
    """Declares the flags."""
    types_by_name = typing.get_type_hints(cls)
    for name, flag in cls.flags_by_name().items():
      _define(name, flag, types_by_name[name], getattr(cls, name), values)

  @classmethod
  def read(cls, values: flags.FlagValues = FLAGS) -> Self:
    """Returns the values of the flags, as they were given.

    A ValueError says that one would have no effect; of a run that does not
    train, `check_needs` does, when it knows what the training was.
    """
    found = {name: values[name] for name in cls.flags_by_name()}
    given = frozenset(name for name, flag in found.items() if flag.present)
    plain = {name: flag.value for name, flag in found.items()}
    lists = {n: tuple(v) for n, v in plain.items() if isinstance(v, list)}
    settings = cls(**plain | lists, given=given)
    if getattr(settings, "do_train", True):
      settings.check_needs()
    return settings

  @classmethod
  def parse(cls, given: Mapping[str, Any]) -> Self:
    """Returns the settings of a command line with these flags, JSON values."""
    values = flags.FlagValues()
    cls.define_flags(values)
    try:
      values(["", *(f"--{name}={_as_text(v)}" for name, v in given.items())])
    except flags.Error as error:
      raise ValueError(str(error)) from None
    for name, flag in cls.flags_by_name().items():
      if flag.required and not values[name].value:
        raise ValueError(f"missing {name}")
    return cls.read(values)

  def check_needs(self) -> None:
    """Raises a ValueError if a flag is given that would have no effect.

    Its default is accepted, which says what happens anyway, and so is nothing.
    """
    for name, flag in self.flags_by_name().items():
      needs = [flag.needs] if isinstance(flag.needs, str) else flag.needs
      if not needs:
        continue
      is_idle = getattr(self, name) in ("", getattr(type(self), name))
      if name in self.given and not is_idle and not any(map(self._has, needs)):
        raise ValueError(
          f"--{name} needs {' or '.join(f'--{n}' for n in needs)}"
        )

  def _has(self, need: str) -> bool:
    """Returns whether a flag has a value, such as "masks=true"."""
    name, _, expected = need.partition("=")
    value = getattr(self, name)
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return shown == expected if expected else bool(value)

  def flag_values(self) -> dict[str, Any]:
    """Returns the values of the flags by name."""
    return {name: getattr(self, name) for name in self.flags_by_name()}

  def check(self) -> None:
    """Raises an error for what is wrong and can be known without TensorFlow.

    Here that is what the flags name: files to read that are not there, and
    outputs that cannot be written. Remote paths need TensorFlow, and models of
    the Hub a fetch: they are checked when they are opened.
    """
    for name, flag in self.flags_by_name().items():
      if flag.path and (value := getattr(self, name)):
        path_checks.check(name, flag.path, value)


def _define(name, flag, kind, default, values):
  options: dict[str, Any] = {"flag_values": values}
  kinds = set(typing.get_args(kind) or [kind]) - {types.NoneType}
  if flag.repeated:
    flags.DEFINE_multi_string(name, list(default), flag.text, **options)
  elif typing.get_origin(kind) is tuple:
    flags.DEFINE_list(name, list(default), flag.text, **options)
  elif flag.choices:
    flags.DEFINE_enum(name, default, flag.choices, flag.text, **options)
  elif kinds == {bool}:
    flags.DEFINE_bool(name, default, flag.text, **options)
  elif kinds == {str}:
    flags.DEFINE_string(name, default, flag.text, **options)
  else:
    define = flags.DEFINE_integer if kinds == {int} else flags.DEFINE_float
    options |= {"lower_bound": flag.least, "upper_bound": flag.most}
    define(name, default, flag.text, **options)


def _as_text(value: Any) -> str:
  is_list = isinstance(value, (list, tuple))
  return ",".join(map(str, value)) if is_list else str(value)


def start(kind: type[Settings]) -> None:
  """Parses and checks the flags, and only then imports TensorFlow."""
  _parse_flags(kind)
  settings = kind.read()
  if status := _call(settings.check):
    sys.exit(status)
  imports.import_tensorflow(getattr(settings, "packs_weights", False))


def run_program(
  main: Callable[..., int | None],
  kind: type[Settings] | None = None,
  takes_others: bool = False,
) -> None:
  """Calls `main` and exits with its status.

  Errors the user can fix (a ValueError, an OSError, a missing optional package)
  print one line on standard error and exit with status 1; others are bugs and
  keep their traceback. `kind` is not needed after `start`; `takes_others` means
  that `main` takes a list of the arguments that are not flags.
  """
  others = _parse_flags(kind, takes_others) if kind else []

  def work() -> int | None:
    if kind:
      kind.read().check()
    return main(others) if takes_others else main()

  app.run(lambda argv: _call(work), flags_parser=lambda argv: argv)


def _call(work: Callable[[], int | None]) -> int:
  """Returns the exit status of a function; describes its error in one line."""
  try:
    return work() or 0
  except (ValueError, OSError, ImportError) as error:
    return _fail(_describe(error))
  except KeyboardInterrupt:
    return _fail("interrupted", status=130)
  except Exception as error:
    message = _describe_failure(error)
    if not message:
      raise
    return _fail(message)


def _parse_flags(kind, takes_others=False) -> list[str]:
  """Declares and parses the flags; returns the other arguments."""
  sys.excepthook = _end_in_a_line  # The imports that follow take seconds.
  if isinstance(sys.stdout, io.TextIOWrapper):
    # Labels that the terminal lacks do not end a training.
    sys.stdout.reconfigure(errors="backslashreplace")
  kind.define_flags()
  arguments = sys.argv[1:]
  if "--" in arguments:
    arguments = arguments[: arguments.index("--")]
  if not _HELP.isdisjoint(arguments):
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # A pager may close early.
    print(describe_flags(kind))
    sys.exit(0)
  FLAGS.set_gnu_getopt(takes_others)  # Flags may follow arguments.
  try:
    _, *others = FLAGS(sys.argv, known_only=takes_others)
    _check_floats()
  except flags.UnrecognizedFlagError as error:
    sys.exit(_fail(_describe_unknown(error.flagname, kind)))
  except flags.Error as error:
    sys.exit(_fail(f"{error}; see --help"))
  # Before what is missing: no flag behind a stray word is read.
  if others and not (takes_others and others[0].startswith("-")):
    sys.exit(_fail(_describe_stray(others)))
  if missing := _describe_missing(kind):
    sys.exit(_fail(f"{missing}; see --help"))
  try:
    kind.read()
  except ValueError as error:
    sys.exit(_fail(str(error)))
  return others


def _describe_unknown(name: str, kind: type[Settings]) -> str:
  """Says that the program has no such flag, and what may be meant instead."""
  shown = f"no flag is called --{name}"
  # An earlier version may have had it, with "no" before it if it was false.
  for old in (name, name.removeprefix("no")):
    if old in removed_flags.REPLACEMENTS:
      return f"{shown}: use {removed_flags.REPLACEMENTS[old]}"
  # Our flags, not absl's.
  closest = difflib.get_close_matches(name, kind.flags_by_name(), 1)
  hint = f": did you mean --{closest[0]}?" if closest else "; see --help"
  return shown + hint


def _end_in_a_line(kind, error, trace) -> None:
  """Describes Ctrl-C outside of `main` in a line; others as usual."""
  if kind is KeyboardInterrupt:
    _fail("interrupted")
  else:
    sys.__excepthook__(kind, error, trace)


def _describe_stray(words: list[str]) -> str:
  """Says how the first of some arguments that are no flags was meant.

  It is a part of the value before it, which has a space and no quotes; or the
  value of the flag before it, with spaces around the "=", or without one.
  """
  place = len(sys.argv) - len(words)
  if sys.argv[place:] != words:  # Those of --flagfile are not there.
    place = sys.argv.index(words[0])
  # From the flag before it to the next one.
  start = max(n for n in range(place) if not n or sys.argv[n].startswith("--"))
  behind = itertools.takewhile(lambda a: not a.startswith("--"), words)
  text = " ".join([*sys.argv[start:place], *behind])
  match = re.fullmatch(r"--(\w+)(?: ?= ?| )(.*)", text, re.DOTALL)
  shown = f"unexpected argument {words[0]!r}"
  if match:
    name, value = match.groups()
    cure = shlex.quote(f"--{name}={value}")
    if not re.search(r"\s", value):
      return f"{shown}: write {cure} without spaces"
    if name in FLAGS and "string" in FLAGS[name].flag_type():
      return f"{shown}: a value with spaces needs quotes: {cure}"
  return f"{shown}: expected --name=value; see --help"


def _check_floats() -> None:
  """Refuses nan and inf, which pass every flag's bounds."""
  for name in FLAGS:
    value = FLAGS[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise flags.IllegalFlagValueError(
        f"flag --{name}={value}: expected a finite number"
      )


def _describe_missing(kind: type[Settings]) -> str:
  """Names the required flags without a value; returns "" if all have one."""
  missing, replaced = [], {}
  for name, flag in kind.flags_by_name().items():
    if flag.required and not FLAGS[name].value:
      missing.append(f"--{name}")
    elif flag.unless and not (FLAGS[name].value or FLAGS[flag.unless].value):
      replaced.setdefault(flag.unless, []).append(f"--{name}")
  for other, names in replaced.items():
    missing.append(f"--{other} (or {', '.join(names)})")
  return f"missing {', '.join(missing)}" if missing else ""


def describe_flags(kind: type[Settings]) -> str:
  """Returns the text of --help; groups with the same title are joined."""
  by_title, known = {_REQUIRED: []}, kind.flags_by_name()
  # By the name of a flag: those that together take its place.
  replacing: dict[str, list[str]] = {}
  for name, flag in known.items():
    replacing.setdefault(flag.unless, []).append(f"--{name}")
  for name, flag in known.items():
    is_required = flag.required or name in replacing
    title = _REQUIRED if is_required else flag.group
    others = " and ".join(replacing.get(name, ()))
    described = _describe_flag(name, flag, getattr(kind, name), others)
    by_title.setdefault(title, []).append(described)
  parts = [(sys.modules["__main__"].__doc__ or "").strip()]
  parts += [
    "\n".join([f"{title}:", *described])
    for title, described in by_title.items()
    if described
  ]
  parts.append("The default follows =; ... means no default.")
  return "\n\n".join(parts)


def _describe_flag(name: str, flag: Flag, default: Any, others: str) -> str:
  shown = "..." if default is None else _as_text(default)
  line = f"  --{name}={shown.lower() if isinstance(default, bool) else shown}"
  if flag.choices:
    line += f"  ({', '.join(flag.choices)})"
    line = textwrap.fill(line, 80, subsequent_indent=" " * 6)
  text = flag.text
  if flag.unless:
    text += f" Not needed with --{flag.unless}."
  if others:
    text += f" Not needed with {others}."
  return f"{line}\n{textwrap.indent(textwrap.fill(text, 74), ' ' * 6)}"


def _describe(error: Exception) -> str:
  if not (isinstance(error, OSError) and error.filename and error.strerror):
    return str(error)
  path = str(error.filename)
  values = ((name, FLAGS[name].value) for name in FLAGS)
  flag = next((f"--{name}=" for name, value in values if value == path), "")
  return f"{flag}{path}: {error.strerror}"  # Without "[Errno 2]".


def _fail(message: str, status: int = 1) -> int:
  program = os.path.basename(sys.argv[0])
  line = "; ".join(message.splitlines())
  progress.note(f"{program}: error: {line}")
  return status


def _describe_failure(error: Exception) -> str | None:
  """Describes failures that are not bugs: lost workers, lack of memory."""
  if "distribution" in FLAGS and FLAGS.distribution == "multi_worker":
    from bert.inputs import training_input

    if isinstance(error, training_input.LOST_WORKER_ERRORS):
      return (
        "another worker of TF_CONFIG has ended or cannot be reached: start all "
        "of them again, and they resume from the last checkpoint"
      )
  fault = remote.describe_shortage(error)
  return None if fault is None else f"out of memory: {fault}".rstrip(": ")


class File(NamedTuple):
  """The state of a file; a file that replaces it has another time."""

  time: int  # In nanoseconds, of the last change.
  size: int  # In bytes.


def print_end(
  start: float, *lines: str, command: str = "", file: TextIO | None = None
) -> None:
  """Prints what ends a program: its time, these lines and the next command."""
  after = [f"next: {command}"] if command else []
  title = f"finished in {format_time(start)}"
  print("\n  ".join([title, *lines, *after]), file=file)


def command(name: str, **flags: Any) -> str:
  """Returns the command line of a program; flags of None are left out."""
  given = [f"--{k}={v}" for k, v in flags.items() if v is not None]
  return shlex.join(["python", name, *given])


def format_time(start: float) -> str:
  """Returns the time since a moment of `time.monotonic` in words."""
  seconds = time.monotonic() - start
  if seconds < 60:
    return f"{seconds:.1f} s"
  return str(datetime.timedelta(seconds=round(seconds)))


def list_files(folder: str) -> dict[str, File]:
  """Returns the files in a folder, by name."""
  import tensorflow as tf  # Programs without it end here too.

  found = {}
  for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else ():
    with contextlib.suppress(tf.errors.NotFoundError):  # Temporary ones.
      stat = tf.io.gfile.stat(os.path.join(folder, name))
      if not stat.is_directory:
        found[name] = File(stat.mtime_nsec, stat.length)
  return found


def is_result(name: str) -> bool:
  """Returns whether a file is for people, by its name."""
  return not name.startswith(_INTERNAL) and ".tf_record" not in name


def print_summary(
  folder: str,
  start: float,
  before: Mapping[str, File],
  score: str,
  can_export: bool = True,
) -> None:
  """Prints a run's time, score and new files, and the command to export it."""
  from bert.training import model_selection
  from bert.weights import checkpoints

  now = list_files(folder)
  changed = dict(now.items() - before.items())
  new = sorted(filter(is_result, changed))
  lines, export = [score] if score else [], ""
  if new:
    lines.append(f"wrote to {folder}: {', '.join(new)}")
  steps = checkpoints.saved_steps(folder)
  if steps:
    sizes = [now[n].size for n in now if n.startswith("model.ckpt-")]
    line = f"checkpoints: {len(steps)}, {sum(sizes) / 1e6:,.1f} MB"
    if len(steps) > 1:
      line += "; --keep_checkpoint_max=1 keeps only the newest"
    elif checkpoints.has_slots(folder, steps[0]):
      line += (
        ", from which training can go on; a complete training deletes the "
        "older ones, unless you pass --keep_checkpoint_max"
      )
    lines.append(line)
  has_best = model_selection.best_step(folder) is not None
  if has_best:
    sizes = [file.size for file in list_files(f"{folder}/best").values()]
    lines.append(f"best/: the best weights alone, {sum(sizes) / 1e6:,.1f} MB")
  has_weights = steps or has_best
  if has_weights and can_export:
    folder = folder.rstrip("/")
    flags = {"model": folder, "export_dir": f"{folder}_export"}
    export = command("export_saved_model.py", **flags)
  print_end(start, *lines, command=export)
