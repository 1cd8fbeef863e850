"""Inputs of one text and of two, truncated and padded."""

import pytest

from data import packing


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


def test_one_sequence_and_two_are_packed_and_padded():
  for second in (None, []):
    packed = packing.pack([7], second, cls_id=1, sep_id=2)
    assert packed == ([1, 7, 2], [1, 1, 1], [0, 0, 0])
  packed = packing.pack([7], [8, 9], cls_id=1, sep_id=2, max_seq_length=8)
  assert packed.input_ids == [1, 7, 2, 8, 9, 2, 0, 0]
  assert packed.input_mask == [1, 1, 1, 1, 1, 1, 0, 0]
  assert packed.segment_ids == [0, 0, 0, 1, 1, 1, 0, 0]


def test_pack_refuses_what_does_not_fit():
  with pytest.raises(ValueError, match="4 tokens .* max_seq_length 3"):
    packing.pack([7, 8], cls_id=1, sep_id=2, max_seq_length=3)
