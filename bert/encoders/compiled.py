"""The BERT of modeling.py, made fast; programs use it.

Variables, names, masks of dropout and numbers (but for rounding) are the same.
Shapes: see modeling.py; R rows, which are the tokens of a batch (B * S).

Each of TensorFlow's operations passes over the memory, and those between two
matrix products together take as long as the products. So XLA compiles them as
one: the islands `add_and_activate` and `add_and_norm`.
"""

from collections.abc import Callable, Iterator
import contextlib
import contextvars
import functools
import math
from typing import Any

import keras
import tensorflow as tf

from bert import modeling
from bert.data import imports, processor

# XLA compiles for every shape, so rows are padded to one of few numbers: 128,
# 192, 256, 384, 512, ... Of more than 128 rows, at most a third is padding.
_ROWS = sorted(base << shift for base in (128, 192) for shift in range(20))


# Cached: all layers with the same function and settings share its compilations.
@functools.cache
def compile_island(
  function: Callable[..., tf.Tensor], *settings: Any
) -> Callable[..., tf.Tensor]:
  """Compiles the operations between two matrix products, for both passes.

  Forward, XLA computes all of them in one pass over the memory. Backward, it
  computes them once more, with their gradients, in a second pass: so only the
  arrays are kept from forward to backward, and no result in between. It is
  written like an `autograd.Function` of PyTorch, with both passes by hand.

  Args:
    function: takes the settings, then arrays [R, N] or [N], a bool one last;
      returns [R, N].
    *settings: numbers and texts, which are constants of the compiled function.

  Returns:
    A function of the arrays, with R rows of any number, which has a gradient.
  """
  # Only these two are compiled. They see padded arrays, of few shapes.
  compile_by_xla = tf.function(autograph=False, jit_compile=True)

  @compile_by_xla
  def forward(*arrays):
    return function(*settings, *arrays)

  @compile_by_xla
  def backward(upstream, *arrays):
    # The bool array says which elements dropout keeps, and has no gradient.
    sources = [x for x in arrays if x.dtype.is_floating]
    with tf.GradientTape() as tape:
      tape.watch(sources)
      result = function(*settings, *arrays)
    return tape.gradient(result, sources, upstream)

  # A custom gradient returns its result, and the function that makes the
  # gradients of its arguments of the result's gradient, `upstream`.
  @tf.custom_gradient
  def island(*arrays):
    # The smallest number in _ROWS that is R or more.
    rows = tf.shape(arrays[0])[0]
    padded_rows = tf.gather(_ROWS, tf.searchsorted(_ROWS, [rows])[0])

    # Biases and the weights of a norm, [N], have no rows.
    def pad(x):
      ends = [[0, padded_rows - rows], [0, 0]]
      return x if x.shape.rank == 1 else tf.pad(x, ends)

    def cut(x):
      return x if x.shape.rank == 1 else x[:rows]

    def gradient(upstream):
      # The arrays are padded again, so that the padded copies of the forward
      # pass need not be kept. The dependency on `upstream`, which only the
      # backward pass has, keeps TensorFlow from merging both paddings into one.
      with tf.control_dependencies([upstream]):
        padded = [pad(x) for x in arrays]

      # The upstream gradient of padding is 0, so padding adds nothing to the
      # gradients of biases and norms. The bool array gets None.
      gradients = [cut(x) for x in backward(pad(upstream), *padded)]
      return gradients + [None] * (len(arrays) - len(gradients))

    return cut(forward(*map(pad, arrays))), gradient

  return island  # pyright: ignore  (The decorator changes what it returns.)


def add_and_activate(
  name: str, product: tf.Tensor, bias: tf.Tensor
) -> tf.Tensor:
  """Adds a bias and applies an activation.

  Args:
    name: a key of `modeling.ACTIVATIONS`.
    product: [R, N], of any floating type, which the result has, too.
    bias: [N].
  """
  x = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
  return tf.cast(modeling.ACTIVATIONS[name](x), product.dtype)


def add_and_norm(
  rate: float,
  epsilon: float,
  product: tf.Tensor,
  bias: tf.Tensor,
  residual: tf.Tensor,
  gamma: tf.Tensor,
  beta: tf.Tensor,
  kept: tf.Tensor | None = None,
) -> tf.Tensor:
  """Adds a bias, applies dropout, adds the residual and normalises.

  Args:
    rate: of the dropout.
    epsilon: is added to variances.
    product: [R, N], of any floating type, which the result has, too.
    bias: [N].
    residual: [R, N], the block's input.
    gamma: [N], the scale of the normalisation.
    beta: [N], its shift.
    kept: bool [R, N], from `modeling.draw_kept`; None: no dropout.
  """
  x = tf.cast(product, tf.float32) + tf.cast(bias, tf.float32)
  if kept is not None:
    x = tf.where(kept, x * (1.0 / (1.0 - rate)), 0)
  x += tf.cast(residual, tf.float32)
  x = _normalize(x, gamma, beta, epsilon, _mean_by_matmul)
  return tf.cast(x, product.dtype)


def _normalize(x, gamma, beta, epsilon, mean):
  # The variance is the mean of squares of what is centered already: a
  # difference of two large numbers would lose digits.
  centered = x - mean(x)
  variance = mean(centered * centered)
  return centered * tf.math.rsqrt(variance + epsilon) * gamma + beta


def _mean(x):
  return tf.reduce_mean(x, -1, keepdims=True)


def _mean_by_matmul(x):
  # On CPUs XLA's matmul is twice as fast as reduce_sum. GPUs and TPUs might
  # round a matmul, so they use reduce_mean.
  if _is_cpu():
    return tf.matmul(x, tf.fill([x.shape[-1], 1], 1.0 / x.shape[-1]))
  return _mean(x)


def _is_cpu():
  kinds = {device.device_type for device in tf.config.list_logical_devices()}
  return kinds == {"CPU"}


def _packs_weights():
  """Whether oneDNN keeps packed copies of the weights: never in a training."""
  return imports.weights_are_packed() and _is_cpu()


def dropout_matmul(
  x: tf.Tensor, y: tf.Tensor, rate: float, seed: tf.Tensor | None
) -> tf.Tensor:
  """Computes `tf.matmul(modeling.dropout(x, rate, seed), y)` in less memory.

  The backward pass recomputes the dropout's result, which saves 5 % of a step's
  memory. The product is scaled in the place of x, because it is smaller.

  Args:
    x: [..., M, N], of which elements are dropped.
    y: [..., N, D].
    rate: the probability that an element is dropped.
    seed: int32 [2]; None: no dropout.
  """
  if seed is None or rate == 0.0:
    return tf.matmul(x, y)
  kept = modeling.draw_kept(x, rate, seed)

  # Not tf.recompute_grad: its second-order gradients in variables raise a
  # NotImplementedError (TensorFlow 2.21). docs/features.md promises them to
  # users of `load_encoder`.
  @tf.custom_gradient
  def multiply(x, y):
    def gradient(upstream):
      # The dependency keeps TensorFlow from taking the product of the forward
      # pass, which would then be kept.
      with tf.control_dependencies([upstream]):
        again = tf.where(kept, x, 0)
      x_gradient = tf.where(kept, tf.matmul(upstream, y, transpose_b=True), 0)
      return x_gradient, tf.matmul(again, upstream, transpose_a=True)

    return tf.matmul(tf.where(kept, x, 0), y), gradient

  product: Any = multiply(x, y)
  return tf.cast(tf.cast(product, tf.float32) * (1.0 / (1.0 - rate)), x.dtype)


# Whether the values of a checkpoint follow; see `values_follow`.
_values_follow = contextvars.ContextVar("_values_follow", default=False)


@contextlib.contextmanager
def values_follow(is_certain: bool = True) -> Iterator[None]:
  """Spares an encoder its random weights; for models that are loaded at once.

  To draw the weights of BERT-Base takes more time than to read them. What is
  made in this context has zeros in the place of all weights that no checkpoint
  may lack. The caller loads one that fits, or fails: a model with zeros would
  learn nothing. Poolers and heads, which a checkpoint may lack, are drawn, with
  the same numbers as without the context.

  Args:
    is_certain: False: the context does nothing.
  """
  token = _values_follow.set(is_certain)
  try:
    yield
  finally:
    _values_follow.reset(token)


class Dense(keras.layers.Dense):
  """A dense layer of rows, [R, M] to [R, N]; or of [B, S, M]."""

  activation: Any  # Keras states no type for functions of tensors.

  def __init__(self, *args, dtype=None, **kwargs):
    # A process that only predicts keeps its matrices as bfloat16, in which it
    # multiplies them: half of the memory, and nothing to cast. A checkpoint's
    # numbers are rounded when they are assigned instead of at every use.
    compute_dtype = keras.dtype_policies.get(dtype).compute_dtype
    is_rounded = compute_dtype == "bfloat16" and _packs_weights()
    super().__init__(*args, dtype="bfloat16" if is_rounded else dtype, **kwargs)

  def multiply(self, rows):
    """Returns the product, and the bias for the caller to add."""
    # An island adds the bias itself, in one pass with other operations.
    product = tf.matmul(rows, self.kernel)
    bias = tf.convert_to_tensor(self.bias)
    if not _packs_weights():
      return product, bias

    # Only predictions pack weights, and oneDNN packs only the weights of a
    # product with a bias. So the bias is added here, and the caller adds 0.
    return tf.nn.bias_add(product, bias), tf.zeros_like(bias)

  def call(self, inputs):
    # CPUs and TPUs are fastest with one plain product of matrices.
    rows = tf.reshape(inputs, [-1, inputs.shape[-1]])
    rows = inputs if inputs.shape.rank == 2 else rows
    product = tf.matmul(rows, self.kernel)

    if self.compute_dtype == "bfloat16" and not _packs_weights():
      # The extra axis stops TensorFlow from fusing product and bias: the fused
      # bfloat16 kernel is half as fast.
      rows = tf.nn.bias_add(tf.expand_dims(product, 0), self.bias)
      rows = tf.squeeze(rows, 0)
    else:
      # Keras adds by an operation that is not fused with the activation.
      rows = tf.nn.bias_add(product, self.bias)

    rows = self.activation(rows) if self.activation else rows
    if inputs.shape.rank == 2:
      return rows
    return tf.reshape(rows, [*tf.unstack(tf.shape(inputs))[:-1], self.units])


class LayerNorm(keras.layers.LayerNormalization):
  """A layer normalisation of fewer operations than Keras's."""

  gamma: keras.Variable
  beta: keras.Variable

  def call(self, x):
    # Like Keras's, in float32 whatever the type of the input is.
    x = tf.cast(x, tf.float32)
    gamma = self.gamma.value
    beta = self.beta.value
    x = _normalize(x, gamma, beta, self.epsilon, _mean)
    return tf.cast(x, self.compute_dtype)


class Layer(modeling.Layer):
  """Makes its parts of the classes of this file.

  It is the first of the bases below, so that its `make` and its classes come
  before those of `modeling.Layer`. `_CLASSES` lists the parts of parts;
  `BertModel` names the outer three by its attributes. The `Encoder` stays the
  one of modeling.py, because it only calls its blocks.
  """

  dense_class = Dense
  norm_class = LayerNorm
  # Whether every checkpoint of an encoder has the kernels and tables of this
  # layer. `checkpoints.is_above_layers` says which variables it may lack.
  is_in_checkpoints = False

  def make(self, part_class, name, *args):
    return super().make(_CLASSES.get(part_class, part_class), name, *args)

  def make_initializer(self):
    # The seeds of initializers are drawn in order: this one takes its seed also
    # if it is not used, and the next one gets the same as ever.
    drawn = super().make_initializer()
    follow = self.is_in_checkpoints and _values_follow.get()
    return keras.initializers.Zeros() if follow else drawn


class Embeddings(Layer, modeling.Embeddings):
  """Embeddings with the layers of this file."""

  is_in_checkpoints = True


class SelfAttention(Layer, modeling.SelfAttention):
  """Self-attention of fewer passes, that keeps less for the backward pass."""

  is_in_checkpoints = True

  def score(self, query, key):
    # A power of two changes no digit of a product. So if the divisor is one, as
    # for BERT's heads of 64, the queries are divided, [B, N, S, D], and not the
    # scores, [B, N, S, S]: of 512 tokens an eighth as many numbers.
    scale = 1.0 / math.sqrt(self.config.head_size)
    if math.frexp(scale)[0] != 0.5:
      return super().score(query, key)
    return tf.cast(tf.matmul(query * scale, key, transpose_b=True), tf.float32)

  def weigh_values(self, probs, value, seed):
    # The result of the dropout would be the largest tensor of attention.
    rate = self.config.attention_probs_dropout_prob
    return dropout_matmul(probs, value, rate, seed)


class ResidualOutput(Layer, modeling.ResidualOutput):
  """Makes one island of "Add & Norm" between two products.

  Call with x [B, S, I or H] or [R, I or H] and residual [B, S, H].
  """

  is_in_checkpoints = True

  def call(self, x, residual, seed=None):
    rows = tf.reshape(x, [-1, x.shape[-1]])
    norm = self.layer_norm

    # Without dropout in float32, TensorFlow itself merges the bias into the
    # product, and there is no island; see `Intermediate`.
    if seed is None and self.compute_dtype == "float32":
      return norm(tf.reshape(self.dense(rows), tf.shape(residual)) + residual)

    # An island takes tensors, because a custom gradient takes no variables.
    product, bias = self.dense.multiply(rows)
    residual_rows = tf.reshape(residual, tf.shape(product))
    gamma = tf.convert_to_tensor(norm.gamma.value)
    beta = tf.convert_to_tensor(norm.beta.value)
    arrays = [product, bias, residual_rows, gamma, beta]

    rate = 0.0 if seed is None else self.config.hidden_dropout_prob
    if seed is not None and rate:
      arrays.append(modeling.draw_kept(product, rate, seed))
    rows = compile_island(add_and_norm, rate, norm.epsilon)(*arrays)
    return tf.reshape(rows, tf.shape(residual))


class Attention(Layer, modeling.Attention):
  """Attention of the layers of this file."""


class Intermediate(Layer, modeling.Intermediate):
  """A dense layer whose bias and activation are an island: [R, H] to [R, I].

  Some predictions are faster without the island. Nothing is drawn here: the
  seed only says that this is a training.
  """

  is_in_checkpoints = True

  def call(self, rows, seed=None):
    name = self.config.hidden_act

    # Whether a prediction is faster with bias and activation apart from the
    # product. In float32 it is not, because TensorFlow merges all three; but it
    # does not merge gelu on a CPU without AVX512, where an island is 1.1 to 1.2
    # times as fast for 512 rows and more. (An island of gelu_erf is not.)
    is_apart = self.compute_dtype == "bfloat16" and not _packs_weights()
    if name == "gelu" and _is_cpu() and not processor.merges_gelu():
      is_apart = True

    # A training always takes the island, which keeps less for the backward
    # pass.
    if seed is not None or is_apart:
      island = compile_island(add_and_activate, name)
      return island(*self.dense.multiply(rows))

    wide = self.dense(rows)
    # TensorFlow's graph optimizer visits operations in the order of their
    # names, and merges these into the product only if they come after "dense".
    with tf.name_scope("gelu"):
      return modeling.ACTIVATIONS[name](wide)


class EncoderLayer(Layer, modeling.EncoderLayer):
  """A Transformer block of the layers of this file."""

  def call(self, hidden, input_mask, seed=None):
    # `modeling.EncoderLayer` derives the same seeds. Between the two parts,
    # tokens are rows of one matrix.
    fold_in = modeling.fold_in
    attended, probs = self.attention(hidden, input_mask, fold_in(seed, 0))
    rows = tf.reshape(attended, [-1, self.config.hidden_size])
    wide = self.intermediate(rows, seed)  # [R, I]
    return self.output_block(wide, attended, fold_in(seed, 1)), probs


class Pooler(Layer, modeling.Pooler):
  """The pooler with a dense layer of this file."""


@keras.saving.register_keras_serializable("bert", "CompiledBertModel")
class BertModel(Layer, modeling.BertModel):
  """A `modeling.BertModel` made of the layers of this file."""

  embeddings_class = Embeddings
  block_class = EncoderLayer
  pooler_class = Pooler


_CLASSES = {
  modeling.SelfAttention: SelfAttention,
  modeling.ResidualOutput: ResidualOutput,
  modeling.Attention: Attention,
  modeling.Intermediate: Intermediate,
}
