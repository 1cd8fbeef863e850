"""Fine-tunes BERT to classify texts and pairs: GLUE, XNLI and your own files.

  python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC \\
    --model=google-bert/bert-base-uncased --do_train=true --do_eval=true \\
    --output_dir=/tmp/mrpc
"""

from bert.cli import classifier_settings, program

ClassifierSettings = classifier_settings.ClassifierSettings

# The flags are read here, in the middle of the file: --help and wrong commands
# shall not wait for the import of TensorFlow, see bert/cli/program.py. `main`,
# at the end, is where the work begins.
if __name__ == "__main__":
  program.start(ClassifierSettings)

import functools

import keras
import tensorflow as tf

from bert import calls, heads, modeling
from bert.cli import classifier_tasks, devices, fine_tuning
from bert.tasks import (
  classification,
  classification_data,
  classification_problems,
  classification_results,
  classification_tasks,
)

# What is learned: the model, its answers and its loss. An update, in
# bert/training/step.py, calls the model and then `loss`; see the map there.


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data, dtype: str
) -> keras.Model:
  """Makes BERT and the head that classifies, with random weights.

  Another head is another class in heads.py: exports make the model again by
  the name of its class, so a head that is made here alone cannot be exported.

  Args:
    config: the architecture of BERT.
    data: what the model learns from; it decides the number L of outputs.
    dtype: the Keras dtype policy, "float32" or "mixed_bfloat16".

  Returns:
    A model of input_ids, input_mask and segment_ids, int32 [B, S], and of a
    seed for its dropout, int32 [2], or None for no dropout; it returns logits,
    float32 [B, L].
  """
  model = heads.ClassifierModel(
    config, data.feature_settings.num_outputs, dtype, pooling=data.pooling
  )

  # A new head starts with the bias that fits the training set best without a
  # look at the texts. The weights of a trained head, loaded later, replace it.
  if data.train:
    problem = classification_problems.PROBLEMS[data.feature_settings.problem]
    rows = data.train.features
    bias = problem.first_bias(rows.facts["label_sums"], len(rows))
    if bias:
      model.output_bias.assign(bias)
  return model


def predict(logits, features) -> dict[str, tf.Tensor]:
  """Returns the logits of a batch, float32 [B, L], and the labels."""
  return {"logits": logits, "label_ids": features["label_ids"]}


def loss(logits, features, problem_name, class_weights):
  """Sums the losses over a batch; see `training_plan.Loss`.

  Args:
    logits: float32 [B, L].
    features: of them label_ids, [B, width of the problem], and
      is_real_example, int [B].
    problem_name: of a class of `classification_problems`.
    class_weights: the weight of each label, float32 [L].

  Returns:
    classification_loss: the sum of the weighted losses, and the sum of the
    weights, by which the step divides: float32 [] each.
  """
  problem = classification_problems.PROBLEMS[problem_name]
  losses, factors = problem.loss(logits, features["label_ids"], class_weights)

  # In the records of the original 0 marks the padding of a batch on TPUs. Here
  # it marks an example without a label, from which only a teacher is learned.
  is_labelled = tf.cast(features["is_real_example"], tf.float32)
  example_weights = is_labelled * factors
  loss_sum = tf.reduce_sum(losses * example_weights)
  return {"classification_loss": (loss_sum, tf.reduce_sum(example_weights))}


def make_loss(settings: ClassifierSettings, data: fine_tuning.Data):
  """Returns the loss of the task, with --class_weights.

  A ValueError says that these are wrong, or that --best_metric is the same for
  whatever the model learns.
  """
  # Both are checked here, before the first update, and not in `open_data`: the
  # sums of the labels are known only when the features are made.
  if settings.evaluates_in_training:
    classification_data.check_metric(data.dev[0], data.metric)

  label_sums = data.train.features.facts["label_sums"]
  class_weights = classification.weigh_classes(
    settings.class_weights, label_sums
  )
  return functools.partial(
    loss,
    problem_name=data.feature_settings.problem,
    class_weights=tf.constant(class_weights),
  )


# The data.


def open_data(
  settings: ClassifierSettings, task: classification.ClassificationTask
) -> fine_tuning.Data:
  """Finds the examples and labels; nothing is written."""
  labels = classification_data.choose_labels(
    task, settings, settings.initial_labels()
  )
  feature_settings = classification_data.ClassificationFeatureSettings(
    **settings.deciding("features"), labels=labels, problem=task.problem
  )
  train, dev = classification_data.find_train_and_dev(
    task, settings, feature_settings
  )

  test = []
  if settings.do_predict:
    test = classification_data.find_sets(task, "predict", feature_settings)

  # A head that was trained on pooled token vectors is used on these again. It
  # is another library's, or of run_embedding.py --objective=labels: no flag of
  # this program makes one.
  pooling = fine_tuning.read_pooling(settings)
  return fine_tuning.Data(
    feature_settings=feature_settings,
    metric=classifier_tasks.choose_metric(settings, task),
    model_settings={**pooling, "problem": task.problem},
    train=train if settings.do_train else None,
    dev=dev,
    test=test,
    labels=labels,
    answer_settings=classification_data.describe_input(task, settings.do_train),
  )


# Results: scores of sets whose labels are known, and predictions.


def evaluate(
  run: fine_tuning.Run,
  dataset: classification_data.ClassificationSet,
  task: classification.ClassificationTask,
) -> classification_results.ClassificationScores:
  """Scores the model on a set, with the thresholds that are best there.

  Args:
    run: has the model, with the weights of this moment.
    dataset: a set whose labels are known.
    task: says which scores are computed.
  """
  results = run.predict(dataset, run.settings.eval_batch_size)
  logits, targets = classification_data.pool_outputs(
    dataset, results, run.settings.window_pooling
  )
  answers = classification_results.answer(
    logits, task.problem, run.data.labels, tuning=targets
  )
  scores = classification_results.score(
    answers, targets, task.metrics, dataset.groups()
  )
  if run.is_chief:
    classification_results.warn_if_collapsed(scores)
  return scores


def write_evaluation(
  run: fine_tuning.Run, task: classification.ClassificationTask
) -> classification_results.ClassificationScores:
  """Scores every set, prints and writes it; returns the first one's scores."""
  all_scores = []
  for dataset in run.data.dev:
    # All workers take part in an evaluation; the chief alone writes.
    scores = evaluate(run, dataset, task)
    all_scores.append(scores)
    if not run.is_chief:
      continue

    # What is fitted on the first set holds for all, and for later runs. The
    # scores of a training have no temperature: its weights still change.
    fits = run.settings.calibrate and dataset is run.data.dev[0]
    if fits and run.may_store_tuned:
      classification_results.write_temperature(
        run.folder, scores, run.identify_weights
      )
    temperature = classification_results.read_temperature(
      run.threshold_folders, run.identify_weights
    )
    scores = classification_results.calibrate(
      scores, temperature, task.metrics, dataset.groups()
    )

    # As in the original: eval_loss is the mean over examples, loss that over
    # the means of batches.
    run.write_eval_results(
      scores.metrics,
      dataset.suffix,
      written=classification_tasks.scores_of_original(task, scores.metrics),
      original_loss=scores.original_loss(run.settings.eval_batch_size),
    )
    show_scores(run, dataset, scores)

    # Later predictions with these weights use the thresholds tuned here. Only
    # several labels have thresholds: only the user's own data has several, and
    # of that there is one set.
    if run.may_store_tuned:
      classification_results.write_thresholds(
        run.folder, scores.answers, run.identify_weights
      )
  return all_scores[0]


def show_scores(
  run: fine_tuning.Run,
  dataset: classification_data.ClassificationSet,
  scores: classification_results.ClassificationScores,
) -> None:
  """Prints the scores of a set, and writes them as JSON and for report.html.

  Args:
    run: has the folder, and the report.
    dataset: the set that was scored; names the file, such as eval_metrics.json.
    scores: of all of its examples, in their order.
  """
  stem = f"{dataset.kind}{dataset.suffix}"
  classification_results.write_scores(run.folder, stem, scores)
  run.report_on(dataset, classification_results.describe, scores)


def write_predictions(
  run: fine_tuning.Run, task: classification.ClassificationTask
) -> None:
  """Predicts every set; writes the original's format and a readable one."""
  settings, labels = run.settings, run.data.labels
  for dataset in run.data.test:
    results = run.predict(dataset, settings.predict_batch_size)
    if not run.is_chief:
      continue
    logits, targets = classification_data.pool_outputs(
      dataset, results, settings.window_pooling
    )

    # What an evaluation tuned for these weights: labels that are not known
    # cannot tune anything.
    thresholds = classification_results.read_thresholds(
      run.threshold_folders, labels, run.identify_weights
    )
    temperature = classification_results.read_temperature(
      run.threshold_folders, run.identify_weights
    )
    if temperature:
      print(f"probabilities with the temperature {temperature:g}")
    answers = classification_results.answer(
      logits, task.problem, labels, thresholds, temperature=temperature
    )

    # predictions.tsv and test_results.tsv, and for tasks of GLUE also the file
    # that their server takes, such as MRPC.tsv.
    classification_data.write_predictions(run.folder, dataset, answers)
    ids = (example.example_id for example in dataset.examples())
    rows = zip(ids, answers.as_labels(), strict=True)
    classification_tasks.write_submission(run.folder, task, dataset.name, rows)

    if dataset.is_labelled:
      scores = classification_results.score(
        answers, targets, task.metrics, dataset.groups()
      )
      show_scores(run, dataset, scores)


# The program.


def fine_tune(
  settings: ClassifierSettings,
  task: classification.ClassificationTask,
  strategy: tf.distribute.Strategy,
) -> classification_results.ClassificationScores | None:
  """Trains, evaluates and predicts, as the flags ask.

  Args:
    settings: the flags, of one seed.
    task: what `classifier_tasks.read` made of them.
    strategy: the devices to compute on; several runs may share it.

  Returns:
    The scores of the first set evaluated; None without --do_eval.
  """
  # Nothing is written yet: wrong flags and missing files must cost nothing.
  data = open_data(settings, task)

  # From here on the output folder is ours, and earlier runs in it agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    # Texts become ids, once: later runs read the same feature files. A row that
    # cannot be read ends the run here, before there is a model.
    for dataset in data.sets:
      classification_data.make_features(dataset, run.local_folder)

    # This also loads weights: those of --output_dir, or else of --model.
    run.make_model(create_model, predict)

    # bert/training/loop.py repeats the update of bert/training/step.py. On the
    # way, the scores of the first set to evaluate choose the best weights; if
    # no flag asks for this, there may be no such set, and nothing is evaluated.
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
  """Runs the flags: once, or once for each of --seeds."""
  settings = fine_tuning.read_settings(ClassifierSettings)
  task = classifier_tasks.read(settings)
  runs = fine_tuning.by_seed(settings)

  # TensorFlow wants its devices chosen before the first tensor is made.
  strategy = devices.make_strategy(settings)
  scores = {
    seed: fine_tune(of_seed, task, strategy) for seed, of_seed in runs.items()
  }

  if settings.seeds and settings.do_eval:
    metric = classifier_tasks.choose_metric(settings, task)
    print(classification_results.format_seeds(scores, metric))


# The same from Python, see docs/python.md.
run = calls.make_run(main, ClassifierSettings, task_name="file")


if __name__ == "__main__":
  program.run_program(main)
