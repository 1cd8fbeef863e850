"""WordPiece tokenization, equal to the original BERT's on every string.

Text becomes words (`BasicTokenizer`), and words become pieces of the vocabulary
(`WordpieceTokenizer`). `FullTokenizer` does both:

  tokenize               text -> tokens, by the plain algorithm
  encode                 text -> ids, by the fast path at the end of this file
  tokenize_with_offsets  text -> tokens and their places in the text

`encode` makes all records and all inputs of models. The plain algorithm defines
its result; tests compare the two on every kind of string. The file imports only
Python's own library, so that it can be copied alone.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
import re
from typing import Any, NamedTuple
import unicodedata

# Blocks of Chinese characters (CJK ideographs), each of which becomes a word.
# As in the original, Hangul, Hiragana and Katakana are no part of them: those
# scripts are split into words at spaces and punctuation like all others.
CJK_RANGES = (
  (0x3400, 0x4DBF),
  (0x4E00, 0x9FFF),
  (0xF900, 0xFAFF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2B73F),
  (0x2B740, 0x2B81F),
  (0x2B820, 0x2CEAF),
  (0x2F800, 0x2FA1F),
)
# A run of letters and digits, or one mark: the words of printable ASCII.
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")
# Google's names of its released models say which casing they were trained on:
# cased and multi_cased; the others are lower-cased, chinese and the first
# multilingual one too.
_RELEASED_MODEL = re.compile(
  r"(?:^|.*/)((?:wwm_)?(uncased|multilingual|chinese|cased|multi_cased)"
  r"_L-\d+_H-\d+_A-\d+)(?:/bert_model\.ckpt|/?$)"
)


def convert_to_unicode(text: str | bytes) -> str:
  r"""Decodes UTF-8 and drops invalid bytes; returns text unchanged.

  >>> convert_to_unicode(b"caf\xc3\xa9\xff")
  'café'
  """
  if isinstance(text, str):
    return text
  if isinstance(text, bytes):
    return text.decode("utf-8", "ignore")
  raise ValueError(
    f"expected str or bytes, not {type(text).__name__}: {text!r}"
  )


# In Python 2 the original printed another kind of string than it tokenized. The
# name stays for code that was written for the original.
printable_text = convert_to_unicode


def load_vocab(vocab_file: str) -> dict[str, int]:
  r"""Reads a vocabulary: one token per line; the line number is its id.

  Only `\n` ends a line, since U+2028 and a few other separators are tokens of
  the Chinese vocabulary. As in the original, each line is stripped, which turns
  these tokens into the empty string. Of equal tokens, the last one counts.

  Returns:
    The id of each token, from 0.

  Raises:
    ValueError: the file is empty or not UTF-8.
  """
  content = _read_bytes(vocab_file)

  # A byte-order mark, which editors on Windows write, is no part of a token.
  try:
    lines = content.decode("utf-8").removeprefix("\ufeff").split("\n")
  except UnicodeDecodeError as error:
    line = content[: error.start].count(b"\n") + 1
    around = content[max(0, error.start - 20) : error.start + 20]
    raise ValueError(
      f"{vocab_file}:{line}: not UTF-8: {around!r}; convert it, of Latin-1 by "
      "iconv -f latin1 -t utf8"
    ) from None

  # The last newline ends the last line; nothing follows it.
  if not lines[-1]:
    del lines[-1]
  vocab = {line.strip(): index for index, line in enumerate(lines)}
  if not any(vocab):
    raise ValueError(f"{vocab_file}: empty; expected one token a line")
  return vocab


def _read_bytes(path: str) -> bytes:
  if "://" not in path:
    with open(path, "rb") as file:
      return file.read()
  import tensorflow as tf  # Slow; only remote paths need it.

  try:
    with tf.io.gfile.GFile(path, "rb") as file:
      return file.read()
  except tf.errors.OpError as error:
    raise OSError(f"{path}: {error.message}") from None


def convert_by_vocab(
  vocab: Mapping[Any, Any], items: Iterable[Hashable]
) -> list[Any]:
  """Looks up tokens or ids; a ValueError names one that is missing.

  >>> convert_by_vocab({"a": 0, "##b": 1}, ["##b", "a"])
  [1, 0]
  """
  # The original's name. One function serves both directions.
  try:
    return [vocab[item] for item in items]
  except KeyError as error:
    raise ValueError(
      f"{error.args[0]!r} is not in the vocabulary of {len(vocab)} tokens"
    ) from None


def convert_tokens_to_ids(
  vocab: Mapping[str, int], tokens: Iterable[str]
) -> list[int]:
  """Looks up the ids of tokens; the original's name."""
  return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(
  inv_vocab: Mapping[int, str], ids: Iterable[int]
) -> list[str]:
  """Looks up the tokens of ids; the original's name."""
  return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
  """Splits at runs of all that Unicode calls whitespace, such as U+2028."""
  return text.split()


# The plain algorithm. `str.translate` looks each character up in a table and
# accepts a dict, so whole texts are cleaned, split and stripped of accents
# without a loop in Python. Unicode has 1.1 million characters, of which a text
# needs few: the tables below fill themselves as characters are met.


class _Table(dict):
  """A dict that computes a missing value, and keeps it."""

  def __init__(self, compute: Callable[[Any], Any]):
    super().__init__()
    self._compute = compute

  def __missing__(self, key: Any) -> Any:
    value = self[key] = self._compute(key)
    return value


def _is_punctuation(char: str) -> bool:
  # As in the original, all symbols of ASCII are punctuation. Unicode has other
  # categories for nine of them: $ + < = > ^ ` | ~
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def _clean(code_point: int) -> str:
  """Returns what a character becomes: itself, a space or nothing.

  Chinese characters get spaces around them.
  """
  char = chr(code_point)
  category = unicodedata.category(char)

  # Tab, newline and return are controls (Cc) for Unicode, spaces for BERT.
  if char in "\t\n\r" or category == "Zs":
    return " "
  if char in "\0\ufffd" or category in ("Cc", "Cf"):
    return ""
  is_cjk = any(first <= code_point <= last for first, last in CJK_RANGES)
  return f" {char} " if is_cjk else char


def _set_apart(code_point: int) -> str:
  """Puts spaces around a character that is punctuation."""
  char = chr(code_point)
  return f" {char} " if _is_punctuation(char) else char


# While accents are stripped, two control characters carry notes. `_clean` has
# deleted these controls from the text before, so they cannot be confused.
#
# Stands before a combining mark that stays, until `_order_marks` has restored
# Unicode's order of the marks of a letter.
_NOTE_MARK = "\0"
# Stands for a stripped accent of combining class 0. Marks on its two sides are
# not sorted together, so its place must be kept until all marks are in order.
_NOTE_STARTER = "\1"
_MARK_RUNS = re.compile(f"(?:{_NOTE_MARK}.)+", re.DOTALL)


def _decompose(code_point: int) -> str:
  """Decomposes a character, strips its accents, sets punctuation apart."""
  result = ""
  for char in unicodedata.normalize("NFD", chr(code_point)):
    is_mark = unicodedata.combining(char) > 0
    is_accent = unicodedata.category(char) == "Mn"

    if is_accent:
      result += "" if is_mark else _NOTE_STARTER
    elif is_mark:
      result += _NOTE_MARK + char
    else:
      result += _set_apart(ord(char))
  return result


def _order_marks(run: re.Match[str]) -> str:
  """Sorts a run of marks by combining class, as NFD does; drops the notes."""
  # Every second character is a note. Python's sort keeps the order of marks of
  # one class, as Unicode demands.
  return "".join(sorted(run[0][1::2], key=unicodedata.combining))


def _strip_accents(text: str) -> str:
  """Decomposes a text (NFD), strips accents (Mn), sets punctuation apart.

  This equals `unicodedata.normalize` of the whole text, which would be simpler.
  But that function sorts a run of combining marks by insertion, and a text of a
  million marks would stop the program for an hour. Therefore each character is
  decomposed alone, and marks of neighbours are put into Unicode's order here.
  Few marks are left to sort, because nearly all of them are accents: signs of
  music, tones of Hangul and viramas stay.
  """
  text = text.translate(_DECOMPOSED)
  if _NOTE_MARK in text:
    text = _MARK_RUNS.sub(_order_marks, text)
  return text.replace(_NOTE_STARTER, "")


_CLEAN = _Table(_clean)
_PUNCTUATION_APART = _Table(_set_apart)
_DECOMPOSED = _Table(_decompose)


class BasicTokenizer:
  r"""Splits text into words at whitespace, punctuation and Chinese characters.

  >>> BasicTokenizer().tokenize("Caf\xe9 (20%), \u4e2d\u6587!")
  ['cafe', '(', '20', '%', ')', ',', '中', '文', '!']
  >>> BasicTokenizer(do_lower_case=False).tokenize("Caf\xe9")
  ['Café']
  >>> BasicTokenizer(never_split=["[MASK]"]).tokenize("A [MASK].")
  ['a', '[MASK]', '.']
  """

  def __init__(
    self, do_lower_case: bool = True, never_split: Iterable[str] = ()
  ):
    """Makes a splitter.

    Args:
      do_lower_case: whether to lower-case and to strip accents.
      never_split: strings that stay as they are wherever the text holds them.
    """
    self.do_lower_case = do_lower_case

    # The first alternative that matches wins, so the longest one stands first.
    longest_first = sorted(set(never_split) - {""}, key=lambda s: (-len(s), s))
    self._never_split = None
    if longest_first:
      alternatives = "|".join(map(re.escape, longest_first))
      self._never_split = re.compile(f"({alternatives})")

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits text into words."""
    words = []
    parts = self.split_at_never_split(convert_to_unicode(text))
    for index, part in enumerate(parts):
      if index % 2:
        words.append(part)
      else:
        words += self._split(part)
    return words

  def sources(self, text: str) -> list[tuple[int, int]]:
    """Returns the place in a text that each character of its words is made of.

    Each character is split alone, to count what it becomes. The count is the
    same within the text: neighbours only change the form of a sigma and the
    order of marks.

    Returns:
      For each character of the words of `tokenize(text)`, joined: the start and
      the end of its source, which is `text[start:end]`.
    """
    sources: list[tuple[int, int]] = []
    position = 0
    for index, part in enumerate(self.split_at_never_split(text)):
      is_in_word = False
      for place, char in enumerate(part, position):
        # How many characters of words this one becomes: often 1; 0 if it is a
        # space, an accent or a deleted control; a Hangul syllable becomes 3.
        cleaned = _CLEAN[ord(char)]
        count = 1 if index % 2 else len("".join(self._split(char)))
        sources += [(place, place + 1)] * count

        # A stripped accent belongs to the letter before it, whose source then
        # ends one character later: both characters of "e" + U+0301 make the e.
        if cleaned.strip() and not count and is_in_word:
          sources[-1] = (sources[-1][0], place + 1)

        # A deleted character ends no word: the accent after it still counts.
        if cleaned:
          is_in_word = (is_in_word or count > 0) and not cleaned[-1].isspace()
      position += len(part)
    return sources

  def split_at_never_split(self, text: str) -> list[str]:
    """Returns the parts of a text; those at odd places are of `never_split`."""
    return self._never_split.split(text) if self._never_split else [text]

  def _split(self, text: str) -> list[str]:
    """Splits text in which nothing has to stay whole."""
    # Nothing of printable ASCII is deleted, Chinese or an accent: one regular
    # expression finds the same words sooner.
    if text.isascii() and text.isprintable():
      return _ASCII_WORDS.findall(text.lower() if self.do_lower_case else text)

    text = text.translate(_CLEAN)
    if not self.do_lower_case:
      return text.translate(_PUNCTUATION_APART).split()

    # The original lower-cases and decomposes word by word. The result is the
    # same: neither final sigma nor the order of marks depends on text across
    # whitespace.
    return self._lower(text).split()

  def _lower(self, text: str) -> str:
    """Lower-cases clean text, with spaces around punctuation."""
    return _strip_accents(text.lower())


class WordpieceTokenizer:
  """Splits words into the longest pieces of the vocabulary, from the left.

  A piece that does not begin its word is written with "##" before it.

  >>> vocab = {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3}
  >>> WordpieceTokenizer(vocab).tokenize("unaffable unhappy")
  ['un', '##aff', '##able', '[UNK]']
  """

  def __init__(
    self,
    vocab: Mapping[str, int],
    unk_token: str = "[UNK]",
    max_input_chars_per_word: int = 200,
  ):
    """Makes a splitter of words.

    Args:
      vocab: its keys are the tokens.
      unk_token: stands for a word that the tokens cannot make.
      max_input_chars_per_word: a longer word is unknown.
    """
    self.vocab = vocab
    self.unk_token = unk_token
    self.max_input_chars_per_word = max_input_chars_per_word
    self._longest = max(map(len, vocab), default=0)

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits words, separated by whitespace, into tokens."""
    tokens = []
    for word in whitespace_tokenize(convert_to_unicode(text)):
      tokens += self.split_word(word)
    return tokens

  def split_word(self, word: str) -> list[str]:
    """Splits one word; if any part is not a token, the word is unknown."""
    if len(word) > self.max_input_chars_per_word:
      return [self.unk_token]
    if word in self.vocab:
      return [word]

    # Greedy: the longest token that the rest of the word begins with, then the
    # same for the rest after it. No token is longer than `_longest`.
    pieces = []
    start = 0
    while start < len(word):
      prefix = "##" if start else ""
      for end in range(min(len(word), start + self._longest), start, -1):
        piece = prefix + word[start:end]
        if piece in self.vocab:
          break
      else:
        return [self.unk_token]
      pieces.append(piece)
      start = end
    return pieces


class SourceToken(NamedTuple):
  """A token and the characters of the source text it was made from."""

  token: str
  start: int
  end: int  # text[start:end] is the source.


class FullTokenizer:
  """Turns text into tokens and ids of a vocabulary file, one token per line.

  The tokenizers of all other kinds of vocabulary are subclasses
  (`bert/vocabularies`, `bert/contrib`). They override `_read`. A vocabulary
  that does not split words into pieces returns None there as the splitter of
  words, and overrides `tokenize`, `encode` and `tokenize_with_offsets`, too.

  Attributes:
    vocab: the id of each token.
    inv_vocab: the token of each id.
    basic_tokenizer: splits text into words.
    wordpiece_tokenizer: splits words into tokens.
    never_split: tokens that stay whole wherever the text holds them.
  """

  # What splits text into words; subclasses may have another one.
  splitter = BasicTokenizer
  # Whether `continues_word` can answer: some tokens show where a word ends,
  # not where it begins. Whole-word masks need the answer.
  shows_continuations = True

  def __init__(
    self,
    vocab_file: str,
    do_lower_case: bool = True,
    never_split: Iterable[str] = (),
  ):
    """Reads the vocabulary.

    Args:
      vocab_file: the path of a file with one token per line.
      do_lower_case: whether to lower-case, which also strips accents. It must
        be as it was when the model was trained.
      never_split: tokens of the vocabulary, such as "[MASK]", that stay whole
        wherever the text holds them.

    Raises:
      ValueError: the file is invalid, or lacks [UNK] or one of `never_split`.
    """
    never_split = frozenset(never_split)  # An iterator can be read only once.
    self.vocab, self.wordpiece_tokenizer = self._read(vocab_file)
    for token in ("[UNK]", *sorted(never_split)):
      if token not in self.vocab:
        raise ValueError(
          f"{vocab_file}: no line {token!r} among {len(self.vocab)} tokens; "
          "expected the vocabulary of a BERT, one token a line"
        )

    self.inv_vocab = {index: token for token, index in self.vocab.items()}
    self.basic_tokenizer = self.splitter(do_lower_case, never_split)
    self.never_split = never_split
    self._encoder = _Encoder(self)

  def _read(self, vocab_file: str):
    """Returns the vocabulary and the splitter of words; subclasses override."""
    vocab = load_vocab(vocab_file)
    return vocab, WordpieceTokenizer(vocab)

  def continues_word(self, token: str) -> bool:
    """Returns whether a token is inside a word, for whole-word masks."""
    return token.startswith("##")

  def join(self, tokens: Iterable[str]) -> str:
    """Returns the words that tokens are made of, with a space between them."""
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    return " ".join(text.split())

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits text into tokens of the vocabulary."""
    tokens = []
    for word in self.basic_tokenizer.tokenize(text):
      tokens += self.split_word(word)
    return tokens

  def tokenize_with_offsets(self, text: str) -> list[SourceToken]:
    """Splits text into tokens and returns their places in it.

    Tokens made from one character (letters of a Hangul syllable, say) share it.
    """
    sources = self.basic_tokenizer.sources(text)
    tokens = []
    word_start = 0  # Counted in characters of all words, as `sources` is.
    for word in self.basic_tokenizer.tokenize(text):
      end = 0
      for token in self.split_word(word):
        # The token is word[start:end]; "##" is no part of the word, and [UNK]
        # stands for the whole of it.
        start = end
        end += len(token) - (2 if start else 0)
        if token == self.wordpiece_tokenizer.unk_token:
          end = len(word)

        token_sources = sources[word_start + start : word_start + end]
        first = token_sources[0][0]
        last = token_sources[-1][1]
        tokens.append(SourceToken(token, first, last))
      word_start += len(word)
    return tokens

  def encode(self, text: str | bytes) -> list[int]:
    """Returns convert_tokens_to_ids(tokenize(text)), but faster.

    Records, features of tasks and answers of models all come from here.
    """
    return self._encoder.encode(convert_to_unicode(text))

  def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
    """Looks up the ids of tokens; a ValueError names one that has none."""
    return convert_by_vocab(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
    """Looks up the tokens of ids; a ValueError names an id that has none."""
    return convert_by_vocab(self.inv_vocab, ids)

  def split_word(self, word: str) -> list[str]:
    """Splits a word of `basic_tokenizer` into tokens of the vocabulary."""
    # A word of `never_split` is a token already, also if it came out of a text
    # by chance: it must not be lower-cased or cut into pieces.
    if word in self.never_split:
      return [word]
    return self.wordpiece_tokenizer.split_word(word)


def validate_case_matches_checkpoint(
  do_lower_case: bool, init_checkpoint: str | None
) -> None:
  """Raises a ValueError if a released model's folder shows another casing.

  No file of Google's checkpoints says how their text was cased; only the names
  of the folders do. A folder with any other name passes.
  """
  match = _RELEASED_MODEL.match(init_checkpoint or "")
  if not match:
    return
  is_lower = match[2] not in ("cased", "multi_cased")
  if bool(do_lower_case) != is_lower:
    kind = "lower-cased" if is_lower else "cased"
    raise ValueError(
      f"--init_checkpoint={init_checkpoint}: {match[1]} was trained on {kind} "
      f"text; pass --do_lower_case={str(is_lower).lower()}"
    )


# The fast path. Text repeats itself: it is cut at spaces into chunks ("word,"),
# and the ids of each chunk are remembered.

# A cache is emptied when it has this many entries (tens of megabytes), because
# a large corpus has endless words; the frequent ones are soon back.
CACHE_ENTRIES = 1 << 17
# Longer strings are not kept. They rarely return: a Chinese clause, for one,
# has no spaces and is a single chunk.
CACHE_KEY_LENGTH = 20
# str.split() splits at these control characters. The original deletes them
# first, so that they join the letters around them to one word.
_DELETED_SEPARATORS = re.compile(r"[\x0b\x0c\x1c-\x1f\x85]")
# Characters that always are a word by themselves: Chinese ones and their usual
# punctuation. A character that is not in this list takes the slower way to the
# same ids.
_LONE = "".join(f"{chr(a)}-{chr(b)}" for a, b in CJK_RANGES) + (
  "\u2014\u2018\u2019\u201c\u201d\u2026\u3001\u3002\u3008-\u3011"
  "\uff01\uff08\uff09\uff0c\uff0e\uff0f\uff1a\uff1b\uff1f"
)
_LONE_RUNS = re.compile(f"([{_LONE}]+)|([^{_LONE}]+)")


class _Cache(_Table):
  """A table of strings, which never grows beyond `CACHE_ENTRIES`."""

  def __missing__(self, key: str) -> Any:
    value = self._compute(key)
    if len(key) <= CACHE_KEY_LENGTH:
      if len(self) >= CACHE_ENTRIES:
        self.clear()
      self[key] = value
    return value


class _Encoder:
  """Makes the ids of a text from caches of its chunks and words."""

  def __init__(self, tokenizer: FullTokenizer):
    self._tokenizer = tokenizer
    self._split = tokenizer.basic_tokenizer.tokenize
    self._is_lower = tokenizer.basic_tokenizer.do_lower_case
    # Ids of a string between two spaces, as it stands in the text; of a word
    # that BasicTokenizer made; and of a character of `_LONE`.
    self._chunks = _Cache(self._encode_chunk)
    self._words = _Cache(self._encode_word)
    self._lone_characters = _Table(self._encode_lone)

  def encode(self, text: str) -> list[int]:
    # Callers with text that is split into words already pass one at a time.
    if text in self._chunks:
      return list(self._chunks[text])

    if self._tokenizer.never_split:
      # These tokens may hold whitespace, so search the whole text.
      return self.encode_words(self._split(text))
    if not text.isprintable():
      text = _DELETED_SEPARATORS.sub("", text)

    # No token spans whitespace, and the ids of a chunk depend on nothing around
    # it. So chunks are looked up as they stand, before any lower-casing.
    ids = []
    for chunk in text.split():
      ids += self._chunks[chunk]
    return ids

  def encode_words(self, words: Iterable[str]) -> list[int]:
    ids = []
    for word in words:
      ids += self._words[word]
    return ids

  def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
    # Most chunks of English are a word, or a word followed by one mark. Both
    # are words of BasicTokenizer at once.
    if chunk.isascii():
      word = chunk.lower() if self._is_lower else chunk
      if word.isalnum():
        return self._words[word]
      if word[:-1].isalnum() and word.isprintable():
        return self._words[word[:-1]] + self._words[word[-1]]

    # A capital sigma becomes another letter at the end of a word than within,
    # so the text around it must not be cut. And the rest of ASCII has no
    # character of `_LONE` to cut at.
    if chunk.isascii() or "\u03a3" in chunk:
      return tuple(self.encode_words(self._split(chunk)))

    # A Chinese chunk is a whole clause, which the caches would never meet
    # again. Its characters are words by themselves, each with one id.
    ids = []
    for lone_characters, other in _LONE_RUNS.findall(chunk):
      if lone_characters:
        ids += [self._lone_characters[char] for char in lone_characters]
      else:
        ids += self.encode_words(self._split(other))
    return tuple(ids)

  def _encode_lone(self, char: str) -> int:
    (index,) = self.encode_words(self._split(char))
    return index

  def _encode_word(self, word: str) -> tuple[int, ...]:
    vocab = self._tokenizer.vocab
    return tuple(vocab[token] for token in self._tokenizer.split_word(word))
