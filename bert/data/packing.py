"""Inputs of a model: ids of one text or two, and windows over longer ones."""

import bisect
from collections.abc import Iterable, Iterator, Sequence
import itertools
from typing import Any, NamedTuple


def truncate_pair(
  tokens_a: list[Any], tokens_b: list[Any], max_num_tokens: int
) -> None:
  """Truncates the longer list at its end, in place, token by token.

  A token of a short text carries more information than one of a long text. If
  the lists are equally long, truncates the second.

  Args:
    tokens_a: the first text's, tokens or ids.
    tokens_b: the second text's; may be empty.
    max_num_tokens: for both together, without [CLS] and [SEP].

  >>> a, b = [1, 2, 3, 4, 5], [6, 7]
  >>> truncate_pair(a, b, 3)
  >>> a, b
  ([1, 2], [6])
  """
  # Token by token, the longer list shrinks to the length of the other, then
  # both in turn. The end of this is computed here at once: what is kept of b is
  # half of the room, or more if a is short.
  total = max(max_num_tokens, 0)
  keep_b = min(len(tokens_b), max(total // 2, total - len(tokens_a)))
  del tokens_b[keep_b:]
  del tokens_a[total - keep_b :]


class PackedIds(NamedTuple):
  """One input of the model: [CLS] a [SEP] or [CLS] a [SEP] b [SEP]."""

  input_ids: list[int]
  input_mask: list[int]  # 1 for a token.
  segment_ids: list[int]  # 0 up to the first [SEP], then 1.


# The features that every encoder takes; each has one integer per token.
INPUT_NAMES = PackedIds._fields


def pack(
  ids_a: Sequence[int],
  ids_b: Sequence[int] | None = None,
  *,
  cls_id: int,
  sep_id: int,
) -> PackedIds:
  """Makes [CLS] a [SEP], or [CLS] a [SEP] b [SEP] if b is not empty.

  Args:
    ids_a: the ids of the first text, short enough already.
    ids_b: the ids of the second text. None or empty: no second [SEP], either.
    cls_id: the id of [CLS].
    sep_id: the id of [SEP].

  >>> tuple(pack([7, 8], [9], cls_id=1, sep_id=2))
  ([1, 7, 8, 2, 9, 2], [1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1])
  """
  input_ids = [cls_id, *ids_a, sep_id]
  segment_ids = [0] * len(input_ids)
  if ids_b:
    input_ids += [*ids_b, sep_id]
    segment_ids += [1] * (len(ids_b) + 1)
  return PackedIds(input_ids, [1] * len(input_ids), segment_ids)


class Window(NamedTuple):
  """A part of a text."""

  start: int  # Its first token.
  length: int


def check_doc_stride(doc_stride: int | None, max_seq_length: int) -> None:
  """Checks that windows leave no token out; a ValueError if they do."""
  if doc_stride is not None and not 0 < doc_stride <= max_seq_length - 2:
    raise ValueError(
      f"--doc_stride={doc_stride}: expected 1 to {max_seq_length - 2}, so that"
      f" no token is left out at --max_seq_length={max_seq_length}"
    )


def make_windows(num_tokens: int, size: int, stride: int) -> list[Window]:
  """Returns windows over a text, up to the first that reaches its end.

  Args:
    num_tokens: the length of the text.
    size: the most tokens of a window.
    stride: how many tokens a window begins after the one before it
      (--doc_stride).

  >>> [tuple(window) for window in make_windows(7, 4, 2)]
  [(0, 4), (2, 4), (4, 3)]
  """
  # The last window is the first that reaches the end: `last` is its start, the
  # division rounded up (Python has only -(-a // b) for this).
  step = min(stride, size)
  last = max(0, -(-(num_tokens - size) // step)) * step
  return [
    Window(start, min(size, num_tokens - start))
    for start in range(0, last + 1, step)
  ]


def is_max_context(
  windows: Sequence[Window], index: int, position: int
) -> bool:
  """Returns whether a window has the most context of a token, of all windows.

  A token of overlapping windows is answered by one of them only, as in the
  original. The context of a token in a window is the number of tokens on its
  left or on its right, whichever is smaller, plus a hundredth of the window's
  length: if two are equal, the longer window wins.

  Args:
    windows: of one text, from `make_windows`.
    index: the window in question.
    position: the token, counted in the text.
  """
  # Only few windows hold the token: measuring all of them, as the original
  # does, takes long for a long text.
  step = windows[1].start if len(windows) > 1 else 1
  first = max(0, -(-(position - windows[0].length + 1) // step))

  def measure_context(i):
    left = position - windows[i].start
    right = windows[i].length - 1 - left
    return -1 if right < 0 else min(left, right) + 0.01 * windows[i].length

  holding = range(first, min(position // step + 1, len(windows)))
  return max(holding, key=measure_context) == index


class FilledWindow(NamedTuple):
  """Words of a text, some of which are there as context only.

  All four are numbers of words; an end is the word after the last one.
  """

  start: int
  end: int
  own_start: int  # The words that the window is made for, without context.
  own_end: int


def fit_windows(
  lengths: Sequence[int], bounds: Iterable[tuple[int, int]], room: int
) -> Iterator[tuple[int, FilledWindow]]:
  """Splits sentences into windows and fills each with words around it.

  Every word of a sentence is in exactly one of its windows; only a sentence of
  more words than fit is split. The room that is left in a window is given to
  the words before and after it, half each if there are as many.

  Args:
    lengths: tokens of each word of a text, none above `room`.
    bounds: the first word of each sentence, and the one after its last.
    room: the most tokens of a window.

  Yields:
    The number of a sentence, and a window of it.

  >>> [tuple(window) for _, window in fit_windows([1] * 9, [(0, 2), (2, 9)], 5)]
  [(0, 5, 0, 2), (2, 7, 2, 7), (4, 9, 7, 9)]
  """
  # sums[i] is the number of tokens before word i. Being sorted, it says by
  # bisection how far a number of tokens reaches.
  sums = [0, *itertools.accumulate(lengths)]
  for number, (own_start, sentence_end) in enumerate(bounds):
    while own_start < sentence_end:
      most = sums[own_start] + room
      own_end = bisect.bisect_right(sums, most, own_start, sentence_end + 1) - 1
      yield number, _surround(sums, own_start, own_end, room)
      own_start = own_end


def _surround(sums, own_start, own_end, room) -> FilledWindow:
  """Adds words before and after the window's own, as many as there is room."""

  def reach_back(tokens):
    return bisect.bisect_left(sums, sums[own_start] - tokens, 0, own_start)

  # Half of the room before, then all that is left after.
  free = room - (sums[own_end] - sums[own_start])
  start = reach_back(free // 2)
  end = bisect.bisect_right(sums, sums[start] + room, own_end) - 1

  # At the end of a text, the words after leave room for more before.
  start = reach_back(free - (sums[end] - sums[own_end]))
  return FilledWindow(start, end, own_start, own_end)
