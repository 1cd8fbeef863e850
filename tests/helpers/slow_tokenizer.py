"""WordPiece tokenization as it is described, one character after the other.

A reference to test tokenization.py against: it remembers nothing, takes no
short cuts and shares no code with it. Sources: section 3 of the paper (Devlin
et al., 2018) and the README of google-research/bert, "Tokenization"; Wu et al.,
https://arxiv.org/abs/1609.08144, section 4.1, for the pieces.
"""

import unicodedata

LONGEST_WORD = 200  # Characters; a longer one is unknown.
# The blocks of "CJK Unified Ideographs", their extensions A to E, and
# "CJK Compatibility Ideographs" with its supplement.
BLOCKS = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF)]
BLOCKS += [(0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF)]
BLOCKS += [(0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]


def is_ideograph(char):
  return any(first <= ord(char) <= last for first, last in BLOCKS)


def is_mark(char):
  """Returns whether a character is punctuation, which is a word by itself."""
  if char in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~":
    return True
  return unicodedata.category(char)[0] == "P"


def clean(text):
  """Makes all space alike and deletes control characters."""
  cleaned = ""
  for char in text:
    category = unicodedata.category(char)
    if char in ("\t", "\n", "\r") or category == "Zs":
      cleaned += " "
    elif char in ("\0", "\ufffd") or category in ("Cc", "Cf"):
      continue
    elif is_ideograph(char):
      cleaned += " " + char + " "
    else:
      cleaned += char
  return cleaned


def strip_accents(word):
  """Decomposes letters and drops the marks that stand above or below them."""
  decomposed = unicodedata.normalize("NFD", word)
  return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


def split_marks(word):
  """Returns punctuation and what is between it."""
  parts = [""]
  for char in word:
    if is_mark(char):
      parts += [char, ""]
    else:
      parts[-1] += char
  return [part for part in parts if part]


def split_words(text, lower):
  """Returns the words of a text in which no token is kept."""
  words = []
  for word in clean(text).split():
    words += split_marks(strip_accents(word.lower()) if lower else word)
  # What was an accented space may be a space now.
  return " ".join(words).split()


def split_kept(text, kept):
  """Yields (part, is a kept token); the first token found, then the longest."""
  while text:
    places = [(text.find(k), -len(k)) for k in kept if k in text]
    if not places:
      yield text, False
      return
    start, length = min(places)
    if start:
      yield text[:start], False
    yield text[start : start - length], True
    text = text[start - length :]


def split_pieces(word, vocabulary):
  """Returns the longest pieces from the left, or [UNK] if there are none."""
  if len(word) > LONGEST_WORD:
    return ["[UNK]"]
  pieces = []
  rest = word
  while rest:
    for size in range(len(rest), 0, -1):
      piece = ("##" if pieces else "") + rest[:size]
      if piece in vocabulary:
        break
    else:
      return ["[UNK]"]
    pieces.append(piece)
    rest = rest[size:]
  return pieces


def tokenize(text, vocabulary, lower, kept=()):
  """Returns the tokens of a text."""
  tokens = []
  for part, is_kept in split_kept(text, kept):
    if is_kept:
      tokens.append(part)
      continue
    for word in split_words(part, lower):
      tokens += split_pieces(word, vocabulary)
  return tokens
