"""The ids of `tokenization.py` inside a TensorFlow graph, with their places.

`TfTokenizer` turns a batch of strings into ragged tensors; `pack` and `windows`
make a model's input of them. Of tensorflow-text only operations that TensorFlow
Serving has are used. Shapes: B texts, W words, T tokens, C characters, S the
length of the longest input.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import functools
import itertools
import sys
from typing import NamedTuple
import unicodedata

import tensorflow as tf
import tensorflow_text

import tokenization
from vocabularies import vocabulary_table

_LONGEST_WORD = 200  # Characters; a longer one is unknown, as in the original.
_BYTES_PER_CHARACTER = 4
# Replaces a word that is too long. No token of a vocabulary has a
# space in front, so it is unknown.
_UNKNOWN_WORD = " "
_MARK = "\U0010ffff"  # Stands for nothing in Unicode, and never will.


def _in_class(ranges: Iterable[tuple[int, int]]) -> str:
  """Writes ranges of characters as RE2 has them between [ and ]."""
  return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges)


@functools.cache
def _characters(belongs: Callable[[str], bool]) -> str:
  """Writes the characters of which a function is true, for `_in_class`.

  The Unicode of RE2 is not always that of Python, whose answer counts.
  """
  points = [i for i in range(sys.maxunicode + 1) if belongs(chr(i))]
  steps = itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0])
  runs = [[point for _, point in group] for _, group in steps]
  return _in_class((run[0], run[-1]) for run in runs)


@functools.cache
def _category(*names: str) -> str:
  """Returns the characters of categories, such as Zs, or P for all of its."""
  category = unicodedata.category
  return _characters(lambda char: category(char).startswith(names))


def _is_named_cjk(char: str) -> bool:
  # To look at all names takes seconds; these are letters, signs and numbers.
  return unicodedata.category(char) in ("Lo", "So") and (
    unicodedata.name(char, "").startswith("CJK ")
  )


def whitespace() -> str:
  """Returns the characters that `str.isspace` is true of."""
  return _characters(str.isspace)


def strip(texts: tf.Tensor) -> tf.Tensor:
  """Removes the whitespace around texts, as `str.strip`."""
  space = whitespace()
  return tf.strings.regex_replace(texts, f"^[{space}]+|[{space}]+$", "")


_CJK = _in_class(tokenization.CJK_RANGES)
_ASCII_PUNCTUATION = "!-/:-@\\[-`{-~"


class SourceTokens(NamedTuple):
  """Tokens and the characters they were made from, all [B, (T)]."""

  ids: tf.RaggedTensor  # int32.
  starts: tf.RaggedTensor  # int32, characters of the text.
  ends: tf.RaggedTensor


class Words(NamedTuple):
  """Parts of texts, all [B, (W)]."""

  words: tf.RaggedTensor  # Strings.
  starts: tf.RaggedTensor  # int32, characters of the text.
  ends: tf.RaggedTensor


class Packed(NamedTuple):
  """Inputs of the model, as `tokenization.pack` makes them."""

  input_ids: tf.Tensor  # int32 [B, S], padded to the longest.
  input_mask: tf.Tensor
  segment_ids: tf.Tensor
  was_cut: tf.Tensor  # bool [B], whether tokens were left out.


class TfTokenizer:
  """Turns texts into the ids that `tokenization.FullTokenizer` gives.

  Invalid UTF-8 is dropped, as `decode` shows.

  Attributes:
    tokens: string [V], the tokens by their ids.
    vocab: token -> id.
  """

  def __init__(
    self,
    vocab_file: str,
    do_lower_case: bool = True,
    never_split: Sequence[str] = (),
  ):
    python = vocabulary_table.make_tokenizer(
      vocab_file, do_lower_case, never_split
    )
    self.vocab, self._do_lower_case = python.vocab, do_lower_case
    self._vocab_file, self._splits = vocab_file, True
    self._never_split = [
      (token, python.vocab[token])
      for token in sorted(set(never_split), key=lambda s: (-len(s), s))
    ]
    size = max(python.inv_vocab) + 1
    self.tokens = tf.constant(
      [python.inv_vocab.get(i, "") for i in range(size)]
    )
    self._make(vocab_file, python)

  def check(self) -> None:
    """Raises ValueError if no graph splits texts as this vocabulary does."""
    if not self._splits:
      raise ValueError(
        f"{self._vocab_file}: a graph splits texts into WordPieces or by a "
        "model of SentencePiece; this is another vocabulary (with "
        "--format=onnx, predict.py splits them)"
      )

  def _make(self, vocab_file, python):
    """Makes the operations that split words."""
    self._splits = type(python) is tokenization.FullTokenizer
    if not self._splits:
      return
    # Equal lines are one token, and the empty one is in no word.
    known = {token: i for token, i in python.vocab.items() if token}
    self._ids = tf.constant(list(known.values()), tf.int32)
    self._wordpiece = tensorflow_text.FastWordpieceTokenizer(
      vocab=list(known),
      unknown_token="[UNK]",
      token_out_type=tf.int32,
      no_pretokenization=True,
      max_bytes_per_word=_LONGEST_WORD * _BYTES_PER_CHARACTER,
    )

  def decode(self, texts: tf.Tensor) -> tf.Tensor:
    """Drops invalid UTF-8 from strings."""
    return tf.strings.unicode_transcode(
      texts, "UTF-8", "UTF-8", errors="ignore"
    )

  def encode(
    self, texts: tf.Tensor, most_words: int | None = None
  ) -> tf.RaggedTensor:
    """Returns the ids of texts, int32 [B, (T)].

    Args:
      texts: string [B].
      most_words: those after so many of a text are left out, to save time where
        its tokens would be cut off anyway. There are no fewer tokens than that.
    """
    follows = tf.zeros_like(texts, tf.bool)
    return self._encode(texts, most_words, self._never_split, follows)

  def _encode(self, texts, most_words, kept, follows):
    if not kept:
      return self._encode_text(texts, most_words, follows)
    (token, index), *rest = kept
    parts = tf.strings.split(texts, token)  # [B, (parts)]
    # An empty text has no parts, and is to have one.
    parts = tf.cond(
      tf.reduce_all(parts.row_lengths() > 0),
      lambda: parts,
      lambda: tf.strings.split(tf.strings.join([texts, ""]), token),
    )
    # All but the first part of a text follow the token.
    is_first = tf.ragged.range(parts.row_lengths()).values == 0
    follows = tf.repeat(follows, parts.row_lengths()) | ~is_first
    ids = self._encode(parts.values, most_words, rest, follows)
    # The token stands behind every part of a text but its last.
    between = tf.fill([ids.nrows(), 1], index)
    ids = parts.with_values(tf.concat([ids, between], 1)).merge_dims(1, 2)
    return ids[:, :-1]

  def _encode_text(self, texts, most_words, follows):
    """Encodes texts without a kept token; `follows` bool [N]: one is before."""
    words = self.split_words(texts)
    if most_words is not None:
      words = words[:, :most_words]
    return words.with_values(self._split_pieces(words.values)).merge_dims(1, 2)

  def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits like `tokenization.BasicTokenizer`: [B] to [B, (W)]."""
    x = self._normalize(self.decode(texts))
    words = tf.strings.split(x, " ")
    return tf.ragged.boolean_mask(words, words != "")

  def _normalize(self, x):
    """Cleans texts, and puts spaces around what is a word of its own."""
    replace = tf.strings.regex_replace
    x = replace(x, f"[\\t\\n\\r{_category('Zs')}]", " ")
    x = replace(x, f"[\\x{{0}}\\x{{fffd}}{_category('Cc', 'Cf')}]", "")
    x = replace(x, f"([{_CJK}])", r" \1 ")
    if self._do_lower_case:
      x = tf.strings.lower(x, encoding="utf-8")
      x = tensorflow_text.normalize_utf8(x, "NFD")
      x = replace(x, f"[{_category('Mn')}]", "")
    # Words end at these two as well, after the controls are gone.
    x = replace(x, r"[\x{2028}\x{2029}]", " ")
    return replace(x, f"([{_ASCII_PUNCTUATION}{_category('P')}])", r" \1 ")

  def _split_pieces(self, words):
    """Splits words, string [W], into ids, [W, (pieces)]."""
    pieces = self._wordpiece.tokenize(_replace_long(words))
    return pieces.with_values(tf.gather(self._ids, pieces.values))

  def encode_with_places(self, texts: tf.Tensor) -> SourceTokens:
    """Returns ids and where they come from, as `tokenize_with_offsets` does.

    Places are of what `decode` returns.
    """
    texts = self.decode(texts)
    words = self.split_words(texts)
    pieces, starts, ends = self._wordpiece.tokenize_with_offsets(
      _replace_long(words.values)
    )
    is_unknown = tf.gather(self._ids, pieces.values) == self.vocab["[UNK]"]
    # Bytes of all words of all texts, one behind the other: an unknown word is
    # one token, of all of them.
    sizes = tf.strings.length(words.values)
    first = tf.repeat(tf.cumsum(sizes, exclusive=True), pieces.row_lengths())
    sizes = tf.repeat(sizes, pieces.row_lengths())
    starts = first + tf.where(is_unknown, 0, tf.cast(starts.values, tf.int32))
    ends = tf.where(is_unknown, sizes, tf.cast(ends.values, tf.int32)) + first
    sources = self._byte_sources(texts)
    ids = pieces.with_values(tf.gather(self._ids, pieces.values))
    ids = words.with_values(ids).merge_dims(1, 2)
    return SourceTokens(
      ids,
      ids.with_values(tf.gather(sources[0], starts)),
      ids.with_values(tf.gather(sources[1], ends - 1)),
    )

  def _byte_sources(self, texts):
    """Returns which character each byte of the words was made from.

    A character's part in the words is as long as what it becomes by itself:
    what its neighbours change (a final sigma, the order of marks) is not.

    Returns:
      The first character, and the one after the last, int32 [bytes].
    """
    chars = tf.strings.unicode_split(texts, "UTF-8")  # [B, (C)]
    made = tf.strings.strip(self._normalize(chars.values))
    made = tf.strings.length(tf.strings.regex_replace(made, " ", ""))
    places = tf.ragged.range(chars.row_lengths()).values
    # Marks that are dropped belong to the letter before them.
    is_mark = tf.strings.regex_full_match(
      chars.values, f"[{_category('Mn')}]"
    ) & (made == 0)
    others = tf.cast(tf.where(~is_mark)[:, 0], tf.int32)
    numbers = tf.range(tf.size(chars.values))
    following = tf.concat([others, [tf.size(chars.values)]], 0)
    following = tf.gather(
      following, tf.searchsorted(others, numbers, side="right")
    )
    row_ends = tf.repeat(chars.row_splits[1:], chars.row_lengths())
    reach = tf.minimum(following, tf.cast(row_ends, tf.int32)) - numbers
    places = tf.cast(places, tf.int32)
    return tf.repeat(places, made), tf.repeat(places + reach, made)


def _replace_long(words: tf.Tensor) -> tf.Tensor:
  is_long = tf.strings.length(words, "UTF8_CHAR") > _LONGEST_WORD
  return tf.where(is_long, _UNKNOWN_WORD, words)


def split_text(texts: tf.Tensor, by_character: bool = False) -> Words:
  """Splits plain text into the words that a tagger is asked about.

  As `tagging.split_text` does it: at spaces, around Chinese characters, and
  before and after the punctuation that a word begins or ends with.

  Args:
    texts: string [B], as `TfTokenizer.decode` returns them.
    by_character: whether every character but spaces is a word.
  """
  space = whitespace()
  outside = f"{space}{_characters(_is_named_cjk)}"
  controls = "\\x{0}-/:-@\\[-`{-\\x{7f}"  # All ASCII but letters and digits.
  letter = f"[^{outside}{controls}{_category('P')}]"
  word = f"{letter}(?:[^{outside}]*{letter})?|[^{space}]"
  if by_character:
    word = f"[^{space}]"
  # A character without a meaning goes around every word; where a text has it,
  # another one of the kind stands in for it.
  marked = tf.strings.regex_replace(texts, _MARK, "\U0010fffe")
  marked = tf.strings.regex_replace(marked, f"({word})", f"{_MARK}\\1{_MARK}")
  parts = tf.strings.split(marked, _MARK)  # [B, (P)]
  sizes = tf.strings.length(parts.values, "UTF8_CHAR")
  ends = cumsum(parts.with_values(sizes))
  is_word = tf.ragged.range(parts.row_lengths()) % 2 == 1
  starts = tf.ragged.boolean_mask(ends - parts.with_values(sizes), is_word)
  ends = tf.ragged.boolean_mask(ends, is_word)
  sources = tf.gather(texts, starts.value_rowids())
  words = tf.strings.substr(
    sources, starts.values, (ends - starts).values, "UTF8_CHAR"
  )
  return Words(starts.with_values(words), starts, ends)


def cumsum(ragged: tf.RaggedTensor) -> tf.RaggedTensor:
  """Adds up the values of each row, int32 [B, (T)]."""
  sums = tf.cumsum(ragged.values)
  before = tf.concat([[0], sums], 0)
  rows = tf.gather(before, ragged.row_starts())
  return ragged.with_values(sums - tf.gather(rows, ragged.value_rowids()))


def pack(
  ids_a: tf.RaggedTensor,
  ids_b: tf.RaggedTensor | None,
  cls_id: int,
  sep_id: int,
  max_seq_length: int,
) -> Packed:
  """Cuts a pair like `tokenization.truncate_pair`, and packs it.

  Args:
    ids_a: int32 [B, (T)].
    ids_b: likewise; None for none. Rows without an id get no second [SEP].
    max_seq_length: the most tokens, [CLS] and [SEP] included.
  """
  if ids_b is None:
    ids_b = ids_a[:, :0]
  sizes_a, sizes_b = _sizes(ids_a), _sizes(ids_b)
  has_b = tf.cast(sizes_b > 0, tf.int32)
  room = tf.maximum(max_seq_length - 2 - has_b, 0)
  kept_b = tf.minimum(sizes_b, tf.maximum(room // 2, room - sizes_a))
  kept_a = tf.minimum(sizes_a, room - kept_b)
  return join(
    take(ids_a, kept_a),
    take(ids_b, kept_b),
    cls_id,
    sep_id,
    kept_a + kept_b < sizes_a + sizes_b,
  )


def join(
  ids_a: tf.RaggedTensor,
  ids_b: tf.RaggedTensor,
  cls_id: int,
  sep_id: int,
  was_cut: tf.Tensor,
) -> Packed:
  """Makes [CLS] a [SEP] b [SEP] of ids that fit; see `pack`."""
  sizes_a, sizes_b = _sizes(ids_a), _sizes(ids_b)
  rows = tf.size(sizes_a)
  has_b = tf.cast(sizes_b > 0, tf.int32)
  last_sep = tf.RaggedTensor.from_row_lengths(
    tf.fill([tf.reduce_sum(has_b)], sep_id), tf.cast(has_b, tf.int64)
  )
  cls, sep = tf.fill([rows, 1], cls_id), tf.fill([rows, 1], sep_id)
  input_ids = tf.concat([cls, ids_a, sep, ids_b, last_sep], 1).to_tensor()
  # An empty batch gets two columns as well: the model reads [CLS] in them.
  missing = tf.maximum(0, 2 - tf.shape(input_ids)[1])
  input_ids = tf.pad(input_ids, [[0, 0], [0, missing]])
  places = tf.range(tf.shape(input_ids)[1])[None]  # [1, S]
  middle = (sizes_a + 2)[:, None]
  end = middle + (sizes_b + has_b)[:, None]
  return Packed(
    input_ids,
    tf.cast(places < end, tf.int32),
    tf.cast((places >= middle) & (places < end), tf.int32),
    was_cut,
  )


def take(
  ragged: tf.RaggedTensor, counts: tf.Tensor, starts: tf.Tensor | int = 0
) -> tf.RaggedTensor:
  """Takes `counts` items of each row, int32 [B], from `starts` on."""
  first = tf.cast(ragged.row_starts(), tf.int32) + starts
  places = tf.ragged.range(first, first + counts)
  return places.with_values(tf.gather(ragged.values, places.values))


class Windows(NamedTuple):
  """N parts of B texts, each with the question before it."""

  packed: Packed  # [N, S]; was_cut says whether the question was.
  rows: tf.Tensor  # int32 [N], the text that a window is of, ascending.
  starts: tf.Tensor  # int32 [N], its first token in the text.
  sizes: tf.Tensor  # int32 [N], its tokens of the text.
  offsets: tf.Tensor  # int32 [N], where they begin in the input.


def windows(
  query: tf.RaggedTensor,
  context: tf.RaggedTensor,
  cls_id: int,
  sep_id: int,
  max_seq_length: int,
  max_query_length: int,
  stride: int,
) -> Windows:
  """Splits texts into windows that overlap, as `squad_features` does.

  Args:
    query, context: int32 [B, (T)].
    max_seq_length: tokens of a window, question, [CLS] and [SEP] included.
    max_query_length: tokens of a question; what is beyond is cut.
    stride: tokens from the start of a window to that of the next.
  """
  was_cut = _sizes(query) > max_query_length
  query = query[:, :max_query_length]
  room = max_seq_length - 3 - _sizes(query)  # [B]
  lengths, step = _sizes(context), tf.minimum(stride, room)
  counts = 1 + tf.maximum(0, -((room - lengths) // step))
  rows = tf.repeat(tf.range(tf.size(counts)), counts)  # [N]
  numbers = tf.ragged.range(counts).values
  starts = numbers * tf.gather(step, rows)
  sizes = tf.gather(lengths, rows) - starts
  sizes = tf.minimum(tf.gather(room, rows), sizes)
  query = tf.gather(query, rows)
  parts = take(tf.gather(context, rows), sizes, starts)
  cut = tf.gather(was_cut, rows)
  packed = join(query, parts, cls_id, sep_id, cut)
  return Windows(packed, rows, starts, sizes, _sizes(query) + 2)


def _sizes(ragged: tf.RaggedTensor) -> tf.Tensor:
  return tf.cast(ragged.row_lengths(), tf.int32)
