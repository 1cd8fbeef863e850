"""The heads that tasks put on BERT, and the models they make with it.

Heads are named like the variables of Google's checkpoints, as the layers of
modeling.py are. Shapes:
  B batch, S sequence, H hidden, P masked positions per sequence, V vocabulary,
  L labels.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

import modeling


class MaskedLmTransform(keras.layers.Layer):
  """Dense, activation and layer normalisation before the output: [B*P, H]."""

  def __init__(self, config: modeling.BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.dense = modeling.make_dense(self, config.hidden_size, "dense")
    self.layer_norm = modeling.LayerNorm(
      name="LayerNorm", dtype=self.dtype_policy
    )

  def build(self, input_shape=None):
    self.dense.build([None, self.config.hidden_size])
    self.layer_norm.build([None, self.config.hidden_size])

  def call(self, rows):
    activation = modeling.ACTIVATIONS[self.config.hidden_act]
    return self.layer_norm(activation(self.dense(rows)))


class MaskedLmHead(keras.layers.Layer):
  """Scores every word of the vocabulary at the masked positions only.

  The output matrix is the word embedding table (section A.2 of the paper).
  Call with sequence_output [B, S, H], positions int [B, P] and embedding_table
  [V, H]; returns logits, float32 [B, P, V].
  """

  def __init__(self, config: modeling.BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.transform = MaskedLmTransform(
      config, name="transform", dtype=self.dtype_policy
    )

  def build(self, input_shape=None):
    self.transform.build()
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[self.config.vocab_size],
      initializer="zeros",
      autocast=False,
    )

  def call(self, sequence_output, positions, embedding_table):
    batch, predictions = tf.shape(positions)[0], tf.shape(positions)[1]
    masked = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
    rows = tf.reshape(masked, [-1, self.config.hidden_size])  # [B*P, H]
    table = tf.cast(embedding_table, self.compute_dtype)
    logits = tf.matmul(self.transform(rows), table, transpose_b=True)
    logits = tf.cast(logits, tf.float32) + self.output_bias
    shape = [batch, predictions, self.config.vocab_size]
    return tf.reshape(logits, shape)  # [B, P, V]


class NextSentenceHead(keras.layers.Layer):
  """Scores whether b follows a (0) or is a random sentence (1).

  Call with pooled_output [B, H]; returns logits, float32 [B, 2].
  """

  def __init__(self, config: modeling.BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config

  def build(self, input_shape=None):
    self.output_weights = self.add_weight(
      name="output_weights",
      shape=[2, self.config.hidden_size],
      initializer=modeling.make_initializer(self.config),
    )
    self.output_bias = self.add_weight(
      name="output_bias", shape=[2], initializer="zeros", autocast=False
    )

  def call(self, pooled_output):
    weights = tf.convert_to_tensor(self.output_weights)
    logits = tf.matmul(pooled_output, weights, transpose_b=True)
    return tf.cast(logits, tf.float32) + self.output_bias


class PretrainingHeads(keras.layers.Layer):
  """The masked-LM and next-sentence heads, under one name (`cls`)."""

  def __init__(self, config: modeling.BertConfig, **kwargs):
    super().__init__(**kwargs)
    policy = self.dtype_policy
    self.predictions = MaskedLmHead(config, name="predictions", dtype=policy)
    self.seq_relationship = NextSentenceHead(
      config, name="seq_relationship", dtype=policy
    )
    self.build()

  def build(self, input_shape=None):
    self.predictions.build()
    self.seq_relationship.build()


class PretrainingOutput(NamedTuple):
  """What `PretrainingModel` returns, float32."""

  masked_lm_logits: tf.Tensor  # [B, P, V]
  next_sentence_logits: tf.Tensor  # [B, 2]


class PretrainingModel(keras.Model):
  """BERT with the two heads it is pre-trained with (section 3.1).

  Call with the tensors `BertModel` takes and masked_lm_positions, int [B, P];
  returns a `PretrainingOutput`.
  """

  def __init__(self, config: modeling.BertConfig, dtype: str = "float32"):
    super().__init__(dtype=dtype, name="pretraining")
    self.bert = modeling.BertModel(config, dtype=dtype)
    self.heads = PretrainingHeads(config, dtype=dtype, name="cls")

  def call(
    self, input_ids, input_mask, segment_ids, masked_lm_positions, seed=None
  ):
    bert = self.bert(input_ids, input_mask, segment_ids, seed)
    return PretrainingOutput(
      self.heads.predictions(
        bert.sequence_output,
        masked_lm_positions,
        self.bert.embedding_table.value,
      ),
      self.heads.seq_relationship(bert.pooled_output),
    )


class ClassifierModel(keras.Model):
  """BERT with one dense layer on the pooled first token (section 4.1).

  Call with the tensors `modeling.BertModel` takes; returns logits, float32
  [B, L].

  Args:
    config: the architecture.
    num_labels: L; 1 for regression.
    dtype: see `modeling.BertModel`.
    dropout_rate: on the pooled output. The original's is 0.1, whatever the
      config says.
  """

  def __init__(
    self,
    config: modeling.BertConfig,
    num_labels: int,
    dtype: str = "float32",
    dropout_rate: float = 0.1,
  ):
    super().__init__(dtype=dtype, name="classifier")
    self.dropout_rate = dropout_rate
    self.bert = modeling.BertModel(config, dtype=dtype)
    # Not in a layer: in Google's checkpoints these two have no prefix. Their
    # deviation of 0.02 is not the config's initializer_range either.
    self.output_weights = keras.Variable(
      keras.initializers.TruncatedNormal(stddev=0.02),
      shape=[num_labels, config.hidden_size],
      name="output_weights",
    )
    self.output_bias = keras.Variable(
      "zeros", shape=[num_labels], name="output_bias", autocast=False
    )

  def call(self, input_ids, input_mask, segment_ids, seed=None):
    bert_seed = modeling.fold_in(seed, 0)
    bert = self.bert(input_ids, input_mask, segment_ids, bert_seed)
    pooled = modeling.dropout(
      bert.pooled_output, self.dropout_rate, modeling.fold_in(seed, 1)
    )
    weights = tf.cast(self.output_weights.value, self.compute_dtype)
    logits = tf.matmul(pooled, weights, transpose_b=True)
    return tf.cast(logits, tf.float32) + self.output_bias.value  # [B, L]
