"""Scores of rankings in numpy: recall@k, MRR@10 and NDCG@10.

Only documents with a relevance above 0 are relevant. Of documents with equal
scores, the less relevant rank first: who scores all alike ranks nothing well.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

RECALLS = (1, 3, 10)
NAMES = ("mrr_at_10", *(f"recall_at_{k}" for k in RECALLS), "ndcg_at_10")


class Ranking(NamedTuple):
  """The relevant documents of a query: R of them."""

  ranks: np.ndarray  # Int [R], from 1.
  relevance: np.ndarray  # Float [R], above 0.


def rank(scores: np.ndarray, relevance: np.ndarray) -> Ranking:
  """Ranks the documents of a query by their scores, the highest first.

  Both are float [D].

  >>> rank(np.array([0.5, 0.9, 0.5]), np.array([1.0, 0.0, 0.0])).ranks.tolist()
  [3]
  """
  order = np.lexsort((relevance, -np.asarray(scores, np.float64)))
  ranked = np.asarray(relevance)[order]
  places = np.flatnonzero(ranked > 0)
  return Ranking(places + 1, ranked[places])


def ndcg(ranking: Ranking) -> float:
  """Computes the normalised discounted cumulative gain of the first 10.

  The gain is the relevance, as in trec_eval, the discount log2(1 + rank); 1 is
  the best order. Järvelin and Kekäläinen, "Cumulated gain-based evaluation of
  IR techniques" (2002).
  """
  is_seen = ranking.ranks <= 10
  gains = ranking.relevance[is_seen] / np.log2(1 + ranking.ranks[is_seen])

  # The best order has the most relevant documents at the ranks from 1 on.
  best = np.sort(ranking.relevance)[::-1][:10]
  return float(gains.sum() / (best / np.log2(np.arange(len(best)) + 2)).sum())


def average(rankings: Iterable[Ranking]) -> dict[str, float]:
  """Averages the scores of queries, by NAMES; those of no query are NaN.

  MRR counts 1 / the rank of the first relevant document, recall@k the share of
  the relevant ones among the first k. Queries without a relevant document do
  not count, as in trec_eval.
  """
  # The columns of a row are those of NAMES.
  rows = []
  for ranking in rankings:
    if len(ranking.ranks):
      first = ranking.ranks.min()
      recalls = [np.mean(ranking.ranks <= k) for k in RECALLS]
      rows.append([(first <= 10) / first, *recalls, ndcg(ranking)])
  means = np.mean(rows, 0) if rows else np.full(len(NAMES), np.nan)
  return dict(zip(NAMES, means.tolist(), strict=True))


def score_queries(
  query_ids: Sequence[str], scores: np.ndarray, relevance: np.ndarray
) -> dict[str, float]:
  """Scores pairs of a query and a document, [N] each; see `average`.

  Args:
    query_ids: the query of each pair. The documents of a query are in the pairs
      with its id, which may stand anywhere.
    scores: float [N], of the model.
    relevance: float [N]; above 0 for a relevant document.

  Returns:
    The means over the queries, by `NAMES`.
  """
  # The places of the pairs, sorted by query and cut where the query changes.
  _, numbers = np.unique(np.asarray(query_ids), return_inverse=True)
  order = np.argsort(numbers, kind="stable")
  groups = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
  return average(rank(scores[group], relevance[group]) for group in groups)
