"""Labels of words: files of CoNLL or JSON Lines, and features.

`read_sentences` reads a file as a `Source` describes it. `make_features` makes
the inputs of the model: the first token of a word has the word's label, the
others have none (section 5.3 of the paper).
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
import functools
import itertools
import re
from typing import NamedTuple

from bert import tokenization
from bert.data import files, messages, packing, progress
from bert.tasks import tagging_json, tagging_schemes, tagging_words

_DOCUMENT = "-DOCSTART-"
split_words = tagging_words.split_words  # As answers split a text, too.
_SPACES = re.compile("[ \t]+")
# Lines of CoNLL-U and CoNLL-2012, whose words are not in the first column:
# comments, tokens of several words, and empty nodes.
_NO_WORD = re.compile(r"#|\d+[-.]\d+\t")
_FEW_LABELS = 20


class Source(NamedTuple):
  """A file of sentences in columns, and how it is read.

  It has a word and its tag a line and a blank line after each sentence; lines
  that begin with -DOCSTART- begin a document. A line that begins with # is a
  comment, and skipped, if it has other columns than the first row that does
  not, for # and #win may be words; or if words are not in the first column.

  Or it has JSON Lines, and a sentence a line, all of one document; see
  `tagging_json`.
  """

  path: str
  token_column: int = 0
  tag_column: int = -1  # -1 is the last one.
  scheme: str = "iob2"  # The scheme of the tags, see `tagging_schemes`.
  is_tagged: bool = True  # False: there is no column of tags.
  names: tuple[str, ...] = ()  # The tags' names, for JSON Lines of numbers.

  @property
  def num_columns(self) -> int:
    """The least number of columns."""
    # The last column, -1, is another one than that of the words.
    last = self.token_column + 1 if self.tag_column < 0 else self.tag_column
    return 1 + max(self.token_column, last if self.is_tagged else 0)

  @property
  def columns(self) -> dict[str, int]:
    """The numbers of its columns, by what they hold."""
    columns = {"token": self.token_column}
    return columns | ({"tag": self.tag_column} if self.is_tagged else {})

  def skips(self, text: str) -> bool:
    """Returns whether a line has no word, where words are not in front."""
    return self.token_column > 0 and _NO_WORD.match(text) is not None


class Sentence(NamedTuple):
  """The words of a sentence, with their tags where they are known."""

  words: tuple[str, ...]
  tags: tuple[str, ...] | None  # As in the file; None if it has none.
  document: int  # From 0.
  path: str
  line: int  # The line of the first word, from 1.
  text: str | None = None  # Where words were found in plain text.
  offsets: tuple[tuple[int, int], ...] = ()  # Start and end of each word.

  @property
  def location(self) -> str:
    """Where it begins, for messages."""
    return f"{self.path}:{self.line}"


class _Line(NamedTuple):
  """A line of a file: a word, nothing, a comment or the mark of a document."""

  number: int  # From 1.
  text: str
  cells: list[str]  # Empty unless there is a word.
  is_comment: bool
  row: tagging_json.Row | None = None  # In JSON Lines: the word's sentence.

  @property
  def is_document(self) -> bool:
    """Whether it begins a document."""
    return self.text.startswith(_DOCUMENT)


# Reading.


def inspect_file(
  path: str,
  token_column: int,
  tag_column: int,
  scheme: str,
  needs_tags: bool = True,
  names: tuple[str, ...] = (),
) -> Source:
  """Finds out how a file of sentences is to be read.

  Args:
    path: the file.
    token_column: of the words, from 0.
    tag_column: of the tags, from 0; -1 is the last.
    scheme: one of `tagging_schemes`, NO_SCHEME or "auto", which reads all of
      the file to detect it.
    needs_tags: whether a file without the column of tags is an error, which is
      raised when its sentences are read.
    names: of the tags, by the numbers that JSON Lines may have.
  """
  if token_column == tag_column:
    raise ValueError(
      f"--token_column and --tag_column are both {tag_column}: the words would "
      "be the tags"
    )
  source = Source(path, token_column, tag_column, scheme, names=names)

  # A file to predict shows in its first row whether it has tags.
  if not needs_tags:
    untagged = source._replace(is_tagged=False)
    first = next((line for line in _read_lines(untagged) if line.cells), None)
    if first and len(first.cells) < source.num_columns:
      return untagged

  if scheme == "auto":
    return source._replace(scheme=find_scheme(source))
  return source


def read_first(source: Source) -> list[str]:
  """Returns the cells of the first row; none if JSON Lines have no columns."""
  if tagging_json.is_json(source.path):
    return []
  # Rows of any width will do.
  any_row = source._replace(token_column=0, is_tagged=False)
  return next((x.cells for x in _read_lines(any_row) if x.cells), [])


def note_comments(source: Source) -> None:
  """Says which lines are taken for comments where words might begin with #.

  Of texts in JSON Lines it says which entities are not made of whole words.
  """
  if tagging_json.is_json(source.path):
    tagging_json.note_inexact(source.path, source.names)
    return
  if source.token_column > 0:
    return
  comments = [line.number for line in _read_lines(source) if line.is_comment]
  if comments:
    progress.note(
      f"note: {source.path}:{comments[0]}: a line that begins with # and has "
      "other columns than the first row is a comment, here and on "
      f"{len(comments) - 1:,} other lines"
    )


def read_sentences(
  source: Source, scheme: str = tagging_schemes.NO_SCHEME
) -> Iterator[Sentence]:
  """Yields the sentences of a file, with tags in a scheme or as in the file.

  A ValueError names the line that is wrong, or the file if it has no sentence.
  """
  for lines, document in _read_groups(source):
    sentence = _make_sentence(source, lines, document)
    if sentence.tags:
      tags = tagging_schemes.convert_tags(sentence.tags, scheme)
      sentence = sentence._replace(tags=tags)
    yield sentence


def _read_groups(source: Source) -> Iterator[tuple[list[_Line], int]]:
  """Yields the lines of each sentence, with the number of its document."""
  document = 0
  has_sentence = False
  is_document_empty = True

  # Lines with words, and between these the blank lines and marks of documents.
  lines = (line for line in _read_lines(source) if not line.is_comment)
  for is_word, group in itertools.groupby(lines, lambda line: bool(line.cells)):
    if is_word:
      yield list(group), document
      has_sentence = True
      is_document_empty = False
    # A mark before the first sentence of a document ends nothing.
    elif any(line.is_document for line in group) and not is_document_empty:
      document += 1
      is_document_empty = True
  if not has_sentence:
    raise ValueError(f"{source.path}: holds no sentence")


def _make_sentence(source, lines, document) -> Sentence:
  """Makes a sentence of lines; a ValueError if a tag is not of the scheme."""
  words = tuple(line.cells[source.token_column] for line in lines)
  tags = None
  if source.is_tagged:
    tags = tuple(line.cells[source.tag_column].strip(" ") for line in lines)
    for tag, line in zip(tags, lines, strict=True):
      if not tagging_schemes.fits(tag, source.scheme):
        raise ValueError(
          f"{_locate(source, line)}: the tag {tag[:99]!r} is outside of "
          f"the scheme {source.scheme}: expected "
          f"{tagging_schemes.describe(source.scheme)} (see --tag_scheme and "
          "--tag_column)"
        )
  sentence = Sentence(words, tags, document, source.path, lines[0].number)
  row = lines[0].row
  if row is None or row.text is None:
    return sentence
  return sentence._replace(text=row.text, offsets=tuple(row.offsets))


def _locate(source: Source, line: _Line) -> str:
  """Says where a line is, and whether its word may be a comment."""
  doubt = " (a comment?)" if line.text.startswith("# ") else ""
  return f"{source.path}:{line.number}{doubt}"


def _read_lines(source: Source) -> Iterator[_Line]:
  """Yields the lines of a file; every line with a word has all columns."""
  if tagging_json.is_json(source.path):
    yield from _read_json_lines(source)
    return
  shape = _find_shape(source)
  for number, text in _read_text(source.path):
    cells = _split_columns(source, text)

    # A word such as #win has the columns of all words; a comment has not.
    is_comment = text.startswith("#") and _shape(text, cells) != shape
    if is_comment or source.skips(text):
      yield _Line(number, text, [], is_comment=True)
      continue

    if cells:
      _check_cells(source, f"{source.path}:{number}", cells, shape[1])
    yield _Line(number, text, cells, is_comment=False)


def _read_json_lines(source: Source) -> Iterator[_Line]:
  """Yields each word of JSON Lines, with its tag, as a line of two columns."""
  if source.token_column or source.num_columns > 2:
    raise ValueError(
      f"{source.path}: JSON Lines have keys and no columns: leave out "
      "--token_column and --tag_column"
    )
  for row in tagging_json.read(source.path, source.names):
    number = int(row.location.rpartition(":")[2])
    # A file to predict may lack tags.
    if source.is_tagged and row.tags is None:
      key = "tags" if row.text is None else "entities"
      raise ValueError(f"{row.location}: no key {key!r}")

    columns = [row.words] if row.tags is None else [row.words, row.tags]
    for cells in zip(*columns, strict=True):
      text = "\t".join(cells)
      yield _Line(number, text, list(cells), is_comment=False, row=row)
    yield _Line(number, "", [], is_comment=False)


def _read_text(path: str) -> Iterator[tuple[int, str]]:
  """Yields the lines of a file with their numbers, without their ends."""
  for number, text in enumerate(files.read_lines(path, keeps_returns=True), 1):
    text = text.removesuffix("\r")
    if "\r" in text:
      raise ValueError(
        f"{path}:{number}: a carriage return within a line; lines end "
        r"with \n or \r\n"
      )
    yield number, text.lstrip("\ufeff") if number == 1 else text


def _find_shape(source: Source) -> tuple[bool, int]:
  """Returns the columns of the first row that cannot be a comment.

  They are whether tabs separate them, and their number. If all rows begin with
  #, the first row decides.
  """
  shape = None
  for _, text in _read_text(source.path):
    if cells := _split_columns(source, text):
      if not text.startswith("#"):
        return _shape(text, cells)
      shape = shape or _shape(text, cells)
  return shape or (False, 0)


def _shape(text: str, cells: list[str]) -> tuple[bool, int]:
  """Returns whether tabs separate the columns of a line, and their number."""
  return "\t" in text, len(cells)


def _split_columns(source: Source, text: str) -> list[str]:
  """Returns the columns of a line; none if it can hold no word."""
  is_empty = not text.strip(" \t")
  if is_empty or text.startswith(_DOCUMENT) or source.skips(text):
    return []
  # Any other kind of space may be a word, such as the Chinese one.
  return text.split("\t") if "\t" in text else _SPACES.split(text.strip(" "))


def _check_cells(source, location, cells, width) -> None:
  """Raises a ValueError if a line lacks columns or its word."""
  count = len(cells)
  if count < source.num_columns:
    raise ValueError(
      f"{location}: expected at least {source.num_columns} columns (see "
      f"--token_column and --tag_column), found {count}"
    )
  # The last column is the tag's only if all rows have as many.
  if source.is_tagged and source.tag_column < 0 and count != width:
    raise ValueError(
      f"{location}: expected {width} columns as in the lines before, found"
      f" {count}"
    )
  if not cells[source.token_column]:
    raise ValueError(f"{location}: the word is empty")


def append_column(source: Source, tags: Iterable[str]) -> Iterator[str]:
  """Yields the lines of a file with one more column, of a tag for each word."""
  tags = iter(tags)
  # A word of JSON Lines may hold spaces, but no tab.
  is_json = tagging_json.is_json(source.path)
  for line in _read_lines(source):
    separator = "\t" if is_json or "\t" in line.text else " "
    if line.cells or line.is_document:
      # CoNLL-2003 has -DOCSTART- with the tag O.
      tag = next(tags) if line.cells else "O"
      yield f"{line.text}{separator}{tag}"
    else:
      yield line.text if line.is_comment else ""


def find_scheme(source: Source) -> str:
  """Returns the scheme that the tags of a file follow; see `detect`.

  A ValueError names the line of a tag that is in no scheme when others are. A
  note says that tags with an O, as entities have, are of no scheme.
  """
  # Where each tag occurs first.
  places: dict[str, str] = {}
  # IOB1 if all tags follow it, and not IOB2 as well: a stray I- within IOB2
  # does not make a file IOB1.
  possible = {"iob1", "iob2"}
  no_scheme = tagging_schemes.NO_SCHEME
  source = source._replace(scheme=no_scheme)
  for lines, document in _read_groups(source):
    tags = _make_sentence(source, lines, document).tags or ()
    for line, tag in zip(lines, tags, strict=True):
      places.setdefault(tag, _locate(source, line))
    possible = {
      scheme
      for scheme in possible
      if tagging_schemes.convert_tags(tags, scheme) == tags
    }
  scheme = tagging_schemes.detect(places, possible == {"iob1"})

  # Parts of speech have no O. Entities without B- and I- are learned, too, but
  # two that follow each other become one.
  named = [tag for tag in places if tag != "O"]
  if scheme == no_scheme and len(named) < len(places):
    progress.note(
      f"note: {places[named[0]]}: there is a tag O, but {named[0][:40]!r} "
      "marks no entity: tags are learned and scored word by word; entities are "
      "written B-PER and I-PER (--tag_scheme=none leaves this note out)"
    )
  return scheme


def find_labels(sentences: Iterable[Sentence], scheme: str) -> list[str]:
  """Returns all labels, by name: see `labels_of`; without a scheme all tags.

  A ValueError if the tags are all O; or without a scheme all the same, or if
  most of many occur only once.
  """
  tags = collections.Counter()
  path = ""
  for sentence in sentences:
    tags.update(sentence.tags)
    path = sentence.path

  has_scheme = scheme != tagging_schemes.NO_SCHEME
  if set(tags) == {"O"} or (len(tags) < 2 and not has_scheme):
    raise ValueError(
      f"{path}: expected two labels or more, found only "
      f"{messages.list_names(tags)}; is it the right column?"
    )
  if has_scheme:
    return tagging_schemes.labels_of(tags, scheme)

  # Tags that occur only once are rather words: it is the wrong column.
  rare = [tag for tag, count in tags.items() if count == 1]
  # In a file of a sentence and its tags a line, a tag has spaces.
  are_many = len(tags) > _FEW_LABELS or any(" " in tag for tag in rare)
  if are_many and 2 * len(rare) > len(tags):
    raise ValueError(
      f"{path}: {len(rare)} of its {len(tags)} tags occur only once "
      f"({messages.list_names(rare[:3])}, ...); expected a word and its tag a "
      "line: is --tag_column the right column?"
    )
  return sorted(tags)


# Features.


class TaggingFeature(NamedTuple):
  """An input of the model: [CLS] words [SEP], not padded."""

  input_ids: list[int]
  label_ids: list[int]  # See `make_features`.
  label_mask: list[int]  # 1 at the first token of the words it is made for.
  sentence: int  # Its number in the file, from 0.


def make_features(
  sentences: Iterable[Sentence],
  tokenizer: tokenization.FullTokenizer,
  labels: Sequence[str],
  max_seq_length: int,
  document_context: bool = False,
) -> Iterator[TaggingFeature]:
  """Turns sentences into inputs of the model.

  A word without tokens, such as one of control characters, becomes [UNK]; a
  word of more tokens than fit is truncated. Long sentences are split between
  words into windows, each with the words around it for context.

  Args:
    sentences: with tags in the scheme of the labels, or without.
    tokenizer: makes the ids of the tokens of a word.
    labels: in the order of their numbers. A tag that is not among them, or that
      is unknown, gets the number after the last.
    max_seq_length: the most tokens of a feature, [CLS] and [SEP] included.
    document_context: whether windows are filled with the sentences around in
      the same document ("maximal document context", section 5.3).
  """
  room = max_seq_length - 2
  numbers = {label: number for number, label in enumerate(labels)}
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])

  @functools.lru_cache(1 << 16)
  def encode(word):
    ids = tokenizer.encode(word) or tokenizer.convert_tokens_to_ids(["[UNK]"])
    return ids[:room]

  # A text is what may be context: the sentences of a document, or one alone.
  texts = ([sentence] for sentence in sentences)
  if document_context:
    groups = itertools.groupby(sentences, lambda sentence: sentence.document)
    texts = (list(group) for _, group in groups)

  index = 0  # The number of the text's first sentence in the file.
  for text in texts:
    # All words of the text, one after the other, and where sentences end.
    words = [encode(word) for sentence in text for word in sentence.words]
    ends = list(itertools.accumulate(len(s.words) for s in text))
    bounds = zip([0, *ends], ends, strict=False)
    label_ids = [
      numbers.get(tag or "", len(labels))
      for sentence in text
      for tag in (sentence.tags or [None] * len(sentence.words))
    ]

    lengths = list(map(len, words))
    for number, window in packing.fit_windows(lengths, bounds, room):
      row = _make_row(words, label_ids, window)
      ids, row_labels, mask = map(list, zip(*row, strict=True))
      yield TaggingFeature(
        [cls_id, *ids, sep_id],
        [0, *row_labels, 0],
        [0, *mask, 0],
        index + number,
      )
    index += len(text)


def _make_row(words, label_ids, window) -> Iterator[tuple[int, int, int]]:
  """Yields the id of each token of a window, its label and its mask.

  Words before `window.first` and from `window.last` on are context alone:
  another window labels them.
  """
  for place in range(window.start, window.end):
    is_labelled = window.own_start <= place < window.own_end
    first, *rest = words[place]
    yield first, label_ids[place] if is_labelled else 0, int(is_labelled)
    yield from ((token, 0, 0) for token in rest)
