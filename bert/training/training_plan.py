"""The plan of a training: model, data, length, phase and steps of saving."""

from collections.abc import Callable, Mapping
import dataclasses
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert import optimization
from bert.inputs import training_input
from bert.training import prediction

# What a task says; see bert/training/step.py.
Forward = prediction.Forward
DEFAULT_FORWARD = prediction.DEFAULT_FORWARD
Predict = prediction.Predict
# (outputs, features) -> {name: (sum, weight)}. It is pure, and its weights
# depend on the features alone.
Loss = Callable[
  [Any, training_input.Features], dict[str, tuple[tf.Tensor, tf.Tensor]]
]


class Phase(NamedTuple):
  """A part of a run with the same settings.

  Most runs have one phase. Devlin et al. (section A.2) pre-train in two: 90 %
  of the steps with 128 tokens, the rest with 512.
  """

  first_step: int  # Updates made before it.
  first_record: int  # In the endless series of its records.
  settings: Mapping[str, Any]  # By the name of the flag.

  def record_at(self, step: int) -> int:
    """Returns the number of records to skip to resume at a step."""
    steps = step - self.first_step
    return self.first_record + steps * self.settings["train_batch_size"]


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
  """How long to train, with which batch size, and when to save."""

  output_dir: str
  num_train_steps: int
  train_batch_size: int  # Rows per update, over replicas and accumulation.
  gradient_accumulation_steps: int = 1
  save_checkpoints_steps: int = 1000
  keep_checkpoint_max: int = 5  # 0 keeps all.
  eval_every_steps: float = 0  # Rounded down each time. 0: never in training.
  iterations_per_loop: int = 1000  # Most steps per call of the compiled loop.
  seed: int = 12345  # Decides the dropout.
  recompute: bool = False  # Layers of model.bert: bert/training/memory.py.
  max_seq_length: int = 0  # To estimate model.bert's memory; 0: no.
  phase: Phase | None = None  # None: the run has one phase.
  # Sets weights that updates do not, such as a fitted classifier's.
  before_save: Callable[[], None] | None = None
  # Takes a step, the number of steps up to it that the means are of, and the
  # means by name; returns a warning or "".
  watch: Callable[[int, int, Mapping[str, float]], str] | None = None

  def next_stop(self, step: int) -> int:
    """Returns the first step after `step` at which to save or evaluate."""
    periods = filter(None, [self.save_checkpoints_steps, self.eval_every_steps])
    multiples = [_next_multiple(step, period) for period in periods]
    return min([self.num_train_steps, *multiples])

  def is_due(self, step: int, period: int) -> bool:
    """Returns whether something done every `period` steps, and last, is due.

    The last step is always due. A step less than a tenth of a period before it
    is therefore not, nor the step just before it.

    Args:
      step: the number of updates made so far.
      period: in steps; 0: only the last step is due.
    """
    left = self.num_train_steps - step
    if not left:
      return True

    # Two of these so close to each other would tell little more than one.
    if 10 * left < period or (left == 1 and period > 2):
      return False
    return period > 0 and step == _next_multiple(step - 1, period)

  def row_at(self, step: int) -> int:
    """Returns how many rows to skip to resume at a step."""
    if self.phase:
      return self.phase.record_at(step)
    return step * self.train_batch_size


class TrainingTask(NamedTuple):
  """One task's model, data and plan; most runs have only one task."""

  model: keras.Model
  optimizer: optimization.AdamWeightDecayOptimizer
  loss: Loss
  source: training_input.TrainingInput
  plan: TrainingPlan
  forward: Forward = DEFAULT_FORWARD
  # Only sentence vectors need this, whose loss compares the rows of a batch
  # with each other: it takes the place of `step.make_passes` for a batch in
  # several parts, and has its arguments; see bert/training/gradient_cache.py.
  make_passes: Callable[[Any, bool], Any] | None = None
  # Takes a `memory.UpdateSize` and the number of replicas that share a memory;
  # returns the bytes that `forward` takes besides the model.
  more_memory: Callable[[Any, int], float] | None = None
  # Only training on several tasks at once needs this: float32 [steps], factors
  # of this task's losses, by the step; None: 1.
  loss_factors: np.ndarray | None = None


def _next_multiple(step: int, period: float) -> int:
  """Returns the first step after `step` at which a period, at least 1, ends."""
  count = int(step / period)
  while int(count * period) <= step:
    count += 1
  return int(count * period)
