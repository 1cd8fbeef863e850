"""BERT's optimizer: Adam with decoupled weight decay and no bias correction.

Devlin et al., section A.2; Loshchilov & Hutter, https://arxiv.org/abs/1711.05101
for the decay. It is not `keras.optimizers.AdamW`: that one corrects the bias of
the moments and decays in a separate step.
"""

from collections.abc import Sequence
import re

import tensorflow as tf

CLIP_NORM = 1.0  # Of all gradients together, before every update.


def learning_rate_at(
  step: tf.Tensor, init_lr: float, num_train_steps: int, num_warmup_steps: int
) -> tf.Tensor:
  """Computes the rate of a step: linear warm-up, then linear decay to zero.

  The decay runs from step 0, so the peak is below `init_lr`, as it always was.

  Args:
    step: int64 [], the number of updates made so far.
    init_lr: the rate that warm-up aims at.
    num_train_steps: the step at which the rate reaches zero.
    num_warmup_steps: steps with a rising rate; 0 for none.

  Returns:
    float32 [].
  """
  done = tf.cast(tf.minimum(step, num_train_steps), tf.float32)
  decayed = init_lr * (1.0 - done / tf.cast(num_train_steps, tf.float32))
  if num_warmup_steps == 0:
    return decayed
  share = tf.cast(step, tf.float32) / tf.cast(num_warmup_steps, tf.float32)
  return tf.where(step < num_warmup_steps, init_lr * share, decayed)


class AdamWeightDecayOptimizer:
  """Updates variables as the original's optimizer of the same name did.

  m = beta_1 m + (1 - beta_1) g
  v = beta_2 v + (1 - beta_2) g^2
  p = p - rate (m / (sqrt(v) + epsilon) + decay p)

  Make it inside the scope of the distribution strategy.

  Args:
    variables: what to update.
    init_lr, num_train_steps, num_warmup_steps: see `learning_rate_at`.
    weight_decay_rate: the decay; none where the path matches an entry of
      exclude_from_weight_decay.
    beta_1, beta_2, epsilon: Adam's.
    exclude_from_weight_decay: regular expressions searched for in the path.
  """

  def __init__(
    self,
    variables: Sequence,
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int,
    weight_decay_rate: float = 0.01,
    beta_1: float = 0.9,
    beta_2: float = 0.999,
    epsilon: float = 1e-6,
    exclude_from_weight_decay: Sequence[str] = (
      "LayerNorm",
      "layer_norm",
      "bias",
    ),
  ):
    self.init_lr = init_lr
    self.num_train_steps = num_train_steps
    self.num_warmup_steps = num_warmup_steps
    self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
    self.paths = [variable.path for variable in variables]
    self.variables = [variable.value for variable in variables]
    self.decay_rates = [
      0.0
      if any(re.search(e, path) for e in exclude_from_weight_decay)
      else weight_decay_rate
      for path in self.paths
    ]
    self.adam_m = [_zeros_like(v) for v in self.variables]
    self.adam_v = [_zeros_like(v) for v in self.variables]

  @property
  def slots(self) -> dict[str, tf.Variable]:
    """The moments under their names in a checkpoint: <path>/adam_m, _v."""
    slots = {}
    for path, m, v in zip(self.paths, self.adam_m, self.adam_v, strict=True):
      slots[f"{path}/adam_m"], slots[f"{path}/adam_v"] = m, v
    return slots

  def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
    """Returns the rate of the update after `step` updates, float32 []."""
    return learning_rate_at(
      step, self.init_lr, self.num_train_steps, self.num_warmup_steps
    )

  def apply(self, gradients: Sequence[tf.Tensor | None], rate) -> None:
    """Updates the variables; call it in replica context with summed gradients.

    Args:
      gradients: dense, clipped, one per variable; None leaves it untouched.
      rate: float32 [], the learning rate.
    """

    def update(strategy, gradients, rate):
      for i, gradient in enumerate(gradients):
        if gradient is not None:
          slots = (gradient, self.adam_m[i], self.adam_v[i], rate)
          strategy.extended.update(
            self.variables[i], self._update_one, (*slots, self.decay_rates[i])
          )

    context = tf.distribute.get_replica_context()
    context.merge_call(update, args=(list(gradients), rate))

  def _update_one(self, variable, gradient, m, v, rate, decay):
    old = [tf.convert_to_tensor(x) for x in (variable, gradient, m, v)]
    new = _adam(*old, rate, decay, self.beta_1, self.beta_2, self.epsilon)
    for target, value in zip((variable, m, v), new, strict=True):
      target.assign(value)


# Compiled, this is one pass over the memory instead of fifteen: more than twice
# as fast on a CPU. The variables stay outside: within a compiled function the
# replicas would share them.
@tf.function(autograph=False, jit_compile=True)
def _adam(p, gradient, m, v, rate, decay, beta_1, beta_2, epsilon):
  m = beta_1 * m + (1.0 - beta_1) * gradient
  v = beta_2 * v + (1.0 - beta_2) * tf.square(gradient)
  step = m / (tf.sqrt(v) + epsilon)
  if decay:
    step += decay * p
  return p - rate * step, m, v


def create_optimizer(
  variables: Sequence,
  init_lr: float,
  num_train_steps: int,
  num_warmup_steps: int,
) -> AdamWeightDecayOptimizer:
  """Makes the optimizer that BERT is pre-trained and fine-tuned with."""
  return AdamWeightDecayOptimizer(
    variables, init_lr, num_train_steps, num_warmup_steps
  )


def _zeros_like(variable: tf.Variable) -> tf.Variable:
  return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)
