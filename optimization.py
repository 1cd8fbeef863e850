"""BERT's optimizer: Adam with decoupled weight decay and no bias correction.

Devlin et al., section A.2; Loshchilov & Hutter, https://arxiv.org/abs/1711.05101
for the decay. It is not `keras.optimizers.AdamW`: that one corrects the bias of
the moments and decays in a separate step. The correction is an option here, for
fine-tuning on little data: Mosbach et al., https://arxiv.org/abs/2006.04884,
section 6.

For fine-tuning, lower layers may learn more slowly, later or not at all: Howard
& Ruder (ULMFiT), https://arxiv.org/abs/1801.06146, sections 3.2 and 3.3.
"""

from collections.abc import Callable, Iterable, Sequence
import math
import re
from typing import NamedTuple

import tensorflow as tf

# The original's numbers, of which no program has a flag.
CLIP_NORM = 1.0  # Maximum global gradient norm.
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-6  # Adam's.
WEIGHT_DECAY = 0.01
# Variables with one of these in their path do not decay.
_NOT_DECAYING = ("LayerNorm", "layer_norm", "bias")

_ENCODER_LAYER = re.compile(r"bert/encoder/layer_(\d+)/")


def learning_rate_at(
  step: tf.Tensor, init_lr: float, num_train_steps: int, num_warmup_steps: int
) -> tf.Tensor:
  """Computes the learning rate: linear warm-up, then linear decay to zero.

  As in the original, decay runs from step 0, so the peak is below `init_lr`,
  which warm-up aims at. At step 0 of a warm-up the learning rate is 0, so the
  first update changes only the moments of Adam.

  Args:
    step: int64 [], the number of updates made so far.
    init_lr: the learning rate that warm-up aims at.
    num_train_steps: the step at which the learning rate is 0 again.
    num_warmup_steps: updates of warm-up; may be 0.

  Returns:
    The learning rate of the next update, float32 [].
  """
  # After the last step the learning rate stays 0, and does not become negative.
  done = tf.cast(tf.minimum(step, num_train_steps), tf.float32)
  decayed = init_lr * (1.0 - done / tf.cast(num_train_steps, tf.float32))
  if num_warmup_steps == 0:
    return decayed

  share = tf.cast(step, tf.float32) / tf.cast(num_warmup_steps, tf.float32)
  return tf.where(step < num_warmup_steps, init_lr * share, decayed)


def layer_of(path: str) -> int | None:
  """Returns 0 for embeddings, i + 1 for layer i, None for pooler and heads."""
  if path.startswith("bert/embeddings/"):
    return 0
  match = _ENCODER_LAYER.match(path)
  return int(match[1]) + 1 if match else None


def count_layers(paths: Iterable[str]) -> int:
  """Returns the number of encoder layers of a model, from all its paths."""
  return max((layer_of(path) or 0 for path in paths), default=0)


def row_norms(gradients: Sequence[tf.Tensor | tf.IndexedSlices]) -> tf.Tensor:
  """Computes half the squared norms of gradients with a row per occurrence.

  Only fine-tuning on CPU and GPU needs this. There the word embeddings are only
  looked up, and their gradient is `tf.IndexedSlices`: one row for every token
  of the batch. The original clips by `tf.clip_by_global_norm`, which does not
  add up the rows of a repeated word: a word that occurs twice, with gradients 1
  and 1, counts 1 + 1 and not (1 + 1)^2. This is a sum over the tokens of the
  batch, so the norms of replicas and micro-batches can be added up, whereas a
  dense gradient must be added up before its norm is taken.

  In pre-training the table is also the output matrix: all gradients are dense,
  and all results 0. On a TPU the original looks words up by one-hot rows, so
  the results are not used there (`loop._make_passes` and `counts_rows` in
  bert/training/step.py).

  Args:
    gradients: one per variable, before anything has made them dense.

  Returns:
    Float32 [variables]; 0 for a dense gradient.
  """
  return tf.stack(
    [
      tf.nn.l2_loss(gradient.values)
      if isinstance(gradient, tf.IndexedSlices)
      else tf.constant(0.0)
      for gradient in gradients
    ]
  )


def _zeros_like(variable: tf.Variable) -> tf.Variable:
  return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)


class Scales(NamedTuple):
  """The numbers by which the update of one variable is scaled."""

  factor: tf.Tensor  # Clipping multiplies the gradient by it, float32 [].
  rate: tf.Tensor  # The variable's learning rate, float32 [].
  decay: float  # The weight decay, 0 for norms and biases.
  corrections: tuple  # The divisors of m and of the root of v.


class AdamWeightDecayOptimizer:
  """Updates variables as the original's optimizer of the same name did.

  m = beta_1 m + (1 - beta_1) g
  v = beta_2 v + (1 - beta_2) g^2
  p = p - rate (m / (sqrt(v) + epsilon) + decay p)

  Here g is the clipped gradient and rate the learning rate. Corrected, m is
  divided by 1 - beta_1^t and v by 1 - beta_2^t in the last line; t is the
  number of the variable's updates, this one included.

  Make it inside the scope of the distribution strategy.

  Args:
    variables: Keras variables, which updates change.
    rate_at: takes the step, int64 []; returns the learning rate, float32 [].
    rate_scales: factors of the learning rate, one per variable; 1 but for
      fine-tuning with layer-wise learning rates.
    first_steps: the step from which a variable is updated, one per variable; 0
      but for fine-tuning with gradual unfreezing. Before, the variable and its
      moments do not change, and its gradient does not count in the clipped
      norm.
    corrects_bias: whether the moments are corrected.
  """

  def __init__(
    self,
    variables: Sequence,
    rate_at: Callable[[tf.Tensor], tf.Tensor],
    rate_scales: Sequence[float],
    first_steps: Sequence[int],
    corrects_bias: bool,
  ):
    self.rate_at = rate_at
    self.corrects_bias = corrects_bias
    self.rate_scales = rate_scales
    self.first_steps = first_steps

    self.paths = [variable.path for variable in variables]
    self.variables = [variable.value for variable in variables]
    self.decay_rates = [
      0.0 if any(part in path for part in _NOT_DECAYING) else WEIGHT_DECAY
      for path in self.paths
    ]

    # Only training on several tasks at once needs this, where a step updates
    # the variables of one task. For each variable, how many of the steps before
    # a step have updated it, int [steps]; None: all of them.
    self.updates_before: list[Sequence[int] | None] = [None] * len(variables)

    # Adam's estimates of the mean of a gradient, and of the mean of its square.
    self.adam_m = [_zeros_like(v) for v in self.variables]
    self.adam_v = [_zeros_like(v) for v in self.variables]

  @property
  def slots(self) -> dict[str, tf.Variable]:
    """The moments under their names in a checkpoint: <path>/adam_m, _v."""
    slots = {}
    for path, m, v in zip(self.paths, self.adam_m, self.adam_v, strict=True):
      slots[f"{path}/adam_m"] = m
      slots[f"{path}/adam_v"] = v
    return slots

  def share_moments(self, other: "AdamWeightDecayOptimizer") -> None:
    """Uses the moments of another optimizer for the variables of both."""
    # TensorFlow's variables cannot be keys of a dict: `==` compares values.
    theirs = {id(variable): i for i, variable in enumerate(other.variables)}
    for i, variable in enumerate(self.variables):
      if id(variable) in theirs:
        j = theirs[id(variable)]
        self.adam_m[i] = other.adam_m[j]
        self.adam_v[i] = other.adam_v[j]

  def clip_and_apply(
    self,
    gradients: Sequence[tf.Tensor],
    step: tf.Tensor,
    row_norms: tf.Tensor | None = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Clips the gradients by their global norm and updates the variables.

    Call it in replica context, with gradients summed over the replicas.

    Args:
      gradients: dense, one per variable; float32 or bfloat16.
      step: int64 [], the number of updates made so far.
      row_norms: from `row_norms`, summed like the gradients; float32
        [variables].
        None: the dense gradients have the norm that counts.

    Returns:
      The norm before clipping and the learning rate, both float32 []. If the
      norm is not finite, all updated values are NaN.
    """
    # As in `tf.clip_by_global_norm`, a norm that is not finite makes everything
    # NaN. bert/training/loop.py stops then.
    step = tf.convert_to_tensor(step, tf.int64)
    norm = self._global_norm(gradients, row_norms, step)
    factor = tf.minimum(1.0, CLIP_NORM / norm)
    factor = tf.where(tf.math.is_finite(norm), factor, float("nan"))

    # The update applies the factor, so that no clipped copy of the gradients is
    # made.
    rate = self.rate_at(step)
    scales = []
    for i in range(len(self.variables)):
      own_rate = rate * self.rate_scales[i]
      corrections = self._corrections(
        step, self.first_steps[i], self.updates_before[i]
      )
      scales.append(Scales(factor, own_rate, self.decay_rates[i], corrections))

    # Each replica runs this function, but a mirrored variable, one object for
    # the copies on all devices, must be updated once for all. `merge_call`
    # leaves the replicas' contexts: TensorFlow calls `_update_all` once, and
    # puts the strategy before its arguments.
    tf.distribute.get_replica_context().merge_call(
      self._update_all, (list(gradients), scales, step)
    )
    return norm, rate

  def _corrections(self, step, first, updates):
    """Computes the divisors of m and of the root of v, float32 []."""
    if not self.corrects_bias:
      return 1.0, 1.0

    # With several tasks, t counts only the steps that updated the variable. So
    # both steps become numbers of its updates.
    if updates is not None:
      counts = tf.constant(updates, tf.int64)
      step = tf.gather(counts, step)
      first = counts[min(first, len(updates) - 1)]

    # In float32, 1 - 0.999 has four digits.
    count = tf.cast(tf.maximum(step - first, 0) + 1, tf.float64)
    m_divisor = 1.0 - BETA_1**count
    v_divisor = tf.sqrt(1.0 - BETA_2**count)
    return tf.cast(m_divisor, tf.float32), tf.cast(v_divisor, tf.float32)

  def _global_norm(self, gradients, row_norms, step):
    """Computes `tf.linalg.global_norm` of the gradients that count."""
    # Half the square of each gradient's norm.
    halves = tf.stack([_half_square(gradient) for gradient in gradients])
    if row_norms is not None:
      # Where a gradient has rows, their norms replace the norm of their sum. In
      # pre-training all are 0, and the dense norms count. A NaN is not above 0:
      # then the dense norm counts, which is NaN, too.
      halves = tf.where(row_norms > 0.0, row_norms, halves)

    # A variable that is still frozen has a gradient, which must not count.
    if any(self.first_steps):
      halves = tf.where(step >= self.first_steps, halves, 0.0)
    return tf.sqrt(2.0 * tf.reduce_sum(halves))

  def _update_all(self, strategy, gradients, scales, step):
    """Updates all variables, on every device that has a copy of them."""
    # `_assign_adam` is faster; for several replicas see `_adam_each`.
    update = _assign_adam if strategy.num_replicas_in_sync == 1 else _adam_each
    for i, variable in enumerate(self.variables):
      # `extended.update` calls `update` for each copy of the variable, with the
      # copy as the first argument, and with its device's copies of the state.
      # The gradients are equal on all devices, since they were all-reduced.
      state = (gradients[i], self.adam_m[i], self.adam_v[i], scales[i])
      if self.first_steps[i]:
        args = (update, self.first_steps[i], step, state)
        strategy.extended.update(variable, _update_if_unfrozen, args)
      else:
        strategy.extended.update(variable, update, state)


def _update_if_unfrozen(variable, update, first_step, step, state):
  """Skips the update until `first_step`."""
  tf.cond(step >= first_step, lambda: update(variable, *state), lambda: None)


def _half_square(gradient):
  """Computes half the sum of squares, float32 []: half, as `tf.nn.l2_loss`."""
  # On a CPU, XLA squares bfloat16 without a float32 copy.
  kinds = {device.device_type for device in tf.config.list_logical_devices()}
  if gradient.dtype == tf.float32 or kinds != {"CPU"}:
    return tf.nn.l2_loss(tf.cast(gradient, tf.float32))
  return _wide_half_square(tf.reshape(gradient, [-1, gradient.shape[-1]]))


@tf.function(autograph=False, jit_compile=True)
def _wide_half_square(gradient):
  """Makes no float32 copy; on a CPU XLA multiplies faster than it sums."""
  squares = tf.square(tf.cast(gradient, tf.float32))
  return tf.reduce_sum(tf.matmul(squares, tf.fill([squares.shape[1], 1], 0.5)))


def _adam(p, gradient, m, v, scales):
  """Returns the new p, m and v, by the formulas of the optimizer's class."""
  # A gradient in bfloat16 is of a kernel that was multiplied in it.
  m_correction, v_correction = scales.corrections
  gradient = tf.cast(gradient, tf.float32) * scales.factor

  m = BETA_1 * m + (1.0 - BETA_1) * gradient
  v = BETA_2 * v + (1.0 - BETA_2) * tf.square(gradient)
  direction = (m / m_correction) / (tf.sqrt(v) / v_correction + EPSILON)
  # A number of Python, not a tensor: this is compiled with and without decay.
  if scales.decay:
    direction += scales.decay * p
  return p - scales.rate * direction, m, v


# Compiled, this makes one pass over the memory instead of fifteen: more than
# twice as fast on a CPU. It is compiled once for every shape; compiling all
# biases as one function gains nothing, because memory bandwidth is the limit.
_compiled_adam = tf.function(_adam, autograph=False, jit_compile=True)


@tf.function(autograph=False, jit_compile=True)
def _assign_adam(p, gradient, m, v, scales):
  """Updates in place, which is a quarter faster than writing copies."""
  new = _adam(p, gradient, m, v, scales)
  for variable, value in zip((p, m, v), new, strict=True):
    variable.assign(value)


def _adam_each(p, gradient, m, v, scales):
  """Updates one of several copies of a variable."""
  # The compiled function gets and returns values, lest the replicas share the
  # variables inside of it. This is a caution: on two CPU devices of one process
  # `_assign_adam` gives the right numbers, too (TensorFlow 2.21). Several GPUs
  # and several workers were not tried.
  old = [tf.convert_to_tensor(x) for x in (p, gradient, m, v)]
  new = _compiled_adam(*old, scales)
  for variable, value in zip((p, m, v), new, strict=True):
    variable.assign(value)


def _check_fine_tuning(layerwise_lr_decay, freeze_layers, num_layers):
  """Raises a ValueError that names a wrong flag."""
  if not 0 < layerwise_lr_decay <= 1:
    raise ValueError(
      f"--layerwise_lr_decay={layerwise_lr_decay}: expected a factor above 0, "
      "and at most 1 (all layers alike)"
    )
  numbers = range(num_layers + 1)
  if freeze_layers != "gradual" and freeze_layers not in numbers:
    raise ValueError(
      f"--freeze_layers={freeze_layers}: expected a number from 0 (none) to "
      f"{num_layers} (all layers of the model), or gradual"
    )


def create_optimizer(
  variables: Sequence,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int,
  layerwise_lr_decay: float = 1.0,
  freeze_layers: int | str = 0,
  steps_per_epoch: float | None = None,
  corrects_bias: bool = False,
) -> AdamWeightDecayOptimizer:
  """Makes the optimizer for training BERT; a ValueError names a wrong value.

  By default, as in pre-training, all variables have the full learning rate from
  step 0. `layerwise_lr_decay`, `freeze_layers` and `steps_per_epoch` are for
  fine-tuning.

  Args:
    variables: all variables that the model could train.
    init_lr: see `learning_rate_at`.
    num_train_steps: see `learning_rate_at`.
    num_warmup_steps: see `learning_rate_at`.
    layerwise_lr_decay: each part's learning rate is this factor times the one
      of the part above it; pooler and heads have the full learning rate.
    freeze_layers: N > 0: the embeddings and the N lowest layers never change,
      and have no gradients. "gradual": only pooler and heads change at first;
      every epoch unfreezes one more part, the embeddings last.
    steps_per_epoch: updates per epoch, for "gradual"; need not be whole.
    corrects_bias: whether Adam corrects the bias of its moments.
  """
  num_layers = count_layers(variable.path for variable in variables)
  _check_fine_tuning(layerwise_lr_decay, freeze_layers, num_layers)

  # The parts count upwards: 0 the embeddings, then the layers, last pooler and
  # heads. With N frozen layers the embeddings are frozen, too: N + 1 parts.
  top = num_layers + 1
  lowest = 0
  is_gradual = freeze_layers == "gradual"
  if freeze_layers and not is_gradual:
    lowest = int(freeze_layers) + 1

  # Frozen parts are not trained at all, so that they have no gradients.
  trained = []
  parts_above = []
  for variable in variables:
    layer = layer_of(variable.path)
    part = top if layer is None else layer
    if part >= lowest:
      trained.append(variable)
      parts_above.append(top - part)

  # Gradually, a part waits one epoch for each part above it.
  first_steps = [0] * len(trained)
  if is_gradual:
    first_steps = [
      # 7 epochs of 29 / 7 steps are 29 steps; floats give slightly more.
      math.ceil(epochs * steps_per_epoch - 1e-6)
      for epochs in parts_above
    ]

  return AdamWeightDecayOptimizer(
    trained,
    lambda step: learning_rate_at(
      step, init_lr, num_train_steps, num_warmup_steps
    ),
    rate_scales=[layerwise_lr_decay**count for count in parts_above],
    first_steps=first_steps,
    corrects_bias=corrects_bias,
  )
