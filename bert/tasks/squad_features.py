"""Features of questions: windows of a text, with the question before each.

Words and windows are those of the original: a text is split at whitespace, its
words into tokens, and windows of as many tokens as fit begin `doc_stride`
tokens apart. Nothing here imports TensorFlow, so that other processes start
fast.
"""

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import itertools
import re
from typing import NamedTuple

from bert import tokenization
from bert.data import packing, record_writer
from bert.tasks import squad
from bert.vocabularies import vocabulary_table

# The original's whitespace, which is less than Unicode's.
SPACES = " \t\r\n\u202f"
_WORDS = re.compile(f"[^{SPACES}]+")
_CHINESE = "".join(f"{chr(a)}-{chr(b)}" for a, b in tokenization.CJK_RANGES)
_CHINESE_CHARACTER = re.compile(f"[{_CHINESE}]")
_UNSPACED_WORDS = re.compile(f"[{_CHINESE}]|[^{_CHINESE}{SPACES}]+")
SPACE_RUNS = re.compile(f"[{SPACES}]+")
# The original's first id. It and the ids after it take five bytes in a row, up
# to 2^35, which lets them be filled in when the windows before are counted.
FIRST_UNIQUE_ID = 1_000_000_000
_UNIQUE_ID_BYTES = 5


@dataclasses.dataclass(frozen=True)
class SquadFeatureSettings:
  """The settings that shape the features."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int
  doc_stride: int
  max_query_length: int
  version_2_with_negative: bool

  def __post_init__(self) -> None:
    check_lengths(self.max_seq_length, self.max_query_length)


def check_lengths(max_seq_length: int, max_query_length: int) -> None:
  """Raises a ValueError if a window has no room for text."""
  if max_seq_length < max_query_length + 4:
    raise ValueError(
      f"--max_seq_length={max_seq_length}: expected more than "
      f"--max_query_length={max_query_length} and [CLS], [SEP] and [SEP]"
    )


@dataclasses.dataclass(frozen=True)
class Document:
  """A context as tokens and words, which are computed when first used.

  The words are the original's; in a text without spaces every Chinese character
  is a word. No token extends beyond a word.
  """

  context: str
  encode: Callable[[str], list[int]]  # Returns the ids of the tokens.

  @functools.cached_property
  def ids(self) -> list[int]:
    """The ids of all tokens."""
    return self.encode(self.context)

  @functools.cached_property
  def encoded_ids(self) -> list[bytes]:
    """The ids as rows hold them."""
    return list(map(record_writer.encode_id, self.ids))

  @functools.cached_property
  def words(self) -> list[tuple[int, int]]:
    """The first character of each word and the one after its last."""
    words = _UNSPACED_WORDS if is_unspaced(self.context) else _WORDS
    return [match.span() for match in words.finditer(self.context)]

  @functools.cached_property
  def first_tokens(self) -> list[int]:
    """The first token of each word, and the number of all tokens."""
    words = [self.context[start:end] for start, end in self.words]
    lengths = map(len, map(self.encode, words))
    first = list(itertools.accumulate(lengths, initial=0))
    if first[-1] != len(self.ids):
      # In Chinese text, with tokens of several characters.
      raise ValueError(
        f"the context {self.context!r:.80} has tokens that are not parts of "
        "its words: this vocabulary needs contexts with spaces between words"
      )
    return first

  def word_at(self, offset: int) -> int:
    """Returns the word at a character; of whitespace, the one before, or -1."""
    return bisect.bisect_right(self.words, offset, key=lambda w: w[0]) - 1

  def word_of(self, token: int) -> int:
    """Returns the word that holds a token."""
    return bisect.bisect_right(self.first_tokens, token) - 1


def is_unspaced(context: str) -> bool:
  r"""Returns whether the language of a text is written without spaces.

  It then has more Chinese characters than words between spaces.

  >>> is_unspaced("\u5317\u4eac is Beijing."), is_unspaced("\u5317\u4eac\u3002")
  (False, True)
  """
  if context.isascii():
    return False
  characters = len(_CHINESE_CHARACTER.findall(context))
  return characters > len(_WORDS.findall(context))


def find_answer(
  document: Document, answer: squad.Answer
) -> tuple[int, int] | None:
  """Finds the first and the last token of an answer, as close as can be.

  Words come first: those at the answer's first and last character. If a part
  of their tokens is exactly the answer's, it is that part: "1895" of "(1895)".
  None if the text there is not the answer: some data have wrong answer_starts.
  """
  start = answer.start
  length = len(answer.text)
  if start is None or not 0 <= start < start + length <= len(document.context):
    return None

  # Whitespace before the first word is in word -1. The original took that as an
  # index, which in Python is the last word; % keeps this.
  first_word = document.word_at(start) % len(document.words)
  last_word = document.word_at(start + length - 1)
  if last_word < first_word:
    return None

  # As in the original, what is there only has to contain the answer, with runs
  # of whitespace as single spaces.
  begin, _ = document.words[first_word]
  _, end = document.words[last_word]
  words = SPACE_RUNS.sub(" ", document.context[begin:end])
  if " ".join(answer.text.split()) not in words:
    return None

  # The first part of the words' tokens that is exactly the answer's, or else
  # all of them.
  first = document.first_tokens[first_word]
  last = document.first_tokens[last_word + 1] - 1
  if ids := document.encode(answer.text):
    for token in range(first, last + 2 - len(ids)):
      if document.ids[token : token + len(ids)] == ids:
        return token, token + len(ids) - 1
  return (first, last) if first <= last else None


class QuestionWindows(NamedTuple):
  """A question and where the windows after it are in the context."""

  query: list[int]  # The ids of the question, truncated.
  windows: list[packing.Window]
  was_cut: bool  # It has more than max_query_length tokens.


class QuestionRows(NamedTuple):
  """The rows of a question, one for each window, and what is counted of it."""

  rows: list[tuple[bytes, int]]  # Serialized, each with its number of tokens.
  unlabelled_at: str  # Its location if its answers are not known, else "".
  was_cut: bool  # It has more than max_query_length tokens.
  outside: int = 0  # Windows to train on without the answer that there is.
  has_no_answer: bool = False  # It is known to have none.
  misplaced: str = ""  # Why it gives no rows to train on, a message; else "".


class FeatureMaker:
  """Turns questions into rows; each of several processes has one.

  Rows to train on hold where the answer is: their questions need a known one.
  """

  def __init__(self, settings: SquadFeatureSettings, is_training: bool):
    self.settings = settings
    self._is_training = is_training
    tokenizer = vocabulary_table.make_tokenizer(
      settings.vocab_file, settings.do_lower_case
    )
    self.encode = tokenizer.encode
    self.to_tokens = tokenizer.convert_ids_to_tokens
    self.join = tokenizer.join
    self.basic_tokenizer = tokenizer.basic_tokenizer
    special = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    self._cls_id, self._sep_id = special

  def documents(
    self, questions: Iterable[squad.Question]
  ) -> Iterator[tuple[Document, squad.Question]]:
    """Yields questions with their contexts, made once for consecutive ones.

    A ValueError names a question whose context has no token.
    """
    document = None
    for question in questions:
      if document is None or document.context != question.context:
        document = Document(question.context, self.encode)
        if not document.ids:
          raise ValueError(
            f"{question.location}: the context is empty: no token in it"
          )
      yield document, question

  def windows(
    self, document: Document, question: squad.Question
  ) -> QuestionWindows:
    """Encodes a question and divides its context into windows."""
    settings = self.settings
    whole = self.encode(question.text)
    query = whole[: settings.max_query_length]

    # [CLS] question [SEP] window [SEP]
    size = settings.max_seq_length - len(query) - 3
    windows = packing.make_windows(len(document.ids), size, settings.doc_stride)
    return QuestionWindows(query, windows, len(whole) > len(query))

  def __call__(self, questions: Sequence[squad.Question]) -> list[QuestionRows]:
    """Makes the rows of some questions."""
    return [self._make_rows(*pair) for pair in self.documents(questions)]

  def _make_rows(self, document, question) -> QuestionRows:
    """Makes the rows of all windows of a question."""
    answers = question.answers
    # An empty list means that there is no answer only where that is possible.
    may_be_empty = self.settings.version_2_with_negative
    is_labelled = answers is not None if may_be_empty else bool(answers)
    unlabelled_at = "" if is_labelled else question.location

    query, windows, was_cut = self.windows(document, question)
    head = [self._cls_id, *query, self._sep_id]
    head = [record_writer.encode_id(number) for number in head]
    if not self._is_training:
      rows = [self._encode(head, document, window, {}) for window in windows]
      return QuestionRows(rows, unlabelled_at, was_cut)
    if not is_labelled:
      return QuestionRows([], unlabelled_at, was_cut)

    # As in the original, training takes the first answer that people gave.
    span = None
    if answers:
      span = find_answer(document, answers[0])
      if span is None:
        misplaced = _describe_misplaced(question)
        return QuestionRows([], "", was_cut, misplaced=misplaced)

    rows = []
    outside = 0
    for window in windows:
      start, end = _positions(window, span, len(head))
      outside += span is not None and not start
      labels = {"start_positions": start, "end_positions": end}
      labels["is_impossible"] = int(not answers)
      rows.append(self._encode(head, document, window, labels))
    return QuestionRows(rows, "", was_cut, outside, has_no_answer=not answers)

  def _encode(self, head, document, window, labels):
    """Makes the row of a window; `head` is [CLS] question [SEP], encoded."""
    length = len(head) + window.length + 1
    padding = bytes(self.settings.max_seq_length - length)
    part = document.encoded_ids[window.start : window.start + window.length]
    tail = record_writer.encode_id(self._sep_id)

    # Numbers of a feature, one after the other: 0 and 1 are a byte each.
    segments = bytes(len(head)) + b"\1" * (window.length + 1)
    packed = {
      "input_ids": b"".join([*head, *part, tail, padding]),
      "input_mask": b"\1" * length + padding,
      "segment_ids": segments + padding,
      "unique_ids": record_writer.encode_id(FIRST_UNIQUE_ID),
    }
    packed |= {n: record_writer.encode_id(v) for n, v in labels.items()}
    features = {
      name: record_writer.packed_feature(value)
      for name, value in packed.items()
    }
    return record_writer.encode_example(features), length


def set_unique_id(row: bytes, number: int) -> bytes:
  """Puts the id of the window with a number into its serialized row.

  Features are in the order of their names, so a row ends in the id.
  """
  unique_id = record_writer.encode_integer(FIRST_UNIQUE_ID + number)
  assert len(unique_id) == _UNIQUE_ID_BYTES, number
  return row[:-_UNIQUE_ID_BYTES] + unique_id


def _describe_misplaced(question):
  """Describes in one line the text where an answer should be."""
  answer = question.answers[0]
  if answer.start is None:
    return f"{question.location}: no answer_start for {answer.text[:40]!r}"

  # The answer may be there and have no token, such as a control character.
  text = question.context[answer.start : answer.start + len(answer.text)]
  if text.split() == answer.text.split():
    return f"{question.location}: no token in the answer {answer.text[:40]!r}"
  return (
    f"{question.location}: at answer_start {answer.start} is {text[:40]!r},"
    f" not the answer {answer.text[:40]!r}"
  )


def _positions(window, span, offset):
  """Returns the answer's first and last token; (0, 0) for [CLS] if outside.

  `span` counts tokens of the context and is None for no answer; `offset` tokens
  are before the window.
  """
  start, end = span or (-1, -1)
  if start < window.start or end >= window.start + window.length:
    return 0, 0
  return start - window.start + offset, end - window.start + offset
