"""Fine-tunes BERT to answer questions: SQuAD v1.1, v2.0 and your own texts.

  python run_squad.py --do_train=true --train_file=train-v1.1.json \\
    --do_predict=true --predict_file=dev-v1.1.json --model=$BERT \\
    --learning_rate=3e-5 --output_dir=/tmp/squad
"""

from bert.cli import program, squad_settings

SquadSettings = squad_settings.SquadSettings

if __name__ == "__main__":
  program.start(SquadSettings)

from collections.abc import Iterator
import dataclasses
import functools

import keras
import tensorflow as tf

from bert import heads, modeling
from bert.cli import devices, fine_tuning, output_folder
from bert.tasks import squad_data, squad_metrics, squad_results

_NEVER = -1e9  # Far below any logit.


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data | None, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B, S], and a seed for
  its dropout, int32 [2] or None; it returns a `heads.SpanOutput`.
  """
  return heads.SpanModel(config, dtype)


def exclude_padding(logits, features, settings) -> heads.SpanOutput:
  """Lowers the logits of padding, float32 [B, S], if it may be no answer."""
  if settings.padding_competes:
    return logits
  padding = 1.0 - tf.cast(features["input_mask"], tf.float32)
  return heads.SpanOutput(*(values + _NEVER * padding for values in logits))


def predict(logits, features, settings) -> dict[str, tf.Tensor]:
  """Pads the logits of a batch, float32 [B, max_seq_length]."""
  missing = settings.max_seq_length - tf.shape(features["input_ids"])[1]
  logits = exclude_padding(logits, features, settings)
  return {
    name: tf.pad(values, [[0, 0], [0, missing]], constant_values=_NEVER)
    for name, values in logits._asdict().items()
  }


def loss(logits, features, settings):
  """Sums the means of start and end losses; see `training_plan.Loss`."""
  logits = exclude_padding(logits, features, settings)
  places = features["start_positions"], features["end_positions"]
  losses = [
    tf.nn.sparse_softmax_cross_entropy_with_logits(place, values)
    for place, values in zip(places, logits, strict=True)
  ]
  losses = tf.add_n(losses) / 2.0  # [B]
  weights = tf.ones_like(losses)
  return {"span_loss": (tf.reduce_sum(losses), tf.reduce_sum(weights))}


def check(settings: SquadSettings) -> SquadSettings:
  """Checks the flags, and decides the threshold.

  Without --null_score_diff_threshold, a threshold that was tuned for these
  weights is used. With auto, one is tuned, unless --output_dir already has one.
  """
  is_asked = settings.do_train or "whole_word_answers" in settings.given
  if settings.whole_word_answers and is_asked:
    squad_settings.check_whole_words(settings.vocab_file)
  flag, folders = settings.null_score_diff_threshold, []
  is_auto = squad_results.parse_threshold(flag) is None
  is_given = "null_score_diff_threshold" in settings.given
  if is_auto and not settings.version_2_with_negative:
    raise ValueError(
      "--null_score_diff_threshold=auto needs --version_2_with_negative=true"
    )
  if settings.version_2_with_negative and not settings.do_train:
    folders = [settings.output_dir]
    folders += [] if is_given else [output_folder.trained_folder(settings)]
  was_tuned = squad_results.has_threshold(folders)
  prefers_tuned = is_auto or (was_tuned and not is_given)
  is_kept = was_tuned and not settings.eval_file
  tunes = prefers_tuned and settings.do_predict and not is_kept
  settings = dataclasses.replace(
    settings,
    prefers_tuned=prefers_tuned,
    tuning_file=settings.scored_file if tunes else None,
    pad_to_max_length=settings.padding_competes or settings.pad_to_max_length,
  )
  settings.choose_metric()  # Raises a ValueError if there is no such score.
  return settings


def open_data(settings: SquadSettings) -> fine_tuning.Data:
  """Finds the questions; nothing is written."""
  features = settings.for_features()
  evaluated = settings.tuning_file
  if settings.evaluates_in_training:
    evaluated = settings.scored_file
  if settings.eval_file and not evaluated:
    raise ValueError("--eval_file is not read: pass it as --predict_file")

  find = functools.partial(
    squad_data.find_set,
    settings=features,
    limit=settings.max_train_examples,
    num_processes=settings.num_processes,
  )
  train, dev, test = None, [], []
  if settings.do_train or settings.eval_share:
    train = find("train", settings.train_file)
  path = settings.predict_file if settings.do_predict else None
  if settings.eval_share:
    share, kind = settings.eval_share, "dev" if path else "eval"
    train, held_out = squad_data.split(train, share, settings.seed, kind)
    dev = [held_out]
    test = dev if settings.do_predict else []
  elif evaluated:
    dev = [find("dev", evaluated, needs_answers=True)]
  if path:
    test = [find("eval", path, needs_answers=path == evaluated)]
    if path == evaluated and not settings.eval_share:
      dev = test
  return fine_tuning.Data(
    features=features,
    metric=settings.choose_metric(),
    model_settings={"problem": "question_answering"},
    train=train if settings.do_train else None,
    dev=dev,
    test=test,
    # A tuned threshold has its own file.
    answer_settings={"null_score_diff_threshold": settings.threshold},
  )


def answer(
  run: fine_tuning.Run, examples: squad_data.SquadSet
) -> Iterator[squad_results.QuestionResult]:
  """Computes the logits of a set; returns the answers from them."""
  settings = run.settings
  logits = squad_data.compute_logits(
    run.predictor,
    examples,
    run.parser(examples),
    run.batch_order(examples, settings.predict_batch_size),
    run.local_folder,
  )
  return squad_data.answer(examples, logits, settings.for_answers())


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the model on questions with answers."""
  scored = [result.scored for result in answer(run, run.data.dev[0])]
  threshold = run.settings.threshold
  if run.is_chief:
    squad_results.warn_if_collapsed(scored, threshold)
  return squad_metrics.score(scored, threshold)


def write_predictions(run: fine_tuning.Run) -> None:
  """Answers all questions, writes the answers and scores them if possible."""
  settings, [examples] = run.settings, run.data.test
  tuned_on = run.data.dev[0] if settings.tuning_file else None
  answered, tuning = answer(run, examples), None
  if tuned_on not in (None, examples):
    tuning = answer(run, tuned_on)
  if not run.is_chief:
    return
  if tuned_on:
    print(f"tuning --null_score_diff_threshold on {tuned_on.paths[0]}")
  if tuned_on is examples:
    answered = tuning = squad_results.Spool(answered, run.local_folder)
  if tuning:
    weights = run.identify_weights()
    threshold = squad_results.tune_threshold(run.folder, tuning, weights)
  else:
    folders = run.threshold_folders
    tuned = squad_results.read_threshold(folders, run.identify_weights)
    threshold = squad_results.choose_threshold(settings, tuned)
  scores = squad_results.write_predictions(
    run.folder, answered, threshold, settings.version_2_with_negative
  )
  if scores:
    run.set_summary_score(scores.totals)
    run.report_on(examples, lambda _: squad_results.describe(scores))
  elif examples.features.counts["labelled"]:
    fault = squad_data.describe_unanswered(examples.features.counts)
    print(f"not scored: {fault}")


def check_no_answer(
  settings: SquadSettings, config: modeling.EncoderConfig
) -> None:
  """Raises a ValueError if the model cannot say that there is no answer."""
  if settings.version_2_with_negative and not config.is_bidirectional:
    raise ValueError(
      "--version_2_with_negative: [CLS], which stands for no answer, sees no "
      "other token in this model, which reads from left to right"
    )


def main() -> None:
  settings = check(fine_tuning.read_settings(SquadSettings))
  strategy = devices.make_strategy(settings)
  data = open_data(settings)
  with fine_tuning.open_run(settings, data, strategy) as run:
    check_no_answer(settings, run.config)
    for examples in data.sets:
      squad_data.make_features(examples, run.local_folder)
    run.make_model(create_model, functools.partial(predict, settings=settings))
    if settings.do_train:
      run.train(
        functools.partial(loss, settings=settings), lambda: evaluate(run)
      )
    if settings.do_predict:
      write_predictions(run)


if __name__ == "__main__":
  program.run_program(main)
