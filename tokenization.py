"""WordPiece tokenization, equal to the original BERT's on every string.

Text becomes words (`BasicTokenizer`), words become pieces of the vocabulary
(`WordpieceTokenizer`); `FullTokenizer` does both. Its `encode` takes the fast
path at the end of this file. Only Python's own library is used.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
import itertools
import re
from typing import Any, NamedTuple
import unicodedata

# Blocks of Chinese characters, each of which becomes a word. Hangul, Hiragana
# and Katakana are written with spaces or in runs and are left alone.
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
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9 ]")
_RELEASED_MODEL = re.compile(
  r"(?:^|.*/)((?:wwm_)?(uncased|multilingual|chinese|cased|multi_cased)"
  r"_L-\d+_H-\d+_A-\d+)(?:/bert_model\.ckpt|/?$)"
)

_chain = itertools.chain.from_iterable


def convert_to_unicode(text: str | bytes) -> str:
  """Decodes UTF-8 and drops invalid bytes; returns text unchanged.

  >>> convert_to_unicode(b"caf\\xc3\\xa9\\xff")
  'caf\xe9'
  """
  if isinstance(text, str):
    return text
  if isinstance(text, bytes):
    return text.decode("utf-8", "ignore")
  raise ValueError(
    f"expected str or bytes, not {type(text).__name__}: {text!r}"
  )


printable_text = convert_to_unicode  # The original's; Python 2 had two kinds.


def load_vocab(vocab_file: str) -> dict[str, int]:
  """Reads a vocabulary: one token per line; the line number is its id.

  Only `\\n` ends a line: U+2028 and the like are tokens of the Chinese
  vocabulary, which stripping, as in the original, makes empty strings. A
  ValueError says that the file is empty or not UTF-8.
  """
  content = _read_bytes(vocab_file)
  try:
    lines = content.decode("utf-8").removeprefix("\ufeff").split("\n")
  except UnicodeDecodeError as error:
    line = content.count(b"\n", 0, error.start) + 1
    around = content[max(0, error.start - 20) : error.start + 20]
    raise ValueError(
      f"{vocab_file}:{line}: not UTF-8: {around!r}; convert it, of Latin-1 by "
      "iconv -f latin1 -t utf8"
    ) from None
  if not lines[-1]:
    del lines[-1]  # The last newline ends the last line.
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
  """Splits at runs of whitespace, U+2028 among it."""
  return text.split()


class _Table(dict):
  """Maps keys; computes the value of each on first use."""

  def __init__(self, compute: Callable[[Any], Any]):
    super().__init__()
    self._compute = compute

  def __missing__(self, key: Any) -> Any:
    value = self[key] = self._compute(key)
    return value


def _is_punctuation(char: str) -> bool:
  # All of ASCII's symbols count: $, +, <, =, >, ^, `, | and ~ too, which
  # Unicode does not call punctuation.
  if char.isascii():
    return char.isprintable() and not char.isalnum() and char != " "
  return unicodedata.category(char).startswith("P")


def _clean(code_point: int) -> str:
  char = chr(code_point)
  category = unicodedata.category(char)
  if char in "\t\n\r" or category == "Zs":
    return " "
  if char in "\0\ufffd" or category in ("Cc", "Cf"):
    return ""
  is_cjk = any(first <= code_point <= last for first, last in CJK_RANGES)
  return f" {char} " if is_cjk else char


def _space_punctuation(code_point: int) -> str:
  char = chr(code_point)
  return f" {char} " if _is_punctuation(char) else char


# Two controls that `_clean` deletes, so that no text has them afterwards.
_MARK = "\0"  # Stands before a mark whose place among others is to be found.
_STARTER = "\1"  # Stands for a stripped accent that marks do not pass.
_MARK_RUNS = re.compile(f"(?:{_MARK}.)+", re.DOTALL)


def _decompose(code_point: int) -> str:
  """Decomposes a character, strips its accents and spaces its punctuation."""
  made = ""
  for char in unicodedata.normalize("NFD", chr(code_point)):
    is_mark = unicodedata.combining(char) > 0
    if unicodedata.category(char) == "Mn":
      made += "" if is_mark else _STARTER
    else:
      made += _MARK + char if is_mark else _space_punctuation(ord(char))
  return made


def _order_marks(run: re.Match[str]) -> str:
  return "".join(sorted(run[0][1::2], key=unicodedata.combining))


def _strip_accents(text: str) -> str:
  """Decomposes a text (NFD), strips accents (Mn) and spaces punctuation.

  `unicodedata.normalize` sorts a run of combining marks by insertion: a run of
  a million takes an hour. So each character is decomposed alone. The marks of a
  run, which may be in another order then, are nearly all accents, which are
  stripped; the few kinds that stay (of music, Hangul tones, viramas) are sorted
  here.
  """
  text = text.translate(_DECOMPOSED)
  if _MARK in text:
    text = _MARK_RUNS.sub(_order_marks, text)
  return text.replace(_STARTER, "")


_CLEAN = _Table(_clean)
_SPACED_PUNCTUATION = _Table(_space_punctuation)
_DECOMPOSED = _Table(_decompose)


class BasicTokenizer:
  """Splits text into words at whitespace, punctuation and Chinese characters.

  >>> BasicTokenizer().tokenize("Caf\xe9 (20%), \u4e2d\u6587!")
  ['cafe', '(', '20', '%', ')', ',', '\u4e2d', '\u6587', '!']
  >>> BasicTokenizer(do_lower_case=False).tokenize("Caf\xe9")
  ['Caf\xe9']
  >>> BasicTokenizer(never_split=["[MASK]"]).tokenize("A [MASK].")
  ['a', '[MASK]', '.']
  """

  def __init__(
    self, do_lower_case: bool = True, never_split: Iterable[str] = ()
  ):
    self.do_lower_case = do_lower_case
    longest_first = sorted(set(never_split) - {""}, key=lambda s: (-len(s), s))
    self._kept = None
    if longest_first:
      self._kept = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits text into words."""
    words = []
    for index, part in enumerate(self.split_kept(convert_to_unicode(text))):
      words += [part] if index % 2 else self._split(part)
    return words

  def sources(self, text: str) -> list[tuple[int, int]]:
    """Returns the start and end in a text of each character of its words.

    A character becomes as many alone as in its word: neighbours change the form
    of a sigma and the order of marks only.
    """
    sources: list[tuple[int, int]] = []
    position = 0
    for index, part in enumerate(self.split_kept(text)):
      is_in_word = False
      for place, char in enumerate(part, position):
        cleaned = _CLEAN[ord(char)]
        made = 1 if index % 2 else len("".join(self._split(char)))
        sources += [(place, place + 1)] * made
        if cleaned.strip() and not made and is_in_word:  # A stripped accent.
          sources[-1] = (sources[-1][0], place + 1)
        if cleaned:  # A deleted character ends no word.
          is_in_word = (is_in_word or made > 0) and not cleaned[-1].isspace()
      position += len(part)
    return sources

  def split_kept(self, text: str) -> list[str]:
    """Returns text between kept tokens, and at odd places these tokens."""
    return self._kept.split(text) if self._kept else [text]

  def _split(self, text: str) -> list[str]:
    if text.isascii() and text.isprintable():  # The same words, sooner.
      return _ASCII_WORDS.findall(text.lower() if self.do_lower_case else text)
    text = text.translate(_CLEAN)
    if not self.do_lower_case:
      return text.translate(_SPACED_PUNCTUATION).split()
    # The original lower-cases and decomposes word by word. Final sigma and
    # combining marks never depend on text across whitespace, so once will do.
    return _strip_accents(text.lower()).split()


class WordpieceTokenizer:
  """Splits words into the longest pieces of the vocabulary, from the left.

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
    self.vocab = vocab
    self.unk_token = unk_token
    self.max_input_chars_per_word = max_input_chars_per_word
    self._longest = max(map(len, vocab), default=0)

  def tokenize(self, text: str | bytes) -> list[str]:
    """Splits words, separated by whitespace, into tokens."""
    words = whitespace_tokenize(convert_to_unicode(text))
    return list(_chain(map(self.split_word, words)))

  def split_word(self, word: str) -> list[str]:
    """Splits one word; if any part is not a token, the word is unknown."""
    if len(word) > self.max_input_chars_per_word:
      return [self.unk_token]
    if word in self.vocab:
      return [word]
    pieces, start = [], 0
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

  Lower-casing, which also strips accents, is a property of the model. Tokens of
  `never_split`, such as "[MASK]", are kept whole wherever the text holds them.
  A ValueError says that the file is invalid, or lacks one of them.
  """

  shows_continuations = True  # Whether `continues_word` knows the answer.

  def __init__(
    self,
    vocab_file: str,
    do_lower_case: bool = True,
    never_split: Iterable[str] = (),
  ):
    never_split = frozenset(never_split)  # It may be an iterator.
    self.vocab, self.wordpiece_tokenizer = self._read(vocab_file)
    for token in ("[UNK]", *sorted(never_split)):
      if token not in self.vocab:
        raise ValueError(
          f"{vocab_file}: no line {token!r} among {len(self.vocab)} tokens"
        )
    self.inv_vocab = {index: token for token, index in self.vocab.items()}
    self.basic_tokenizer = BasicTokenizer(do_lower_case, never_split)
    self.never_split = never_split
    self._encoder = _Encoder(self)

  def _read(self, vocab_file: str):
    """Returns the vocabulary and the splitter of words."""
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
    words = self.basic_tokenizer.tokenize(text)
    return list(_chain(map(self.split_word, words)))

  def tokenize_with_offsets(self, text: str) -> list[SourceToken]:
    """Splits text into tokens and returns their places in it.

    Tokens made from one character (letters of a Hangul syllable, say) share it.
    """
    tokens, sources = [], self.basic_tokenizer.sources(text)
    first = 0
    for word in self.basic_tokenizer.tokenize(text):
      end = 0
      for token in self.split_word(word):
        start = end
        end += len(token) - (2 if start else 0)  # "##" has no source.
        if token == self.wordpiece_tokenizer.unk_token:
          end = len(word)
        of_token = sources[first + start : first + end]
        tokens.append(SourceToken(token, of_token[0][0], of_token[-1][1]))
      first += len(word)
    return tokens

  def encode(self, text: str | bytes) -> list[int]:
    """Returns convert_tokens_to_ids(tokenize(text)), faster."""
    return self._encoder.encode(convert_to_unicode(text))

  def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
    """Looks up the ids of tokens; a ValueError names one that has none."""
    return convert_by_vocab(self.vocab, tokens)

  def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
    """Looks up the tokens of ids; a ValueError names an id that has none."""
    return convert_by_vocab(self.inv_vocab, ids)

  def split_word(self, word: str) -> list[str]:
    """Splits a word into tokens."""
    if word in self.never_split:
      return [word]
    return self.wordpiece_tokenizer.split_word(word)


def validate_case_matches_checkpoint(
  do_lower_case: bool, init_checkpoint: str | None
) -> None:
  """Raises a ValueError if a released model's folder shows another casing."""
  match = _RELEASED_MODEL.match(init_checkpoint or "")
  if not match:
    return
  is_lower = match[2] not in ("cased", "multi_cased")
  if bool(do_lower_case) != is_lower:
    kind = "lower-cased" if is_lower else "cased"
    raise ValueError(
      f"--init_checkpoint={init_checkpoint}: {match[1]} was trained on {kind} "
      f"text; pass --do_lower_case={is_lower}"
    )


# The fast path. A cache is emptied at this many entries, tens of megabytes:
# a huge corpus has endless words, and frequent ones are soon back. Long strings
# (a Chinese clause has no spaces) rarely return and are not kept.
CACHE_ENTRIES = 1 << 17
CACHE_KEY_LENGTH = 20
# str.split() separates words at these controls; the original deletes them.
_DELETED_SEPARATORS = re.compile(r"[\x0b\x0c\x1c-\x1f\x85]")
# Characters that are always a word with one id: Chinese ones and their usual
# punctuation. The list need not have all punctuation.
_LONE = "".join(f"{chr(a)}-{chr(b)}" for a, b in CJK_RANGES) + (
  "\u2014\u2018\u2019\u201c\u201d\u2026\u3001\u3002\u3008-\u3011"
  "\uff01\uff08\uff09\uff0c\uff0e\uff0f\uff1a\uff1b\uff1f"
)
_LONE_RUNS = re.compile(f"([{_LONE}]+)|([^{_LONE}]+)")


class _Cache(_Table):
  """A bounded table of strings."""

  def __missing__(self, key: str) -> Any:
    value = self._compute(key)
    if len(key) <= CACHE_KEY_LENGTH:
      if len(self) >= CACHE_ENTRIES:
        self.clear()
      self[key] = value
    return value


class _Encoder:
  """Makes the ids of a text by caches of its strings."""

  def __init__(self, tokenizer: FullTokenizer):
    self._tokenizer, basic = tokenizer, tokenizer.basic_tokenizer
    self._split, self._is_lower = basic.tokenize, basic.do_lower_case
    self._chunks = _Cache(self._encode_chunk)
    self._get_chunk_ids = self._chunks.__getitem__
    self._get_word_ids = _Cache(self._encode_word).__getitem__
    self._get_lone_id = _Table(self._encode_lone).__getitem__

  def encode(self, text: str) -> list[int]:
    if text in self._chunks:  # Many callers pass single words.
      return list(self._chunks[text])
    if self._tokenizer.never_split:
      # These tokens may hold whitespace, so search the whole text.
      return self.encode_words(self._split(text))
    if not text.isprintable():
      text = _DELETED_SEPARATORS.sub("", text)
    # Tokens never span whitespace, so the strings between can be cached before
    # lower-casing and the rest: most of them recur often.
    return list(_chain(map(self._get_chunk_ids, text.split())))

  def encode_words(self, words: Iterable[str]) -> list[int]:
    return list(_chain(map(self._get_word_ids, words)))

  def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
    if chunk.isascii():
      # Most are a word, or a word followed by one mark.
      word = chunk.lower() if self._is_lower else chunk
      if word.isalnum():
        return self._get_word_ids(word)
      if word[:-1].isalnum() and word.isprintable():
        return self._get_word_ids(word[:-1]) + self._get_word_ids(word[-1])
    # Lower-casing a sigma depends on its context.
    if chunk.isascii() or "\u03a3" in chunk:
      return tuple(self.encode_words(self._split(chunk)))
    ids = []
    for lone, other in _LONE_RUNS.findall(chunk):
      if lone:
        ids += map(self._get_lone_id, lone)
      else:
        ids += self.encode_words(self._split(other))
    return tuple(ids)

  def _encode_lone(self, char: str) -> int:
    (index,) = self.encode_words(self._split(char))
    return index

  def _encode_word(self, word: str) -> tuple[int, ...]:
    tokens = self._tokenizer.split_word(word)
    return tuple(map(self._tokenizer.vocab.__getitem__, tokens))
