"""Tests of the order of rows and of their batches."""

import numpy as np
import pytest

from bert.inputs import batch_order


def test_every_epoch_has_every_row_once_in_an_order_of_its_own():
  lengths = np.random.default_rng(0).integers(3, 60, 1003)
  orders = [
    batch_order.epoch_order(lengths, 32, seed, epoch).tolist()
    for seed, epoch in ((1, 0), (1, 1), (2, 0), (1, 0))
  ]
  assert all(sorted(order) == list(range(1003)) for order in orders)
  assert orders[0] == orders[3]
  assert orders[0] != orders[1] and orders[0] != orders[2]
  for epoch in range(5):  # A batch larger than an epoch.
    order = batch_order.epoch_order(np.array([5, 3, 9]), 8, 1, epoch)
    assert sorted(order) == [0, 1, 2]


def test_batches_over_all_epochs_hold_rows_of_similar_length():
  lengths = np.random.default_rng(0).integers(3, 60, 4003)
  order = batch_order.epoch_order
  rows = np.concatenate([order(lengths, 32, 7, n) for n in range(4)])
  batches = lengths[rows[: len(rows) // 32 * 32].reshape(-1, 32)]
  spans = batches.max(1) - batches.min(1)
  assert np.median(spans) <= 3  # Random batches would have above 50.
  assert np.mean(spans > 10) < 0.05  # Those that run over an epoch's end.
  # Short and long ones come in turns, not in order.
  assert abs(np.corrcoef(batches.mean(1), range(len(batches)))[0, 1]) < 0.1


def test_lengths_are_sorted_within_50_batches():
  """As docs/differences.md says: fewer would pad more, more mix less."""
  lengths = np.arange(100_000)
  order = batch_order.epoch_order(lengths, 2, seed=1, epoch=0)
  spans = np.ptp(lengths[order].reshape(-1, 2), axis=1)
  # Neighbours of 100 random numbers lie 1 / 101 of the whole range apart.
  assert np.mean(spans) == pytest.approx(100_000 / 101, rel=0.02)


def test_batches_are_of_equal_work_longest_first_and_end_before_much_padding():
  batches = batch_order.batches_by_tokens(np.array([3, 40, 8, 9, 16]), 32)
  assert [batch.tolist() for batch in batches] == [[1], [4, 3], [2, 0]]
  lengths = np.array([100] + 4 * [60] + 4 * [20])
  batches = batch_order.batches_by_tokens(lengths, 1000)
  assert [lengths[batch].tolist() for batch in batches] == [
    [100, 60, 60, 60],  # 120 tokens of padding; the next row makes it 160.
    [60, 20, 20, 20],
    [20],
  ]


def test_equal_batches_repeat_the_last_row():
  batches = batch_order.make_batches(np.arange(5), 3, 8, is_static=True)
  assert [batch.tolist() for batch in batches] == [[0, 1, 2], [3, 4, 4]]
