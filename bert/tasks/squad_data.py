"""Questions about texts as feature files, batches, logits and predictions."""

from collections.abc import Callable, Iterator, Mapping
import dataclasses
import functools
import itertools
import os
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from bert.data import atomic, messages, progress, worker_processes
from bert.inputs import (
  feature_files,
  feature_sets,
  held_out,
  records,
  text_inputs,
  training_input,
)
from bert.tasks import squad, squad_answers, squad_features, squad_results

# A process takes so many questions at once that their contexts together have
# CHARACTERS_PER_TASK, for the rows repeat the context of each. It takes 50
# questions or more, because consecutive questions about one text share its
# tokens.
QUESTIONS_PER_TASK = 1000
CHARACTERS_PER_TASK = 200_000
MOST_CHARACTERS = CHARACTERS_PER_TASK // 50  # More of a text do not count.
# Starting processes takes as long as a single one needs for such a file, bytes.
SMALL_FILE = 1 << 20


@dataclasses.dataclass(eq=False, kw_only=True)
class SquadSet(feature_sets.FeatureSet):
  """The questions of a file; its kind is "train", "eval" or "dev"."""

  settings: squad_features.SquadFeatureSettings
  num_processes: int = 1  # To make features with; does not change them.
  needs_answers: bool = False  # Whether all answers have to be known.

  @property
  def is_training(self) -> bool:
    """Whether the features hold where the answers are."""
    return self.kind == "train"

  @property
  def rows_per_epoch(self) -> int:
    """The number of questions, as in the original, though windows are more."""
    facts = self.features.facts
    return facts["questions"] - facts["misplaced"]

  @property
  def is_labelled(self) -> bool:
    """Whether the answers to all questions are known."""
    facts = self.features.facts
    return facts["labelled"] == facts["questions"]


def find_set(
  kind: str,
  path: str,
  settings: squad_features.SquadFeatureSettings,
  **others: Any,
) -> SquadSet:
  """Returns the questions of a file.

  Args:
    kind: "train", "eval" or "dev", which names the feature file.
    path: the file.
    settings: the settings that shape the features.
    **others: further fields of `SquadSet`.
  """
  return SquadSet(
    kind=kind,
    settings=settings,
    paths=(path,),
    source={"is_training": kind == "train"},
    read=functools.partial(squad.read_questions, path),
    version=2,
    **others,
  )


def split(
  data: SquadSet, share: float, seed: int, kind: str
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Holds out the questions about a share of the contexts.

  Args:
    data: the set to train on.
    share: of the questions to hold out, such as 0.1.
    seed: of the draw.
    kind: of the set that is held out: "eval" or "dev".

  Returns:
    What to train on, and what to evaluate on.
  """

  # Both parts get their share of questions without an answer. Questions about
  # one context stay in one part.
  def describe(question):
    return [str(bool(question.answers))], question.context

  train, held = held_out.split(
    data, share, seed, describe, kind=kind, needs_answers=True
  )
  held.source["is_training"] = False
  return train, held


def make_features(data: SquadSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  A ValueError if no question can be used, or needed answers are not known.
  """
  # Filled while rows are made; if the file is there, its index has them.
  facts: dict[str, Any] = {
    "questions": 0,
    "misplaced": 0,
    "labelled": 0,
    "cut_questions": 0,
    "outside": 0,
    "unanswerable": 0,
    "misplaced_shown": [],
    "unlabelled": [],
  }
  features = data.open_or_make(folder, _make_rows(data, facts), facts)

  # Only rows to train on hold where the answer is.
  length = data.settings.max_seq_length
  positions = ["start_positions", "end_positions"] if data.is_training else []
  data.layout = feature_sets.Layout(
    (length,),
    other_features=dict.fromkeys(
      positions, tf.io.FixedLenFeature([], tf.int64)
    ),
    limits=dict.fromkeys(positions, records.Limit(length, "--max_seq_length")),
  )

  facts = features.facts
  lines = []
  if facts["cut_questions"]:
    lines.append(
      f"{facts['cut_questions']:,} questions were truncated to "
      f"--max_query_length={data.settings.max_query_length}"
    )
  if data.is_training:
    lines.append(
      f"{facts['outside']:,} windows do not contain the answer; "
      f"{facts['unanswerable']:,} questions have none"
    )
  features.print_summary(
    f"{data.paths[0]}: {facts['questions']:,} questions in {len(features):,} "
    f"windows of {np.mean(features.lengths):.1f} tokens on average",
    *lines,
  )

  if facts["misplaced"]:
    progress.note(
      f"warning: {facts['misplaced']:,} questions are left out, their answers "
      "are not where answer_start says: "
      f"{'; '.join(facts['misplaced_shown'])}"
    )
  _check_answers(data, facts)


def describe_unanswered(facts: Mapping[str, Any]) -> str:
  """Says where the first questions without answers are, and how many there are.

  `facts` are those of the feature file, see `make_features`.
  """
  total = facts["questions"]
  # Features of an older version lack the places.
  places = facts.get("unlabelled") or ["some questions"]
  missing = total - facts["labelled"]
  names = ("answers", "questions")
  return messages.describe_unlabelled(places, missing, total, names)


def _check_answers(data, facts) -> None:
  """Raises a ValueError if answers are needed that are not known."""
  if facts["labelled"] == facts["questions"]:
    return
  fault = describe_unanswered(facts)
  if data.is_training:
    raise ValueError(
      f"{fault}: training needs all; those of an empty list are no answer only "
      "with --version_2_with_negative=true"
    )
  if data.needs_answers:
    raise ValueError(
      f"{fault}: an evaluation and --null_score_diff_threshold=auto need all: "
      "pass another --eval_file"
    )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  """Yields the rows of a file, which several processes make if it is large."""
  [path] = data.paths
  num_processes = data.num_processes
  if os.path.exists(path) and os.path.getsize(path) < SMALL_FILE:
    num_processes = 1

  # Predictions are written by id, so two questions to answer may not share one.
  questions = data.select(data.read())
  if not data.is_training:
    questions = squad.unique_questions(questions)
  blocks = text_inputs.split_into_blocks(
    questions,
    QUESTIONS_PER_TASK,
    lambda question: min(len(question.context), MOST_CHARACTERS),
    CHARACTERS_PER_TASK,
  )
  make = functools.partial(
    squad_features.FeatureMaker, data.settings, data.is_training
  )
  results = worker_processes.map_in_order(make, blocks, num_processes)

  num_windows = 0
  for result in itertools.chain.from_iterable(results):
    for serialized, length in result.rows:
      # A process cannot know how many windows the ones before it have made.
      row = squad_features.set_unique_id(serialized, num_windows)
      yield feature_files.Row(row, length, facts["questions"])
      num_windows += 1
    _count(result, facts)

  _check_answers(data, facts)
  if facts["questions"] and not num_windows:
    raise ValueError(
      f"{path}: no question to train on, all {facts['questions']} answers "
      "are not where answer_start says: "
      f"{'; '.join(facts['misplaced_shown'])}"
    )


def _count(result, facts) -> None:
  """Adds a question's `QuestionRows` to the facts of its set."""
  facts["questions"] += 1
  facts["labelled"] += not result.unlabelled_at
  facts["cut_questions"] += result.was_cut
  facts["outside"] += result.outside
  facts["unanswerable"] += result.has_no_answer

  # Messages show the first places only.
  unlabelled = facts["unlabelled"]
  if result.unlabelled_at and len(unlabelled) < messages.PLACES_SHOWN:
    unlabelled.append(result.unlabelled_at)
  if result.misplaced:
    facts["misplaced"] += 1
    if len(facts["misplaced_shown"]) < messages.PLACES_SHOWN:
      facts["misplaced_shown"].append(result.misplaced)


def compute_logits(
  predictor: Any,
  data: SquadSet,
  parse: Callable[[tf.Tensor], training_input.Features],
  order: list[np.ndarray],
  folder: str,
) -> np.ndarray:
  """Computes the logits of all windows and keeps them on the disk.

  Args:
    predictor: returns start_logits and end_logits, float32
      [B, max_seq_length].
    data: the questions, whose features are made.
    parse: makes the features of a batch from serialized rows, string [B].
    order: the batches, by the indices of their rows; rows of similar length
      are together.
    folder: a local folder for a temporary file.

  Returns:
    Start and end logits, float32 [windows, 2, max_seq_length], in the order of
    the rows, as a memory map.
  """
  features = data.features
  shape = (len(features), 2, data.settings.max_seq_length)
  batches = features.batches(order, parse)

  # A file may have more windows than memory holds.
  with (
    atomic.naming_full_disk(folder),
    tempfile.TemporaryFile(dir=folder) as file,
  ):
    with training_input.naming_bad_record(features.find_fault):
      results = predictor.iterate(batches, total=len(features))
      for rows, result in zip(order, results, strict=True):
        pairs = [result["start_logits"], result["end_logits"]]
        pairs = np.stack(pairs, axis=1).astype(np.float32)
        for row, logits in zip(rows, pairs, strict=True):
          # A full disk is an error here; in a memory map it ends the process.
          file.seek(int(row) * logits.nbytes)
          file.write(logits.tobytes())

    # The last rows may not have been asked for.
    file.truncate(4 * int(np.prod(shape)))
    return np.memmap(file, np.float32, "r", shape=shape)


def answer(
  data: SquadSet, logits: np.ndarray, settings: squad_answers.AnswerSettings
) -> Iterator[squad_results.QuestionResult]:
  """Answers all questions, in their order.

  Args:
    data: the questions, whose features are made.
    logits: from `compute_logits`.
    settings: how to choose an answer.

  Raises:
    ValueError: the file was changed since its features were made.
  """
  maker = squad_features.FeatureMaker(data.settings, is_training=False)
  search = squad_answers.SpanSearch(maker, settings)
  is_labelled = data.is_labelled

  # The texts are read and divided into windows again, because the rows do
  # not hold which characters a token is made of.
  first_row = 0
  for document, question in maker.documents(data.examples()):
    query, windows, _ = maker.windows(document, question)
    rows = slice(first_row, first_row + len(windows))
    first_row = rows.stop
    # More windows than the features have: say that the file was changed.
    if first_row > len(logits):
      data.check_unchanged()
    predicted = search(
      document, len(query), windows, logits[rows, 0], logits[rows, 1]
    )

    scored = None
    if is_labelled:
      scored = squad_results.score_prediction(
        question, predicted, settings.answer_units
      )
    # Results may be kept by the thousand: without their texts.
    question = question._replace(context="")
    yield squad_results.QuestionResult(question, predicted, scored)
