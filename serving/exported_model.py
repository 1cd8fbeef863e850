"""Applies an exported model: a SavedModel of strings, without our model code.

An `ExportedModel` takes requests, dicts of strings by the names that the model
gives them, and returns answers, dicts that are ready to be JSON.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import glob
import importlib.util
import json
import os
from typing import Any, NamedTuple

FACTS_FILE = "export.json"
# The name of an input of lines, which may also be given as a list.
CHOICES = "choices"
Request = dict[str, str]
Answer = dict[str, Any]

# By what a model does, the input that it can do without.
_OPTIONAL = {"multiple_choice": "question"}
# The operations of tensorflow-text that the graph has.
_TEXT_OPERATIONS = ("_fast_wordpiece_tokenizer", "_normalize_ops")


class Input(NamedTuple):
  """A string that the model takes."""

  name: str
  required: bool


class ExportedModel:
  """A model from a folder that export_saved_model.py wrote.

  Args:
    folder: the --export_dir.

  Attributes:
    facts: what export.json says of the model.
    inputs: the strings of a request.

  Raises:
    ValueError: the folder holds something else.
  """

  def __init__(self, folder: str):
    self.facts = read_facts(folder)
    optional = _OPTIONAL.get(self.facts["kind"], "text_pair")
    self.inputs = tuple(
      Input(name, name != optional) for name in self.facts["inputs"]
    )
    import tensorflow as tf  # Takes seconds; what is wrong above shows at once.

    load_text_operations(tf)
    try:
      from serving import signature_loader

      self._tf, self._signatures = tf, signature_loader.Signatures(folder)
      request = dict.fromkeys([name for name, _ in self.inputs], "a")
      tensors = self._tensors([request])
      self._signatures.prepare("serving_default", **tensors)
    except (tf.errors.OpError, OSError, KeyError, ValueError) as error:
      message = getattr(error, "message", str(error))
      raise ValueError(f"{folder}: not a readable export: {message}") from None

  def check(self, request: Any) -> Request:
    """Returns what a request says, "" where it need not say anything.

    Raises:
      ValueError: it is no object of strings, or lacks one.
    """
    names = ", ".join(
      f"{i.name}{'' if i.required else ' (optional)'}" for i in self.inputs
    )
    if not isinstance(request, dict):
      raise ValueError(f"expected a JSON object with {names}")
    checked = {}
    for name, required in self.inputs:
      value = request.get(name)
      if name == CHOICES and value is not None:
        value = _join_choices(value)
      if value is None and not required:
        value = ""
      if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise ValueError(
          f"{name} is {found}, expected a string; the model takes {names}"
        )
      try:
        value.encode()
      except UnicodeEncodeError:
        raise ValueError(f"{name} is not UTF-8: it has a surrogate") from None
      checked[name] = value
    return checked

  def answer(self, requests: Sequence[Request]) -> list[Answer]:
    """Answers requests in one batch.

    Args:
      requests: from `check`.
    """
    tensors = self._tensors(requests)
    outputs = self._signatures("serving_default", **tensors)
    arrays = {name: value.numpy() for name, value in outputs.items()}
    describe = _DESCRIBE[self.facts["kind"]]
    return [
      describe({name: values[row] for name, values in arrays.items()})
      | {"truncated": bool(arrays["truncated"][row])}
      for row in range(len(requests))
    ]

  def answer_many(
    self, requests: Sequence[Request], most_bytes: int
  ) -> list[Answer]:
    """Answers requests in batches of similar length.

    Args:
      requests: from `check`.
      most_bytes: of the text of a batch, its shorter rows counted like the
        longest; a single request may have more.

    Returns:
      The answers in the order of the requests.
    """
    sizes = [_size(request) for request in requests]
    answers: list[Answer] = [{}] * len(requests)
    for indices in group_by_length(sizes, most_bytes):
      found = self.answer([requests[index] for index in indices])
      for index, answer in zip(indices, found, strict=True):
        answers[index] = answer
    return answers

  def attend(self, request: Request, layer: int, head: int) -> Answer:
    """Returns the attention of a head: tokens, and a row for each of them.

    Raises:
      ValueError: the model has no such layer or head.
    """
    for name, value in (("layer", layer), ("head", head)):
      count = self.facts[f"num_{name}s"]
      if type(value) is not int or not 0 <= value < count:
        raise ValueError(
          f"{name} is {value!r}; expected a number from 0 to {count - 1}"
        )
    constant = self._tf.constant
    outputs = self._signatures(
      "attention",
      layer=constant(layer, self._tf.int32),
      head=constant(head, self._tf.int32),
      **self._tensors([request]),
    )
    rows = outputs["attention"].numpy()[0].round(5).tolist()
    return {"tokens": _decode(outputs["tokens"].numpy()[0]), "attention": rows}

  def _tensors(self, requests):
    return {
      name: self._tf.constant([request[name] for request in requests])
      for name, _ in self.inputs
    }


def read_facts(folder: str) -> dict[str, Any]:
  """Reads what an export says of itself.

  Raises:
    ValueError: the folder is none, or its model is not for TensorFlow.
  """
  path = os.path.join(folder, FACTS_FILE)
  try:
    with open(path, encoding="utf-8") as file:
      facts = json.load(file)
  except (OSError, ValueError):
    raise ValueError(
      f"{folder}: no readable {FACTS_FILE} there; expected the --export_dir of "
      "export_saved_model.py"
    ) from None
  if facts["format"] != "saved_model":
    raise ValueError(
      f"{folder}: the model is in the format {facts['format']}; this takes one "
      "exported with --format=saved_model"
    )
  return facts


def load_text_operations(tf) -> None:
  """Registers the operations of tensorflow-text.

  Importing the package would import Keras, too, which takes seconds.
  """
  spec = importlib.util.find_spec("tensorflow_text")
  if spec is None:
    raise ImportError(
      "tensorflow-text is not installed, and the model's tokenizer is made of "
      "it: pip install -r requirements.txt"
    )
  folder = os.path.join(os.path.dirname(spec.origin), "python", "ops")
  for name in _TEXT_OPERATIONS:
    paths = glob.glob(os.path.join(glob.escape(folder), f"{name}.*"))
    libraries = [p for p in paths if p.endswith((".so", ".dylib"))]
    if not libraries:
      import tensorflow_text  # noqa: F401  It knows where they are.

      return
    tf.load_op_library(libraries[0])


def group_by_length(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
  """Puts what is of similar size together.

  >>> list(group_by_length([5, 1, 9, 2, 30], 10))
  [[1, 3], [0], [2], [4]]

  Args:
    sizes: of items.
    most: of a group: its largest size times its number, unless it has one item.

  Yields:
    The indices of the items of each group.
  """
  group: list[int] = []
  for index in sorted(range(len(sizes)), key=sizes.__getitem__):
    if group and sizes[index] * (len(group) + 1) > most:
      yield group
      group = []
    group.append(index)
  if group:
    yield group


def _join_choices(value: Any) -> str:
  """Makes lines of choices.

  Raises:
    ValueError: they are no strings, or fewer than two.
  """
  choices = value.split("\n") if isinstance(value, str) else value
  if not isinstance(choices, list) or not all(
    isinstance(choice, str) for choice in choices
  ):
    raise ValueError(f"{CHOICES}: expected a list of strings, or lines")
  lines = [choice.replace("\n", " ").strip() for choice in choices]
  lines = list(filter(None, lines))
  if len(lines) < 2:
    raise ValueError(f"{CHOICES}: found {len(lines)}, expected two or more")
  return "\n".join(lines)


def _size(request: Request) -> int:
  # What is around a text, [CLS] and [SEP], takes time too. Each choice is an
  # input with all that is before it.
  count = 1 + request.get(CHOICES, "").count("\n")
  return count * (16 + sum(map(len, request.values())))


def _decode(strings: Iterable[bytes]) -> list[str]:
  """Decodes strings; "" is padding."""
  return [string.decode() for string in strings if string]


def _describe_single_label(row):
  return {
    "label": row["label"].decode(),
    "probabilities": _by_label(row),
  }


def _by_label(row):
  labels = [label.decode() for label in row["labels"]]
  return dict(zip(labels, row["probabilities"].tolist(), strict=True))


def _describe_multi_label(row):
  probabilities = _by_label(row)
  chosen = zip(probabilities, row["chosen"], strict=True)
  return {
    "labels": [label for label, is_chosen in chosen if is_chosen],
    "probabilities": probabilities,
  }


def _describe_answer(row):
  start, end = int(row["start"]), int(row["end"])
  answer = {
    "answer": row["answer"].decode(),
    "start": start if start >= 0 else None,
    "end": end if end >= 0 else None,
    "probability": float(row["probability"]),
    "score": float(row["score"]),
  }
  if "no_answer_odds" in row:
    answer["no_answer_odds"] = float(row["no_answer_odds"])
  return answer


def _describe_tags(row):
  names = ("words", "labels", "word_starts", "word_ends", "word_probabilities")
  keys = ("word", "label", "start", "end", "probability")
  answer = {"words": _list_spans(row, names, keys)}
  if "entities" in row:
    names = ("entities", "types", "starts", "ends", "probabilities")
    keys = ("text", "type", "start", "end", "probability")
    answer["entities"] = _list_spans(row, names, keys)
  return answer


def _list_spans(row, names, keys):
  spans = []
  for values in zip(*(row[name].tolist() for name in names), strict=True):
    if values[0]:  # Else it is padding.
      texts = [value.decode() for value in values[:2]]
      spans.append(dict(zip(keys, [*texts, *values[2:]], strict=True)))
  return spans


def _describe_choice(row):
  # What is "" is padding.
  pairs = zip(row["choices"], row["probabilities"].tolist(), strict=True)
  return {
    "predicted": int(row["predicted"]),
    "choice": row["choice"].decode(),
    "probabilities": [share for choice, share in pairs if choice],
  }


def _describe_masks(row):
  return {
    "masks": [
      [
        {"token": token.decode(), "probability": probability}
        for token, probability in zip(tokens, values, strict=True)
      ]
      for tokens, values in zip(
        row["tokens"].tolist(), row["probabilities"].tolist(), strict=True
      )
      if any(values)
    ]
  }


_DESCRIBE = {
  "single_label": _describe_single_label,
  "multi_label": _describe_multi_label,
  "regression": lambda row: {"value": float(row["value"])},
  "question_answering": _describe_answer,
  "tagging": _describe_tags,
  "multiple_choice": _describe_choice,
  "features": lambda row: {"vector": row["vectors"].tolist()},
  "fill_mask": _describe_masks,
}
