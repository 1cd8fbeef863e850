"""The ids of `vocabularies/sentence_pieces.py` inside a TensorFlow graph."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text

from export import tf_tokenization
from vocabularies import sentence_pieces


class TfSentencePieceTokenizer(tf_tokenization.TfTokenizer):
  """Turns texts into the ids that `SentencePieceTokenizer` gives.

  Attributes:
    resource: what a module has to hold for its graph to be saved.
  """

  def _make(self, vocab_file, python):
    with open(vocab_file, "rb") as file:
      model = file.read()
    models = [model, model + sentence_pieces.NO_MARK]
    self.resource = [
      tensorflow_text.SentencepieceTokenizer(model, out_type=tf.int32)
      for model in models[: 2 if self._never_split else 1]
    ]

  def _lower(self, texts):
    if not self._do_lower_case:
      return texts
    return tf.strings.lower(texts, encoding="utf-8")

  def _encode_text(self, texts, most_words, follows):
    texts = self._lower(self.decode(texts))
    if not self._never_split:
      return self.resource[0].tokenize(texts)
    begins = tf.strings.regex_full_match(
      texts, f"(?s)[{tf_tokenization.whitespace()}].*"
    )
    goes_on = follows & ~begins
    marked, unmarked = self.resource
    ids = [
      marked.tokenize(tf.where(goes_on, "", texts)),
      unmarked.tokenize(tf.where(goes_on, texts, "")),
    ]
    return tf.concat(ids, 1)  # One of the two is empty.

  def encode_with_places(self, texts):
    """Returns ids and where they come from; see `TfTokenizer`."""
    texts = self.decode(texts)
    ids, starts, ends = self.resource[0].tokenize_with_offsets(
      self._lower(texts)
    )
    chars = tf.strings.unicode_split(texts, "UTF-8")  # [B, (C)]
    sizes = tf.strings.length(self._lower(chars.values))
    # The model's places are of bytes; each is of a character of its text.
    places = tf.cast(tf.ragged.range(chars.row_lengths()).values, tf.int32)
    sources = tf.concat([tf.repeat(places, sizes), [0]], 0)
    is_space = tf.strings.regex_full_match(
      chars.values, f"[{tf_tokenization.whitespace()}]"
    )
    is_text = tf.repeat(tf.cast(~is_space, tf.int32), sizes)
    of_row = tf.strings.length(self._lower(texts))  # Bytes of each text.
    first = tf.gather(
      tf.cumsum(of_row, exclusive=True), tf.cast(ids.value_rowids(), tf.int32)
    )
    starts = first + tf.cast(starts.values, tf.int32)
    ends = first + tf.cast(ends.values, tf.int32)
    # The bytes that are not spaces, and how many of them are before each byte.
    kept = tf.cast(tf.where(is_text > 0)[:, 0], tf.int32)
    kept = tf.concat([kept, [0]], 0)
    before = tf.concat([[0], tf.cumsum(is_text)], 0)
    low, high = tf.gather(before, starts), tf.gather(before, ends)
    has_text = low < high
    begin = tf.gather(sources, tf.where(has_text, tf.gather(kept, low), starts))
    last = tf.gather(sources, tf.gather(kept, tf.maximum(high - 1, 0))) + 1
    end = tf.where(has_text, last, begin)
    return tf_tokenization.SourceTokens(
      ids, ids.with_values(begin), ids.with_values(end)
    )


def make_tokenizer(
  vocab_file: str, do_lower_case: bool = True, never_split: Sequence[str] = ()
) -> tf_tokenization.TfTokenizer:
  """Makes the tokenizer of a vocabulary for a graph; see its `check`."""
  is_model = vocab_file.endswith(".model")
  kind = TfSentencePieceTokenizer if is_model else tf_tokenization.TfTokenizer
  return kind(vocab_file, do_lower_case, never_split)
