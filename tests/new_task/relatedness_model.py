"""The model of relatedness.py, and its examples as feature files.

Shapes: B batch, S sequence, H hidden.
"""

from collections.abc import Iterator
import functools

import tensorflow as tf

from bert import heads, modeling
from bert.contrib import relatedness
from bert.data import record_writer
from bert.encoders import encoder_table
from bert.inputs import feature_files, feature_sets, held_out


class PairModel(heads.HeadModel):
  """BERT with a dense layer on two of its tokens: a number, float32 [B, 1].

  Call with the tensors that `modeling.BertModel` takes and the positions of the
  two tokens, int32 [B, 2].
  """

  input_names = (*heads.HeadModel.input_names, "positions")
  uses_pooler = False

  def __init__(self, config: modeling.EncoderConfig, dtype: str | None = None):
    super().__init__(dtype=dtype, name="pair")
    self.bert = encoder_table.make_encoder(config, dtype)
    self.bert.pooler.trainable = False  # Unused, so it must not decay.
    size = 2 * config.hidden_size
    self.output_weights, self.output_bias = heads.make_output(1, size)

  def call(
    self,
    input_ids,
    input_mask,
    segment_ids,
    positions,
    seed=None,
    training=False,
  ):
    # The encoder and the head draw different dropout masks from one seed.
    seed = modeling.choose_seed(seed, training)
    bert_seed = modeling.fold_in(seed, 0)
    states = self.bert(input_ids, input_mask, segment_ids, bert_seed)

    # The vectors of the two words, one after the other.
    pair = tf.gather(states.sequence_output, positions, batch_dims=1)
    pair = tf.reshape(pair, [-1, self.output_weights.shape[1]])  # [B, 2 H]
    pair = modeling.dropout(pair, 0.1, modeling.fold_in(seed, 1))

    # Outputs are computed in float32, also if the encoder computes in bfloat16.
    scores = tf.matmul(
      tf.cast(pair, tf.float32), self.output_weights.value, transpose_b=True
    )
    return scores + self.output_bias.value  # [B, 1]


find_set = functools.partial(feature_sets.find_set, relatedness.read_examples)
# Holds out examples; a sentence is in one part only.
split = functools.partial(
  held_out.split, describe=lambda example: (["all"], example.words)
)


def make_features(data: feature_sets.FeatureSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder."""
  # A later run with the same data and settings reads the file of this one.
  facts = {"labelled": 0}
  rows = _make_rows(data, facts)
  features = data.open_or_make(folder, rows, facts)

  # How a row is read again: the usual inputs, and two more features.
  data.layout = feature_sets.Layout(
    (data.settings.max_seq_length,),
    other_features={
      "positions": tf.io.FixedLenFeature([2], tf.int64),
      "score": tf.io.FixedLenFeature([1], tf.float32),
    },
  )
  features.print_summary(f"{data.kind}: {len(features):,} pairs")

  # Only the examples to predict may lack their score.
  unknown = len(features) - features.facts["labelled"]
  if unknown and data.kind != "predict":
    raise ValueError(f"{data.paths[0]}: {unknown:,} pairs without a score")


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  tokenizer, size = data.make_tokenizer(), data.settings.max_seq_length
  for index, example in enumerate(data.select(data.read())):
    try:
      row = relatedness.encode(example.words, example.pair, tokenizer, size)
    except ValueError as error:
      raise ValueError(f"{example.location}: {error}") from None

    # The row of an example is a protocol buffer, as in the original's files.
    facts["labelled"] += example.score is not None
    serialized = record_writer.encode_inputs(
      [row.input_ids],
      [row.segment_ids],
      size,
      positions=record_writer.int64_feature(row.positions),
      score=record_writer.float_feature([example.score or 0.0]),
    )
    yield feature_files.Row(serialized, len(row.input_ids), index)
