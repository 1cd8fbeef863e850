"""A fine-tuning run, which the programs open, train and predict with.

settings = fine_tuning.read_settings(ClassifierSettings)
data = open_data(settings)  # Makes a `Data`.
with fine_tuning.open_run(settings, data, strategy) as run:
  for dataset in data.sets:
    make_features(dataset, run.local_folder)
  run.make_model(create_model, predict)
  run.train(loss, lambda: evaluate(run, data))
  write_predictions(run, data)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import time
import types
from typing import Any, NamedTuple, TypeVar

import keras
import numpy as np
import tensorflow as tf

from bert import optimization
from bert.cli import (
  devices,
  model_folder,
  output_folder,
  run_report,
  shared_flags,
  teaching,
  training_run,
)
from bert.data import progress
from bert.inputs import batch_order, feature_sets
from bert.training import same_run, training_plan, workers

_Settings = TypeVar("_Settings", bound=shared_flags.FineTuningSettings)


class Data(NamedTuple):
  """The data of a run, and what ties its model to it."""

  # The task's frozen settings that shape the features, for `create_model` and
  # the loss; None if these do not ask for them.
  feature_settings: Any
  metric: str  # The score that decides which weights are best.
  # Says what the weights are. All later runs in the output folder must agree
  # with it: it is recorded in settings.json. To this and to `answer_settings`
  # come the flags that say so when they are declared: `typed_flags.DECISIONS`.
  model_settings: Mapping[str, Any]
  train: feature_sets.FeatureSet | Any = None  # None if nothing trains.
  # The sets that --do_eval scores (their files are `eval...`); evaluations
  # during training score the first of them.
  dev: Sequence[feature_sets.FeatureSet | Any] = ()
  # The sets that --do_predict answers (their files are `predict...`).
  test: Sequence[feature_sets.FeatureSet | Any] = ()
  labels: Sequence[str] = ()  # In the order of the outputs; may be ().
  # Besides the weights, the answers depend on this: it is recorded in
  # prediction.json, for predict.py and exports.
  answer_settings: Mapping[str, Any] = types.MappingProxyType({})
  # Whether export_saved_model.py takes the model: there is an answer maker of
  # its problem, see `bert.serving.answers`.
  has_export: bool = True

  @property
  def problem(self) -> str:
    """What is learned, by its name in settings.json."""
    return self.model_settings["problem"]

  @property
  def pooling(self) -> str:
    """How a vector is made of those of the tokens; "" for BERT's pooler."""
    return self.model_settings.get("pooling", "")

  @property
  def sets(self) -> list[feature_sets.FeatureSet]:
    """All sets of examples, each once."""
    # run_squad.py may score the very set that it answers.
    sets = filter(None, [self.train, *self.dev, *self.test])
    return list({id(dataset): dataset for dataset in sets}.values())


def read_settings(settings_class: type[_Settings]) -> _Settings:
  """Reads the flags and finds the files of --model.

  A run that does not train predicts as the training of its weights: flags that
  are not given have the values that are recorded there. A ValueError says that
  --model or the weights contradict them.
  """
  settings = devices.choose_precision(
    model_folder.find_files(settings_class.read())
  )
  if not settings.do_train:
    settings = _follow_training(settings)
  settings.check_needs()
  return settings


def _follow_training(settings: _Settings) -> _Settings:
  """Gives flags that were not given the values that a training recorded."""
  # One training made the folders of all seeds: the first one will do.
  own = dataclasses.replace(settings, output_dir=settings.run_dirs[0])
  recorded = same_run.read_training(output_folder.trained_folder(own))

  # A trained head of another library shows its problem. If it was converted, a
  # file beside it holds the record of its training.
  if output_folder.starts_elsewhere(own):
    model = own.open_model()
    for values in model.recorded.values():
      stated = {name: (value, model.source) for name, value in values.items()}
      recorded = stated | recorded
    if model.problem:
      recorded["problem"] = model.problem, model.source

  changed = {}
  flags = type(settings).flags_by_name()
  for name, (value, path) in recorded.items():
    # The record has more than flags. The casing is known already: it is that
    # of the vocabulary (`model_folder.find_files`).
    is_flag = name in flags and name != "do_lower_case"
    if not is_flag or name in settings.given:
      continue
    try:
      value = type(settings).from_json(name, value)
    except ValueError as error:
      raise ValueError(f"{path}: {error}") from None
    if getattr(settings, name) != value:
      changed[name] = value
      text = same_run.show(value)
      progress.note(f"--{name}={text}, as {path} says")
  return dataclasses.replace(settings, **changed)


def read_pooling(settings: shared_flags.FineTuningSettings) -> dict[str, str]:
  """Returns the "pooling" that a trained head is on; {} for the pooler."""
  # What the folder says then is of other weights, which were evaluated there.
  if output_folder.begins_anew(settings):
    return {}

  recorded = same_run.read_training(output_folder.trained_folder(settings))
  if "pooling" not in recorded:
    return {}
  pooling, _ = recorded["pooling"]
  return {"pooling": pooling}


def by_seed(settings: _Settings) -> dict[int, _Settings]:
  """Returns the settings of each run: one run, or one for each of --seeds."""
  given: tuple[str, ...] = getattr(settings, "seeds", ())
  if not given:
    return {settings.seed: settings}

  # There are fewer numbers than words if one is repeated, or is no number. A
  # folder has the name of its seed: 01 would be another than 1.
  seeds = [int(s) for s in given if s.isdecimal() and s == str(int(s))]
  if len(set(seeds)) < len(given):
    raise ValueError(
      f"--seeds={','.join(given)}: expected different numbers, such as "
      "1,2,3, without zeros in front"
    )

  return {
    seed: dataclasses.replace(settings, seed=seed, output_dir=folder)
    for seed, folder in zip(seeds, settings.run_dirs, strict=True)
  }


def describe_run(
  settings: shared_flags.FineTuningSettings, data: Data
) -> same_run.RunRecord:
  """Returns what later runs in the output folder are compared with.

  CONTRIBUTING.md says, for a new flag, which of these records it belongs to.
  """
  answers = {**settings.deciding("answers"), **data.answer_settings}
  model = {
    **settings.deciding("model"),
    **data.model_settings,
    same_run.VOCABULARY: settings.vocabulary_digest,
  }
  if share := getattr(settings, "eval_share", 0):
    # Another seed, other lines or other columns would evaluate on what was
    # trained on.
    model[same_run.HELD_OUT] = {"eval_share": share, "seed": settings.seed}
    for dataset in data.dev:
      if dataset.numbers is not None:
        model["held_out_lines"] = dataset.identify_examples()
        model["held_out_data"] = dataset.parts
  flags = settings.flags_by_name()
  if not data.train:
    return same_run.RunRecord(model, answers, flags=flags)

  # A training that resumes must have had the same data and teacher.
  training = settings.deciding("training")
  training["training_features"] = data.train.key
  training["training_data"] = data.train.parts
  training["teacher"] = teaching.identify_teacher(settings, data)

  if settings.evaluates_in_training:
    # Scores of other data, or of other answers, cannot be compared.
    training |= answers
    training["best_metric"] = f"eval_{data.metric}"
    training["evaluation_features"] = data.dev[0].key
    training["evaluation_data"] = data.dev[0].parts
  return same_run.RunRecord(model, answers, training, flags)


@dataclasses.dataclass(kw_only=True)
class Run(training_run.TrainingRun):
  """A model and its data; `open_run` makes it."""

  settings: shared_flags.FineTuningSettings
  record: same_run.RunRecord
  # A folder that only this worker uses, for feature files.
  local_folder: str
  # Set by `make_model`; bert/cli/teaching.py makes the teacher with it.
  create_model: Callable[..., keras.Model] = dataclasses.field(init=False)
  forward: training_plan.Forward = training_plan.DEFAULT_FORWARD
  # The score that the summary shows, such as "eval_f1 0.9".
  score_text: str = ""

  @property
  def threshold_folders(self) -> list[str]:
    """The folders that may have thresholds of the weights."""
    return [self.folder, output_folder.trained_folder(self.settings)]

  @property
  def may_store_tuned(self) -> bool:
    """Whether what is tuned now is of answers as later runs give them."""
    trained = output_folder.trained_folder(self.settings)
    return not same_run.find_other_answers(trained, self.record)

  def identify_weights(self) -> str:
    """Returns the checksum of the model's weights, as they are now."""
    return same_run.identify_weights(self.model)

  def make_model(
    self,
    create_model: Callable[..., keras.Model],
    predict: training_plan.Predict,
    forward: training_plan.Forward = training_plan.DEFAULT_FORWARD,
  ) -> None:
    """Makes the model, loads its weights, and records the run in its folder.

    Call it when all data has been read and checked, and features are made: from
    here on the folder says which model it holds.

    Args:
      create_model: takes the config, this run's `Data` and a Keras dtype
        policy; returns the model with random weights.
      predict: makes the predictions of a batch, see `training_plan.Predict`.
      forward: calls the model on a batch; by default `heads.forward`.
    """
    settings, data = self.settings, self.data
    self.create_model = create_model
    self.forward = forward
    self.use_model(
      lambda: create_model(self.config, data, settings.compute_dtype),
      predict,
      forward,
    )

    # A training that resumes loads them again, with moments (training/loop.py).
    self.step = output_folder.load_weights_of_run(settings, self.model)

    if self.is_chief:
      self.write_model_files(settings.vocab_file, data.labels)
      trained = output_folder.trained_folder(settings)
      same_run.write(self.folder, trained, self.record, data.sets)

  def parser(
    self, dataset: feature_sets.FeatureSet
  ) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
    """Returns the function from serialized rows, string [B], to features."""
    return dataset.make_parser(
      self.config, devices.uses_fixed_shapes(self.settings)
    )

  def batch_order(
    self, dataset: feature_sets.FeatureSet, batch_size: int
  ) -> list[np.ndarray]:
    """Returns the batches to predict; see `batch_order.make_batches`."""
    return batch_order.make_batches(
      dataset.features.lengths,
      batch_size,
      self.settings.max_seq_length,
      devices.uses_fixed_shapes(self.settings),
    )

  def predict(
    self, dataset: feature_sets.FeatureSet, batch_size: int
  ) -> dict[str, np.ndarray]:
    """Returns the predictions for the rows of a set, in order.

    Args:
      dataset: a set whose features are made.
      batch_size: the rows of --max_seq_length in a batch; of shorter ones more.

    Returns:
      The outputs of `predict` by name, [rows, ...]; the same on every worker.
    """
    order = self.batch_order(dataset, batch_size)
    parser = self.parser(dataset)
    results = dataset.features.predict(self.predictor, order, parser)
    self.forget_scores(dataset)
    return results

  def forget_scores(self, dataset: feature_sets.FeatureSet) -> None:
    """Removes the scores of earlier predictions, before new ones are written.

    They may be of another run, which was faster. Texts without labels get no
    new scores, which would replace them.
    """
    if self.is_chief and any(dataset is data for data in self.data.test):
      output_folder.remove_scores(self.folder, f"predict{dataset.suffix}")

  def train(
    self,
    loss: training_plan.Loss,
    evaluate: Callable[[], Mapping[str, float]],
    before_save: Callable[[], None] | None = None,
    make_passes: Callable[..., Any] | None = None,
  ) -> None:
    """Trains or resumes; ends with the best weights, if there are evaluations.

    Args:
      loss: see `training_plan.Loss`.
      evaluate: scores the weights of the moment; called during training alone.
      before_save: sets weights that no update changes; see `TrainingPlan`.
      make_passes: for a loss that compares the rows of a batch with each other;
        see `TrainingTask`.
    """
    # Rows, not examples: a long text may be several rows.
    rows = self.data.train.rows_per_epoch
    steps_per_epoch = rows / self.settings.train_batch_size
    plan = plan_of_epochs(self.settings, steps_per_epoch)
    plan = dataclasses.replace(plan, before_save=before_save)
    task = self.make_task(loss, plan, steps_per_epoch)

    # The loop can train several tasks in turns, which their names tell apart
    # (run_multitask.py). A single one has no name.
    self.step, self.score_text = training_run.train_to_best(
      self.settings,
      self.strategy,
      {"": task._replace(make_passes=make_passes)},
      plan,
      lambda step: name_for_evaluation(evaluate()),
      self.data.metric,
    )

  def make_task(
    self,
    loss: training_plan.Loss,
    plan: training_plan.TrainingPlan,
    steps_per_epoch: float,
    source: Any = None,
  ) -> training_plan.TrainingTask:
    """Makes what the loop trains: the model with its optimizer and input.

    Args:
      loss: the task's; the teacher of --teacher is added to it here.
      plan: how long to train.
      steps_per_epoch: --freeze_layers=gradual thaws a layer after so many.
      source: a `training_input.TrainingInput`; None makes that of `data.train`.
    """
    settings = self.settings
    num_steps = plan.num_train_steps
    frozen = settings.freeze_layers

    # The moments of the optimizer are variables: they are made where those of
    # the model were, a copy on each device.
    with self.strategy.scope():
      optimizer = optimization.create_optimizer(
        self.model.trainable_variables,
        settings.learning_rate,
        num_steps,
        int(num_steps * settings.warmup_proportion),
        settings.layerwise_lr_decay,
        int(frozen) if frozen.isdecimal() else frozen,
        steps_per_epoch,
        settings.bias_correction,
      )

    # Only run_multitask.py gives a `source`, of pre-training records: these are
    # read, not made, so there are no rows for a teacher.
    if source is None:
      if settings.teacher:
        loss = teaching.teach(self, loss)
      source = self.data.train.training_input(
        self.parser(self.data.train), plan.train_batch_size, settings.seed
      )
    return training_plan.TrainingTask(
      self.model, optimizer, loss, source, plan, self.forward
    )

  def write_eval_results(
    self,
    scores: Mapping[str, float],
    suffix: str = "",
    written: Mapping[str, float] | None = None,
    original_loss: float | None = None,
  ) -> None:
    """Prints scores and writes them to eval_results.txt, as the original.

    The summary shows the scores of the first call.

    Args:
      scores: by name, without "eval_" before it.
      suffix: of the file's name, if there are several sets.
      written: the scores to write; None for all.
      original_loss: the mean of the batches' losses, written as `loss`; None
        writes none.
    """
    results = name_for_evaluation(scores if written is None else written)
    if original_loss is not None:
      results["loss"] = original_loss
    self.write_scores_file(results, f"eval_results{suffix}.txt")
    self.set_summary_score(scores)

  def set_summary_score(
    self, scores: Mapping[str, float], metric: str | None = None
  ) -> None:
    """Keeps scores for the summary and the report, unless they have some.

    Args:
      scores: by name, without "eval_" before it.
      metric: the name of a score that is shown in any case, before the best one
        of a training. None: the one by which weights are chosen, which is shown
        if no training has shown it.
    """
    shown: str = metric or self.data.metric
    text = f"eval_{shown} {scores[shown]:.4g}"
    if metric:
      self.score_text = "; ".join(filter(None, [text, self.score_text]))
    self.score_text = self.score_text or text
    self.first_scores = self.first_scores or {shown: scores[shown], **scores}

  def report_on(
    self,
    dataset: feature_sets.FeatureSet,
    describe: Callable[..., str],
    *values: Any,
  ) -> None:
    """Adds a section on a set to report.html.

    Args:
      dataset: gives the title, and the examples.
      describe: takes an iterator of the examples, and `values`; returns HTML.
      *values: such as the scores.
    """
    title = "Prediction" if dataset.kind == "predict" else "Evaluation"
    if dataset.name:
      title += f" of {dataset.name}"
    self.add_section(title, lambda: describe(dataset.examples(), *values))


def _warn_of_share(trained: str) -> None:
  """Warns if the evaluated examples may have been trained on."""
  if same_run.HELD_OUT not in same_run.read_training(trained):
    progress.note(
      "note: --eval_share: the weights may have been trained on these "
      "examples, for that training held out none"
    )


@contextlib.contextmanager
def open_run(
  settings: shared_flags.FineTuningSettings,
  data: Data,
  strategy: tf.distribute.Strategy,
) -> Iterator[Run]:
  """Claims the output folder and compares the run with those before it.

  Nothing is written to the folder of another model or run. At the end it waits
  for the other workers, which need this one until then, and prints a summary.

  Args:
    settings: the flags of a single run.
    data: what the run reads; its feature files need not exist yet.
    strategy: the devices; several runs may share it.

  Yields:
    The run, which has no model yet: `Run.make_model` makes it.
  """
  config = model_folder.read_checked_config(settings)
  _check_segments(config, data)
  folder = settings.output_dir

  # For the summary, which names the files that this run wrote.
  start = time.monotonic()
  files_before = run_report.list_files(folder)
  with (
    output_folder.claim(settings, config, strategy),
    output_folder.local_folder(folder, strategy) as local_folder,
  ):
    output_folder.check_evaluations(settings)
    record = describe_run(settings, data)
    _compare_workers(strategy, settings, data, config, record)

    # Earlier runs: those in this folder, and the training of the weights.
    trained = output_folder.trained_folder(settings)
    same_run.check(folder, trained, record)
    if same_run.HELD_OUT in record.model and not data.train:
      _warn_of_share(trained)

    run = Run(
      settings=settings,
      data=data,
      strategy=strategy,
      config=config,
      record=record,
      local_folder=local_folder,
    )
    yield run

    # An error in the program's work is raised by `yield`: no summary then.
    workers.wait_for_all(strategy)
    if run.is_chief:
      run.write_report(start, data.problem.replace("_", " "), run.score_text)
      run_report.summarize(
        folder, start, files_before, run.score_text, data.has_export
      )


def _compare_workers(strategy, settings, data, config, record) -> None:
  """Raises a ValueError on all workers if one of them has other flags or data.

  Each has read its own command line and its own copies of the files.
  """
  workers.compare_workers(
    strategy,
    {
      **settings.flags_of_workers(),
      "--bert_config_file": config,
      "metric": data.metric,
      "labels": list(data.labels),
      "training data": data.train and data.train.key,
      "evaluation data": [dataset.key for dataset in data.dev],
      "prediction data": [dataset.key for dataset in data.test],
      **record.model,
    },
  )


def _check_segments(config, data: Data) -> None:
  """Refuses pairs of texts for a model that cannot tell the two apart."""
  # The two problems always take two texts, and do not record it.
  takes_pairs = data.answer_settings.get("has_text_pair") or (
    data.problem in ("question_answering", "multiple_choice")
  )
  if config.type_vocab_size < 2 and takes_pairs:
    raise ValueError(
      "the config's type_vocab_size is 1: the model has one segment, and takes "
      "no pairs of texts"
    )


def name_for_evaluation(scores: Mapping[str, float]) -> dict[str, float]:
  """Puts "eval_" before the names of scores, as the original's files have it.

  In this project's code scores have their plain names, such as "accuracy".
  """
  return {f"eval_{name}": value for name, value in scores.items()}


def plan_of_epochs(
  settings: shared_flags.FineTuningSettings, steps_per_epoch: float
) -> training_plan.TrainingPlan:
  """Makes the plan of --num_train_epochs.

  A ValueError says that these are less than one batch, or far too many steps.
  """
  # As in the original: truncated, operations in this order.
  num_train_steps = int(steps_per_epoch * settings.num_train_epochs)
  if not num_train_steps:
    num_rows = round(steps_per_epoch * settings.train_batch_size)
    raise ValueError(
      f"{num_rows} training examples are less than one batch in "
      f"--num_train_epochs={settings.num_train_epochs}: lower "
      f"--train_batch_size={settings.train_batch_size}"
    )
  if num_train_steps > shared_flags.MOST_STEPS:
    raise ValueError(
      f"--num_train_epochs={settings.num_train_epochs}: {num_train_steps:,} "
      f"steps; expected at most {shared_flags.MOST_STEPS:,}"
    )

  # Epochs need not be whole steps: the plan takes fractions.
  eval_every_steps: float = settings.eval_every_steps
  if settings.eval_every_epochs:
    eval_every_steps = max(1.0, steps_per_epoch * settings.eval_every_epochs)
  return training_run.make_plan(
    settings, num_train_steps, eval_every_steps=eval_every_steps
  )
