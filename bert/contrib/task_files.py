"""Files of tasks that are trained together: a JSON list of tasks."""

from collections.abc import Callable, Sequence
import dataclasses
import os
import re
from typing import Any, NamedTuple

from bert import run_classifier, run_multiple_choice, run_tagging
from bert.cli import output_folder, shared_flags, squad_settings
from bert.contrib import (
  causal_language_model,
  masked_language_model,
  shared_tasks,
  task_sampling,
)
from bert.data import files
from bert.weights import checkpoints

# The settings of each kind of task, and the function that checks them.
KINDS: dict[str, tuple[type, Callable[..., shared_tasks.SharedTask]]] = {
  "classifier": (
    run_classifier.ClassifierSettings,
    shared_tasks.prepare_classifier,
  ),
  "tagging": (run_tagging.TaggingSettings, shared_tasks.prepare_tagging),
  "multiple_choice": (
    run_multiple_choice.ChoiceSettings,
    shared_tasks.prepare_multiple_choice,
  ),
  "squad": (squad_settings.SquadSettings, shared_tasks.prepare_squad),
  "masked_lm": (
    masked_language_model.MaskedLmSettings,
    masked_language_model.prepare,
  ),
  "causal_lm": (shared_flags.DataSettings, causal_language_model.prepare),
}
MEAN = "mean"  # The mean of the tasks' scores.
_STEPS = ("do_train", "do_eval", "do_predict")  # A run's, and no task's.
# Flags that all programs have, but whose values are a task's own.
_TASK_FLAGS = {
  "best_metric",
  "distillation_alpha",
  "distillation_temperature",
  "eval_batch_size",
  "max_seq_length",
  "max_train_examples",
  "predict_batch_size",
  "teacher",
  "train_batch_size",
}


class Entry(NamedTuple):
  """A task of a file."""

  place: str  # For messages: "tasks.json: task 'mrpc'".
  name: str
  kind: str
  rate: float | None  # None: by the number of its examples.
  weight: task_sampling.Weight
  fields: dict[str, Any]  # Flags of its program.


def _is_name(value) -> bool:
  pattern = r"[A-Za-z0-9_.-]*[A-Za-z0-9_]"
  return isinstance(value, str) and bool(re.fullmatch(pattern, value))


def _is_number(value) -> bool:
  return type(value) in (int, float) and 0 <= value < float("inf")


def _is_factor(value) -> bool:
  """Returns whether a loss may be multiplied by a number.

  Far outside of this range, float32 has no number for the weight, for the sum
  of the squares of the gradients, or for their share in an update of Adam.
  """
  return _is_number(value) and (value == 0 or 1e-9 <= value <= 1e9)


def _is_weight(value) -> bool:
  knots = [[0, value]] if _is_factor(value) else value
  if not isinstance(knots, list) or not all(map(_is_knot, knots)):
    return False
  steps = [step for step, _ in knots]
  return bool(steps) and steps == sorted(set(steps))


def _is_knot(value) -> bool:
  is_pair = isinstance(value, list) and len(value) == 2
  return is_pair and type(value[0]) is int and _is_factor(value[1])


# The fields that are no flags: default, check, and what it expects.
_FIELDS = {
  "name": (None, _is_name, "expected letters, digits, -, _ or ."),
  "kind": (None, list(KINDS).__contains__, f"known: {', '.join(KINDS)}"),
  "rate": (
    None,
    lambda rate: rate is None or _is_number(rate) and 0 < rate <= 1e9,
    "expected more than 0, at most 1e9",
  ),
  "weight": (
    1.0,
    _is_weight,
    "expected 0, a number from 1e-9 to 1e9, or [[step, number], ...] with "
    "rising steps",
  ),
}


def read(path: str) -> list[Entry]:
  """Reads a file of tasks; a ValueError says what is wrong with one."""
  # The fields of `_FIELDS` are checked here. The rest are flags of the task's
  # program, which `prepare` checks as the program itself does.
  entries: dict[str, Entry] = {}
  for number, fields in enumerate(files.read_json(path, list), 1):
    if not isinstance(fields, dict):
      raise ValueError(f"{path}: task {number}: expected a JSON object")
    place = f"{path}: task {fields.get('name', number)!r:.80}"

    own = {}
    for name, (default, is_right, rule) in _FIELDS.items():
      own[name] = fields.pop(name, default)
      if not is_right(own[name]):
        raise ValueError(f"{place}: {name} is {own[name]!r:.80}; {rule}")

    # Names become folders, and the first part of the names of scores.
    if own["name"] in entries:
      raise ValueError(
        f"{place}: a second task has this name; expected each once"
      )
    if own["name"] == MEAN:
      raise ValueError(
        f"{place}: the mean of all scores is called that; choose another name"
      )
    entries[own["name"]] = Entry(place, **own, fields=fields)

  if not entries:
    raise ValueError(f"{path}: holds no task")
  return list(entries.values())


def prepare(
  settings: shared_flags.EvaluationSettings, entries: Sequence[Entry]
) -> dict[str, shared_tasks.SharedTask]:
  """Checks --best_metric and the flags of every task; returns them by name."""
  task, _, metric = (settings.best_metric or MEAN).partition("/")
  names = [entry.name for entry in entries]
  if task not in names and (task != MEAN or metric):
    raise ValueError(
      f"--best_metric={settings.best_metric}: expected {MEAN}, or a task and "
      f"its score, such as {names[0]}/loss"
    )

  # The folders of tasks have the weights of a training that is complete.
  for name in names if output_folder.begins_anew(settings) else ():
    folder = os.path.join(settings.output_dir, "tasks", name)
    if checkpoints.latest_checkpoint(folder):
      raise ValueError(
        f"--output_dir={settings.output_dir}: its checkpoints are gone, so a "
        f"training would begin anew, but with the weights in {folder}: move "
        "the folder tasks away, or choose another --output_dir"
      )

  # --best_metric names the score of one task. The other tasks keep the scores
  # that their entries name, or their programs' usual ones.
  tasks = {}
  for entry in entries:
    chosen = metric if entry.name == task and metric else None
    given = dataclasses.replace(settings, best_metric=chosen)
    settings_class, check = KINDS[entry.kind]
    try:
      of_task = _make_settings(entry, given, settings_class)
      of_task.check()
      tasks[entry.name] = check(of_task)
    except ValueError as error:
      raise ValueError(f"{entry.place}: {error}") from None
  return tasks


def _make_settings(entry: Entry, settings, settings_class) -> Any:
  """Returns the settings of a task: the entry's, else the run's."""
  # A task may repeat the run's vocabulary and casing.
  common = settings.flag_values()
  own = {
    name: value
    for name, value in entry.fields.items()
    if not _is_the_runs(name, value, common.get(name))
  }

  # One encoder and one loop: most flags can only have one value.
  if shared := sorted((common.keys() - _TASK_FLAGS) & own.keys()):
    raise ValueError(f"{shared[0]} is the same for all tasks: give the flag")
  if "seeds" in own:
    raise ValueError("seeds is not for one of many tasks; leave it out")
  chosen = settings.best_metric
  if chosen and own.get("best_metric", chosen) != chosen:
    raise ValueError(
      f"best_metric is {own['best_metric']}, but "
      f"--best_metric={entry.name}/{chosen}"
    )

  # The task's program reads the entry's flags, with its own messages. The run's
  # flags then take the place of defaults; but a default of the run does not if
  # the task's program has another, as run_squad.py's --max_seq_length is.
  folder = os.path.join(settings.output_dir, "tasks", entry.name)
  parsed = settings_class.parse({"output_dir": folder, **own})
  run_flags = type(settings).flags_by_name()
  names = [
    name
    for name, flag in settings_class.flags_by_name().items()
    if name in common
    and name not in own
    and (name in settings.given or flag.default == run_flags[name].default)
  ]
  values = {name: common[name] for name in names}
  values |= {"output_dir": folder, "open_model": settings.open_model}
  if entry.kind == "squad":  # It scores its predictions.
    values["do_predict"] = settings.do_predict or settings.do_eval

  # `check_needs` refuses flags in `given` that would have no effect. But the
  # file that a training had, --calibrate in it, also serves later predictions.
  given = frozenset(own)
  if not settings.do_train:
    flags = settings_class.flags_by_name()
    given = frozenset(name for name in own if flags[name].needs not in _STEPS)
  made = dataclasses.replace(parsed, **values, given=given)
  made.check_needs()
  return made


def _is_the_runs(name: str, value: Any, other: Any) -> bool:
  """Returns whether a task repeats the run's casing or vocabulary."""
  if name == "vocab_file" and files.exists(str(value)):
    return files.hash_file(str(value)) == files.hash_file(other)
  return name in ("vocab_file", "do_lower_case") and value == other
