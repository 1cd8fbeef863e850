"""From texts to a model's inputs, and from its outputs to answers.

There is an `AnswerMaker` for each kind of model. It encodes and answers as the
program that trained the model: the windows, probabilities, thresholds, spans
and entities are made by the code of the tasks. Nothing here knows which engine
computes the outputs, and nothing loads TensorFlow.
"""

import abc
from collections.abc import Sequence
import difflib
from typing import Any, NamedTuple

import numpy as np

from data import packing, tables
from serving import export_card
from tasks import (
  classification,
  classification_results,
  multiple_choice,
  multiple_choice_results,
  squad,
  squad_answers,
  squad_features,
  tagging,
  tagging_schemes,
  tagging_words,
)
from vocabularies import vocabulary_table

MASK = "[MASK]"
# The name of an input of lines, which may also be given as a list.
CHOICES = "choices"
# The texts of all kinds of models.
_NAMES = {"text", "text_pair", "question", "context", CHOICES}
_NEVER = -1e9  # Far below any logit.
# difflib's cutoff: `textpair` is close to `text_pair`, `question_id` is not
# close to `question`.
_NEAR = 0.85

Answer = dict[str, Any]
Outputs = dict[str, np.ndarray]  # Those of one input of the model.


class Input(NamedTuple):
  """A text that a model takes."""

  name: str
  required: bool


class Encoded(NamedTuple):
  """A request as inputs of the model."""

  rows: list[packing.PackedIds]  # Not padded; may be empty.
  was_cut: bool  # Tokens of a text are in none of them.
  source: Any  # For making the answer: the texts, and their windows.


class AnswerMaker(abc.ABC):
  """Makes the requests and answers of a kind of model; see the classes below.

  Attributes:
    title: of a page about the model.
    head: the class in heads.py that computes its outputs; "" for the encoder.
    settings: which ones the answers depend on besides weights, labels and
      max_seq_length, and of which types they are.
    texts: the names of all texts that it may take.
    optional: the one of them that may be missing.
    never_split: tokens that a text may hold.
    inputs: the texts of a request.
    pads_fully: whether padding changes answers, so that all inputs have to be
      padded to max_seq_length as they were in training.
  """

  title: str
  head = "ClassifierModel"
  settings: dict[str, tuple[type, ...]]
  texts: tuple[str, ...] = ("text", "text_pair")
  optional = "text_pair"
  never_split: tuple[str, ...] = ()
  pads_fully = False

  def __init__(self, card: export_card.Card, vocab_file: str):
    self.card = card
    self._tokenizer = vocabulary_table.make_tokenizer(
      vocab_file, card.do_lower_case, self.never_split
    )
    self._special = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    self.inputs = tuple(Input(n, n != self.optional) for n in card.inputs)

  def encode(self, request: Any) -> Encoded:
    """Encodes a request.

    Args:
      request: texts by the names of `inputs`, or a tuple in their order;
        optional ones may be missing. Other names may stand beside them.

    Raises:
      ValueError: it is not of strings, lacks one, has one that only other
        models take, or an empty one that cannot be answered.
    """
    names = ", ".join(
      f"{i.name}{'' if i.required else ' (optional)'}" for i in self.inputs
    )
    if isinstance(request, tuple):
      if len(request) > len(self.inputs):
        raise ValueError(f"{len(request)} texts; the model takes {names}")
      request = dict(zip(self.card.inputs, request, strict=False))
    if not isinstance(request, dict):
      raise ValueError(f"expected a JSON object with {names}")
    missing = [n for n, _ in self.inputs if request.get(n) is None]
    for name in request.keys() - set(self.card.inputs):
      near = difflib.get_close_matches(str(name).lower(), missing, 1, _NEAR)
      if name in _NAMES or near:
        # Half a surrogate pair could not be written.
        name = str(name).encode(errors="backslashreplace").decode()
        raise ValueError(f"{name} is not read; the model takes {names}")
    texts = {}
    for name, required in self.inputs:
      value = request.get(name)
      if value is None and not required:
        value = ""
      if name == CHOICES and isinstance(value, list):
        texts[name] = _check_choices(value)
        continue
      if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise ValueError(
          f"{name} is {found}, expected a string; the model takes {names}"
        )
      tables.check_unicode(value, name)
      if name == CHOICES:
        value = _check_choices(filter(str.strip, value.split("\n")))
      texts[name] = value
    return self._encode(texts)

  def encode_all(self, requests: Sequence[Any]) -> list[Encoded]:
    """Encodes several requests; a ValueError says which one is wrong."""
    found = []
    for number, request in enumerate(requests):
      try:
        found.append(self.encode(request))
      except ValueError as error:
        raise ValueError(f"inputs[{number}]: {error}") from None
    return found

  @abc.abstractmethod
  def _encode(self, texts: dict[str, Any]) -> Encoded:
    """Encodes texts; see `encode`."""

  def answer(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Answer:
    """Returns the answer to a request, ready to be JSON.

    Args:
      encoded: from `encode`.
      outputs: of the model for each of its rows; outputs of tokens have some
        for padding, too.
    """
    answer = self._answer(encoded, outputs)
    return answer | {"truncated": encoded.was_cut}

  @abc.abstractmethod
  def _answer(self, encoded: Encoded, outputs: Sequence[Outputs]) -> Answer:
    """Returns all but `truncated`; see `answer`."""

  def tokens(self, row: packing.PackedIds) -> list[str]:
    """Returns the tokens of an input."""
    return self._tokenizer.convert_ids_to_tokens(row.input_ids)

  def _pack(self, ids_a, ids_b=()):
    cls_id, sep_id = self._special
    return packing.pack(ids_a, ids_b, cls_id=cls_id, sep_id=sep_id)

  def _encode_pair(self, texts, doc_stride=None):
    """Encodes a text or a pair as run_classifier.py does."""
    text_pair = texts.get("text_pair") or None
    example = classification.Example(
      "", texts["text"], text_pair, None, "", None
    )
    features = list(
      classification.make_features(
        [example],
        self._tokenizer,
        lambda example: 0,
        self.card.max_seq_length,
        doc_stride,
      )
    )
    rows = [_row(f.input_ids, f.segment_ids) for f in features]
    return Encoded(rows, features[0].was_cut, None)


def _check_choices(values) -> tuple[str, ...]:
  """Returns choices, two or more texts, without the spaces around them."""
  choices = list(values)
  for number, choice in enumerate(choices):
    if not isinstance(choice, str):
      raise ValueError(f"{CHOICES}: expected a list of strings, or lines")
    tables.check_unicode(choice, CHOICES)
    if not choice.strip():  # Skipping it would renumber the others.
      raise ValueError(f"{CHOICES}: number {number} is empty")
  if len(choices) < 2:
    raise ValueError(f"{CHOICES}: found {len(choices)}, expected two or more")
  return tuple(choice.strip() for choice in choices)


def _row(input_ids, segment_ids) -> packing.PackedIds:
  return packing.PackedIds(input_ids, [1] * len(input_ids), segment_ids)


class Classification(AnswerMaker):
  """Labels, or a number, of texts or pairs. Outputs: `logits` or `value`."""

  title = "Classifies texts"
  settings = {"doc_stride": (int, type(None)), "window_pooling": (str,)}

  def _encode(self, texts):
    return self._encode_pair(texts, self.card.settings["doc_stride"])

  def _answer(self, encoded, outputs):
    card = self.card
    if card.kind == "regression":
      logits = np.array([[output["value"]] for output in outputs])
    else:
      logits = np.stack([output["logits"] for output in outputs])
    examples = np.zeros(len(logits), int)
    found = classification_results.answer(
      classification_results.pool_windows(
        logits, examples, card.settings["window_pooling"]
      ),
      card.kind,
      card.labels,
      np.array(card.thresholds) if card.thresholds else None,
    )
    (prediction,), (scores,) = found.predictions, found.scores.tolist()
    if card.kind == "regression":
      return {"value": float(prediction)}
    probabilities = dict(zip(card.labels, scores, strict=True))
    if card.kind == "single_label":
      label = card.labels[prediction]
      return {"label": label, "probabilities": probabilities}
    chosen = zip(card.labels, prediction, strict=True)
    labels = [label for label, is_chosen in chosen if is_chosen]
    return {"labels": labels, "probabilities": probabilities}


class Features(AnswerMaker):
  """One vector of a text or a pair. Outputs: `vectors`."""

  title, head = "Makes vectors of texts", ""
  settings = {"layer": (int,), "pooling": (str,)}

  def _encode(self, texts):
    return self._encode_pair(texts)

  def _answer(self, encoded, outputs):
    return {"vector": outputs[0]["vectors"].tolist()}


class FillMask(AnswerMaker):
  """The likeliest tokens for each [MASK].

  Outputs: `positions` of the masks, -1 for none; `ids` and `probabilities`.
  """

  title, head = "Guesses masked words", "PretrainingModel"
  settings = {"top_k": (int,)}
  texts, never_split = ("text",), (MASK,)

  def _encode(self, texts):
    ids = self._tokenizer.encode(texts["text"])
    room = self.card.max_seq_length - 2
    return Encoded([self._pack(ids[:room])], len(ids) > room, None)

  def _answer(self, encoded, outputs):
    (output,) = outputs
    is_mask = output["positions"] >= 0
    guesses = map(
      zip,
      output["ids"][is_mask].tolist(),
      output["probabilities"][is_mask].tolist(),
    )
    tokens = self._tokenizer.inv_vocab  # Lacks ids of repeated lines.
    return {
      "masks": [
        [{"token": tokens.get(i, ""), "probability": p} for i, p in pairs]
        for pairs in guesses
      ]
    }


class MultipleChoice(AnswerMaker):
  """Probabilities of choices. Outputs: `logits`, one number a choice."""

  title = "Chooses among answers"
  settings = {}
  texts, optional = ("context", "question", CHOICES), "question"

  def _encode(self, texts):
    context, question = texts["context"].strip(), texts["question"].strip()
    choices = texts[CHOICES]
    if not context and not question:
      raise ValueError("neither a context nor a question")
    example = multiple_choice.Example("", context, question, choices, None, "")
    (feature,) = multiple_choice.make_features(
      [example], self._tokenizer, self.card.max_seq_length
    )
    rows = list(map(_row, feature.input_ids, feature.segment_ids))
    return Encoded(rows, feature.was_cut, choices)

  def _answer(self, encoded, outputs):
    logits = np.array([[output["logits"] for output in outputs]])
    shares = multiple_choice_results.probabilities(
      logits, np.ones_like(logits)
    )[0]
    predicted = int(shares.argmax())
    return {
      "predicted": predicted,
      "choice": encoded.source[predicted],
      "probabilities": shares.tolist(),
    }


class Tagging(AnswerMaker):
  """Labels of words and the entities that they mark. Outputs: `logits`."""

  title, head = "Labels words", "TaggerModel"
  settings = {"label_scheme": (str,), "by_character": (bool,)}
  texts = ("text",)

  def _encode(self, texts):
    text = texts["text"]
    by_character = self.card.settings["by_character"]
    places = tuple(tagging_words.split(text, by_character))
    words = tuple(text[start:end] for start, end in places)
    return self.encode_sentence(
      tagging.Sentence(words, None, 0, "", 1, text, places)
    )

  def encode_sentence(self, sentence: tagging.Sentence) -> Encoded:
    """Encodes words that have been found in their text."""
    card = self.card
    features = tagging.make_features(
      [sentence], self._tokenizer, card.labels, card.max_seq_length
    )
    rows, masks = [], []
    for feature in features:
      rows.append(_row(feature.input_ids, [0] * len(feature.input_ids)))
      masks.append(np.array(feature.label_mask) > 0)
    return Encoded(rows, False, (sentence, masks))

  def _answer(self, encoded, outputs):
    sentence, masks = encoded.source
    of_words = [np.zeros([0, len(self.card.labels)])] + [
      output["logits"][: len(mask)][mask]
      for output, mask in zip(outputs, masks, strict=True)
    ]
    shares = classification_results.probabilities(
      np.concatenate(of_words), "single_label"
    )
    numbers, certainty = shares.argmax(-1), shares.max(-1)
    labels = [self.card.labels[number] for number in numbers]
    answer = {
      "words": [
        {
          "word": word,
          "label": label,
          "start": start,
          "end": end,
          "probability": float(share),
        }
        for word, label, (start, end), share in zip(
          sentence.words, labels, sentence.offsets, certainty, strict=True
        )
      ]
    }
    if self.card.settings["label_scheme"] == tagging_schemes.NO_SCHEME:
      return answer
    entities = []
    for entity in tagging_schemes.find_entities(labels):
      start = sentence.offsets[entity.start][0]
      end = sentence.offsets[entity.end - 1][1]
      of_entity = certainty[entity.start : entity.end]
      entities.append(
        {
          "text": sentence.text[start:end],
          "type": entity.type,
          "start": start,
          "end": end,
          "probability": float(of_entity.mean()),
        }
      )
    return answer | {"entities": entities}


class QuestionAnswering(AnswerMaker):
  """Answers: parts of contexts. Outputs: `start_logits`, `end_logits`."""

  title, head = "Answers questions about texts", "SpanModel"
  settings = {
    "doc_stride": (int,),
    "max_query_length": (int,),
    "n_best_size": (int,),
    "max_answer_length": (int,),
    "version_2_with_negative": (bool,),
    "whole_word_answers": (bool,),
    "null_score_diff_threshold": export_card.NUMBER,
    "padding_competes": (bool,),
  }
  texts = ("question", "context")

  def __init__(self, card: export_card.Card, vocab_file: str):
    super().__init__(card, vocab_file)
    settings = card.settings
    self.pads_fully = settings["padding_competes"]
    shape = squad_features.FeatureSettings(
      vocab_file,
      card.do_lower_case,
      card.max_seq_length,
      settings["doc_stride"],
      settings["max_query_length"],
      settings["version_2_with_negative"],
    )
    self._maker = squad_features.FeatureMaker(shape, is_training=False)
    self._find = squad_answers.SpanSearch(
      squad_answers.AnswerSettings(
        settings["n_best_size"],
        settings["max_answer_length"],
        settings["version_2_with_negative"],
        card.do_lower_case,
        settings["whole_word_answers"],
      ),
      self._maker.tokens,
    )

  def _encode(self, texts):
    question = squad.Question(
      "", texts["question"], texts["context"], None, "context"
    )
    [(document, _)] = self._maker.documents([question])
    _ = document.first_tokens  # An error is of this request alone.
    query, windows, was_cut = self._maker.windows(document, question)
    rows = [
      self._pack(query, document.ids[start : start + length])
      for start, length in windows
    ]
    return Encoded(rows, was_cut, (question, document, len(query), windows))

  def _answer(self, encoded, outputs):
    question, document, query_length, windows = encoded.source
    shape = [2, len(windows), self.card.max_seq_length]
    logits = np.full(shape, _NEVER, np.float32)
    for index, (row, output) in enumerate(
      zip(encoded.rows, outputs, strict=True)
    ):
      end = None if self.pads_fully else len(row.input_ids)
      for part, name in enumerate(("start_logits", "end_logits")):
        values = output[name][:end]
        logits[part, index, : len(values)] = values
    found = self._find(document, query_length, windows, *logits)
    chosen = found.decide(self.card.settings["null_score_diff_threshold"])
    answer = squad_answers.describe(question, found, chosen)
    del answer["id"], answer["question"]
    return answer


# The kinds of models that were only pre-trained.
FEATURES, FILL_MASK = "features", "fill_mask"
# By the kind of a model.
MAKERS: dict[str, type[AnswerMaker]] = {
  **dict.fromkeys(classification.PROBLEMS, Classification),
  "question_answering": QuestionAnswering,
  "tagging": Tagging,
  "multiple_choice": MultipleChoice,
  FEATURES: Features,
  FILL_MASK: FillMask,
}
# The kinds that have labels.
LABELLED = ("single_label", "multi_label", "tagging")


def check(card: export_card.Card) -> None:
  """Raises a ValueError if no answers can be made by a card."""
  if card.kind not in MAKERS:
    raise ValueError(f"kind is {card.kind!r}, expected one of {[*MAKERS]}")
  if not card.labels and card.kind in LABELLED:
    raise ValueError("labels are missing")
  if card.kind == "multi_label" and len(card.thresholds) != len(card.labels):
    raise ValueError(
      f"{len(card.thresholds)} thresholds for {len(card.labels)} labels"
    )
  for name, types in MAKERS[card.kind].settings.items():
    if name not in card.settings:
      raise ValueError(f"settings lack {name}")
    export_card.check_type(name, card.settings[name], types)
