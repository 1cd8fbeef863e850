"""Flags as the fields of a frozen dataclass: the settings of a program.

  _data = flag_values.group("Data")

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class ClassifierSettings(flag_values.Settings):
    task_name: str = _data(None, "The task to learn.", required=True)
    labels: tuple[str, ...] = _data((), "The labels.")

`ClassifierSettings.define_flags()` declares a flag for each of these fields,
`ClassifierSettings.read()` returns their values. Nothing reads a flag after it.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import types
import typing
from typing import Any, NamedTuple, Self

from absl import flags

from cli import program

FLAGS = flags.FLAGS
_METADATA = "flag"


class Flag(NamedTuple):
  """A flag besides its name, type and default, which are the field's."""

  group: str  # The title in --help.
  text: str
  least: float | None
  most: float | None
  choices: Sequence[str]
  required: bool
  unless: str  # Another flag, without which this one is required.
  repeated: bool  # Given once for each value, not as a list with commas.


def group(title: str) -> Callable[..., Any]:
  """Returns the function that declares fields of one group of --help."""

  def flag(
    default: Any,
    text: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    required: bool = False,
    unless: str = "",
    repeated: bool = False,
  ) -> Any:
    declared = Flag(
      title, text, least, most, choices, required, unless, repeated
    )
    return dataclasses.field(default=default, metadata={_METADATA: declared})

  return flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The base class of settings; a field that `group` makes is a flag."""

  given: frozenset[str] = frozenset()  # Names of the flags the user gave.

  @classmethod
  def flag_names(cls) -> list[str]:
    """Returns the names of the flags, in the order of the fields."""
    return [f.name for f in dataclasses.fields(cls) if f.metadata]

  @classmethod
  def define_flags(cls, values: flags.FlagValues = FLAGS) -> None:
    """Declares the flags."""
    kinds = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
      if field.metadata:
        _define(field, kinds[field.name], values)

  @classmethod
  def read(cls, values: flags.FlagValues = FLAGS) -> Self:
    """Returns the values of the flags, as they were given."""
    names = cls.flag_names()
    given = frozenset(name for name in names if values[name].present)
    return cls(**{n: _freeze(values[n].value) for n in names}, given=given)

  @classmethod
  def parse(cls, given: Mapping[str, Any]) -> Self:
    """Returns the settings of a command line with these flags, JSON values.

    Raises:
      ValueError: a flag is unknown or missing, or a value is wrong.
    """
    values = flags.FlagValues()
    cls.define_flags(values)
    try:
      values(["", *(f"--{name}={_as_text(v)}" for name, v in given.items())])
    except flags.Error as error:
      raise ValueError(str(error)) from None
    return cls.read(values)

  def flag_values(self) -> dict[str, Any]:
    """Returns the values of the flags by name."""
    return {name: getattr(self, name) for name in self.flag_names()}


def _define(field, kind, values):
  """Declares the flag of a field."""
  flag: Flag = field.metadata[_METADATA]
  name, default = field.name, field.default
  if values is FLAGS:
    program.group(flag.group)
    if flag.unless:
      program.require_unless(flag.unless, name)
  options: dict[str, Any] = {"flag_values": values, "required": flag.required}
  kinds = [
    k for k in typing.get_args(kind) or [kind] if k is not types.NoneType
  ]
  if flag.repeated:
    flags.DEFINE_multi_string(name, list(default), flag.text, **options)
  elif typing.get_origin(kind) is tuple:
    flags.DEFINE_list(name, list(default), flag.text, **options)
  elif flag.choices:
    flags.DEFINE_enum(name, default, flag.choices, flag.text, **options)
  elif kinds == [bool]:
    flags.DEFINE_bool(name, default, flag.text, **options)
  elif kinds == [str]:
    flags.DEFINE_string(name, default, flag.text, **options)
  else:
    options |= {"lower_bound": flag.least, "upper_bound": flag.most}
    define = {int: flags.DEFINE_integer, float: flags.DEFINE_float}[kinds[0]]
    define(name, default, flag.text, **options)


def _freeze(value: Any) -> Any:
  return tuple(value) if isinstance(value, list) else value


def _as_text(value: Any) -> str:
  return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def show(value: Any) -> str:
  """Returns a flag's value as a command line has it."""
  if isinstance(value, (list, tuple)):
    return ",".join(map(str, value)) or "none"
  return "none" if value is None else str(value)
