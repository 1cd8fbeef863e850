"""Inputs of one text and of two, and windows, against plain loops."""

import random

from bert.data import packing


def test_truncate_pair_pops_from_the_longer():
  for length_a in range(8):
    for length_b in range(8):
      for limit in range(18):
        a, b = list(range(length_a)), list(range(length_b))
        expected_a, expected_b = a[:], b[:]
        while len(expected_a) + len(expected_b) > limit:
          longer = expected_a
          if len(expected_a) <= len(expected_b):
            longer = expected_b
          longer.pop()
        packing.truncate_pair(a, b, limit)
        assert (a, b) == (expected_a, expected_b)


def test_one_sequence_and_two_are_packed():
  for second in (None, []):
    packed = packing.pack([7], second, cls_id=1, sep_id=2)
    assert packed == ([1, 7, 2], [1, 1, 1], [0, 0, 0])
  packed = packing.pack([7], [8, 9], cls_id=1, sep_id=2)
  assert packed.input_ids == [1, 7, 2, 8, 9, 2]
  assert packed.input_mask == [1, 1, 1, 1, 1, 1]
  assert packed.segment_ids == [0, 0, 0, 1, 1, 1]


def test_make_windows():
  make = packing.make_windows
  assert list(make(3, 5, 2)) == [(0, 3)]
  assert list(make(5, 5, 2)) == [(0, 5)]
  assert list(make(6, 5, 2)) == [(0, 5), (2, 4)]
  assert list(make(9, 5, 2)) == [(0, 5), (2, 5), (4, 5)]
  # A stride beyond a window would skip text.
  assert list(make(9, 4, 100)) == [(0, 4), (4, 4), (8, 1)]


def plain_max_context(parts, position):
  """Returns the window with the most context: the definition, in a loop."""
  scores = [
    min(position - w.start, w.start + w.length - 1 - position) + 0.01 * w.length
    if w.start <= position < w.start + w.length
    else -1
    for w in parts
  ]
  return scores.index(max(scores))


def test_every_token_has_most_context_in_one_window():
  source = random.Random(1)
  for _ in range(200):
    num_tokens = source.randint(1, 60)
    size, stride = source.randint(1, 20), source.randint(1, 20)
    found = packing.make_windows(num_tokens, size, stride)
    for position in range(num_tokens):
      best = [
        i
        for i, window in enumerate(found)
        if window.start <= position < window.start + window.length
        and packing.is_max_context(found, i, position)
      ]
      assert best == [plain_max_context(found, position)]


def test_of_equal_contexts_the_first_window_has_it():
  parts = [packing.Window(0, 4), packing.Window(2, 4)]
  # Tokens 2 and 3: one to the right or left in both windows.
  assert packing.is_max_context(parts, 0, 2)
  assert not packing.is_max_context(parts, 0, 3)


def fill(lengths, bounds, room):
  return [w for _, w in packing.fit_windows(lengths, bounds, room)]


def test_a_long_sentence_is_split_between_words():
  # Tokens 2 2 2 2 2 2 2 in windows of 5: two words fit, the rest is context.
  found = fill([2] * 7, [(0, 7)], 5)
  owned = [(w.own_start, w.own_end) for w in found]
  assert owned == [(0, 2), (2, 4), (4, 6), (6, 7)]
  assert [(w.start, w.end) for w in found] == [(0, 2), (2, 4), (4, 6), (5, 7)]


def test_context_is_shared_between_both_sides():
  bounds = [(0, 4), (4, 6), (6, 10)]
  assert fill([1] * 10, bounds, 6)[1] == (2, 8, 4, 6)
  # One side has too little; the other gets what is left.
  assert fill([1] * 10, [(0, 1), (1, 3), (3, 10)], 6)[1] == (0, 6, 1, 3)
  # The first sentence has two windows.
  assert fill([1] * 10, [(0, 7), (7, 9), (9, 10)], 6)[2] == (4, 10, 7, 9)


def test_context_is_made_of_whole_words():
  assert fill([3, 2, 3], [(0, 1), (1, 2), (2, 3)], 6)[1] == (1, 3, 1, 2)
