"""Scores of rankings, on cases computed by hand."""

import math

import numpy as np
import pytest

from bert.report import retrieval_scores


def make(ranks, relevance=None):
  gains = [1.0] * len(ranks) if relevance is None else relevance
  return retrieval_scores.Ranking(np.array(ranks), np.array(gains))


def test_documents_are_ranked_by_falling_scores():
  scores, relevance = np.array([0.1, 0.9, 0.5]), np.array([2.0, 0.0, 1.0])
  ranking = retrieval_scores.rank(scores, relevance)
  assert ranking.ranks.tolist() == [2, 3]
  assert ranking.relevance.tolist() == [1, 2]


def test_equal_scores_rank_the_relevant_last():
  ranking = retrieval_scores.rank(np.zeros(4), np.array([1.0, 0, 0, 3]))
  assert ranking.ranks.tolist() == [3, 4]
  assert ranking.relevance.tolist() == [1, 3]


@pytest.mark.parametrize(
  ("ranks", "k", "expected"),
  [([1], 1, 1), ([2], 1, 0), ([1, 5], 1, 0.5), ([1, 3], 3, 1), ([11], 10, 0)],
)
def test_recall(ranks, k, expected):
  found = retrieval_scores.average([make(ranks)])
  assert found[f"recall_at_{k}"] == expected


@pytest.mark.parametrize(
  ("ranks", "expected"), [([1], 1), ([4, 2], 0.5), ([10], 0.1), ([11], 0)]
)
def test_reciprocal_rank(ranks, expected):
  found = retrieval_scores.average([make(ranks)])
  assert found["mrr_at_10"] == expected


@pytest.mark.parametrize(
  ("ranks", "relevance", "expected"),
  [
    ([1], None, 1),
    ([3], None, 1 / math.log2(4)),
    ([1, 2], [1.0, 3.0], (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))),
    ([2, 11], None, (1 / math.log2(3)) / (1 + 1 / math.log2(3))),
    # Twelve relevant documents: ten of them are the best possible.
    (list(range(1, 13)), None, 1),
  ],
)
def test_ndcg(ranks, relevance, expected):
  found = retrieval_scores.ndcg(make(ranks, relevance))
  assert found == pytest.approx(expected, abs=1e-12)


def test_scores_are_means_over_queries_with_a_relevant_document():
  found = retrieval_scores.score_queries(
    ["b", "a", "b", "c", "a", "b"],
    np.array([0.1, 0.9, 0.7, 0.3, 0.2, 0.5]),
    np.array([1.0, 1, 0, 0, 0, 0]),
  )
  # Relevant is the first document of "a", the third of "b" and none of "c".
  assert found == pytest.approx(
    {
      "mrr_at_10": (1 + 1 / 3) / 2,
      "recall_at_1": 0.5,
      "recall_at_3": 1,
      "recall_at_10": 1,
      "ndcg_at_10": (1 + 0.5) / 2,
    }
  )


def test_no_query_has_no_score():
  names = ["mrr_at_10", "recall_at_1", "recall_at_3", "recall_at_10"]
  found = retrieval_scores.score_queries(["a"], np.ones(1), np.zeros(1))
  assert list(found) == [*names, "ndcg_at_10"]
  assert np.isnan(list(found.values())).all()
