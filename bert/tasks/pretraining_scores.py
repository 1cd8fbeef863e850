"""Scores of what a model guesses in pre-training, and the records it learns.

The records are made by bert/data/pretraining_data.py.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.inputs import records, training_input
from bert.report import charts, metrics, plots
from bert.training import prediction
from bert.vocabularies import vocabulary_table

_FREQUENCIES = ("1", "2 to 9", "10 to 99", "100 to 999", "1,000 or more")
_PARTS = ("a word or its beginning", "a later part of a word (##)")


class PretrainingData(NamedTuple):
  """The records of a run."""

  train_files: list[str]
  eval_files: list[str]
  eval_identity: str  # Equal for equal files.
  parse: Callable[[tf.Tensor], training_input.Features]
  source: training_input.TrainingInput
  is_masked: bool = True  # Whether there are masked words to be guessed.

  def count_at_once(self) -> int | None:
    """Counts the records to train on; None if that would read whole files."""
    return records.count_at_once(self.train_files)

  def check_unchanged(self) -> None:
    """Raises a ValueError if files to train on were changed meanwhile."""
    records.check_unchanged(self.train_files, self.source.identity)


def evaluate(
  predictor: prediction.Predictor,
  data: PretrainingData,
  batch_size: int,
  max_steps: int,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
  """Predicts the records to evaluate on, and scores them.

  Args:
    predictor: of the model; it returns the results that `score` takes.
    data: the records.
    batch_size: records per batch.
    max_steps: batches to evaluate; 0: every record once.

  Returns:
    The results, by name, each [N, ...], and the scores.

  Raises:
    ValueError: names a broken record.
  """
  serialized = records.sequential_dataset(data.eval_files)
  serialized = serialized.map(lambda _, record: record)
  total = max_steps * batch_size or None
  if total:
    # The original starts over after the last record, which affects scores.
    serialized = serialized.repeat().take(total)
  batches = serialized.batch(batch_size).map(data.parse)

  with training_input.naming_bad_record(data.source.find_fault):
    results = predictor(training_input.prefetch(batches, 2), total)
  return results, score(results, batch_size)


def score(
  results: Mapping[str, np.ndarray], batch_size: int
) -> dict[str, float]:
  """Scores masked-LM and next-sentence predictions.

  Takes N examples by name: masked_lm_loss, float32 [N, P], in nats;
  masked_lm_correct, [N, P], 1 or 0; masked_lm_weights, float32 [N, P], 0 for
  unused positions; next_sentence_loss and next_sentence_correct, [N]. `loss`
  averages the mean losses of batches, as in the original; the other scores are
  means over masked positions or examples.
  """
  weights = results["masked_lm_weights"].astype(np.float64)
  token_losses = results["masked_lm_loss"] * weights
  next_loss = results.get("next_sentence_loss")

  batch_losses = []
  for start in range(0, len(weights), batch_size):
    batch = slice(start, start + batch_size)
    # The 1e-5 is the original's guard against a batch without a masked token.
    masked = token_losses[batch].sum() / (weights[batch].sum() + 1e-5)
    next_mean = 0 if next_loss is None else next_loss[batch].mean()
    batch_losses.append(masked + next_mean)

  masked_total = max(weights.sum(), 1e-5)
  right = (results["masked_lm_correct"] * weights).sum()
  scores = {
    "loss": float(np.mean(batch_losses)),
    "masked_lm_accuracy": float(right / masked_total),
    "masked_lm_loss": float(token_losses.sum() / masked_total),
  }

  # Records may lack next sentences, see --next_sentence.
  if next_loss is not None:
    accuracy = results["next_sentence_correct"].mean()
    scores["next_sentence_accuracy"] = float(accuracy)
    scores["next_sentence_loss"] = float(next_loss.mean())
  return scores


def describe(
  results: Mapping[str, np.ndarray],
  scores: Mapping[str, float],
  vocab_file: str | None,
  guesses: Mapping[str, tuple[str, float]],
) -> str:
  """Describes predictions in HTML, for report.html.

  Args:
    results: as for `score`, with masked_lm_ids, int [N, P], and
      next_sentence_labels, int [N]. Results of next sentences may be absent.
    scores: from `score`.
    vocab_file: None: predictions are not scored by part of a word.
    guesses: how good answers by frequency alone are: (name, score) by the name
      of the score.
  """
  # [M], the masked positions of all examples, one after the other.
  is_used = results["masked_lm_weights"] > 0
  ids = results["masked_lm_ids"][is_used]
  is_right = results["masked_lm_correct"][is_used]
  losses = results["masked_lm_loss"][is_used]

  # How often the token of each position is masked here; the limits are the
  # largest counts of _FREQUENCIES.
  counts = np.bincount(ids)[ids]
  groups = np.searchsorted([1, 9, 99, 999], counts)
  parts = [
    _compare(scores, guesses),
    "<h3>By frequency of the masked token in these records</h3>",
    _make_table("times masked", groups, _FREQUENCIES, is_right, losses),
  ]

  if vocab_file:
    tokenizer = vocabulary_table.make_tokenizer(vocab_file)
    later = [
      number
      for token, number in tokenizer.vocab.items()
      if tokenizer.continues_word(token)
    ]
    parts.append("<h3>By part of a word</h3>")
    groups = np.isin(ids, later).astype(int)
    parts.append(_make_table("masked token", groups, _PARTS, is_right, losses))

  if "next_sentence_labels" not in results:
    return "\n".join(parts)
  # There are two answers: one that is not right is the other.
  labels = results["next_sentence_labels"]
  chosen = np.where(results["next_sentence_correct"] > 0, labels, 1 - labels)
  report = metrics.classification_report(labels, chosen, 2)
  names = ("next sentence", "random sentence")
  parts.append(plots.confusions(report.confusion, names))
  return "\n".join(parts)


def _compare(scores, guesses) -> str:
  """Makes a table of scores, and of the scores of answers without a model."""
  rows = []
  for name, value in scores.items():
    guess, score = guesses.get(name, ("", None))
    baseline = "" if score is None else f"{charts.number(score)}: {guess}"
    rows.append((name, value, baseline))
  return plots.table(("score", "value", "without reading the text"), rows)


def _make_table(title, groups, names, is_right, losses) -> str:
  """Averages predictions, [M], by group; `names` has the name of each."""
  rows = []
  for group, count, accuracy, loss in metrics.average_groups(
    groups, is_right, losses
  ):
    shaded = plots.Shaded(accuracy, accuracy)
    rows.append([names[group], count, shaded, loss])
  return plots.table((title, "masked tokens", "accuracy", "loss"), rows)
