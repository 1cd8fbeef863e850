"""What a run of run_squad.py leaves: answers, their scores, the threshold."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
import pickle
import sys
import tempfile
from typing import Any, NamedTuple

from data import files
from data import tables
from tasks import metrics
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_metrics

_TUNED = "eval_best_f1_threshold"


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
  given = [
    j.silent if j.is_silent(threshold) else j.answered for j in judgements
  ]
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
    with files.explained_full_disk(folder):
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
    return float(value)
  except ValueError:
    raise ValueError(
      f"--null_score_diff_threshold={value}: expected a number, or auto"
    ) from None


def read_threshold(folder: str) -> float | None:
  """Reads the threshold that a run tuned; None if absent."""
  path = _threshold_file(folder)
  if not files.exists(path):
    return None
  try:
    return float(files.read_json(path)[_TUNED])
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
  path = _threshold_file(folder)
  if tuning is not None:
    judgements = [found.judgement for found in tuning]
    threshold = score(judgements, 0.0)["best_f1_threshold"]
    files.write_json(path, {_TUNED: threshold})
    print(f"wrote {path}: {threshold:.4f}")
    return threshold
  tuned = read_threshold(folder)
  if given is None:
    return tuned
  if tuned not in (None, given):
    print(
      f"note: this run answers by --null_score_diff_threshold={given}; exports "
      f"of its folder have the tuned one of {path}, {tuned:.4f}",
      file=sys.stderr,
    )
  return given


def _threshold_file(folder):
  return os.path.join(folder, "null_score_diff_threshold.json")


def write_predictions(
  folder: str,
  answered: Iterable[Answered],
  threshold: float,
  ending: str,
  version_2: bool,
) -> dict[str, float] | None:
  """Writes predictions: the original's files, and a readable one.

  Args:
    answered: what is predicted, to be gone through several times.
    ending: of the readable file, "tsv" or "jsonl".

  Returns:
    The scores; None if not all answers are known.
  """
  entries = {
    "predictions": lambda prediction: _final_text(prediction, threshold),
    "nbest_predictions": lambda p: list(map(_as_entry, p.spans)),
    "null_odds": lambda prediction: prediction.odds,
  }
  if not version_2:
    del entries["null_odds"]
  for name, get_entry in entries.items():
    path = os.path.join(folder, f"{name}.json")
    files.write_pieces(path, _json_object(answered, get_entry))
    print(f"wrote {path}")
  path = os.path.join(folder, f"predictions.{ending}")
  rows = (
    squad_answers.describe(q, p, p.decide(threshold)) for q, p, _ in answered
  )
  if ending == "tsv":
    rows = map(_as_cells, rows)
  tables.write_rows(path, rows, _TABLE_HEADER)
  print(f"wrote {path}")
  judgements = [judgement for _, _, judgement in answered if judgement]
  if not judgements:
    return None
  scores = score(judgements, threshold)
  metrics.write_metrics(folder, "predict", scores)
  warn_if_collapsed(judgements, threshold)
  return scores


def _json_object(answered, get_entry) -> Iterator[str]:
  """Yields what json.dumps(..., indent=4) makes of an entry a question."""
  separator = "{\n"
  for question, prediction, _ in answered:
    entry = {question.question_id: get_entry(prediction)}
    yield separator + json.dumps(entry, indent=4)[2:-2]
    separator = ",\n"
  yield "{}\n" if separator == "{\n" else "\n}\n"


def _final_text(prediction: squad_answers.Prediction, threshold: float) -> str:
  chosen = prediction.decide(threshold)
  if prediction.odds is None and not chosen:
    return prediction.spans[0].text  # The original's word for it.
  return chosen.text if chosen else ""


_TABLE_HEADER = (
  *("id", "question", "answer", "probability", "score", "start", "end"),
  *("no_answer_odds", "runners_up"),
)


def _as_entry(span: squad_answers.Span) -> dict[str, Any]:
  """Returns an entry of the original's n-best lists."""
  names = ("text", "probability", "start_logit", "end_logit")
  return {name: getattr(span, name) for name in names}


def _as_cells(row: dict[str, Any]) -> dict[str, str]:
  others = " | ".join(other["answer"] for other in row["runners_up"])
  cells = {**row, "runners_up": others}
  # No answer has no place.
  shown = {k: "" if v is None else str(v) for k, v in cells.items()}
  return {name: " ".join(text.split()) for name, text in shown.items()}
