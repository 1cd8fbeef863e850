"""Texts to make vectors of, as feature files; the scores of their vectors.

Examples are those of `classification`, of a text or a pair; the label is a
number or a third text. Shapes: N examples, T texts of each, H hidden.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
import dataclasses
import hashlib
import itertools
from typing import Any

import numpy as np
import tensorflow as tf

from bert.data import record_writer, tables
from bert.inputs import feature_files, feature_sets, held_out
from bert.report import metrics, retrieval_scores

_PAIR_METRICS = ("spearman", "pearson")
_PARTNERS = 20  # Drawn for a text with its label, and as many without it.
# A logistic regression is fitted when no derivative exceeds this.
_FLAT = 1e-5
_MOST_UPDATES = 200  # Both of Newton's method and of each of its equations.


@dataclasses.dataclass(frozen=True)
class EmbeddingFeatureSettings(feature_sets.FeatureSettings):
  """The settings that shape the features."""

  # The lowest and the highest label; (): it is a third text, if there is any.
  bounds: tuple[float, ...]


@dataclasses.dataclass(eq=False, kw_only=True)
class EmbeddingSet(feature_sets.FeatureSet):
  """The texts, or pairs of texts, of a file."""

  # Returns the number of an example's label; None: the label is a number.
  encode_label: Callable[[Any], int] | None = None


def make_features(data: EmbeddingSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  A row has input_ids, input_mask and segment_ids, int64 [T, max_seq_length],
  padded with 0; text_ids, int64 [T, 2], equal for texts of equal tokens; and
  number, float [1], 1 if there is no number. A ValueError says that an example
  is wrong, or that a set to train or evaluate on has no differences.
  """
  # Filled while rows are made; if the file is there, its index has them.
  facts: dict[str, Any] = {"cut": 0}
  features = data.open_or_make(folder, _make_rows(data, facts), facts)
  facts = features.facts
  length = data.settings.max_seq_length
  data.layout = feature_sets.Layout(
    (facts["texts"], length),
    other_features={
      "text_ids": tf.io.FixedLenFeature([facts["texts"], 2], tf.int64),
      "number": tf.io.FixedLenFeature([1], tf.float32),
    },
  )
  features.print_summary(
    f"{data.kind}{data.suffix}: {len(features):,} examples, "
    f"{facts['texts']} text(s) each, "
    f"{np.mean(features.lengths):.1f} tokens in the longest on average, "
    f"{facts['cut']:,} truncated to --max_seq_length={length}"
  )

  if "fault" in facts:
    paths = ", ".join(data.paths)
    purpose = "learn" if data.kind == "train" else "evaluate on"
    raise ValueError(
      f"{paths}: {facts['fault']}: there is nothing to {purpose}"
    )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  """Yields the rows of a set; `facts` are whole when all are made."""
  size = data.settings.max_seq_length
  bounds = data.settings.bounds
  tokenizer = data.make_tokenizer()
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  different = set()  # Scores, or the texts to be found by their partners.
  for index, example in enumerate(data.select(data.read())):
    # Where examples have no number, the column of the label is a third text: a
    # hard negative.
    texts = [example.text_a, example.text_b]
    if not bounds:
      texts.append(example.label)
    ids = [tokenizer.encode(text) for text in texts if text is not None]
    if facts.setdefault("texts", len(ids)) != len(ids):
      raise ValueError(
        f"{example.location}: {len(ids)} texts, the first example has "
        f"{facts['texts']}"
      )
    facts["cut"] += max(map(len, ids)) > size - 2
    ids = [[cls_id, *text[: size - 2], sep_id] for text in ids]
    text_ids = [_make_text_id(text) for text in ids]

    # A single text is its own partner.
    number = 1.0
    if data.encode_label:
      number = float(data.encode_label(example))
    elif bounds:
      number = _read_number(example, bounds)
    partner = text_ids[1] if len(ids) > 1 else text_ids[0]
    different.add(number if bounds else partner)

    # Rows are batched by the length of their longest text.
    serialized = record_writer.encode_inputs(
      ids,
      [[]] * len(ids),
      size,
      text_ids=record_writer.int64_feature(itertools.chain(*text_ids)),
      number=record_writer.float_feature([number]),
    )
    yield feature_files.Row(serialized, max(map(len, ids)), index)

  # Raised by `make_features`, also when the file is there already.
  if fault := _find_fault(data, different):
    facts["fault"] = fault


def _make_text_id(ids: Sequence[int]) -> tuple[int, int]:
  """Returns numbers that are equal for equal texts, to compare them in a graph.

  They are 56 bits of a digest as two numbers of 28, because batches hold int32.
  """
  # A hexadecimal digit has 4 bits.
  digest = hashlib.sha256(str(ids).encode()).hexdigest()
  return int(digest[:7], 16), int(digest[7:14], 16)


def _find_fault(data, different) -> str:
  """Says why a set has nothing to learn or to compare; "" if it has.

  `different` has its different scores, or the ids of its partner texts.
  """
  objective = data.source["objective"]
  bounds = data.settings.bounds
  if data.kind == "predict" or objective == "labels":
    return ""

  # There, a number says how relevant a text is, and one relevant text will do.
  if data.kind == "eval" and objective == "pairs":
    return "" if different - {0.0} else "no text is relevant: all scores are 0"
  if len(different) > 1:
    return ""
  return f"all {'scores' if bounds else 'texts to find'} are equal"


def _read_number(example: Any, bounds: tuple[float, ...]) -> float:
  """Returns the number of a pair, 1 if it has none."""
  # Such as a pair to predict: no bound is meant for it.
  if example.label is None:
    return 1.0

  label = str(example.label)
  try:
    value = float(label.replace("_", "?"))  # To float(), 1_0 is 10.
  except ValueError:
    value = np.nan
  if not bounds[0] <= value <= bounds[1]:
    raise ValueError(
      f"{example.location}: expected a number from {bounds[0]:g} to "
      f"{bounds[1]:g} (--min_score, --max_score), found {label[:99]!r}"
    )
  return value


def split(
  data: feature_sets.FeatureSet, share: float, seed: int, by_label: bool
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Holds out examples; all with the same first text are in one part.

  Args:
    data: the set to train on.
    share: of the examples to hold out, such as 0.1.
    seed: of the draw.
    by_label: whether both parts must have every label.

  Returns:
    What to train on, and what to evaluate on.

  Raises:
    ValueError: `by_label`, but a label has one text only.
  """
  draw = held_out.draw_of_each if by_label else held_out.draw

  def describe(example):
    return [str(example.label) if by_label else ""], example.text_a

  return held_out.split(data, share, seed, describe, draw)


def number_labels(
  data: EmbeddingSet, labels: Sequence[str], encode_label: Callable[[Any], int]
) -> EmbeddingSet:
  """Returns the set whose rows have the numbers of its labels, from 0.

  Its examples keep their labels, as held_out.jsonl shows them.

  Args:
    data: texts with labels.
    labels: in the order of their numbers.
    encode_label: returns the number of an example's label.
  """
  return dataclasses.replace(
    data,
    settings=dataclasses.replace(data.settings, bounds=(0, len(labels))),
    source={**data.source, "labels": list(labels)},
    encode_label=encode_label,
  )


def draw_pairs(texts: EmbeddingSet, seed: int) -> EmbeddingSet:
  """Returns the set of pairs of texts that a training learns labels from.

  Every text is paired with drawn texts of its label, which should have similar
  vectors (the number 1), and with texts of other labels (the number 0).
  Tunstall et al., "Efficient Few-Shot Learning Without Prompts" (2022).
  """

  def draw():
    random = np.random.default_rng(seed)
    examples = list(texts.examples())
    places: dict[str, list[int]] = {}
    for index, example in enumerate(examples):
      places.setdefault(example.label, []).append(index)
    # To each label the numbers of its texts, and how many others are before
    # each of these.
    same_texts = {label: np.array(same) for label, same in places.items()}
    others_before = {
      label: same - np.arange(len(same)) for label, same in same_texts.items()
    }

    for index, example in enumerate(examples):
      # The only text of a label is its own partner.
      same = same_texts[example.label]
      partners = np.array([index] * _PARTNERS)
      drawn = random.choice(max(1, len(same) - 1), _PARTNERS)
      if len(same) > 1:
        own = np.searchsorted(same, index)
        partners = same[drawn + (drawn >= own)]

      # The n-th text of another label stands behind all of this label that have
      # n or fewer others before them.
      drawn = random.choice(len(examples) - len(same), _PARTNERS)
      before = others_before[example.label]
      others = drawn + np.searchsorted(before, drawn, side="right")

      for number, chosen in (("1", partners), ("0", others)):
        for partner in chosen:
          yield example._replace(text_b=examples[partner].text_a, label=number)

  # The key must have all that decides which pairs there are. Without a limit
  # those that older versions made stay valid.
  source = {**texts.source, "partners": _PARTNERS, "seed": seed}
  if texts.limit is not None:
    source["max_train_examples"] = texts.limit
  return dataclasses.replace(
    texts,
    suffix="",
    source=source,
    read=draw,
    encode_label=None,
    limit=None,  # It counts texts, not their pairs.
    numbers=None,
  )


def fit_classifier(
  results: Mapping[str, np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Fits the logistic regression that is scikit-learn's default.

  It minimises the sum of the cross entropies and of half the squared weights
  (without the bias), by Newton's method.

  Args:
    results: "vectors", float [N, 1, H], and "number", the number of each label,
      float [N, 1].
    count: the number of labels, L.

  Returns:
    Weights, float64 [L, H], and bias, float64 [L].
  """
  # The bias is the weight of an input of 1, the last one: [N, H + 1].
  vectors = results["vectors"][:, 0].astype(np.float64)
  inputs = np.pad(vectors, ((0, 0), (0, 1)), constant_values=1.0)
  targets = np.eye(count)[results["number"][:, 0].astype(int)]

  # For two labels scikit-learn has one vector of weights: the difference of
  # ours, which are each other's negative. Half its square is twice ours.
  penalties = np.full(inputs.shape[-1], 2.0 if count == 2 else 1.0)
  penalties[-1] = 0.0

  def compute_cost(weights):
    # Minus the logarithms of the softmax; the shift keeps exp from overflowing.
    logits = inputs @ weights.T
    logits -= logits.max(-1, keepdims=True)
    target_logits = np.sum(logits * targets)
    totals = np.log(np.exp(logits).sum(-1))
    return totals.sum() - target_logits + np.sum(penalties * weights**2) / 2

  weights = np.zeros((count, inputs.shape[-1]))
  for _ in range(_MOST_UPDATES):
    softmax = metrics.softmax(inputs @ weights.T)
    slope = (softmax - targets).T @ inputs + penalties * weights
    if np.abs(slope).max() < _FLAT:
      break

    # The matrix of second derivatives times a direction. The matrix itself
    # would have (L * H)^2 numbers.
    def multiply_by_hessian(direction, softmax=softmax):
      change = inputs @ direction.T
      change = softmax * (change - (softmax * change).sum(-1, keepdims=True))
      return change.T @ inputs + penalties * direction

    step = _solve(multiply_by_hessian, -slope)

    # Far from the minimum, a whole step may lead uphill: it is halved until the
    # cost falls by a little of the fall that the slope promises.
    cost = compute_cost(weights)
    fall = np.sum(slope * step)
    while compute_cost(weights + step) > cost + 1e-4 * fall and fall < -1e-9:
      step = step / 2
      fall = fall / 2
    weights = weights + step
  return weights[:, :-1], weights[:, -1]


def _solve(
  product: Callable[[np.ndarray], np.ndarray], target: np.ndarray
) -> np.ndarray:
  """Solves product(x) = target approximately, by conjugate gradients."""
  solution = np.zeros_like(target)
  residual = target
  direction = target
  size = np.sum(residual**2)

  # The closer the minimum of `fit_classifier` is, the smaller its slope, the
  # target here, and the more exact the step that leads there has to be.
  goal = size * min(0.25, size**0.5)
  for _ in range(_MOST_UPDATES):
    if size <= goal:
      break
    image = product(direction)
    length = size / np.sum(direction * image)
    solution = solution + length * direction
    residual = residual - length * image

    previous_size = size
    size = np.sum(residual**2)
    direction = residual + size / previous_size * direction
  return solution


def score(
  results: Mapping[str, np.ndarray], is_retrieval: bool
) -> dict[str, float]:
  """Scores vectors, by the name of the score.

  Args:
    results: "vectors", float [N, T, H]; "number", float [N, 1], how similar or
      relevant second texts are; and "text_ids", int [N, T, 2].
    is_retrieval: whether texts are ranked; otherwise cosines are compared with
      the numbers.
  """
  vectors = results["vectors"]
  numbers = results["number"][:, 0]
  if is_retrieval:
    return score_retrieval(vectors, results["text_ids"], numbers)
  scores = metrics.regression_scores(numbers, cosines(vectors))
  return {name: scores[name] for name in _PAIR_METRICS}


def cosines(vectors: np.ndarray) -> np.ndarray:
  """Returns the cosines of first and second texts, of [N, T, H]; [N]."""
  scaled = _scale(vectors)
  return np.sum(scaled[:, 0] * scaled[:, 1], -1)


def _scale(vectors):
  """Scales vectors to the length 1, and leaves zeros as they are."""
  norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
  return vectors / np.maximum(norms, np.finfo(np.float32).tiny)


def score_retrieval(
  vectors: np.ndarray, text_ids: np.ndarray, relevance: np.ndarray
) -> dict[str, float]:
  """Ranks all second and third texts for each different first text.

  A text that is equal to the first is left out, unless it is relevant.

  Args:
    vectors: float [N, T, H].
    text_ids: int [N, T, 2], equal for equal texts; see `_make_text_id`.
    relevance: of the second texts for their first texts, float [N].
  """
  # One number a text, from two of 28 bits: [N, T].
  keys = text_ids.astype(np.int64) @ [1 << 28, 1]

  # Q different first texts, and D different texts to find.
  queries, first_rows, query_of_row = np.unique(
    keys[:, 0], return_index=True, return_inverse=True
  )
  documents, places = np.unique(keys[:, 1:], return_index=True)
  all_vectors = vectors[:, 1:].reshape(-1, vectors.shape[-1])
  document_vectors = _scale(all_vectors[places])  # [D, H]

  # The rows of each query, in the order of the queries.
  order = np.argsort(query_of_row, kind="stable")
  starts = np.searchsorted(query_of_row[order], range(1, len(queries)))
  rows_of_query = np.split(order, starts)

  def rank_all():
    for number, rows in enumerate(rows_of_query):
      # A pair that occurs twice counts with its higher relevance.
      gains = np.zeros(len(documents))
      partners = np.searchsorted(documents, keys[rows, 1])
      np.maximum.at(gains, partners, relevance[rows])

      is_kept = (documents != queries[number]) | (gains > 0)
      scores = document_vectors @ _scale(vectors[first_rows[number], 0])
      yield retrieval_scores.rank(scores[is_kept], gains[is_kept])

  return retrieval_scores.average(rank_all())


def write_predictions(
  path: str, examples: Iterable[Any], vectors: np.ndarray
) -> None:
  """Writes pairs and the cosines of their vectors, as TSV.

  Args:
    path: the file.
    examples: pairs of texts.
    vectors: float [N, T, H].
  """
  rows = (
    {
      "id": example.example_id,
      "text": example.text_a,
      "text_pair": example.text_b,
      "cosine": float(f"{cosine:.6g}"),
    }
    for example, cosine in zip(examples, cosines(vectors).tolist(), strict=True)
  )
  tables.write_rows(path, rows, ("id", "text", "text_pair", "cosine"))
