"""The kinds of tasks of run_multitask.py, and the programs behind them."""

from collections.abc import Sequence
import dataclasses

from cli import classifier_settings, shared_flags, squad_settings
from contrib import language_models, shared_tasks, task_files
import run_multiple_choice
import run_tagging

# The settings of each kind, and the function that checks and opens its tasks.
KINDS = {
  "classifier": (
    classifier_settings.ClassifierSettings,
    shared_tasks.prepare_classifier,
  ),
  "tagging": (run_tagging.TaggingSettings, shared_tasks.prepare_tagging),
  "multiple_choice": (
    run_multiple_choice.ChoiceSettings,
    shared_tasks.prepare_multiple_choice,
  ),
  "squad": (squad_settings.SquadSettings, shared_tasks.prepare_squad),
  "masked_lm": (
    language_models.MaskedLmSettings,
    language_models.prepare_masked_lm,
  ),
  "causal_lm": (
    language_models.CausalLmSettings,
    language_models.prepare_causal_lm,
  ),
}


def prepare(
  settings: shared_flags.EvaluationSettings,
  entries: Sequence[task_files.Entry],
) -> dict[str, shared_tasks.Opener]:
  """Checks every task; returns the functions that open them, by name.

  Raises:
    ValueError: a task is wrong, or --best_metric names none of their scores.
  """
  task, _, metric = (settings.best_metric or task_files.MEAN).partition("/")
  names = [entry.name for entry in entries]
  if task not in names and (task != task_files.MEAN or metric):
    raise ValueError(
      f"--best_metric={settings.best_metric}: expected {task_files.MEAN}, or a "
      f"task and its score, such as {names[0]}/loss"
    )
  openers = {}
  for entry in entries:
    kind, prepare = KINDS[entry.kind]
    chosen = metric if entry.name == task and metric else None
    given = dataclasses.replace(settings, best_metric=chosen)
    own = task_files.make_settings(entry, given, kind)
    try:
      openers[entry.name] = prepare(own)
    except ValueError as error:
      raise ValueError(f"{entry.place}: {error}") from None
  return openers
