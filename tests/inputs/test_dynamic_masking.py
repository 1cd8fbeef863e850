"""Masks drawn while reading: how many, of what, and that they come again."""

import math
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.data import pretraining_data
from bert.inputs import dynamic_masking, records, training_input
import tiny

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h ##i ##j".split()
CLS, SEP, MASK = 2, 3, 4
LENGTH, MOST = 32, 5
LABELS = "masked_lm_positions", "masked_lm_ids", "masked_lm_weights"


def make_values(number, pieces=range(5, 15)):
  """Returns a record without masks: [CLS] a [SEP] b [SEP], some padding."""
  source = np.random.default_rng(number)
  size = int(source.integers(8, LENGTH + 1))
  ids = source.choice(pieces, size).tolist()
  ids[0], ids[size // 2], ids[-1] = CLS, SEP, SEP
  padding = [0] * (LENGTH - size)
  segments = [int(place > size // 2) for place in range(size)]
  return {
    "input_ids": ids + padding,
    "input_mask": [1] * size + padding,
    "segment_ids": segments + padding,
    "next_sentence_labels": [number % 2],
  }


class Case:
  """A file of records without masks, and how to read it."""

  def __init__(self, folder, examples, **changes):
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    self.path = tiny.write_values(folder / "records", *examples)
    settings = {
      "max_seq_length": LENGTH,
      "max_predictions_per_seq": MOST,
      "masked_lm_prob": 0.15,
      "do_whole_word_mask": False,
      "seed": 7,
    }
    self.settings = types.SimpleNamespace(**settings | changes)
    self.vocab_file = str(folder / "vocab.txt")
    self.vocab = {word: number for number, word in enumerate(WORDS)}

  def open(self):
    tokenizer = types.SimpleNamespace(
      encode=str.split,
      vocab=self.vocab,
      continues_word=lambda token: token.startswith("##"),
    )
    vocabulary = pretraining_data.make_vocabulary(
      tokenizer, self.vocab_file, int
    )
    spec = records.pretraining_spec(LENGTH, MOST)
    spec = {n: kind for n, kind in spec.items() if "masked" not in n}
    source = training_input.TrainingInput(
      rows=lambda skip: records.training_dataset([self.path], 1, skip),
      parse=lambda rows: records.parse_batch(rows, spec, {}),
      describe_row=str,
      find_fault=lambda: None,
    )
    return dynamic_masking.add_masks(
      source, [self.path], self.settings, self.settings.seed, vocabulary
    )

  def read(self, count, batch=16, skip=0):
    """Returns features of rows of the endless series, [count, ...]."""
    source = self.open()
    rows = source.rows(skip).map(lambda row_id, row: row).take(count)
    batches = list(rows.batch(batch).map(source.parse))
    return {n: np.concatenate([b[n] for b in batches]) for n in batches[0]}

  def read_without_numbers(self):
    source = self.open()
    rows = records.sequential_dataset([self.path]).map(lambda place, row: row)
    (batch,) = rows.batch(1000).map(source.parse)
    return {name: value.numpy() for name, value in batch.items()}


def unmask(found):
  """Returns the ids as they were, and which were drawn, [rows, LENGTH]."""
  ids = found["input_ids"].copy()
  drawn = np.zeros(ids.shape, bool)
  for row, (places, labels, weights) in enumerate(
    zip(*(found[name] for name in LABELS), strict=True)
  ):
    used = weights > 0
    assert (np.diff(places[used]) > 0).all()
    assert not places[~used].any() and not labels[~used].any()
    ids[row, places[used]] = labels[used]
    drawn[row, places[used]] = True
  return ids, drawn


def test_shares_and_counts(tmp_path):
  case = Case(tmp_path, map(make_values, range(400)))
  found = case.read(4000, batch=100)
  ids, drawn = unmask(found)
  lengths = found["input_mask"].sum(1)
  wanted = [min(MOST, max(1, round(n * 0.15))) for n in lengths.tolist()]
  assert drawn.sum(1).tolist() == wanted
  assert set(wanted) == {1, 2, 3, 4, 5}
  assert not np.isin(ids[drawn], [0, CLS, SEP]).any()
  assert (found["input_ids"] == ids)[~drawn].all()
  total, after = drawn.sum(), found["input_ids"][drawn]
  shares = {
    # A random token is [MASK], or the same again, once in 15.
    0.8 + 0.1 / 15: (after == MASK).mean(),
    0.1 + 0.1 / 15: (after == ids[drawn]).mean(),
    0.1 * 13 / 15: ((after != MASK) & (after != ids[drawn])).mean(),
  }
  for share, mean in shares.items():
    assert abs(mean - share) < 3 * math.sqrt(share * (1 - share) / total)
  random = after[(after != MASK) & (after != ids[drawn])]
  assert set(random.tolist()) == {*range(15)} - {MASK}
  # Every piece of a text is drawn as often as another.
  text = (found["input_mask"] > 0) & ~np.isin(ids, [CLS, SEP])
  share = drawn.sum() / text.sum()
  deviation = math.sqrt(share / text[:, 1].sum())
  assert abs(drawn[:, 1][text[:, 1]].mean() - share) < 0.25 * share + deviation


def test_whole_words_are_masked_whole(tmp_path):
  case = Case(
    tmp_path,
    map(make_values, range(200)),
    do_whole_word_mask=True,
    masked_lm_prob=0.3,
    max_predictions_per_seq=9,
  )
  found = case.read(400)
  ids, drawn = unmask(found)
  multiple = 0
  for row, mask in zip(ids.tolist(), drawn.tolist(), strict=True):
    words = []
    for place, piece in enumerate(row):
      if piece in (0, CLS, SEP):
        continue
      if words and WORDS[piece].startswith("##"):
        words[-1].append(mask[place])  # Also of a word behind [SEP].
      else:
        words.append([mask[place]])
    assert all(len(set(word)) == 1 for word in words)
    multiple += sum(all(word) for word in words if len(word) > 1)
  assert multiple > 100


def test_masks_depend_on_seed_and_number_alone(tmp_path):
  examples = list(map(make_values, range(20)))
  case = Case(tmp_path, examples)
  whole = case.read(60)
  for name, value in case.read(60, batch=7).items():
    np.testing.assert_array_equal(value, whole[name])
  for name, value in case.read(37, skip=23).items():  # As after a kill.
    np.testing.assert_array_equal(value, whole[name][23:])
  other = Case(tmp_path, examples, seed=8).read(60)
  assert (other["input_ids"] != whole["input_ids"]).any(1).mean() > 0.8
  # The same record in another epoch has other masks.
  before = unmask(whole)[0]
  first = whole["input_ids"][0]
  (again,) = np.flatnonzero((before[20:40] == before[0]).all(1)) + 20
  assert (whole["input_ids"][again] != first).any()


def test_evaluations_always_have_the_same_masks(tmp_path):
  examples = list(map(make_values, range(20)))
  found = Case(tmp_path, examples).read_without_numbers()
  again = Case(tmp_path, examples[::-1]).read_without_numbers()
  for name, value in found.items():
    np.testing.assert_array_equal(value, again[name][::-1])
  other = Case(tmp_path, examples, seed=8).read_without_numbers()
  assert (other["input_ids"] != found["input_ids"]).any()


def test_batches_have_the_types_of_those_with_masks(tmp_path):
  source = Case(tmp_path, [make_values(1)]).open()
  rows = source.rows(0).map(lambda row_id, row: row).batch(4, True)
  expected = dict.fromkeys(
    ("input_ids", "input_mask", "segment_ids"),
    tf.TensorSpec([4, LENGTH], tf.int32),
  )
  expected |= dict.fromkeys(LABELS[:2], tf.TensorSpec([4, MOST], tf.int32))
  expected[LABELS[2]] = tf.TensorSpec([4, MOST], tf.float32)
  expected["next_sentence_labels"] = tf.TensorSpec([4, 1], tf.int32)
  assert rows.map(source.parse).element_spec == expected


@pytest.mark.parametrize("token", ["[CLS]", "[SEP]"])
def test_records_of_another_vocabulary_are_refused(token, tmp_path):
  case = Case(tmp_path, [make_values(1, range(5, 14))])
  case.vocab[token] = 14
  message = r"records: record 0 lacks \[CLS\] or \[SEP\] of --vocab_file=.*voc"
  with pytest.raises(ValueError, match=message):
    case.open()
