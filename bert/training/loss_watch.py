"""The labels of pre-training records: the scores of guessing by frequency."""

import collections
from collections.abc import Callable, Mapping, Sequence
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert.inputs import records, training_input

_SAMPLE = 10_000  # Records; the entropy of fewer comes out too low.
STEPS_AFTER_WARMUP = 1000  # At least, before a loss is judged.


def entropy(counts: collections.Counter) -> float:
  """Returns the loss of predicting labels by their frequencies, in nats.

  >>> entropy(collections.Counter({7: 2, 8: 1, 9: 1})) / math.log(2)
  1.5
  """
  shares = [count / counts.total() for count in counts.values()]
  return -sum(share * math.log(share) for share in shares)


class Labels(NamedTuple):
  """The right answers of records, counted."""

  number: int  # How many records.
  words: collections.Counter[int]  # By the id of the masked token.
  classes: collections.Counter[int]  # 1: the next sentence is a random one.


def count(rows: Mapping[str, np.ndarray]) -> Labels:
  """Counts the labels of features, or of what an evaluation returns."""
  # Unused places of a record have the weight 0. Records that were made with
  # --next_sentence=false have no classes.
  used = rows["masked_lm_weights"] > 0
  classes = rows.get("next_sentence_labels", np.zeros(0, int))
  return Labels(
    len(used),
    collections.Counter(rows["masked_lm_ids"][used].tolist()),
    collections.Counter(classes.ravel().tolist()),
  )


def sample(
  paths: Sequence[str],
  parse: Callable[[tf.Tensor], training_input.Features],
  most: int = _SAMPLE,
) -> Labels:
  """Counts the labels of about `most` records, of the heads of the files.

  Args:
    paths: of files of records.
    parse: makes features of serialized records, as `records.parse_batch`.
    most: about how many records to read.
  """
  # Batches of 256 only bound the memory.
  number = 0
  words = collections.Counter()
  classes = collections.Counter()
  for _, serialized in records.sample_dataset(paths, most).batch(256):
    features = parse(serialized)
    batch = count({name: value.numpy() for name, value in features.items()})
    number += batch.number
    words += batch.words
    classes += batch.classes
  return Labels(number, words, classes)


class Guess(NamedTuple):
  """The score of answers that do not depend on the text."""

  name: str  # How it answers: "the most frequent word".
  score: float


def guess(known: Labels, asked: Labels, vocab_size: int) -> dict[str, Guess]:
  """Scores answers by frequency alone: a model that reads must do better.

  Args:
    known: the labels to train on, whose words give the frequencies. Add-one
      smoothing: no word of the vocabulary has probability 0.
    asked: the labels to answer.
    vocab_size: the number of words that could be asked for.

  Returns:
    Guesses by the name of the score: the loss of the frequencies, in nats; the
    accuracy of the most frequent word; the accuracy of the larger class.
  """
  # Without words in one of the two there is nothing to guess, or to go by.
  guesses = {}
  total = asked.words.total()
  if total and known.words:
    [(best, _)] = known.words.most_common(1)

    # Add-one smoothing: each word counts as if it had occurred once more.
    seen = known.words.total() + vocab_size
    # The cross entropy of a word is minus the logarithm of its probability.
    losses = (
      count * math.log(seen / (known.words[word] + 1))
      for word, count in asked.words.items()
    )

    guesses["masked_lm_loss"] = Guess("word frequencies", sum(losses) / total)
    share = asked.words[best] / total
    guesses["masked_lm_accuracy"] = Guess("the most frequent word", share)

  # This guess knows the answers: it is the class that most of them have.
  if asked.classes:
    share = max(asked.classes.values()) / asked.classes.total()
    guesses["next_sentence_accuracy"] = Guess("the larger class", share)
  return guesses


class LossWatch:
  """Warns once of a loss that is no better than guessing by frequency.

  It judges after twice the warm-up, and at least 1,000 steps after it.
  """

  def __init__(self, counts: collections.Counter, num_warmup_steps: int):
    # While the learning rate is low, a high loss says nothing.
    self._entropy = entropy(counts)
    after = max(num_warmup_steps, STEPS_AFTER_WARMUP)
    self._first = num_warmup_steps + after
    self._has_judged = False

  def __call__(self, step: int, count: int, means: Mapping[str, float]) -> str:
    """Judges the means of the `count` steps up to `step`; "" is no warning."""
    if self._has_judged or step - count < self._first:
      return ""

    # The first means of steps after `_first` decide. A second warning would say
    # nothing new.
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


def sample_training(
  source: training_input.TrainingInput, paths: Sequence[str]
) -> Labels:
  """Samples the records to train on; prints what guessing gives.

  Args:
    source: parses the records.
    paths: their files.

  Returns:
    The labels.

  Raises:
    ValueError: names a broken record.
  """
  with training_input.naming_bad_record(source.find_fault):
    labels = sample(paths, source.parse)

  # A file may hold no masked word; the share is then 0.
  words = labels.words
  most = max(words.values(), default=0) / max(1, words.total())
  print(
    f"labels of {labels.number:,} records: unigram entropy "
    f"{entropy(words):.4g} nats, the most frequent {most:.1%}"
  )
  return labels
