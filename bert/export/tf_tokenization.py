"""The ids of `tokenization.py` inside a TensorFlow graph.

Of tensorflow-text only operations that TensorFlow Serving has are used.
Shapes: B texts, W words, T tokens, S the length of the longest input.
"""

from collections.abc import Iterable
import functools
import sys
from typing import Any
import unicodedata

import tensorflow as tf
import tensorflow_text

from bert import tokenization
from bert.data import files
from bert.vocabularies import accented_pieces, sentence_pieces, vocabulary_table

_INT32: Any = tf.int32  # tensorflow-text states a type of its own for it.
_LONGEST_WORD = 200  # Characters; a longer one is unknown, as in the original.
_ASCII_PUNCTUATION = "!-/:-@\\[-`{-~"


def _in_class(ranges: Iterable[tuple[int, int]]) -> str:
  """Returns a class of RE2, without [ and ], of ranges from a to b."""
  return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges)


@functools.cache
def _category(*names: str) -> str:
  """Returns the characters of categories, such as Zs, by Python's Unicode."""
  return _in_class(
    (point, point)
    for point in range(sys.maxunicode + 1)
    if unicodedata.category(chr(point)).startswith(names)
  )


@functools.cache
def _marks() -> tuple[str, str]:
  """Returns the marks that NFD sorts: those that are stripped, and the others.

  Characters that consist of the first alone are among them.
  """
  # A character may be several marks in NFD: the first one decides.
  stripped, kept = [], []
  for point in range(sys.maxunicode + 1):
    parts = unicodedata.normalize("NFD", chr(point))
    if all(map(unicodedata.combining, parts)):
      is_kept = unicodedata.category(parts[0]) != "Mn"
      (kept if is_kept else stripped).append((point, point))
  return _in_class(stripped), _in_class(kept)


class WordPieces(tf.Module):
  """Turns texts into the ids that a tokenizer in Python gives."""

  def __init__(
    self,
    python: tokenization.FullTokenizer,
    do_lower_case: bool,
    strips_marks: bool,
  ):
    super().__init__()
    self._do_lower_case = do_lower_case
    self._strips_marks = strips_marks
    # Equal lines are one token, and the empty one is in no word.
    ids = {token: i for token, i in python.vocab.items() if token}

    # The operation numbers tokens by their place in its list; these are ours.
    self._ids = tf.constant(list(ids.values()), tf.int32)
    self._wordpiece = tensorflow_text.FastWordpieceTokenizer(
      vocab=list(ids),
      unknown_token="[UNK]",
      token_out_type=_INT32,
      no_pretokenization=True,
      max_bytes_per_word=4 * _LONGEST_WORD,  # In UTF-8.
    )

  def encode(
    self, texts: tf.Tensor, most_words: int | None = None
  ) -> tf.RaggedTensor:
    """Returns ids, int32 [B, (T)], of the first words of texts, string [B]."""
    # Every word is a token at least: more words would not fit.
    words = self.split_words(texts)[:, :most_words]
    is_long = tf.strings.length(words.values, "UTF8_CHAR") > _LONGEST_WORD

    # No token of a vocabulary has a space in front, so it is unknown.
    pieces = self._wordpiece.tokenize(tf.where(is_long, " ", words.values))
    ids = pieces.with_values(tf.gather(self._ids, pieces.values))
    return words.with_values(ids).merge_dims(1, 2)

  def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits like `tokenization.BasicTokenizer`: [B] to [B, (W)]."""
    words = tf.strings.split(self._normalize(_drop_invalid(texts)), " ")
    return tf.ragged.boolean_mask(words, words != "")

  def _normalize(self, x):
    """Cleans texts, and puts spaces around punctuation and Chinese."""
    replace = tf.strings.regex_replace
    # Spaces of any kind become one kind; controls go; Chinese characters are
    # words of their own.
    x = replace(x, f"[\\t\\n\\r{_category('Zs')}]", " ")
    x = replace(x, f"[\\x{{0}}\\x{{fffd}}{_category('Cc', 'Cf')}]", "")
    x = replace(x, f"([{_in_class(tokenization.CJK_RANGES)}])", r" \1 ")

    if self._do_lower_case:
      x = tf.strings.lower(x, encoding="utf-8")
    if self._strips_marks:
      # The operation sorts a run of marks by insertion, which takes minutes for
      # one of a million. So accents go first, and of others, which all stay in
      # one word, no more than make it too long.
      stripped, kept = _marks()
      x = replace(x, f"[{stripped}]", "")
      x = replace(x, f"([{kept}]{{{_LONGEST_WORD + 1}}})[{kept}]+", r"\1")
      x = tensorflow_text.normalize_utf8(x, "NFD")
      x = replace(x, f"[{_category('Mn')}]", "")

    # Words end at these two as well, after the controls are gone.
    x = replace(x, r"[\x{2028}\x{2029}]", " ")
    return replace(x, f"([{_ASCII_PUNCTUATION}{_category('P')}])", r" \1 ")


class SentencePieces(tf.Module):
  """Turns texts into the ids of a model of SentencePiece."""

  def __init__(self, vocab_file: str, do_lower_case: bool):
    super().__init__()
    self._do_lower_case = do_lower_case
    with files.open_bytes(vocab_file) as file:
      self._pieces = tensorflow_text.SentencepieceTokenizer(
        file.read(), out_type=_INT32
      )

  def encode(self, texts, most_words=None) -> tf.RaggedTensor:
    """Returns the ids of all words; see `WordPieces`."""
    texts = _drop_invalid(texts)
    if self._do_lower_case:
      # The operation ends at NUL, and then mixes up the texts of a batch.
      parts = tf.strings.split(texts, "\0")
      lower = tf.strings.lower(parts.values, "utf-8") + "\0"
      joined = tf.strings.reduce_join(parts.with_values(lower), -1)
      texts = tf.strings.regex_replace(joined, r"\x00$", "")
    ids: Any = self._pieces.tokenize(texts)
    return ids


def make_tokenizer(
  vocab_file: str, do_lower_case: bool = True
) -> WordPieces | SentencePieces:
  """Makes the tokenizer of a vocabulary, if a graph can split texts so."""
  python = vocabulary_table.make_tokenizer(vocab_file, do_lower_case)
  if isinstance(python, sentence_pieces.Tokenizer):
    return SentencePieces(vocab_file, do_lower_case)

  # Other tokenizers, also subclasses, split in ways that no operation knows.
  known = (tokenization.FullTokenizer, accented_pieces.Tokenizer)
  if type(python) not in known:
    raise ValueError(
      f"{vocab_file}: a graph splits by WordPieces or SentencePiece; this is "
      "another vocabulary (with --format=onnx, predict.py splits texts)"
    )
  strips_marks = vocabulary_table.strips_marks(vocab_file, do_lower_case)
  return WordPieces(python, do_lower_case, strips_marks)


def lower_characters(texts: tf.Tensor) -> tf.Tensor:
  """Lower-cases texts, string [B], one character at a time: no final sigma."""
  characters = tf.strings.unicode_split(_drop_invalid(texts), "UTF-8")
  lower = tf.strings.lower(characters.values, "utf-8")
  return tf.strings.reduce_join(characters.with_values(lower), -1)


def pack(
  ids_a: tf.RaggedTensor,
  ids_b: tf.RaggedTensor,
  cls_id: int,
  sep_id: int,
  max_seq_length: int,
) -> list[tf.Tensor]:
  """Truncates pairs of ids, int32 [B, (T)], as `packing` does, and packs them.

  Args:
    ids_a: of the first texts.
    ids_b: of the second texts; a row without any gets no second [SEP].
    cls_id: of [CLS].
    sep_id: of [SEP].
    max_seq_length: the most tokens of a row, [CLS] and [SEP] included.

  Returns:
    input_ids, input_mask and segment_ids, int32 [B, S], padded to the longest,
    and whether tokens were left out, bool [B].
  """
  # The longer text of a pair loses tokens, until both fit.
  sizes_a, sizes_b = (
    tf.cast(ids.row_lengths(), tf.int32) for ids in (ids_a, ids_b)
  )
  has_b = tf.cast(sizes_b > 0, tf.int32)
  room = max_seq_length - 2 - has_b
  kept_b = tf.minimum(sizes_b, tf.maximum(room // 2, room - sizes_a))
  kept_a = tf.minimum(sizes_a, room - kept_b)

  # [CLS] A [SEP] in segment 0, then B [SEP] in segment 1.
  cls, sep = (tf.fill([tf.size(room), 1], index) for index in (cls_id, sep_id))
  first = tf.concat([cls, _take(ids_a, kept_a), sep], 1)
  last = tf.ragged.boolean_mask(sep, has_b[:, None] > 0)
  second = tf.concat([_take(ids_b, kept_b), last], 1)
  ids = tf.concat([first, second], 1)
  segments = tf.concat([tf.zeros_like(first), tf.ones_like(second)], 1)

  # An empty batch gets two columns as well: the model reads [CLS] in them.
  missing = tf.maximum(0, 2 - tf.cast(ids.bounding_shape(1), tf.int32))
  paddings: Any = [[0, 0], [0, missing]]
  parts = ids, tf.ones_like(ids), segments
  padded = [tf.pad(part.to_tensor(), paddings) for part in parts]
  return [*padded, kept_a + kept_b < sizes_a + sizes_b]


def _take(ragged: tf.RaggedTensor, counts: tf.Tensor) -> tf.RaggedTensor:
  """Takes the first `counts` items of each row, int32 [B]."""
  # A ragged tensor has no slices of a size for each row: its values are taken.
  first = tf.cast(ragged.row_starts(), tf.int32)
  places = tf.ragged.range(first, first + counts)
  return places.with_values(tf.gather(ragged.values, places.values))


def _drop_invalid(texts: tf.Tensor) -> tf.Tensor:
  """Drops bytes that are not UTF-8 from strings."""
  return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
