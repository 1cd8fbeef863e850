"""What makers of answers share: requests are checked, texts become inputs."""

import abc
from collections.abc import Iterable, Mapping, Sequence
import difflib
import functools
import types
from typing import Any, NamedTuple, Self

import numpy as np

from bert.data import messages, packing
from bert.serving import export_card
from bert.tasks import classification
from bert.vocabularies import vocabulary_table

# The name of an input of lines, which may also be given as a list.
CHOICES = "choices"
# Each becomes an input of its own, of the full length if the context is long.
MOST_CHOICES = 1024
# The texts of all kinds of models.
_NAMES = {"text", "text_pair", "question", "context", CHOICES}
# `textpair` is close to `text_pair`, `question_id` is not close to `question`.
_NEAR = 0.85

Answer = dict[str, Any]
# Those of one input of the model; those of tokens have padding, too.
Outputs = dict[str, np.ndarray]


class Encoded(NamedTuple):
  """A request as inputs of the model."""

  # Not padded; may be empty. If the head takes more, rows of a NamedTuple that
  # begins with the same fields.
  rows: list[packing.PackedIds]
  was_cut: bool  # Tokens of a text are in none of them.
  source: Any = None  # For making the answer: the texts, and their windows.


class AnswerMaker(abc.ABC):
  """Makes the requests and answers of a kind of model; see `answers`."""

  title: str  # A page about the model has it.
  # The class of its trained models, which needs TensorFlow.
  head = "bert.heads.ClassifierModel"
  # What answers depend on besides max_seq_length; see `files.check_values`.
  settings: dict[str, tuple[Any, ...]]
  texts: tuple[str, ...] = ("text", "text_pair")  # All that it may take.
  optional = "text_pair"  # The one of them that may be missing.
  never_split: tuple[str, ...] = ()  # Tokens that a text may hold.
  has_labels = has_thresholds = False  # Whether answers are labels.
  result = "label"  # The name of what an answer says, as `parts` returns it.
  # Exports add probabilities to logits [B, L]: "softmax" or "sigmoid" of them.
  activation = ""
  # If set, exports give logits [B, 1] as numbers [B], by this name.
  number = ""
  # What its head takes besides the inputs of every model: the name of a field
  # of `Encoded.rows`, and an example of its values. Their number is the same
  # for all texts.
  more_inputs: Mapping[str, Sequence[int]] = types.MappingProxyType({})
  pads_fully = False  # Whether inputs are padded as they were in training.

  def __init__(self, card: export_card.Card, vocab_file: str):
    self.card = card
    self._tokenizer = vocabulary_table.make_tokenizer(
      vocab_file, card.do_lower_case, self.never_split
    )

    self._vocabulary_kind = vocabulary_table.kind_of(vocab_file).name
    self._file_digest = ""  # A list of tokens is compared by these.
    if not vocabulary_table.is_word_pieces(vocab_file):
      self._file_digest = vocabulary_table.digest(vocab_file)
    self.strips_marks = vocabulary_table.strips_marks(
      vocab_file, card.do_lower_case
    )
    # The names of a request's texts, and whether they are required.
    self.is_required = {name: name != self.optional for name in card.inputs}

  @functools.cached_property
  def vocabulary_digest(self) -> str:
    """A digest of what the vocabulary makes of texts."""
    # A conversion may write a list with other ends of lines.
    tokens = sorted(self._tokenizer.vocab.items())
    return self._file_digest or export_card.digest(
      [self._vocabulary_kind, tokens]
    )

  def encode(self, request: Any) -> Encoded:
    """Encodes a request; a ValueError says what it lacks, or has too much.

    It holds texts by the names of `is_required`, and maybe other names, or is a
    tuple in their order.
    """
    # For messages.
    names = ", ".join(
      name if required else f"{name} (optional)"
      for name, required in self.is_required.items()
    )

    if isinstance(request, tuple):
      if len(request) > len(self.is_required):
        raise ValueError(f"{len(request)} texts; the model takes {names}")
      request = dict(zip(self.is_required, request, strict=False))
    if not isinstance(request, dict):
      raise ValueError(f"expected a JSON object with {names}")

    # Other names, such as an id, are the sender's own, unless they are the name
    # of a text of another kind of model, or look like a slip of the pen.
    missing = [name for name in self.is_required if request.get(name) is None]
    for name in request.keys() - self.is_required.keys():
      near = difflib.get_close_matches(str(name).lower(), missing, 1, _NEAR)
      if name in _NAMES or near:
        # Half a surrogate pair could not be written.
        name = str(name).encode(errors="backslashreplace").decode()
        raise ValueError(f"{name} is not read; the model takes {names}")

    # A text that may be missing is "" then.
    texts = {}
    for name, required in self.is_required.items():
      value = request.get(name)
      if value is None and not required:
        value = ""

      # Choices come as a list, or as the lines of one string.
      if name == CHOICES and isinstance(value, str):
        value = [line for line in value.split("\n") if line.strip()]
      if name == CHOICES and isinstance(value, list | tuple):
        texts[name] = _check_choices(value)
      elif isinstance(value, str):
        messages.check_unicode(value, name)
        texts[name] = value
      else:
        given = "nothing" if value is None else type(value).__name__
        raise ValueError(
          f"{name} is {given}, expected a string; the model takes {names}"
        )
    return self._encode(texts)

  def with_prompt(self, name: str) -> Self:
    """Returns a maker that puts a prompt of the model before every text."""
    raise ValueError(
      f"prompt_name={name!s:.80}: only models of vectors have prompts"
    )

  def _find_prompt(self) -> str:
    """Returns what precedes every text: the named prompt, or the default."""
    return ""

  def identify_tokens(self) -> str:
    """Returns a digest of how a text becomes tokens, if it is not windows."""
    card = self.card
    casing = card.do_lower_case, bool(card.settings.get("lower_case"))
    decides = casing, card.max_seq_length, self._find_prompt()
    return export_card.digest([self.vocabulary_digest, *decides])

  def encode_all(
    self, requests: Iterable[Any], first: int = 0
  ) -> list[Encoded]:
    """Encodes several requests; a ValueError says which one is wrong.

    `first` is the number of the first one, for this message.
    """
    encoded = []
    for number, request in enumerate(requests, first):
      try:
        encoded.append(self.encode(request))
      except ValueError as error:
        raise ValueError(f"inputs[{number}]: {error}") from None
    return encoded

  def _encode(self, texts: dict[str, Any]) -> Encoded:
    """Encodes a text or a pair as run_classifier.py does."""
    # Id, label and place of an example matter in training only.
    pair = texts.get("text_pair") or None
    example = classification.Example("", texts["text"], pair, None, "", None)
    features = list(
      classification.make_features(
        [example],
        self._tokenizer,
        lambda example: 0,
        self.card.max_seq_length,
        self.card.settings.get("doc_stride"),
      )
    )
    rows = [make_row(f.input_ids, f.segment_ids) for f in features]
    return Encoded(rows, features[0].was_cut)

  def answer(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Answer:
    """Makes the answer to a request, ready for JSON, of all rows' outputs."""
    answer = self._answer(encoded, outputs)
    return answer | {"truncated": encoded.was_cut}

  def answer_all(
    self, requests: Iterable[Encoded], outputs: Iterable[Outputs]
  ) -> list[Answer]:
    """Makes the answers to requests of the outputs of all their rows."""
    # The rows of all requests follow each other; each request takes its own.
    remaining = iter(outputs)
    return [
      self.answer(request, [next(remaining) for _ in request.rows])
      for request in requests
    ]

  @abc.abstractmethod
  def _answer(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Answer:
    """Returns all but `truncated`; see `answer`."""

  def parts(self, answer: Answer) -> list[Any]:
    """Returns what may be right or wrong in an answer, without probabilities.

    That is one label, list of labels, text, number or vector, as an array, or
    one for each word or mask.
    """
    return [answer[self.result]]

  def tokens(self, row: packing.PackedIds) -> list[str]:
    """Returns the tokens of an input."""
    return self._tokenizer.convert_ids_to_tokens(row.input_ids)


def _check_choices(choices: Sequence[Any]) -> tuple[str, ...]:
  """Returns choices, two or more texts, without the spaces around them."""
  for number, choice in enumerate(choices):
    if not isinstance(choice, str):
      raise ValueError(f"{CHOICES}: expected a list of strings, or lines")
    messages.check_unicode(choice, CHOICES)
    if not choice.strip():  # Skipping it would renumber the others.
      raise ValueError(f"{CHOICES}: number {number} is empty")
  if not 2 <= len(choices) <= MOST_CHOICES:
    raise ValueError(
      f"{CHOICES}: found {len(choices)}, expected 2 to {MOST_CHOICES}"
    )
  return tuple(choice.strip() for choice in choices)


def make_row(ids: list[int], segment_ids: list[int]) -> packing.PackedIds:
  """Makes an input without padding."""
  return packing.PackedIds(ids, [1] * len(ids), segment_ids)
