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
from typing import Any, BinaryIO, NamedTuple

from data import files
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
  """Scores predictions by SQuAD's rules; see `squad_metrics`.

  Args:
    judgements: of all questions.
    threshold: see `Prediction.decide`.
  """
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
  """Warns if all questions get the same answer, wrong for some.

  Args:
    judgements, threshold: see `score`.
  """
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
  """Items that are computed once and kept on the disk, to be read again.

  Args:
    items: what to keep.
    folder: a local one, for a file without a name.
  """

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
  """Reads --null_score_diff_threshold; None for "auto", to be tuned.

  Raises:
    ValueError: it is something else.
  """
  if value.strip().lower() == "auto":
    return None
  try:
    return float(value)
  except ValueError:
    raise ValueError(
      f"--null_score_diff_threshold={value}: expected a number, or auto"
    ) from None


def read_threshold(folder: str) -> float | None:
  """Reads the threshold that a run tuned; None if absent.

  Raises:
    ValueError: the file is damaged.
  """
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
    folder: of the run.
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
  """Writes what is predicted, and its scores if the answers are known.

  Args:
    folder: of the run.
    answered: what is predicted.
    threshold: see `Prediction.decide`.
    ending: of the readable file, "tsv" or "jsonl".
    version_2: whether a question may have no answer.

  Returns:
    The scores.
  """
  names = {
    "predictions": "predictions.json",
    "nbest": "nbest_predictions.json",
    "null_odds": "null_odds.json",
    "readable": f"predictions.{ending}",
  }
  if not version_2:
    del names["null_odds"]
  paths = {key: os.path.join(folder, name) for key, name in names.items()}
  judgements = []
  with open_writer(paths, threshold) as writer:
    for question, prediction, judgement in answered:
      writer.add(question, prediction)
      if judgement:
        judgements.append(judgement)
  for path in paths.values():
    print(f"wrote {path}")
  if not judgements:
    return None
  metrics = score(judgements, threshold)
  path = os.path.join(folder, "predict_metrics.json")
  files.write_json(path, {"metrics": metrics})
  values = (f"{name} {value:.4f}" for name, value in metrics.items())
  print(f"wrote {path}: {'  '.join(values)}")
  warn_if_collapsed(judgements, threshold)
  return metrics


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

  def add(
    self, question: squad.Question, prediction: squad_answers.Prediction
  ) -> None:
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
    row = squad_answers.describe(question, prediction, chosen)
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


def _as_entry(span: squad_answers.Span) -> dict[str, Any]:
  """Returns an entry of the original's n-best lists."""
  names = ("text", "probability", "start_logit", "end_logit")
  return {name: getattr(span, name) for name in names}


def _as_cells(row: dict[str, Any]) -> list[Any]:
  others = " | ".join(other["answer"] for other in row["runners_up"])
  cells = [row.get(name) for name in _TABLE_HEADER[:-1]]
  return ["" if cell is None else cell for cell in cells] + [others]
