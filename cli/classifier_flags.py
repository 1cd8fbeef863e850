"""The flags of run_classifier.py, and the objects made from them.

They are too many to stand in the program, where the model and its loss are.
"""

import os

from absl import flags

from cli import devices
from cli import fine_tuning
from cli import models
from data import label_files
from tasks import classification
from tasks import classification_inputs
from tasks import classification_results
from tasks import glue

FLAGS = flags.FLAGS

# These, too, must not change when training goes on.
_TRAINING_FLAGS = ("class_weights",)


def define_flags() -> None:
  """Declares the flags of this program."""
  models.define_model_flags()
  fine_tuning.define_fine_tuning_flags(max_seq_length=128)
  models.define_training_flags(learning_rate=5e-5)
  devices.define_device_flags()
  flags.DEFINE_string(
    "task_name",
    None,
    f"One of {', '.join(glue.TASKS)}; or file, for your own data.",
    required=True,
  )
  for name, text in (
    ("data_dir", "The folder with the task's files."),
    ("train_file", "With --task_name=file: what to train on."),
    ("eval_file", "With --task_name=file: what to evaluate on."),
    ("predict_file", "With --task_name=file: what to predict."),
    ("text_column", "The column of the text: its name or number, from 0."),
    ("text_pair_column", "The column of a second text, if there is one."),
    ("label_column", "The column of the label."),
    ("id_column", "The column of the id that predictions are given under."),
  ):
    flags.DEFINE_string(name, None, text)
  _define_choices()
  flags.DEFINE_bool("do_train", False, "Whether to train.")
  flags.DEFINE_bool("do_eval", False, "Whether to evaluate, after training.")
  flags.DEFINE_bool("do_predict", False, "Whether to predict, after that.")


def _define_choices():
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
  for name, default, choices, text in (
    ("header", "auto", ["auto", "yes", "no"], "Whether files have a header."),
    (
      "problem",
      "single_label",
      classification.PROBLEMS,
      "With --task_name=file: what there is to predict.",
    ),
    (
      "predictions_format",
      "tsv",
      ["tsv", "jsonl"],
      "Of the file of predictions.",
    ),
    (
      "window_pooling",
      "mean",
      ["mean", "max"],
      "How the logits of a text's windows become its own.",
    ),
  ):
    flags.DEFINE_enum(name, default, choices, text)
  flags.DEFINE_string(
    "label_separator", ",", "Between the labels of one example."
  )
  flags.DEFINE_integer(
    "eval_batch_size",
    8,
    "Inputs of --max_seq_length per batch of an evaluation.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "doc_stride",
    None,
    "Splits a text beyond --max_seq_length into windows that begin so many "
    "tokens apart; by default it is cut.",
    lower_bound=1,
  )


# What the original program could do; its eval_results.txt stays as it was.
_ORIGINAL_TASKS = ("cola", "mnli", "mrpc", "xnli")
_ORIGINAL_RESULTS = ("eval_accuracy", "eval_loss", "loss")


def read_task() -> classification.Task:
  """Makes the task of the flags, with the paths of its files.

  Raises:
    ValueError: there is no such task or score, or nothing is to be done.
  """
  if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
    raise ValueError(
      "nothing to do: pass --do_train=true, --do_eval=true or --do_predict=true"
    )
  if FLAGS.task_name.lower() == "file":
    return glue.file_task(
      data_dir=FLAGS.data_dir,
      train_file=FLAGS.train_file,
      eval_file=FLAGS.eval_file,
      predict_file=FLAGS.predict_file,
      text_column=FLAGS.text_column,
      text_pair_column=FLAGS.text_pair_column,
      label_column=FLAGS.label_column,
      id_column=FLAGS.id_column,
      header={"auto": None, "yes": True, "no": False}[FLAGS.header],
      problem=FLAGS.problem,
    )
  task = glue.find_task(FLAGS.task_name)
  if task.name == "xnli":
    task = glue.xnli_task(FLAGS.xnli_language)
  if not FLAGS.data_dir:
    raise ValueError(f"--task_name={FLAGS.task_name} needs --data_dir")
  return glue.task_in_folder(task, FLAGS.data_dir)


def seeds_and_folders() -> list[tuple[int, str]]:
  """Returns the seed of each run and the folder for it.

  Raises:
    ValueError: a seed is no number.
  """
  if not FLAGS.seeds:
    return [(FLAGS.seed, FLAGS.output_dir)]
  if not all(seed.isdecimal() for seed in FLAGS.seeds):
    raise ValueError(
      f"--seeds={','.join(FLAGS.seeds)}: expected numbers, such as 1,2,3"
    )
  seeds = map(int, dict.fromkeys(FLAGS.seeds))
  return [(s, os.path.join(FLAGS.output_dir, f"seed-{s}")) for s in seeds]


def open_inputs(
  task: classification.Task, folder: str, private: str
) -> classification_inputs.Inputs:
  """Reads the data that the flags ask for.

  Args:
    task: from `read_task`.
    folder: of the run.
    private: see `models.private_folder`.

  Raises:
    ValueError: a file is missing or wrong, or the run's folder is that of
      another vocabulary, problem, or training data.
  """
  options = classification_inputs.Options(
    vocab_file=FLAGS.vocab_file,
    do_lower_case=FLAGS.do_lower_case,
    max_seq_length=FLAGS.max_seq_length,
    doc_stride=FLAGS.doc_stride,
    label_separator=FLAGS.label_separator,
    labels=classification_inputs.choose_labels(
      task, _labels_file(folder), FLAGS.labels, FLAGS.label_separator
    ),
    problem=task.problem,
  )
  fine_tuning.check_model_settings(folder, _settings(options))
  evaluates = FLAGS.do_eval or fine_tuning.evaluates_while_training()
  kinds = [("train", FLAGS.do_train), ("eval", evaluates)]
  kinds = [kind for kind, is_asked in kinds if is_asked]
  if FLAGS.do_predict:
    kinds.append("predict")
  inputs = classification_inputs.Inputs(task, options, private, kinds)
  fine_tuning.check_training_settings(folder, inputs.train, *_TRAINING_FLAGS)
  return inputs


def write_settings(folder, config, inputs, strategy) -> None:
  """Leaves in the run's folder what later runs in it must agree with."""
  options = inputs.options
  fine_tuning.write_settings(
    folder,
    config,
    strategy,
    _settings(options),
    inputs.train,
    *_TRAINING_FLAGS,
    of_prediction={
      "doc_stride": FLAGS.doc_stride,
      "window_pooling": FLAGS.window_pooling,
    },
  )
  if strategy.extended.should_checkpoint and options.labels:
    label_files.write(_labels_file(folder), options.labels)


def _labels_file(folder):
  return os.path.join(folder, "labels.txt")


def _settings(options):
  return fine_tuning.model_settings(problem=options.problem)


def make_parser(options: classification_inputs.Options, config):
  """Returns the function from serialized rows to features."""
  is_static = fine_tuning.is_static()
  return classification_inputs.make_parser(
    options, config.vocab_size, config.type_vocab_size, is_static
  )


def best_metric(task: classification.Task) -> str:
  """Returns the name of the score that decides which weights are best.

  Raises:
    ValueError: there is no such score.
  """
  return fine_tuning.best_metric(
    task.metrics[0],
    classification_results.metric_names(task.problem, task.metrics),
  )


def class_weights(counts: list[int]) -> list[float]:
  """Returns the weights of the labels, from --class_weights.

  Args:
    counts: how often each label is in the training data.

  Raises:
    ValueError: the flag is no list of numbers, one for each label.
  """
  if FLAGS.class_weights == ["balanced"]:
    # Every label then weighs as much as any other, and an example 1 on average.
    return [sum(counts) / (len(counts) * max(1, count)) for count in counts]
  if not FLAGS.class_weights:
    return [1.0] * len(counts)
  try:
    weights = [float(weight) for weight in FLAGS.class_weights]
  except ValueError:
    weights = []
  if len(weights) != len(counts) or not all(w >= 0 for w in weights):
    raise ValueError(
      f"--class_weights={','.join(FLAGS.class_weights)}: expected 'balanced' "
      f"or {len(counts)} numbers, one for each label"
    )
  return weights


def write_scores(
  folder: str,
  inputs: classification_inputs.Inputs,
  split: classification_inputs.Split,
  scores: classification_results.Scores,
  step: int,
) -> None:
  """Writes the scores of a dev set, and the thresholds tuned on it."""
  task, labels = inputs.task, inputs.options.labels
  results = scores.metrics
  if task.name in _ORIGINAL_TASKS:
    results = {name: results[name] for name in _ORIGINAL_RESULTS}
  name = f"eval_results{split.suffix}.txt"
  models.write_eval_results(folder, step, results, name)
  kind = f"eval{split.suffix}"
  classification_results.write_scores(folder, kind, scores, labels)
  if scores.thresholds is not None:
    path = _thresholds_file(folder)
    classification_results.write_thresholds(path, labels, scores.thresholds)
    print(f"wrote {path}")


def write_outputs(
  folder: str,
  inputs: classification_inputs.Inputs,
  split: classification_inputs.Split,
  outputs: classification_inputs.Outputs,
) -> None:
  """Writes what is predicted: the original's file, a readable one, GLUE's."""
  problem, labels = split.problem, inputs.options.labels
  thresholds = None
  if problem == "multi_label":
    thresholds = classification_results.read_thresholds(
      _thresholds_file(folder), labels
    )
  answers = classification_results.answer(
    outputs.logits, problem, labels, thresholds
  )
  path = os.path.join(folder, f"test_results{split.suffix}.tsv")
  classification_results.write_test_results(path, answers.scores)
  print(f"wrote {path}")
  name = f"predictions{split.suffix}.{FLAGS.predictions_format}"
  path = os.path.join(folder, name)
  classification_results.write_predictions(path, split.examples(), answers)
  print(f"wrote {path}")
  _write_submission(folder, inputs.task, split, answers)
  if split.has_labels:
    scores = classification_results.score(
      *outputs,
      problem,
      inputs.task.metrics,
      FLAGS.predict_batch_size,
      answers.thresholds,
      split.groups(),
    )
    kind = f"predict{split.suffix}"
    classification_results.write_scores(folder, kind, scores, labels)


def _write_submission(folder, task, split, answers):
  if task.submissions:
    names = [name for name, _ in task.test]
    path = os.path.join(folder, task.submissions[names.index(split.name)])
    ids = (example.example_id for example in split.examples())
    rows = zip(ids, answers.as_labels(), strict=True)
    glue.write_submission(path, task, rows)
    print(f"wrote {path}")


def _thresholds_file(folder):
  return os.path.join(folder, "thresholds.json")
