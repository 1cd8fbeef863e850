"""Scores of guesses, by frequency and part of a word, and next sentences."""

import numpy as np
import pytest

from bert.tasks import pretraining_scores
import report_tables


def test_scores():
  rows = {
    "masked_lm_loss": np.float32([[1.0, 9.0], [2.0, 4.0], [3.0, 9.0]]),
    "masked_lm_correct": np.float32([[1, 1], [0, 1], [0, 1]]),
    "masked_lm_weights": np.float32([[1, 0], [1, 1], [1, 0]]),
    "next_sentence_loss": np.float32([0.5, 0.1, 0.3]),
    "next_sentence_correct": np.float32([1, 0, 0]),
  }
  # Batches of two: (1 + 2 + 4) / 3 + (0.5 + 0.1) / 2 and 3 / 1 + 0.3.
  assert pretraining_scores.score(rows, batch_size=2) == pytest.approx(
    {
      "loss": ((7 / 3 + 0.3) + 3.3) / 2,
      "masked_lm_accuracy": 2 / 4,
      "masked_lm_loss": 10 / 4,
      "next_sentence_accuracy": 1 / 3,
      "next_sentence_loss": 0.9 / 3,
    },
    rel=1e-5,
  )


def test_scores_without_next_sentences():
  rows = {
    "masked_lm_loss": np.float32([[1.0, 9.0], [2.0, 4.0]]),
    "masked_lm_correct": np.float32([[1, 1], [0, 1]]),
    "masked_lm_weights": np.float32([[1, 0], [1, 1]]),
    "masked_lm_ids": np.array([[2, 0], [3, 4]]),
  }
  scores = pretraining_scores.score(rows, batch_size=2)
  assert scores == pytest.approx(
    {"loss": 7 / 3, "masked_lm_accuracy": 2 / 3, "masked_lm_loss": 7 / 3},
    rel=1e-5,
  )
  text = pretraining_scores.describe(rows, scores, None, {})
  assert "random sentence" not in text


def test_no_masked_token_is_no_division_by_zero():
  rows = {
    "masked_lm_loss": np.float32([[1.0]]),
    "masked_lm_correct": np.float32([[1.0]]),
    "masked_lm_weights": np.float32([[0.0]]),
    "next_sentence_loss": np.float32([0.5]),
    "next_sentence_correct": np.float32([1.0]),
  }
  scores = pretraining_scores.score(rows, batch_size=8)
  assert scores["masked_lm_loss"] == 0.0
  assert scores["loss"] == pytest.approx(0.5)


def test_guesses_by_their_kind(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("[PAD]\n[UNK]\nthe\nplay\n##ing\n")
  rows = {
    "masked_lm_ids": np.array([[2, 4, 0], [2, 3, 2]]),
    "masked_lm_weights": np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
    "masked_lm_correct": np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),
    "masked_lm_loss": np.array([[1.0, 4.0, 9.0], [1.0, 2.0, 4.0]]),
    "next_sentence_labels": np.array([0, 1]),
    "next_sentence_correct": np.array([1.0, 0.0]),
  }
  text = pretraining_scores.describe(rows, {"loss": 2.5}, str(path), {})
  title = "By frequency of the masked token in these records"
  by_frequency = [
    ["1", "2", "0.5000", "3.0000"],
    ["2 to 9", "3", "0.6667", "2.0000"],
  ]
  assert report_tables.rows_of(text, title) == by_frequency
  assert report_tables.rows_of(text, "By part of a word") == [
    ["a word or its beginning", "4", "0.7500", "2.0000"],
    ["a later part of a word (##)", "1", "0.0000", "4.0000"],
  ]
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["next sentence", "1", "0"],
    ["random sentence", "1", "0"],
  ]
  text = pretraining_scores.describe(rows, {"loss": 2.5}, None, {})
  assert report_tables.rows_of(text, title) == by_frequency
  assert "part of a word" not in text
