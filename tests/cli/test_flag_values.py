"""Settings: a frozen dataclass whose fields declare the flags of a program."""

import dataclasses
import importlib

from absl import app, flags
import pytest

from cli import flag_values
import program_flags

_data = flag_values.group("Data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(flag_values.Settings):
  path: str = _data(None, "A path.", required=True)
  names: tuple[str, ...] = _data(("a", "b"), "Names.")
  text: tuple[str, ...] = _data((), "A text.", repeated=True)
  size: int | None = _data(None, "A size.", least=1)
  rate: float = _data(0.5, "A rate.", least=0.0, most=1.0)
  kind: str = _data("x", "A kind.", choices=("x", "y"))
  is_new: bool = _data(False, "Whether it is new.")
  derived: int = 7  # No flag.


def test_values_have_the_types_of_their_fields():
  given = {"path": "p", "names": "c,d", "size": 3, "rate": 1, "is_new": True}
  settings = program_flags.read(Settings, lambda kind: kind.read(), **given)
  assert settings == Settings(
    path="p",
    names=("c", "d"),
    size=3,
    rate=1.0,
    is_new=True,
    given=frozenset(given),
  )
  assert list(settings.flag_values()) == Settings.flag_names()
  assert "derived" not in Settings.flag_names()


def test_values_of_a_json_object_are_those_of_a_command_line():
  settings = Settings.parse({"path": "p", "names": ["c"], "is_new": True})
  assert settings.names == ("c",) and settings.is_new
  assert settings.given == {"path", "names", "is_new"}


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ({}, "path"),
    ({"path": "p", "colour": 1}, "Unknown command line flag 'colour'"),
    ({"path": "p", "size": 0}, "size"),
    ({"path": "p", "kind": "z"}, "x|y"),
  ],
)
def test_wrong_values_are_refused(given, message):
  with pytest.raises(ValueError) as error:
    Settings.parse(given)
  assert message in str(error.value)


PROGRAMS = {
  "run_classifier": "ClassifierSettings",
  "run_squad": "SquadSettings",
  "run_tagging": "TaggingSettings",
  "run_multiple_choice": "ChoiceSettings",
  "run_multitask": "MultitaskSettings",
  "run_pretraining": "PretrainingSettings",
  "extract_features": "VectorSettings",
  "fill_mask": "FillMaskSettings",
  "predict": "PredictSettings",
  "export_saved_model": "ExportSettings",
  "convert_checkpoint": "ConversionSettings",
  "create_vocab": "VocabSettings",
  "create_pretraining_data": "PretrainingDataSettings",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_declares_the_fields_of_its_settings_alone(name):
  kind = getattr(importlib.import_module(name), PROGRAMS[name])
  app.define_help_flags()  # Others than the program's.
  known = set(flags.FLAGS)
  declared = set(program_flags.declared_flags(f"{name}.py"))
  assert declared - known == set(kind.flag_names()) - known
