"""Files of tasks that are trained together: a JSON list of tasks."""

from collections.abc import Mapping
import dataclasses
import os
import re
from typing import Any, NamedTuple

from cli import shared_flags
from contrib import task_sampling
from data import files

MEAN = "mean"  # The mean of the tasks' scores.
# Flags that all programs have, but whose values are a task's own.
_TASK_FLAGS = {
  "best_metric",
  "eval_batch_size",
  "max_seq_length",
  "max_train_examples",
  "predict_batch_size",
  "train_batch_size",
}
# Flags that a program reads only when it trains alone.
_WHOLE_RUN_FLAGS = {"seeds", "num_warmup_steps", "new_phase"}
_NAME = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_]")


class Entry(NamedTuple):
  """A task of a file."""

  place: str  # For messages: "tasks.json: task 'mrpc'".
  name: str
  kind: str
  rate: float | None  # None: by the number of its examples.
  weight: task_sampling.Weight
  fields: dict[str, Any]  # Flags of its program.


def read(path: str, kinds: Mapping[str, Any]) -> list[Entry]:
  """Reads a file of tasks.

  Raises:
    ValueError: an entry is wrong, or two have one name.
  """
  entries: dict[str, Entry] = {}
  for number, fields in enumerate(files.read_json(path, list), 1):
    place = f"{path}: task {number}"
    if not isinstance(fields, dict):
      raise ValueError(f"{place}: expected a JSON object")
    name, kind = fields.pop("name", None), fields.pop("kind", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
      raise ValueError(
        f"{place}: name is {name!r:.80}; expected letters, digits, -, _ or ."
      )
    place = f"{path}: task {name!r}"
    if name in entries:
      raise ValueError(f"{place}: a second task has this name")
    if name == MEAN:
      raise ValueError(f"{place}: the mean of all scores is called that")
    if not isinstance(kind, str) or kind not in kinds:
      raise ValueError(
        f"{place}: kind is {kind!r:.80}; known: {', '.join(kinds)}"
      )
    rate = fields.pop("rate", None)
    if rate is not None and not (_is_number(rate) and 0 < rate <= 1e9):
      raise ValueError(
        f"{place}: rate is {rate!r:.80}; expected more than 0, at most 1e9"
      )
    weight = fields.pop("weight", 1.0)
    _check_weight(weight, place)
    entries[name] = Entry(place, name, kind, rate, weight, fields)
  if not entries:
    raise ValueError(f"{path}: holds no task")
  return list(entries.values())


def _is_number(value: Any) -> bool:
  return type(value) in (int, float)


def _check_weight(weight: Any, place: str) -> None:
  knots = [[0, weight]] if _is_number(weight) else weight
  is_list = isinstance(knots, list) and knots
  if not is_list or not all(
    isinstance(knot, list)
    and len(knot) == 2
    and type(knot[0]) is int
    and _is_number(knot[1])
    and 0 <= knot[1] < float("inf")
    for knot in knots
  ):
    raise ValueError(
      f"{place}: weight is {weight!r:.80}; expected a number from 0 on, or "
      "[[step, number], ...]"
    )
  steps = [step for step, _ in knots]
  if steps != sorted(set(steps)):
    raise ValueError(f"{place}: the steps of its weight do not rise: {steps}")


def make_settings(
  entry: Entry,
  settings: shared_flags.EvaluationSettings,
  kind: type[shared_flags.FineTuningSettings],
) -> Any:
  """Returns the settings of a task: the entry's, else the run's.

  Args:
    kind: the class of the settings.

  Raises:
    ValueError: the entry has a flag that the program does not, or of all tasks.
  """
  common, own = settings.flag_values(), dict(entry.fields)
  for name in ("do_lower_case", "vocab_file"):
    if name in own and not _is_same(name, own.pop(name), common[name]):
      raise ValueError(
        f"{entry.place}: {name} is {entry.fields[name]}, the run's is "
        f"{common[name]}: tasks that share an encoder have one casing and one "
        "vocabulary"
      )
  shared = sorted(common.keys() - _TASK_FLAGS & own.keys())
  if shared:
    raise ValueError(
      f"{entry.place}: {shared[0]} is the same for all tasks: give it as a flag"
    )
  if unread := sorted(own.keys() & _WHOLE_RUN_FLAGS):
    raise ValueError(f"{entry.place}: {unread[0]} is not for one of many tasks")
  chosen = settings.best_metric
  if chosen and own.get("best_metric", chosen) != chosen:
    raise ValueError(
      f"{entry.place}: best_metric is {own['best_metric']}, but "
      f"--best_metric={entry.name}/{chosen}"
    )
  if entry.kind == "masked_lm" and settings.max_train_examples:
    raise ValueError(
      f"{entry.place}: all its records are used: instead of "
      "--max_train_examples, give the other tasks max_train_examples"
    )
  folder = os.path.join(settings.output_dir, "tasks", entry.name)
  try:
    parsed = kind.parse({"output_dir": folder, **own})
  except ValueError as error:
    raise ValueError(f"{entry.place}: {error}") from None
  names = [n for n in kind.flags_by_name() if n in common and n not in own]
  values = {name: common[name] for name in names} | {"output_dir": folder}
  if entry.kind == "squad":  # It scores its predictions.
    values["do_predict"] = settings.do_predict or settings.do_eval
  return dataclasses.replace(parsed, **values, given=frozenset(own))


def _is_same(name: str, value: Any, other: Any) -> bool:
  if name == "vocab_file" and files.exists(str(value)):
    return files.hash_file(str(value)) == files.hash_file(other)
  return value == other
