"""Finds the vectors of an index of float16 that are most similar to queries.

Float16 takes half the disk and memory of float32, but NumPy converts it number
by number: with `astype(np.float32)` in the place of `_widen` a query takes four
times as long (docs/search.md).
"""

import numpy as np

_ROWS = 512  # Vectors multiplied at once: they stay in the cache.
# By such a factor `_widen` makes numbers too small. The larger part of it is
# applied to the queries, so that no product loses digits or overflows.
_OF_QUERIES, _OF_SCORES = np.float32(2.0**100), np.float32(2.0**12)


def find(
  vectors: np.ndarray, queries: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Finds the largest inner products of vectors and queries.

  Args:
    vectors: little-endian float16 [N, H].
    queries: float32 [Q, H].
    count: how many to find for each query; at most N are found.

  Returns:
    The numbers of the vectors, int [Q, count], and their products, float32 [Q,
    count], the largest first; equal ones in the order of the vectors.
  """
  scaled = queries * _OF_QUERIES
  scores = np.empty([len(queries), len(vectors)], np.float32)
  for start in range(0, len(vectors), _ROWS):
    end = start + _ROWS
    scores[:, start:end] = scaled @ _widen(vectors[start:end]).T
  scores *= _OF_SCORES

  count = min(count, len(vectors))
  # All that are above the last score which counts; of those that equal it, the
  # first ones, where a partition of the numbers would take any.
  last = np.partition(scores, -count)[:, -count]
  best = np.empty([len(queries), count], np.int64)
  for row, own, limit in zip(best, scores, last, strict=True):
    above = np.flatnonzero(own > limit)
    equal = np.flatnonzero(own == limit)
    row[:] = np.concatenate([above, equal[: count - len(above)]])
  chosen = np.take_along_axis(scores, best, 1)
  order = np.lexsort((best, -chosen))
  return (
    np.take_along_axis(best, order, 1),
    np.take_along_axis(chosen, order, 1),
  )


def _widen(vectors: np.ndarray) -> np.ndarray:
  """Returns finite float16 times 2^-112 as float32, exactly.

  Shifted by 13 bits, exponent and fraction stand where float32 has them. The
  exponents mean 2^112 less there: 127 is 2^0 in float32, in float16 it is 15.
  """
  bits = vectors.view(np.int16).astype(np.int32) << 13
  bits &= ~0x70000000  # The sign was also copied to the bits right of it.
  return bits.view(np.float32)
