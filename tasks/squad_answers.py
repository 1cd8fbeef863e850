"""From start and end logits to answers, and to the files they are written to.

Answers are the original's: its n-best lists, its way back from tokens to the
text, its odds of there being no answer. Shapes: W windows of a question, S
tokens.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import json
import math
import re
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from data import files
from tasks import squad
from tasks import squad_features
import tokenization

# The original's name for an answer where no part of the text can be one.
_NO_SPAN = "empty"
# The odds of no answer where nothing can be answered. Its number for "no odds
# found yet" was this, too.
_CERTAIN_ODDS = 1_000_000.0
_RUNNERS_UP = 4
_SPACE = re.compile(r"[ \t\r\n\u202f]+")


@dataclasses.dataclass(frozen=True)
class Settings:
  """How to choose an answer."""

  n_best_size: int  # Starts and ends to combine in a window; answers to keep.
  max_answer_length: int  # Tokens.
  version_2_with_negative: bool
  do_lower_case: bool


class Span(NamedTuple):
  """A part of a context that may be the answer."""

  text: str
  start: int | None  # Characters of the context: context[start:end]. None if
  end: int | None  # it is no part of it, as no answer is not.
  start_logit: float
  end_logit: float
  probability: float = 0.0  # Among the spans of the question.

  @property
  def score(self) -> float:
    """The sum of its logits."""
    return self.start_logit + self.end_logit


class Prediction(NamedTuple):
  """What is predicted for a question."""

  spans: list[Span]  # The best first; "" stands for no answer.
  odds: float | None  # Of no answer: its score less the best answer's.

  @property
  def answer(self) -> Span | None:
    """The best span that is an answer, if there is one."""
    return next((s for s in self.spans if s.start is not None), None)

  def decide(self, threshold: float) -> Span | None:
    """Returns the answer, or None if the odds of there being none are above.

    Args:
      threshold: only used for questions that may have no answer.
    """
    is_silent = self.odds is not None and self.odds > threshold
    return None if is_silent else self.answer


class Answerer:
  """Finds the answers to a question in the logits of its windows."""

  def __init__(
    self,
    settings: Settings,
    tokens: Callable[[Sequence[int]], list[str]],
    on_failure: Callable[[str], None] | None = None,
  ):
    """Stores how to answer.

    Args:
      settings: how to choose.
      tokens: from ids to tokens.
      on_failure: told which words an answer could not be cut out of.
    """
    self._settings, self._tokens = settings, tokens
    self._basic_tokenizer = tokenization.BasicTokenizer(settings.do_lower_case)
    self._on_failure = on_failure

  def __call__(
    self,
    document: squad_features.Document,
    query_length: int,
    windows: Sequence[squad_features.Window],
    start_logits: np.ndarray,
    end_logits: np.ndarray,
  ) -> Prediction:
    """Answers a question.

    Args:
      document: the text.
      query_length: tokens of the question before each window.
      windows: of the text.
      start_logits, end_logits: float [W, S], of the tokens of each window and
        of padding: among the best that are combined, what is no part of the
        text takes up a place to no end, as in the original.
    """
    found = self._find(windows, query_length + 2, start_logits, end_logits)
    null = None
    if self._settings.version_2_with_negative:
      scores = start_logits[:, 0].astype(float) + end_logits[:, 0]
      first = int(scores.argmin())
      null = Span(
        "",
        None,
        None,
        float(start_logits[first, 0]),
        float(end_logits[first, 0]),
      )
    spans = self._list(document, found, null)
    odds = None
    if null:
      best = next((s for s in spans if s.start is not None), None)
      odds = _CERTAIN_ODDS
      if best:
        # In this order, for the last digit.
        odds = null.score - best.start_logit - best.end_logit
    return Prediction(_with_probabilities(spans), odds)

  def _find(self, windows, offset, start_logits, end_logits):
    """Returns (score, start, end, logits) of spans of tokens, best first."""
    found = []
    for index, window in enumerate(windows):
      length = offset + window.length + 1
      starts = self._best_indices(start_logits[index])
      ends = self._best_indices(end_logits[index])
      starts = [
        i
        for i in starts
        if offset <= i < length - 1
        and squad_features.is_max_context(
          windows, index, window.start + i - offset
        )
      ]
      longest = self._settings.max_answer_length
      ends = [i for i in ends if offset <= i < length - 1]
      shift = window.start - offset
      for i in starts:
        start_logit = float(start_logits[index, i])
        for j in ends:
          if i <= j < i + longest:
            end_logit = float(end_logits[index, j])
            score = start_logit + end_logit
            found.append((score, i + shift, j + shift, start_logit, end_logit))
    found.sort(key=lambda item: -item[0])  # Keeps the order of equals.
    return found

  def _best_indices(self, logits):
    order = np.argsort(-logits, kind="stable")
    return order[: self._settings.n_best_size].tolist()

  def _list(self, document, found, null):
    """Makes the n-best list: each text once, with its best span."""
    spans: dict[str, Span] = {}
    is_ranked = null is None
    for candidate in found:
      if not is_ranked and null.score > candidate[0]:
        spans[""], is_ranked = null, True
      if len(spans) >= self._settings.n_best_size:
        break
      span = self._make_span(document, candidate)
      spans.setdefault(span.text, span)
    if null:
      spans.setdefault("", null)
    return list(spans.values()) or [Span(_NO_SPAN, None, None, 0.0, 0.0)]

  def _make_span(self, document, candidate):
    _, first, last, start_logit, end_logit = candidate
    start, end = self._locate(document, first, last)
    text = _one_spaced(document.context[start:end])
    return Span(text, start, end, start_logit, end_logit)

  def _locate(self, document, first, last):
    """Returns the characters that tokens were made from, or their words."""
    tokens = " ".join(self._tokens(document.ids[first : last + 1]))
    wanted = " ".join(tokens.replace(" ##", "").replace("##", "").split())
    begin = document.word_starts[document.word_of(first)]
    end = document.word_ends[document.word_of(last)]
    source = document.context[begin:end]
    words = _one_spaced(source)
    part = find_final_text(wanted, words, self._basic_tokenizer)
    if part is None:
      if self._on_failure:
        self._on_failure(f"no {wanted!r} found in {words!r}")
      return begin, end
    if words == source:
      return begin + part[0], begin + part[1]
    return (
      begin + _source_offset(source, part[0]),
      begin + _source_offset(source, part[1] - 1) + 1,
    )


def _one_spaced(text):
  return _SPACE.sub(" ", text)


def _source_offset(source, offset):
  """Returns where a character was before runs of spaces became one each."""
  for match in _SPACE.finditer(source):
    if match.start() >= offset:
      break
    offset += match.end() - match.start() - 1
  return offset


def find_final_text(
  wanted: str, words: str, tokenizer: tokenization.BasicTokenizer
) -> tuple[int, int] | None:
  """Cuts an answer out of the words that its tokens are of.

  Tokens may be part of a word and have lost its case and accents: of the words
  "Steve Smith's" the tokens "steve smith" are "Steve Smith". The words are
  tokenized and searched for the answer; if that changed nothing but spaces
  and letters one by one, characters that are not spaces correspond.

  Args:
    wanted: tokens with a space between two words.
    words: the source.
    tokenizer: how the tokens were made.

  Returns:
    The start and end of the answer in the words; None if it is not to be found
    or the characters do not correspond. All words are the answer then.

  >>> basic = tokenization.BasicTokenizer()
  >>> find_final_text("steve smith", "Steve Smith's", basic)
  (0, 11)
  >>> find_final_text("steve", "Ste\u0301ve's", basic) is None
  True
  """
  tokenized = " ".join(tokenizer.tokenize(words))
  start = tokenized.find(wanted)
  if start < 0 or not wanted:
    return None
  places = [i for i, char in enumerate(words) if char != " "]
  letters = len(tokenized) - tokenized.count(" ")
  if letters != len(places):
    return None
  first = start - tokenized.count(" ", 0, start)
  count = len(wanted) - wanted.count(" ")
  return places[first], places[first + count - 1] + 1


def _with_probabilities(spans: list[Span]) -> list[Span]:
  """Sets the softmax of the scores."""
  largest = max(span.score for span in spans)
  exponents = [math.exp(span.score - largest) for span in spans]
  total = sum(exponents)
  return [
    span._replace(probability=exponent / total)
    for span, exponent in zip(spans, exponents, strict=True)
  ]


class _JsonObject:
  """Writes a JSON object entry by entry, as json.dumps(..., indent=4) would."""

  def __init__(self, output: BinaryIO):
    self._output, self._separator = output, "{\n"

  def add(self, key: str, value: Any) -> None:
    entry = json.dumps({key: value}, indent=4)[2:-2]
    self._output.write((self._separator + entry).encode())
    self._separator = ",\n"

  def close(self) -> None:
    is_empty = self._separator == "{\n"
    self._output.write(b"{}\n" if is_empty else b"\n}\n")


class Writer:
  """Writes predictions as they come: the original's files, a readable one.

  Args:
    outputs: the open files, by the keys of `paths`.
    threshold: see `Prediction.decide`.
  """

  def __init__(
    self, outputs: dict[str, BinaryIO], threshold: float, as_table: bool
  ):
    self._objects = {
      name: _JsonObject(output)
      for name, output in outputs.items()
      if name != "readable"
    }
    self._readable, self._threshold = outputs["readable"], threshold
    self._as_table = as_table
    if as_table:
      self._write_row(_TABLE_HEADER)

  def add(self, question: squad.Question, prediction: Prediction) -> None:
    """Writes a prediction."""
    name = question.question_id
    chosen = prediction.decide(self._threshold)
    text = chosen.text if chosen else ""
    if prediction.odds is None and not chosen:
      text = prediction.spans[0].text  # The original's word for it.
    self._objects["predictions"].add(name, text)
    self._objects["nbest"].add(name, list(map(_as_entry, prediction.spans)))
    if prediction.odds is not None:
      self._objects["null_odds"].add(name, prediction.odds)
    row = describe(question, prediction, chosen)
    if self._as_table:
      self._write_row(_as_cells(row))
    else:
      self._write_line(json.dumps(row, ensure_ascii=False))

  def _write_row(self, cells):
    # The columns of a TSV file are split at every tab, its rows at newlines.
    self._write_line("\t".join(" ".join(str(cell).split()) for cell in cells))

  def _write_line(self, line):
    self._readable.write((line + "\n").encode())

  def close(self) -> None:
    """Writes what the files end in."""
    for object_ in self._objects.values():
      object_.close()


_TABLE_HEADER = (
  "id",
  "question",
  "answer",
  "probability",
  "score",
  "start",
  "end",
  "no_answer_odds",
  "runners_up",
)


@contextlib.contextmanager
def open_writer(paths: dict[str, str], threshold: float) -> Iterator[Writer]:
  """Opens files for predictions, which appear whole or not at all.

  Args:
    paths: "predictions", "nbest" and, for questions that may have no answer,
      "null_odds" are JSON files of the original's; "readable" ends in .jsonl
      or .tsv.
    threshold: see `Prediction.decide`.
  """
  with contextlib.ExitStack() as stack:
    temporary = stack.enter_context(
      files.replace_all_on_success(list(paths.values()))
    )
    outputs = {}
    with contextlib.ExitStack() as open_files:
      for name, path in zip(paths, temporary, strict=True):
        output = files.open_for_writing(path)
        outputs[name] = open_files.enter_context(output)
      as_table = paths["readable"].endswith(".tsv")
      writer = Writer(outputs, threshold, as_table)
      yield writer
      writer.close()


def _as_entry(span: Span) -> dict[str, Any]:
  """Returns an entry of the original's n-best lists."""
  names = ("text", "probability", "start_logit", "end_logit")
  return {name: getattr(span, name) for name in names}


def describe(
  question: squad.Question, prediction: Prediction, chosen: Span | None
) -> dict[str, Any]:
  """Returns what a reader wants to know of a prediction.

  Args:
    question: what was asked.
    prediction: of its answer.
    chosen: the answer, None for none.

  Returns:
    id, question, answer ("" for none), probability, score, start and end (the
    answer is context[start:end], but for runs of whitespace in it), runners_up:
    the next best answers; no_answer_odds if there may be none.
  """
  others = [s for s in prediction.spans if s.start is not None and s != chosen]
  row = {"id": question.question_id, "question": question.text}
  if chosen:
    row |= _as_answer(chosen)
  else:
    null = next((s for s in prediction.spans if not s.text), None)
    row |= {"answer": ""}
    row["probability"] = null.probability if null else 0.0
    row |= {"score": null.score if null else 0.0, "start": None, "end": None}
  if prediction.odds is not None:
    row["no_answer_odds"] = prediction.odds
  row["runners_up"] = [_as_answer(span) for span in others[:_RUNNERS_UP]]
  return row


def _as_answer(span: Span) -> dict[str, Any]:
  return {
    "answer": span.text,
    "probability": span.probability,
    "score": span.score,
    "start": span.start,
    "end": span.end,
  }


def _as_cells(row: dict[str, Any]) -> list[Any]:
  others = " | ".join(other["answer"] for other in row["runners_up"])
  cells = [row.get(name) for name in _TABLE_HEADER[:-1]]
  return ["" if cell is None else cell for cell in cells] + [others]
