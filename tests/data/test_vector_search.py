import numpy as np

from bert.data import vector_search


def test_products_are_exact_for_every_float16():
  bits = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
  numbers = bits[np.isfinite(bits)][:, None]
  found, scores = vector_search.find(numbers, np.float32([[1.0]]), len(numbers))
  assert scores[0].tolist() == sorted(numbers[:, 0].tolist(), reverse=True)
  assert numbers[found[0], 0].astype(np.float32).tolist() == scores[0].tolist()


def test_the_best_of_many_are_those_of_a_plain_product():
  random = np.random.default_rng(1)
  vectors = random.standard_normal((3000, 24)).astype(np.float16)
  queries = random.standard_normal((3, 24), np.float32)
  found, scores = vector_search.find(vectors, queries, 7)
  expected = queries @ vectors.astype(np.float32).T
  np.testing.assert_array_equal(found, np.argsort(-expected)[:, :7])
  best = np.take_along_axis(expected, found, 1)
  np.testing.assert_allclose(scores, best, rtol=1e-5)
  assert vector_search.find(vectors[:2], queries, 7)[0].shape == (3, 2)


def test_the_first_of_equal_vectors_comes_first():
  vectors = np.float16([[1], [2], [1], [2]])
  found, _ = vector_search.find(vectors, np.float32([[1.0]]), 4)
  assert found.tolist() == [[1, 3, 0, 2]]


def test_the_first_of_equal_vectors_are_found_where_not_all_are():
  vectors = np.float16([[1]] * 50 + [[2]])
  found, _ = vector_search.find(vectors, np.float32([[1.0], [-1.0]]), 3)
  assert found.tolist() == [[50, 0, 1], [0, 1, 2]]
