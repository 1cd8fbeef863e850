"""Scores worked out by hand."""

import numpy as np
import pytest

import metrics


def test_pretraining_metrics():
  rows = {
    "masked_lm_loss": np.float32([[1.0, 9.0], [2.0, 4.0], [3.0, 9.0]]),
    "masked_lm_correct": np.float32([[1, 1], [0, 1], [0, 1]]),
    "masked_lm_weights": np.float32([[1, 0], [1, 1], [1, 0]]),
    "next_sentence_loss": np.float32([0.5, 0.1, 0.3]),
    "next_sentence_correct": np.float32([1, 0, 0]),
  }
  # Batches of two: (1 + 2 + 4) / 3 + (0.5 + 0.1) / 2 and 3 / 1 + 0.3.
  assert metrics.pretraining_metrics(rows, batch_size=2) == pytest.approx(
    {
      "loss": ((7 / 3 + 0.3) + 3.3) / 2,
      "masked_lm_accuracy": 2 / 4,
      "masked_lm_loss": 10 / 4,
      "next_sentence_accuracy": 1 / 3,
      "next_sentence_loss": 0.9 / 3,
    },
    rel=1e-5,
  )


def test_no_masked_token_is_no_division_by_zero():
  rows = {
    "masked_lm_loss": np.float32([[1.0]]),
    "masked_lm_correct": np.float32([[1.0]]),
    "masked_lm_weights": np.float32([[0.0]]),
    "next_sentence_loss": np.float32([0.5]),
    "next_sentence_correct": np.float32([1.0]),
  }
  scores = metrics.pretraining_metrics(rows, batch_size=8)
  assert scores["masked_lm_loss"] == 0.0
  assert scores["loss"] == pytest.approx(0.5)
