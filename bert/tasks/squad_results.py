"""Answers of run_squad.py: their scores, files, threshold, and the report."""

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
import contextlib
import functools
import json
import math
import os
import pickle
import re
import tempfile
from typing import Any, NamedTuple

import numpy as np

from bert.data import atomic, files, label_files, progress
from bert.report import metrics, plots
from bert.tasks import squad, squad_answers, squad_metrics

_THRESHOLD = "null_score_diff_threshold"
_QUESTION_WORDS = re.compile(
  r"\b(how many|how much|how|what|when|where|which|whom|whose|who|why)\b"
  r"|什么时候|什么|为何|谁|哪|怎|多少|几|何"
)
_LENGTHS = ("no answer", "1", "2", "3 to 5", "6 to 10", "more than 10")


class QuestionResult(NamedTuple):
  """A question and its prediction."""

  question: squad.Question
  prediction: squad_answers.Prediction
  scored: squad_metrics.ScoredAnswer | None  # None: not all answers are known.


class SquadScores(NamedTuple):
  """The scores of the answers to all questions, and what report.html needs."""

  totals: dict[str, float]
  answers: list[squad_metrics.AnswerScores]
  kinds: list[tuple[str, str]]  # `question_word` and `answer_length` of each.
  units: str  # How answers were compared, for a reader.


def score_prediction(
  question: squad.Question,
  prediction: squad_answers.Prediction,
  answer_units: str = "auto",
) -> squad_metrics.ScoredAnswer:
  """Compares a prediction with the answers, which are known.

  Args:
    question: with its context.
    prediction: the answers that are predicted for it.
    answer_units: see `squad_metrics.choose_units`.
  """
  # Without an answer, the text to compare is "".
  truths = [answer.text for answer in question.answers or ()]
  text = prediction.answer.text if prediction.answer else ""

  # Scored with the answer and without, for thresholds to be compared later.
  units = squad_metrics.choose_units(question.context, answer_units)
  score = functools.partial(
    squad_metrics.score_answer,
    truths=truths,
    version_2=prediction.odds is not None,
    units=units,
  )
  return squad_metrics.ScoredAnswer(
    text, score(text), score(""), prediction.odds, bool(truths), units
  )


def warn_if_collapsed(
  answers: Sequence[squad_metrics.ScoredAnswer], threshold: float
) -> None:
  """Warns if all questions get the same answer, wrong for some."""
  texts = {"" if a.is_silent(threshold) else a.text for a in answers}
  is_right = all(answer.scores(threshold).exact_match for answer in answers)

  # All answers alike may be right, such as none for unanswerable questions.
  if len(answers) > 1 and len(texts) == 1 and not is_right:
    text = texts.pop()
    given = f"the answer {text!r}" if text else "no answer"
    progress.note(
      f"collapsed: every question gets {given}; {metrics.COLLAPSE_CURES}"
    )


class Spool:
  """Items that are computed once and kept on the disk, to be read again."""

  def __init__(self, items: Iterable[Any], folder: str):
    with atomic.naming_full_disk(folder):
      self._file = tempfile.TemporaryFile(dir=folder)
      for item in items:
        pickle.dump(item, self._file)
      self._file.flush()

  def __iter__(self) -> Iterator[Any]:
    self._file.seek(0)
    with contextlib.suppress(EOFError):
      while True:
        # A file without a name, which only this process can have written.
        yield pickle.load(self._file)  # noqa: S301


def parse_threshold(value: str) -> float | None:
  """Reads --null_score_diff_threshold; None for "auto", to be tuned."""
  if value.strip().lower() == "auto":
    return None

  # No odds exceed NaN: it would silently mean that every question is answered.
  with contextlib.suppress(ValueError):
    number = float(value)
    if not math.isnan(number):
      return number
  raise ValueError(
    f"--null_score_diff_threshold={value}: expected a number, or auto"
  )


def has_threshold(folders: Iterable[str]) -> bool:
  """Returns whether a run tuned a threshold, for any weights."""
  paths = (os.path.join(f, label_files.ANSWER_THRESHOLD) for f in folders)
  return any(map(files.exists, paths))


def tune_threshold(tuning: Iterable[QuestionResult]) -> float:
  """Returns the threshold with the best F1 for questions of known answers."""
  answers = [result.scored for result in tuning if result.scored]
  return squad_metrics.score(answers, 0.0)["best_f1_threshold"]


def write_threshold(folder: str, threshold: float, weights: str) -> None:
  """Writes a tuned threshold for later runs.

  Args:
    folder: gets the file.
    threshold: from `tune_threshold`.
    weights: the checksum of the weights that answered. Later runs take the
      threshold only for these.
  """
  path = os.path.join(folder, label_files.ANSWER_THRESHOLD)
  label_files.write_tuned(path, weights, {_THRESHOLD: threshold})


def read_threshold(
  folders: Iterable[str], identify: Callable[[], str]
) -> label_files.Tuned | None:
  """Reads the threshold that a run tuned; see `label_files.read_tuned`."""
  name = label_files.ANSWER_THRESHOLD
  return label_files.read_tuned(folders, name, [_THRESHOLD], identify)


def choose_threshold(
  flag: str, prefers_tuned: bool, tuned: label_files.Tuned | None
) -> float:
  """Returns the threshold to answer by: the flag's, or a tuned one.

  Args:
    flag: the value of --null_score_diff_threshold.
    prefers_tuned: whether a tuned threshold counts more than the flag.
    tuned: from `read_threshold`; None if none was tuned for these weights.

  Raises:
    ValueError: the flag is "auto", but no threshold was tuned.
  """
  # `given` is None for auto.
  given = parse_threshold(flag)
  if tuned:
    path, [threshold] = tuned
    if prefers_tuned:
      print(f"--{_THRESHOLD}={threshold:.4f}, as {path} says")
      return threshold

    # The number on the command line wins here, but an export knows only the
    # file.
    if threshold != given:
      progress.note(
        f"note: this run answers by --{_THRESHOLD}={given}; exports of its "
        f"folder have the tuned one of {path}, {threshold:.4f}"
      )

  if given is None:
    raise ValueError(
      f"--{_THRESHOLD}=auto: no threshold was tuned for these weights, and not "
      "all answers to the questions are known: pass --eval_file to tune one"
    )
  return given


def write_predictions(
  folder: str,
  results: Iterable[QuestionResult],
  threshold: float,
  version_2: bool,
) -> SquadScores | None:
  """Writes predictions as they come, so that memory never holds all of them.

  Args:
    folder: gets the original's files and predictions.jsonl, a readable one.
    results: of all questions, in their order.
    threshold: no answer is given where its odds are above this.
    version_2: whether questions may have no answer.

  Returns:
    The scores, or None if not all answers are known.
  """
  # In SQuAD 1.1 there are no odds of having no answer. A file of them, from an
  # earlier run, would be taken for this one's.
  names = ["predictions.jsonl", "predictions.json", "nbest_predictions.json"]
  if version_2:
    names.append("null_odds.json")
  else:
    files.remove(os.path.join(folder, "null_odds.json"))
  paths = [os.path.join(folder, name) for name in names]

  answers = []
  kinds = []
  separator = "{\n"

  # All files get their names together, when the last question is written.
  with (
    atomic.replace_all_on_success(paths) as temporaries,
    contextlib.ExitStack() as stack,
  ):
    readable, *objects = (
      stack.enter_context(files.open_for_writing(path)) for path in temporaries
    )

    for question, prediction, scored in results:
      chosen = prediction.decide(threshold)

      # The original's files are one JSON object each. These are the lines that
      # json.dumps(..., indent=4) would make of all entries at once. Without
      # null_odds.json, the last entry has no file.
      entries = _as_entries(prediction, chosen)
      for output, entry in zip(objects, entries, strict=False):
        lines = json.dumps({question.question_id: entry}, indent=4)[2:-2]
        output.write((separator + lines).encode())
      separator = ",\n"

      row = squad_answers.describe(question, prediction, chosen)
      readable.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
      if scored:
        answers.append(scored)
        kinds.append((question_word(question.text), answer_length(question)))

    is_empty = separator == "{\n"
    for output in objects:
      output.write(b"{}\n" if is_empty else b"\n}\n")

  for path in paths:
    print(f"wrote {path}")
  return _write_scores(folder, answers, kinds, threshold) if answers else None


def _write_scores(folder, answers, kinds, threshold) -> SquadScores:
  """Scores all answers, and writes predict_metrics.json."""
  totals = squad_metrics.score(answers, threshold)
  counts = collections.Counter(answer.units for answer in answers)
  metrics.write_metrics(folder, "predict", totals, answer_units=counts)

  # The same answers have another F1 in other units.
  units = "answers compared: " + "; ".join(
    f"{count:,} by {squad_metrics.UNITS[name]}"
    for name, count in counts.most_common()
  )
  print(units)
  warn_if_collapsed(answers, threshold)
  scores = [answer.scores(threshold) for answer in answers]
  return SquadScores(totals, scores, kinds, units)


def _as_entries(prediction, chosen) -> list[Any]:
  """Returns the entries of the original's files: answer, n-best list, odds."""
  text = chosen.text if chosen else ""
  # Where every question has an answer, "" would be one that no text gave.
  if prediction.odds is None and not chosen:
    text = prediction.spans[0].text  # The original's word for it.

  names = ("text", "probability", "start_logit", "end_logit")
  nbest = [
    {name: getattr(span, name) for name in names} for span in prediction.spans
  ]
  return [text, nbest, prediction.odds]


# The section of report.html.


def question_word(text: str) -> str:
  """Returns the first word that asks, or "other".

  >>> question_word("In how many years?"), question_word("Name it.")
  ('how many', 'other')
  """
  match = _QUESTION_WORDS.search(text.lower())
  return match[0] if match else "other"


def answer_length(question: squad.Question) -> str:
  """Returns the range of the length of the shortest true answer.

  It counts words, or characters of a language whose answers are compared by
  them.
  """
  counts = [
    len(text.split() if squad_metrics.choose_units(text) == "words" else text)
    for text, _ in question.answers or ()
  ]

  # The longest answers of each of _LENGTHS but the last.
  limits = np.array([0, 1, 2, 5, 10])
  return _LENGTHS[np.searchsorted(limits, min(counts, default=0))]


def describe(scores: SquadScores) -> str:
  """Describes scores in HTML: of all, by question word, by answer length."""
  # Words that ask come in the order of how often they do.
  words, lengths = zip(*scores.kinds, strict=True)
  frequent = [word for word, _ in collections.Counter(words).most_common()]

  # Chinese, for example, puts no spaces between words.
  unit = "words or characters"
  parts = [
    plots.number_table(scores.totals),
    f"<p>{scores.units}</p>",
    "<h3>By question word</h3>",
    _make_table("question", frequent, words, scores.answers),
    "<h3>By length of the shortest true answer</h3>",
    _make_table(unit, _LENGTHS, lengths, scores.answers),
  ]
  return "\n".join(parts)


def _make_table(title, names, kinds, scores) -> str:
  """Averages the scores of questions by their kind, in the order of names."""
  # Percents, as SQuAD's scores are.
  exact_matches, f1s = 100.0 * np.array(scores).T
  averages = metrics.average_groups(np.array(kinds), exact_matches, f1s)
  rows = sorted(averages, key=lambda row: names.index(row[0]))
  header = (title, "questions", "exact match", "F1")
  return plots.score_table(header, rows, best=100.0)
