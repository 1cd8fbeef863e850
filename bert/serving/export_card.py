"""The card of an export, export.json: how its answers are made."""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import dataclasses
import hashlib
import json
import os
import shlex
import typing
from typing import Any

from bert.data import files, messages

FILE = "export.json"
# Changed whenever older exports can no longer be used.
VERSION = 4

ONNX_FILE = "model.onnx"
ONNX_DATA_FILE = f"{ONNX_FILE}.data"  # Its weights.
WEIGHTS = "weights"  # In `hashes`: the weights, whatever the format.
ATTENTION = "attention_"  # Its outputs of this name and a layer's number.

# Some of them are in the folder of a model.
_MODELS = {"bert_config.json", "config.json", "settings.json"}
NUMBER = (int, float)
COUNT = (range(1, 10**6),)
_ITEMS = {"inputs": (str,), "labels": (str,), "thresholds": NUMBER}


@dataclasses.dataclass(frozen=True)
class Card:
  """The content of export.json."""

  version: int  # VERSION of the program that wrote it.
  kind: str  # As `answers.find_maker` takes it.
  format: str  # A key of `formats.FORMATS`.
  inputs: tuple[str, ...]  # The names of the texts that it takes.
  labels: tuple[str, ...]
  thresholds: tuple[float, ...]  # For each label of multi_label.
  max_seq_length: int
  max_position_embeddings: int  # The longest input of the model.
  do_lower_case: bool
  num_layers: int
  num_heads: int
  settings: dict[str, Any]  # Those of its `answer_maker.AnswerMaker`.
  weights: str  # Where they are from.
  training: dict[str, Any]  # The settings of the training.
  versions: dict[str, str]  # The packages that it was written with.
  # The SHA-256 in hexadecimal digits of the vocabulary's files, of those of an
  # ONNX model, and, as WEIGHTS, of the variables. Earlier exports lack some.
  hashes: dict[str, str] = dataclasses.field(default_factory=dict)
  # If it is quantized: its type, whether sums of its products can saturate on
  # some processors, and the fields of `comparison.Comparison`.
  quantization: dict[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    # Each value has the type of its field; some have a range, too. An encoder
    # without attention has 0 heads.
    allowed = {
      field.name: (typing.get_origin(field.type) or field.type,)
      for field in dataclasses.fields(self)
    }
    allowed |= {"num_layers": COUNT, "num_heads": (range(10**4),)}
    files.check_values(vars(self), allowed)

    # What the lists hold.
    for name, kinds in _ITEMS.items():
      for value in getattr(self, name):
        files.check_values({name: value}, {name: kinds})


@contextlib.contextmanager
def _asking_for_whole_folder() -> Iterator[None]:
  """Says what to do about a file of an export that cannot be read."""
  try:
    yield
  except OSError as error:
    raise ValueError(
      f"{error.filename}: {error.strerror}; copy the whole folder of the export"
    ) from None


def check_file(folder: str, name: str, card: Card) -> None:
  """Compares a file with its hash; a ValueError says that it is another.

  Args:
    folder: of the export.
    name: of the file in it, a key of `card.hashes`.
    card: of the export.
  """
  path = os.path.join(folder, name)
  with _asking_for_whole_folder():
    digest = files.hash_file(path)
  if digest != card.hashes.get(name):
    raise ValueError(
      f"{path}: not the file that {FILE} describes: copy the export again"
    )


class WeightsWatch:
  """Notices whether the weights of an open ONNX export were written over.

  They are mapped into memory: an engine reads from the file what it has not
  read yet. Written over in place, as by `cp`, it would answer by two models at
  once. A file that is deleted, or renamed with its folder, stays what it was.
  """

  def __init__(self, onnx_file: str):
    """Opens the weights beside a local model.onnx."""
    self._path = os.path.join(os.path.dirname(onnx_file), ONNX_DATA_FILE)
    with _asking_for_whole_folder():
      self._file = open(self._path, "rb")  # It outlives its name.
    self._state = self._read_state()

  def _read_state(self) -> tuple[int, int]:
    state = os.fstat(self._file.fileno())
    return state.st_size, state.st_mtime_ns

  def check(self) -> None:
    """Raises a ValueError if the file was written to since it was opened."""
    if self._read_state() != self._state:
      raise ValueError(
        f"{self._path}: was written over while this model was open: load it "
        "again, and replace an export by renaming its folder"
      )


def digest(content: Any) -> str:
  """Returns the SHA-256 of a JSON value, in hexadecimal digits."""
  text = json.dumps(content, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def seal(content: Mapping[str, Any]) -> dict[str, Any]:
  """Adds the SHA-256 of an object's other fields as `sha256`."""
  rest = {name: value for name, value in content.items() if name != "sha256"}
  return {**rest, "sha256": digest(rest)}


def export_command(model: str, task: str = "") -> str:
  """Returns the command that exports a model, a folder or a name of the Hub."""
  # A name of the Hub may end in its revision.
  name = os.path.basename(model.rstrip("/")).partition("@")[0]
  flags = [f"--model={model}", f"--task={task}" if task else ""]
  flags.append(f"--export_dir={name}_export")
  start = messages.start_of("export_saved_model.py")
  return shlex.join([*start, *filter(None, flags)])


def _describe(folder: str) -> str:
  """Says what a folder without a card is, and how to make an export of it."""
  names = os.listdir(folder) if os.path.isdir(folder) else []
  if FILE not in names and not _MODELS.isdisjoint(names):
    return f"a model, not an export: `{export_command(folder)}` makes one"
  return f"no readable {FILE} there; expected an --export_dir"


def read(
  folder: str, check: Callable[[Card], None] = lambda card: None
) -> Card:
  """Reads an export's card; a ValueError, also of `check`, names the fault."""
  path = os.path.join(folder, FILE)
  try:
    content = files.read_json(path)
  except (OSError, ValueError):
    raise ValueError(f"{folder}: {_describe(folder)}") from None

  # The version first: its message is clearer than one about the seal.
  if content.get("version") != VERSION:
    raise ValueError(
      f"{path}: version {content.get('version')!r}, expected {VERSION}: "
      "export the model again"
    )
  if content != seal(content):
    raise ValueError(f"{path}: not as it was written; copy or export it again")

  # JSON has lists where the card has tuples. Unknown fields are left out.
  values: dict[str, Any] = {
    field.name: tuple(value) if isinstance(value, list) else value
    for field in dataclasses.fields(Card)
    for value in [content.get(field.name)]
  }

  # A card may be whole and still ask for something that no answer can have.
  try:
    card = Card(**values)
    check(card)
  except ValueError as error:
    raise ValueError(f"{path}: {error}; export the model again") from None
  return card
