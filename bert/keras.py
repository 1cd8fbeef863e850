"""BERT's AdamW as an optimizer of Keras, for `compile` and `fit`.

  import bert.keras

  optimizer = bert.keras.AdamW(2e-5, num_train_steps, num_warmup_steps)
  model.compile(optimizer, loss)

`keras.optimizers.AdamW` makes other updates: optimization.py says which. Import
this file before `keras.saving.load_model` opens a model with a BERT in it.
"""

from typing import Any

import keras
import tensorflow as tf

from bert import optimization
from bert.encoders import compiled  # noqa: F401  Keras finds its layers so.


@keras.saving.register_keras_serializable("bert")
class AdamW(keras.optimizers.Optimizer):
  """Lets the optimizer of `optimization.create_optimizer` make the updates.

  The learning rate rises and falls as in the programs, and gradients are
  clipped by their global norm. It is for one device; the programs train on
  several.

  Args:
    init_lr: see `optimization.learning_rate_at`.
    num_train_steps: likewise; the batches of all epochs together.
    num_warmup_steps: likewise; may be 0.
    corrects_bias: whether Adam corrects the bias of its moments; BERT does not.
    name: of the optimizer.
  """

  def __init__(
    self,
    init_lr: float,
    num_train_steps: int,
    num_warmup_steps: int = 0,
    corrects_bias: bool = False,
    name: str = "bert_adamw",
  ):
    if num_train_steps < 1:
      raise ValueError(
        f"num_train_steps is {num_train_steps}, expected 1 or up"
      )
    rates = init_lr, num_train_steps, num_warmup_steps
    # The function lets callbacks read the learning rate.
    super().__init__(
      lambda: optimization.learning_rate_at(self.iterations, *rates), name=name
    )
    self._arguments: tuple[Any, ...] = (*rates, corrects_bias, name)

  def get_config(self) -> dict[str, Any]:
    names = "init_lr num_train_steps num_warmup_steps corrects_bias name"
    return dict(zip(names.split(), self._arguments, strict=True))

  def build(self, variables: Any) -> None:
    if self.built:
      return
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
      raise ValueError("bert.keras.AdamW is for one device")
    super().build(variables)
    *rates, corrects_bias, _ = self._arguments

    # `fit` builds the optimizer while TensorFlow records a graph, and there
    # `tf.Variable` makes variables of another class. With these the compiled
    # update of one model would refuse those of the next.
    variable_class = type(self._iterations.value)
    creator = tf.variable_creator_scope(lambda _, **kw: variable_class(**kw))
    with tf.init_scope(), creator:
      self._adam = optimization.create_optimizer(
        variables, *rates, corrects_bias=corrects_bias
      )
      # Keras saves and loads only variables that it has made.
      for name in ("adam_m", "adam_v"):
        made = [self.add_variable_from_reference(v, name) for v in variables]
        setattr(self._adam, name, [variable.value for variable in made])

  def apply(self, grads: Any, trainable_variables: Any = None) -> None:
    variables = list(trainable_variables or self._trainable_variables)
    self.build(variables)

    # Keras lets users freeze layers and compile again.
    if [v.path for v in variables] != self._adam.paths:
      raise ValueError("built for other variables: compile with a new AdamW")

    # As in the programs: a variable on which no loss depends gets zeros, and
    # clipping counts the rows of a repeated word one by one.
    pairs = zip(variables, grads, strict=True)
    gradients = [tf.zeros(v.shape) if g is None else g for v, g in pairs]
    norms = optimization.row_norms(gradients)
    dense = [tf.convert_to_tensor(g) for g in gradients]
    self._adam.clip_and_apply(dense, self._iterations.value, norms)
    self._iterations.assign_add(1)
