"""Labels of words: CoNLL files, tag schemes, windows of tokens, features.

A `Source` says which file there is and how to read it, `read_sentences` reads
it. `make_features` makes the inputs of the model: the first token of a word has
the word's label, the others have none (section 5.3 of the paper).
"""

import bisect
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
import re
from typing import NamedTuple
import unicodedata

from data import files
from data import record_writer
from data import tables
from tasks import metrics
import tokenization

# The prefixes of each scheme, besides O: the first word of an entity, one in
# its middle, the last one, and the only one.
SCHEMES = {"iob1": "BI", "iob2": "BI", "iobes": "BIES", "bmes": "BMES"}
NO_SCHEME = "none"  # Labels that mark no entities, such as parts of speech.
FORMATS = ("conll", "untagged", "text", "characters")
_DOCUMENT = "-DOCSTART-"
_SPACES = re.compile("[ \t]+")
# Lines of CoNLL-U and CoNLL-2012, whose words are not in the first column:
# comments, tokens of several words, and empty nodes.
_NO_WORD = re.compile(r"#|\d+[-.]\d+\t")


class Source(NamedTuple):
  """A file of sentences, and how it is read.

  "conll" is a word and its tag a line, in columns, and a blank line after each
  sentence; lines that begin with -DOCSTART- begin a document. Where words are
  not in the first column, comments are passed over. "untagged" is the
  same without tags. "text" is a sentence a line, whose words are split at
  spaces, around Chinese characters and before and after punctuation; a blank
  line ends a document. In "characters" every character of it is a word.
  """

  path: str
  format: str = "conll"  # One of FORMATS.
  token_column: int = 0
  tag_column: int = -1  # -1 is the last one.
  scheme: str = "iob2"  # Of the tags: a key of SCHEMES, or NO_SCHEME.

  @property
  def is_tagged(self) -> bool:
    """Whether there are tags in the file."""
    return self.format == "conll"


class Sentence(NamedTuple):
  """The words of a sentence and what is known about it."""

  words: tuple[str, ...]
  tags: tuple[str, ...] | None  # As in the file; None if it has none.
  document: int  # From 0.
  path: str
  line: int  # That of the first word.
  text: str | None = None  # The line, of plain text.
  offsets: tuple[tuple[int, int], ...] = ()  # Of the words in it, likewise.

  @property
  def place(self) -> str:
    """Where it is: "path:line"."""
    return f"{self.path}:{self.line}"


class _Row(NamedTuple):
  """A line of a CoNLL file: a word, a blank line or the mark of a document."""

  line: int
  text: str
  cells: list[str]  # None of a blank line.
  is_comment: bool

  @property
  def is_word(self) -> bool:
    return bool(self.cells) and not (self.is_document or self.is_comment)

  @property
  def is_document(self) -> bool:
    return self.text.startswith(_DOCUMENT)


# Reading.


def read_sentences(source: Source) -> Iterator[Sentence]:
  """Yields the sentences of a file.

  Raises:
    ValueError: a line lacks a column or has a tag outside of the scheme (the
      message begins with path and line), or there is no sentence.
  """
  is_columns = source.format in ("conll", "untagged")
  read = _read_conll if is_columns else _read_text
  sentence = None
  for sentence in read(source):
    yield sentence
  if sentence is None:
    raise ValueError(f"{source.path}: holds no sentence")


def _read_conll(source: Source) -> Iterator[Sentence]:
  document, is_fresh = 0, True  # A mark before the first sentence ends nothing.
  rows = (row for row in _read_rows(source) if not row.is_comment)
  for is_word, group in itertools.groupby(rows, lambda row: row.is_word):
    if not is_word:
      if any(row.is_document for row in group) and not is_fresh:
        document, is_fresh = document + 1, True
      continue
    words, tags, line = _read_words(source, list(group))
    yield Sentence(words, tags, document, source.path, line)
    is_fresh = False


def _read_words(source, rows):
  words = tuple(row.cells[source.token_column] for row in rows)
  if not source.is_tagged:
    return words, None, rows[0].line
  tags = tuple(row.cells[source.tag_column].strip(" ") for row in rows)
  for tag, row in zip(tags, rows, strict=True):
    if not _fits(tag, source.scheme):
      raise ValueError(
        f"{source.path}:{row.line}: the tag {tag[:99]!r} is outside of the "
        f"scheme {source.scheme}: expected {_describe_scheme(source.scheme)} "
        "(see --tag_scheme and --tag_column)"
      )
  return words, tags, rows[0].line


def _read_rows(source: Source) -> Iterator[_Row]:
  """Yields the lines of a CoNLL file; those of words have all columns."""
  width = 0
  for number, line in enumerate(_read_lines(source.path), 1):
    is_comment = source.token_column > 0 and _NO_WORD.match(line) is not None
    row = _Row(number, line, _split_columns(line), is_comment)
    if row.is_word:
      width = width or len(row.cells)
      _check_row(source, row, width)
    yield row


def _read_lines(path: str) -> Iterator[str]:
  lines = files.read_lines(path, keeps_returns=True)
  for number, line in enumerate(lines, 1):
    line = line.removesuffix("\r")
    if "\r" in line:
      raise ValueError(
        f"{path}:{number}: a carriage return within a line; lines end "
        r"with \n or \r\n"
      )
    yield line.lstrip("\ufeff") if number == 1 else line


def append_column(source: Source, tags: Iterable[str]) -> Iterator[str]:
  """Yields the lines of a CoNLL file with one more column."""
  tags = iter(tags)
  for row in _read_rows(source):
    if not row.cells:
      yield ""
    elif row.is_comment:
      yield row.text
    else:
      separator = "\t" if "\t" in row.text else " "
      yield f"{row.text}{separator}{next(tags) if row.is_word else 'O'}"


def open_source(
  path: str,
  format: str,
  token_column: int,
  tag_column: int,
  scheme: str,
  needs_tags: bool,
) -> Source:
  """Finds out how a file of sentences is to be read.

  Args:
    scheme: of the tags; "auto" detects it in the file.
    needs_tags: whether a file without the column of tags is an error; else it
      is read as "untagged".

  Raises:
    ValueError: both columns are the same.
  """
  if token_column == tag_column:
    raise ValueError(
      f"--token_column and --tag_column are both {tag_column}: the words would "
      "be the tags"
    )
  source = Source(path, format, token_column, tag_column, scheme)
  if source.is_tagged and not needs_tags:
    last = token_column + 1 if tag_column < 0 else max(tag_column, token_column)
    untagged = source._replace(format="untagged")
    first = next((row for row in _read_rows(untagged) if row.is_word), None)
    if first and len(first.cells) <= last:
      source = untagged
  if not source.is_tagged or scheme != "auto":
    return source
  return source._replace(scheme=find_scheme(source))


def _split_columns(line: str) -> list[str]:
  if not line.strip(" \t"):
    return []
  # Any other kind of space may be a word, such as the Chinese one.
  return line.split("\t") if "\t" in line else _SPACES.split(line.strip(" "))


def _check_row(source: Source, row: _Row, width: int) -> None:
  place, found = f"{source.path}:{row.line}", len(row.cells)
  needed = source.token_column + 1
  if source.is_tagged and source.tag_column < 0:
    if width <= needed:
      raise ValueError(
        f"{place}: expected at least {needed + 1} columns, a word and its tag,"
        f" found {found}"
      )
    if found != width:
      raise ValueError(
        f"{place}: expected {width} columns as in the lines before, found"
        f" {found}"
      )
  if source.is_tagged:
    needed = max(needed, source.tag_column + 1)
  if found < needed:
    raise ValueError(
      f"{place}: expected at least {needed} columns (see --token_column and"
      f" --tag_column), found {found}"
    )
  if not row.cells[source.token_column]:
    raise ValueError(f"{place}: the word is empty")


def _read_text(source: Source) -> Iterator[Sentence]:
  by_character = source.format == "characters"
  document, is_fresh = 0, True
  for number, line in enumerate(_read_lines(source.path), 1):
    offsets = tuple(split_text(line, by_character))
    if not offsets:
      document, is_fresh = document + (not is_fresh), True
      continue
    words = tuple(line[start:end] for start, end in offsets)
    yield Sentence(words, None, document, source.path, number, line, offsets)
    is_fresh = False


def split_text(
  text: str, by_character: bool = False
) -> Iterator[tuple[int, int]]:
  """Yields where the words of a text begin and end.

  >>> [text[a:b] for text in ['The U.S., 中文!'] for a, b in split_text(text)]
  ['The', 'U.S', '.', ',', '中', '文', '!']
  """
  for match in re.finditer(r"\S" if by_character else r"\S+", text):
    chars = enumerate(match[0], match.start())
    for is_lone, group in itertools.groupby(
      chars, lambda char: _is_ideograph(char[1])
    ):
      places = [place for place, _ in group]
      if is_lone:
        yield from ((place, place + 1) for place in places)
      else:
        yield from _peel(text, places[0], places[-1] + 1)


def _peel(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
  """Splits punctuation from the beginning and the end of a word."""
  first, last = start, end
  while first < last and _is_punctuation(text[first]):
    first += 1
  while last > first and _is_punctuation(text[last - 1]):
    last -= 1
  yield from ((place, place + 1) for place in range(start, first))
  if first < last:
    yield first, last
  yield from ((place, place + 1) for place in range(last, end))


@functools.cache
def _is_ideograph(char: str) -> bool:
  return unicodedata.name(char, "").startswith("CJK ")


@functools.cache
def _is_punctuation(char: str) -> bool:
  if char.isascii():
    return not char.isalnum()
  return unicodedata.category(char).startswith("P")


def text_of(
  sentence: Sentence, separator: str = " "
) -> tuple[str, Sequence[tuple[int, int]]]:
  """Returns a sentence as text, and where in it its words are.

  Args:
    sentence: of plain text, or words that the separator stands between.
    separator: nothing, if words are characters.
  """
  if sentence.text is not None:
    return sentence.text, sentence.offsets
  ends = itertools.accumulate(
    sentence.words,
    lambda end, word: end + len(separator) + len(word),
    initial=-len(separator),
  )
  starts = [end + len(separator) for end in ends][:-1]
  return separator.join(sentence.words), [
    (start, start + len(word))
    for start, word in zip(starts, sentence.words, strict=True)
  ]


# Schemes.


def _fits(tag: str, scheme: str) -> bool:
  if scheme == NO_SCHEME:
    return bool(tag)
  prefix, dash, type = tag.partition("-")
  if prefix == "O":
    return not dash
  is_prefix = len(prefix) == 1 and prefix in SCHEMES[scheme]
  return is_prefix and bool(type) == bool(dash)


def _describe_scheme(scheme: str) -> str:
  if scheme == NO_SCHEME:
    return "a label"
  prefixes = [f"{prefix}-" for prefix in SCHEMES[scheme]]
  return f"O, or {', '.join(prefixes[:-1])} or {prefixes[-1]} and a type"


def find_scheme(source: Source) -> str:
  """Returns the scheme that the tags of a file follow.

  Returns:
    A key of SCHEMES, or NO_SCHEME if no tag is a prefix and a type.

  Raises:
    ValueError: only some tags are; or the file is damaged.
  """
  # IOB1 if all tags follow it, and not IOB2 as well: a stray I- within IOB2
  # does not make a file IOB1.
  tags, possible = {}, {"iob1", "iob2"}
  for sentence in read_sentences(source._replace(scheme=NO_SCHEME)):
    for index, tag in enumerate(sentence.tags):
      tags.setdefault(tag, f"{sentence.path}:{sentence.line + index}")
    possible = {
      scheme
      for scheme in possible
      if tuple(convert_tags(sentence.tags, scheme)) == sentence.tags
    }
  return _find_scheme(tags, possible == {"iob1"})


def _find_scheme(tags: dict[str, str], is_iob1: bool) -> str:
  """Finds the scheme of tags, given with the place of each."""
  known = "".join(SCHEMES.values())
  wrong = [
    tag
    for tag in tags
    if tag != "O" and not (tag[:1] in known and tag[1:2] in ("", "-"))
  ]
  if wrong and not any(tag[0] in known and tag[1:2] == "-" for tag in tags):
    return NO_SCHEME
  if wrong:
    raise ValueError(
      f"{tags[wrong[0]]}: the tag {wrong[0][:99]!r} is outside of every scheme:"
      " expected O, or B-, I-, E-, S- or M- and a type (--tag_scheme=none takes"
      " all tags as they are)"
    )
  prefixes = {tag[0] for tag in tags}
  if "M" in prefixes:
    return "bmes"
  if prefixes & {"E", "S"}:
    return "iobes"
  return "iob1" if is_iob1 else "iob2"


def label_scheme(scheme: str) -> str:
  """Returns the scheme of the labels that a model learns.

  It is that of the tags it learns from, but not IOB1, in which the first word
  of an entity has no label of its own.
  """
  return "iob2" if scheme == "iob1" else scheme


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
  """Writes the entities of tags in a scheme; see `metrics.find_entities`.

  >>> convert_tags(["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "bmes")
  ['B-PER', 'E-PER', 'S-PER', 'O', 'S-LOC']

  Args:
    scheme: to write; NO_SCHEME leaves tags as they are.
  """
  if scheme == NO_SCHEME:
    return list(tags)
  converted = ["O"] * len(tags)
  last = metrics.Entity("", -1, -1)
  for entity in metrics.find_entities(tags):
    prefixes = _prefixes(scheme, entity, last)
    dash = "-" if entity.type else ""
    converted[entity.start : entity.end] = [
      f"{prefix}{dash}{entity.type}" for prefix in prefixes
    ]
    last = entity
  return converted


def _prefixes(scheme, entity, last) -> str:
  length = entity.end - entity.start
  if scheme == "iob1":
    follows = last.end == entity.start and last.type == entity.type
    return ("B" if follows else "I") + "I" * (length - 1)
  if scheme == "iob2":
    return "B" + "I" * (length - 1)
  first, middle, end, only = SCHEMES[scheme]
  return only if length == 1 else first + middle * (length - 2) + end


# Labels.


def find_labels(sentences: Iterable[Sentence], scheme: str) -> list[str]:
  """Returns all labels of tags, for their numbers.

  Returns:
    With a scheme O, then all prefixes of each type, by name; else the tags that
    occur, by name.
  """
  tags, path = set(), ""
  for sentence in sentences:
    tags.update(sentence.tags)
    path = sentence.path
  if scheme == NO_SCHEME:
    if len(tags) < 2:
      raise ValueError(
        f"{path}: expected two labels or more, found only"
        f" {tables.list_names(tags)}; is it the right column?"
      )
    return sorted(tags)
  types = sorted({tag.partition("-")[2] for tag in tags if tag != "O"})
  if not tags - {"O"}:
    raise ValueError(
      f"{path}: no entity, all tags are O; is it the right column?"
    )
  return ["O"] + [
    f"{prefix}-{type}" if type else prefix
    for type in types
    for prefix in SCHEMES[scheme]
  ]


def scheme_of_labels(labels: Sequence[str]) -> str:
  """Returns the scheme that all labels of a model make up, or NO_SCHEME.

  >>> scheme_of_labels(["O", "B-LOC", "I-LOC"]), scheme_of_labels(["DT", "NN"])
  ('iob2', 'none')
  """
  for scheme in ("iob2", "iobes", "bmes"):
    types = {label.partition("-")[2] for label in labels if label != "O"}
    expected = {f"{p}-{t}" if t else p for t in types for p in SCHEMES[scheme]}
    if types and set(labels) == expected | {"O"}:
      return scheme
  return NO_SCHEME


# Features.


class Feature(NamedTuple):
  """An input of the model: [CLS] words [SEP], not padded."""

  input_ids: list[int]
  label_ids: list[int]  # See `make_features`.
  label_mask: list[int]  # 1 at the first token of the words it is made for.
  sentence: int  # Its number in the file, from 0.


class Window(NamedTuple):
  """Words of a text, from the left; some of them are there as context."""

  start: int
  end: int
  first: int  # Of those that the window is made for.
  last: int  # After the last of those.


def fit_windows(
  lengths: Sequence[int],
  bounds: Iterable[tuple[int, int]],
  room: int,
) -> Iterator[tuple[int, Window]]:
  """Splits sentences into windows and fills each with words around it.

  Every word of a sentence is in exactly one of its windows; only one that has
  more words than fit is split. What a window has room for after that is given
  to the words before and after it, half each if there are as many.

  Args:
    lengths: tokens of each word of a text, none above `room`.
    bounds: the first word of each sentence, and the one after its last.
    room: the most tokens of a window.

  Yields:
    The number of a sentence, and a window of it.

  >>> [window for _, window in fit_windows([1] * 9, [(0, 2), (2, 9)], 5)]
  ... # doctest: +NORMALIZE_WHITESPACE
  [Window(start=0, end=5, first=0, last=2),
   Window(start=2, end=7, first=2, last=7),
   Window(start=4, end=9, first=7, last=9)]
  """
  sums = [0, *itertools.accumulate(lengths)]
  for number, (first, end) in enumerate(bounds):
    while first < end:
      last = bisect.bisect_right(sums, sums[first] + room, first, end + 1) - 1
      yield number, _surround(sums, first, last, room)
      first = last


def _surround(sums: list[int], first: int, last: int, room: int) -> Window:
  left = room - (sums[last] - sums[first])

  def reach_back(tokens):
    return bisect.bisect_left(sums, sums[first] - tokens, 0, first)

  start = reach_back(left // 2)
  left -= sums[first] - sums[start]
  end = bisect.bisect_right(sums, sums[last] + left, last) - 1
  left -= sums[end] - sums[last]
  # Words before it get the room left by words after it.
  return Window(reach_back(sums[first] - sums[start] + left), end, first, last)


def make_features(
  sentences: Iterable[Sentence],
  tokenizer: tokenization.FullTokenizer,
  labels: Sequence[str],
  max_seq_length: int,
  document_context: bool = False,
) -> Iterator[Feature]:
  """Turns sentences into inputs of the model.

  A word without tokens, such as one of control characters, becomes [UNK]; one
  of more tokens than fit is cut. Sentences that are too long are split between
  words into windows, each of which has the words around it for context.

  Args:
    sentences: with tags in the scheme of the labels, or without.
    labels: in the order of their numbers. A tag that is not among them, or that
      is unknown, gets the number after the last.
    max_seq_length: the most tokens of a feature, [CLS] and [SEP] included.
    document_context: whether windows are filled with the sentences around in
      the same document ("maximal document context", section 5.3).
  """
  room = max_seq_length - 2
  numbers = {label: number for number, label in enumerate(labels)}
  encode = functools.lru_cache(1 << 16)(
    functools.partial(_encode_word, tokenizer, room)
  )
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  index = 0
  for text in _group(sentences, document_context):
    words = [encode(word) for sentence in text for word in sentence.words]
    ends = list(itertools.accumulate(len(s.words) for s in text))
    bounds = list(zip([0, *ends], ends, strict=False))
    label_ids = [
      numbers.get(tag, len(labels))
      for sentence in text
      for tag in (sentence.tags or [None] * len(sentence.words))
    ]
    for number, window in fit_windows(list(map(len, words)), bounds, room):
      yield _make_feature(
        window, words, label_ids, cls_id, sep_id, index + number
      )
    index += len(text)


def _encode_word(tokenizer, room, word) -> tuple[int, ...]:
  ids = tokenizer.encode(word) or tokenizer.convert_tokens_to_ids(["[UNK]"])
  return tuple(ids[:room])


def _group(sentences, document_context) -> Iterator[list[Sentence]]:
  if not document_context:
    return ([sentence] for sentence in sentences)
  groups = itertools.groupby(sentences, lambda sentence: sentence.document)
  return (list(group) for _, group in groups)


def _make_feature(window, words, label_ids, cls_id, sep_id, sentence):
  ids, labels, mask = [cls_id], [0], [0]
  for index in range(window.start, window.end):
    is_labelled = window.first <= index < window.last
    rest = [0] * (len(words[index]) - 1)
    ids += words[index]
    labels += [label_ids[index] if is_labelled else 0, *rest]
    mask += [int(is_labelled), *rest]
  return Feature([*ids, sep_id], [*labels, 0], [*mask, 0], sentence)


def encode_feature(feature: Feature, max_seq_length: int) -> bytes:
  """Encodes a feature as a tf.train.Example.

  Returns:
    The serialized input_ids, input_mask, segment_ids, label_ids and label_mask,
    int64 [max_seq_length], padded with 0.
  """
  length = len(feature.input_ids)
  values = {
    "input_ids": feature.input_ids,
    "input_mask": [1] * length,
    "segment_ids": [0] * length,
    "label_ids": feature.label_ids,
    "label_mask": feature.label_mask,
  }
  return record_writer.encode_example(
    {
      name: record_writer.padded_feature(value, max_seq_length)
      for name, value in values.items()
    }
  )
