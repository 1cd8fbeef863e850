"""The card of an export, export.json: how its answers are made."""

from collections.abc import Callable, Mapping
import dataclasses
import hashlib
import json
import os
import typing
from typing import Any

from data import files

FILE = "export.json"
# Changed whenever older exports can no longer be used.
VERSION = 3

IDS = ("input_ids", "input_mask", "segment_ids")  # What every engine takes.
NUMBER = (int, float)
_ITEMS = {"inputs": (str,), "labels": (str,), "thresholds": NUMBER}


@dataclasses.dataclass(frozen=True)
class Card:
  """The content of export.json."""

  version: int  # VERSION of the program that wrote it.
  kind: str  # A key of `answers.MAKERS`.
  format: str  # "saved_model", "litert" or "onnx".
  inputs: tuple[str, ...]  # The names of the texts that it takes.
  labels: tuple[str, ...]
  thresholds: tuple[float, ...]  # For each label of multi_label.
  max_seq_length: int
  do_lower_case: bool
  num_layers: int
  num_heads: int
  settings: Mapping[str, Any]  # Those of its `answer_maker.AnswerMaker`.
  weights: str  # Where they are from.
  training: Mapping[str, Any]  # The settings of the training.
  versions: Mapping[str, str]  # The packages that it was written with.
  # The SHA-256 in hexadecimal digits of the vocabulary's files, and of those of
  # an ONNX model. Earlier exports of other formats have none.
  hashes: Mapping[str, str] = dataclasses.field(default_factory=dict)
  # If it is quantized: its type, and the fields of `quantization.Comparison`.
  quantization: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    for field in dataclasses.fields(self):
      check_type(field.name, getattr(self, field.name), (_class_of(field),))
    for name, types in _ITEMS.items():
      for value in getattr(self, name):
        check_type(f"one of {name}", value, types)


def check_file(folder: str, name: str, card: Card) -> None:
  """Compares a file with its hash; a ValueError says that it is another."""
  path = os.path.join(folder, name)
  try:
    found = files.hash_file(path)
  except OSError as error:
    raise ValueError(
      f"{path}: {error.strerror}; copy the whole folder of the export"
    ) from None
  if found != card.hashes.get(name):
    raise ValueError(
      f"{path}: not the file that {FILE} describes: copy the export again"
    )


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
  """Adds the SHA-256 of an object's other fields as `sha256`."""
  rest = {name: value for name, value in content.items() if name != "sha256"}
  text = json.dumps(rest, sort_keys=True)
  return {**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def read(
  folder: str, check: Callable[[Card], None] = lambda card: None
) -> Card:
  """Reads the card of an export; a ValueError names what is wrong.

  Args:
    check: raises a ValueError for other faults.
  """
  path = os.path.join(folder, FILE)
  try:
    with open(path, encoding="utf-8") as file:
      content = dict(json.load(file))
  except (OSError, ValueError, TypeError, RecursionError):
    raise ValueError(
      f"{folder}: no readable {FILE} there; expected an --export_dir"
    ) from None
  if content.get("version") != VERSION:
    raise ValueError(
      f"{path}: version {content.get('version')!r}, expected {VERSION}: "
      "export the model again"
    )
  if content != seal(content):
    raise ValueError(f"{path}: not as it was written; copy or export it again")
  try:
    values = {}
    for field in dataclasses.fields(Card):
      value = content[field.name]
      is_tuple = _class_of(field) is tuple and isinstance(value, list)
      values[field.name] = tuple(value) if is_tuple else value
    card = Card(**values)
    check(card)
    return card
  except KeyError as error:
    fault = f"no {error.args[0]!r} there"
  except ValueError as error:
    fault = str(error)
  raise ValueError(f"{path}: {fault}; export the model again")


def _class_of(field: dataclasses.Field) -> type:
  origin = typing.get_origin(field.type) or field.type
  return dict if origin is Mapping else origin


def check_type(name: str, value: Any, types: tuple[type, ...]) -> None:
  """Raises a ValueError for a value of another type."""
  # Not isinstance: a bool would pass for a number.
  if type(value) not in types:
    names = " or ".join(t.__name__ for t in types)
    raise ValueError(f"{name} is {value!r:.80}, expected {names}")
