"""Which rows make a batch: of similar length, so that little is padding."""

import numpy as np

# Batches of shuffled rows that are sorted by length together, at most a quarter
# of the rows. More pad less, fewer mix better.
_BATCHES_PER_CHUNK = 50
# Tokens of padding that cost as much time as one more batch; measured with a
# base model on a CPU: about 80 in float32, 300 in bfloat16.
_MAX_PADDING = 128


def epoch_order(
  lengths: np.ndarray, batch_size: int, seed: int, epoch: int
) -> np.ndarray:
  """Orders an epoch's rows so that every batch holds rows of similar length.

  Rows are shuffled, sorted by length within chunks of many batches, and the
  batches shuffled again: a batch is random except for its length. An epoch
  begins with the rows that complete the last batch of the one before.

  Args:
    lengths: int [N], tokens per row.
    batch_size: rows per update.
    seed: of the order.
    epoch: from 0; each has an order of its own.

  Returns:
    Int64 [N], the index of each row once.
  """
  count = len(lengths)
  random = np.random.default_rng([seed % 2**64, epoch])
  order = random.permutation(count)

  # The first rows complete the last batch of the epochs before, which is the
  # whole epoch if a batch is larger. Then come whole batches; what is left over
  # begins the next epoch's first batch.
  begun = min((-epoch * count) % batch_size, count)
  whole = (count - begun) // batch_size * batch_size
  body = order[begun : begun + whole]

  # `body` is a view: sorting a chunk of it changes `order`.
  most = max(1, count // (4 * batch_size))
  chunk = batch_size * min(_BATCHES_PER_CHUNK, most)
  for start in range(0, whole, chunk):
    part = body[start : start + chunk]
    body[start : start + chunk] = part[np.argsort(lengths[part], kind="stable")]

  # Else the lengths would rise through each chunk.
  batches = body.reshape(-1, batch_size)
  order[begun : begun + whole] = random.permutation(batches).ravel()
  return order


def batches_by_tokens(
  lengths: np.ndarray, tokens_per_batch: int
) -> list[np.ndarray]:
  """Splits rows, longest first, into batches that take equal work.

  A batch ends early where its padding would cost more than another batch.

  Args:
    lengths: int [N], tokens per row.
    tokens_per_batch: the most tokens of a batch, with padding, unless it holds
      a single row.

  Returns:
    The indices of the rows of each batch, int64; each row occurs once.
  """
  order = np.argsort(-lengths.astype(np.int64), kind="stable")
  lengths = lengths[order].astype(np.int64)
  batches = []
  start = 0
  while start < len(order):
    # The row at `start` is the longest; the rows after it are padded to it.
    rows = max(1, tokens_per_batch // int(lengths[start]))
    padding = np.cumsum(lengths[start] - lengths[start : start + rows])
    rows = int(np.searchsorted(padding, _MAX_PADDING, side="right"))
    batches.append(order[start : start + rows])
    start += rows
  return batches


def make_batches(
  lengths: np.ndarray, batch_size: int, max_seq_length: int, is_static: bool
) -> list[np.ndarray]:
  """Returns the batches to predict.

  Args:
    lengths: int [N], tokens per row.
    batch_size: rows of max_seq_length in a batch; more if they are shorter.
    max_seq_length: tokens.
    is_static: whether all batches must have one shape; the last row then fills
      up the last batch.

  Returns:
    The indices of the rows of each batch.
  """
  if not is_static:
    return batches_by_tokens(lengths, batch_size * max_seq_length)
  padded = -(-len(lengths) // batch_size) * batch_size
  indices = np.minimum(np.arange(padded), len(lengths) - 1)
  return list(indices.reshape(-1, batch_size))
