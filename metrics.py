"""Scores of predictions, in numpy; what the field publishes, by its names."""

from collections.abc import Mapping

import numpy as np


def pretraining_metrics(
  rows: Mapping[str, np.ndarray], batch_size: int
) -> dict[str, float]:
  """Scores masked-LM and next-sentence predictions.

  Args:
    rows: N examples, by name:
      masked_lm_loss, float32 [N, P]: negative log-likelihood of each masked
        token; masked_lm_correct, [N, P]: 1 where the best guess is right;
        masked_lm_weights, float32 [N, P]: 0 for unused positions;
      next_sentence_loss, float32 [N]; next_sentence_correct, [N].
    batch_size: of the batches whose mean losses `loss` averages.

  Returns:
    loss, masked_lm_accuracy, masked_lm_loss, next_sentence_accuracy and
    next_sentence_loss. Masked positions of all batches count alike in the
    second and third; in `loss`, as the original defines it, batches do.
  """
  weights = rows["masked_lm_weights"].astype(np.float64)
  token_losses = rows["masked_lm_loss"] * weights
  batch_losses = []
  for start in range(0, len(weights), batch_size):
    batch = slice(start, start + batch_size)
    # The 1e-5 is the original's guard against a batch without a masked token.
    masked = token_losses[batch].sum() / (weights[batch].sum() + 1e-5)
    batch_losses.append(masked + rows["next_sentence_loss"][batch].mean())
  masked_total = max(weights.sum(), 1e-5)
  return {
    "loss": float(np.mean(batch_losses)),
    "masked_lm_accuracy": float(
      (rows["masked_lm_correct"] * weights).sum() / masked_total
    ),
    "masked_lm_loss": float(token_losses.sum() / masked_total),
    "next_sentence_accuracy": float(rows["next_sentence_correct"].mean()),
    "next_sentence_loss": float(rows["next_sentence_loss"].mean()),
  }
