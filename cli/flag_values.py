"""The values of a program's flags, read once into one frozen object."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
from typing import Any, TypeVar

from absl import flags

FLAGS = flags.FLAGS
Fields = TypeVar("Fields")


class Settings:
  """The values of all flags of a program: `settings.seed` is that of --seed.

  `read` makes it: a frozen dataclass with a field for each flag; lists become
  tuples. `dataclasses.replace` copies it with other values.
  """


def read() -> Settings:
  """Returns the values of the flags; do not read the flags afterwards.

  Programs with --model call `model_folder.find_files` before.
  """
  return make(_values())


def _values() -> dict[str, Any]:
  return {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in FLAGS.flag_values_dict().items()
    if _is_ours(name)
  }


def _is_ours(name: str) -> bool:
  return not FLAGS.find_module_defining_flag(name, "").startswith("absl")


def is_given(name: str) -> bool:
  """Tells whether this program has a flag, and was given a value of it."""
  return name in FLAGS and FLAGS[name].present > 0


def make(values: Mapping[str, Any]) -> Settings:
  """Returns settings with these values."""
  made = dataclasses.make_dataclass(
    "Settings", values, bases=(Settings,), frozen=True
  )
  return made(**values)


def read_program(
  define_flags: Callable[[], None], values: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the values of another program's flags, by name.

  Args:
    values: of those that shall not have their defaults; JSON's.

  Raises:
    ValueError: a flag is unknown or missing, or a value is wrong.
  """
  ours = {name: FLAGS[name] for name in FLAGS if _is_ours(name)}
  for name in ours:
    delattr(FLAGS, name)
  kept = set(FLAGS)
  try:
    define_flags()
    FLAGS(["", *(f"--{name}={_as_text(v)}" for name, v in values.items())])
    return _values()
  except flags.Error as error:
    raise ValueError(str(error)) from None
  finally:
    for name in set(FLAGS) - kept:
      delattr(FLAGS, name)
    for name, flag in ours.items():
      FLAGS[name] = flag
    FLAGS.mark_as_parsed()


def _as_text(value: Any) -> str:
  return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def fill(kind: type[Fields], settings: Settings, **others: Any) -> Fields:
  """Makes a dataclass whose fields are named like flags."""
  names = [field.name for field in dataclasses.fields(kind)]
  values = {n: getattr(settings, n) for n in names if hasattr(settings, n)}
  return kind(**{**values, **others})
