"""The heads that tasks put on BERT, and the models they make with it.

Heads are named like the variables of Google's checkpoints, as the layers of
modeling.py are. Shapes:
  B batch, S sequence, H hidden, P masked positions per sequence, V vocabulary,
  L labels, E width of the word embeddings (in BERT, H), D numbers of a vector.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from bert import modeling
from bert.encoders import compiled, encoder_table


class HeadModel(keras.Model):
  """A model on an encoder, which takes several tensors, each int32 [B, S].

  Programs that train make a model by its constructor. Exports and their servers
  ask the class itself: for `input_names`, `recorded` with `from_training`, and
  `named_outputs`.
  """

  # All inputs, in the order of `call`; a head may add its own after these. An
  # update needs nothing else of this class: the rest is for models that are
  # fine-tuned and exported.
  input_names: tuple[str, ...] = ("input_ids", "input_mask", "segment_ids")
  # The settings of settings.json that `from_training` reads, and their values;
  # see `files.check_values`.
  recorded: Mapping[str, tuple[Any, ...]] = {}
  scores_tokens = False  # Whether there is an output per token and padding.
  pooling = ""  # How `pool` makes the vector of a text; "": BERT's pooler.
  bert: modeling.BertModel

  def __init_subclass__(cls):
    # So that Keras finds the class when it loads a `.keras` file.
    keras.saving.register_keras_serializable("bert")(cls)

  def build(self, input_shape=None):
    """Makes nothing: the variables exist as soon as the model is made."""

  def get_config(self):
    # What the constructor of most heads takes; `from_config` is the reverse.
    config = self.bert.get_config()["config"]
    return {"config": config, "dtype": self.bert.dtype_policy.name}

  @property
  def uses_pooler(self) -> bool:
    """Whether the output depends on BERT's pooler."""
    # An output per token needs no vector of the text, and `pool` makes it of
    # the last layer.
    return not (self.scores_tokens or self.pooling)

  @classmethod
  def from_training(
    cls,
    config: modeling.EncoderConfig,
    num_labels: int,
    settings: Mapping[str, Any],
  ) -> Self:
    """Makes the model of a training again, in float32, without its weights.

    Args:
      config: of the encoder.
      num_labels: L; 0 for a task without labels.
      settings: the content of the training's settings.json.
    """
    # Exports compute in float32, whatever the training did.
    return cls(config, "float32")

  def named_outputs(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Computes the numbers of which an export makes answers, by name."""
    return {"logits": self(*inputs)}

  @classmethod
  def from_config(cls, config):
    # The fields of a config say by `encoder_type` which encoder it is of.
    fields = encoder_table.make_config(config["config"])
    return cls(**config | {"config": fields})

  @property
  def _default_save_signature(self):
    # For tf.saved_model.save: Keras would assume one input, of floats.
    specs = [tf.TensorSpec([None, None], tf.int32, n) for n in self.input_names]
    return tf.function(lambda *tensors: self(*tensors), input_signature=specs)


def forward(
  model: HeadModel, features: dict[str, tf.Tensor], seed: tf.Tensor | None
):
  """Calls a model with its inputs: the `forward` of most tasks.

  Args:
    model: says by `input_names` which features it takes.
    features: tensors [B, ...] by name; more than the inputs, such as labels.
    seed: int32 [2], of the dropout; None: no dropout.
  """
  return model(*(features[name] for name in model.input_names), seed)


# Heads are layers of bert/encoders/compiled.py because of its dense layers and
# norms. XLA compiles no head.
class MaskedLmTransform(compiled.Layer):
  """Dense, activation and layer normalisation: [B*P, H] to [B*P, E]."""

  def __init__(self, config: modeling.EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.dense = self.make_dense("dense", size=config.embedding_width)
    self.layer_norm = self.make_norm(config.embedding_width)

  def call(self, rows):
    activation = modeling.ACTIVATIONS[self.config.hidden_act]
    return self.layer_norm(activation(self.dense(rows)))


class MaskedLmHead(compiled.Layer):
  """Scores every word of the vocabulary at the masked positions only.

  The output matrix is the word embedding table (section A.2 of the paper).
  Call with sequence_output [B, S, H], positions int [B, P] and embedding_table
  [V, E]; returns logits, float32 [B, P, V].
  """

  def __init__(self, config: modeling.EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)

    # BERT has a transform; another encoder may go without.
    self.transform = None
    if config.has_lm_transform:
      self.transform = self.make(MaskedLmTransform, "transform")

  def build(self, input_shape=None):
    super().build()

    # The bias is added in float32, so Keras must not cast it to bfloat16.
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[self.config.vocab_size],
      initializer="zeros",
      dtype="float32",
      autocast=False,
    )

  def call(self, sequence_output, positions, embedding_table):
    # A record with fewer than P masks has position 0 in the unused places, so
    # that [CLS] is scored there. Its weight of 0 keeps it out of the loss.
    masked = tf.gather(sequence_output, positions, batch_dims=1)  # [B, P, H]
    rows = tf.reshape(masked, [-1, self.config.hidden_size])  # [B*P, H]

    rows = self.transform(rows) if self.transform else rows
    logits = _score(rows, embedding_table, self.output_bias)

    # In an export, B and P are unknown until the model runs.
    shape = tf.shape(positions)
    return tf.reshape(logits, [shape[0], shape[1], self.config.vocab_size])


class NextSentenceHead(compiled.Layer):
  """Scores whether b follows a (0) or is a random sentence (1).

  Call with pooled_output [B, H]; returns logits, float32 [B, 2].
  """

  def build(self, input_shape=None):
    # Not a dense layer: Google's names have no layer's name here, and the
    # weights are [2, H], not [H, 2].
    self.output_weights = self.add_weight(
      name="output_weights",
      shape=[2, self.config.hidden_size],
      initializer=modeling.make_initializer(self.config),
    )
    self.output_bias = self.add_weight(
      name="output_bias",
      shape=[2],
      initializer="zeros",
      dtype="float32",
      autocast=False,
    )

  def call(self, pooled_output):
    return _score(pooled_output, self.output_weights.value, self.output_bias)


class PretrainingHeads(compiled.Layer):
  """The masked-LM and next-sentence heads, under one name (`cls`)."""

  def __init__(self, config: modeling.EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.predictions = self.make(MaskedLmHead, "predictions")
    self.seq_relationship = self.make(NextSentenceHead, "seq_relationship")

    # As BERT's, the variables of the heads exist as soon as they are made.
    self.build()


class PretrainingOutput(NamedTuple):
  """The results of `PretrainingModel`, float32."""

  masked_lm_logits: tf.Tensor  # [B, P, V]
  next_sentence_logits: tf.Tensor  # [B, 2]


class PretrainingModel(HeadModel):
  """BERT with the two pre-training heads (section 3.1).

  Call with the tensors `BertModel` takes and masked_lm_positions, int [B, P];
  returns a `PretrainingOutput`.
  """

  input_names = (*HeadModel.input_names, "masked_lm_positions")

  def __init__(self, config: modeling.EncoderConfig, dtype: str | None = None):
    super().__init__(dtype=dtype, name="pretraining")
    # For a BertConfig this is the fast BERT of bert/encoders/compiled.py.
    self.bert = encoder_table.make_encoder(config, dtype)
    self.heads = PretrainingHeads(config, dtype=dtype, name="cls")

  def call(
    self,
    input_ids,
    input_mask,
    segment_ids,
    masked_lm_positions,
    seed=None,
    training=False,
  ):
    # These heads have no dropout, so that the encoder takes the seed as it is.
    seed = modeling.choose_seed(seed, training)
    encoded = self.bert(input_ids, input_mask, segment_ids, seed)
    return self.guess(encoded, masked_lm_positions)

  def freeze_next_sentence(self) -> None:
    """Excludes the next-sentence head, and the pooler before it, from training.

    No loss depends on them, so they would only shrink by weight decay.
    """
    self.bert.pooler.trainable = False
    self.heads.seq_relationship.trainable = False

  def guess(
    self, encoded: modeling.BertOutput, masked_lm_positions: tf.Tensor
  ) -> PretrainingOutput:
    """Applies the heads to the encoder's output.

    It is a method so that a teacher's loss, which needs more of the encoder
    than `call` returns, can run the encoder itself.
    """
    return PretrainingOutput(
      self.heads.predictions(
        encoded.sequence_output,
        masked_lm_positions,
        self.bert.embeddings.word_embeddings.value,
      ),
      self.heads.seq_relationship(encoded.pooled_output),
    )


class ClassifierModel(HeadModel):
  """BERT with one dense layer on the pooled first token (section 4.1).

  Call with the tensors `modeling.BertModel` takes; returns logits, float32
  [B, L], or without labels the vectors of texts, float32 [B, H].

  Args:
    config: of the encoder.
    num_labels: L; 1 for regression; 0: the output is the vector itself.
    dtype: see `modeling.BertModel`.
    dropout_rate: on the pooled output. The original ignores the config and
      uses 0.1.
    pooling: the vector of a text is made by `pool`; "": by BERT's pooler.
  """

  recorded = {"pooling": ("cls", "mean", "max", None)}

  def __init__(
    self,
    config: modeling.EncoderConfig,
    num_labels: int,
    dtype: str | None = None,
    dropout_rate: float = 0.1,
    pooling: str = "",
  ):
    super().__init__(dtype=dtype, name="classifier")
    self.dropout_rate = dropout_rate
    self.pooling = pooling
    self.num_labels = num_labels
    self.bert = encoder_table.make_encoder(config, dtype)

    # Weight decay would shrink an unused pooler.
    self.bert.pooler.trainable = self.uses_pooler

    # Without labels, as for sentence vectors, the model ends with the vector.
    if num_labels:
      outputs = make_output(num_labels, config.hidden_size)
      self.output_weights, self.output_bias = outputs

  def get_config(self):
    names = ("num_labels", "dropout_rate", "pooling")
    return super().get_config() | {n: getattr(self, n) for n in names}

  @classmethod
  def from_training(cls, config, num_labels, settings):
    # A regression has no labels, but one output.
    pooling = settings.get("pooling", "")
    return cls(config, max(1, num_labels), "float32", pooling=pooling)

  def encode(self, input_ids, input_mask, segment_ids, seed=None) -> tf.Tensor:
    """Computes the input of the dense layer.

    Args:
      input_ids: int32 [B, S], as `input_mask` and `segment_ids`.
      input_mask: 1 for tokens, 0 for padding.
      segment_ids: 0 or 1, for the first and the second text.
      seed: int32 [2], of the dropout; None: no dropout.

    Returns:
      [B, H]; for a tagger, whose outputs are of tokens, [B, S, H].
    """
    encoded = self.bert(input_ids, input_mask, segment_ids, seed)

    # In float32: bfloat16 would round a mean over many tokens.
    if self.pooling:
      states = tf.cast(encoded.sequence_output, tf.float32)
      return pool(states, input_mask, self.pooling)
    if self.uses_pooler:
      return encoded.pooled_output
    return encoded.sequence_output

  def call(self, input_ids, input_mask, segment_ids, seed=None, training=False):
    # The encoder and the dropout after it draw from different seeds.
    seed = modeling.choose_seed(seed, training)
    output = self.encode(
      input_ids, input_mask, segment_ids, modeling.fold_in(seed, 0)
    )
    if not self.num_labels:
      return output

    dropout_seed = modeling.fold_in(seed, 1)
    output = modeling.dropout(output, self.dropout_rate, dropout_seed)
    return self._score(output)

  def _score(self, pooled):
    return _score(pooled, self.output_weights.value, self.output_bias)  # [B, L]


class TaggerModel(ClassifierModel):
  """A `ClassifierModel` of tokens (section 5.3): logits, float32 [B, S, L]."""

  scores_tokens = True

  def _score(self, hidden):
    return score_tokens(hidden, self.output_weights, self.output_bias)


def make_output(
  num_labels: int, size: int
) -> tuple[keras.Variable, keras.Variable]:
  """Makes the weights [L, size] and the bias [L] of a dense layer.

  They are not in a layer, because in Google's checkpoints their names have no
  layer's name in front.
  """
  # The original has this deviation here, whatever the initializer_range is.
  # Outside of a layer, Keras would take the floatx of a user's keras.json.
  weights = keras.Variable(
    keras.initializers.TruncatedNormal(stddev=0.02),
    shape=[num_labels, size],
    dtype="float32",
    name="output_weights",
  )
  # The bias is added to float32, so Keras must not cast it to bfloat16; see
  # `modeling.Embeddings.add_table`.
  bias = keras.Variable(
    "zeros",
    shape=[num_labels],
    dtype="float32",
    name="output_bias",
    autocast=False,
  )
  return weights, bias


def score_tokens(
  hidden: tf.Tensor, weights: keras.Variable, bias: keras.Variable
) -> tf.Tensor:
  """Applies a dense layer to every token, in float32.

  Args:
    hidden: [B, S, size], of any floating type.
    weights: [L, size].
    bias: [L].

  Returns:
    Logits, float32 [B, S, L].
  """
  # As in `compiled.Dense`, all tokens are rows of one plain product.
  shape = tf.shape(hidden)
  rows = tf.reshape(tf.cast(hidden, tf.float32), [-1, hidden.shape[-1]])
  logits = _score(rows, weights.value, bias)  # [B*S, L]
  return tf.reshape(logits, [shape[0], shape[1], bias.shape[0]])


def token_losses(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Computes the cross entropies of tokens, in nats, float32 [B, S].

  Args:
    labels: int32 [B, S].
    logits: float32 [B, S, L].
  """
  # TensorFlow compares the shapes of tensors [B, S, ...] while it runs, which
  # needs the logits even where only the weights of the loss are wanted: in
  # `step.make_sum_weights` it took another forward pass. For the rows of one
  # matrix it compares nothing.
  rows = tf.reshape(logits, [-1, logits.shape[-1]])
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
    tf.reshape(labels, [-1]), rows
  )
  return tf.reshape(losses, tf.shape(labels))


def _score(states, weights, bias):
  """Multiplies [..., size] by weights [L, size]; returns float32 [..., L]."""
  # The product is in the type of the states; the losses need float32.
  weights = tf.cast(weights, states.dtype)
  logits = tf.matmul(states, weights, transpose_b=True)
  return tf.cast(logits, tf.float32) + bias.value


class SpanOutput(NamedTuple):
  """The results of `SpanModel`, float32 [B, S]."""

  start_logits: tf.Tensor
  end_logits: tf.Tensor


class SpanModel(HeadModel):
  """BERT with one dense layer that scores each token as a span's start and end.

  This is section 4.2 of the paper. Call with the tensors `modeling.BertModel`
  takes; returns a `SpanOutput`.
  """

  scores_tokens = True

  def __init__(self, config: modeling.EncoderConfig, dtype: str | None = None):
    super().__init__(dtype=dtype, name="span")
    self.bert = encoder_table.make_encoder(config, dtype)
    # Weight decay would shrink the pooler, which is unused.
    self.bert.pooler.trainable = False
    # Their names in Google's checkpoints.
    with keras.name_scope("cls"), keras.name_scope("squad"):
      self.output_weights, self.output_bias = make_output(2, config.hidden_size)

  def call(self, input_ids, input_mask, segment_ids, seed=None, training=False):
    seed = modeling.choose_seed(seed, training)
    encoded = self.bert(input_ids, input_mask, segment_ids, seed)
    logits = _score(
      encoded.sequence_output, self.output_weights.value, self.output_bias
    )  # [B, S, 2]

    # The score of each token as a start, and as an end.
    return SpanOutput(logits[:, :, 0], logits[:, :, 1])

  def named_outputs(self, *inputs):
    return self(*inputs)._asdict()


class VectorDense(NamedTuple):
  """A dense layer on the vector of a text, as of sentence-transformers."""

  kernel: np.ndarray  # Float32 [H, D], D the numbers of the new vector.
  bias: np.ndarray  # Float32 [D].
  activation: str  # A key of VECTOR_ACTIVATIONS.
  source: str  # The file of the weights, for messages.

  def describe(self) -> str:
    """Returns the sizes and the activation in words."""
    before, after = self.kernel.shape
    return f"{before} to {after} numbers, {self.activation}"


VECTOR_ACTIVATIONS = {**modeling.ACTIVATIONS, "sigmoid": tf.sigmoid}


class VectorModel(HeadModel):
  """An encoder, and a dense layer on the vectors that are made of its output.

  Call as the encoder, whose output it returns. Who has pooled that applies
  `project` to the vectors.

  Args:
    encoder: with its weights or without.
    dense: the layer, with its weights.

  Raises:
    ValueError: the layer takes other vectors than the encoder makes.
  """

  def __init__(self, encoder: modeling.BertModel, dense: VectorDense):
    super().__init__(dtype=encoder.dtype_policy, name="vectors")
    size = encoder.config.hidden_size
    if len(dense.kernel) != size:
      raise ValueError(
        f"{dense.source}: takes vectors of {len(dense.kernel)} numbers; the "
        f"model's have {size}"
      )
    self.bert = encoder
    self.activation = dense.activation
    # Not cast to bfloat16: vectors are float32 from the pooling on.
    with keras.name_scope("dense"):
      self.kernel, self.bias = (
        keras.Variable(
          getattr(dense, name), dtype="float32", name=name, autocast=False
        )
        for name in ("kernel", "bias")
      )

  @property
  def uses_pooler(self) -> bool:
    return False

  def call(self, input_ids, input_mask, segment_ids, seed=None, **returned):
    return self.bert(input_ids, input_mask, segment_ids, seed, **returned)

  def project(self, vectors: tf.Tensor) -> tf.Tensor:
    """Applies the layer: float32 [..., H] to [..., D]."""
    activate = VECTOR_ACTIVATIONS[self.activation]
    return activate(tf.matmul(vectors, self.kernel.value) + self.bias.value)


def pool(states: tf.Tensor, input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
  """Makes one vector of each text.

  Args:
    states: the encoder's output, float [B, S, H].
    input_mask: int32 [B, S], 1 for tokens, 0 for padding.
    pooling: "cls" (the first token's), "mean" or "max" (of all tokens).

  Returns:
    The vectors, [B, H], in the type of `states`.
  """
  if pooling == "cls":
    return states[:, 0]

  # The states of padding are no zeros, so they are replaced: for the maximum by
  # the lowest number there is.
  is_token = input_mask[:, :, None] > 0
  if pooling == "max":
    return tf.reduce_max(tf.where(is_token, states, states.dtype.min), 1)

  total = tf.reduce_sum(tf.where(is_token, states, 0.0), 1)
  return total / tf.cast(tf.reduce_sum(input_mask, 1), states.dtype)[:, None]


def normalize(vectors: tf.Tensor) -> tf.Tensor:
  """Scales vectors, float [..., H], to length 1; a vector of zeros stays."""
  # TensorFlow divides by the root of the sum of squares, or by the root of
  # epsilon if that is larger.
  return tf.math.l2_normalize(vectors, -1, epsilon=1e-24)
