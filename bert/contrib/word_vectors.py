"""Word vectors in word2vec's text format, as initial word embeddings."""

import numpy as np
import tensorflow as tf

from bert.data import files
from bert.vocabularies import vocabulary_table


def use(path: str, vocab_file: str | None, variable: tf.Variable) -> None:
  """Puts the vectors of a file into word embeddings, and prints how many.

  A line holds a word and its numbers, separated by spaces; the first may hold
  two numbers instead, of vectors and of their width. Of a word that occurs
  twice, the first vector counts. A ValueError names any other line, or
  a vocabulary that is not one of words.
  """
  if not vocab_file:
    raise ValueError("--word_vectors needs --vocab_file, for the words' rows")
  if vocab_file.endswith((".model", ".json")):
    raise ValueError(
      f"--word_vectors: {vocab_file} marks where words begin or end; "
      "expected a vocab.txt or *.words"
    )
  table, vocabulary = variable.numpy(), vocabulary_table.load_vocab(vocab_file)
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
    if word in vocabulary and word not in found:
      found.add(word)
      table[vocabulary[word]] = vector
  variable.assign(table)
  count, rest = len(found), len(vocabulary) - len(found)
  print(f"{path}: vectors of {count} tokens; {rest} tokens stay as they were")
