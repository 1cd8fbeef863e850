"""What the flags of run_squad.py mean together."""

import dataclasses

from absl import flags

from cli import fine_tuning
from cli import flag_values
from cli import run_records
from cli import task_training
from data import files
from tasks import squad_results


def check(settings: flag_values.Settings) -> flag_values.Settings:
  """Checks flags; returns them with what one of them means for another.

  The null_score_diff_threshold is a number then, or None to tune it.

  Raises:
    ValueError: they contradict each other, or a file is not there.
  """
  if not (settings.do_train or settings.do_predict):
    raise ValueError("nothing to do: pass --do_train=true or --do_predict=true")
  for name, is_asked in (
    ("train_file", settings.do_train),
    ("predict_file", settings.do_predict),
    ("eval_file", False),
  ):
    path = getattr(settings, name)
    if is_asked and not path:
      raise ValueError(f"--do_{name.split('_')[0]} needs --{name}")
    if path and not files.exists(path):
      raise ValueError(f"--{name}={path}: no such file")
  evaluates = task_training.evaluates(settings)
  if evaluates and not (settings.eval_file or settings.predict_file):
    raise ValueError(
      "an evaluation while training needs --eval_file, or --predict_file"
    )
  threshold = squad_results.parse_threshold(settings.null_score_diff_threshold)
  is_given = settings.null_score_diff_threshold != "0.0"
  if (name := "null_score_diff_threshold") in flags.FLAGS:
    is_given = flags.FLAGS[name].present
  if not is_given and _find_tuned(settings) is not None:
    threshold = None
  if threshold is None and not settings.version_2_with_negative:
    raise ValueError(
      "--null_score_diff_threshold=auto needs --version_2_with_negative=true"
    )
  name = "whole_word_answers"
  is_asked = settings.do_train or flag_values.is_given(name)
  if settings.whole_word_answers and is_asked:
    check_whole_words(settings.vocab_file)
  pads = settings.padding_competes or settings.pad_to_max_length
  settings = dataclasses.replace(
    settings, null_score_diff_threshold=threshold, pad_to_max_length=pads
  )
  best_metric(settings)
  return settings


def check_whole_words(vocab_file: str) -> None:
  """Raises a ValueError if pieces do not say which ones go on with a word."""
  if vocab_file.endswith((".model", ".json")):
    raise ValueError(
      f"--whole_word_answers needs a vocab.txt, not {vocab_file}: only its "
      "pieces say that a word goes on"
    )


def best_metric(settings: flag_values.Settings) -> str:
  """Returns the name of the score that decides which weights are best."""
  known = ["exact_match", "f1"]
  if settings.version_2_with_negative:
    known += ["best_exact_match", "best_f1"]
  default = "best_f1" if settings.null_score_diff_threshold is None else "f1"
  return fine_tuning.best_metric(settings, default, known)


def _find_tuned(settings) -> float | None:
  """Returns the threshold that an earlier run tuned for the same weights."""
  if settings.do_train or not settings.version_2_with_negative:
    return None
  folder = run_records.tuned_folder(settings)
  return squad_results.read_threshold(folder) if folder else None


def tuning_file(settings: flag_values.Settings) -> str | None:
  """Returns the file to tune the threshold on; None to tune nothing.

  It is --eval_file, else --predict_file, unless an earlier run has tuned the
  threshold of these weights: in this folder, if a flag asks for it.
  """
  is_tuned = settings.null_score_diff_threshold is None
  if not (settings.do_predict and is_tuned):
    return None
  is_asked = flag_values.is_given("null_score_diff_threshold")
  is_own = run_records.tuned_folder(settings) == settings.output_dir
  is_kept = not settings.eval_file and (is_own or not is_asked)
  if is_kept and _find_tuned(settings) is not None:
    return None
  return settings.eval_file or settings.predict_file
