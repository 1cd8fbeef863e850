"""Flags as the typed fields of a frozen dataclass.

  _data = typed_flags.group("Data")

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class ClassifierSettings(typed_flags.Settings):
    task_name: str = _data(typed_flags.REQUIRED, "The task to learn.")
    labels: tuple[str, ...] = _data((), "The labels.")

The declaration is the one place that knows a flag: its name, type and default
are those of the field; what else holds for it is said to `_data`, see `Flag`.
`bert/cli/program.py` starts a program with such a class.

What can be known to be wrong without TensorFlow is a ValueError or an OSError
of `check`, which a class extends. What it reads from a file comes after
`super().check()`, which has found the file. What the flags show alone may stand
on either side: the order only decides which of several faults is named. The
paths of flags are checked by `group(...)(None, "...", path="file")` alone.
`ClassifierSettings.read()` returns the values; nothing reads a flag after it.
"""

from collections.abc import Callable, Mapping, Sequence
import contextvars
import dataclasses
import difflib
import itertools
import math
import os
import re
import shlex
import sys
import textwrap
import types
import typing
from typing import Any, NamedTuple, Self

from absl import flags

from bert.cli import flag_texts, removed_flags
from bert.data import path_checks

FLAGS = flags.FLAGS
# The flags that `Settings.read` reads. They are those of the command line; a
# call from Python has its own (bert/calls.py), in each thread.
VALUES: contextvars.ContextVar[flags.FlagValues] = contextvars.ContextVar(
  "VALUES", default=FLAGS
)
# What a flag may decide, so that runs record and compare it: how "features" are
# made of data; the "model", which all runs in a folder share; the "answers" of
# its weights; the "training", which a resumed run must continue unchanged.
DECISIONS = ("features", "model", "answers", "training")
# Stands for the default of a flag without which no program starts.
REQUIRED = dataclasses.MISSING
_REQUIRED = "Required"  # The title of their group in --help.


class Flag(NamedTuple):
  """A flag besides its name and type, which are the field's."""

  group: str  # The title in --help.
  text: str
  default: Any
  least: float | None = None
  most: float | None = None
  choices: Sequence[str] = ()
  unless: str = ""  # Another flag, without which this one is required.
  repeated: bool = False  # Given once for each value, without commas.
  # Without one of these it has no effect, and is refused: "teacher" stands for
  # any value, "problem=multi_label" for this one.
  needs: str | tuple[str, ...] = ()
  path: str = ""  # What it names, a kind that `path_checks.check` takes.
  # What a run must not change: some of DECISIONS.
  decides: tuple[str, ...] = ()


def group(title: str) -> Callable[..., Any]:
  """Returns the function that declares fields of one group of --help."""

  def declare(default: Any, text: str, **options: Any) -> Any:
    flag = Flag(title, text, default, **options)
    return dataclasses.field(default=default, metadata={"flag": flag})

  return declare


def narrow(
  settings_class: type["Settings"], name: str, needs: tuple[str, ...]
) -> Any:
  """Returns the field of a flag of other settings, which here needs others."""
  flag = settings_class.flags_by_name()[name]._replace(needs=needs)
  return dataclasses.field(default=flag.default, metadata={"flag": flag})


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
      _define(name, flag, types_by_name[name], values)

  @classmethod
  def read(cls, values: flags.FlagValues | None = None) -> Self:
    """Returns the values of the flags, as they were given; default: `VALUES`.

    A ValueError says that one would have no effect. Only a run that trains is
    checked for this here. The others get flags from the record of a training:
    `fine_tuning.read_settings` reads it, and then calls `check_needs`.
    """
    values = VALUES.get() if values is None else values
    parsed = {name: values[name] for name in cls.flags_by_name()}
    given = frozenset(name for name, flag in parsed.items() if flag.present)

    # Settings are frozen: lists become tuples.
    plain = {name: flag.value for name, flag in parsed.items()}
    tuples = {n: tuple(v) for n, v in plain.items() if isinstance(v, list)}
    settings = cls(**plain | tuples, given=given)

    if getattr(settings, "do_train", True):
      settings.check_needs()
    return settings

  @classmethod
  def parse(cls, given: Mapping[str, Any]) -> Self:
    """Returns the settings of a command line with these flags, JSON values."""
    values = parse_values(cls, given)
    for name, flag in cls.flags_by_name().items():
      if flag.default is REQUIRED and not values[name].value:
        raise ValueError(f"missing {name}")
    return cls.read(values)

  @classmethod
  def from_json(cls, name: str, value: Any) -> Any:
    """Returns a flag's value for one that a JSON file records.

    A ValueError says that the flag does not take it.
    """
    flag = cls.flags_by_name()[name]
    if value is None and flag.default is None:
      return None

    # absl parses it as text: types and bounds are checked as on a command line.
    values = flags.FlagValues()
    _define(name, flag, typing.get_type_hints(cls)[name], values)
    try:
      values(["", f"--{name}={_as_text(value)}"])
    except flags.Error as error:
      raise ValueError(_describe_value(error, cls)) from None
    parsed = values[name].value
    return tuple(parsed) if isinstance(parsed, list) else parsed

  def deciding(self, what: str) -> dict[str, Any]:
    """Returns the values of the flags that decide one of DECISIONS, by name.

    A class that declares a flag again, with another default, does not change
    what it decides.
    """
    names = {
      name
      for base in type(self).__mro__
      if issubclass(base, Settings)
      for name, flag in base.flags_by_name().items()
      if what in flag.decides
    }
    return {n: getattr(self, n) for n in self.flags_by_name() if n in names}

  def check_needs(self) -> None:
    """Raises a ValueError if a flag is given that would have no effect.

    Its default is accepted, which says what happens anyway, and so is nothing.
    """
    for name, flag in self.flags_by_name().items():
      needs = [flag.needs] if isinstance(flag.needs, str) else flag.needs
      if not needs:
        continue
      is_idle = getattr(self, name) in ("", flag.default)
      if name in self.given and not is_idle and not any(map(self._has, needs)):
        value = _spell(getattr(self, name))
        others = " or ".join(f"--{n}" for n in needs)
        raise ValueError(f"--{name}={value} needs {others}")

  def _has(self, need: str) -> bool:
    """Returns whether a flag has a value, such as "masks=true"."""
    name, _, expected = need.partition("=")
    value = getattr(self, name)
    if not expected:
      return bool(value)
    return _spell(value) == expected

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


def _define(name, flag: Flag, hint: Any, values: flags.FlagValues) -> None:
  """Declares a flag of this name and type, for absl to parse."""
  default: Any = None if flag.default is REQUIRED else flag.default
  options: dict[str, Any] = {"flag_values": values}

  # `int | None` has two: an absent number is None.
  value_types = set(typing.get_args(hint) or [hint]) - {types.NoneType}

  if flag.repeated:
    flags.DEFINE_multi_string(name, list(default), flag.text, **options)
  elif typing.get_origin(hint) is tuple:
    flags.DEFINE_list(name, list(default), flag.text, **options)
  elif flag.choices:
    flags.DEFINE_enum(name, default, flag.choices, flag.text, **options)
  elif value_types == {bool}:
    flags.DEFINE_bool(name, default, flag.text, **options)
  elif value_types == {str}:
    flags.DEFINE_string(name, default, flag.text, **options)
  else:
    is_integer = value_types == {int}
    define = flags.DEFINE_integer if is_integer else flags.DEFINE_float
    options |= {"lower_bound": flag.least, "upper_bound": flag.most}
    define(name, default, flag.text, **options)


def _as_text(value: Any) -> str:
  if isinstance(value, (list, tuple)):
    return ",".join(map(_as_text, value))
  # `str` of a path is not always the path, such as of `os.scandir`.
  return os.fsdecode(value) if isinstance(value, os.PathLike) else str(value)


def _spell(value: Any) -> str:
  """Returns a flag's value as --help shows it."""
  return _as_text(value).lower() if isinstance(value, bool) else _as_text(value)


def parse_values(
  settings_class: type[Settings], given: Mapping[str, Any]
) -> flags.FlagValues:
  """Parses the flags of a command line that gives these values.

  Args:
    settings_class: declares the flags.
    given: values by name: text, numbers, booleans, or lists of these.

  Returns:
    The flags, for `Settings.read`. Required ones may be missing.

  Raises:
    ValueError: there is no such flag, or it does not take the value.
  """
  values = flags.FlagValues()
  settings_class.define_flags(values)
  words = [f"--{name}={_as_text(value)}" for name, value in given.items()]
  _parse(settings_class, values, ["", *words])

  # A list for a flag of one value, or an element that a command line cannot
  # spell, such as one with a comma or a quote, has become something else.
  for name, value in given.items():
    is_list = isinstance(value, (list, tuple)) and name in values
    if is_list and values[name].value != [_as_text(part) for part in value]:
      takes_list = isinstance(values[name].value, list)
      takes = "texts without commas or quotes" if takes_list else "one value"
      raise ValueError(
        f"--{name}={value!r}: would be read as {values[name].value!r}; "
        f"expected {takes}"
      )
  return values


def parse_command_line(
  settings_class: type[Settings], takes_others: bool = False
) -> list[str]:
  """Parses the flags of `sys.argv`, which `define_flags` has declared.

  Args:
    settings_class: of the program.
    takes_others: whether the program takes arguments that are not flags.

  Returns:
    The arguments that are not flags.

  Raises:
    ValueError: says what is wrong, and how to mend it.
  """
  FLAGS.set_gnu_getopt(takes_others)  # Flags may follow arguments.
  words = _parse(settings_class, FLAGS, sys.argv, takes_others)

  # Before what is missing: absl reads no flag behind a stray word.
  if words and not (takes_others and words[0].startswith("-")):
    raise ValueError(_describe_stray(words))
  check_missing(settings_class, FLAGS)
  return words


def _parse(settings_class, values, arguments, takes_others=False) -> list[str]:
  """Parses arguments; returns those that are not flags."""
  try:
    _, *words = values(arguments, known_only=takes_others)
    _check_floats(values)
  except flags.UnrecognizedFlagError as error:
    raise ValueError(
      _describe_unknown(error.flagname, settings_class)
    ) from None
  except flags.Error as error:
    raise ValueError(_describe_value(error, settings_class)) from None
  return words


def _describe_value(error: flags.Error, settings_class: type[Settings]) -> str:
  """Says what the flag takes that was given a value that it does not take.

  absl repeats what Python's functions say, such as "invalid literal for int()
  with base 10: 'many'", and what a flag takes in words of its own a type.
  """
  fault = error.__context__
  name = re.match(r"(?:flag )?--(\w+)=", str(error))
  if isinstance(fault, OSError):
    return (
      f"--flagfile={fault.filename}: {fault.strerror}; expected a file of "
      "--name=value lines"
    )
  if not (name and name[1] in settings_class.flags_by_name()):
    return f"{error}; expected --name=value; see --help"
  if not isinstance(fault, (TypeError, ValueError, OverflowError)):
    return str(error).removeprefix("flag ")

  given = str(error).removesuffix(str(fault)).removeprefix("flag ")
  hint = typing.get_type_hints(settings_class)[name[1]]
  flag = settings_class.flags_by_name()[name[1]]
  value = given.partition("=")[2].removesuffix(": ")
  return f"{given}expected {_describe_values(flag, hint, value)}"


def _describe_values(flag: Flag, hint: Any, value: str) -> str:
  """Says which values a flag takes, for one that it does not take."""
  if flag.choices:
    closest = difflib.get_close_matches(value, flag.choices, 1)
    cure = f"; did you mean {closest[0]}?" if closest else ""
    words = "one of " if len(flag.choices) > 1 else ""
    return f"{words}{', '.join(flag.choices)}{cure}"
  value_types = set(typing.get_args(hint) or [hint])
  if bool in value_types:
    return "true or false"

  text = "a whole number" if int in value_types else "a number"
  least, most, default = map(_show, (flag.least, flag.most, flag.default))
  if most:
    text += f" from {least} to {most}"
  elif least:
    text += f" of at least {least}"
  return text + (f", such as {default}" if default else "")


def _show(bound: Any) -> str:
  """Returns a bound or default of a number, "" without one."""
  if isinstance(bound, float):
    return f"{bound:.15g}"
  return str(bound) if isinstance(bound, int) else ""


def _describe_unknown(name: str, settings_class: type[Settings]) -> str:
  """Says that the program has no such flag, and what may be meant instead."""
  fault = f"no flag is called --{name}"

  # An earlier version may have had it, with "no" before it if it was false.
  for old in (name, name.removeprefix("no")):
    if old in removed_flags.REPLACEMENTS:
      return f"{fault}: use {removed_flags.REPLACEMENTS[old]}"

  # Our flags: absl would also propose those of its own modules.
  closest = difflib.get_close_matches(name, settings_class.flags_by_name(), 1)
  hint = f": did you mean --{closest[0]}?" if closest else "; see --help"
  return fault + hint


def _describe_stray(words: list[str]) -> str:
  """Says how the first of some arguments that are no flags was meant.

  It is a part of the value before it, which has a space and no quotes; or the
  value of the flag before it, with spaces around the "=", or without one.
  """
  place = len(sys.argv) - len(words)
  if sys.argv[place:] != words:  # Those of --flagfile are not there.
    if words[0] not in sys.argv:
      return f"--flagfile: {words[0]!r} is no flag: expected --name=value"
    place = sys.argv.index(words[0])

  # From the flag before it to the next one.
  start = max(n for n in range(place) if not n or sys.argv[n].startswith("--"))
  behind = itertools.takewhile(lambda a: not a.startswith("--"), words)
  text = " ".join([*sys.argv[start:place], *behind])
  match = re.fullmatch(r"--(\w+)(?: ?= ?| )(.*)", text, re.DOTALL)

  fault = f"unexpected argument {words[0]!r}"
  if match:
    name, value = match.groups()
    cure = shlex.quote(f"--{name}={value}")
    if not re.search(r"\s", value):
      return f"{fault}: write {cure} without spaces"
    if name in FLAGS and "string" in FLAGS[name].flag_type():
      return f"{fault}: a value with spaces needs quotes: {cure}"
  return f"{fault}: expected --name=value; see --help"


def _check_floats(values: flags.FlagValues) -> None:
  """Refuses nan and inf, which pass every flag's bounds."""
  for name in values:
    value = values[name].value
    if isinstance(value, float) and not math.isfinite(value):
      raise flags.IllegalFlagValueError(
        f"--{name}={value}: expected a finite number"
      )


def check_missing(
  settings_class: type[Settings], values: flags.FlagValues
) -> None:
  """Raises a ValueError that names the required flags without a value."""
  missing = []
  # Flags without which another one is required, by that one.
  replaced: dict[str, list[str]] = {}
  for name, flag in settings_class.flags_by_name().items():
    if flag.default is REQUIRED and not values[name].value:
      missing.append(f"--{name}")
    elif flag.unless and not (values[name].value or values[flag.unless].value):
      replaced.setdefault(flag.unless, []).append(f"--{name}")

  for other, names in replaced.items():
    missing.append(f"--{other} (or {', '.join(names)})")
  if missing:
    raise ValueError(f"missing {', '.join(missing)}; see --help")


def describe_flags(
  settings_class: type[Settings], shows_all: bool, introduction: str
) -> str:
  """Returns the text of --helpfull, or of --help.

  Args:
    settings_class: the settings of the program.
    introduction: what comes before the flags.
    shows_all: whether to show all flags. Else only the required ones, what may
      take their place, and what most commands need: `flag_texts.MOST_USED`.
  """
  flags_by_name = settings_class.flags_by_name()
  shows_all = shows_all or len(flags_by_name) <= flag_texts.FEW_FLAGS

  # By the name of a flag: those that together take its place.
  replacing: dict[str, list[str]] = {}
  for name, flag in flags_by_name.items():
    replacing.setdefault(flag.unless, []).append(f"--{name}")

  # Groups with the same title are joined. Required flags come first, with those
  # that take their place.
  by_title: dict[str, list[str]] = {_REQUIRED: []}
  for name, flag in flags_by_name.items():
    is_required = flag.default is REQUIRED or name in replacing
    is_shown = shows_all or name in flag_texts.MOST_USED
    # One command needs --model, another one the flags in its place.
    if not (is_shown or is_required or flag.unless):
      continue

    title = _REQUIRED if is_required else flag.group
    instead = " and ".join(replacing.get(name, ()))
    described = _describe_flag(name, flag, instead)
    by_title.setdefault(title, []).append(described)

  parts = [introduction.strip()]
  parts += [
    "\n".join([f"{title}:", *described])
    for title, described in by_title.items()
    if described
  ]
  parts.append("The default follows =; ... means no default.")
  if not shows_all:
    count = len(flags_by_name)
    parts.append(
      f"These are the most used flags. --helpfull shows all {count}."
    )
  return "\n\n".join(parts)


def _describe_flag(name: str, flag: Flag, instead: str) -> str:
  """Describes a flag; `instead` names the flags with which it is not needed."""
  has_default = flag.default not in (None, REQUIRED)
  default = _spell(flag.default) if has_default else "..."

  line = f"  --{name}={default}"
  if flag.choices:
    line += f"  ({', '.join(flag.choices)})"
    line = textwrap.fill(line, 80, subsequent_indent=" " * 6)

  text = flag.text
  if flag.unless:
    text += f" Not needed with --{flag.unless}."
  if instead:
    text += f" Not needed with {instead}."
  text = textwrap.fill(text, 74, break_on_hyphens=False)
  return f"{line}\n{textwrap.indent(text, ' ' * 6)}"
