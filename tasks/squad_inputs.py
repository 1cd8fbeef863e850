"""Questions about texts as feature files, batches, logits and predictions."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import itertools
import os
import sys
import tempfile
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from data import files
from data import worker_processes
from inputs import feature_files
from inputs import records
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_metrics
from training import loop
from training import prediction

# Changed whenever other features are made of the same input.
_FEATURES_VERSION = 1
_MISPLACED_SHOWN = 3
# Characters of contexts, counted once for each question, that a process takes.
_CHARACTERS_PER_TASK = 200_000
# Starting processes takes as long as one needs for a file of so many bytes.
_SMALL_FILE = 1 << 20


class Split(NamedTuple):
  """The features of one file of questions."""

  path: str
  features: feature_files.FeatureFile
  settings: squad_features.Settings
  is_training: bool

  @property
  def key(self) -> str:
    """A digest of all that shapes the features."""
    return self.features.key

  @property
  def layout(self) -> feature_files.Layout:
    """What a row of the features holds, each a window."""
    length = self.settings.max_seq_length
    positions = ["start_positions", "end_positions"] * self.is_training
    position = tf.io.FixedLenFeature([], tf.int64)
    limit = records.Limit(length, "--max_seq_length")
    return feature_files.Layout(
      (length,),
      others=dict.fromkeys(positions, position),
      limits=dict.fromkeys(positions, limit),
    )

  @property
  def is_labelled(self) -> bool:
    """Whether the answers to all questions are known."""
    facts = self.features.facts
    return facts["labelled"] == facts["questions"]

  def describe(self, index: int) -> str:
    """Says where a question, by its number from 0, is from."""
    questions = squad.read_questions(self.path)
    return next(itertools.islice(questions, index, None)).place


def open_split(
  kind: str,
  path: str,
  settings: squad_features.Settings,
  folder: str,
  num_processes: int,
) -> Split:
  """Opens the features of a file of questions, made now if need be.

  Args:
    kind: "train", "eval" or "dev", the name of the feature file.
    path: of the questions.
    settings: what else shapes the features.
    folder: a local one, for the feature file.
    num_processes: to make them with; it does not change them.
  """
  settings.check()
  target = os.path.join(folder, f"{kind}.tf_record")
  key = feature_files.make_key(
    {
      **dataclasses.asdict(settings),
      "is_training": kind == "train",
      "version": _FEATURES_VERSION,
    },
    [settings.vocab_file, path],
  )
  features, is_new = feature_files.open_or_make(
    target,
    key,
    functools.partial(
      make_rows, path, settings, kind == "train", num_processes
    ),
  )
  facts = features.facts
  print(
    f"{path}: {facts['questions']:,} questions in {len(features):,} windows of "
    f"{np.mean(features.lengths):.1f} tokens on average; "
    f"{'wrote' if is_new else 'unchanged:'} {target}"
  )
  _warn(facts, settings, kind == "train")
  return Split(path, features, settings, kind == "train")


def _warn(facts, settings, is_training):
  if facts["cut_questions"]:
    print(
      f"  {facts['cut_questions']:,} questions were cut to "
      f"--max_query_length={settings.max_query_length}"
    )
  if is_training:
    print(
      f"  {facts['outside']:,} windows without the answer in them",
    )
  if facts["misplaced"]:
    shown = "; ".join(facts["misplaced_shown"])
    print(
      f"warning: {facts['misplaced']:,} questions are left out, their answers "
      f"are not where answer_start says: {shown}",
      file=sys.stderr,
    )


def make_rows(
  path: str,
  settings: squad_features.Settings,
  is_training: bool,
  num_processes: int,
  facts: dict[str, Any],
) -> Iterator[feature_files.Row]:
  """Yields the rows of a file of questions, whose `example` is the question's.

  Args:
    path: of the questions.
    settings, is_training: see `squad_features.FeatureMaker`.
    num_processes: to work in; a small file takes only one.
    facts: is told questions, labelled, cut_questions, outside, misplaced and
      misplaced_shown; see `squad_features.Rows`.
  """
  if os.path.exists(path) and os.path.getsize(path) < _SMALL_FILE:
    num_processes = 1
  counts = ("labelled", "cut_questions", "outside")
  facts.update(dict.fromkeys(["questions", "misplaced", *counts], 0))
  facts["misplaced_shown"] = []
  paragraphs = squad.read_paragraphs(path)
  if not is_training:
    paragraphs = squad.unique_questions(paragraphs)
  tasks = squad_features.batch_paragraphs(paragraphs, _CHARACTERS_PER_TASK)
  maker = worker_processes.Maker(
    "tasks.squad_features", "FeatureMaker", (settings, is_training)
  )
  number = 0
  for rows in worker_processes.map_in_order(maker, tasks, num_processes):
    for windows in rows.by_question:
      for record, length in windows:
        record = squad_features.set_unique_id(record, number)
        yield feature_files.Row(record, length, facts["questions"])
        number += 1
      facts["questions"] += 1
    for name in counts:
      facts[name] += getattr(rows, name)
    facts["misplaced"] += len(rows.misplaced)
    shown = facts["misplaced_shown"]
    shown += rows.misplaced[: _MISPLACED_SHOWN - len(shown)]
  if facts["questions"] and not number:
    raise ValueError(
      f"{path}: no question to train on, all {facts['questions']} answers are "
      f"not where answer_start says: {'; '.join(shown)}"
    )


def compute_logits(
  predictor: prediction.Predictor,
  split: Split,
  parse: Callable[[tf.Tensor], loop.Features],
  order: list[np.ndarray],
  folder: str,
) -> np.ndarray:
  """Computes the logits of all windows, kept on the disk.

  Args:
    predictor: returns start_logits and end_logits, float32 [B, S], padded to
      max_seq_length.
    split: what to predict.
    parse: from its serialized rows to features.
    order: the batches, by the indices of their rows.
    folder: a local one, for a file without a name.

  Returns:
    float32 [2, windows, S], starts and ends, in the order of the rows.

  Raises:
    OSError: the disk is full.
  """
  features = split.features
  shape = (2, len(features), split.settings.max_seq_length)
  batches = features.batches(order, parse)
  with (
    files.explained_full_disk(folder),
    tempfile.TemporaryFile(dir=folder) as file,
  ):
    with loop.explained_errors(features):
      results = predictor.iterate(batches, total=len(features))
      for rows, result in zip(order, results, strict=True):
        _write_logits(file, shape, rows, result)
    file.flush()
    return np.memmap(file, np.float32, "r", shape=shape)


def _write_logits(file, shape, rows, result) -> None:
  """Writes the logits of some rows to their places.

  Not through a memory map: on a full disk that ends the process with a signal.
  """
  _, count, length = shape
  for kind, name in enumerate(("start_logits", "end_logits")):
    values = np.asarray(result[name], np.float32)
    for row, logits in zip(rows, values, strict=True):
      file.seek((kind * count + int(row)) * length * logits.itemsize)
      file.write(logits.tobytes())


class Answered(NamedTuple):
  """A question, its context and what is predicted."""

  question: squad.Question
  context: str
  prediction: squad_answers.Prediction


def answer(
  split: Split,
  logits: np.ndarray,
  settings: squad_answers.Settings,
  on_failure: Callable[[str], None] | None = None,
) -> Iterator[Answered]:
  """Answers all questions, in their order.

  Args:
    split: the questions, not made for training.
    logits: from `compute_logits`.
    settings, on_failure: see `squad_answers.Answerer`.
  """
  maker = squad_features.FeatureMaker(split.settings, is_training=False)
  answerer = squad_answers.Answerer(settings, maker.tokens, on_failure)
  row = 0
  for paragraph in squad.read_paragraphs(split.path):
    document = maker.document(paragraph)
    for question in paragraph.questions:
      query, windows = maker.windows(document, question)
      rows = slice(row, row + len(windows))
      row += len(windows)
      predicted = answerer(
        document, len(query), windows, logits[0, rows], logits[1, rows]
      )
      yield Answered(question, paragraph.context, predicted)


def score(
  answered: Iterator[Answered], version_2: bool, threshold: float
) -> dict[str, float]:
  """Scores predictions by SQuAD's rules; see `answer_metrics`.

  Args:
    answered: questions whose answers are known.
    version_2: whether there may be no answer.
    threshold: of the odds of no answer.

  Returns:
    The scores; their names begin with "eval_".
  """
  given, best, odds, has_answer = [], [], [], []
  for question, context, predicted in answered:
    truths = [answer.text for answer in question.answers]

    def judge(span, truths=truths, context=context):
      return squad_metrics.score_answer(
        span.text if span else "",
        truths,
        version_2,
        squad_features.is_unspaced(context),
      )

    given.append(judge(predicted.decide(threshold)))
    if version_2:
      best.append(judge(predicted.answer))
      odds.append(predicted.odds)
      has_answer.append(bool(truths))
  if version_2:
    metrics = squad_metrics.version_2_metrics(given, best, odds, has_answer)
  else:
    metrics = squad_metrics.answer_metrics(given)
  return {f"eval_{name}": value for name, value in metrics.items()}
