"""The phases of a pre-training run, kept in `output_dir/training.json`.

Most runs have one phase. Devlin et al. (section A.2) have two: 90 % of the
steps with 128 tokens, the rest with 512. Settings that affect the updates must
not change within a phase, so that a resumed run equals an uninterrupted one. A
new phase has to be requested. It keeps the step, the weights and Adam's
moments. If input and seed are those of the phase before, records continue after
the last one used; otherwise they begin at the first.
"""

from collections.abc import Mapping
import sys
from typing import Any, NamedTuple

from data import files

Settings = Mapping[str, Any]  # By the name of the flag.

# These decide which records are read, and in which order.
_ORDER = ("input_file", "seed")


class Phase(NamedTuple):
  """A part of a run with the same settings."""

  first_step: int  # Updates made before it.
  first_record: int  # In the endless series of its records.
  settings: Settings

  def record_at(self, step: int) -> int:
    """Returns the number of records to skip to resume at a step."""
    steps = step - self.first_step
    return self.first_record + steps * self.settings["train_batch_size"]


def enter(
  path: str, step: int, settings: Settings, is_new_phase: bool, writes: bool
) -> Phase:
  """Returns the phase to train in, after comparing it with the run so far.

  Args:
    path: of the run's `training.json`, which need not exist.
    step: at which training begins or resumes.
    settings: of this phase, with train_batch_size; values are JSON's.
    is_new_phase: whether changed settings may begin a new phase.
    writes: whether to write the file; only one worker does.

  Raises:
    ValueError: the settings have changed, or the file is damaged.
  """
  # Updates of phases that begin later are about to be made again.
  known = [p for p in _read(path) if p.first_step <= step] if step else []
  if step and not known:
    print(
      f"note: no {path}: how the checkpoint of step {step} was trained is not "
      f"known, so that none of {', '.join(settings)} is compared",
      file=sys.stderr,
    )
  found = list(known)
  # A phase that begins here has made no update: the one before it may go on.
  while len(known) > 1 and known[-1].first_step == step:
    if not _describe_changes(known[-1].settings, settings):
      break
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
    _write(path, known)
  return last


def _describe_changes(old: Settings, new: Settings) -> list[str]:
  return [
    f"--{name}={new[name]} (was {old.get(name, 'not recorded')})"
    for name in new
    if old.get(name) != new[name]
  ]


def _read(path: str) -> list[Phase]:
  if not files.exists(path):
    return []
  try:
    phases = files.read_json(path)["phases"]
    return [
      Phase(int(p.pop("first_step")), int(p.pop("first_record")), p)
      for p in phases
    ]
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise ValueError(
      f"{path}: not the phases of a run ({error!r}); delete it to go on with "
      "the settings given"
    ) from None


def _write(path: str, phases: list[Phase]) -> None:
  entries = [
    {"first_step": p.first_step, "first_record": p.first_record, **p.settings}
    for p in phases
  ]
  files.write_json(path, {"phases": entries})
