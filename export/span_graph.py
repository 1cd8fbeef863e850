"""Question answering as a TensorFlow graph: from strings to parts of contexts.

Shapes: B questions, N windows of their contexts, S tokens, K starts or ends to
combine in a window, C spans.
"""

from typing import NamedTuple

import tensorflow as tf

from export import signatures
from export import tf_tokenization

_SPACES = r"[ \t\r\n\x{202f}]+"  # See `squad_answers`.
_CERTAIN_ODDS = 1e6  # Of no answer if no span can be one; see squad_answers.


class SpanSettings(NamedTuple):
  """How to find answers; the flags of run_squad.py."""

  doc_stride: int = 128
  max_query_length: int = 64
  n_best_size: int = 20
  max_answer_length: int = 30
  version_2_with_negative: bool = False
  null_score_diff_threshold: float = 0.0
  padding_competes: bool = True
  whole_word_answers: bool = False


class _Spans(NamedTuple):
  """C spans that may be answers to B questions."""

  rows: tf.Tensor  # int32 [C], the question.
  starts: tf.Tensor  # int32 [C], characters of the context.
  ends: tf.Tensor
  scores: tf.Tensor  # float32 [C]

  def take(self, indices) -> "_Spans":
    """Returns some of the spans, or others in their order."""
    return _Spans(*(tf.gather(values, indices) for values in self))


class SpanGraph(signatures.TextGraph):
  """Answers to questions: parts of contexts of any length.

  The best spans are those of `squad_answers`. An answer begins and ends with
  its tokens' characters; where `squad_answers.find_tokens` cannot find a token
  ([UNK], say) in its word, that gives the whole word.

  Args:
    model: a `heads.SpanModel`.
  """

  inputs = ("question", "context")

  def __init__(
    self, model, tokenizer, max_seq_length: int, settings: SpanSettings
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._settings = settings

  def compute(self, input_ids, input_mask, segment_ids):
    return self.model(input_ids, input_mask, segment_ids)._asdict()

  def serve(self, question, context):
    """Answers questions.

    Returns:
      answer, string, "" for none; start and end, int32, the characters of the
      context that it is, -1 for none; score, the sum of its logits, and
      probability, among the n best answers; no_answer_odds, if there may be
      none; all [B].
    """
    settings = self._settings
    text = self.tokenizer.decode(context)
    tokens = self.tokenizer.encode_with_places(context)
    windows = tf_tokenization.windows(
      self._encode(question),
      tokens.ids,
      *self._special,
      self.max_seq_length,
      settings.max_query_length,
      settings.doc_stride,
    )
    ids = windows.packed[:3]
    if settings.padding_competes:
      missing = self.max_seq_length - tf.shape(ids[0])[1]
      ids = [tf.pad(values, [[0, 0], [0, missing]]) for values in ids]
    logits = self.compute(*ids)
    spans = self._rank(text, self._find_spans(logits, windows, tokens))
    if settings.version_2_with_negative:
      null = logits["start_logits"][:, 0] + logits["end_logits"][:, 0]
      null = tf.math.segment_min(null, windows.rows)
    else:
      null = tf.fill([tf.size(context)], signatures.IMPOSSIBLE)
    was_cut = tf.math.segment_max(
      tf.cast(windows.packed.was_cut, tf.int32), windows.rows
    )
    return {**self._decide(text, spans, null), "truncated": was_cut > 0}

  def _find_spans(self, logits, windows, tokens) -> _Spans:
    """Combines the best starts and ends of each window."""
    settings = self._settings
    mask = windows.packed.input_mask  # [N, S]
    most = tf.shape(logits["start_logits"])[1]
    if settings.padding_competes:
      mask = tf.ones([tf.shape(mask)[0], most], tf.int32)
    most = tf.minimum(settings.n_best_size, most)
    shift = (windows.starts - windows.offsets)[:, None]
    found = []
    for name in ("start_logits", "end_logits"):
      values, places = tf.math.top_k(
        tf.where(mask > 0, logits[name], signatures.IMPOSSIBLE), most
      )
      inside = places - windows.offsets[:, None]
      is_inside = (inside >= 0) & (inside < windows.sizes[:, None])
      found.append((values, places + shift, is_inside))
    (starts, first, is_start), (ends, last, is_end) = found  # [N, K]
    is_start &= _has_most_context(windows, first)
    size = last[:, None, :] - first[:, :, None] + 1  # [N, K, K]
    is_span = is_start[:, :, None] & is_end[:, None, :]
    is_span &= (size > 0) & (size <= settings.max_answer_length)
    window, start, end = tf.unstack(tf.where(is_span), axis=1)  # [C]
    rows = tf.gather(windows.rows, window)
    # Tokens are numbered through all texts.
    base = tf.gather(tf.cast(tokens.ids.row_starts(), tf.int32), rows)
    first = base + tf.gather_nd(first, tf.stack([window, start], 1))
    last = base + tf.gather_nd(last, tf.stack([window, end], 1))
    if settings.whole_word_answers:
      first, last = self._widen(tokens.ids.values, first, last)
    starts = tf.gather_nd(starts, tf.stack([window, start], 1))
    ends = tf.gather_nd(ends, tf.stack([window, end], 1))
    return _Spans(
      rows,
      tf.gather(tokens.starts.values, first),
      tf.gather(tokens.ends.values, last),
      starts + ends,
    )

  def _widen(self, ids, first, last):
    """Returns the first tokens of words, and the last ones, for any tokens."""
    tokens = tf.gather(self.tokenizer.tokens, ids)
    begins = ~tf.strings.regex_full_match(tokens, "##.*")
    word = tf.cumsum(tf.cast(begins, tf.int32)) - 1
    numbers = tf.range(tf.size(ids))
    first = tf.gather(
      tf.math.segment_min(numbers, word), tf.gather(word, first)
    )
    last = tf.gather(tf.math.segment_max(numbers, word), tf.gather(word, last))
    return first, last

  def _rank(self, text, spans) -> _Spans:
    """Sorts spans by question and score, and keeps each text's best one."""
    # Sorting keeps the order of equals.
    spans = spans.take(tf.argsort(spans.scores, direction="DESCENDING"))
    spans = spans.take(tf.argsort(spans.rows))
    sizes = spans.ends - spans.starts
    texts = tf.strings.substr(
      tf.gather(text, spans.rows), spans.starts, sizes, "UTF8_CHAR"
    )
    texts = tf.strings.regex_replace(texts, _SPACES, " ")
    names = tf.strings.join([tf.strings.as_string(spans.rows), texts], " ")
    numbers = tf.unique(names).idx  # From 0 in the order of appearance.
    indices = tf.range(tf.size(numbers))
    first = tf.math.unsorted_segment_min(indices, numbers, tf.size(numbers))
    is_first = tf.gather(first, numbers) == indices
    return spans.take(tf.where(is_first)[:, 0])

  def _decide(self, text, spans, null) -> signatures.Tensors:
    """Chooses among the n best spans of each question and no answer.

    Args:
      text: of the contexts, string [B].
      spans: from `_rank`.
      null: the score of no answer, float32 [B].
    """
    settings, most = self._settings, self._settings.n_best_size

    def of_questions(values, default):
      rows = tf.RaggedTensor.from_value_rowids(
        values, spans.rows, tf.size(null)
      )
      return rows.to_tensor(default, shape=[None, most])

    scores = of_questions(spans.scores, signatures.IMPOSSIBLE)
    # No answer is one of the n best, if its score is.
    is_last = tf.range(most) == most - 1
    is_out = is_last & (scores < null[:, None])
    scores = tf.where(is_out, signatures.IMPOSSIBLE, scores)
    best, is_span = scores[:, 0], scores > signatures.IMPOSSIBLE
    top = tf.maximum(best, null)
    total = tf.reduce_sum(
      tf.where(is_span, tf.exp(scores - top[:, None]), 0.0), 1
    )
    outputs, is_found = {}, is_span[:, 0]
    score = tf.where(is_found, best, 0.0)
    if settings.version_2_with_negative:
      total += tf.exp(null - top)
      odds = tf.where(is_found, null - best, _CERTAIN_ODDS)
      outputs["no_answer_odds"] = odds
      is_found &= odds <= settings.null_score_diff_threshold
      score = tf.where(is_found, best, null)
    start, end = (
      tf.where(is_found, of_questions(places, 0)[:, 0], 0)
      for places in (spans.starts, spans.ends)
    )
    return {
      **outputs,
      "answer": tf.strings.substr(text, start, end - start, "UTF8_CHAR"),
      "start": tf.where(is_found, start, signatures.NOWHERE),
      "end": tf.where(is_found, end, signatures.NOWHERE),
      "score": score,
      "probability": tf.math.divide_no_nan(tf.exp(score - top), total),
    }


def _has_most_context(windows, positions):
  """Tells whether no other window shows more around tokens, bool [N, K].

  See `squad_features.is_max_context`.

  Args:
    windows: `tf_tokenization.Windows`.
    positions: tokens of the windows' texts, int32 [N, K].
  """
  rows, starts, sizes = windows.rows, windows.starts, windows.sizes
  count = tf.size(rows)
  numbers = tf.range(count)

  def look_around(window):
    size = tf.gather(sizes, window)[:, None]
    place = positions - tf.gather(starts, window)[:, None]
    around = tf.cast(tf.minimum(place, size - 1 - place), tf.float64)
    around += 0.01 * tf.cast(size, tf.float64)
    return tf.where((place >= 0) & (place < size), around, -1.0)

  def overlap(distance):
    """Returns which windows meet the one that many after them, bool [N]."""
    later = tf.minimum(numbers + distance, count - 1)
    meets = tf.gather(starts, later) < starts + sizes
    return meets & (tf.gather(rows, later) == rows) & (later > numbers)

  mine = look_around(numbers)

  def compare(distance, is_most):
    for sign, is_less in ((1, tf.greater_equal), (-1, tf.greater)):
      other = tf.clip_by_value(numbers + sign * distance, 0, count - 1)
      is_other = (tf.gather(rows, other) == rows) & (other != numbers)
      is_most &= is_less(mine, look_around(other)) | ~is_other[:, None]
    return distance + 1, is_most

  # A window with each one that it may overlap; with all of its text, memory
  # would grow with the square of the text.
  _, is_most = tf.while_loop(
    lambda distance, _: tf.reduce_any(overlap(distance)),
    compare,
    (1, tf.fill(tf.shape(positions), True)),
    maximum_iterations=count,
  )
  return is_most
