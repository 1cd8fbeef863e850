"""Fine-tunes BERT to answer questions: SQuAD v1.1, v2.0 and your own texts.

  python run_squad.py --do_train=true --train_file=train-v1.1.json \\
    --do_predict=true --predict_file=dev-v1.1.json --model=$BERT \\
    --learning_rate=3e-5 --output_dir=/tmp/squad
"""

import os

from absl import flags

from cli import fine_tuning_flags
from cli import program


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=384)
  program.group("Data")
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
    ("max_query_length", 64, "Tokens to which a longer question is truncated."),
    ("num_processes", os.cpu_count() or 1, "Processes that make features."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=1)
  flags.DEFINE_bool(
    "version_2_with_negative",
    False,
    "Whether there are questions without an answer, as in SQuAD v2.0.",
  )
  flags.DEFINE_bool(
    "padding_competes",
    True,
    "Whether padding can start or end an answer, in the loss too, as in the "
    "original. False pads batches only to their longest window: faster.",
  )
  _define_answer_flags()


def _define_answer_flags():
  program.group("Evaluation and prediction")
  flags.DEFINE_bool("do_predict", False, "Whether to answer, after training.")
  for name, default, text in (
    ("n_best_size", 20, "Starts and ends to combine; answers to list."),
    ("max_answer_length", 30, "The most tokens of an answer."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=1)
  flags.DEFINE_bool(
    "whole_word_answers",
    False,
    "Whether an answer is widened to whole words. By default it ends where its "
    "tokens do, as in the original, which may be inside a word.",
  )
  flags.DEFINE_string(
    "null_score_diff_threshold",
    "0.0",
    "A question gets no answer if the score of no answer exceeds that of the "
    "best answer by more than this; or 'auto': what gave the best F1 on "
    "--eval_file, or in an evaluation before.",
  )
  flags.DEFINE_enum(
    "predictions_format", "jsonl", ["jsonl", "tsv"], "Of the readable file."
  )
  flags.DEFINE_bool(
    "verbose_logging",
    False,
    "Prints a note if the words of an answer lack the text of its tokens.",
  )


if __name__ == "__main__":
  program.start(define_flags)

from collections.abc import Iterator
import functools
import sys

import keras
import tensorflow as tf

from cli import devices
from cli import fine_tuning
from cli import flag_values
from cli import squad_settings
from cli import task_training
import heads
import modeling
from tasks import squad_answers
from tasks import squad_features
from tasks import squad_inputs
from tasks import squad_report
from tasks import squad_results

_NEVER = -1e9  # Far below any logit.


def create_model(config: modeling.EncoderConfig, dtype: str) -> keras.Model:
  """Makes the model; this is the place for another head.

  Returns:
    A model called with input_ids, input_mask and segment_ids, int32 [B, S], and
    a seed for its dropout, int32 [2] or None; returns a `heads.SpanOutput`.
  """
  return heads.SpanModel(config, dtype)


def compute_logits(model, features, settings, seed=None) -> heads.SpanOutput:
  """Computes the logits of a batch, float32 [B, S]."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)
  if settings.padding_competes:
    return logits
  padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
  return heads.SpanOutput(*(values + _NEVER * padding for values in logits))


def predict(model, features, settings) -> dict[str, tf.Tensor]:
  """Computes the logits of a batch, float32 [B, max_seq_length]."""
  missing = settings.max_seq_length - tf.shape(features["input_ids"])[1]
  logits = compute_logits(model, features, settings)._asdict()
  return {
    name: tf.pad(values, [[0, 0], [0, missing]], constant_values=_NEVER)
    for name, values in logits.items()
  }


def loss_fn(model, features, seed, settings):
  """Sums the losses over a batch; see `loop.LossFn`.

  The loss of a window is the mean cross entropy of its start and its end.
  """
  logits = compute_logits(model, features, settings, seed)
  losses = [
    tf.nn.sparse_softmax_cross_entropy_with_logits(features[labels], values)
    for labels, values in (
      ("start_positions", logits.start_logits),
      ("end_positions", logits.end_logits),
    )
  ]
  losses = tf.add_n(losses) / 2.0  # [B]
  weights = tf.ones_like(losses)
  return {"span_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def make_recipe(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of the flags; see `fine_tuning.follow`."""
  settings = squad_settings.check(settings)
  return fine_tuning.Recipe(
    settings,
    open_inputs,
    lambda config, inputs, dtype: create_model(config, dtype),
    functools.partial(predict, settings=settings),
    lambda run: functools.partial(loss_fn, settings=settings),
    evaluate,
    finish,
    perfect=100.0,
  )


def open_inputs(
  settings: flag_values.Settings, folder: str
) -> fine_tuning.Inputs:
  """Finds the data of a run; see `fine_tuning.open_run`."""
  shape = flag_values.fill(squad_features.Settings, settings)
  shape.check()
  evaluated = squad_settings.tuning_file(settings)
  if task_training.evaluates(settings):
    evaluated = settings.eval_file or settings.predict_file
  if settings.eval_file and not evaluated:
    raise ValueError("--eval_file is not read: pass it as --predict_file")
  paths = {"train": settings.train_file} if settings.do_train else {}
  if settings.do_predict:
    paths["eval"] = settings.predict_file  # The original's name for it.
  if evaluated and evaluated != paths.get("eval"):
    paths["dev"] = evaluated
  common = (shape, folder, settings.max_train_examples, settings.num_processes)
  splits = {
    kind: squad_inputs.Split(kind, path, *common, path == evaluated)
    for kind, path in paths.items()
  }
  predicted = [splits["eval"]] if settings.do_predict else []
  names = ["doc_stride", "max_query_length", "n_best_size", "max_answer_length"]
  names += ["version_2_with_negative", "whole_word_answers"]
  return fine_tuning.Inputs(
    shape,
    squad_settings.best_metric(settings),
    {
      "problem": "question_answering",
      # A model that has not learned to avoid padding would choose it.
      "padding_competes": settings.padding_competes,
    },
    splits.get("train"),
    [splits["dev"]] if "dev" in splits else predicted if evaluated else [],
    predicted,
    prediction_settings={
      **{name: getattr(settings, name) for name in names},
      # A tuned threshold has its own file.
      "null_score_diff_threshold": settings.null_score_diff_threshold or 0.0,
    },
  )


def answer(
  run: fine_tuning.Run, split: squad_inputs.Split
) -> Iterator[squad_results.Answered]:
  """Computes the logits of a split; returns the answers from them."""
  settings = run.settings
  logits = squad_inputs.compute_logits(
    run.predictor,
    split,
    run.parser(split),
    run.batch_order(split, settings.predict_batch_size),
    run.private,
  )
  report = None
  if settings.verbose_logging:
    report = functools.partial(print, "note:", file=sys.stderr)
  answer_settings = flag_values.fill(squad_answers.Settings, settings)
  return squad_inputs.answer(split, logits, answer_settings, report)


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on questions with answers."""
  judgements = [found.judgement for found in answer(run, run.inputs.eval[0])]
  threshold = run.settings.null_score_diff_threshold or 0.0
  if run.is_chief:
    squad_results.warn_if_collapsed(judgements, threshold)
  return squad_results.score(judgements, threshold)


def write_predictions(run: fine_tuning.Run) -> None:
  """Answers all questions, writes the answers and scores them if possible."""
  settings, [split] = run.settings, run.inputs.predict
  tuned_on = (
    run.inputs.eval[0] if squad_settings.tuning_file(settings) else None
  )
  answered = answer(run, split)
  tuning = answer(run, tuned_on) if tuned_on not in (None, split) else None
  if not run.is_chief:
    return
  if tuned_on:
    print(f"tuning --null_score_diff_threshold on {tuned_on.source}")
  if tuned_on is split:
    answered = tuning = squad_results.Spool(answered, run.private)
  kinds = squad_report.Breakdown()
  scores = squad_results.write_predictions(
    run.folder,
    answered,
    squad_results.choose_threshold(
      run.folder if tuning else run.tuned_folder,
      settings.null_score_diff_threshold,
      tuning,
    ),
    settings.predictions_format,
    settings.version_2_with_negative,
    kinds.add,
  )
  if scores:
    run.note_score(scores)
    run.report_on(split, lambda _: kinds.describe(scores))
  elif labelled := split.features.facts["labelled"]:
    count = split.features.facts["questions"]
    print(f"not scored: only {labelled:,} of {count:,} questions have answers")


def finish(run: fine_tuning.Run) -> None:
  """Answers as flags say."""
  if run.settings.do_predict:
    write_predictions(run)


def main() -> None:
  recipe = make_recipe(fine_tuning.read_settings())
  fine_tuning.follow(recipe, devices.make_strategy(recipe.settings))


if __name__ == "__main__":
  program.run_program(main)
