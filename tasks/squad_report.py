"""How well questions are answered, by their kind, for report.html."""

from collections.abc import Mapping
import re

import numpy as np

from tasks import plots
from tasks import squad
from tasks import squad_features
from tasks import squad_metrics

_QUESTION_WORDS = re.compile(
  r"\b(how many|how much|how|what|when|where|which|whom|whose|who|why)\b"
  r"|什么时候|什么|为何|谁|哪|怎|多少|几|何"
)
_LENGTHS = ("no answer", "1", "2", "3 to 5", "6 to 10", "more than 10")


def question_word(text: str) -> str:
  """Returns the first word that asks, or "other".

  >>> question_word("In how many years?"), question_word("Name it.")
  ('how many', 'other')
  """
  found = _QUESTION_WORDS.search(text.lower())
  return found[0] if found else "other"


def answer_length(question: squad.Question) -> str:
  """Returns the range that the length of the shortest true answer is in."""
  texts = [answer.text for answer in question.answers]
  counts = [
    len(text) if squad_features.is_unspaced(text) else len(text.split())
    for text in texts
  ]
  limits = np.array([0, 1, 2, 5, 10])
  return _LENGTHS[np.searchsorted(limits, min(counts, default=0))]


class Breakdown:
  """Mean scores by question word and by length of the answer."""

  def __init__(self):
    # Of each word and length: questions, sums of exact match and of F1.
    self._words: dict[str, np.ndarray] = {}
    self._lengths: dict[str, np.ndarray] = {}

  def add(
    self, question: squad.Question, scores: squad_metrics.AnswerScores
  ) -> None:
    """Takes the scores of what is predicted for a question."""
    for sums, name in (
      (self._words, question_word(question.text)),
      (self._lengths, answer_length(question)),
    ):
      sums[name] = sums.get(name, 0) + np.array([1, *scores])

  def describe(self, scores: Mapping[str, float]) -> str:
    """Describes the answers, and the scores of all, in HTML."""
    words = sorted(self._words, key=lambda name: -self._words[name][0])
    lengths = filter(self._lengths.__contains__, _LENGTHS)
    return "\n".join(
      [
        plots.number_table(scores),
        "<h3>By question word</h3>",
        _make_table("question", words, self._words),
        "<h3>By length of the shortest true answer</h3>",
        _make_table("words or Chinese characters", lengths, self._lengths),
      ]
    )


def _make_table(title, names, sums) -> str:
  rows = (
    [name, int(sums[name][0]), *(100.0 * sums[name][1:] / sums[name][0])]
    for name in names
  )
  header = (title, "questions", "exact match", "F1")
  return plots.score_table(header, rows, best=100.0)
