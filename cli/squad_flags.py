"""The flags of run_squad.py, and the objects made from them.

They are too many to stand in the program, where the model and its loss are.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import json
import os
import sys

from absl import flags
import numpy as np

from cli import fine_tuning
from cli import fine_tuning_flags
from data import files
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_inputs

FLAGS = flags.FLAGS

_THRESHOLD_FILE = "null_score_diff_threshold.json"
_TUNED = "eval_best_f1_threshold"


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=384)
  for name, text in (
    ("train_file", "Questions to train on: SQuAD's JSON, or JSON Lines."),
    (
      "predict_file",
      "Questions to answer: the same, or TSV of id, question and context. If "
      "it has answers, the predictions are scored.",
    ),
    (
      "eval_file",
      "Questions to evaluate on while training, and to tune the threshold on; "
      "by default --predict_file.",
    ),
  ):
    flags.DEFINE_string(name, None, text)
  for name, default, text in (
    ("doc_stride", 128, "Tokens from one window of a text to the next."),
    ("max_query_length", 64, "Tokens that a longer question is cut to."),
    ("n_best_size", 20, "Starts and ends to combine; answers to list."),
    ("max_answer_length", 30, "The most tokens of an answer."),
    (
      "num_processes",
      os.cpu_count() or 1,
      "Processes that make features; it does not change them.",
    ),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=1)
  flags.DEFINE_bool("do_predict", False, "Whether to answer, after training.")
  _define_choices()


def _define_choices():
  flags.DEFINE_bool(
    "version_2_with_negative",
    False,
    "Whether there are questions without an answer, as in SQuAD v2.0.",
  )
  flags.DEFINE_bool(
    "padding_competes",
    True,
    "Whether padding is among the places where an answer may start or end, in "
    "the loss and in the --n_best_size best ones, as it was in the original. "
    "False computes windows at their own length, which is faster.",
  )
  flags.DEFINE_string(
    "null_score_diff_threshold",
    "0.0",
    "A question gets no answer if the score of there being none is above the "
    "best answer's by more than this; or 'auto': what gave the best F1 on "
    "--eval_file, or in an evaluation before.",
  )
  flags.DEFINE_enum(
    "predictions_format",
    "jsonl",
    ["jsonl", "tsv"],
    "Of the readable file of predictions.",
  )
  flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Tells of each answer that could not be cut out of its words.",
  )


def check_flags() -> None:
  """Finds what contradicts itself before any work.

  Raises:
    ValueError: nothing is to be done, a file is not named, or a threshold is no
      number.
  """
  if not (FLAGS.do_train or FLAGS.do_predict):
    raise ValueError("nothing to do: pass --do_train=true or --do_predict=true")
  for does, name in (
    (FLAGS.do_train, "train_file"),
    (FLAGS.do_predict, "predict_file"),
  ):
    if does and not getattr(FLAGS, name):
      raise ValueError(f"--do_{name.split('_')[0]} needs --{name}")
  for name in ("train_file", "predict_file", "eval_file"):
    path = getattr(FLAGS, name)
    if path and not files.exists(path):
      raise ValueError(f"--{name}={path}: no such file")
  if _evaluates() and not (FLAGS.eval_file or FLAGS.predict_file):
    raise ValueError(
      "an evaluation while training needs --eval_file, or --predict_file"
    )
  if not is_automatic():
    fixed_threshold()
  elif not FLAGS.version_2_with_negative:
    raise ValueError(
      "--null_score_diff_threshold=auto needs --version_2_with_negative=true"
    )


def _evaluates():
  return fine_tuning.evaluates_while_training(FLAGS)


def settings() -> squad_features.Settings:
  """Returns what shapes the features."""
  return squad_features.Settings(
    vocab_file=FLAGS.vocab_file,
    do_lower_case=FLAGS.do_lower_case,
    max_seq_length=FLAGS.max_seq_length,
    doc_stride=FLAGS.doc_stride,
    max_query_length=FLAGS.max_query_length,
    version_2_with_negative=FLAGS.version_2_with_negative,
  )


def open_inputs(flag_settings, private: str) -> fine_tuning.Inputs:
  """Makes and opens the features that the flags ask for.

  Args:
    flag_settings: of the program.
    private: see `models.private_folder`.

  Raises:
    ValueError: a file is wrong.
  """
  shape = settings()

  def open_split(kind, path):
    return squad_inputs.open_split(
      kind, path, shape, private, FLAGS.num_processes
    )

  train = evaluated = predicted = None
  if FLAGS.do_train:
    train = open_split("train", FLAGS.train_file)
  if FLAGS.do_predict:
    predicted = open_split("eval", FLAGS.predict_file)
  if _evaluates() or (FLAGS.do_predict and is_automatic() and FLAGS.eval_file):
    path = FLAGS.eval_file or FLAGS.predict_file
    is_same = predicted and path == FLAGS.predict_file
    evaluated = predicted if is_same else open_split("dev", path)
    if not evaluated.is_labelled:
      raise ValueError(f"{path}: not all questions have answers to evaluate on")
  return fine_tuning.Inputs(
    shape,
    best_metric(),
    {
      "problem": "question_answering",
      # A model that never learned to leave padding alone would choose it.
      "padding_competes": FLAGS.padding_competes,
    },
    train,
    [evaluated] if evaluated else [],
    [predicted] if predicted else [],
    prediction_settings={
      "doc_stride": FLAGS.doc_stride,
      "max_query_length": FLAGS.max_query_length,
      "n_best_size": FLAGS.n_best_size,
      "max_answer_length": FLAGS.max_answer_length,
      "version_2_with_negative": FLAGS.version_2_with_negative,
      # The best threshold found in an evaluation has a file of its own.
      "null_score_diff_threshold": fixed_threshold(),
    },
  )


def best_metric() -> str:
  """Returns the score that decides which weights are best."""
  default, known = "f1", ["exact_match", "f1"]
  if FLAGS.version_2_with_negative:
    known += ["best_exact_match", "best_f1"]
  if is_automatic():
    default = "best_f1"
  return fine_tuning.best_metric(FLAGS, default, known)


def is_automatic() -> bool:
  """Tells whether the threshold is to be found out."""
  return FLAGS.null_score_diff_threshold.strip().lower() == "auto"


def fixed_threshold() -> float:
  """Returns the threshold of the flag, 0 if it is to be found out.

  Raises:
    ValueError: it is no number.
  """
  if is_automatic():
    return 0.0
  try:
    return float(FLAGS.null_score_diff_threshold)
  except ValueError:
    raise ValueError(
      f"--null_score_diff_threshold={FLAGS.null_score_diff_threshold}: "
      "expected a number, or auto"
    ) from None


def answer(
  split: squad_inputs.Split, logits: np.ndarray
) -> Iterator[squad_inputs.Answered]:
  """Answers the questions that the logits are of; see `squad_inputs.answer`."""
  settings = squad_answers.Settings(
    n_best_size=FLAGS.n_best_size,
    max_answer_length=FLAGS.max_answer_length,
    version_2_with_negative=FLAGS.version_2_with_negative,
    do_lower_case=FLAGS.do_lower_case,
  )

  def tell(message):
    print(f"note: {message}", file=sys.stderr)

  report = tell if FLAGS.verbose_logging else None
  return squad_inputs.answer(split, logits, settings, report)


def score(
  split: squad_inputs.Split, logits: np.ndarray, threshold: float | None = None
) -> dict[str, float]:
  """Scores the answers; without a threshold at that of the flag."""
  if threshold is None:
    threshold = fixed_threshold()
  return squad_inputs.score(
    answer(split, logits), FLAGS.version_2_with_negative, threshold
  )


def choose_threshold(
  folder: str,
  strategy,
  inputs: fine_tuning.Inputs,
  evaluate: Callable[[squad_inputs.Split], Mapping[str, float]],
) -> float:
  """Returns the threshold of the flag, or the best one there is to be found.

  Args:
    folder: of the run.
    strategy: only its chief writes what is found.
    inputs: has what to tune on: --eval_file; else, if no earlier evaluation
      left a threshold in the folder, --predict_file.
    evaluate: scores the model.

  Raises:
    ValueError: it is to be found out, and there is nothing to tune on.
  """
  if not is_automatic():
    return fixed_threshold()
  [split] = inputs.eval or [None]
  if split is None:
    known = _read_threshold(folder)
    if known is not None:
      return known
    [split] = inputs.predict
  if not split.is_labelled:
    raise ValueError(
      "--null_score_diff_threshold=auto needs --eval_file, with answers"
    )
  print(f"tuning --null_score_diff_threshold on {split.path}")
  threshold = evaluate(split)[_TUNED]
  if strategy.extended.should_checkpoint:
    path = _threshold_path(folder)
    files.write_text(path, json.dumps({_TUNED: threshold}) + "\n")
    print(f"wrote {path}: {threshold:.4f}")
  return threshold


def _read_threshold(folder):
  path = _threshold_path(folder)
  if not files.exists(path):
    return None
  try:
    return float(json.loads("\n".join(files.read_lines(path)))[_TUNED])
  except (ValueError, KeyError, TypeError):
    raise ValueError(
      f'{path}: expected {{"{_TUNED}": a number}}; delete it and evaluate again'
    ) from None


def _threshold_path(folder):
  return os.path.join(folder, _THRESHOLD_FILE)


def write_answers(
  folder: str, split: squad_inputs.Split, logits: np.ndarray, threshold: float
) -> None:
  """Writes answers to all questions, and scores them if theirs are known."""
  paths = _prediction_paths(folder)
  with squad_answers.open_writer(paths, threshold) as writer:
    for question, _, prediction in answer(split, logits):
      writer.add(question, prediction)
  for path in paths.values():
    print(f"wrote {path}")
  if split.is_labelled:
    _write_scores(folder, "predict", score(split, logits, threshold))


def _prediction_paths(folder):
  names = {
    "predictions": "predictions.json",
    "nbest": "nbest_predictions.json",
    "null_odds": "null_odds.json",
    "readable": f"predictions.{FLAGS.predictions_format}",
  }
  if not FLAGS.version_2_with_negative:
    del names["null_odds"]
  return {key: os.path.join(folder, name) for key, name in names.items()}


def _write_scores(folder, kind, metrics):
  values = (f"{name} {value:.4f}" for name, value in metrics.items())
  print(f"{kind}:  {'  '.join(values)}")
  path = os.path.join(folder, f"{kind}_metrics.json")
  content = {"metrics": dict(metrics)}
  files.write_text(path, json.dumps(content, indent=2) + "\n")
  print(f"wrote {path}")
