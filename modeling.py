"""BERT as Keras layers, named like the variables of Google's checkpoints.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", https://arxiv.org/abs/1810.04805.

Shapes are written with one letter per axis:
  B batch, S sequence, H hidden, N heads, D head size (H / N), I intermediate,
  P masked positions per sequence, V vocabulary, E embeddings (in BERT, H).

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

# Added to the scores of padding: the original's value, finite in bfloat16.
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

  # The key that names another encoder; absent from a Transformer's file.
  encoder_type: ClassVar[str | None] = None

  # What heads, exports and programs ask of every encoder; others than BERT's
  # Transformer answer otherwise, a class for all or by a property.
  is_bidirectional: ClassVar[bool] = (
    True  # Whether tokens see those after them.
  )
  pooler_input: ClassVar[str] = "cls"  # "cls", "last" or "max" of the tokens.
  has_embedding_norm: ClassVar[bool] = (
    True  # Whether embeddings are normalised.
  )
  # Whether a dense layer is between the encoder and the scores of words.
  has_lm_transform: ClassVar[bool] = True

  vocab_size: int  # Rows of the word embedding table.
  hidden_size: int = 768  # Width of every layer's output, H.
  num_hidden_layers: int = 12
  _: dataclasses.KW_ONLY
  hidden_act: str = "gelu"  # A key of ACTIVATIONS.
  hidden_dropout_prob: float = 0.1  # After embeddings and dense layers.
  max_position_embeddings: int = 512  # The longest sequence possible.
  type_vocab_size: int = 16  # Segments; every released model has 2.
  initializer_range: float = 0.02  # Standard deviation of new weights.
  embedding_size: int | None = None  # Width of the tables; None: hidden_size.
  layer_norm_eps: float | None = None  # None: LAYER_NORM_EPSILON.

  @property
  def embedding_width(self) -> int:
    """E, the width of the embedding tables."""
    return self.embedding_size or self.hidden_size

  @property
  def layer_norm_epsilon(self) -> float:
    """What layer normalisation adds to variances."""
    return self.layer_norm_eps or LAYER_NORM_EPSILON

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      value: Any = getattr(self, field.name)
      # Python counts bool as int; readers of the file do not.
      known, fits = "an integer above 0", type(value) is int and value > 0
      if field.type is float:
        most = 0.999 if "dropout" in field.name else sys.float_info.max
        known = f"a number from 0 to {most}" if most < 1 else "0 or more"
        fits = type(value) in (int, float) and 0 <= value <= most
      if field.type == float | None:  # Rows of zeros, which pad, need it.
        known = "a number above 0"
        fits = type(value) in (int, float) and 0 < value <= sys.float_info.max
      is_unset = value is field.default is None
      is_number = field.type in (int, int | None, float, float | None)
      if is_number and not (fits or is_unset):
        raise ValueError(f"{field.name} is {value!r:.80}; expected {known}")
    if self.hidden_act not in ACTIVATIONS:
      known = ", ".join(ACTIVATIONS)
      raise ValueError(f"hidden_act is {self.hidden_act!r:.80}; known: {known}")

  @classmethod
  def from_dict(cls, fields: dict[str, Any]) -> Self:
    """Makes a config of a bert_config.json; a ValueError says what is wrong."""
    fields = {k: v for k, v in fields.items() if k not in _UNREAD_KEYS}
    encoder_type = fields.pop("encoder_type", None)
    if encoder_type != cls.encoder_type:
      raise ValueError(
        f"encoder_type is {encoder_type!r:.80}; expected {cls.encoder_type!r}"
      )
    unknown = set(fields) - {field.name for field in dataclasses.fields(cls)}
    if unknown:
      names = [n if n.isprintable() else repr(n) for n in sorted(unknown)]
      raise ValueError(f"unknown keys: {', '.join(names):.999}")
    if "hidden_act" in fields:  # In any case; null and "" are linear.
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
  """The results of `BertModel`; the last two are empty unless asked for."""

  sequence_output: tf.Tensor  # [B, S, H], the last layer.
  pooled_output: tf.Tensor  # [B, H], from the first token.
  hidden_states: tuple[tf.Tensor, ...]  # L + 1, embedding first.
  attention_probs: tuple[tf.Tensor, ...]  # L of [B, N, S, S], float32.


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
  """Derives an independent seed, int32 [2], from a seed and an integer.

  The algorithm and the type are explicit: XLA's defaults are others.
  """
  if seed is None:
    return None
  return tf.random.experimental.stateless_fold_in(  # pyright: ignore
    seed, tf.cast(data, tf.int32), alg="philox"
  )


def choose_seed(seed: tf.Tensor | None, training: bool) -> tf.Tensor | None:
  """Returns a seed; in training, as in `fit`, a new one instead of None."""
  if seed is None and training:
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
  return seed


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
  """Zeroes elements with probability `rate` <= 0.999, scales up the others.

  The mask is a pure function of the seed, int32 [2] (None: no dropout), with
  and without XLA. Derive seeds with `fold_in`, which keeps them int32.
  """
  if seed is None or rate == 0.0:
    return x
  # The factor would be 0.2 % too small in bfloat16.
  scaled = tf.cast(tf.cast(x, tf.float32) * (1.0 / (1.0 - rate)), x.dtype)
  return tf.where(draw_kept(x, rate, seed), scaled, 0)


def draw_kept(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
  """Draws the elements that `dropout` keeps, bool in the shape of x."""
  # A 32-bit draw decides two elements, because random bits are slow on a CPU;
  # this rounds the rate to a multiple of 2**-16.
  size = tf.size(x)
  full_range: Any = None
  bits = tf.random.stateless_uniform(
    [(size + 1) // 2], seed, full_range, dtype=tf.uint32, alg="philox"
  )
  bits = tf.reshape(tf.bitcast(bits, tf.uint16), [-1])[:size]
  return tf.reshape(bits >= round(rate * 2**16), tf.shape(x))


def make_initializer(config: EncoderConfig) -> keras.initializers.Initializer:
  return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Layer(keras.layers.Layer):
  """A part of BERT: has the config of the whole, makes and builds its parts."""

  dense_class: type = keras.layers.Dense
  norm_class: type = keras.layers.LayerNormalization

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.parts: list = []  # Each with the shape of its input, if needed.

  def make(self, part_class: type["Layer"], name: str, *args: Any) -> Any:
    """Makes a part with the same config and dtype."""
    part = part_class(self.config, *args, name=name, dtype=self.dtype_policy)
    self.parts.append((part,))
    return part

  def make_dense(self, name: str, input_size=None, size=None, **kwargs) -> Any:
    """Makes a dense layer; both sizes are by default H."""
    kwargs |= {"kernel_initializer": make_initializer(self.config)}
    kwargs |= {"name": name, "dtype": self.dtype_policy}
    dense = self.dense_class(size or self.config.hidden_size, **kwargs)
    self.parts.append((dense, [None, input_size or self.config.hidden_size]))
    return dense

  def make_norm(self, size=None) -> Any:
    """Makes a layer normalisation, https://arxiv.org/abs/1607.06450."""
    kwargs = {"name": "LayerNorm", "dtype": self.dtype_policy}
    norm = self.norm_class(epsilon=self.config.layer_norm_epsilon, **kwargs)
    self.parts.append((norm, [None, size or self.config.hidden_size]))
    return norm

  def build(self, input_shape=None):
    for part, *input_shape in self.parts:
      part.build(*input_shape)


class Embeddings(Layer):
  """Sums word, position and segment embeddings, normalises, drops out.

  Call with input_ids and segment_ids, int [B, S]; returns [B, S, H]. Narrower
  tables are projected, as in ELECTRA (https://arxiv.org/abs/2003.10555).
  """

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(config, **kwargs)
    width = config.embedding_width
    self.layer_norm, self.project = self.make_norm(width), None
    if width != config.hidden_size:
      self.project = self.make_dense("project", width)

  def build(self, input_shape=None):
    config, add = self.config, self.add_table
    self.word_embeddings = add("word", config.vocab_size)
    self.token_type_embeddings = add("token_type", config.type_vocab_size)
    self.position_embeddings = add("position", config.max_position_embeddings)
    super().build()

  def add_table(self, kind: str, rows: int) -> keras.Variable:
    shape = [rows, self.config.embedding_width]
    initializer, name = make_initializer(self.config), f"{kind}_embeddings"
    # The gathered rows are cast, not the table, which the heads share.
    return self.add_weight(shape, initializer, autocast=False, name=name)

  def call(self, input_ids, segment_ids, seed=None):
    words = tf.gather(self.word_embeddings.value, input_ids)  # [B, S, E]
    # The gradient of reshape is dense, as the original's is for segments. The
    # word table's keeps a row per token: `optimization.row_norms`.
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
    scores = tf.matmul(query, key, transpose_b=True)  # [B, N, S, S]
    scores = tf.cast(scores, tf.float32) / math.sqrt(self.config.head_size)
    mask = input_mask[:, None] if input_mask.shape.rank == 2 else input_mask
    padding = 1.0 - tf.cast(mask[:, None], tf.float32)  # [B, 1, 1 or S, S]
    probs = tf.nn.softmax(scores + MASKED_SCORE * padding)
    context = self.average(tf.cast(probs, self.compute_dtype), value, seed)
    context = tf.transpose(context, [0, 2, 1, 3])  # [B, S, N, D]
    return tf.reshape(context, tf.shape(hidden)), probs  # [B, S, H]

  def split_heads(self, x):
    """Returns [B, N, S, D] of [B, S, H]."""
    heads, size = self.config.num_attention_heads, self.config.head_size
    x = tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1], heads, size])
    return tf.transpose(x, [0, 2, 1, 3])

  def average(self, probs, value, seed):
    """Sums the values by their probabilities, after dropout on these."""
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
  """Dense and tanh on the first token: [B, S, H] to [B, H]."""

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
      variables, softmax and norms are float32. None: `keras.config`'s policy.
    name: the first part of every variable's path.
  """

  config_class: type = BertConfig
  embeddings_class: type = Embeddings
  block_class: type = EncoderLayer
  pooler_class: type = Pooler

  def __init__(self, config: EncoderConfig, dtype=None, name="bert", **kwargs):
    super().__init__(config, dtype=dtype, name=name, **kwargs)
    if type(config) is not self.config_class:
      # With their modules: `import modeling` in a clone gives another class
      # than `from bert import modeling`.
      kinds = (self.config_class, type(config))
      wanted, found = (f"{kind.__module__}.{kind.__name__}" for kind in kinds)
      raise TypeError(f"{type(self).__name__} takes a {wanted}, not a {found}")
    self.embeddings = self.make(self.embeddings_class, "embeddings")
    self.encoder = self.make(Encoder, "encoder", self.block_class)
    self.pooler = self.make(self.pooler_class, "pooler")
    self.build()
    self.trainable = self.trainable  # Keras hands it on when it is assigned.

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
    length, limit = input_ids.shape[1], self.config.max_position_embeddings
    if length is not None and length > limit:
      raise ValueError(
        f"a sequence of {length} tokens is longer than max_position_embeddings "
        f"({limit}) of the config"
      )
    seed = choose_seed(seed, training)
    input_mask = tf.ones_like(input_ids) if input_mask is None else input_mask
    if segment_ids is None:
      segment_ids = tf.zeros_like(input_ids)
    embedded = self.embeddings(input_ids, segment_ids, fold_in(seed, 0))
    states, attention = self.encoder(embedded, input_mask, fold_in(seed, 1))
    if return_attention_probs and attention[0] is None:
      raise ValueError(f"{type(self).__name__} returns no attention")
    return BertOutput(
      sequence_output=states[-1],
      pooled_output=self.pooler(states[-1], input_mask),
      hidden_states=(embedded, *states) if return_hidden_states else (),
      attention_probs=tuple(attention) if return_attention_probs else (),
    )
