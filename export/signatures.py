"""What an exported model does: texts in, answers out, all of it in the graph.

A head has `serve`, from strings to answers, `compute`, from ids to numbers, and
`pack`, from strings to ids; `make_functions` makes the signatures of a
SavedModel of them. Shapes: B texts, S tokens, L labels, W words, E entities, N
windows of texts, H hidden, M masks. What rows have different numbers of is
padded.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
import copy
from typing import NamedTuple

import keras
import tensorflow as tf

from export import tf_tokenization

Tensors = dict[str, tf.Tensor]

MASK = "[MASK]"
_IDS = ("input_ids", "input_mask", "segment_ids")
_NEW_LINE = "\n"
_NOWHERE = -1  # The place of an answer that there is none of.
_CERTAIN_ODDS = 1e6  # Of no answer where nothing can be one; see squad_answers.
_IMPOSSIBLE = -1e30  # A score below that of all that is possible.


class Head(abc.ABC):
  """A model and its tokenizer; see the classes below.

  Args:
    model: with loaded weights; a `modeling.BertModel`, or with one as `bert`.
    tokenizer: of the model.
    max_seq_length: most tokens of an input; what is beyond is cut.

  Attributes:
    inputs: the names of the strings that `serve` takes, each [B].
  """

  inputs: tuple[str, ...] = ("text", "text_pair")

  def __init__(
    self,
    model: keras.layers.Layer,
    tokenizer: tf_tokenization.TfTokenizer,
    max_seq_length: int,
  ):
    self.model, self.tokenizer = model, tokenizer
    self.max_seq_length = max_seq_length
    self._special = tokenizer.vocab["[CLS]"], tokenizer.vocab["[SEP]"]

  @property
  def bert(self):
    """The `modeling.BertModel`."""
    return getattr(self.model, "bert", self.model)

  def _encode(self, texts):
    return self.tokenizer.encode(texts, self.max_seq_length)

  def pack(self, text, text_pair=None) -> tf_tokenization.Packed:
    """Makes the model's input of texts, or of pairs."""
    pair = None if text_pair is None else self._encode(text_pair)
    return tf_tokenization.pack(
      self._encode(text), pair, *self._special, self.max_seq_length
    )

  def serve(self, *texts: tf.Tensor) -> Tensors:
    """Answers; `truncated`, bool [B], says that a text was too long."""
    packed = self.pack(*texts)
    outputs = self.answer(self.compute(*packed[:3]))
    return {**outputs, "truncated": packed.was_cut}

  @abc.abstractmethod
  def compute(self, input_ids, input_mask, segment_ids) -> Tensors:
    """Computes what `answer` puts into words, of ids, int32 [B, S]."""

  def answer(self, outputs: Tensors) -> Tensors:
    """Puts what `compute` returns into words."""
    return outputs

  def attend(self, layer, head, *texts) -> Tensors:
    """Returns the attention of one head of a layer.

    Args:
      layer, head: int32 [], from 0.
      *texts: as for `serve`.

    Returns:
      tokens, string [B, S], "" for padding; attention, float32 [B, S, S], of
      each token to all others.
    """
    packed = self.pack(*texts)
    probs = self.bert(*packed[:3], return_attention_probs=True).attention_probs
    one_head = tf.stack([tf.gather(p, head, axis=1) for p in probs])
    tokens = tf.gather(self.tokenizer.tokens, packed.input_ids)
    return {
      "tokens": tf.where(packed.input_mask > 0, tokens, ""),
      "attention": tf.gather(one_head, layer),
    }


class Classifier(Head):
  """Labels and probabilities of texts or pairs; "" as text_pair is none.

  Args:
    model: a `heads.ClassifierModel`.
    tokenizer, max_seq_length: see `Head`.
    problem: single_label, multi_label or regression.
    labels: their names; none for regression.
    thresholds: of a multi_label problem: the probability from which on a label
      is chosen, for each.
  """

  def __init__(
    self,
    model,
    tokenizer,
    max_seq_length: int,
    problem: str,
    labels: Sequence[str],
    thresholds: Sequence[float] = (),
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._problem, self._labels = problem, tf.constant(list(labels), tf.string)
    self._thresholds = tf.constant(list(thresholds), tf.float32)

  def compute(self, input_ids, input_mask, segment_ids):
    logits = self.model(input_ids, input_mask, segment_ids)
    if self._problem == "regression":
      return {"value": logits[:, 0]}
    activate = tf.nn.softmax
    if self._problem == "multi_label":
      activate = tf.nn.sigmoid
    return {"logits": logits, "probabilities": activate(logits)}

  def answer(self, outputs):
    if self._problem == "regression":
      return outputs
    probabilities = outputs["probabilities"]  # [B, L]
    labels = tf.broadcast_to(self._labels, tf.shape(probabilities))
    outputs = {"labels": labels, "probabilities": probabilities}
    if self._problem == "multi_label":
      chosen = probabilities >= self._thresholds
      return {**outputs, "chosen": chosen}
    best = tf.argmax(probabilities, -1)
    return {**outputs, "label": tf.gather(self._labels, best)}


class Vectors(Head):
  """One vector for each text or pair, [B, H].

  Args:
    model: a `modeling.BertModel`.
    tokenizer, max_seq_length: see `Head`.
    layer: 0 is the lowest, -1 the highest.
    pooling: cls, mean or max; see extract_features.py.
  """

  def __init__(
    self, model, tokenizer, max_seq_length: int, layer: int, pooling: str
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._layer, self._pooling = layer, pooling

  def compute(self, input_ids, input_mask, segment_ids):
    states = self.model(
      input_ids, input_mask, segment_ids, return_hidden_states=True
    ).hidden_states[1:]  # The first is the embedding.
    return {"vectors": self._pool(states[self._layer], input_mask)}

  def _pool(self, state, input_mask):
    if self._pooling == "cls":
      return state[:, 0]
    is_token = input_mask[:, :, None] > 0
    if self._pooling == "max":
      return tf.reduce_max(tf.where(is_token, state, state.dtype.min), 1)
    total = tf.reduce_sum(tf.where(is_token, state, 0.0), 1)
    return total / tf.cast(tf.reduce_sum(input_mask, 1), state.dtype)[:, None]


class Chooser(Head):
  """Probabilities of choices after contexts, as in run_multiple_choice.py.

  `choices` are lines, those of each text; blank ones do not count. `question`
  may be "", else it stands before each choice. `ids` scores one choice a row.

  Args:
    model: a `heads.ClassifierModel` of one label.
    tokenizer, max_seq_length: see `Head`.
  """

  inputs = ("context", "question", "choices")

  def pack(self, context, question, choices):
    return self._pack(context, question, choices)[0]

  def _pack(self, context, question, choices):
    """Packs each choice with what is before it.

    Returns:
      The inputs, a row for each choice of all texts, and the choices, [B, (C)];
      where a text has none, "" is one.
    """
    lines = tf.strings.strip(tf.strings.split(choices, _NEW_LINE))  # [B, (C)]
    lines = tf.ragged.boolean_mask(lines, lines != "")
    # Else there could be nothing to compute.
    missing = tf.cast(lines.row_lengths() == 0, tf.int32)[:, None]
    blank = tf.ragged.boolean_mask(tf.fill(tf.shape(missing), ""), missing > 0)
    lines = tf.concat([lines, blank], 1)
    # Without a context, the question takes its place.
    has_context = tf.strings.strip(context) != ""
    first = tf.where(has_context, context, question)
    before = tf.where(has_context, tf.strings.join([question, " "]), "")
    rows = lines.value_rowids()
    second = tf.strings.join([tf.gather(before, rows), lines.values])
    return super().pack(tf.gather(first, rows), second), lines

  def compute(self, input_ids, input_mask, segment_ids):
    return {"logits": self.model(input_ids, input_mask, segment_ids)[:, 0]}

  def serve(self, context, question, choices):
    """Chooses.

    Returns:
      choices, string [B, C], and their probabilities; choice, string, the most
      probable one, and predicted, int32, its number from 0, -1 if there is
      none, [B].
    """
    packed, lines = self._pack(context, question, choices)
    logits = lines.with_values(self.compute(*packed[:3])["logits"])
    logits, texts = logits.to_tensor(_IMPOSSIBLE), lines.to_tensor()
    is_choice = texts != ""  # [B, C]
    shares = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    best = tf.argmax(shares, -1, tf.int32)
    choice = tf.gather(texts, best, batch_dims=1)
    was_cut = tf.reduce_any(lines.with_values(packed.was_cut), 1)
    return {
      "choices": texts,
      "probabilities": shares,
      "choice": choice,
      "predicted": tf.where(choice != "", best, _NOWHERE),
      "truncated": was_cut,
    }


class MaskFiller(Head):
  """The likeliest tokens for each [MASK] of a text.

  Args:
    model: a `heads.PretrainingModel`.
    tokenizer: keeps [MASK] whole.
    max_seq_length: see `Head`.
    top_k: K, tokens for each mask.
  """

  inputs = ("text",)

  def __init__(self, model, tokenizer, max_seq_length: int, top_k: int):
    super().__init__(model, tokenizer, max_seq_length)
    self._top_k = min(top_k, len(tokenizer.tokens))

  def compute(self, input_ids, input_mask, segment_ids):
    """Guesses the masks of ids.

    Returns:
      positions, int32 [B, M], of the masks, -1 for none; ids, int32, and
      probabilities, float32 [B, M, K].
    """
    mask = self.tokenizer.vocab[MASK]
    places = tf.range(tf.shape(input_ids)[1])[None] + tf.zeros_like(input_ids)
    masks = tf.ragged.boolean_mask(places, input_ids == mask)
    positions = masks.to_tensor(default_value=_NOWHERE)  # [B, M]
    logits = self.model(
      input_ids, input_mask, segment_ids, tf.maximum(positions, 0)
    ).masked_lm_logits[:, :, : len(self.tokenizer.tokens)]
    best, ids = tf.math.top_k(tf.nn.softmax(logits), self._top_k)
    return {"positions": positions, "ids": ids, "probabilities": best}

  def answer(self, outputs):
    is_mask = outputs["positions"][:, :, None] != _NOWHERE
    tokens = tf.gather(self.tokenizer.tokens, outputs["ids"])
    return {
      "tokens": tf.where(is_mask, tokens, ""),
      "probabilities": tf.where(is_mask, outputs["probabilities"], 0.0),
    }


class Tagger(Head):
  """Labels of words, and the entities that they mark.

  Args:
    model: a `heads.TaggerModel` or `heads.FeatureTaggerModel`.
    tokenizer, max_seq_length: see `Head`.
    labels: O, B-LOC and so on; any names if they mark no entities.
    marks_entities: whether they do.
  """

  inputs = ("text",)

  def __init__(
    self,
    model,
    tokenizer,
    max_seq_length: int,
    labels: Sequence[str],
    marks_entities: bool,
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._labels, self._marks_entities = tf.constant(list(labels)), False
    if marks_entities:
      self._marks_entities = True
      prefixes, _, types = zip(*(x.partition("-") for x in labels), strict=True)
      self._types = tf.constant(types)
      self._is_outside = tf.constant([p == "O" for p in prefixes])
      self._begins = tf.constant([p in ("B", "S") for p in prefixes])
      self._ends = tf.constant([p in ("E", "S", "O") for p in prefixes])

  def pack(self, text):
    return self._pack(text)[0]

  def _pack(self, text):
    """Packs the words that fit.

    Returns:
      The input, the words, and where the first token of each is, [B, (W)].
    """
    room = self.max_seq_length - 2
    words = tf_tokenization.split_text(self.tokenizer.decode(text))
    most = tf_tokenization.Words(*(part[:, :room] for part in words))
    ids = self.tokenizer.encode(most.words.values)
    # A word of control characters, say, has no token.
    unknown = tf.fill([ids.nrows(), 1], self.tokenizer.vocab["[UNK]"])
    missing = tf.cast(ids.row_lengths() == 0, tf.int32)
    unknown = tf_tokenization.take(
      tf.RaggedTensor.from_tensor(unknown), missing
    )
    ids = tf.concat([ids, unknown], 1)[:, :room]
    sizes = most.words.with_values(tf.cast(ids.row_lengths(), tf.int32))
    ends = _cumsum(sizes)
    fits = ends <= room
    kept = tf_tokenization.Words(
      *(tf.ragged.boolean_mask(part, fits) for part in most)
    )
    tokens = tf_tokenization.take(
      most.words.with_values(ids).merge_dims(1, 2),
      tf.reduce_sum(tf.where(fits, sizes, 0), 1),
    )
    was_cut = words.words.row_lengths() > kept.words.row_lengths()
    packed = tf_tokenization.join(
      tokens, tokens[:, :0], *self._special, was_cut
    )
    places = tf.ragged.boolean_mask(ends - sizes + 1, fits)
    return packed, kept, places

  def compute(self, input_ids, input_mask, segment_ids):
    logits = self.model(input_ids, input_mask, segment_ids)
    return {
      "logits": logits,
      "probabilities": tf.nn.softmax(logits),
    }  # [B, S, L]

  def serve(self, text):
    """Labels the words of texts.

    Returns:
      words and labels, string, word_starts and word_ends, int32, characters of
      the text, and word_probabilities [B, W]; with entities also entities,
      types, starts, ends and probabilities, the mean of its words', [B, E].
    """
    packed, words, places = self._pack(text)
    probabilities = self.compute(*packed[:3])["probabilities"]
    indices = tf.stack(
      [tf.cast(places.value_rowids(), tf.int32), places.values], 1
    )
    of_words = tf.gather_nd(probabilities, indices)  # [all words, L]
    best = words.words.with_values(tf.argmax(of_words, -1, tf.int32))
    certainty = best.with_values(tf.reduce_max(of_words, -1))
    outputs = {
      "words": words.words,
      "labels": best.with_values(tf.gather(self._labels, best.values)),
      "word_starts": words.starts,
      "word_ends": words.ends,
      "word_probabilities": certainty,
    }
    if self._marks_entities:
      outputs |= self._find_entities(text, words, best, certainty)
    return {**_pad(outputs), "truncated": packed.was_cut}

  def _find_entities(self, text, words, best, certainty):
    """Joins words into entities, as `metrics.find_entities` does."""
    numbers, rows = best.values, best.value_rowids()
    is_inside = ~tf.gather(self._is_outside, numbers)
    types = tf.gather(self._types, numbers)
    # The first word of a text has an O before it.
    is_new_row = _shift(rows, tf.constant(-1, rows.dtype)) != rows
    begins = is_inside & (
      is_new_row
      | tf.gather(self._begins, numbers)
      | _shift(tf.gather(self._ends, numbers), True)
      | (_shift(types, "") != types)
    )
    entity = tf.boolean_mask(
      tf.cumsum(tf.cast(begins, tf.int32)) - 1, is_inside
    )

    def of_entities(values, reduce):
      return reduce(tf.boolean_mask(values, is_inside), entity)

    starts = of_entities(words.starts.values, tf.math.segment_min)
    ends = of_entities(words.ends.values, tf.math.segment_max)
    rows = tf.boolean_mask(rows, begins)
    sources = tf.gather(self.tokenizer.decode(text), rows)
    texts = tf.strings.substr(sources, starts, ends - starts, "UTF8_CHAR")
    texts = tf.RaggedTensor.from_value_rowids(texts, rows, best.nrows())
    certainty = of_entities(certainty.values, tf.math.segment_mean)
    return {
      "entities": texts,
      "types": texts.with_values(tf.boolean_mask(types, begins)),
      "starts": texts.with_values(starts),
      "ends": texts.with_values(ends),
      "probabilities": texts.with_values(certainty),
    }


def _shift(values, first):
  """Puts a value in front of others, and leaves out the last: [N] to [N]."""
  return tf.concat([[first], values], 0)[: tf.size(values)]


def _cumsum(ragged):
  """Adds up the values of each row, int32 [B, (W)]."""
  sums = tf.cumsum(ragged.values)
  before = tf.concat([[0], sums], 0)
  rows = tf.gather(before, ragged.row_starts())
  return ragged.with_values(sums - tf.gather(rows, ragged.value_rowids()))


def _pad(outputs):
  """Makes ragged tensors dense: "", 0.0, and -1 as a place."""
  padding = {tf.string: "", tf.int32: _NOWHERE, tf.float32: 0.0}
  return {
    name: value.to_tensor(padding[value.dtype])
    for name, value in outputs.items()
  }


class AnswerSettings(NamedTuple):
  """How to find answers; the flags of run_squad.py."""

  max_query_length: int = 64
  doc_stride: int = 128
  n_best_size: int = 20
  max_answer_length: int = 30
  version_2_with_negative: bool = False
  null_score_diff_threshold: float = 0.0


class Answerer(Head):
  """Answers to questions: parts of contexts of any length.

  The best span is that of `squad_answers`, if padding does not compete.

  Args:
    model: a `heads.SpanModel`.
    tokenizer, max_seq_length: see `Head`.
    settings: how to choose.
  """

  inputs = ("question", "context")

  def __init__(
    self, model, tokenizer, max_seq_length: int, settings: AnswerSettings
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._settings = settings

  def pack(self, question, context):
    ids = self.tokenizer.encode(question)[:, : self._settings.max_query_length]
    return tf_tokenization.pack(
      ids, self._encode(context), *self._special, self.max_seq_length
    )

  def compute(self, input_ids, input_mask, segment_ids):
    return self.model(input_ids, input_mask, segment_ids)._asdict()

  def serve(self, question, context):
    """Answers questions.

    Returns:
      answer, string, "" for none; start and end, int32, the characters of the
      context that it is, -1 for none; score, the sum of its logits, and
      probability, among all spans that were compared; no_answer_odds, if there
      may be none; all [B].
    """
    settings = self._settings
    tokens = self.tokenizer.encode_with_places(context)
    windows = tf_tokenization.windows(
      self._encode(question),
      tokens.ids,
      *self._special,
      self.max_seq_length,
      settings.max_query_length,
      settings.doc_stride,
    )
    logits = self.compute(*windows.packed[:3])
    best = self._choose(logits, windows, tokens)
    is_found = has_span = best.score > _IMPOSSIBLE / 2
    outputs, log_total = {"score": best.score}, best.log_total
    if settings.version_2_with_negative:
      null = logits["start_logits"][:, 0] + logits["end_logits"][:, 0]
      null = tf.math.segment_min(null, windows.rows)
      outputs["no_answer_odds"] = odds = tf.where(
        is_found, null - best.score, _CERTAIN_ODDS
      )
      is_found &= odds <= settings.null_score_diff_threshold
      log_total = tf.reduce_logsumexp(tf.stack([log_total, null]), 0)
      outputs["score"] = tf.where(is_found, best.score, null)
    is_known = has_span | settings.version_2_with_negative
    outputs["score"] = tf.where(is_known, outputs["score"], 0.0)
    outputs["probability"] = tf.where(
      is_known, tf.exp(outputs["score"] - log_total), 0.0
    )
    outputs |= self._cut_out(context, tokens, best, is_found)
    was_cut = tf.math.segment_max(
      tf.cast(windows.packed.was_cut, tf.int32), windows.rows
    )
    return {**outputs, "truncated": was_cut > 0}

  def _cut_out(self, context, tokens, best, is_found):
    """Finds the text of spans of tokens, [B]."""
    places = []
    for part, index in ((tokens.starts, best.start), (tokens.ends, best.end)):
      # One more, so that there is something to gather in an empty text.
      values = tf.concat([part.values, [0]], 0)
      row = tf.cast(part.row_starts(), tf.int32)
      place = tf.gather(values, tf.where(is_found, row + index, 0))
      places.append(tf.where(is_found, place, 0))
    start, end = places
    text = self.tokenizer.decode(context)
    return {
      "answer": tf.strings.substr(text, start, end - start, "UTF8_CHAR"),
      "start": tf.where(is_found, start, _NOWHERE),
      "end": tf.where(is_found, end, _NOWHERE),
    }

  def _choose(self, logits, windows, tokens) -> "_Spans":
    """Chooses the best span of each text among those of its windows."""
    settings, rows = self._settings, windows.rows
    is_token = windows.packed.input_mask > 0  # [N, S]
    most = tf.minimum(settings.n_best_size, tf.shape(is_token)[1])
    shift = (windows.starts - windows.offsets)[:, None]
    found = []
    for name in ("start_logits", "end_logits"):
      values, places = tf.math.top_k(
        tf.where(is_token, logits[name], _IMPOSSIBLE), most
      )
      inside = places - windows.offsets[:, None]
      is_inside = (inside >= 0) & (inside < windows.sizes[:, None])
      found.append((values, places + shift, is_inside))
    (starts, first, is_start), (ends, last, is_end) = found  # [N, K]
    is_start &= _has_most_context(windows, tokens.ids, first)
    size = last[:, None, :] - first[:, :, None] + 1  # [N, K, K]
    is_span = is_start[:, :, None] & is_end[:, None, :]
    is_span &= (size > 0) & (size <= settings.max_answer_length)
    scores = starts[:, :, None] + ends[:, None, :]
    scores = tf.where(is_span, scores, _IMPOSSIBLE)
    flat = tf.reshape(scores, [tf.shape(scores)[0], most * most])
    of_window = tf.reduce_max(flat, 1)
    score = tf.math.segment_max(of_window, rows)  # [B]
    exponents = tf.exp(flat - tf.gather(score, rows)[:, None])
    exponents = tf.where(flat > _IMPOSSIBLE / 2, exponents, 0.0)
    total = tf.math.segment_sum(tf.reduce_sum(exponents, 1), rows)
    # The first of the best windows, and in it the first of the best spans.
    is_best = of_window == tf.gather(score, rows)
    numbers = tf.where(is_best, tf.range(tf.size(rows)), tf.size(rows))
    window = tf.math.segment_min(numbers, rows)
    span = tf.argmax(tf.gather(flat, window), 1, tf.int32)
    return _Spans(
      tf.gather(tf.gather(first, window), span // most, batch_dims=1),
      tf.gather(tf.gather(last, window), span % most, batch_dims=1),
      score,
      score + tf.math.log(total),
    )


class _Spans(NamedTuple):
  """The best span of each text, all [B]."""

  start: tf.Tensor  # int32, tokens of the text, both included.
  end: tf.Tensor
  score: tf.Tensor  # float32
  log_total: tf.Tensor  # The logarithm of the sum of all spans' exponentials.


def _has_most_context(windows, ids, positions):
  """Tells whether no other window shows more around tokens, bool [N, K].

  See `squad_features.is_max_context`.

  Args:
    windows: `tf_tokenization.Windows`.
    ids: of the texts, [B, (T)].
    positions: tokens of the windows' texts, int32 [N, K].
  """
  places = tf.ragged.range(windows.sizes)  # [N, (size)]
  numbers = tf.cast(places.value_rowids(), tf.int32)
  sizes = tf.gather(windows.sizes, numbers)
  around = tf.minimum(places.values, sizes - 1 - places.values)
  around = tf.cast(around, tf.float64) + 0.01 * tf.cast(sizes, tf.float64)
  # Tokens are numbered through all texts.
  first = tf.gather(tf.cast(ids.row_starts(), tf.int32), windows.rows)
  token = places.values + tf.gather(first + windows.starts, numbers)
  count = tf.size(ids.values)
  most = tf.math.unsorted_segment_max(around, token, count)
  is_most = around == tf.gather(most, token)
  owner = tf.math.unsorted_segment_min(
    tf.where(is_most, numbers, tf.size(windows.rows)), token, count
  )
  owner = tf.concat([owner, [_NOWHERE]], 0)
  asked = tf.clip_by_value(positions + first[:, None], 0, count)
  return tf.gather(owner, asked) == tf.range(tf.size(windows.rows))[:, None]


def make_functions(head: Head) -> dict[str, Callable]:
  """Makes the functions that a SavedModel is to have.

  Returns:
    serving_default: from strings to answers; ids: from input_ids, input_mask
    and segment_ids, int32 [B, S]; attention: from strings, layer and head.
  """

  def strings():
    return [tf.TensorSpec([None], tf.string, name) for name in head.inputs]

  number = [tf.TensorSpec([], tf.int32, name) for name in ("layer", "head")]
  ids = [tf.TensorSpec([None, None], tf.int32, name) for name in _IDS]
  # Traced once for both signatures: half the graph, and half the time to load.
  shared = copy.copy(head)
  shared.compute = tf.function(head.compute, input_signature=ids)
  return {
    name: tf.function(function, input_signature=spec)
    for name, function, spec in (
      ("serving_default", lambda *texts: shared.serve(*texts), strings()),
      ("ids", lambda *ids: shared.compute(*ids), ids),
      (
        "attention",
        lambda layer, number, *texts: head.attend(layer, number, *texts),
        number + strings(),
      ),
    )
  }


def save(head: Head, folder: str) -> None:
  """Writes a SavedModel with the signatures of `make_functions`."""
  module = tf.Module()
  # Their own variables: Keras's objects are of no use without Keras.
  module.weights = [variable.value for variable in head.model.variables]
  tf.saved_model.save(
    module,
    folder,
    signatures=make_functions(head),
    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
  )
