"""Fine-tunes BERT to classify texts and pairs: GLUE, XNLI and your own files.

  python run_classifier.py --task_name=mrpc --data_dir=glue/MRPC \\
    --model=$BERT --do_train=true --do_eval=true --output_dir=/tmp/mrpc
"""

from absl import flags

from cli import fine_tuning_flags
from cli import program
from tasks import classification
from tasks import glue


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  fine_tuning_flags.define_data_flags()
  program.group("Data")
  flags.DEFINE_string(
    "task_name",
    None,
    f"One of {', '.join(glue.TASKS)}; or file, for your own data.",
    required=True,
  )
  for name, default, text in (
    ("text_column", None, "The column of the text: its name or number."),
    ("text_pair_column", None, "The column of a second text, if there is one."),
    ("label_column", None, "The column of the label."),
    ("id_column", None, "The column of the id given with predictions."),
    ("label_separator", ",", "Between the labels of one example."),
  ):
    flags.DEFINE_string(name, default, text)
  program.group("Task")
  for name, default, text in (
    ("labels", [], "The labels; by default those of the training file."),
    ("seeds", [], "Trains once with each; results are in output_dir/seed-N."),
    ("xnli_language", ["zh"], "The languages of XNLI to train and test."),
    (
      "class_weights",
      [],
      "What an example counts by its label: numbers in the order of the "
      "labels, or 'balanced'.",
    ),
  ):
    flags.DEFINE_list(name, default, text)
  for name, choices, text in (
    ("header", ["auto", "yes", "no"], "Whether files have a header."),
    ("problem", classification.PROBLEMS, "What your own data asks for."),
    ("predictions_format", ["tsv", "jsonl"], "Of the file of predictions."),
    (
      "window_pooling",
      ["mean", "max"],
      "How the logits of a text are made of those of its windows.",
    ),
  ):
    flags.DEFINE_enum(name, choices[0], choices, text)
  flags.DEFINE_integer(
    "doc_stride",
    None,
    "Splits a text longer than --max_seq_length into windows that begin this "
    "many tokens apart; by default it is truncated.",
    lower_bound=1,
  )


if __name__ == "__main__":
  program.start(define_flags)

import functools

import keras
import tensorflow as tf

from cli import classifier_settings
from cli import devices
from cli import fine_tuning
from cli import flag_values
from cli import task_training
import heads
import modeling
from tasks import classification_inputs
from tasks import classification_report
from tasks import classification_results
from training import loop
from training import model_selection


def create_model(
  config: modeling.EncoderConfig, inputs: fine_tuning.Inputs, dtype: str
) -> keras.Model:
  """Makes the model; see `heads.ClassifierModel`."""
  model = heads.ClassifierModel(config, inputs.settings.num_outputs, dtype)
  problem = inputs.settings.problem
  if problem != "single_label" and inputs.train:
    # Otherwise the first updates, which make every label rare or every number
    # larger, saturate the pooler's tanh, and a small model learns nothing else.
    features = inputs.train.features
    sums = features.facts["label_sums"]
    bias = classification.average_logits(problem, sums, len(features))
    model.output_bias.assign(bias)
  return model


def predict(model, features, seed=None) -> dict[str, tf.Tensor]:
  """Computes the logits of a batch, float32 [B, L]; keeps the labels."""
  names = ["input_ids", "input_mask", "segment_ids"]
  logits = model(*(features[name] for name in names), seed)
  return {"logits": logits, "label_ids": features["label_ids"]}


def loss_fn(model, features, seed, problem, class_weights):
  """Sums the losses over a batch; see `loop.LossFn`."""
  logits, labels = predict(model, features, seed).values()
  if problem == "regression":
    losses = tf.square(logits - labels)[:, 0]
    weights = tf.ones_like(losses)
  elif problem == "multi_label":
    labels = tf.cast(labels, tf.float32)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
    losses = tf.reduce_mean(losses * class_weights, -1)
    weights = tf.ones_like(losses)
  else:
    labels = labels[:, 0]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    weights = tf.gather(class_weights, labels)
  total, weight = tf.reduce_sum(losses * weights), tf.reduce_sum(weights)
  return {"classification_loss": (total, weight)}


def best_metric(
  settings: flag_values.Settings, task: classification.Task
) -> str:
  """Returns the name of the score that decides which weights are best."""
  known = classification_results.metric_names(task.problem, task.metrics)
  return fine_tuning.best_metric(settings, task.metrics[0], known)


def open_inputs(
  settings: flag_values.Settings, folder: str, task: classification.Task
) -> fine_tuning.Inputs:
  """Finds the data of a run; see `fine_tuning.open_run`."""
  labels = classification_inputs.choose_labels(
    task,
    fine_tuning.labels_file(settings.output_dir),
    settings.labels,
    settings.label_separator,
    fine_tuning.initial_labels(settings),
  )
  named = {"labels": labels, "problem": task.problem}
  shape = flag_values.fill(classification_inputs.Settings, settings, **named)

  def find(kind, is_asked):
    if not is_asked:
      return ()
    limit = settings.max_train_examples
    return classification_inputs.find_splits(task, kind, shape, folder, limit)

  [train] = find("train", settings.do_train) or [None]
  return fine_tuning.Inputs(
    shape,
    best_metric(settings, task),
    {"problem": task.problem},
    train,
    find("eval", settings.do_eval or task_training.evaluates(settings)),
    find("predict", settings.do_predict),
    labels,
    {"class_weights": settings.class_weights},
    {
      "doc_stride": shape.doc_stride,
      "window_pooling": settings.window_pooling,
      "has_text_pair": task.has_text_pair,
    },
  )


def make_loss(run: fine_tuning.Run) -> loop.LossFn:
  """Returns the loss of the task, with the weights of its classes."""
  counts = run.inputs.train.features.facts["label_sums"]
  weights = classification.weigh_classes(run.settings.class_weights, counts)
  return functools.partial(
    loss_fn,
    problem=run.inputs.settings.problem,
    class_weights=tf.constant(weights),
  )


def compute_logits(
  run: fine_tuning.Run, split: classification_inputs.Split, batch_size: int
) -> classification_inputs.Outputs:
  """Computes the logits of a split, a row per example."""
  return classification_inputs.pool_outputs(
    split, run.predict(split, batch_size), run.settings.window_pooling
  )


def score(
  run, split, task, outputs, thresholds=None
) -> classification_results.Scores:
  """Scores the logits of a split; see `classification_results.score`."""
  return classification_results.score(
    *outputs,
    task.problem,
    task.metrics,
    run.settings.eval_batch_size,
    thresholds,
    split.groups(),
    run.inputs.labels,
  )


def evaluate(
  run: fine_tuning.Run,
  split: classification_inputs.Split,
  task: classification.Task,
) -> tuple[classification_inputs.Outputs, classification_results.Scores]:
  """Computes the logits of a split, and scores them."""
  outputs = compute_logits(run, split, run.settings.eval_batch_size)
  scores = score(run, split, task, outputs)
  if run.is_chief:
    classification_results.warn_if_collapsed(scores)
  return outputs, scores


def write_evaluation(
  run: fine_tuning.Run, task: classification.Task
) -> classification_results.Scores:
  """Scores every set, prints and writes it; returns the first one's scores."""
  first = None
  for split in run.inputs.eval:
    outputs, scores = evaluate(run, split, task)
    first = first or scores
    if run.is_chief:
      written = glue.scores_of_original(task, scores.metrics)
      run.write_eval_results(
        scores.metrics, split.suffix, written, scores.original_loss
      )
      classification_results.write_evaluation(
        run.folder, split.suffix, scores, run.inputs.labels
      )
      facts = (outputs, scores, task.problem, run.inputs.labels)
      run.report_on(split, classification_report.describe, *facts)
  return first


def write_predictions(run: fine_tuning.Run, task: classification.Task) -> None:
  """Predicts every set; writes the original's format and a readable one."""
  for split in run.inputs.predict:
    outputs = compute_logits(run, split, run.settings.predict_batch_size)
    if not run.is_chief:
      continue
    labels = run.inputs.labels
    folder = run.tuned_folder
    thresholds = classification_results.read_thresholds(folder, labels)
    answers = classification_results.answer(
      outputs.logits, task.problem, labels, thresholds
    )
    classification_inputs.write_answers(
      run.folder, split, answers, run.settings.predictions_format
    )
    ids = (example.example_id for example in split.examples())
    rows = zip(ids, answers.as_labels(), strict=True)
    glue.write_submission(run.folder, task, split.name, rows)
    if split.is_labelled:
      scores = score(run, split, task, outputs, answers.thresholds)
      classification_results.write_scores(
        run.folder, f"predict{split.suffix}", scores, labels
      )
      facts = (outputs, scores, task.problem, run.inputs.labels)
      run.report_on(split, classification_report.describe, *facts)


def finish(
  run: fine_tuning.Run, task: classification.Task
) -> classification_results.Scores | None:
  """Evaluates and predicts; returns the scores of the first set."""
  scores = write_evaluation(run, task) if run.settings.do_eval else None
  if run.settings.do_predict:
    write_predictions(run, task)
  return scores


def make_recipe(settings: flag_values.Settings) -> fine_tuning.Recipe:
  """Makes the recipe of the flags; see `fine_tuning.follow`."""
  task = classifier_settings.read_task(settings)
  return fine_tuning.Recipe(
    settings,
    functools.partial(open_inputs, task=task),
    create_model,
    predict,
    make_loss,
    lambda run: evaluate(run, run.inputs.eval[0], task)[1].metrics,
    functools.partial(finish, task=task),
  )


def main() -> None:
  recipe = make_recipe(fine_tuning.read_settings())
  by_seed = task_training.settings_by_seed(recipe.settings)
  strategy = devices.make_strategy(recipe.settings)
  scores = {
    seed: fine_tuning.follow(recipe._replace(settings=settings), strategy)
    for seed, settings in by_seed.items()
  }
  if recipe.settings.seeds and recipe.settings.do_eval:
    metric = best_metric(
      recipe.settings, classifier_settings.read_task(recipe.settings)
    )
    is_lower = model_selection.is_better_if_lower(metric)
    print(classification_results.format_seeds(scores, metric, is_lower))


if __name__ == "__main__":
  program.run_program(main)
