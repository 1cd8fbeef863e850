"""Questions about texts as feature files, batches, logits and predictions."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import os
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from data import atomic
from data import worker_processes
from inputs import feature_files
from inputs import records
from inputs import text_inputs
from inputs import training_input
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_results
from training import prediction

_MISPLACED_SHOWN = 3
# What a process takes at once; characters of contexts count for each question.
_PARAGRAPHS_PER_TASK, _CHARACTERS_PER_TASK = 1000, 200_000
_QUESTIONS_PER_TASK = 50  # At least; their text is tokenized once.
# Starting processes takes as long as a single one needs for such a file, bytes.
_SMALL_FILE = 1 << 20


@dataclasses.dataclass(frozen=True)
class Split(feature_files.Split):
  """The features of one file of questions.

  Its kind is "train", "eval" or "dev", its settings `squad_features.Settings`.
  """

  num_processes: int = 1  # To make features with; does not change them.
  needs_answers: bool = False  # Whether all answers have to be known.

  @property
  def is_training(self) -> bool:
    """Whether the features hold where the answers are."""
    return self.kind == "train"

  @property
  def rows_per_epoch(self) -> int:
    """As in the original, as many as questions, though windows are more."""
    facts = self.features.facts
    return facts["questions"] - facts["misplaced"]

  def check_answers(self, facts: dict[str, Any]) -> None:
    """Raises a ValueError if answers are needed that are not known."""
    if self.needs_answers and facts["labelled"] < facts["questions"]:
      raise ValueError(
        f"{self.source}: only {facts['labelled']:,} of {facts['questions']:,} "
        "questions have answers, an evaluation and "
        "--null_score_diff_threshold=auto need all: pass another --eval_file"
      )

  def sources(self) -> tuple[dict[str, Any], list[str]]:
    return {"is_training": self.is_training}, [self.source]

  def read(self) -> Iterator[squad.Question]:
    return squad.read_questions(self.source)

  def describe_features(self, features) -> list[str]:
    facts = features.facts
    lines = [
      f"{self.source}: {facts['questions']:,} questions in {len(features):,} "
      f"windows of {np.mean(features.lengths):.1f} tokens on average"
    ]
    if facts["cut_questions"]:
      lines.append(
        f"{facts['cut_questions']:,} questions were truncated to "
        f"--max_query_length={self.settings.max_query_length}"
      )
    if self.is_training:
      lines.append(f"{facts['outside']:,} windows do not contain the answer")
    return lines

  def check_features(self, features) -> None:
    facts = features.facts
    if facts["misplaced"]:
      print(
        f"warning: {facts['misplaced']:,} questions are left out, their "
        "answers are not where answer_start says: "
        f"{'; '.join(facts['misplaced_shown'])}",
        file=sys.stderr,
      )
    self.check_answers(facts)

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

  def make_rows(self, facts: dict[str, Any]) -> Iterator[feature_files.Row]:
    """Yields the rows, several processes making those of a large file.

    Args:
      facts: is told questions, labelled, cut_questions, outside, misplaced and
        misplaced_shown; see `squad_features.Rows`.
    """
    path, num_processes = self.source, self.num_processes
    if os.path.exists(path) and os.path.getsize(path) < _SMALL_FILE:
      num_processes = 1
    counts = ("labelled", "cut_questions", "outside")
    facts.update(dict.fromkeys(["questions", "misplaced", *counts], 0))
    facts["misplaced_shown"] = []
    paragraphs = squad.first_questions(squad.read_paragraphs(path), self.limit)
    if not self.is_training:
      paragraphs = squad.unique_questions(paragraphs)
    # Every question repeats its context in the records.
    tasks = text_inputs.split_into_blocks(
      _split_questions(paragraphs),
      _PARAGRAPHS_PER_TASK,
      lambda paragraph: len(paragraph.context) * len(paragraph.questions),
      _CHARACTERS_PER_TASK,
    )
    make = functools.partial(
      squad_features.FeatureMaker, self.settings, self.is_training
    )
    number = 0
    for rows in worker_processes.map_in_order(make, tasks, num_processes):
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
        f"{path}: no question to train on, all {facts['questions']} answers "
        f"are not where answer_start says: {'; '.join(shown)}"
      )
    self.check_answers(facts)
    self.check_unchanged()


def _split_questions(paragraphs):
  """Yields paragraphs with no more questions than a process takes at once."""
  for paragraph in paragraphs:
    count = _CHARACTERS_PER_TASK // len(paragraph.context)
    count = max(_QUESTIONS_PER_TASK, count)
    for start in range(0, len(paragraph.questions), count):
      questions = paragraph.questions[start : start + count]
      yield paragraph._replace(questions=questions)


def compute_logits(
  predictor: prediction.Predictor,
  split: Split,
  parse: Callable[[tf.Tensor], training_input.Features],
  order: list[np.ndarray],
  folder: str,
) -> np.ndarray:
  """Computes the logits of all windows, kept on the disk.

  Args:
    predictor: returns start_logits and end_logits, float32 [B, S], padded to
      max_seq_length.
    parse: from its serialized rows to features.
    order: the batches, by the indices of their rows.

  Returns:
    float32 [windows, 2, S], starts and ends, in the order of the rows.
  """
  features = split.features
  shape = (len(features), 2, split.settings.max_seq_length)
  batches = features.batches(order, parse)
  with (
    atomic.naming_full_disk(folder),
    tempfile.TemporaryFile(dir=folder) as file,
  ):
    with training_input.naming_bad_record(features):
      results = predictor.iterate(batches, total=len(features))
      for rows, result in zip(order, results, strict=True):
        pairs = [result["start_logits"], result["end_logits"]]
        pairs = np.stack(pairs, axis=1).astype(np.float32)
        for row, logits in zip(rows, pairs, strict=True):
          # A full disk is an error here; in a memory map it ends the process.
          file.seek(int(row) * logits.nbytes)
          file.write(logits.tobytes())
    file.truncate(4 * np.prod(shape))  # If the last rows were not asked for.
    return np.memmap(file, np.float32, "r", shape=shape)


def answer(
  split: Split,
  logits: np.ndarray,
  settings: squad_answers.Settings,
  on_failure: Callable[[str], None] | None = None,
) -> Iterator[squad_results.Answered]:
  """Answers all questions, in their order."""
  maker = squad_features.FeatureMaker(split.settings, is_training=False)
  answerer = squad_answers.Answerer(settings, maker.tokens, on_failure)
  is_labelled, row = split.is_labelled, 0
  for paragraph in squad.read_paragraphs(split.source):
    document = maker.document(paragraph)
    for question in paragraph.questions:
      query, windows = maker.windows(document, question)
      rows = slice(row, row + len(windows))
      row += len(windows)
      if row > len(logits):
        split.check_unchanged()
      predicted = answerer(
        document, len(query), windows, logits[rows, 0], logits[rows, 1]
      )
      judgement = None
      if is_labelled:
        judgement = squad_results.judge(question, paragraph.context, predicted)
      yield squad_results.Answered(question, predicted, judgement)
  split.check_unchanged()
