"""The values of a program's flags, read once into one frozen object."""

import dataclasses
from typing import Any, TypeVar

from absl import flags

from cli import model_folders

Fields = TypeVar("Fields")


class Settings:
  """The values of all flags of a program: `settings.seed` is that of --seed.

  `read` makes it: a frozen dataclass with a field for each flag; lists become
  tuples. `dataclasses.replace` copies it with other values.
  """


def read() -> Settings:
  """Returns the values of the flags; do not read the flags afterwards.

  Raises:
    ValueError: --model names a folder that lacks a file, or --do_lower_case
      contradicts the model.
  """
  model_folders.find_files()
  values = {
    name: tuple(value) if isinstance(value, list) else value
    for name, value in flags.FLAGS.flag_values_dict().items()
    if name.isidentifier()  # Absl has a flag called "?".
  }
  made = dataclasses.make_dataclass(
    "Settings", values, bases=(Settings,), frozen=True
  )
  return made(**values)


def fill(kind: type[Fields], settings: Settings, **others: Any) -> Fields:
  """Makes a dataclass whose fields are named like flags."""
  names = [field.name for field in dataclasses.fields(kind)]
  values = {n: getattr(settings, n) for n in names if hasattr(settings, n)}
  return kind(**{**values, **others})
