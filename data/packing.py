"""Ids of one text, or of two, as the input of a model."""

from collections.abc import Sequence
from typing import Any, NamedTuple


def truncate_pair(
  tokens_a: list[Any], tokens_b: list[Any], max_num_tokens: int
) -> None:
  """Truncates the longer list at its end, in place, token by token.

  If the lists are equally long, truncates the second.

  >>> a, b = [1, 2, 3, 4, 5], [6, 7]
  >>> truncate_pair(a, b, 3)
  >>> a, b
  ([1, 2], [6])
  """
  total = max(max_num_tokens, 0)
  # The longer list is truncated to the other's length, then both in turn.
  keep_b = min(len(tokens_b), max(total // 2, total - len(tokens_a)))
  del tokens_b[keep_b:]
  del tokens_a[total - keep_b :]


class PackedIds(NamedTuple):
  """One input of the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

  input_ids: list[int]
  input_mask: list[int]  # 1 for a token, 0 for padding.
  segment_ids: list[int]  # 0 up to the first [SEP], then 1; 0 for padding.


def pack(
  ids_a: Sequence[int],
  ids_b: Sequence[int] | None = None,
  *,
  cls_id: int,
  sep_id: int,
  max_seq_length: int | None = None,
) -> PackedIds:
  """Makes [CLS] a [SEP], or [CLS] a [SEP] b [SEP] if b is not empty.

  Pads to `max_seq_length`, if given, with zeros whatever the id of [PAD] is, as
  in the original.

  >>> pack([7, 8], [9], cls_id=1, sep_id=2, max_seq_length=7)
  ... # doctest: +NORMALIZE_WHITESPACE
  PackedIds(input_ids=[1, 7, 8, 2, 9, 2, 0], input_mask=[1, 1, 1, 1, 1, 1, 0],
            segment_ids=[0, 0, 0, 0, 1, 1, 0])
  """
  input_ids = [cls_id, *ids_a, sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b:
    input_ids += [*ids_b, sep_id]
    segment_ids += [1] * (len(ids_b) + 1)
  length = len(input_ids)
  padding = (length if max_seq_length is None else max_seq_length) - length
  if padding < 0:
    raise ValueError(
      f"{length} tokens with [CLS] and [SEP] do not fit into"
      f" max_seq_length {max_seq_length}; truncate them first"
    )
  zeros = [0] * padding
  return PackedIds(input_ids + zeros, [1] * length + zeros, segment_ids + zeros)
