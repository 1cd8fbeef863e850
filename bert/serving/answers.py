"""From texts to a model's inputs, and from its outputs to answers.

There is an `AnswerMaker` for each kind of model. It encodes and answers as the
program that trained the model: the windows, probabilities, thresholds, spans
and entities are made by the code of the tasks. Nothing here knows which engine
computes the outputs, and nothing loads TensorFlow.
"""

from collections.abc import Mapping, Sequence
import copy
import functools
from typing import Any, Self

import numpy as np

from bert.data import files, imports, packing, text_prompts
from bert.serving import answer_maker, export_card
from bert.tasks import (
  classification_problems,
  classification_results,
  multiple_choice,
  squad,
  squad_answers,
  squad_features,
  tagging,
  tagging_schemes,
)

MASK = "[MASK]"
_PROMPT_NAME = "prompt_name"  # In a request: which of the model's prompts.
# Far below any logit: no answer begins or ends at a token with this score.
_NEVER = -1e9
_softmax = classification_problems.PROBLEMS["single_label"].activate


def _round(probability: float) -> float:
  """Returns a probability with 6 digits: float32 computes no more."""
  return float(f"{probability:.6g}")


class Classification(answer_maker.AnswerMaker):
  """A label, labels or a number of texts or pairs, as its problem says.

  Outputs: `logits`; or `value`, if that is a number.
  """

  title = "Classifies texts"
  settings = {
    "doc_stride": (*export_card.COUNT, None),
    "window_pooling": ("mean", "max"),
    # The logits are divided by it already: `trained_models` divides the head.
    "temperature": (*export_card.NUMBER, None),
  }

  @classmethod
  def of(cls, problem: classification_problems.Problem) -> type[Self]:
    """Returns the maker of the answers to a problem."""
    # `has_labels` and its like are read from a class before there is a card to
    # make an object of: each problem gets a class of its own.
    fields = {
      "has_labels": problem.has_labels,
      "has_thresholds": problem.has_thresholds,
      "activation": problem.activation,
      "number": "" if problem.has_labels else problem.answer_name,
      "result": problem.answer_name,
    }
    made: Any = type(cls.__name__, (cls,), fields)
    return made

  def probabilities(
    self,
    requests: Sequence[answer_maker.Encoded],
    outputs: Sequence[answer_maker.Outputs],
  ) -> np.ndarray:
    """Returns the probabilities of labels, float32 [N, L]; of a regression, 1.

    Args:
      requests: N of them.
      outputs: of all their rows, which follow each other.
    """
    return self._predict(requests, outputs).probabilities

  def _predict(self, requests, outputs) -> classification_problems.Answers:
    card = self.card
    # An output that is one number, as of a regression, has no axes.
    logits = np.stack(
      [np.atleast_1d(x[self.number or "logits"]) for x in outputs]
    )

    # A request is one text, whose rows are its windows. From here on the code
    # of run_classifier.py answers: there is no second truth.
    counts = [len(request.rows) for request in requests]
    pooled = classification_results.pool_windows(
      logits,
      np.repeat(np.arange(len(counts)), counts),
      card.settings["window_pooling"],
    )
    thresholds = np.array(card.thresholds) if card.thresholds else None
    # The kind of a classifier, in its card, is the name of its problem.
    return classification_results.answer(
      pooled, card.kind, card.labels, thresholds
    )

  def _answer(self, encoded, outputs):
    answered = self._predict([encoded], outputs)
    [answer] = answered.as_labels()
    described: dict[str, Any] = {self.result: answer}
    if self.has_labels:
      rounded = map(_round, answered.probabilities[0])
      names = self.card.labels
      described["probabilities"] = dict(zip(names, rounded, strict=True))
    return described


class Features(answer_maker.AnswerMaker):
  """One vector of a text or a pair. Outputs: `vectors`."""

  title = "Makes vectors of texts"
  settings = {
    "layer": (int,),
    "pooling": ("cls", "mean", "max"),
    "dense": (str, None),  # Describes the layer after the pooling, if any.
    "normalize": (bool, None),  # Earlier exports do not say it, nor do it.
    "prompts": (dict, None),
    "default_prompt_name": (str, None),
    "lower_case": (bool, None),
  }
  prompt_name = None  # That of the default is in the settings.

  def with_prompt(self, name):
    prompts = self.card.settings.get("prompts")
    text_prompts.find_prompt(prompts, name, "prompt_name")

    # A copy, as threads share this maker and each request may name a prompt.
    maker = copy.copy(self)
    maker.prompt_name = name
    return maker

  def encode(self, request):
    if isinstance(request, dict) and request.get(_PROMPT_NAME) is not None:
      request = dict(request)  # The caller keeps the name in its own.
      return self.with_prompt(request.pop(_PROMPT_NAME)).encode(request)
    return super().encode(request)

  def _find_prompt(self):
    get = self.card.settings.get
    name = self.prompt_name
    name = get("default_prompt_name") if name is None else name
    return text_prompts.find_prompt(get("prompts"), name, "prompt_name")

  def _encode(self, texts):
    # The second text of a pair has no prompt, but is lower-cased, too.
    prompts = {"text": self._find_prompt()}
    lower_case = self.card.settings.get("lower_case")
    prepared = {
      name: text_prompts.prepare(text, prompts.get(name), lower_case)
      for name, text in texts.items()
    }
    return super()._encode(prepared)

  def _answer(self, encoded, outputs):
    return {"vector": outputs[0]["vectors"].tolist()}

  def parts(self, answer):
    return [np.array(answer["vector"])]


class FillMask(answer_maker.AnswerMaker):
  """The likeliest tokens for each [MASK].

  Outputs: `positions` of the masks, -1 for none; `ids` and `probabilities`.
  """

  title = "Guesses masked words"
  settings = {"top_k": export_card.COUNT}
  texts = ("text",)
  never_split = (MASK,)

  def _answer(self, encoded, outputs):
    [output] = outputs
    # It lacks the ids of lines that are repeated later in the vocabulary: their
    # tokens are shown as "".
    tokens = self._tokenizer.inv_vocab

    # Positions are filled with -1 up to the text with the most masks.
    masks = []
    for place in np.flatnonzero(output["positions"] >= 0):
      ids = output["ids"][place]
      rounded = map(_round, output["probabilities"][place])
      pairs = zip(ids.tolist(), rounded, strict=True)
      guesses = [
        {"token": tokens.get(i, ""), "probability": x} for i, x in pairs
      ]
      masks.append(guesses)
    return {"masks": masks}

  def parts(self, answer):
    return [guesses[0]["token"] for guesses in answer["masks"]]


class MultipleChoice(answer_maker.AnswerMaker):
  """Probabilities of choices. Outputs: `logits`, one number a choice."""

  title = "Chooses among answers"
  result = "predicted"
  number = "logits"
  settings = {}
  texts = ("context", "question", answer_maker.CHOICES)
  optional = "question"

  def _encode(self, texts):
    context, question = texts["context"].strip(), texts["question"].strip()
    choices = texts[answer_maker.CHOICES]
    if not context and not question:
      raise ValueError("neither a context nor a question")

    # The rows of run_multiple_choice.py, one for each choice. Id and label of
    # an example matter in training only.
    example = multiple_choice.Example("", context, question, choices, None, "")
    most = self.card.max_seq_length
    [feature] = multiple_choice.make_features([example], self._tokenizer, most)
    rows = map(answer_maker.make_row, feature.input_ids, feature.segment_ids)
    return answer_maker.Encoded(list(rows), feature.was_cut, choices)

  def _answer(self, encoded, outputs):
    # Each choice is a row with one score; the softmax is over the choices.
    logits = np.array([[output["logits"] for output in outputs]])
    [probabilities] = _softmax(logits)
    predicted = int(probabilities.argmax())
    return {
      "predicted": predicted,
      "choice": encoded.source[predicted],
      "probabilities": list(map(_round, probabilities)),
    }


class Tagging(answer_maker.AnswerMaker):
  """Labels of words and the entities that they mark. Outputs: `logits`."""

  title = "Labels words"
  has_labels = True
  head = "bert.heads.TaggerModel"
  settings = {
    "label_scheme": (*tagging_schemes.SCHEMES, tagging_schemes.NO_SCHEME),
    "by_character": (bool,),
  }
  texts = ("text",)

  def _encode(self, texts):
    # Words are split as in training; their places in the text are answered.
    text = texts["text"]
    places = tagging.split_words(text, self.card.settings["by_character"])
    places = tuple(places)
    words = tuple(text[start:end] for start, end in places)

    # Long texts become several rows.
    features = tagging.make_features(
      [tagging.Sentence(words, None, 0, "", 1, text, places)],
      self._tokenizer,
      self.card.labels,
      self.card.max_seq_length,
    )

    # A mask says at which tokens of a row words begin: a word has the label of
    # its first token.
    rows, masks = [], []
    for feature in features:
      ids = feature.input_ids
      rows.append(answer_maker.make_row(ids, [0] * len(ids)))
      masks.append(np.array(feature.label_mask) > 0)
    return answer_maker.Encoded(rows, False, (text, places, masks))

  def _answer(self, encoded, outputs):
    text, places, masks = encoded.source
    # The logits of words, without padding and further pieces. The empty array
    # is for a text without words.
    of_words = [np.zeros([0, len(self.card.labels)])] + [
      output["logits"][: len(mask)][mask]
      for output, mask in zip(outputs, masks, strict=True)
    ]
    logits = np.concatenate(of_words)  # [words, L]
    probabilities = _softmax(logits)
    labels = [self.card.labels[number] for number in probabilities.argmax(-1)]
    certainty = probabilities.max(-1)

    # Words and entities are described alike, but their keys differ.
    def describe(start, end, text_name, type_name, type):
      first = places[start][0]
      last = places[end - 1][1]
      return {
        text_name: text[first:last],
        type_name: type,
        "start": first,
        "end": last,
        "probability": _round(np.mean(certainty[start:end])),
      }

    words = [
      describe(place, place + 1, "word", "label", label)
      for place, label in enumerate(labels)
    ]

    # Without a scheme such as BIO, labels mark no entities.
    if self.card.settings["label_scheme"] == tagging_schemes.NO_SCHEME:
      return {"words": words}
    entities = [
      describe(entity.start, entity.end, "text", "type", entity.type)
      for entity in tagging_schemes.find_entities(labels)
    ]
    return {"words": words, "entities": entities}

  def parts(self, answer):
    return [word["label"] for word in answer["words"]]


class QuestionAnswering(answer_maker.AnswerMaker):
  """Answers: parts of contexts. Outputs: `start_logits`, `end_logits`."""

  title = "Answers questions about texts"
  result = "answer"
  head = "bert.heads.SpanModel"
  settings = {
    "doc_stride": export_card.COUNT,
    "max_query_length": export_card.COUNT,
    "n_best_size": export_card.COUNT,
    "max_answer_length": export_card.COUNT,
    "version_2_with_negative": (bool,),
    "whole_word_answers": (bool,),
    "null_score_diff_threshold": export_card.NUMBER,
    "padding_competes": (bool,),
  }
  texts = ("question", "context")

  def __init__(self, card: export_card.Card, vocab_file: str):
    super().__init__(card, vocab_file)
    settings = card.settings
    # The original lets an answer begin in the padding: then a row needs all of
    # it for the same scores.
    self.pads_fully = settings["padding_competes"]

    # Rows are made and spans are found by the code of run_squad.py.
    feature_settings = squad_features.SquadFeatureSettings(
      vocab_file,
      card.do_lower_case,
      card.max_seq_length,
      settings["doc_stride"],
      settings["max_query_length"],
      settings["version_2_with_negative"],
    )
    cls_id, sep_id = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    self._pack = functools.partial(packing.pack, cls_id=cls_id, sep_id=sep_id)
    self._maker = squad_features.FeatureMaker(
      feature_settings, is_training=False
    )
    self._find = squad_answers.SpanSearch(
      self._maker,
      squad_answers.AnswerSettings(
        settings["n_best_size"],
        settings["max_answer_length"],
        settings["whole_word_answers"],
      ),
    )

  def _encode(self, texts):
    asked, context = texts["question"], texts["context"]
    question = squad.Question("", asked, context, None, "context")
    [(document, _)] = self._maker.documents([question])
    # Computed here: its ValueError must not fail the whole batch.
    _ = document.first_tokens

    # A window of the context, with the question before it, is a row.
    query, windows, was_cut = self._maker.windows(document, question)
    rows = [
      self._pack(query, document.ids[start : start + length])
      for start, length in windows
    ]
    source = question, document, len(query), windows
    return answer_maker.Encoded(rows, was_cut, source)

  def _answer(self, encoded, outputs):
    question, document, query_length, windows = encoded.source

    # Start and end logits of all windows, of the full length as in training. A
    # row was padded to the longest of its batch: the scores of this padding
    # must not matter, unless padding competes.
    shape = [2, len(windows), self.card.max_seq_length]
    logits = np.full(shape, _NEVER, np.float32)
    pairs = zip(encoded.rows, outputs, strict=True)
    for index, (row, output) in enumerate(pairs):
      end = None if self.pads_fully else len(row.input_ids)
      for part, name in enumerate(("start_logits", "end_logits")):
        values = output[name][:end]
        logits[part, index, : len(values)] = values

    prediction = self._find(document, query_length, windows, *logits)
    chosen = prediction.decide(self.card.settings["null_score_diff_threshold"])
    answer = squad_answers.describe(question, prediction, chosen)

    # Whoever asked knows the question, and gave it no id.
    del answer["id"], answer["question"]
    for span in (answer, *answer["runners_up"]):
      span["probability"] = _round(span["probability"])
    return answer


# The kinds of models that were only pre-trained.
FEATURES, FILL_MASK = "features", "fill_mask"
# By the kind of a model.
MAKERS: dict[str, type[answer_maker.AnswerMaker]] = {
  **{
    name: Classification.of(problem)
    for name, problem in classification_problems.PROBLEMS.items()
  },
  "question_answering": QuestionAnswering,
  "tagging": Tagging,
  "multiple_choice": MultipleChoice,
  FEATURES: Features,
  FILL_MASK: FillMask,
}


def find_maker(kind: str) -> type[answer_maker.AnswerMaker]:
  """Returns what answers for a kind of model; a ValueError without one.

  An extra has it as `ANSWER_MAKER`, in the module of contrib of this name.
  """
  if kind in MAKERS:
    return MAKERS[kind]
  maker = imports.find_extra(kind, "ANSWER_MAKER")
  if not maker:
    raise ValueError(f"kind is {kind!r}, expected one of {[*MAKERS]}")
  return maker


def is_trained(kind: str) -> bool:
  """Returns whether an --output_dir of this kind is loaded and exported."""
  if kind in MAKERS:
    return kind not in (FEATURES, FILL_MASK)
  return imports.find_extra(kind, "ANSWER_MAKER") is not None


def check(card: export_card.Card) -> None:
  """Raises a ValueError if no answers can be made by a card."""
  maker = find_maker(card.kind)

  # Labels and thresholds, as the kind of model needs them.
  if maker.has_labels != bool(card.labels):
    raise ValueError(f"{len(card.labels)} labels of the kind {card.kind}")
  if maker.has_thresholds and len(card.thresholds) != len(card.labels):
    raise ValueError(
      f"{len(card.thresholds)} thresholds for {len(card.labels)} labels"
    )

  # A classifier that learned from single texts takes no second one.
  single = tuple(name for name in maker.texts if name != "text_pair")
  if card.inputs not in (maker.texts, single):
    raise ValueError(f"inputs are {card.inputs}, expected {maker.texts}")

  settings = {**card.settings, "max_seq_length": card.max_seq_length}
  check_settings(card.kind, settings, card.max_position_embeddings)


def check_settings(
  kind: str, settings: Mapping[str, Any], most_tokens: int
) -> None:
  """Raises a ValueError if a model cannot answer by these settings.

  Args:
    kind: of the model, as `find_maker` takes it.
    settings: `max_seq_length`, and the settings of the maker by their names.
    most_tokens: the longest input of the model, its max_position_embeddings.
  """
  # Room for [CLS], [SEP] and one token at least.
  allowed = {"max_seq_length": (range(3, most_tokens + 1),)}
  files.check_values(settings, {**allowed, **find_maker(kind).settings})

  # Windows must leave no token out, and hold a part of the text.
  length = settings["max_seq_length"]
  if "window_pooling" in settings:
    packing.check_doc_stride(settings.get("doc_stride"), length)
  if "max_query_length" in settings:
    squad_features.check_lengths(length, settings["max_query_length"])
