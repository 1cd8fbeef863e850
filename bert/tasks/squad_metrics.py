"""Scores of answers that are parts of a text, by the rules of SQuAD.

The rules are those of the official evaluate-v1.1.py and evaluate-v2.0.py
(https://rajpurkar.github.io/SQuAD-explorer/). They compare words between
spaces. Other languages need other units, see `UNITS`:

- Korean puts spaces, but its words carry particles and endings, so that an
  answer is rarely the same word. KorQuAD 1.0 (https://arxiv.org/abs/1909.07005)
  compares all characters.
- Chinese, Japanese and Thai have no spaces. Their characters are compared, and
  words of ASCII, as in MLQA (https://arxiv.org/abs/1910.07475, section 4.2).
"""

import collections
from collections.abc import Sequence
import re
import string
from typing import NamedTuple
import unicodedata

import numpy as np
from numpy.typing import ArrayLike

from bert.tasks import squad_features

# What two answers have in common is counted in these units, by name.
UNITS = {
  "words": "words, as SQuAD does",
  "characters": "characters, as KorQuAD does",
  "mixed": "characters and words of ASCII, as MLQA does",
}

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# KorQuAD puts a space for brackets and quotes, and nothing for other
# punctuation. What is not listed here stays, such as \u300c and \u300d.
_KOREAN_PUNCTUATION = str.maketrans(
  dict.fromkeys(string.punctuation, "")
  | dict.fromkeys("\"'()<>\u2018\u2019\u3008\u3009\u300a\u300b", " ")
)

_LETTERS = re.compile(r"[^\W\d_]")
# Syllables, and their parts, which are letters, too.
_KOREAN = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3]")
# Japanese (kana; half-width, too), and Thai, Lao, Burmese and Khmer, besides
# the characters that `squad_features` calls Chinese.
_UNSPACED = re.compile(
  "[\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
  "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff]"
)


def choose_units(context: str, answer_units: str = "auto") -> str:
  r"""Returns in which of UNITS answers about a text are compared.

  A text is Chinese if `squad_features.is_unspaced` says so; Korean if most of
  its words between spaces hold Korean letters; Japanese, Thai and so on if most
  of its letters are.

  Args:
    context: the text.
    answer_units: "words" or "characters", whatever the text is, or "auto".

  >>> choose_units("\uc11c\uc6b8 is big"), choose_units("\uc11c\uc6b8")
  ('words', 'characters')
  >>> choose_units("\u5317\u4eac\u3002"), choose_units("\u0e44\u0e17\u0e22")
  ('mixed', 'mixed')
  """
  if answer_units != "auto":
    return answer_units
  if context.isascii():
    return "words"
  if squad_features.is_unspaced(context):
    return "mixed"

  # Words, not letters: a Korean syllable is one letter, and "KBS" has three.
  words = context.split()
  if sum(map(bool, map(_KOREAN.search, words))) > len(words) / 2:
    return "characters"
  letters = len(_LETTERS.findall(context))
  is_unspaced = len(_UNSPACED.findall(context)) > letters / 2
  return "mixed" if is_unspaced else "words"


def normalize_answer(text: str, units: str = "words") -> str:
  """Returns an answer without case, punctuation, articles and extra spaces.

  Args:
    text: the answer.
    units: one of UNITS. Only among "words" there are articles. "mixed" puts a
      space between characters, and all of Unicode's punctuation counts.

  >>> normalize_answer("The  U.S. Army, a force")
  'us army force'
  >>> normalize_answer("\u4e2d\u6587\u3002", "mixed")
  '\u4e2d \u6587'
  """
  text = text.lower()
  if units == "characters":
    text = text.translate(_KOREAN_PUNCTUATION)
  elif units == "mixed":
    text = text.translate(_PUNCTUATION)
    kept = (c for c in text if not unicodedata.category(c).startswith("P"))
    text = "".join(c if c.isascii() else f" {c} " for c in kept)
  else:
    text = _ARTICLES.sub(" ", text.translate(_PUNCTUATION))
  return " ".join(text.split())


class AnswerScores(NamedTuple):
  """How close an answer is to the closest of those that people gave."""

  exact_match: float  # 1 or 0.
  f1: float  # From 0 to 1.


def score_answer(
  answer: str,
  truths: Sequence[str],
  version_2: bool = False,
  units: str = "words",
) -> AnswerScores:
  """Scores an answer by the truth that it is closest to.

  Args:
    answer: "" for no answer.
    truths: the answers that people gave.
    version_2: whether a question may have no answer, as in SQuAD 2.0. Without a
      truth, "" is then right.
    units: one of UNITS.
  """
  # F1 counts no spaces; two answers that match exactly have the same, too.
  split = _split_characters if units == "characters" else str.split
  answers = [normalize_answer(truth, units) for truth in truths]
  # A truth of articles and punctuation alone does not count in v2.0.
  if version_2:
    answers = list(filter(None, answers)) or [""]
  given = normalize_answer(answer, units)
  return AnswerScores(
    max(float(given == truth) for truth in answers),
    max(_f1(split(given), split(truth), version_2) for truth in answers),
  )


def _split_characters(answer: str) -> list[str]:
  return list(answer.replace(" ", ""))


def _f1(given: list[str], wanted: list[str], version_2: bool) -> float:
  """Returns the F1 of the units of an answer, from 0 to 1."""
  # The two official programs differ here: only v2.0's takes two empty answers
  # for equal.
  if version_2 and not (given and wanted):
    return float(given == wanted)
  common = (collections.Counter(given) & collections.Counter(wanted)).total()
  if not common:
    return 0.0
  precision = common / len(given)
  recall = common / len(wanted)
  return 2 * precision * recall / (precision + recall)


def answer_metrics(scores: Sequence[AnswerScores]) -> dict[str, float]:
  """Returns the means in percent, as SQuAD v1.1 reports them.

  They are exact_match and f1; there must be a score.
  """
  # np.mean adds in another order, with other last digits.
  totals = np.cumsum(scores, axis=0)[-1]
  exact_match, f1 = (100.0 * float(total) / len(scores) for total in totals)
  return {"exact_match": exact_match, "f1": f1}


class ScoredAnswer(NamedTuple):
  """The best answer to a question, and its scores and those of no answer."""

  text: str  # "" if nothing can be an answer.
  answered: AnswerScores
  silent: AnswerScores
  odds: float | None  # Odds of no answer; None if there always is one.
  has_answer: bool
  units: str = "words"  # One of UNITS.

  def is_silent(self, threshold: float) -> bool:
    """Returns whether no answer is given; see `Prediction.decide`."""
    return self.odds is not None and self.odds > threshold

  def scores(self, threshold: float) -> AnswerScores:
    """Returns the scores of the answer, or of giving none."""
    return self.silent if self.is_silent(threshold) else self.answered


def score(
  answers: Sequence[ScoredAnswer], threshold: float
) -> dict[str, float]:
  """Scores answers in percent as SQuAD does: exact_match and f1.

  If questions may have no answer, as in v2.0, also the same beginning with
  has_answer_ and no_answer_ for the questions with and without an answer, where
  there are any; best_f1 and best_f1_threshold, and the same of exact_match: the
  best score of any threshold of the odds, and that threshold. The official
  program searches what an earlier threshold leaves; this one searches all.
  """
  given = [answer.scores(threshold) for answer in answers]
  metrics = answer_metrics(given)
  odds = [answer.odds for answer in answers if answer.odds is not None]
  if not odds:
    return metrics

  # The same for the questions with an answer and for the questions without.
  has_answer = [answer.has_answer for answer in answers]
  for name, wanted in (("has_answer", True), ("no_answer", False)):
    pairs = zip(given, has_answer, strict=True)
    if part := [scores for scores, has in pairs if has == wanted]:
      for key, value in answer_metrics(part).items():
        metrics[f"{name}_{key}"] = value

  # The best that any threshold could give with these predictions.
  for key in ("exact_match", "f1"):
    values = [getattr(answer.answered, key) for answer in answers]
    best, best_at = best_threshold(values, odds, has_answer)
    metrics |= {f"best_{key}": best, f"best_{key}_threshold": best_at}
  return metrics


def best_threshold(
  scores: ArrayLike, odds: ArrayLike, has_answer: ArrayLike
) -> tuple[float, float]:
  """Finds up to which odds of no answer it is best to answer.

  Args:
    scores: of the answers, from 0 to 1, [N]. They do not count where a question
      has no answer.
    odds: of no answer, [N].
    has_answer: whether a question has one, [N].

  Returns:
    The best mean of the scores in percent; and the lowest threshold that gives
    it: one of the odds, or 1 below all of them if nothing should be answered.
  """
  scores = np.asarray(scores, float)
  odds = np.asarray(odds, float)
  has_answer = np.asarray(has_answer, bool)

  # From the lowest threshold on, one question more is answered at a time.
  order = np.argsort(odds, kind="stable")
  # Answering wins a score where there is an answer, and loses 1 where not.
  gains = np.where(has_answer, scores, -1.0)[order]
  silent = np.count_nonzero(~has_answer)

  # One by one, from no answer at all, as the official program adds them.
  totals = np.append(silent, gains).cumsum()
  sorted_odds = np.append(odds.min() - 1.0, odds[order])
  # Equal odds get the same decision.
  last = np.flatnonzero(np.append(np.diff(sorted_odds) > 0, True))
  best = last[totals[last].argmax()]
  return 100.0 * float(totals[best]) / len(odds), float(sorted_odds[best])
