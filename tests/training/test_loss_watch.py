"""The unigram entropy of masked labels, and who warns of a loss above it."""

import collections
import functools
import math

import pytest

from bert.inputs import records
from bert.training import loss_watch
import tiny


def test_the_entropy_of_known_histograms():
  def entropy(**counts):
    return loss_watch.entropy(collections.Counter(counts))

  assert entropy(a=7) == entropy() == 0
  assert entropy(a=2, b=2, c=2, d=2) == pytest.approx(math.log(4))
  # -(.5 ln .5 + .25 ln .25 + .25 ln .25)
  assert entropy(a=4, b=2, c=2) == pytest.approx(1.0397, abs=1e-4)


def test_a_sample_counts_labels_without_padding(tmp_path):
  """Of files that are read in part; their third records would add label 9."""
  values = tiny.make_values(0)
  paths = [
    tiny.write_values(
      tmp_path / name,
      *(
        {
          **values,
          "masked_lm_ids": [label, 8, 0, 0],
          "masked_lm_weights": [1.0, 1.0, 0.0, 0.0],
        }
        for label in (7, 8, 9)
      ),
    )
    for name in "ab"
  ]
  spec = records.pretraining_spec(tiny.SEQUENCE, tiny.PREDICTIONS)
  parse = functools.partial(records.parse_batch, spec=spec, limits={})
  next_sentence = values["next_sentence_labels"][0]
  assert loss_watch.sample(paths, parse, most=4) == (
    4,
    {7: 2, 8: 6},
    {next_sentence: 4},
  )
  assert loss_watch.sample(paths, parse).number == 6


def test_guesses_by_frequency():
  """In training, 8 is masked three times, 7 once, of a vocabulary of 5."""
  counter = collections.Counter
  known = loss_watch.Labels(2, counter({8: 3, 7: 1}), counter([0, 1]))
  asked = loss_watch.Labels(
    4, counter({8: 1, 7: 1, 6: 2}), counter([1, 1, 1, 0])
  )
  guesses = loss_watch.guess(known, asked, vocab_size=5)
  # With one added to each: 4/9, 2/9 and 1/9.
  loss = (math.log(9 / 4) + math.log(9 / 2) + 2 * math.log(9)) / 4
  assert guesses == {
    "masked_lm_loss": ("word frequencies", pytest.approx(loss)),
    "masked_lm_accuracy": ("the most frequent word", 1 / 4),
    "next_sentence_accuracy": ("the larger class", 3 / 4),
  }
  nothing = loss_watch.Labels(0, counter(), counter())
  assert loss_watch.guess(nothing, nothing, 5) == {}


def judge(*calls, warmup=500):
  """Returns the warnings after calls of (step, steps in the mean, loss)."""
  watch = loss_watch.LossWatch(collections.Counter("ab"), warmup)
  found = [watch(step, n, {"masked_lm_loss": loss}) for step, n, loss in calls]
  return [warning[:38] for warning in found if warning]


def test_a_loss_is_judged_once_and_well_after_warmup():
  """ln 2 is 0.6931."""
  late = "the masked-LM loss, 0.7 at step 1502, "
  assert judge((1502, 2, 0.7), (1503, 1, 0.8)) == [late]
  assert judge((1501, 2, 0.7)) == []  # Part of it is too early.
  assert judge((1501, 2, 0.7), (1502, 1, 0.7)) == [late]
  assert judge((1502, 2, 0.69), (1503, 1, 0.8)) == []
  assert judge((1502, 2, 0.7), warmup=1000) == []  # Twice the warm-up.
