"""Fine-tunes BERT to classify texts and pairs: GLUE, XNLI and your own files.

  python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC \\
    --model=$BERT --do_train=true --do_eval=true --output_dir=/tmp/mrpc
"""

import dataclasses

from bert.cli import classifier_tasks, program, shared_flags, typed_flags
from bert.tasks import (
  classification,
  classification_problems,
  classification_tasks,
)

_data = typed_flags.group("Data")
_task = typed_flags.group("Task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierSettings(shared_flags.TableSettings, shared_flags.DataSettings):
  """The settings of this program."""

  task_name: str = _data(
    typed_flags.REQUIRED,
    f"One of {', '.join(classification_tasks.TASKS)}; or file, for your own "
    "data.",
  )
  skip_unlabelled: bool = _data(
    False,
    "Whether to leave out rows that have no label, but for --predict_file.",
    needs="task_name=file",
  )
  labels: tuple[str, ...] = _task((), "Labels; by default the training file's.")
  seeds: tuple[str, ...] = _task(
    (), "Trains once with each; results are in output_dir/seed-N."
  )
  xnli_language: tuple[str, ...] = _task(("zh",), "Languages of XNLI to use.")
  class_weights: tuple[str, ...] = _task(
    (),
    "Weights of examples (multi_label: of their decisions) by label, in the "
    "order of labels, of which only the ratios count; or 'balanced'.",
    decides=("training",),
  )
  problem: str = _task(
    "single_label",
    "What your own data asks for.",
    choices=tuple(classification_problems.PROBLEMS),
  )
  label_separator: str = _task(
    ",",
    "Between the labels of one example.",
    needs="problem=multi_label",
    decides=("features",),
  )
  query_column: str | None = _data(
    None,
    "The column of a query's id: pairs of a query and a text that may answer "
    "it get the scores of a ranking, too, such as mrr_at_10 and ndcg_at_10.",
  )
  window_pooling: str = _task(
    "mean",
    "How the logits of a text are made of those of its windows.",
    choices=("mean", "max"),
    needs="doc_stride",
    decides=("answers",),
  )
  doc_stride: int | None = _task(
    None,
    "Tokens from one window of a long text to the next; default truncates.",
    least=1,
    decides=("features", "answers"),
  )

  def check(self) -> None:
    """Refuses an unknown task, too, wrong columns, and what does not fit it."""
    super().check()
    classifier_tasks.check_files(self)


if __name__ == "__main__":
  program.start(ClassifierSettings)

import functools

import keras
import tensorflow as tf

from bert import heads, modeling
from bert.cli import devices, fine_tuning, model_folder
from bert.tasks import classification_data, classification_results


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B, S], and a seed for
  its dropout, int32 [2] or None; it returns logits, float32 [B, L].
  """
  model = heads.ClassifierModel(
    config, data.feature_settings.num_outputs, dtype, pooling=data.pooling
  )
  if data.train:
    # Loaded weights replace it.
    problem = classification_problems.PROBLEMS[data.feature_settings.problem]
    rows = data.train.features
    bias = problem.first_bias(rows.counts["label_sums"], len(rows))
    if bias:
      model.output_bias.assign(bias)
  return model


def predict(logits, features) -> dict[str, tf.Tensor]:
  """Returns the logits of a batch, float32 [B, L], and the labels."""
  return {"logits": logits, "label_ids": features["label_ids"]}


def loss(logits, features, problem, class_weights):
  """Sums the losses over a batch; see `training_plan.Loss`."""
  kind = classification_problems.PROBLEMS[problem]
  losses, factors = kind.loss(logits, features["label_ids"], class_weights)
  # The weight is 0 if only a teacher teaches the example.
  weights = tf.cast(features["is_real_example"], tf.float32) * factors
  total, weight = tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
  return {"classification_loss": (total, weight)}


def make_loss(settings: ClassifierSettings, data: fine_tuning.Data):
  """Returns the loss of the task, with the weights of its classes.

  A ValueError says that these are wrong, or that no weights can be chosen by
  the evaluation.
  """
  if settings.evaluates_in_training:
    classification_data.check_metric(data.dev[0], data.metric)
  counts = data.train.features.counts["label_sums"]
  weights = classification.weigh_classes(settings.class_weights, counts)
  problem, weights = data.feature_settings.problem, tf.constant(weights)
  return functools.partial(loss, problem=problem, class_weights=weights)


def open_data(
  settings: ClassifierSettings, task: classification.ClassificationTask
) -> fine_tuning.Data:
  """Finds the examples and labels; nothing is written."""
  labels = classification_data.choose_labels(
    task, settings, model_folder.initial_labels(settings)
  )
  features = classification_data.ClassificationFeatureSettings(
    **settings.deciding("features"), labels=labels, problem=task.problem
  )
  find_sets = functools.partial(classification_data.find_sets, task)
  evaluates = settings.do_eval or settings.evaluates_in_training
  share, train, dev = settings.eval_share, [], []
  if settings.do_train or (evaluates and share):
    train = find_sets("train", features, settings.max_train_examples)
  if train and share:
    parts = classification_data.split(train[0], share, settings.seed)
    train, dev = ([part] for part in parts)
  elif evaluates:
    dev = find_sets("eval", features)
  return fine_tuning.Data(
    feature_settings=features,
    metric=classifier_tasks.choose_metric(settings, task),
    model_settings=fine_tuning.read_pooling(settings)
    | {"problem": task.problem},
    train=train[0] if settings.do_train else None,
    dev=dev,
    test=find_sets("predict", features) if settings.do_predict else (),
    labels=labels,
    answer_settings=classification_data.describe_texts(task, settings.do_train),
  )


def evaluate(
  run: fine_tuning.Run,
  examples: classification_data.ClassificationSet,
  task: classification.ClassificationTask,
) -> classification_results.ClassificationScores:
  """Scores the model on a set, with the thresholds that are best there."""
  results = run.predict(examples, run.settings.eval_batch_size)
  logits, targets = classification_data.pool_outputs(
    examples, results, run.settings.window_pooling
  )
  answers = classification_results.answer(
    logits, task.problem, run.data.labels, tuning=targets
  )
  scores = classification_results.score(
    answers, targets, task.metrics, examples.groups()
  )
  if run.is_chief:
    classification_results.warn_if_collapsed(scores)
  return scores


def write_evaluation(
  run: fine_tuning.Run, task: classification.ClassificationTask
) -> classification_results.ClassificationScores:
  """Scores every set, prints and writes it; returns the first one's scores."""
  all_scores = []
  for examples in run.data.dev:
    scores = evaluate(run, examples, task)
    all_scores.append(scores)
    if run.is_chief:
      written = classification_tasks.scores_of_original(task, scores.metrics)
      # As in the original: eval_loss is the mean over examples, loss that over
      # the means of batches.
      original_loss = scores.original_loss(run.settings.eval_batch_size)
      run.write_eval_results(
        scores.metrics, examples.suffix, written, original_loss
      )
      write_scores(run, examples, scores)
      classification_results.write_thresholds(
        run.folder, scores.answers, run.identify_weights
      )
  return all_scores[0]


def write_scores(run, examples, scores) -> None:
  """Prints, writes and describes the scores of a set."""
  kind = f"{examples.kind}{examples.suffix}"
  classification_results.write_scores(run.folder, kind, scores)
  run.report_on(examples, classification_results.describe, scores)


def write_predictions(
  run: fine_tuning.Run, task: classification.ClassificationTask
) -> None:
  """Predicts every set; writes the original's format and a readable one."""
  settings, labels = run.settings, run.data.labels
  for examples in run.data.test:
    results = run.predict(examples, settings.predict_batch_size)
    if not run.is_chief:
      continue
    logits, targets = classification_data.pool_outputs(
      examples, results, settings.window_pooling
    )
    thresholds = classification_results.read_thresholds(
      run.threshold_folders, labels, run.identify_weights
    )
    answers = classification_results.answer(
      logits, task.problem, labels, thresholds
    )
    classification_data.write_predictions(run.folder, examples, answers)
    ids = (example.example_id for example in examples.examples())
    rows = zip(ids, answers.as_labels(), strict=True)
    classification_tasks.write_submission(run.folder, task, examples.name, rows)
    if examples.is_labelled:
      scores = classification_results.score(
        answers, targets, task.metrics, examples.groups()
      )
      write_scores(run, examples, scores)


def fine_tune(
  settings: ClassifierSettings,
  task: classification.ClassificationTask,
  strategy,
) -> classification_results.ClassificationScores | None:
  """Trains, evaluates and predicts; returns the scores of the first set."""
  data = open_data(settings, task)
  with fine_tuning.open_run(settings, data, strategy) as run:
    for examples in data.sets:
      classification_data.make_features(examples, run.local_folder)
    run.make_model(create_model, predict)
    if settings.do_train:
      run.train(
        make_loss(settings, data),
        lambda: evaluate(run, data.dev[0], task).metrics,
      )
    scores = write_evaluation(run, task) if settings.do_eval else None
    if settings.do_predict:
      write_predictions(run, task)
    return scores


def main() -> None:
  settings = fine_tuning.read_settings(ClassifierSettings)
  task = classifier_tasks.read(settings)
  runs = fine_tuning.by_seed(settings)
  strategy = devices.make_strategy(settings)
  scores = {
    seed: fine_tune(of_seed, task, strategy) for seed, of_seed in runs.items()
  }
  if settings.seeds and settings.do_eval:
    metric = classifier_tasks.choose_metric(settings, task)
    print(classification_results.format_seeds(scores, metric))


if __name__ == "__main__":
  program.run_program(main)
