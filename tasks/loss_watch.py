"""The labels of pre-training records: the loss of guessing by frequency."""

import collections
from collections.abc import Mapping, Sequence
import math
from typing import Any

from inputs import records, training_input

_SAMPLE = 10_000  # Records; the entropy of fewer comes out too low.
STEPS_AFTER_WARMUP = 1000  # At least, before a loss is judged.


def entropy(counts: collections.Counter) -> float:
  """Returns the loss of predicting labels by their frequencies, in nats.

  >>> entropy(collections.Counter({7: 2, 8: 1, 9: 1})) / math.log(2)
  1.5
  """
  shares = [count / counts.total() for count in counts.values()]
  return -sum(share * math.log(share) for share in shares)


def sample(
  paths: Sequence[str], parse, most: int = _SAMPLE
) -> tuple[int, collections.Counter[int]]:
  """Counts about `most` records, of the heads of the files, and their labels.

  `parse` makes features of serialized records, as `records.parse_batch`. The
  labels are counted by their ids.
  """
  number, counts = 0, collections.Counter()
  for _, serialized in records.sample_dataset(paths, most).batch(256):
    features = parse(serialized)
    used = features["masked_lm_weights"].numpy() > 0
    counts.update(features["masked_lm_ids"].numpy()[used].tolist())
    number += len(used)
  return number, counts


class LossWatch:
  """Warns once of a loss that is no better than guessing by frequency.

  It judges after twice the warm-up, and at least 1,000 steps after it.
  """

  def __init__(self, counts: collections.Counter, num_warmup_steps: int):
    self._entropy = entropy(counts)
    after = max(num_warmup_steps, STEPS_AFTER_WARMUP)
    self._first = num_warmup_steps + after
    self._has_judged = False

  def __call__(self, step: int, count: int, means: Mapping[str, float]) -> str:
    """Judges the means of the `count` steps up to `step`; "" is no warning."""
    if self._has_judged or step - count < self._first:
      return ""
    self._has_judged = True
    loss = means["masked_lm_loss"]
    if loss < self._entropy:
      return ""
    return (
      f"the masked-LM loss, {loss:.4g} at step {step}, is not below the "
      f"labels' unigram entropy of {self._entropy:.4g} nats: guessing by word "
      "frequency is as good. Likely causes: a --learning_rate that is too low, "
      "or so high that training diverged; too small a --train_batch_size; "
      "an initializer_range too small for a narrow model; records of shuffled "
      "or repeated text"
    )


def watch(data: Any, settings: Any) -> LossWatch | None:
  """Prints the loss of guessing by frequency; returns its comparison.

  Takes the `PretrainingData` and settings of run_pretraining.py. None with a
  learning rate of 0. A ValueError names a broken record.
  """
  with training_input.naming_bad_record(data.source.find_fault):
    number, counts = sample(data.train_files, data.source.parse)
  most = max(counts.values(), default=0) / max(1, counts.total())
  print(
    f"labels of {number:,} records: unigram entropy "
    f"{entropy(counts):.4g} nats, the most frequent {most:.1%}"
  )
  if settings.learning_rate:
    return LossWatch(counts, settings.num_warmup_steps)
  print("warning: --learning_rate=0 changes no weight")
  return None
