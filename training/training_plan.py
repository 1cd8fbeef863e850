"""The plan of a training: its model, data, length, phases and dates of saving.

Most runs have one phase. Devlin et al. (section A.2) pre-train in two: 90 % of
the steps with 128 tokens, the rest with 512. Settings that affect the updates
must not change within a phase. A new one, which has to be requested, keeps the
step, the weights and Adam's moments. Records continue after the last one used
if input and seed are the same; otherwise they begin at the first.
"""

from collections.abc import Callable, Mapping
import dataclasses
import sys
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from data import files
from inputs import training_input
import optimization

# (model, features, seed) -> {name: (sum, weight)}; see training/step.py.
LossFn = Callable[
  [keras.Model, training_input.Features, tf.Tensor | None],
  dict[str, tuple[tf.Tensor, tf.Tensor]],
]


# These decide which records are read, and in which order.
_ORDER = ("input_file", "seed")


class Phase(NamedTuple):
  """A part of a run with the same settings."""

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
  recompute: bool = False  # Layers of model.bert: training/memory.py.
  max_seq_length: int = 0  # To estimate model.bert's memory; 0: no.
  phase: Phase | None = None  # None: the run has one phase.
  # Takes the step, and the means of so many steps up to it; may warn.
  watch: Callable[[int, int, Mapping[str, float]], str] | None = None

  def next_stop(self, step: int) -> int:
    """Returns the first step after `step` at which to save or evaluate."""
    periods = filter(None, [self.save_checkpoints_steps, self.eval_every_steps])
    multiples = [_next_multiple(step, period) for period in periods]
    return min([self.num_train_steps, *multiples])

  def is_due(self, step: int, period: int) -> bool:
    """Returns whether something done every `period` steps, and last, is due.

    It is not if the last step is less than a tenth of a period away, or is the
    next step of a longer period.
    """
    left = self.num_train_steps - step
    if not left:
      return True
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
  loss_fn: LossFn
  source: training_input.TrainingInput
  plan: TrainingPlan
  # Float32 [steps], factors of its objective, by the step; None: 1.
  weights: np.ndarray | None = None
  begin: Callable[[], None] = lambda: None  # Called before the first update.


def _next_multiple(step: int, period: float) -> int:
  """Returns the first step after `step` at which a period, at least 1, ends."""
  count = int(step / period)
  while int(count * period) <= step:
    count += 1
  return int(count * period)


def enter_phase(
  path: str,
  step: int,
  settings: Mapping[str, Any],
  is_new_phase: bool,
  writes: bool,
) -> Phase:
  """Returns the phase to pre-train in, after comparing it with the run so far.

  `path` is the run's `training.json`; `settings`, JSON values, have
  train_batch_size. A ValueError says that they have changed without a new
  phase, or that the file is damaged.
  """
  found = _read_phases(path, step)
  if step and not found:
    print(
      f"note: no {path}: how the checkpoint of step {step} was trained is not "
      f"known, so that none of {', '.join(settings)} is compared",
      file=sys.stderr,
    )
  known = list(found)
  # A phase that begins here has made no update: the one before it may go on.
  while (
    len(known) > 1
    and known[-1].first_step == step
    and _describe_changes(known[-1].settings, settings)
  ):
    known.pop()
  last = known[-1] if known else Phase(0, 0, settings)
  changes = _describe_changes(last.settings, settings)
  if changes and not is_new_phase:
    raise ValueError(
      f"{', '.join(changes)}: the run of {path} cannot resume at step {step} "
      "with changed settings: restore them, choose another --output_dir, or "
      "start a new phase with --new_phase=true"
    )
  if changes:
    is_same_order = all(last.settings.get(k) == settings[k] for k in _ORDER)
    record = last.record_at(step) if is_same_order else 0
    print(
      f"new phase from step {step} and record {record}: {', '.join(changes)}"
    )
    known = [p for p in known if p.first_step < step]
    last = Phase(step, record, settings)
  if changes or not known:
    known.append(last)
  if writes and known != found:
    entries = [
      {"first_step": first_step, "first_record": record, **values}
      for first_step, record, values in known
    ]
    files.write_json(path, {"phases": entries})
  return last


def _describe_changes(old, new) -> list[str]:
  return [
    f"--{name}={new[name]} (was {old.get(name, 'not recorded')})"
    for name in new
    if old.get(name) != new[name]
  ]


def _read_phases(path: str, step: int) -> list[Phase]:
  """Reads the phases up to a step; later updates will be made again."""
  if not step or not files.exists(path):
    return []
  try:
    phases = [
      Phase(int(p.pop("first_step")), int(p.pop("first_record")), p)
      for p in files.read_json(path)["phases"]
    ]
    return [phase for phase in phases if phase.first_step <= step]
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{path}: not the phases of a run ({error!r}); delete it to go on with "
      "the settings given"
    ) from None
