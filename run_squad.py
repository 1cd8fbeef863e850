"""Fine-tunes BERT to answer questions: SQuAD v1.1, v2.0 and your own texts.

  python run_squad.py --do_train=true --train_file=train-v1.1.json \\
    --do_predict=true --predict_file=dev-v1.1.json --learning_rate=3e-5 \\
    --model=google-bert/bert-base-uncased --output_dir=/tmp/squad
"""

from bert.cli import program, squad_settings

SquadSettings = squad_settings.SquadSettings

if __name__ == "__main__":
  program.start(SquadSettings)

from collections.abc import Iterator
import functools
from typing import NamedTuple

import keras
import tensorflow as tf

from bert import calls, heads, modeling
from bert.cli import devices, fine_tuning, model_folder, output_folder
from bert.tasks import squad_data, squad_metrics, squad_results

_NEVER = -1e9  # Far below any logit.


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data | None, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B, S], and a seed for
  its dropout, int32 [2] or None; it returns a `heads.SpanOutput`.

  Args:
    config: of the encoder, read from bert_config.json.
    data: not read here.
    dtype: a Keras policy, "float32" or "mixed_bfloat16".
  """
  return heads.SpanModel(config, dtype)


def exclude_padding(logits, features, settings) -> heads.SpanOutput:
  """Lowers the logits of padding, unless it competes as in the original.

  Args:
    logits: of starts and of ends, float32 [B, S] each.
    features: of which input_mask is read, int32 [B, S].
    settings: with --padding_competes, the logits stay as they are.
  """
  # As in the original, whose rows all have max_seq_length tokens. Otherwise a
  # result must not depend on how far a batch is padded.
  if settings.padding_competes:
    return logits

  padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
  start_logits, end_logits = logits
  return heads.SpanOutput(
    start_logits + _NEVER * padding, end_logits + _NEVER * padding
  )


def predict(logits, features, settings) -> dict[str, tf.Tensor]:
  """Returns start_logits and end_logits, float32 [B, max_seq_length].

  Args:
    logits: float32 [B, S] each.
    features: the batch.
    settings: the flags.
  """
  # Batches are only as long as their longest row, but `compute_logits` keeps
  # all logits in one array.
  missing = settings.max_seq_length - tf.shape(features["input_ids"])[1]
  logits = exclude_padding(logits, features, settings)
  return {
    name: tf.pad(values, [[0, 0], [0, missing]], constant_values=_NEVER)
    for name, values in logits._asdict().items()
  }


def loss(logits, features, settings):
  """Sums the losses over the windows of a batch; see `training_plan.Loss`.

  Args:
    logits: float32 [B, S] each.
    features: with start_positions and end_positions, int32 [B], both 0, where
      [CLS] is, if the window does not hold the answer.
    settings: the flags.
  """
  start_logits, end_logits = exclude_padding(logits, features, settings)
  starts = features["start_positions"]
  ends = features["end_positions"]

  # Section 4.2 of the paper: the start and the end are each chosen by a softmax
  # over all tokens. The loss is their mean, as in the original.
  compare = tf.nn.sparse_softmax_cross_entropy_with_logits
  losses = (compare(starts, start_logits) + compare(ends, end_logits)) / 2.0
  weight = tf.cast(tf.size(starts), tf.float32)
  return {"span_loss": (tf.reduce_sum(losses), weight)}


def check(settings: SquadSettings, config: modeling.EncoderConfig) -> None:
  """Raises a ValueError if flags do not fit each other or the model.

  Those that were not given are by now what the weights were trained with.
  """
  settings.check_answers()

  # "No answer" is the span at [CLS], the first token.
  if settings.version_2_with_negative and not config.is_bidirectional:
    raise ValueError(
      "--version_2_with_negative: [CLS], which stands for no answer, sees no "
      "other token in this model, which reads from left to right"
    )


class ThresholdPlan(NamedTuple):
  """By which threshold a question gets no answer."""

  prefers_tuned: bool = False  # A tuned one, to that of the flag.
  tuning_file: str | None = None  # Where one is tuned before; None: nowhere.
  keeps_tuned: bool = False  # An earlier one of the same weights, if there is.


def plan_threshold(settings: SquadSettings) -> ThresholdPlan:
  """Chooses between the threshold of the flag and one that is tuned.

  Without --null_score_diff_threshold, a threshold that was tuned for these
  weights is used. With auto, one is tuned, unless --output_dir already has one
  of these weights, as `choose_tuning` finds when there is a model.
  """
  # In SQuAD 1.1 every question has an answer.
  if not settings.version_2_with_negative:
    return ThresholdPlan()

  # A threshold belongs to the weights that it was tuned for, so one that is
  # there says nothing after a training.
  is_given = "null_score_diff_threshold" in settings.given
  was_tuned = False
  if not settings.do_train:
    folders = [settings.output_dir]
    if not is_given:
      folders.append(output_folder.trained_folder(settings))
    was_tuned = squad_results.has_threshold(folders)

  # A number on the command line counts more than any tuned threshold.
  if not settings.asks_for_tuned and (is_given or not was_tuned):
    return ThresholdPlan()

  # A tuned threshold is kept, unless --eval_file is there to tune it anew. If
  # it turns out to be of other weights, auto tunes one, too.
  keeps = was_tuned and not settings.eval_file
  tunes = settings.do_predict and (settings.asks_for_tuned or not keeps)
  return ThresholdPlan(
    prefers_tuned=True,
    tuning_file=settings.scored_file if tunes else None,
    keeps_tuned=keeps,
  )


def find_sets(settings: SquadSettings, evaluated: str | None):
  """Returns the sets to train on, to evaluate and to answer, or None.

  Their kinds name the feature files: "eval" for the questions to answer, as in
  the original, whose only such file it was; "dev" for a further file, with
  answers, to evaluate on.

  Args:
    settings: the flags.
    evaluated: the file to evaluate on, or of which a share is held out for
      that; None if nothing is evaluated.
  """
  find = functools.partial(
    squad_data.find_set,
    settings=settings.for_features(),
    limit=settings.max_train_examples,
    num_processes=settings.num_processes,
  )
  train = dev = test = None

  # Whether all questions have answers is checked where a score needs them.
  path = settings.predict_file if settings.do_predict else None
  if path:
    test = find("eval", path, needs_answers=path == evaluated)

  # With --eval_share an evaluation alone reads the training file, too: what it
  # evaluates on was held out of that.
  if settings.do_train or settings.eval_share:
    train = find("train", settings.train_file)

  # The file to answer may be evaluated, too: its features are made once.
  if settings.eval_share:
    kind = "dev" if path else "eval"
    train, dev = squad_data.split(
      train, settings.eval_share, settings.seed, kind
    )
    if settings.do_predict and not path:
      test = dev
  elif evaluated and evaluated == path:
    dev = test
  elif evaluated:
    dev = find("dev", evaluated, needs_answers=True)
  return train if settings.do_train else None, dev, test


def open_data(settings: SquadSettings, plan: ThresholdPlan) -> fine_tuning.Data:
  """Finds the questions; nothing is written."""
  # Questions with answers serve two ends: to choose among checkpoints, and to
  # tune the threshold. If that may be kept, the answers may be missing.
  evaluated = None if plan.keeps_tuned else plan.tuning_file
  if settings.evaluates_in_training:
    evaluated = settings.scored_file

  # A file that a user names and nobody reads would be a silent mistake.
  if settings.eval_file and not evaluated:
    raise ValueError("--eval_file is not read: pass it as --predict_file")

  train, dev, test = find_sets(settings, evaluated)
  return fine_tuning.Data(
    feature_settings=settings.for_features(),
    metric=settings.choose_metric("best_f1" if plan.prefers_tuned else "f1"),
    model_settings={"problem": "question_answering"},
    train=train,
    dev=[dev] if dev else [],
    test=[test] if test else [],
    # A tuned threshold has its own file.
    answer_settings={"null_score_diff_threshold": settings.threshold},
  )


def answer(
  run: fine_tuning.Run, dataset: squad_data.SquadSet
) -> Iterator[squad_results.QuestionResult]:
  """Computes the logits of a set; returns the answers from them."""
  settings = run.settings

  # An answer may be in any window of its context, so the logits of all windows
  # are computed first. They are kept on the disk.
  logits = squad_data.compute_logits(
    run.predictor,
    dataset,
    run.parser(dataset),
    run.batch_order(dataset, settings.predict_batch_size),
    run.local_folder,
  )
  return squad_data.answer(dataset, logits, settings.for_answers())


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on questions with answers."""
  # All workers do, because all must stop a training at the same step.
  scored = [result.scored for result in answer(run, run.data.dev[0])]
  threshold = run.settings.threshold
  if run.is_chief:
    squad_results.warn_if_collapsed(scored, threshold)
  return squad_metrics.score(scored, threshold)


class Tuning(NamedTuple):
  """The questions to tune the threshold on, or a threshold that is known."""

  dataset: squad_data.SquadSet | None
  threshold: float = 0.0


def choose_tuning(run: fine_tuning.Run, plan: ThresholdPlan) -> Tuning:
  """Decides whether the threshold is tuned, by the weights of the model.

  All workers call it, before any answer is computed.

  Raises:
    ValueError: the flag is auto, but there are neither a threshold of these
      weights nor questions with answers to tune one on.
  """
  [dataset] = run.data.dev or run.data.test
  if plan.tuning_file and not plan.keeps_tuned:
    return Tuning(dataset)

  # The threshold in the folder may be of weights before a further training.
  tuned = squad_results.read_threshold(
    run.threshold_folders, run.identify_weights
  )
  if plan.tuning_file and not tuned and dataset.is_labelled:
    return Tuning(dataset)

  # An earlier run has tuned one for these weights, or the flag has it.
  flag = run.settings.null_score_diff_threshold
  threshold = squad_results.choose_threshold(flag, plan.prefers_tuned, tuned)
  return Tuning(None, threshold)


def write_predictions(run: fine_tuning.Run, plan: ThresholdPlan) -> None:
  """Answers all questions, writes the answers and scores them if possible."""
  [dataset] = run.data.test
  tuned_on, threshold = choose_tuning(run, plan)

  # All workers compute the logits; the chief alone reads them.
  answered = answer(run, dataset)
  tuning = None
  if tuned_on not in (None, dataset):
    tuning = answer(run, tuned_on)
  if not run.is_chief:
    return

  # Answers are found while they are read. Where the same questions are tuned
  # on and answered, they are read twice, and kept on the disk in between.
  if tuned_on:
    print(f"tuning --null_score_diff_threshold on {tuned_on.paths[0]}")
  if tuned_on is dataset:
    answered = tuning = squad_results.Spool(answered, run.local_folder)

  if tuning:
    threshold = squad_results.tune_threshold(tuning)
    if run.may_store_tuned:
      squad_results.write_threshold(
        run.folder, threshold, run.identify_weights()
      )

  run.forget_scores(dataset)
  scores = squad_results.write_predictions(
    run.folder, answered, threshold, run.settings.version_2_with_negative
  )

  # Without the true answers to some questions, a score would be of the rest.
  if scores:
    # A training may have evaluated other questions. And a best score is that of
    # the best threshold for these very questions: no written answer has it.
    metric: str | None = run.data.metric.removeprefix("best_")
    is_known = any(dataset is data for data in run.data.dev)
    if is_known and metric == run.data.metric:
      metric = None
    run.set_summary_score(scores.totals, metric)
    run.report_on(dataset, lambda _: squad_results.describe(scores))
  elif dataset.features.facts["labelled"]:
    fault = squad_data.describe_unanswered(dataset.features.facts)
    print(f"not scored: {fault}")


def main() -> None:
  """Trains and answers questions, as the flags ask."""
  # Nothing is written yet: wrong flags and wrong files must cost nothing.
  settings = fine_tuning.read_settings(SquadSettings)
  check(settings, model_folder.read_config(settings))
  plan = plan_threshold(settings)

  # TensorFlow wants its devices chosen before the first tensor is made.
  strategy = devices.make_strategy(settings)
  data = open_data(settings, plan)

  # From here on the output folder is ours; earlier runs in it must agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    # Texts become ids, once: later runs read the same feature files. A row that
    # cannot be read ends the run here, before there is a model.
    for dataset in data.sets:
      squad_data.make_features(dataset, run.local_folder)
    # This also loads weights: those of --output_dir, or else of --model.
    run.make_model(create_model, functools.partial(predict, settings=settings))

    # bert/training/loop.py repeats the update of bert/training/step.py. On the
    # way, the scores of the evaluation set choose the best weights.
    if settings.do_train:
      run.train(
        functools.partial(loss, settings=settings), lambda: evaluate(run)
      )
    if settings.do_predict:
      write_predictions(run, plan)


# The same from Python, see docs/python.md.
run = calls.make_run(main, SquadSettings)


if __name__ == "__main__":
  program.run_program(main)
