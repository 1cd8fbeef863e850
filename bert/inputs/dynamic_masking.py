"""Masks drawn while records are read, anew each time a record is read.

They are a function of the seed, the record's bytes, and its number in the
series that training reads: the same after a kill, on any number of devices.
Records without a number, as evaluations read them, always get the same masks.
"""

from collections.abc import Sequence
import functools

import numpy as np
import tensorflow as tf

from bert.data import files, pretraining_data
from bert.inputs import records, training_input


def add_masks(
  source: training_input.TrainingInput,
  paths: Sequence[str],
  settings: pretraining_data.MaskSettings,
  seed: int,
  vocabulary: pretraining_data.Vocabulary,
) -> training_input.TrainingInput:
  """Masks a source's records; a ValueError if another vocabulary made them.

  Args:
    source: reads records without masks.
    paths: the files of records.
    settings: how many tokens to mask.
    seed: of the masks.
    vocabulary: encodes an id as itself.
  """
  # Records hold no name of their vocabulary; its special tokens tell.
  for path in paths:
    first = tf.constant([next(records.read_records(path))])
    ids = source.parse(first)["input_ids"][0].numpy()
    if ids[0] != vocabulary.cls or vocabulary.sep not in ids:
      raise ValueError(
        f"{path}: record 0 lacks [CLS] or [SEP] of --vocab_file="
        f"{vocabulary.file}: it was made with another vocabulary"
      )

  def add_number(number, row):
    # The number of a record in the series enters the seed of its masks, which
    # is made of all its bytes. Parsers skip these 20 digits: a tf.train.Example
    # has no field 2.
    digits = tf.strings.as_string(number, width=20, fill="0")
    return row[0], row[1] + b"\x12\x14" + digits

  # Workers compare the identity of their data, to which the masks belong.
  kind = "words" if settings.do_whole_word_mask else "tokens"
  return source._replace(
    rows=lambda skip: source.rows(skip).enumerate(skip).map(add_number),
    parse=functools.partial(_parse, source, settings, seed, vocabulary),
    identity=f"{source.identity}, {settings.masked_lm_prob:g} of {kind} masked "
    f"by vocabulary {files.hash_file(vocabulary.file)[:12]}",
  )


def _parse(source, settings, seed, vocabulary, rows) -> training_input.Features:
  """Parses records without masks, a string [B], to features with masks."""
  most = settings.max_predictions_per_seq

  # The masks are drawn by the same Python function as in records with masks,
  # `pretraining_data.mask_tokens`, and not by operations of TensorFlow.
  def mask(rows, ids, lengths):
    """Returns the masked ids, and the positions, labels and weights.

    Args:
      rows: bytes [B], the records, which decide the masks.
      ids: int32 [B, S], without masks.
      lengths: int32 [B], tokens before the padding.
    """
    ids = ids.copy()
    # Unused places keep position 0 and weight 0, as in records with masks.
    drawn = np.zeros([3, len(rows), most], np.int32)
    for row, length in enumerate(lengths):
      tokens = ids[row, :length].tolist()
      rng = pretraining_data.Generator(b"%d, %b" % (seed, rows[row]))

      # Through the first [SEP]. Only the tokens before the padding are masked.
      length_a = tokens.index(vocabulary.sep) + 1
      ids[row, :length], positions = pretraining_data.mask_tokens(
        tokens, length_a, vocabulary, settings, rng
      )

      count = len(positions)
      drawn[0, row, :count] = positions
      drawn[1, row, :count] = [tokens[i] for i in positions]
      drawn[2, row, :count] = 1
    return ids, drawn

  # The input mask has a 1 for each token before the padding.
  features = source.parse(rows)
  ids = features["input_ids"]
  lengths = tf.reduce_sum(features["input_mask"], 1)

  # The results of a Python function have no shape, so it is stated again.
  masked, drawn = tf.numpy_function(mask, [rows, ids, lengths], [tf.int32] * 2)
  drawn = tf.ensure_shape(drawn, [3, rows.shape[0], most])
  return {
    **features,
    "input_ids": tf.ensure_shape(masked, ids.shape),
    "masked_lm_positions": drawn[0],
    "masked_lm_ids": drawn[1],
    "masked_lm_weights": tf.cast(drawn[2], tf.float32),
  }
