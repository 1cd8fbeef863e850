"""BERT as Keras layers, named like the variables of Google's checkpoints.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding", https://arxiv.org/abs/1810.04805.

Shapes are written with one letter per axis:
  B batch, S sequence, H hidden, N heads, D head size (H / N), I intermediate,
  P masked positions per sequence, V vocabulary, E embeddings (in BERT, H).

A layer's name and its place in its parent spell the path of its variables:
`bert/encoder/layer_0/attention/self/query/kernel` is the kernel of `query` in
`self` in `attention` ... in Google's checkpoint and here. Nothing is renamed on
loading or saving.
"""

from collections.abc import Callable
import dataclasses
import functools
import json
import math
from typing import Any, ClassVar, NamedTuple, Self

import keras
import tensorflow as tf

if keras.backend.backend() != "tensorflow":
  raise ImportError(
    f"Keras runs on {keras.backend.backend()!r}; this BERT needs TensorFlow: "
    "unset KERAS_BACKEND or set it to 'tensorflow'"
  )

# Masks out padding: added to its scores before the softmax. Stays finite in
# bfloat16; the original's value.
MASKED_SCORE = -10000.0
LAYER_NORM_EPSILON = 1e-12

# Keys of released bert_config.json files that nothing reads.
_IGNORED_CONFIG_KEYS = {
  *("directionality", "pooler_fc_size", "pooler_num_attention_heads"),
  *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type"),
}

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

  encoder_type: ClassVar[str | None] = None  # A Transformer's file has none.
  causal_attention: ClassVar[bool] = False  # These are a `VariantConfig`'s.
  layer_norm_eps: ClassVar[float] = LAYER_NORM_EPSILON
  embedding_layer_norm: ClassVar[bool] = True

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

  @property
  def embedding_width(self) -> int:
    """E, the width of the embedding tables."""
    size = self.embedding_size
    return self.hidden_size if size is None else size

  def __post_init__(self) -> None:
    for field in dataclasses.fields(self):
      self._check_range(field.name, getattr(self, field.name), field.type)
    self._check_range("embedding_size", self.embedding_width, int)
    if self.hidden_act not in ACTIVATIONS:
      known = ", ".join(ACTIVATIONS)
      raise ValueError(f"hidden_act is {self.hidden_act!r:.80}; known: {known}")

  @staticmethod
  def _check_range(name: str, value: Any, kind: type) -> None:
    # Python counts bool as int; readers of the file do not.
    if kind is int and (type(value) is not int or value < 1):
      raise ValueError(f"{name} is {value!r:.80}; expected an integer above 0")
    end = 1 if "dropout" in name else math.inf
    if kind is float and not (type(value) in (int, float) and 0 <= value < end):
      known = f"a number in [0, {'infinity' if end > 1 else 1})"
      raise ValueError(f"{name} is {value!r:.80}; expected {known}")

  @classmethod
  def from_dict(cls, fields: dict[str, Any]) -> Self:
    """Makes a config from the contents of a bert_config.json.

    Raises:
      ValueError: for an unknown or missing key, or a value out of range.
    """
    fields = dict(fields)
    encoder_type = fields.pop("encoder_type", None)
    if encoder_type != cls.encoder_type:
      raise ValueError(
        f"encoder_type is {encoder_type!r:.80}; expected {cls.encoder_type!r}"
      )
    known = {field.name for field in dataclasses.fields(cls)}
    unknown = sorted(set(fields) - known - _IGNORED_CONFIG_KEYS)
    if unknown:
      names = (name if name.isprintable() else repr(name) for name in unknown)
      raise ValueError(f"unknown keys: {', '.join(names):.999}")
    if "hidden_act" in fields:  # In any case; null and "" are linear.
      fields["hidden_act"] = str(fields["hidden_act"] or "linear").lower()
    if "vocab_size" not in fields:
      raise ValueError("vocab_size is missing")
    return cls(**{k: v for k, v in fields.items() if k in known})

  @classmethod
  def from_json_file(cls, path: str) -> Self:
    """Reads a bert_config.json; raises what `from_dict` does."""
    with tf.io.gfile.GFile(path) as file:
      return cls.from_dict(json.loads(file.read()))

  def to_json_string(self) -> str:
    """Returns the config as the text of a bert_config.json."""
    fields = dataclasses.asdict(self) | {"encoder_type": self.encoder_type}
    # The original's files do not have what is None.
    fields = {name: v for name, v in fields.items() if v is not None}
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


@dataclasses.dataclass(frozen=True)
class BertConfig(EncoderConfig):
  """The architecture of a BERT; the fields of a bert_config.json."""

  num_attention_heads: int = 12  # N; must divide hidden_size.
  intermediate_size: int = 3072  # Width between the two dense layers, I.
  _: dataclasses.KW_ONLY
  attention_probs_dropout_prob: float = 0.1

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.hidden_size % self.num_attention_heads:
      raise ValueError(
        f"num_attention_heads ({self.num_attention_heads}) does not divide "
        f"hidden_size ({self.hidden_size})"
      )


class BertOutput(NamedTuple):
  """What `BertModel` returns, in the model's compute dtype."""

  sequence_output: tf.Tensor  # [B, S, H], the last layer.
  pooled_output: tf.Tensor  # [B, H], from the first token.
  # Empty unless asked for.
  hidden_states: tuple[tf.Tensor, ...]  # L + 1, embedding first.
  attention_probs: tuple[tf.Tensor, ...]  # L of [B, N, S, S], float32.


def fold_in(seed: tf.Tensor | None, data: int | tf.Tensor) -> tf.Tensor | None:
  """Derives an independent seed from a seed and an integer.

  Args:
    seed: int32 [2]; None is returned unchanged.
    data: a scalar below 2**31, of any integer type.

  Returns:
    int32 [2], the same with and without XLA.
  """
  if seed is None:
    return None
  # XLA has another default algorithm, and draws int64 differently: algorithm
  # and type must be explicit.
  return tf.random.experimental.stateless_fold_in(
    seed, tf.cast(data, tf.int32), alg="philox"
  )


def choose_seed(seed: tf.Tensor | None, training: bool) -> tf.Tensor | None:
  """Returns a seed; in training, as in `fit`, a new one instead of None."""
  if seed is None and training:
    return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
  return seed


def dropout(x: tf.Tensor, rate: float, seed: tf.Tensor | None) -> tf.Tensor:
  """Zeroes elements with probability `rate` in [0, 1), scales up the others.

  The mask is a pure function of the seed, int32 [2] (None: no dropout), with
  and without XLA. Derive seeds with `fold_in`, which keeps them int32. Each
  32-bit draw decides two elements, because random bits are slow on a CPU; this
  rounds the rate to a multiple of 2**-16.
  """
  if seed is None or rate == 0.0:
    return x
  return _drop(x, _draw_kept(x, rate, seed), rate)


def _draw_kept(x, rate, seed):
  size = tf.size(x)
  bits = tf.random.stateless_uniform(
    [(size + 1) // 2], seed, None, None, tf.uint32, alg="philox"
  )
  bits = tf.reshape(tf.bitcast(bits, tf.uint16), [-1])[:size]
  return tf.reshape(bits >= round(rate * 2**16), tf.shape(x))


def _drop(x, kept, rate):
  return tf.where(kept, x * tf.cast(1.0 / (1.0 - rate), x.dtype), 0)


def dropout_matmul(
  x: tf.Tensor, y: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
  """Computes `tf.matmul(dropout(x, rate, seed), y)` in less memory.

  The backward pass recomputes the dropout's result, a twentieth of a step's.
  """
  if seed is None or rate == 0.0:
    return tf.matmul(x, y)
  kept = _draw_kept(x, rate, seed)

  @tf.recompute_grad
  def multiply(x, y):
    return tf.matmul(_drop(x, kept, rate), y)

  return multiply(x, y)


# XLA compiles for every shape, so rows are padded to one of few numbers.
_ROWS = sorted(base << shift for base in (128, 192) for shift in range(20))


@functools.cache
def _compile(function: Callable[..., tf.Tensor], *settings) -> Callable:
  """Compiles what stands between two matrix products.

  Each of TensorFlow's operations passes over the memory, and together they take
  as long as the products. XLA makes one pass of them, and another one backward,
  which computes them again: only the inputs are kept.

  Args:
    function: (*settings, *arrays) -> [R, N]; arrays [R, N] or [N], bool last.
  """

  def differentiate(upstream, *arrays):
    sources = [x for x in arrays if x.dtype.is_floating]
    with tf.GradientTape() as tape:
      tape.watch(sources)
      result = function(*settings, *arrays)
    return tape.gradient(result, sources, upstream)

  jit = functools.partial(tf.function, autograph=False, jit_compile=True)
  forward = jit(functools.partial(function, *settings))
  backward = jit(differentiate)

  @tf.custom_gradient
  def call(*arrays):
    size = tf.shape(arrays[0])[0]
    padded = tf.gather(_ROWS, tf.searchsorted(_ROWS, [size])[0])

    def pad(x):
      return tf.pad(x, [[0, padded - size], [0, 0]]) if x.shape.rank == 2 else x

    def gradient(upstream):
      # The dependency keeps TensorFlow from keeping the padded rows.
      with tf.control_dependencies([upstream]):
        again = [pad(x) for x in arrays]
      found = backward(pad(upstream), *again)
      found = [x[:size] if x.shape.rank == 2 else x for x in found]
      return found + [None] * (len(arrays) - len(found))

    return forward(*map(pad, arrays))[:size], gradient

  return call


def _add_and_activate(name, product, bias):
  x = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
  return tf.cast(ACTIVATIONS[name](x), product.dtype)


def _add_and_norm(rate, epsilon, product, bias, residual, gamma, beta, *kept):
  x = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
  x = (_drop(x, *kept, rate) if kept else x) + tf.cast(residual, tf.float32)
  x = _normalize(x, gamma, beta, epsilon, is_compiled=True)
  return tf.cast(x, product.dtype)


def make_initializer(config: EncoderConfig) -> keras.initializers.Initializer:
  return keras.initializers.TruncatedNormal(stddev=config.initializer_range)


class Dense(keras.layers.Dense):
  """A dense layer, [..., M] to [..., N], whose bias can be added by others."""

  def multiply(self, inputs):
    """Returns the product and the bias, which are to be added."""
    return tf.matmul(inputs, self.kernel), tf.convert_to_tensor(self.bias)

  def call(self, inputs):
    product, bias = self.multiply(inputs)
    if self.compute_dtype == "bfloat16":
      # The axis keeps TensorFlow from merging the two, which is half as fast.
      rows = tf.squeeze(tf.nn.bias_add(tf.expand_dims(product, 0), bias), 0)
    else:  # Keras adds by an operation that is not merged with the activation.
      rows = tf.nn.bias_add(product, bias)
    return rows if self.activation is None else self.activation(rows)


def make_dense(parent: keras.layers.Layer, size: int, name: str, **kwargs):
  """Makes a dense layer inside a layer with a config."""
  initializer = make_initializer(parent.config)
  kwargs |= {"kernel_initializer": initializer, "dtype": parent.dtype_policy}
  return Dense(size, name=name, **kwargs)


class LayerNorm(keras.layers.Layer):
  """Normalises the last axis to mean 0 and variance 1, then scales and shifts.

  Ba et al., https://arxiv.org/abs/1607.06450. Statistics are in float32.
  """

  epsilon = LAYER_NORM_EPSILON  # Of another encoder, its own.

  def build(self, input_shape):
    size = [input_shape[-1]]
    add = functools.partial(self.add_weight, shape=size, autocast=False)
    self.gamma = add(name="gamma", initializer="ones")
    self.beta = add(name="beta", initializer="zeros")

  def call(self, x):
    x = _normalize(x, self.gamma.value, self.beta.value, self.epsilon)
    return tf.cast(x, self.compute_dtype)


def _normalize(x, gamma, beta, epsilon, is_compiled=False):
  x = tf.cast(x, tf.float32)
  centered = x - _mean(x, is_compiled)
  variance = _mean(centered * centered, is_compiled)
  return centered * tf.math.rsqrt(variance + epsilon) * gamma + beta


def _mean(x, is_compiled):
  # On a CPU XLA multiplies twice as fast as it sums; others would round.
  kinds = {device.device_type for device in tf.config.list_logical_devices()}
  if is_compiled and kinds == {"CPU"}:
    return tf.matmul(x, tf.fill([x.shape[-1], 1], 1.0 / x.shape[-1]))
  return tf.reduce_mean(x, -1, keepdims=True)


class Embeddings(keras.layers.Layer):
  """Sums word, position and segment embeddings, normalises, drops out.

  Call with input_ids and segment_ids, int [B, S]; returns [B, S, H]. Narrower
  tables are projected, as in ELECTRA (https://arxiv.org/abs/2003.10555).
  """

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.layer_norm = LayerNorm(name="LayerNorm", dtype=self.dtype_policy)
    self.project = None
    if config.embedding_width != config.hidden_size:
      self.project = make_dense(self, config.hidden_size, "project")

  def build(self, input_shape=None):
    config, add = self.config, self._add_table
    self.word_embeddings = add("word", config.vocab_size)
    self.token_type_embeddings = add("token_type", config.type_vocab_size)
    self.position_embeddings = add("position", config.max_position_embeddings)
    self.layer_norm.build([None, self.config.embedding_width])
    if self.project:
      self.project.build([None, self.config.embedding_width])

  def _add_table(self, kind, rows):
    return self.add_weight(
      name=f"{kind}_embeddings",
      shape=[rows, self.config.embedding_width],
      initializer=make_initializer(self.config),
      autocast=False,  # The gathered rows are cast, not the table.
    )

  def call(self, input_ids, segment_ids, seed=None):
    length = tf.shape(input_ids)[1]
    words = tf.gather(self.word_embeddings.value, input_ids)  # [B, S, E]
    # The gradient of reshape is dense, as in the original for segments. That
    # of the word table keeps a row per token: `optimization.row_norms`.
    table = self.token_type_embeddings.value
    segments = tf.gather(tf.reshape(table, table.shape), segment_ids)
    positions = self.position_embeddings.value[:length]  # [S, E]
    x = self.layer_norm(words + segments + positions)
    x = dropout(x, self.config.hidden_dropout_prob, seed)
    return self.project(x) if self.project else x


class SelfAttention(keras.layers.Layer):
  """Scaled dot-product attention of a sequence to itself, with N heads.

  Vaswani et al., https://arxiv.org/abs/1706.03762, section 3.2. Call with
  hidden [B, S, H] and input_mask, int [B, S], or [B, S, S] with a row for each
  token; returns the context [B, S, H] and the attention, float32 [B, N, S, S].
  """

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    for name in ("query", "key", "value"):
      setattr(self, name, make_dense(self, config.hidden_size, name))

  def build(self, input_shape=None):
    for dense in (self.query, self.key, self.value):
      dense.build([None, self.config.hidden_size])

  def call(self, hidden, input_mask, seed=None):
    batch, length = tf.shape(hidden)[0], tf.shape(hidden)[1]
    size = self.config.hidden_size
    heads = self.config.num_attention_heads

    # CPUs and TPUs are fastest with one plain matrix product per projection.
    rows = tf.reshape(hidden, [-1, size])  # [B*S, H]

    def split_heads(x):
      x = tf.reshape(x, [batch, length, heads, size // heads])
      return tf.transpose(x, [0, 2, 1, 3])  # [B, N, S, D]

    query = split_heads(self.query(rows))
    key = split_heads(self.key(rows))
    value = split_heads(self.value(rows))
    scores = tf.matmul(query, key, transpose_b=True)  # [B, N, S, S]
    scores = tf.cast(scores, tf.float32) / math.sqrt(size // heads)
    mask = input_mask[:, None] if input_mask.shape.rank == 2 else input_mask
    padding = 1.0 - tf.cast(mask[:, None], tf.float32)
    probs = tf.nn.softmax(scores + MASKED_SCORE * padding)
    context = dropout_matmul(
      tf.cast(probs, self.compute_dtype),
      value,
      self.config.attention_probs_dropout_prob,
      seed,
    )
    context = tf.transpose(context, [0, 2, 1, 3])
    return tf.reshape(context, [batch, length, size]), probs  # [B, S, H]


class ResidualOutput(keras.layers.Layer):
  """Dense, dropout, add the block's input, normalise ("Add & Norm").

  Call with x [B, S, I or H] and residual [B, S, H]; returns [B, S, H].
  """

  def __init__(self, config: EncoderConfig, input_size: int, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.input_size = input_size
    self.dense = make_dense(self, config.hidden_size, "dense")
    self.layer_norm = LayerNorm(name="LayerNorm", dtype=self.dtype_policy)

  def build(self, input_shape=None):
    self.dense.build([None, self.input_size])
    self.layer_norm.build([None, self.config.hidden_size])

  def call(self, x, residual, seed=None):
    rows, norm = tf.reshape(x, [-1, self.input_size]), self.layer_norm
    if seed is None and self.compute_dtype == "float32":
      return norm(tf.reshape(self.dense(rows), tf.shape(residual)) + residual)
    product, bias = self.dense.multiply(rows)
    added = tf.reshape(residual, tf.shape(product))
    tensors = map(tf.convert_to_tensor, (norm.gamma.value, norm.beta.value))
    arrays = [product, bias, added, *tensors]
    rate = 0.0 if seed is None else self.config.hidden_dropout_prob
    arrays += [_draw_kept(product, rate, seed)] if rate else []
    rows = _compile(_add_and_norm, rate, norm.epsilon)(*arrays)
    return tf.reshape(rows, tf.shape(residual))


class Attention(keras.layers.Layer):
  """Self-attention and its output block; arguments as `SelfAttention`."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.self_attention = SelfAttention(
      config, name="self", dtype=self.dtype_policy
    )
    self.output_block = ResidualOutput(
      config, config.hidden_size, name="output", dtype=self.dtype_policy
    )

  def build(self, input_shape=None):
    self.self_attention.build()
    self.output_block.build()

  def call(self, hidden, input_mask, seed=None):
    context, probs = self.self_attention(hidden, input_mask, fold_in(seed, 0))
    return self.output_block(context, hidden, fold_in(seed, 1)), probs


class Intermediate(keras.layers.Layer):
  """Dense to the intermediate size and the activation: [B*S, H] to [B*S, I]."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.dense = make_dense(self, config.intermediate_size, "dense")

  def build(self, input_shape=None):
    self.dense.build([None, self.config.hidden_size])

  def call(self, rows, seed=None):
    name = self.config.hidden_act
    if seed is not None or self.compute_dtype == "bfloat16":
      return _compile(_add_and_activate, name)(*self.dense.multiply(rows))
    wide = self.dense(rows)
    # TensorFlow's graph optimizer visits operations in the order of their
    # names, and merges these into the product only if they come after "dense".
    with tf.name_scope("gelu"):
      return ACTIVATIONS[name](wide)


class EncoderLayer(keras.layers.Layer):
  """One Transformer block: attention, then the two dense layers."""

  def __init__(self, config: BertConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    policy = self.dtype_policy
    self.attention = Attention(config, name="attention", dtype=policy)
    self.intermediate = Intermediate(config, name="intermediate", dtype=policy)
    self.output_block = ResidualOutput(
      config, config.intermediate_size, name="output", dtype=policy
    )

  def build(self, input_shape=None):
    self.attention.build()
    self.intermediate.build()
    self.output_block.build()

  def call(self, hidden, input_mask, seed=None):
    attended, probs = self.attention(hidden, input_mask, fold_in(seed, 0))
    rows = tf.reshape(attended, [-1, self.config.hidden_size])
    wide = self.intermediate(rows, seed)  # [B*S, I]
    return self.output_block(wide, attended, fold_in(seed, 1)), probs


class Encoder(keras.layers.Layer):
  """A stack of blocks, made by `block_class` and called like `EncoderLayer`.

  Call with hidden [B, S, H] and input_mask int [B, S]; returns the output of
  every block, a list of [B, S, H], and its attention, a list of [B, N, S, S].
  """

  def __init__(self, config: EncoderConfig, block_class: type, **kwargs):
    super().__init__(**kwargs)
    self.blocks = [
      block_class(config, name=f"layer_{i}", dtype=self.dtype_policy)
      for i in range(config.num_hidden_layers)
    ]
    # How to call a block; training/recomputation.py replaces it.
    self.call_block = lambda block, *inputs: block(*inputs)

  def build(self, input_shape=None):
    for block in self.blocks:
      block.build()

  def call(self, hidden, input_mask, seed=None):
    states, attention = [], []
    for i, block in enumerate(self.blocks):
      inputs = (hidden, input_mask, fold_in(seed, i))
      hidden, probs = self.call_block(block, *inputs)
      states.append(hidden)
      attention.append(probs)
    return states, attention


class Pooler(keras.layers.Layer):
  """Dense and tanh on the first token: [B, S, H] to [B, H]."""

  def __init__(self, config: EncoderConfig, **kwargs):
    super().__init__(**kwargs)
    self.config = config
    self.dense = make_dense(
      self, config.hidden_size, "dense", activation="tanh"
    )

  def build(self, input_shape=None):
    self.dense.build([None, self.config.hidden_size])

  def call(self, hidden, input_mask=None):
    return self.dense(hidden[:, 0])


@keras.saving.register_keras_serializable("bert")
class BertModel(keras.layers.Layer):
  """BERT's encoder; its variables exist as soon as it is made.

  Subclasses are other encoders, which replace the classes of blocks and pooler;
  a block without attention returns None for it. See docs/encoders.md.

  Call arguments:
    input_ids: int [B, S], S at most max_position_embeddings.
    input_mask: int [B, S], 1 for tokens and 0 for padding; default all 1.
    segment_ids: int [B, S] below type_vocab_size; default all 0.
    seed: int32 [2], draws the dropout; default None, no dropout.
    training: draws a seed if there is none, as in `fit`.
    return_hidden_states, return_attention_probs: whether to keep them.

  Returns a `BertOutput`.

  Args:
    config: the architecture.
    dtype: "float32" or "mixed_bfloat16": the dtype of matrix products and of
      layers' outputs. Variables, softmax and layer normalisation are float32 in
      both.
    name: the first part of every variable's path.
  """

  config_class: type = BertConfig
  block_class: type = EncoderLayer
  pooler_class: type = Pooler

  def __init__(
    self, config: EncoderConfig, dtype="float32", name="bert", **kwargs
  ):
    super().__init__(dtype=dtype, name=name, **kwargs)
    if type(config) is not self.config_class:
      wanted, found = self.config_class.__name__, type(config).__name__
      raise TypeError(f"{type(self).__name__} takes a {wanted}, not a {found}")
    self.config, policy = config, self.dtype_policy
    self.embeddings = Embeddings(config, name="embeddings", dtype=policy)
    self.encoder = Encoder(
      config, self.block_class, name="encoder", dtype=policy
    )
    self.pooler = self.pooler_class(config, name="pooler", dtype=policy)
    self.build()
    self.trainable = self.trainable  # Of the layers, too.

  def build(self, input_shape=None):
    for layer in (self.embeddings, self.encoder, self.pooler):
      layer.build()

  @staticmethod
  def from_checkpoint(path: str, dtype: str = "float32") -> "BertModel":
    """Loads an encoder; see `bert.load_encoder`."""
    # Not above: all else in this file works without the other files.
    import bert

    return bert.load_encoder(path, dtype)

  def get_config(self) -> dict[str, Any]:
    fields = json.loads(self.config.to_json_string())
    return {**super().get_config(), "config": fields}

  @classmethod
  def from_config(cls, config: dict[str, Any]) -> Self:
    fields = cls.config_class.from_dict(config["config"])
    return cls(**{**config, "config": fields})

  @property
  def embedding_table(self) -> keras.Variable:
    """The word embeddings, float32 [V, E]; the masked-LM head shares them."""
    return self.embeddings.word_embeddings

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
    if input_mask is None:
      input_mask = tf.ones_like(input_ids)
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
