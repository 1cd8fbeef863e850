"""Questions about texts as feature files, batches, logits and predictions."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import itertools
import os
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from data import files
from data import worker_processes
from inputs import feature_files
from inputs import records
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_results
from training import loop
from training import prediction

# Changed whenever other features are made of the same input.
_FEATURES_VERSION = 1
_MISPLACED_SHOWN = 3
# Characters of contexts, counted once for each question, that a process takes.
_CHARACTERS_PER_TASK = 200_000
# Starting processes takes as long as one needs for a file of so many bytes.
_SMALL_FILE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Split(feature_files.LazySplit):
  """The features of one file of questions."""

  kind: str  # "train", "eval" or "dev": the name of the feature file.
  path: str  # Of the questions.
  settings: squad_features.Settings
  folder: str  # A local one, for the feature file.
  num_processes: int  # To make features with; does not change them.
  max_train_examples: int | None = None  # The first ones; None: all.
  needs_answers: bool = False  # Whether all answers have to be known.

  @property
  def is_training(self) -> bool:
    """Whether the features hold where the answers are."""
    return self.kind == "train"

  @property
  def limit(self) -> int | None:
    """The most questions to read; None for all."""
    return self.max_train_examples if self.is_training else None

  def check_answers(self, facts: dict[str, Any]) -> None:
    """Raises a ValueError if answers are needed that are not known."""
    if self.needs_answers and facts["labelled"] < facts["questions"]:
      raise ValueError(
        f"{self.path}: only {facts['labelled']:,} of {facts['questions']:,} "
        "questions have answers, an evaluation and "
        "--null_score_diff_threshold=auto need all: pass another --eval_file"
      )

  def shaped_by(self):
    settings = {
      **dataclasses.asdict(self.settings),
      "is_training": self.is_training,
      "version": _FEATURES_VERSION,
      **feature_files.limit_key(self.limit),
    }
    return settings, [self.settings.vocab_file, self.path]

  @functools.cached_property
  def features(self) -> feature_files.FeatureFile:
    """The feature file, made when it is first asked for if need be.

    Raises:
      ValueError: a question is wrong, or lacks answers that are needed.
    """
    target = os.path.join(self.folder, f"{self.kind}.tf_record")
    features, is_new = feature_files.open_or_make(
      target, self.key, functools.partial(make_rows, self)
    )
    facts = features.facts
    print(
      f"{self.path}: {facts['questions']:,} questions in {len(features):,} "
      f"windows of {np.mean(features.lengths):.1f} tokens on average; "
      f"{'wrote' if is_new else 'unchanged:'} {target}"
    )
    _warn(facts, self.settings, self.is_training)
    self.check_answers(facts)
    return features

  @property
  def layout(self) -> feature_files.Layout:
    """What a row of the features, which is a window, holds."""
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


def _warn(facts, settings, is_training):
  if facts["cut_questions"]:
    print(
      f"  {facts['cut_questions']:,} questions were truncated to "
      f"--max_query_length={settings.max_query_length}"
    )
  if is_training:
    print(f"  {facts['outside']:,} windows do not contain the answer")
  if facts["misplaced"]:
    shown = "; ".join(facts["misplaced_shown"])
    print(
      f"warning: {facts['misplaced']:,} questions are left out, their answers "
      f"are not where answer_start says: {shown}",
      file=sys.stderr,
    )


def make_rows(
  split: Split, facts: dict[str, Any]
) -> Iterator[feature_files.Row]:
  """Yields the rows of a file of questions, whose `example` is the question's.

  Args:
    split: the file; of a small one a single process makes the rows.
    facts: is told questions, labelled, cut_questions, outside, misplaced and
      misplaced_shown; see `squad_features.Rows`.
  """
  path, num_processes = split.path, split.num_processes
  if os.path.exists(path) and os.path.getsize(path) < _SMALL_FILE:
    num_processes = 1
  counts = ("labelled", "cut_questions", "outside")
  facts.update(dict.fromkeys(["questions", "misplaced", *counts], 0))
  facts["misplaced_shown"] = []
  paragraphs = squad.first_questions(squad.read_paragraphs(path), split.limit)
  if not split.is_training:
    paragraphs = squad.unique_questions(paragraphs)
  tasks = squad_features.batch_paragraphs(paragraphs, _CHARACTERS_PER_TASK)
  maker = worker_processes.Maker(
    "tasks.squad_features", "FeatureMaker", (split.settings, split.is_training)
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
  split.check_answers(facts)
  split.check_unchanged()


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
    file.truncate(4 * np.prod(shape))  # If the last rows were not asked for.
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


def answer(
  split: Split,
  logits: np.ndarray,
  settings: squad_answers.Settings,
  on_failure: Callable[[str], None] | None = None,
) -> Iterator[squad_results.Answered]:
  """Answers all questions, in their order.

  Args:
    split: the questions, not made for training.
    logits: from `compute_logits`.
    settings, on_failure: see `squad_answers.Answerer`.

  Raises:
    ValueError: the file has changed since its features were made.
  """
  maker = squad_features.FeatureMaker(split.settings, is_training=False)
  answerer = squad_answers.Answerer(settings, maker.tokens, on_failure)
  is_labelled, row = split.is_labelled, 0
  for paragraph in squad.read_paragraphs(split.path):
    document = maker.document(paragraph)
    for question in paragraph.questions:
      query, windows = maker.windows(document, question)
      rows = slice(row, row + len(windows))
      row += len(windows)
      if row > logits.shape[1]:
        split.check_unchanged()
      predicted = answerer(
        document, len(query), windows, logits[0, rows], logits[1, rows]
      )
      judgement = None
      if is_labelled:
        judgement = squad_results.judge(question, paragraph.context, predicted)
      yield squad_results.Answered(question, predicted, judgement)
  split.check_unchanged()
