"""Word vectors in word2vec's text format, as initial word embeddings."""

from collections.abc import Mapping

import numpy as np

from data import files


def replace_rows(
  path: str, vocabulary: Mapping[str, int], table: np.ndarray
) -> int:
  """Replaces the rows of the tokens that a file has vectors of; counts them.

  A line holds a word and its numbers, separated by spaces. The first line may
  hold two numbers instead, of vectors and of their width. Of a word that
  occurs twice, the first vector counts.

  Args:
    path: of the file; .gz and .xz are decompressed.
    vocabulary: token -> row.
    table: float [V, E], changed in place.

  Raises:
    ValueError: a line is not UTF-8 or not a word and E finite numbers.
  """
  found, width = set(), table.shape[1]
  for number, line in enumerate(files.read_lines(path), 1):
    word, *values = line.rstrip().split(" ")
    if number == 1 and len(values) == 1 and width != 1:
      continue
    try:
      vector = np.array(values, np.float32)
    except ValueError as error:
      raise ValueError(f"{path}:{number}: {error}") from None
    if len(values) != width or not np.isfinite(vector).all():
      raise ValueError(
        f"{path}:{number}: {word!r:.80} has {len(values)} numbers; expected "
        f"{width} finite ones, the width of the model's word embeddings"
      )
    row = vocabulary.get(word)
    if row is not None and row not in found:
      found.add(row)
      table[row] = vector
  return len(found)
