"""BERT as Keras layers, named like the variables of Google's checkpoints.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", https://arxiv.org/abs/1810.04805.

This file is the model to read. Programs train the subclasses of its layers in
bert/encoders/compiled.py, which have the same variables, give the same numbers
and are faster.

Shapes are written with one letter per axis:
  B batch, S sequence, H hidden, N heads, D head size (H / N), I intermediate,
  L layers, P masked positions per sequence, V vocabulary, E embeddings (in
  BERT, H).

The names of layers, one within the other, spell the paths of their variables:
`bert/encoder/layer_0/attention/self/query/kernel` is the kernel of `query` in
`self` in `attention` ... in Google's checkpoint and here.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import math
import sys
from typing import Any, ClassVar, NamedTuple, Self

import keras
import tensorflow as tf

if keras.backend.backend() != "tensorflow":
  raise ImportError(
    f"Keras runs on {keras.backend.backend()!r}; this BERT needs TensorFlow: "
    "unset KERAS_BACKEND or set it to 'tensorflow'"
  )

# Added to the attention scores of padding: the original's value.
MASKED_SCORE = -10000.0
LAYER_NORM_EPSILON = 1e-12

# Keys of released bert_config.json files that nothing reads.
_UNREAD_KEYS = (
  "directionality pooler_fc_size pooler_num_attention_heads "
  "pooler_num_fc_layers pooler_size_per_head pooler_type"
).split()

# The Gaussian error linear unit (https://arxiv.org/abs/1606.08415, section 2):
# in its tanh form, which is Google's "gelu", and exact, Hugging Face's "gelu".
gelu = functools.partial(tf.nn.gelu, approximate=True)
gelu_erf = functools.partial(tf.nn.gelu, approximate=False)

ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
  "gelu": gelu,
  "gelu_erf": gelu_erf,
  "gelu_exact": gelu_erf,
  "linear": tf.identity,
  "relu": tf.nn.relu,
  "tanh": tf.tanh,
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
  """The fields of a bert_config.json that all encoders have."""

  # The file's key `encoder_type`, by which bert/encoders/encoder_table.py finds
  # the class. None: a Transformer, whose file has no such key.
  encoder_type: ClassVar[str | None] = None

  # What heads, exports and programs ask of every encoder. These are the answers
  # of BERT; the config of another encoder overrides them.
  # Whether a token sees the tokens after it.
  is_bidirectional: ClassVar[bool] = True
  pooler_input: ClassVar[str] = "cls"  # "cls", "last" or "max" of the tokens.
  # Whether embeddings are normalised.
  has_embedding_norm: ClassVar[bool] = True
  # Whether a dense layer is between the encoder and the scores of words.
  has_lm_transform: ClassVar[bool] = True

  vocab_size: int  # Rows of the word embedding table.
  hidden_size: int = 768  # Width of every layer's output, H.
  num_hidden_layers: int = 12
  _: dataclasses.KW_ONLY
  hidden_act: str = "gelu"  # A key of ACTIVATIONS.
  hidden_dropout_prob: float = 0.1  # For embeddings, and before residuals.
  max_position_embeddings: int = 512  # The longest sequence possible.
  # Segments: 2 in every released model; 16 is the original's default.
  type_vocab_size: int = 16
  initializer_range: float = 0.02  # Standard deviation of new weights.
  embedding_size: int | None = None  # Width of the tables; None: hidden_size.
  layer_norm_eps: float | None = None  # None: LAYER_NORM_EPSILON.

  @property
  def embedding_width(self) -> int:
    """E, the width of the embedding tables."""
    return self.embedding_size or self.hidden_size

  @property
  def layer_norm_epsilon(self) -> float:
    """The number that layer normalisation adds to variances."""
    return self.layer_norm_eps or LAYER_NORM_EPSILON

  def __post_init__(self) -> None:
    _check_fields(self)  # At the end of this file.

  @classmethod
  def from_dict(cls, fields: dict[str, Any]) -> Self:
    """Makes a config of a bert_config.json; a ValueError says what is wrong."""
    fields = {k: v for k, v in fields.items() if k not in _UNREAD_KEYS}

    # Messages cut a value at 80 characters (`:.80`): a file may hold anything.
    encoder_type = fields.pop("encoder_type", None)
    if encoder_type != cls.encoder_type:
      raise ValueError(
        f"encoder_type is {encoder_type!r:.80}; expected {cls.encoder_type!r}"
      )
    unknown = set(fields) - {field.name for field in dataclasses.fields(cls)}
    if unknown:
      names = [n if n.isprintable() else repr(n) for n in sorted(unknown)]
      raise ValueError(f"unknown keys: {', '.join(names):.999}")

    # As in the original, case does not count, and null and "" are linear.
    if "hidden_act" in fields:
      fields["hidden_act"] = str(fields["hidden_act"] or "linear").lower()
    if "vocab_size" not in fields:
      raise ValueError("vocab_size is missing")
    return cls(**fields)

  @classmethod
  def from_json_file(cls, path: str) -> Self:
    """Reads a bert_config.json; raises what `from_dict` does."""
    with tf.io.gfile.GFile(path) as file:
      return cls.from_dict(json.loads(file.read()))

  def to_json_string(self) -> str:
    """Returns the text of a bert_config.json, without what is None."""
    fields = dataclasses.asdict(self) | {"encoder_type": self.encoder_type}
    fields = {name: v for name, v in fields.items() if v is not None}
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
  """The architecture of a BERT; the fields of a bert_config.json."""

  num_attention_heads: int = 12  # N; must divide hidden_size.
  intermediate_size: int = 3072  # Width between the two dense layers, I.
  attention_probs_dropout_prob: float = 0.1

  @property
  def head_size(self) -> int:
    """D, the width of each head."""
    return self.hidden_size // self.num_attention_heads

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.hidden_size % self.num_attention_heads:
      raise ValueError(
        f"num_attention_heads ({self.num_attention_heads}) does not divide "
        f"hidden_size ({self.hidden_size})"
      )


class BertOutput(NamedTuple):
  """The results of `BertModel`; the last two are empty unless requested."""

  sequence_output: tf.Tensor  # [B, S, H], the last layer.
  pooled_output: tf.Tensor  # [B, H], from the first token.
  hidden_states: tuple[tf.Tensor, ...]  # L + 1, embedding first.
  attention_probs: tuple[tf.Tensor, ...]  # L of [B, N, S, S], float32.


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
  """Derives an independent seed, int32 [2], from a seed and an integer.

  Every layer numbers its parts and folds the number in. The seed of a dropout
  is thus its path in the model, and no two masks are the same: `fold_in(seed,
  0)` of the encoder and of a block differ, because their own seeds do.

  Args:
    seed: int32 [2]; None: no dropout, so that there is nothing to derive.
    data: an integer of any type, such as the number of a part or of a step.
  """
  if seed is None:
    return None

  # The algorithm and the type are explicit, because XLA, the compiler that
  # bert/encoders/compiled.py uses, has other defaults.
  return tf.random.experimental.stateless_fold_in(  # pyright: ignore
    seed, tf.cast(data, tf.int32), alg="philox"
  )


def choose_seed(seed: tf.Tensor | None, training: bool) -> tf.Tensor | None:
  """Returns the seed; if it is None, in training a random one.

  It is only for Keras's `fit`, which knows `training` and no seeds. This
  project's programs pass a seed, and never `training`.
  """
  if seed is None and training:
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
  return seed


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
  """Zeroes elements with probability `rate` and scales up the rest.

  The seed is the only switch: an update passes one (bert/training/step.py), a
  prediction passes None. The mask is a pure function of it, with and without
  XLA, so a resumed training draws what the uninterrupted one would have drawn.

  Args:
    x: of any shape and floating type.
    rate: from 0 to 0.999, because the threshold of `draw_kept` has 16 bits.
    seed: int32 [2], from `fold_in`, which keeps the type; None: no dropout.
  """
  if seed is None or rate == 0.0:
    return x

  # In float32: bfloat16 would round 1 / 0.9 down by 0.2 %.
  scaled = tf.cast(tf.cast(x, tf.float32) * (1.0 / (1.0 - rate)), x.dtype)
  return tf.where(draw_kept(x, rate, seed), scaled, 0)


def draw_kept(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
  """Draws the elements that `dropout` keeps, bool in the shape of x.

  Args:
    x: only its shape counts.
    rate: the probability that an element is dropped.
    seed: int32 [2].
  """
  # Random bits are slow on a CPU, so that each 32-bit draw decides two
  # elements: bitcast cuts it into two uint16. Half a draw is left over if the
  # number of elements is odd.
  size = tf.size(x)
  full_range: Any = None  # In the place of `minval`: all 2**32 integers.
  bits = tf.random.stateless_uniform(
    [(size + 1) // 2], seed, full_range, dtype=tf.uint32, alg="philox"
  )
  bits = tf.reshape(tf.bitcast(bits, tf.uint16), [-1])[:size]

  # A uniform integer below 2**16 is below the threshold with probability
  # `rate`, rounded to a multiple of 2**-16.
  return tf.reshape(bits >= round(rate * 2**16), tf.shape(x))


def make_initializer(config: EncoderConfig) -> keras.initializers.Initializer:
  """Makes the initializer of all new kernels and tables."""
  return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Layer(keras.layers.Layer):
  """A part of BERT: has the config of the whole, makes and builds its parts.

  Keras would make the variables of a layer at its first call, when it sees the
  shape of the input. BERT's must exist before that, for weights to be loaded
  and for the optimizer. So a layer makes its parts by `make`, `make_dense` and
  `make_norm`, with the config and the precision of the whole, and keeps them
  with the shapes of their inputs in `parts`; `build` then builds all at once.

  Nothing here joins the names of layers to the path of a variable. Keras does:
  it opens a scope of the layer's name around each `build`, and the parts of a
  layer are built within its own `build`.
  """

  # A subclass names other classes, to be made in the place of Keras's.
  dense_class: type = keras.layers.Dense
  norm_class: type = keras.layers.LayerNormalization

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    # Pairs of a part and the shape of its input, which Keras's layers need to
    # make their variables; None for a `Layer`.
    self.parts: list = []

  def make(self, part_class: type["Layer"], name: str, *args: Any) -> Any:
    """Makes a part that is a `Layer`, with the same config and dtype.

    Args:
      part_class: its class.
      name: its part of the paths of its variables.
      *args: what its constructor takes after the config.
    """
    part = part_class(self.config, *args, name=name, dtype=self.dtype_policy)
    self.parts.append((part, None))
    return part

  def make_dense(self, name: str, input_size=None, size=None, **kwargs) -> Any:
    """Makes a dense layer.

    Args:
      name: its part of the paths of its variables.
      input_size: the width of its input; None: H.
      size: the width of its output; None: H.
      **kwargs: other arguments of the dense layer.
    """
    dense = self.dense_class(
      size or self.config.hidden_size,
      kernel_initializer=self.make_initializer(),
      name=name,
      dtype=self.dtype_policy,
      **kwargs,
    )
    self.parts.append((dense, [None, input_size or self.config.hidden_size]))
    return dense

  def make_initializer(self) -> keras.initializers.Initializer:
    """Makes the initializer of a kernel or table of this layer."""
    return make_initializer(self.config)

  def make_norm(self, size=None) -> Any:
    """Makes a layer normalisation of a width; None: H.

    Ba et al., https://arxiv.org/abs/1607.06450.
    """
    norm = self.norm_class(
      epsilon=self.config.layer_norm_epsilon,
      name="LayerNorm",
      dtype=self.dtype_policy,
    )
    self.parts.append((norm, [None, size or self.config.hidden_size]))
    return norm

  def build(self, input_shape=None):
    for part, shape in self.parts:
      part.build(shape)


class Embeddings(Layer):
  """Sums word, position and segment embeddings, normalises, drops out.

  Call with input_ids and segment_ids, int [B, S]; returns [B, S, H]. Narrower
  tables are projected, as in ELECTRA (https://arxiv.org/abs/2003.10555).
  """

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)
    width = config.embedding_width
    self.layer_norm = self.make_norm(width)
    self.project = None
    if width != config.hidden_size:
      self.project = self.make_dense("project", input_size=width)

  def build(self, input_shape=None):
    config = self.config
    self.word_embeddings = self.add_table("word", config.vocab_size)
    self.token_type_embeddings = self.add_table(
      "token_type", config.type_vocab_size
    )
    self.position_embeddings = self.add_table(
      "position", config.max_position_embeddings
    )
    super().build()

  def add_table(self, kind: str, rows: int) -> keras.Variable:
    """Makes the variable [rows, E] of one kind of embeddings."""
    # In bfloat16, Keras casts a variable wherever a layer reads it, which for a
    # table would be all its rows. `autocast=False` leaves it in float32; the
    # few rows that are gathered are cast when `layer_norm` takes them.
    return self.add_weight(
      [rows, self.config.embedding_width],
      self.make_initializer(),
      autocast=False,
      name=f"{kind}_embeddings",
    )

  def call(self, input_ids, segment_ids, seed=None):
    # `.value` of a Keras variable is TensorFlow's variable, or the tensor in
    # its place. `tf.matmul` and others take it by themselves.
    words = tf.gather(self.word_embeddings.value, input_ids)  # [B, S, E]

    # A gather alone has a sparse gradient, with a row per token. The reshape
    # changes nothing but the gradient, which it makes dense, as the original's
    # is here. The gradient of the word table stays sparse, except in
    # pre-training, where the table is the output matrix as well. This counts in
    # the clipping of fine-tuning: `optimization.row_norms`.
    table = self.token_type_embeddings.value
    segments = tf.gather(tf.reshape(table, table.shape), segment_ids)
    positions = self.position_embeddings.value[: tf.shape(input_ids)[1]]

    x = self.layer_norm(words + segments + positions)
    x = dropout(x, self.config.hidden_dropout_prob, seed)
    return self.project(x) if self.project else x  # [B, S, H]


class SelfAttention(Layer):
  """Scaled dot-product attention of a sequence to itself, with N heads.

  Vaswani et al., https://arxiv.org/abs/1706.03762, section 3.2. Call with
  hidden [B, S, H] and input_mask, int [B, S], or [B, S, S] with a row for each
  token; returns the context [B, S, H] and the attention, float32 [B, N, S, S].
  """

  config: BertConfig

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.query = self.make_dense("query")
    self.key = self.make_dense("key")
    self.value = self.make_dense("value")

  def call(self, hidden, input_mask, seed=None):
    query = self.split_heads(self.query(hidden))  # [B, N, S, D]
    key = self.split_heads(self.key(hidden))
    value = self.split_heads(self.value(hidden))

    scores = self.score(query, key)  # [B, N, S, S]

    # No token attends to padding: its scores become so low that the softmax
    # rounds them to 0. Another encoder may give a mask for each token.
    mask = input_mask[:, None] if input_mask.shape.rank == 2 else input_mask
    padding = 1.0 - tf.cast(mask[:, None], tf.float32)  # [B, 1, 1 or S, S]
    probs = tf.nn.softmax(scores + MASKED_SCORE * padding)

    context = self.weigh_values(tf.cast(probs, self.compute_dtype), value, seed)
    context = tf.transpose(context, [0, 2, 1, 3])  # [B, S, N, D]
    return tf.reshape(context, tf.shape(hidden)), probs  # [B, S, H]

  def split_heads(self, x):
    """Returns [B, N, S, D] of [B, S, H]."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    heads, size = self.config.num_attention_heads, self.config.head_size
    x = tf.reshape(x, [batch, length, heads, size])
    return tf.transpose(x, [0, 2, 1, 3])

  def score(self, query, key):
    """Returns how well each query fits each key: equation 1 of Vaswani et al.

    Like `weigh_values`, it is a method so that bert/encoders/compiled.py can
    replace it.

    Args:
      query: [B, N, S, D].
      key: [B, N, S, D].

    Returns:
      Float32 [B, N, S, S], also in bfloat16.
    """
    scores = tf.matmul(query, key, transpose_b=True)
    return tf.cast(scores, tf.float32) / math.sqrt(self.config.head_size)

  def weigh_values(self, probs, value, seed):
    """Sums the values, weighted by the probabilities after dropout.

    Args:
      probs: the attention, [B, N, S, S], in the compute dtype.
      value: [B, N, S, D].
      seed: int32 [2], of the dropout; None: no dropout.
    """
    rate = self.config.attention_probs_dropout_prob
    return tf.matmul(dropout(probs, rate, seed), value)  # [B, N, S, D]


class ResidualOutput(Layer):
  """Dense, dropout, add the block's input, normalise ("Add & Norm").

  Call with x [B, S, I or H] and residual [B, S, H]; returns [B, S, H].
  """

  def __init__(self, config: EncoderConfig, input_size: int, **kwargs):
    super().__init__(config, **kwargs)
    self.dense = self.make_dense("dense", input_size)
    self.layer_norm = self.make_norm()

  def call(self, x, residual, seed=None):
    x = dropout(self.dense(x), self.config.hidden_dropout_prob, seed)
    return self.layer_norm(x + residual)  # [B, S, H]


class Attention(Layer):
  """Self-attention and its output block; arguments as `SelfAttention`."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.self_attention = self.make(SelfAttention, "self")
    self.output_block = self.make(ResidualOutput, "output", config.hidden_size)

  def call(self, hidden, input_mask, seed=None):
    context, probs = self.self_attention(hidden, input_mask, fold_in(seed, 0))
    return self.output_block(context, hidden, fold_in(seed, 1)), probs


class Intermediate(Layer):
  """Dense to the intermediate size and the activation: [..., H] to [..., I]."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.dense = self.make_dense("dense", size=config.intermediate_size)

  def call(self, x):
    return ACTIVATIONS[self.config.hidden_act](self.dense(x))


class EncoderLayer(Layer):
  """One Transformer block: attention, then the two dense layers."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(config, **kwargs)
    size = config.intermediate_size
    self.attention = self.make(Attention, "attention")
    self.intermediate = self.make(Intermediate, "intermediate")
    self.output_block = self.make(ResidualOutput, "output", size)

  def call(self, hidden, input_mask, seed=None):
    attended, probs = self.attention(hidden, input_mask, fold_in(seed, 0))
    wide = self.intermediate(attended)  # [B, S, I]
    return self.output_block(wide, attended, fold_in(seed, 1)), probs


class Encoder(Layer):
  """A stack of blocks; returns the outputs of all, and their attention."""

  def __init__(self, config: EncoderConfig, block_class: type, **kwargs):
    super().__init__(config, **kwargs)
    self.blocks = [
      self.make(block_class, f"layer_{i}")
      for i in range(config.num_hidden_layers)
    ]

  def call(self, hidden, input_mask, seed=None):
    states, attention = [], []
    for i, block in enumerate(self.blocks):
      hidden, probs = block(hidden, input_mask, fold_in(seed, i))
      states.append(hidden)
      attention.append(probs)
    return states, attention


class Pooler(Layer):
  """Dense and tanh on the first token: [B, S, H] to [B, H].

  The mask is for the poolers of other encoders, which look at all tokens.
  """

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)
    self.dense = self.make_dense("dense", activation="tanh")

  def call(self, hidden, input_mask=None):
    return self.dense(hidden[:, 0])


@keras.saving.register_keras_serializable("bert")
class BertModel(Layer):
  """BERT's encoder; its variables exist as soon as it is made.

  >>> config = BertConfig(vocab_size=100, hidden_size=64, num_attention_heads=2)
  >>> bert = BertModel(config)
  >>> output = bert(tf.constant([[2, 57, 8, 31, 3], [2, 46, 75, 8, 3]]))
  >>> output.sequence_output.shape, output.pooled_output.shape
  (TensorShape([2, 5, 64]), TensorShape([2, 64]))

  Subclasses are other encoders, of other blocks and poolers: docs/encoders.md.

  Call arguments:
    input_ids: int [B, S], S at most max_position_embeddings.
    input_mask: int [B, S], 1 for tokens and 0 for padding; default all 1.
    segment_ids: int [B, S] below type_vocab_size; default all 0.
    seed: int32 [2], draws the dropout; default None, no dropout.
    training: draws a seed if None is given, as in `fit`.
    return_hidden_states, return_attention_probs: whether to keep them.

  Returns a `BertOutput` in the compute dtype.

  Args:
    config: the architecture.
    dtype: "float32" or "mixed_bfloat16", of matrix products and outputs; all
      variables, softmax and norms are float32. Keras calls it a policy: each
      layer casts its inputs, and a variable where it is read, to the type of
      its products. None: `keras.config`'s policy.
    name: the first part of every variable's path.
  """

  config_class: type = BertConfig
  embeddings_class: type = Embeddings
  block_class: type = EncoderLayer
  pooler_class: type = Pooler

  def __init__(self, config: EncoderConfig, dtype=None, name="bert", **kwargs):
    super().__init__(config, dtype=dtype, name=name, **kwargs)
    if type(config) is not self.config_class:
      # Both are named with their modules: `import modeling` in a clone gives
      # another class than `from bert import modeling`.
      kinds = (self.config_class, type(config))
      wanted, given = (f"{kind.__module__}.{kind.__name__}" for kind in kinds)
      raise TypeError(f"{type(self).__name__} takes a {wanted}, not a {given}")

    self.embeddings = self.make(self.embeddings_class, "embeddings")
    self.encoder = self.make(Encoder, "encoder", self.block_class)
    self.pooler = self.make(self.pooler_class, "pooler")

    # Here no other layer is being built, so the paths begin with `bert` also in
    # a model with heads.
    self.build()

    # A `trainable=False` among the arguments was set before the parts existed.
    # Keras hands it on to the parts when it is assigned.
    self.trainable = self.trainable

  def get_config(self) -> dict[str, Any]:
    fields = json.loads(self.config.to_json_string())
    return {**super().get_config(), "config": fields}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Self:
    fields = cls.config_class.from_dict(config["config"])
    return cls(**{**config, "config": fields})

  def call(
    self,
    input_ids,
    input_mask=None,
    segment_ids=None,
    seed=None,
    return_hidden_states=False,
    return_attention_probs=False,
    training=False,
  ):
    # The length is None in a graph for sequences of any length.
    length = input_ids.shape[1]
    limit = self.config.max_position_embeddings
    if length is not None and length > limit:
      raise ValueError(
        f"a sequence of {length} tokens is longer than max_position_embeddings "
        f"({limit}) of the config"
      )

    # As in the original, all positions are tokens of the first segment unless
    # the caller says otherwise.
    seed = choose_seed(seed, training)
    input_mask = tf.ones_like(input_ids) if input_mask is None else input_mask
    if segment_ids is None:
      segment_ids = tf.zeros_like(input_ids)

    embedded = self.embeddings(input_ids, segment_ids, fold_in(seed, 0))
    states, attention = self.encoder(embedded, input_mask, fold_in(seed, 1))
    if return_attention_probs and attention[0] is None:
      raise ValueError(
        f"{type(self).__name__} returns no attention; in a training, layers "
        "that are recorded once or recomputed keep none"
      )

    return BertOutput(
      sequence_output=states[-1],
      pooled_output=self.pooler(states[-1], input_mask),
      hidden_states=(embedded, *states) if return_hidden_states else (),
      attention_probs=tuple(attention) if return_attention_probs else (),
    )


def _check_fields(config: EncoderConfig) -> None:
  """Raises a ValueError that names the first field with an impossible value.

  The type of a field says what it may hold: an int is a size, a float is a
  probability or a deviation, and where None is allowed it means the default.
  """
  for field in dataclasses.fields(config):
    value: Any = getattr(config, field.name)
    if field.type in (int, int | None):
      # Python counts bool as int; other readers of the file do not.
      expected = "an integer above 0"
      fits = type(value) is int and value > 0
    elif field.type is float:
      most = 0.999 if "dropout" in field.name else sys.float_info.max
      expected = f"a number from 0 to {most}" if most < 1 else "0 or more"
      fits = type(value) in (int, float) and 0 <= value <= most
    elif field.type == float | None:
      # An epsilon: 0 would make NaN of a row of zeros, as padding may be.
      expected = "a number above 0"
      fits = type(value) in (int, float) and 0 < value <= sys.float_info.max
    else:
      continue  # The activation, below.

    is_unset = value is None and field.default is None
    if not (fits or is_unset):
      raise ValueError(f"{field.name} is {value!r:.80}; expected {expected}")

  if config.hidden_act not in ACTIVATIONS:
    names = ", ".join(ACTIVATIONS)
    raise ValueError(f"hidden_act is {config.hidden_act!r:.80}; known: {names}")
