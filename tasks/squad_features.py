"""Features of questions: windows of a text, with the question before each.

Words and windows are those of the original: a text is split at whitespace, its
words into tokens, and windows of as many tokens as fit begin `doc_stride`
tokens apart. Nothing here imports TensorFlow, so that other processes start
fast.
"""

import bisect
from collections.abc import Callable, Sequence
import dataclasses
import functools
import itertools
import re

from data import record_writer
from tasks import squad, windows
import tokenization
from vocabularies import vocabulary_table

# The original's whitespace, which is less than Unicode's.
_SPACES = " \t\r\n\u202f"
_WORDS = re.compile(f"[^{_SPACES}]+")
_CHINESE = "".join(f"{chr(a)}-{chr(b)}" for a, b in tokenization.CJK_RANGES)
_CHINESE_CHARACTER = re.compile(f"[{_CHINESE}]")
_UNSPACED_WORDS = re.compile(f"[{_CHINESE}]|[^{_CHINESE}{_SPACES}]+")
SPACE_RUNS = re.compile(f"[{_SPACES}]+")
# The original's first id. It and the ids after it take five bytes in a record,
# up to 2^35, which lets them be filled in when the windows before are counted.
FIRST_UNIQUE_ID = 1_000_000_000
_UNIQUE_ID_BYTES = 5


@dataclasses.dataclass(frozen=True)
class FeatureSettings:
  """The settings that shape the features."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int
  doc_stride: int
  max_query_length: int
  version_2_with_negative: bool

  def check(self) -> None:
    """Raises a ValueError if the lengths leave no room for the text."""
    room = self.max_seq_length - self.max_query_length - 3
    if room < 1:
      raise ValueError(
        f"--max_seq_length={self.max_seq_length}: expected more than "
        f"--max_query_length={self.max_query_length} and 3, for [CLS], a "
        "question, [SEP], some text and [SEP]"
      )


@dataclasses.dataclass(frozen=True)
class Document:
  """A context as tokens and words.

  The words are the original's. In a text without spaces these would be whole
  sentences, so every Chinese character is a word there and an answer may begin
  and end at any of them; see `is_unspaced`.

  Tokens and words are computed when first used: windows without answers need no
  words. No token extends beyond a word, so the tokens of the words are those of
  the text.
  """

  context: str
  encode: Callable[[str], Sequence[int]]  # Returns the ids of the tokens.

  @functools.cached_property
  def ids(self) -> Sequence[int]:
    """The ids of all tokens."""
    return self.encode(self.context)

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

  It is if it has more Chinese characters than words between spaces, so a few
  Chinese names in an English text do not count.

  >>> is_unspaced("\u5317\u4eac is Beijing."), is_unspaced("\u5317\u4eac\u3002")
  (False, True)
  """
  if context.isascii():
    return False
  characters = len(_CHINESE_CHARACTER.findall(context))
  return characters > len(_WORDS.findall(context))


def find_answer(
  document: Document,
  answer: squad.Answer,
  encode: Callable[[str], Sequence[int]],
) -> tuple[int, int] | None:
  """Finds the tokens of an answer, as close as tokens can be.

  Words come first: those at the answer's first and last character. If a part
  of their tokens is exactly the answer's, it is that part: "1895" of "(1895)".

  Returns:
    The first and the last token; None if the text there is not the answer. In
    some data sets answer_start is wrong.
  """
  start, length = answer.start, len(answer.text)
  if start is None or not length or start < 0:
    return None
  if start + length > len(document.context):
    return None
  # Before all words, to the original an answer began with the last one, at -1.
  first = document.word_at(start) % len(document.words)
  last = document.word_at(start + length - 1)
  if last < first:
    return None
  between = slice(document.words[first][0], document.words[last][1])
  words = SPACE_RUNS.sub(" ", document.context[between])
  if " ".join(answer.text.split()) not in words:
    return None
  begin, end = document.first_tokens[first], document.first_tokens[last + 1] - 1
  ids = list(encode(answer.text))
  for token in range(begin, end + 2 - len(ids)) if ids else ():
    if document.ids[token : token + len(ids)] == ids:
      return token, token + len(ids) - 1
  return (begin, end) if begin <= end else None


@dataclasses.dataclass
class Rows:
  """The windows of some questions, as records, and counts of problems.

  Attributes:
    by_question: for each question its windows, record and number of tokens;
      none if it is not to be trained on.
    misplaced: describes answers that are not where they are said to be.
    cut_questions: how many have more than max_query_length tokens.
    labelled: how many have answers, or are known to have no answer.
    outside: windows to train on that do not contain the answer.
  """

  by_question: list[list[tuple[bytes, int]]] = dataclasses.field(
    default_factory=list
  )
  misplaced: list[str] = dataclasses.field(default_factory=list)
  cut_questions: int = 0
  labelled: int = 0
  outside: int = 0


class FeatureMaker:
  """Turns paragraphs into records; other processes have one each.

  Args:
    is_training: adds where the answer is, and leaves out questions for which
      that is not known.
  """

  def __init__(self, settings: FeatureSettings, is_training: bool):
    self.settings, self._is_training = settings, is_training
    tokenizer = vocabulary_table.make_tokenizer(
      settings.vocab_file, settings.do_lower_case
    )
    self.encode, self._tokenizer = tokenizer.encode, tokenizer
    self.cls_id, self.sep_id = tokenizer.convert_tokens_to_ids(
      ["[CLS]", "[SEP]"]
    )

  def tokens(self, ids: Sequence[int]) -> list[str]:
    """Returns the tokens of ids."""
    return self._tokenizer.convert_ids_to_tokens(ids)

  def document(self, paragraph: squad.Paragraph) -> Document:
    """Makes the document of a paragraph; a ValueError if it has no token."""
    document = Document(paragraph.context, self.encode)
    if not document.ids:
      location = paragraph.questions[0].location
      raise ValueError(f"{location}: the context is empty: no token in it")
    return document

  def windows(
    self, document: Document, question: squad.Question
  ) -> tuple[list[int], list[windows.Window]]:
    """Returns the ids of a question, truncated, and the windows of its text."""
    query = self.encode(question.text)[: self.settings.max_query_length]
    return query, self._windows(document, len(query))

  def _windows(self, document, query_length):
    size = self.settings.max_seq_length - query_length - 3
    stride = self.settings.doc_stride
    return windows.make_windows(len(document.ids), size, stride)

  def __call__(self, paragraphs: Sequence[squad.Paragraph]) -> Rows:
    """Makes the records of some paragraphs."""
    rows = Rows()
    for paragraph in paragraphs:
      document = self.document(paragraph)
      encoded = list(map(record_writer.encode_id, document.ids))
      for question in paragraph.questions:
        self._add(rows, document, encoded, question)
    return rows

  def _add(self, rows, document, encoded, question):
    whole = self.encode(question.text)
    query = whole[: self.settings.max_query_length]
    rows.cut_questions += len(whole) > len(query)
    rows.labelled += self._is_labelled(question.answers)
    is_impossible, span = False, None
    if self._is_training:
      is_impossible = self._is_impossible(question)
    if self._is_training and not is_impossible:
      span = find_answer(document, question.answers[0], self.encode)
      if span is None:
        rows.misplaced.append(describe_misplaced(document, question))
        rows.by_question.append([])
        return
    head = b"".join(
      map(record_writer.encode_id, [self.cls_id, *query, self.sep_id])
    )
    records, labels = [], {}
    for window in self._windows(document, len(query)):
      if self._is_training:
        start, end = _positions(window, span, len(query) + 2)
        rows.outside += not start
        labels = _encode_labels(start, end, is_impossible)
      records.append(self._encode(head, len(query), encoded, window, labels))
    rows.by_question.append(records)

  def _is_labelled(self, answers):
    # An empty list means that there is no answer only where that is possible.
    if self.settings.version_2_with_negative:
      return answers is not None
    return bool(answers)

  def _is_impossible(self, question):
    if question.answers is None:
      raise ValueError(f"{question.location}: no 'answers' to train on")
    if question.answers:
      return False
    if not self.settings.version_2_with_negative:
      raise ValueError(
        f"{question.location}: a question without an answer; pass "
        "--version_2_with_negative=true to train on such questions"
      )
    return True

  def _encode(self, head, query_length, encoded, window, labels):
    length = query_length + window.length + 3
    padding = bytes(self.settings.max_seq_length - length)
    part = encoded[window.start : window.start + window.length]
    packed = {
      "input_ids": b"".join(
        [head, *part, record_writer.encode_id(self.sep_id), padding]
      ),
      "input_mask": b"\1" * length + padding,
      "segment_ids": bytes(query_length + 2)
      + b"\1" * (window.length + 1)
      + padding,
      "unique_ids": record_writer.encode_id(FIRST_UNIQUE_ID),
    }
    features = {
      name: record_writer.packed_feature(value)
      for name, value in packed.items()
    }
    return record_writer.encode_example({**features, **labels}), length


def set_unique_id(record: bytes, number: int) -> bytes:
  """Puts the id of the window with a number into its record.

  Features are in the order of their names, so a record ends in the id.
  """
  unique_id = record_writer.encode_integer(FIRST_UNIQUE_ID + number)
  assert len(unique_id) == _UNIQUE_ID_BYTES, number
  return record[:-_UNIQUE_ID_BYTES] + unique_id


def describe_misplaced(document: Document, question: squad.Question) -> str:
  """Describes in one line the text where an answer should be."""
  answer = question.answers[0]
  if answer.start is None:
    return f"{question.location}: no answer_start for {answer.text[:40]!r}"
  text = document.context[answer.start : answer.start + len(answer.text)]
  return (
    f"{question.location}: at answer_start {answer.start} is {text[:40]!r},"
    f" not the answer {answer.text[:40]!r}"
  )


def _positions(window, span, offset):
  """Returns where the answer is in a window; at [CLS] if it is not in it."""
  if span is None:
    return 0, 0
  start, end = span
  if start < window.start or end >= window.start + window.length:
    return 0, 0
  return start - window.start + offset, end - window.start + offset


@functools.cache
def _encode_labels(start: int, end: int, is_impossible: bool):
  values = {
    "start_positions": start,
    "end_positions": end,
    "is_impossible": int(is_impossible),
  }
  return {k: record_writer.int64_feature([v]) for k, v in values.items()}
