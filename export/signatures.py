"""Models as TensorFlow graphs that take texts, for TensorFlow Serving.

A graph has `serve`, from strings to answers, and `compute`, from ids to
numbers; `make_functions` makes the signatures of a
SavedModel of them. predict.py uses the numbers alone: its answers, which are
the same, are made by `serving.answers`. Shapes: B texts, S tokens, L labels, W
words, E entities, N windows of texts, C spans, H hidden, M masks. Ragged
outputs are padded.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
import copy

import keras
import tensorflow as tf

from export import tf_tokenization
import heads

Tensors = dict[str, tf.Tensor]

MASK = "[MASK]"
IDS = heads.HeadModel.input_names
_NEW_LINE = "\n"
NOWHERE = -1  # The place where there is no answer.
IMPOSSIBLE = -1e30  # A score below that of all that is possible.


class TextGraph(abc.ABC):
  """A model and its tokenizer; see the classes below.

  Args:
    model: with loaded weights; a `modeling.BertModel`, or with one as `bert`.
    max_seq_length: tokens at which inputs are truncated.

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

  def attend(self, input_ids, input_mask, segment_ids) -> tf.Tensor:
    """Returns the attention in ids, int32 [B, S]: [B, layers, heads, S, S]."""
    probs = self.bert(
      input_ids, input_mask, segment_ids, return_attention_probs=True
    ).attention_probs
    return tf.stack(probs, 1)


class ClassifierGraph(TextGraph):
  """Labels and probabilities of texts or pairs; text_pair may be "".

  Args:
    model: a `heads.ClassifierModel`.
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


class VectorsGraph(TextGraph):
  """One vector for each text or pair, [B, H].

  Args:
    model: a `modeling.BertModel`.
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
    state = states[self._layer]
    return {"vectors": heads.pool(state, input_mask, self._pooling)}


class ChoiceGraph(TextGraph):
  """Probabilities of choices after contexts, as in run_multiple_choice.py.

  `choices` are lines, those of each text; blank ones do not count. `question`
  may be "", else it stands before each choice. `ids` scores one choice a row.

  Args:
    model: a `heads.ClassifierModel` of one label.
  """

  inputs = ("context", "question", "choices")

  def _pack_choices(self, context, question, choices):
    """Packs each choice with what is before it.

    Returns:
      The inputs, a row for each choice of all texts, and the choices, [B, (C)];
      where a text has none, "" is one.
    """
    lines = tf.strings.split(choices, _NEW_LINE)  # [B, (C)]
    lines = lines.with_values(tf_tokenization.strip(lines.values))
    lines = tf.ragged.boolean_mask(lines, lines != "")
    # Else there could be nothing to compute.
    missing = tf.cast(lines.row_lengths() == 0, tf.int32)[:, None]
    blank = tf.ragged.boolean_mask(tf.fill(tf.shape(missing), ""), missing > 0)
    lines = tf.concat([lines, blank], 1)
    # Without a context, the question takes its place.
    has_context = tf_tokenization.strip(context) != ""
    first = tf.where(has_context, context, question)
    before = tf.where(has_context, tf.strings.join([question, " "]), "")
    rows = lines.value_rowids()
    second = tf.strings.join([tf.gather(before, rows), lines.values])
    return self.pack(tf.gather(first, rows), second), lines

  def compute(self, input_ids, input_mask, segment_ids):
    return {"logits": self.model(input_ids, input_mask, segment_ids)[:, 0]}

  def serve(self, context, question, choices):
    """Chooses.

    Returns:
      choices, string [B, C], and their probabilities; choice, string, the most
      probable one, and predicted, int32, its number from 0, -1 if there is
      none, [B].
    """
    packed, lines = self._pack_choices(context, question, choices)
    logits = lines.with_values(self.compute(*packed[:3])["logits"])
    logits, texts = logits.to_tensor(IMPOSSIBLE), lines.to_tensor()
    is_choice = texts != ""  # [B, C]
    shares = tf.where(is_choice, tf.nn.softmax(logits), 0.0)
    # One more column, never the best: an empty batch has no choices.
    padded = tf.pad(shares, [[0, 0], [0, 1]], constant_values=-1.0)
    best = tf.argmax(padded, -1, tf.int32)
    choice = tf.gather(texts, best, batch_dims=1)
    was_cut = tf.reduce_any(lines.with_values(packed.was_cut), 1)
    return {
      "choices": texts,
      "probabilities": shares,
      "choice": choice,
      "predicted": tf.where(choice != "", best, NOWHERE),
      "truncated": was_cut,
    }


class MaskGraph(TextGraph):
  """The likeliest tokens for each [MASK] of a text.

  Args:
    model: a `heads.PretrainingModel`.
    tokenizer: keeps [MASK] whole.
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
    positions = masks.to_tensor(default_value=NOWHERE)  # [B, M]
    logits = self.model(
      input_ids, input_mask, segment_ids, tf.maximum(positions, 0)
    ).masked_lm_logits[:, :, : len(self.tokenizer.tokens)]
    best, ids = tf.math.top_k(tf.nn.softmax(logits), self._top_k)
    return {"positions": positions, "ids": ids, "probabilities": best}

  def answer(self, outputs):
    is_mask = outputs["positions"][:, :, None] != NOWHERE
    tokens = tf.gather(self.tokenizer.tokens, outputs["ids"])
    return {
      "tokens": tf.where(is_mask, tokens, ""),
      "probabilities": tf.where(is_mask, outputs["probabilities"], 0.0),
    }


class TaggerGraph(TextGraph):
  """Labels of words, and the entities that they mark.

  Args:
    model: a `heads.TaggerModel` or `heads.FeatureTaggerModel`.
    labels: O, B-LOC and so on; any names if they mark no entities.
  """

  inputs = ("text",)

  def __init__(
    self,
    model,
    tokenizer,
    max_seq_length: int,
    labels: Sequence[str],
    marks_entities: bool,
    by_character: bool = False,
  ):
    super().__init__(model, tokenizer, max_seq_length)
    self._by_character = by_character
    self._labels, self._marks_entities = tf.constant(list(labels)), False
    if marks_entities:
      self._marks_entities = True
      prefixes, _, types = zip(*(x.partition("-") for x in labels), strict=True)
      self._types = tf.constant(types)
      self._is_outside = tf.constant([p == "O" for p in prefixes])
      self._begins = tf.constant([p in ("B", "S") for p in prefixes])
      self._ends = tf.constant([p in ("E", "S", "O") for p in prefixes])

  def _pack_words(self, text):
    """Packs the words that fit.

    Returns:
      The input, the words, and where the first token of each is, [B, (W)].
    """
    room = self.max_seq_length - 2
    words = tf_tokenization.split_text(
      self.tokenizer.decode(text), self._by_character
    )
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
    ends = tf_tokenization.cumsum(sizes)
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
    packed, words, places = self._pack_words(text)
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


def _pad(outputs):
  """Makes ragged tensors dense: "", 0.0, and -1 as a place."""
  padding = {tf.string: "", tf.int32: NOWHERE, tf.float32: 0.0}
  return {
    name: value.to_tensor(padding[value.dtype])
    for name, value in outputs.items()
  }


def make_functions(graph: TextGraph) -> dict[str, Callable]:
  """Makes the functions that a SavedModel is to have.

  Returns:
    serving_default: from strings to answers; ids: from input_ids, input_mask
    and segment_ids, int32 [B, S]; attention, of a Transformer: from these.
  """
  strings = [tf.TensorSpec([None], tf.string, name) for name in graph.inputs]
  ids = [tf.TensorSpec([None, None], tf.int32, name) for name in IDS]
  # Traced once for both signatures: half the graph, and half the time to load.
  shared = copy.copy(graph)
  shared.compute = tf.function(graph.compute, input_signature=ids)
  has_attention = hasattr(graph.bert.config, "num_attention_heads")
  return {
    name: tf.function(function, input_signature=spec)
    for name, function, spec in (
      ("serving_default", lambda *texts: shared.serve(*texts), strings),
      ("ids", lambda *ids: shared.compute(*ids), ids),
      (
        "attention",
        lambda *tensors: {"attention": graph.attend(*tensors)},
        ids,
      ),
    )
    if name != "attention" or has_attention
  }


def save(graph: TextGraph, folder: str) -> None:
  """Writes a SavedModel with the signatures of `make_functions`."""
  module = tf.Module()
  # Their own variables: Keras's objects are of no use without Keras.
  module.weights = [variable.value for variable in graph.model.variables]
  module.tokenizer = getattr(graph.tokenizer, "resource", None)
  tf.saved_model.save(
    module,
    folder,
    signatures=make_functions(graph),
    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
  )
