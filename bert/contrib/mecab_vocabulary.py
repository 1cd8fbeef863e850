"""WordPieces of Japanese words, which MeCab finds by a dictionary.

So are Tohoku University's models of Japanese tokenized. A vocabulary is a file
of WordPieces whose ending names the dictionary: `*.unidic_lite`, `*.ipadic`.
Two differences from `transformers.BertJapaneseTokenizer`: NUL is a space, where
its text ends; and words are unknown from 201 characters on, not from 101.
"""

from collections.abc import Iterable, Iterator
import functools
import itertools
import os
import re
import threading
import unicodedata

from bert import tokenization
from bert.data import imports

_INSTALL = "-r requirements/mecab.txt"
fugashi = imports.load("fugashi", "vocabularies of Japanese words", _INSTALL)
load_vocab = tokenization.load_vocab

# What no UTF-8 for MeCab can hold, or what ends its text.
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_MOST_CHARACTERS = 10_000  # For MeCab, in one call.
_LONG = 1_000  # Characters, from which marks are sorted before NFKC.
_lock = threading.Lock()  # MeCab reads one text at a time.


@functools.cache
def _open(dictionary: str):
  package = imports.load(dictionary, f"vocabularies *.{dictionary}", _INSTALL)
  folder = package.DICDIR
  return fugashi.GenericTagger(f'-d "{folder}" -r "{folder}/mecabrc"')


@functools.lru_cache(10_000)
def _marks(char: str) -> str:
  """Returns the combining marks that a character consists of, if it does."""
  made = unicodedata.normalize("NFKD", char)
  return made if all(map(unicodedata.combining, made)) else ""


def _sort_marks(text: str) -> Iterator[str]:
  """Yields the runs of a text, those of combining marks in Unicode's order."""
  for is_run, run in itertools.groupby(text, lambda c: bool(_marks(c))):
    if is_run:
      yield "".join(
        sorted("".join(map(_marks, run)), key=unicodedata.combining)
      )
    else:
      yield "".join(run)


def _normalize(text: str) -> str:
  """Makes full-width letters and half-width kana usual ones (NFKC)."""
  text = _UNREADABLE.sub(" ", text)
  if len(text) > _LONG:
    # NFKC sorts a run of marks by insertion: 80,000 would take 18 s.
    text = "".join(_sort_marks(text))
  return unicodedata.normalize("NFKC", text)


def _split_apart(text: str) -> Iterator[str]:
  r"""Yields the parts of a text that `_normalize` changes one by one.

  Half-width "ka" and its voicing mark are one part, a full-width "A" another.

  >>> [len(part) for part in _split_apart("\uff76\uff9e\uff21")]
  [2, 1]
  """
  start = 0
  for end in range(1, len(text)):
    # A mark, or a letter such as of Hangul, may change what is before it.
    made = _normalize(text[end])
    if unicodedata.combining(made[0]):
      continue

    # Both apart and together, they must become the same.
    part = text[start:end]
    if _normalize(part + text[end]) == _normalize(part) + made:
      yield part
      start = end
  yield text[start:]


def _cut(text: str) -> Iterator[str]:
  """Yields a text in parts that MeCab can read; most texts are one part.

  At a million characters it would end the process, and its time grows with the
  square of a run of letters. It is cut after a space or a full stop, if there
  is any in the second half of a part.
  """
  while len(text) > _MOST_CHARACTERS:
    half = _MOST_CHARACTERS // 2
    end = 1 + max(text.rfind(c, half, _MOST_CHARACTERS) for c in " \u3002")
    end = end or _MOST_CHARACTERS
    yield text[:end]
    text = text[end:]
  yield text


class WordSplitter(tokenization.BasicTokenizer):
  """Splits text into words by a dictionary; lower-casing keeps accents."""

  def __init__(
    self, do_lower_case: bool, never_split: Iterable[str], dictionary: str
  ):
    super().__init__(do_lower_case, never_split)
    self._dictionary = dictionary
    self._fold = str.lower if do_lower_case else str
    _open(dictionary)  # If it is missing, a program ends at its start.

  def _find_words(self, normalized: str) -> list[str]:
    found: list[str] = []
    with _lock:
      for part in _cut(normalized):
        found += [word.surface for word in _open(self._dictionary)(part)]
    return " ".join(found).split()

  def _split(self, text):
    return list(map(self._fold, self._find_words(_normalize(text))))

  def sources(self, text):
    """Returns the places of the characters of words, as the base class does."""
    sources: list[tuple[int, int]] = []
    end = 0
    for index, part in enumerate(self.split_at_never_split(text)):
      # Where the characters of the normalized part are from.
      places: list[tuple[int, int]] = []
      for piece in list(part) if index % 2 else _split_apart(part):
        start, end = end, end + len(piece)
        places += [(start, end)] * len(_normalize(piece))

      # What is never split stays as it is.
      if index % 2:
        sources += places
        continue

      # Those that are in words; lower-casing may make two of one.
      normalized = _normalize(part)
      place = 0
      for word in self._find_words(normalized):
        place = normalized.index(word, place)
        for char in word:
          sources += [places[place]] * len(self._fold(char))
          place += 1
    return sources


class Tokenizer(tokenization.FullTokenizer):
  """Turns text into tokens and ids; see `FullTokenizer`."""

  def __init__(self, vocab_file, do_lower_case=True, never_split=()):
    super().__init__(vocab_file, do_lower_case, never_split)
    dictionary = os.path.splitext(vocab_file)[1][1:]
    self.basic_tokenizer = WordSplitter(do_lower_case, never_split, dictionary)

  def encode(self, text):
    """Returns convert_tokens_to_ids(tokenize(text)), faster."""
    text = tokenization.convert_to_unicode(text)
    return self._encoder.encode_words(self.basic_tokenizer.tokenize(text))
