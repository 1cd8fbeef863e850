"""Answers from start and end logits.

N-best lists, the way from tokens back to the text and the odds of no answer are
the original's. Shapes: W windows of a question, S tokens.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from bert import tokenization
from bert.data import packing, progress
from bert.tasks import squad, squad_features

# The original's answer if no part of the text can be one.
_NO_SPAN = "empty"
# The odds of no answer if no part of the text can be an answer. The original
# began its search for the lowest odds with the same number.
_CERTAIN_ODDS = 1_000_000.0


@dataclasses.dataclass(frozen=True)
class AnswerSettings:
  """How to choose an answer."""

  n_best_size: int  # Starts, ends to combine in a window; answers to keep.
  max_answer_length: int  # Tokens.
  # False: an answer ends where its tokens do, as the original's did, which may
  # be inside a word: "iron lattic" of "iron lattice", if "##e" is a token.
  whole_word_answers: bool = False
  verbose_logging: bool = False  # Prints a note where words lack a text.
  answer_units: str = "auto"  # For scores: see `squad_metrics.choose_units`.


class Span(NamedTuple):
  """A part of a context that may be the answer."""

  text: str
  start: int | None  # Characters of the context: context[start:end].
  end: int | None  # None: it stands for no answer.
  start_logit: float
  end_logit: float
  probability: float = 0.0  # Among the spans of the question.

  @property
  def score(self) -> float:
    """The sum of its logits."""
    return self.start_logit + self.end_logit


class Prediction(NamedTuple):
  """The answers that are predicted for a question."""

  spans: list[Span]  # The best first; "" stands for no answer.
  odds: float | None  # The score of no answer minus that of the best answer.

  @property
  def answer(self) -> Span | None:
    """The best span that is an answer, if there is one."""
    return next((s for s in self.spans if s.start is not None), None)

  def decide(self, threshold: float) -> Span | None:
    """Returns the answer; None if the odds of no answer exceed a threshold."""
    is_silent = self.odds is not None and self.odds > threshold
    return None if is_silent else self.answer


class SpanSearch:
  """Finds the answers to a question in the logits of its windows."""

  def __init__(
    self, maker: squad_features.FeatureMaker, settings: AnswerSettings
  ):
    self._settings = settings
    self._to_tokens = maker.to_tokens
    self._join = maker.join
    self._has_version_2 = maker.settings.version_2_with_negative
    # Where text has no spaces, all candidates may be of the same long words.
    basic = maker.basic_tokenizer
    self._align = functools.lru_cache(8)(lambda words: align(words, basic))

  def __call__(
    self,
    document: squad_features.Document,
    query_length: int,
    windows: Sequence[packing.Window],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
  ) -> Prediction:
    """Answers a question.

    The n best of the logits may be of the question or of padding, as in the
    original; no answer is made of those.

    Args:
      document: the context, with its tokens and words.
      query_length: the tokens of the question, which are before each window.
      windows: of the context.
      start_logits: float [W, S]; position 0 is [CLS].
      end_logits: the same for the last token of the answer.
    """
    # [CLS] and [SEP] stand around the question.
    offset = query_length + 2
    candidates = self._find(windows, offset, start_logits, end_logits)

    # Section 4.3 of the paper: no answer is a span that starts and ends at
    # [CLS]. Its score is the lowest of all windows, as in the original: a
    # window that may hold the answer counts against having none.
    null = None
    if self._has_version_2:
      scores = start_logits[:, 0].astype(float) + end_logits[:, 0]
      window = int(scores.argmin())
      null = Span(
        text="",
        start=None,
        end=None,
        start_logit=float(start_logits[window, 0]),
        end_logit=float(end_logits[window, 0]),
      )

    spans = _with_probabilities(self._list(document, candidates, null))
    prediction = Prediction(spans, _CERTAIN_ODDS if null else None)
    if null and (best := prediction.answer):
      # The order in which the original computes it, for the last digit.
      odds = null.score - best.start_logit - best.end_logit
      prediction = prediction._replace(odds=odds)
    return prediction

  def _find(self, windows, offset, start_logits, end_logits):
    """Finds the spans of tokens that may be answers.

    Returns (score, first token, last token, start logit, end logit) of each,
    the best first. Tokens are counted in the context; `offset` tokens are
    before each window.
    """
    candidates = []
    for index, window in enumerate(windows):
      # The best logits of the window that are at tokens of the context.
      shift = window.start - offset
      positions = range(offset, offset + window.length)
      starts = self._best_positions(start_logits[index], positions)
      ends = self._best_positions(end_logits[index], positions)

      for i in starts:
        # Windows overlap. An answer counts in the one where its first token has
        # the most context on both sides, as in the original.
        if not packing.is_max_context(windows, index, i + shift):
          continue
        start_logit = float(start_logits[index, i])
        for j in ends:
          if i <= j < i + self._settings.max_answer_length:
            end_logit = float(end_logits[index, j])
            score = start_logit + end_logit
            candidates.append(
              (score, i + shift, j + shift, start_logit, end_logit)
            )

    candidates.sort(key=lambda item: -item[0])  # Keeps the order of equals.
    return candidates

  def _best_positions(self, logits, positions):
    """Returns which of the n best logits are at some positions, best first."""
    order = np.argsort(-logits, kind="stable")
    best = order[: self._settings.n_best_size].tolist()
    return [position for position in best if position in positions]

  def _list(self, document, candidates, null):
    """Makes the n-best list: each text once, with its best span."""
    spans: dict[str, Span] = {}
    null_is_listed = null is None  # Or nothing is to be listed.
    for score, first, last, start_logit, end_logit in candidates:
      # The span for no answer stands before the first one with a lower score.
      if not null_is_listed and null.score > score:
        spans[""] = null
        null_is_listed = True
      if len(spans) >= self._settings.n_best_size:
        break
      start, end = self._locate(document, first, last)
      text = squad_features.SPACE_RUNS.sub(" ", document.context[start:end])
      spans.setdefault(text, Span(text, start, end, start_logit, end_logit))

    if null:
      spans.setdefault("", null)
    return list(spans.values()) or [Span(_NO_SPAN, None, None, 0.0, 0.0)]

  def _locate(self, document, first, last):
    """Returns where the characters of some tokens start and end in the context.

    If the tokens are not found in their words, it is where these do.
    """
    if self._settings.whole_word_answers:
      while first and self._continues_word(document, first):
        first -= 1
      while self._continues_word(document, last + 1):
        last += 1

    # The tokens' text lacks case and accents; the words have them.
    text = self._join(self._to_tokens(document.ids[first : last + 1]))
    begin, _ = document.words[document.word_of(first)]
    _, end = document.words[document.word_of(last)]
    words = document.context[begin:end]
    part = find_tokens(text, self._align(words))
    if part is None:
      if self._settings.verbose_logging:
        progress.note(f"note: no {text!r} found in {words!r}")
      return begin, end
    return begin + part[0], begin + part[1]

  def _continues_word(self, document, token):
    """Returns whether a token is a further piece of the word before it.

    Only WordPieces come here: other vocabularies refuse `whole_word_answers`.
    """
    pieces = self._to_tokens(document.ids[token : token + 1])
    return bool(pieces) and pieces[0].startswith("##")


class Alignment(NamedTuple):
  """Words, and the offsets of their characters after tokenization."""

  tokenized: str  # With a space between tokens.
  # The offset in the words of each character that is no space; None if
  # tokenization changed their number.
  offsets: list[int] | None


def align(words: str, tokenizer: tokenization.BasicTokenizer) -> Alignment:
  """Tokenizes words, to be searched by `find_tokens`."""
  tokenized = " ".join(tokenizer.tokenize(words))
  offsets = [i for i, c in enumerate(words) if c not in squad_features.SPACES]
  letters = len(tokenized) - tokenized.count(" ")
  return Alignment(tokenized, offsets if letters == len(offsets) else None)


def find_tokens(wanted: str, alignment: Alignment) -> tuple[int, int] | None:
  """Finds the text of some tokens in their words: its start and end there.

  Tokens, pieces joined, may be only part of a word and lack its case. If words
  have as many characters after tokenization as before, without spaces, the n-th
  after is the n-th before; None if not, or if the tokens are not found.

  >>> basic = tokenization.BasicTokenizer()
  >>> find_tokens("steve smith", align("Steve Smith's", basic))
  (0, 11)
  >>> find_tokens("steve", align("Ste\u0301ve's", basic)) is None
  True
  """
  tokenized, offsets = alignment
  start = tokenized.find(wanted)
  if offsets is None or not wanted or start < 0:
    return None

  # Counted without spaces, the characters of both correspond.
  first = start - tokenized.count(" ", 0, start)
  count = len(wanted) - wanted.count(" ")
  return offsets[first], offsets[first + count - 1] + 1


def _with_probabilities(spans: list[Span]) -> list[Span]:
  """Sets the softmax of the scores."""
  largest = max(span.score for span in spans)
  exponents = [math.exp(span.score - largest) for span in spans]
  # One by one, as the original; sum() corrects its rounding from Python 3.12.
  total = float(np.cumsum(exponents)[-1])
  return [
    span._replace(probability=exponent / total)
    for span, exponent in zip(spans, exponents, strict=True)
  ]


def describe(
  question: squad.Question, prediction: Prediction, chosen: Span | None
) -> dict[str, Any]:
  """Describes a prediction for a reader, as JSON values.

  Args:
    question: gives its id and its text.
    prediction: all answers that were found.
    chosen: the one that is given; None for no answer.

  Returns:
    id, question, answer ("" for none), probability, score, start and end (the
    answer is context[start:end] with single spaces), runners_up: the next best
    answers; no_answer_odds if questions may have no answer.
  """
  runners_up = [
    span
    for span in prediction.spans
    if span.start is not None and span != chosen
  ]

  # No answer has a probability, too, if it is in the list.
  if not chosen:
    unknown = Span("", None, None, 0.0, 0.0)
    chosen = next((s for s in prediction.spans if not s.text), unknown)

  row: dict[str, Any] = {
    "id": question.question_id,
    "question": question.text,
    **_as_answer(chosen),
  }
  if prediction.odds is not None:
    row["no_answer_odds"] = prediction.odds
  row["runners_up"] = [_as_answer(span) for span in runners_up[:4]]
  return row


def _as_answer(span: Span) -> dict[str, Any]:
  names = ("probability", "score", "start", "end")
  return {"answer": span.text, **{name: getattr(span, name) for name in names}}
