"""What a run of run_squad.py leaves: answers, their scores, the threshold."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import math
import os
import pickle
import sys
import tempfile
from typing import Any, NamedTuple

from data import atomic
from data import files
from tasks import metrics
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_metrics

_TUNED = "eval_best_f1_threshold"
# What only some runs write.
_FILES = ("predictions.tsv", "predictions.jsonl", "null_odds.json")
TUNED_FILE = "null_score_diff_threshold.json"


class Judgement(NamedTuple):
  """Scores of the best answer to a question and of giving no answer."""

  text: str  # The best answer; "" if nothing can be one.
  answered: squad_metrics.AnswerScores
  silent: squad_metrics.AnswerScores
  odds: float | None  # Of no answer; None: there always is one.
  has_answer: bool

  def is_silent(self, threshold: float) -> bool:
    """Tells whether no answer is given; see `Prediction.decide`."""
    return self.odds is not None and self.odds > threshold

  def scores(self, threshold: float) -> squad_metrics.AnswerScores:
    """Returns the scores of what is given, an answer or none."""
    return self.silent if self.is_silent(threshold) else self.answered


class Answered(NamedTuple):
  """A question and what is predicted."""

  question: squad.Question
  prediction: squad_answers.Prediction
  judgement: Judgement | None  # None: not all answers are known.


def judge(
  question: squad.Question,
  context: str,
  prediction: squad_answers.Prediction,
) -> Judgement:
  """Compares a prediction with the answers, which are known."""
  truths = [answer.text for answer in question.answers]
  best = prediction.answer
  text = best.text if best else ""
  may_be_silent = prediction.odds is not None
  is_unspaced = squad_features.is_unspaced(context)
  answered, silent = (
    squad_metrics.score_answer(given, truths, may_be_silent, is_unspaced)
    for given in (text, "")
  )
  return Judgement(text, answered, silent, prediction.odds, bool(truths))


def score(
  judgements: Sequence[Judgement], threshold: float
) -> dict[str, float]:
  """Scores predictions by SQuAD's rules; see `squad_metrics`."""
  given = [judgement.scores(threshold) for judgement in judgements]
  if judgements[0].odds is None:
    return squad_metrics.answer_metrics(given)
  return squad_metrics.version_2_metrics(
    given,
    [judgement.answered for judgement in judgements],
    [judgement.odds for judgement in judgements],
    [judgement.has_answer for judgement in judgements],
  )


def warn_if_collapsed(
  judgements: Sequence[Judgement], threshold: float
) -> None:
  """Warns if all questions get the same answer, wrong for some."""
  texts = {"" if j.is_silent(threshold) else j.text for j in judgements}
  is_wrong = score(judgements, threshold)["exact_match"] < 100.0
  if len(judgements) < 2 or len(texts) > 1 or not is_wrong:
    return
  [text] = texts
  print(
    "collapsed: every question gets "
    f"{f'the answer {text!r}' if text else 'no answer'}; it can help to lower "
    "--learning_rate, to raise --num_train_epochs or to take another --seed",
    file=sys.stderr,
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
        yield pickle.load(self._file)


def parse_threshold(value: str) -> float | None:
  """Reads --null_score_diff_threshold; None for "auto", to be tuned."""
  if value.strip().lower() == "auto":
    return None
  try:
    return _read_number(value)
  except ValueError:
    raise ValueError(
      f"--null_score_diff_threshold={value}: expected a number, or auto"
    ) from None


def _read_number(value: float | str) -> float:
  """Returns a number; a ValueError for NaN, which nothing exceeds."""
  if math.isnan(number := float(value)):
    raise ValueError
  return number


def read_threshold(folder: str) -> float | None:
  """Reads the threshold that a run tuned; None if absent."""
  path = os.path.join(folder, TUNED_FILE)
  if not files.exists(path):
    return None
  try:
    return _read_number(files.read_json(path)[_TUNED])
  except (ValueError, KeyError, TypeError):
    raise ValueError(
      f'{path}: expected {{"{_TUNED}": a number}}; delete it and evaluate again'
    ) from None


def choose_threshold(
  folder: str, given: float | None, tuning: Iterable[Answered] | None
) -> float:
  """Returns the threshold to answer by; one that is tuned is left in a folder.

  Args:
    given: by the flag; None for the one with the best F1.
    tuning: questions to find that with, whose answers are known; None to use
      what an earlier run found.
  """
  path = os.path.join(folder, TUNED_FILE)
  if tuning is not None:
    judgements = [found.judgement for found in tuning]
    threshold = score(judgements, 0.0)["best_f1_threshold"]
    files.write_json(path, {_TUNED: threshold})
    print(f"wrote {path}: {threshold:.4f}")
    return threshold
  tuned = read_threshold(folder)
  if given is None:
    print(f"--null_score_diff_threshold={tuned:.4f}, as {path} says")
    return tuned
  if tuned not in (None, given):
    print(
      f"note: this run answers by --null_score_diff_threshold={given}; exports "
      f"of its folder have the tuned one of {path}, {tuned:.4f}",
      file=sys.stderr,
    )
  return given


def write_predictions(
  folder: str,
  answered: Iterable[Answered],
  threshold: float,
  ending: str,
  version_2: bool,
  note: Callable[..., None] = lambda *_: None,
) -> dict[str, float] | None:
  """Writes predictions as they come: the original's files, a readable one.

  Args:
    ending: of the readable file, "tsv" or "jsonl".
    note: takes each question whose answers are known, and its scores.

  Returns:
    The scores; None if not all answers are known.
  """
  names = [f"predictions.{ending}", "predictions.json"]
  names += ["nbest_predictions.json"] + ["null_odds.json"] * version_2
  paths = [os.path.join(folder, name) for name in names]
  judgements, separator = [], "{\n"
  with (
    atomic.replace_all_on_success(paths) as temporaries,
    contextlib.ExitStack() as stack,
  ):
    readable, *objects = (
      stack.enter_context(files.open_for_writing(path)) for path in temporaries
    )
    if ending == "tsv":
      readable.write(_as_row(_TABLE_HEADER))
    for question, prediction, judgement in answered:
      chosen = prediction.decide(threshold)
      entries = _as_entries(prediction, chosen)
      for output, entry in zip(objects, entries, strict=False):
        # What json.dumps(..., indent=4) would make of all entries.
        lines = json.dumps({question.question_id: entry}, indent=4)[2:-2]
        output.write((separator + lines).encode())
      separator = ",\n"
      row = squad_answers.describe(question, prediction, chosen)
      as_bytes = _as_row(_as_cells(row)) if ending == "tsv" else _as_json(row)
      readable.write(as_bytes)
      if judgement:
        judgements.append(judgement)
        note(question, judgement.scores(threshold))
    for output in objects:
      output.write(b"{}\n" if separator == "{\n" else b"\n}\n")
  for name in set(_FILES) - set(names):  # They were of other answers.
    files.remove(os.path.join(folder, name))
  for path in paths:
    print(f"wrote {path}")
  if not judgements:
    return None
  scores = score(judgements, threshold)
  metrics.write_metrics(folder, "predict", scores)
  warn_if_collapsed(judgements, threshold)
  return scores


_TABLE_HEADER = (
  *("id", "question", "answer", "probability", "score", "start", "end"),
  *("no_answer_odds", "runners_up"),
)


def _as_entries(prediction, chosen) -> list[Any]:
  """Returns what is in the original's files: answer, n-best list and odds."""
  text = chosen.text if chosen else ""
  if prediction.odds is None and not chosen:
    text = prediction.spans[0].text  # The original's word for it.
  names = ("text", "probability", "start_logit", "end_logit")
  nbest = [
    {name: getattr(span, name) for name in names} for span in prediction.spans
  ]
  return [text, nbest, prediction.odds]


def _as_cells(row: dict[str, Any]) -> list[Any]:
  others = " | ".join(other["answer"] for other in row["runners_up"])
  cells = [row.get(name) for name in _TABLE_HEADER[:-1]]
  return ["" if cell is None else cell for cell in cells] + [others]


def _as_row(cells: Iterable[Any]) -> bytes:
  # The columns of a TSV file are split at every tab, its rows at newlines.
  texts = (" ".join(str(cell).split()) for cell in cells)
  return ("\t".join(texts) + "\n").encode()


def _as_json(row: dict[str, Any]) -> bytes:
  return (json.dumps(row, ensure_ascii=False) + "\n").encode()
