"""What the fine-tuning programs share: checks, and `Recipe`, what they are.

A program makes a recipe of its flags, and follows it:

  recipe = make_recipe(fine_tuning.read_settings())
  fine_tuning.follow(recipe, devices.make_strategy(recipe.settings))

`open_run` opens the folder and the data and makes the model.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import functools
import os
import types
from typing import Any, NamedTuple

from absl import flags
import keras
import numpy as np
import tensorflow as tf

from cli import devices
from cli import flag_values
from cli import model_folder
from cli import models
from cli import run_records
from cli import run_report
from cli import run_summary
from cli import task_training
from data import files
from data import label_files
from encoders import encoder_table
from inputs import feature_files
from inputs import training_input
import modeling
import optimization
import tokenization
from training import loop
from training import model_selection
from training import prediction
from training import workers
from weights import checkpoints


def read_settings() -> flag_values.Settings:
  """Reads the flags, after checking that a remote TPU can work with them.

  A run that does not train predicts as the training of its weights: flags that
  are not given have the values that are recorded there.

  Raises:
    ValueError: a remote TPU cannot open a path or be trained from here; or as
      `flag_values.read`.
  """
  values = flags.FLAGS  # Before any file is looked for.
  devices.check_tpu_paths(values)
  if values.do_train and devices.uses_tpu_elsewhere(values):
    raise ValueError(
      "--distribution=tpu: this program hands the training data to the TPU, "
      "which only one of the same machine can take: run on the TPU's own "
      "machine with --tpu_name=local"
    )
  if not values.do_train:
    run_records.follow_training(values)
  model_folder.find_files()
  return flag_values.read()


def check_work(settings: flag_values.Settings) -> None:
  """Raises a ValueError if there is nothing to do."""
  if not (settings.do_train or settings.do_eval or settings.do_predict):
    raise ValueError(
      "nothing to do: pass --do_train=true, --do_eval=true or --do_predict=true"
    )


def find_data_files(
  settings: flag_values.Settings, endings: Sequence[str], predicts: bool = True
) -> dict[str, str]:
  """Finds the files that `models.define_data_flags` asks for.

  Args:
    predicts: whether the task does anything at --do_predict.

  Returns:
    Their paths, by purpose: train, eval or predict.
  """
  check_work(settings)
  evaluates = settings.do_eval or task_training.evaluates(settings)
  found = {}
  for kind, is_asked, names in (
    ("train", settings.do_train, ("train",)),
    ("eval", evaluates, ("dev", "valid", "val")),
    ("predict", settings.do_predict and predicts, ("test",)),
  ):
    if is_asked:
      path = getattr(settings, f"{kind}_file")
      found[kind] = path or _find_data_file(
        settings.data_dir, kind, names, endings
      )
  return found


def _find_data_file(folder, kind, names, endings) -> str:
  if not folder:
    raise ValueError(f"--do_{kind} needs --{kind}_file or --data_dir")
  found = files.find_one(folder, names, endings)
  if not found:
    raise ValueError(
      f"--data_dir={folder}: no file for --do_{kind}; expected "
      f"{' or '.join(names)}, ending in {', '.join(endings)}, with or without "
      ".gz or .xz after it"
    )
  return found


def check_fine_tuning_flags(
  settings: flag_values.Settings, config: modeling.EncoderConfig
) -> None:
  """Compares vocabulary, casing and lengths with the model."""
  model_folder.check_vocabulary(settings.vocab_file, config)
  if settings.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={settings.max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  tokenization.validate_case_matches_checkpoint(
    settings.do_lower_case, settings.init_checkpoint
  )
  asks_cls = getattr(settings, "version_2_with_negative", False)
  if asks_cls and encoder_table.is_causal(config):
    raise ValueError(
      "--version_2_with_negative: [CLS], which stands for no answer, sees no "
      "other token of a causal model"
    )


def batch_order(
  settings: flag_values.Settings, lengths: np.ndarray, batch_size: int
) -> list[np.ndarray]:
  """Returns the batches for prediction, as row indices.

  Args:
    lengths: int [N], tokens of each row.
    batch_size: rows of --max_seq_length per batch; more if they are shorter.
  """
  if is_static(settings):
    return feature_files.equal_batches(len(lengths), batch_size)
  return feature_files.batches_by_tokens(
    lengths, batch_size * settings.max_seq_length
  )


def is_static(settings: flag_values.Settings) -> bool:
  """Tells whether all batches must have one shape."""
  return settings.pad_to_max_length or devices.uses_tpu(settings)


def best_metric(
  settings: flag_values.Settings, default: str, known: Iterable[str]
) -> str:
  """Returns the name of the score that decides which weights are best."""
  name = (settings.best_metric or default).removeprefix("eval_")
  known = list(known)
  if name not in known:
    raise ValueError(
      f"--best_metric={name}: expected one of {', '.join(known)}"
    )
  return name


def labels_file(folder: str) -> str:
  """Returns the path of a run's labels file."""
  return os.path.join(folder, "labels.txt")


def initial_labels(settings: flag_values.Settings) -> tuple[str, ...]:
  """Returns the labels of the head in --init_checkpoint, () if not known."""
  if not settings.init_checkpoint:
    return ()
  start = model_folder.open(settings.init_checkpoint)
  # They may be of a head that is not read, such as DistilBERT's.
  return start.labels if "output_weights" in start.weights.shapes else ()


class Inputs(NamedTuple):
  """The data of a run, and what ties its model to it."""

  settings: Any  # Determines the features: a task's frozen dataclass.
  metric: str  # Decides which weights are best; from `best_metric`.
  # Later runs in the output folder must agree with this, as JSON values ...
  model_settings: Mapping[str, Any]
  train: feature_files.Split | None = None  # None or (): not requested.
  eval: Sequence[feature_files.Split] = ()  # Training scores the first.
  predict: Sequence[feature_files.Split] = ()
  labels: Sequence[str] = ()  # In the order of the outputs; may be ().
  # ... and runs that resume training also with this.
  training_settings: Mapping[str, Any] = types.MappingProxyType({})
  # What predictions depend on besides the weights and --max_seq_length.
  prediction_settings: Mapping[str, Any] = types.MappingProxyType({})


class Recipe(NamedTuple):
  """A task as a fine-tuning program knows it."""

  settings: flag_values.Settings  # output_dir and seed identify the run.
  # Finds the data; takes the settings and a local folder for feature files.
  open_inputs: Callable[[flag_values.Settings, str], Inputs]
  # Makes the model, in a Keras dtype policy, with random weights.
  create_model: Callable[[modeling.EncoderConfig, Inputs, str], keras.Model]
  # What the model predicts; see `prediction.Predictor`.
  predict: Callable[
    [keras.Model, training_input.Features], dict[str, tf.Tensor]
  ]
  make_loss: Callable[["Run"], loop.LossFn]
  evaluate: Callable[["Run"], Mapping[str, float]]  # Scores, by name.
  finish: Callable[["Run"], Any]  # Evaluates and predicts as flags say.
  # What to train on, if it is no feature file: of a batch size.
  make_source: Callable[["Run", int], training_input.TrainingInput] | None = (
    None
  )
  perfect: float = 1.0  # The best score; those of SQuAD are percentages.


@dataclasses.dataclass
class Run:
  """A model and its data, ready to train and predict; `open_run` makes it."""

  recipe: Recipe
  strategy: tf.distribute.Strategy
  config: modeling.EncoderConfig
  inputs: Inputs
  model: keras.Model
  predictor: prediction.Predictor
  private: str  # A local folder of this worker alone.
  step: int  # The number of updates behind the weights.
  score: str = ""  # For the summary: "eval_f1 0.9 at step 8".
  # Of report.html: HTML by the title of the section.
  report: dict[str, str] = dataclasses.field(default_factory=dict)

  @property
  def settings(self) -> flag_values.Settings:
    """Those of the recipe."""
    return self.recipe.settings

  @property
  def folder(self) -> str:
    """The output folder."""
    return self.settings.output_dir

  @property
  def tuned_folder(self) -> str:
    """The folder whose thresholds are of the weights, or else its own."""
    return run_records.tuned_folder(self.settings) or self.folder

  @property
  def is_chief(self) -> bool:
    """Whether this worker writes to the output folder."""
    return self.strategy.extended.should_checkpoint

  def parser(
    self, split: feature_files.Split
  ) -> Callable[[tf.Tensor], training_input.Features]:
    """Returns the function from serialized rows, string [B], to features."""
    return feature_files.make_parser(
      split.layout,
      self.config.vocab_size,
      self.config.type_vocab_size,
      is_static(self.settings),
    )

  def batch_order(
    self, split: feature_files.Split, batch_size: int
  ) -> list[np.ndarray]:
    """Returns the batches for predicting a split; see `batch_order`."""
    return batch_order(self.settings, split.features.lengths, batch_size)

  def predict(
    self, split: feature_files.Split, batch_size: int
  ) -> dict[str, np.ndarray]:
    """Returns what the model predicts for the rows of a split, in order.

    Args:
      batch_size: rows of --max_seq_length per batch; more if they are shorter.
    """
    return feature_files.predict(
      self.predictor,
      split.features,
      self.batch_order(split, batch_size),
      self.parser(split),
    )

  def write_eval_results(
    self,
    scores: Mapping[str, float],
    suffix: str = "",
    written: Mapping[str, float] | None = None,
    original_loss: float | None = None,
  ) -> None:
    """Prints scores and writes them to eval_results.txt, as the original.

    Args:
      scores: of an evaluation; the summary shows those of the first call.
      written: the scores to write; None for all.
      original_loss: the mean of the batches' losses; None to leave it out.
    """
    results = task_training.named_for_evaluation(
      scores if written is None else written
    )
    if original_loss is not None:
      results["loss"] = original_loss
    name = f"eval_results{suffix}.txt"
    models.write_eval_results(self.folder, self.step, results, name)
    self.note_score(scores)

  def report_on(
    self,
    split: feature_files.Split,
    describe: Callable[..., str],
    *values: Any,
  ) -> None:
    """Adds a section on a split to report.html, if there will be one.

    Args:
      describe: makes the section's HTML from the examples and the values.
    """
    if self.is_chief and self.settings.report:
      title = {"predict": "Prediction"}.get(split.kind, "Evaluation")
      title = " of ".join(filter(None, [title, getattr(split, "name", "")]))
      with run_report.failures_told():
        self.report[title] = describe(split.examples(), *values)

  def note_score(self, scores: Mapping[str, float]) -> None:
    """Keeps the score for the summary, unless it has one."""
    name = self.inputs.metric
    self.score = self.score or (
      f"eval_{name} {scores[name]:.4g} at step {self.step}"
    )

  def make_task(
    self, plan: loop.TrainingPlan, steps_per_epoch: float
  ) -> loop.TrainingTask:
    """Makes the optimizer, the loss and the input of training."""
    settings, num_steps = self.settings, plan.num_train_steps
    with self.strategy.scope():
      optimizer = optimization.create_optimizer(
        self.model.trainable_variables,
        settings.learning_rate,
        num_steps,
        int(num_steps * settings.warmup_proportion),
        settings.layerwise_lr_decay,
        _freeze_layers(settings.freeze_layers),
        steps_per_epoch,
      )
    make_source = self.recipe.make_source or Run._read_features
    source = make_source(self, plan.train_batch_size)
    loss_fn = self.recipe.make_loss(self)
    task = loop.TrainingTask(self.model, optimizer, loss_fn, source, plan)
    if not self.is_chief:
      return task
    return task._replace(
      begin=functools.partial(run_records.remove_tuned, self.folder)
    )

  def _read_features(self, batch_size):
    split = self.inputs.train
    return feature_files.training_source(
      split.features,
      self.parser(split),
      batch_size,
      self.settings.seed,
      split.describe,
    )

  def train(self) -> None:
    """Trains or resumes; restores the best weights if any were kept.

    SIGINT and SIGTERM save, then exit with status 128 + signal number.
    """
    rows = self.inputs.train.rows_per_epoch
    steps_per_epoch = rows / self.settings.train_batch_size
    plan = make_plan(self.settings, steps_per_epoch)
    self.step, self.score = task_training.train(
      self.settings,
      self.strategy,
      {"": self.make_task(plan, steps_per_epoch)},
      np.zeros(plan.num_train_steps, np.int8),
      plan,
      lambda: self.recipe.evaluate(self),
      self.inputs.metric,
    )


@contextlib.contextmanager
def open_run(recipe: Recipe, strategy: tf.distribute.Strategy) -> Iterator[Run]:
  """Claims the output folder, reads all data and makes a model of it.

  Nothing is written to the folder of another model or run, and no model is made
  before all data has been read and checked. At the end it waits for the other
  workers, which need this one until then, and prints a summary.

  Args:
    strategy: from `devices.make_strategy`; several runs may share it.
  """
  settings = recipe.settings
  config = model_folder.read_config(settings)
  check_fine_tuning_flags(settings, config)
  start = run_summary.begin(settings.output_dir)
  with (
    models.claim_output_dir(settings, config, strategy),
    models.private_folder(settings.output_dir, strategy) as private,
  ):
    task_training.check_evaluations(settings)
    inputs = recipe.open_inputs(settings, private)
    _check_workers(settings, strategy, config, inputs)
    run_records.check(settings, inputs)
    for split in filter(None, [inputs.train, *inputs.eval, *inputs.predict]):
      len(split.features)  # Makes them, if need be, which checks every row.
    keras.utils.set_random_seed(settings.seed % 2**32)
    with strategy.scope():
      dtype = devices.compute_dtype(settings)
      model = recipe.create_model(config, inputs, dtype)
    run = Run(
      recipe,
      strategy,
      config,
      inputs,
      model,
      prediction.Predictor(strategy, model, recipe.predict),
      private,
      load_trained_weights(settings, model),
    )
    models.write_config(run.folder, config, strategy, settings.vocab_file)
    if run.is_chief:
      run_records.write(settings, inputs)
      if inputs.labels:
        label_files.write(labels_file(run.folder), inputs.labels)
      for split in inputs.predict:  # These scores are of other predictions.
        name = f"predict{split.suffix}_metrics.json"
        files.remove(os.path.join(run.folder, name))
    yield run
    workers.wait_for_all(strategy)
    if run.is_chief:
      problem = inputs.model_settings["problem"]
      if settings.report:
        title = problem.replace("_", " ")
        run_report.write(settings, start.time, title, run.report, run.score)
      can_export = not problem.endswith("_lm")  # Of run_multitask.py.
      run_summary.print_summary(run.folder, start, run.score, can_export)


def follow(recipe: Recipe, strategy: tf.distribute.Strategy) -> Any:
  """Trains, evaluates and predicts; returns what `recipe.finish` does."""
  with open_run(recipe, strategy) as run:
    if recipe.settings.do_train:
      run.train()
    return recipe.finish(run)


def finish_with_scores(run: Run) -> None:
  """Evaluates if the flags say so; the scores are all that is written."""
  if run.settings.do_eval:
    scores = run.recipe.evaluate(run)  # On all workers; the chief writes.
    if run.is_chief:
      run.write_eval_results(scores)


def load_trained_weights(
  settings: flag_values.Settings, model: keras.Model
) -> int:
  """Loads the weights to start fine-tuning from, or the fine-tuned ones.

  With --do_train, takes the newest checkpoint in the output folder, or else
  --init_checkpoint. Without, prefers the run's best weights to the newest, and
  none may be missing.

  Returns:
    The number of updates behind the weights.
  """
  folder, variables = settings.output_dir, loop.model_variables(model)
  if settings.do_train:
    return models.load_weights(settings, variables)
  step = model_selection.restore_best(folder, variables)
  if step is not None:
    print(f"weights from the best evaluation, at step {step}")
    return step
  if not checkpoints.latest_checkpoint(folder):
    if not settings.init_checkpoint:
      raise ValueError(
        f"--output_dir={folder} holds no trained model: pass --do_train=true, "
        "or --init_checkpoint with one"
      )
    start = model_folder.open(settings.init_checkpoint)
    missing = set(variables) - set(start.weights.shapes)
    if not model.uses_pooler:
      missing = {name for name in missing if "/pooler/" not in name}
    if missing:
      raise ValueError(
        f"--init_checkpoint={settings.init_checkpoint} is not trained for this "
        f"task, it lacks {', '.join(sorted(missing))}: pass --do_train=true"
      )
  return models.load_weights(settings, variables)


def _check_workers(settings, strategy, config, inputs):
  """Refuses to start if the workers have different flags or data."""
  devices.check_workers(
    strategy,
    settings,
    {
      "--bert_config_file": config,
      "--precision": settings.precision,
      "--freeze_layers": settings.freeze_layers,
      "metric": inputs.metric,
      "labels": list(inputs.labels),
      "training data": inputs.train and inputs.train.key,
      "evaluation data": [split.key for split in inputs.eval],
      "prediction data": [split.key for split in inputs.predict],
      **run_records.of_model(settings, inputs),
    },
  )


def make_plan(
  settings: flag_values.Settings, steps_per_epoch: float
) -> loop.TrainingPlan:
  """Makes the plan of --num_train_epochs, which must be a batch at least."""
  # As in the original: truncated, operations in this order.
  num_train_steps = int(steps_per_epoch * settings.num_train_epochs)
  if not num_train_steps:
    num_rows = round(steps_per_epoch * settings.train_batch_size)
    raise ValueError(
      f"{num_rows} training examples are less than one batch in "
      f"--num_train_epochs={settings.num_train_epochs}: lower "
      f"--train_batch_size={settings.train_batch_size}"
    )
  plan = flag_values.fill(
    loop.TrainingPlan, settings, num_train_steps=num_train_steps
  )
  if not settings.eval_every_epochs:
    return plan
  every = max(1.0, steps_per_epoch * settings.eval_every_epochs)
  return dataclasses.replace(plan, eval_every_steps=every)


def _freeze_layers(value: str) -> int | str:
  if value == "gradual":
    return value
  if not value.isdecimal():
    raise ValueError(
      f"--freeze_layers={value}: expected a number of layers, or gradual"
    )
  return int(value)
