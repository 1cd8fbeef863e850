"""What the programs that fine-tune have in common: flags and their objects."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import os
from typing import Any, Protocol

from absl import flags
import keras
import numpy as np
import tensorflow as tf

from cli import devices
from cli import models
from data import files
from inputs import feature_files
import modeling
import optimization
import tokenization
from training import loop
from training import model_selection
from weights import checkpoints

FLAGS = flags.FLAGS


def define_fine_tuning_flags(max_seq_length: int) -> None:
  """Declares what every program that fine-tunes takes."""
  flags.DEFINE_string(
    "vocab_file", None, "The vocab.txt of the model.", required=True
  )
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Whether to lower-case the text and strip accents: True for uncased "
    "models, False for cased ones.",
  )
  for name, default, least, text in (
    ("max_seq_length", max_seq_length, 3, "Most tokens per input."),
    ("predict_batch_size", 8, 1, "Inputs of --max_seq_length per batch."),
    (
      "early_stopping_patience",
      0,
      0,
      "Evaluations in a row without a better score after which training ends; "
      "0 to go on to the end.",
    ),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=least)
  for name, default, text in (
    ("num_train_epochs", 3.0, "Times to go through the training data."),
    ("warmup_proportion", 0.1, "Part of training with a rising rate."),
    (
      "eval_every_epochs",
      0.0,
      "Epochs from one evaluation during training to the next, instead of "
      "--eval_every_steps; 0 for none. With either, the weights of the best "
      "evaluation are kept in output_dir/best and used from then on.",
    ),
    (
      "layerwise_lr_decay",
      1.0,
      "Factor between the learning rates of a layer and the one above it; the "
      "head has the full rate.",
    ),
  ):
    flags.DEFINE_float(name, default, text, lower_bound=0.0)
  flags.DEFINE_string(
    "freeze_layers",
    "0",
    "How many layers to leave as they are, from the bottom, with the "
    "embeddings; or 'gradual': only the head at first, and one more layer from "
    "the top after every epoch.",
  )
  flags.DEFINE_string(
    "best_metric", None, "The score that decides which weights are best."
  )
  flags.DEFINE_bool(
    "pad_to_max_length",
    False,
    "Whether to pad every batch to --max_seq_length, as a TPU needs it; slower "
    "and to the same effect.",
  )


def define_data_flags() -> None:
  """Declares the files of a program that has three, and what it does."""
  for name, text in (
    ("data_dir", "A folder with files called train, dev (or valid) and test."),
    ("train_file", "What to train on, instead of the file in --data_dir."),
    ("eval_file", "What to evaluate on, likewise."),
    ("predict_file", "What to predict, likewise."),
  ):
    flags.DEFINE_string(name, None, text)
  flags.DEFINE_integer(
    "eval_batch_size",
    8,
    "Inputs of --max_seq_length per batch of an evaluation.",
    lower_bound=1,
  )
  flags.DEFINE_bool("do_train", False, "Whether to train.")
  flags.DEFINE_bool("do_eval", False, "Whether to evaluate, after training.")
  flags.DEFINE_bool("do_predict", False, "Whether to predict, after that.")


def find_data_files(endings: Sequence[str]) -> dict[str, str]:
  """Finds the files that `define_data_flags` asks for.

  Args:
    endings: of the names of files in --data_dir.

  Returns:
    Their paths by what they are for: train, eval or predict.

  Raises:
    ValueError: nothing is to be done, or there is no file for it.
  """
  evaluates = FLAGS.do_eval or evaluates_while_training()
  found = {}
  for kind, is_asked, names in (
    ("train", FLAGS.do_train, ("train",)),
    ("eval", evaluates, ("dev", "valid", "val")),
    ("predict", FLAGS.do_predict, ("test",)),
  ):
    if is_asked:
      path = getattr(FLAGS, f"{kind}_file")
      found[kind] = path or _find_data_file(kind, names, endings)
  if not found:
    raise ValueError(
      "nothing to do: pass --do_train=true, --do_eval=true or --do_predict=true"
    )
  return found


def _find_data_file(kind, names, endings) -> str:
  if not FLAGS.data_dir:
    raise ValueError(f"--do_{kind} needs --{kind}_file or --data_dir")
  candidates = [
    os.path.join(FLAGS.data_dir, name + ending)
    for name in names
    for ending in endings
  ]
  found = list(filter(files.exists, candidates))
  if len(found) > 1:
    listing = " and ".join(map(os.path.basename, found))
    raise ValueError(
      f"--data_dir={FLAGS.data_dir}: holds {listing}; keep one of them"
    )
  if not found:
    raise ValueError(
      f"--data_dir={FLAGS.data_dir}: no file for --do_{kind}; expected "
      f"{' or '.join(names)}, ending in {', '.join(endings)}"
    )
  return found[0]


class Run(Protocol):
  """What `fine_tune` reads of a program's run."""

  strategy: tf.distribute.Strategy
  model: keras.Model
  folder: str
  seed: int


class Split(Protocol):
  """Data to train on."""

  features: feature_files.FeatureFile

  def describe(self, index: int) -> str:
    """Says where an example, by its number from 0, is from."""


def load_trained_weights(
  folder: str, model: keras.Model, will_train: bool
) -> int:
  """Loads what fine-tuning starts from, or what it left.

  Args:
    folder: of the run.
    model: whose weights to load.
    will_train: whether the model is to be trained; if not, the best weights of
      the run come before the newest, and none may be missing.

  Returns:
    The number of updates behind the weights.

  Raises:
    ValueError: the checkpoint does not fit the model, or none is there.
  """
  variables = loop.model_variables(model)
  if will_train:
    return models.load_weights(folder, variables)
  step = model_selection.restore_best(folder, variables)
  if step is not None:
    print(f"weights from the best evaluation, at step {step}")
    return step
  if not checkpoints.latest_checkpoint(folder):
    if not FLAGS.init_checkpoint:
      raise ValueError(
        f"--output_dir={folder} holds no trained model: pass --do_train=true, "
        "or --init_checkpoint with one"
      )
    prefix = models.find_init_checkpoint()
    missing = set(variables) - set(checkpoints.read_shapes(prefix))
    if not getattr(model, "uses_pooler", True):
      missing = {name for name in missing if "/pooler/" not in name}
    if missing:
      raise ValueError(
        f"--init_checkpoint={FLAGS.init_checkpoint} is not trained for this "
        f"task, it lacks {', '.join(sorted(missing))}: pass --do_train=true"
      )
  return models.load_weights(folder, variables)


def check_tpu_flags() -> None:
  """Refuses what a TPU of another machine cannot do.

  Raises:
    ValueError: it cannot open a path, or is to be trained.
  """
  devices.check_tpu_paths()
  if FLAGS.do_train and devices.uses_tpu_elsewhere():
    raise ValueError(
      "--distribution=tpu: this program hands the training data to the TPU, "
      "which only one of the same machine can take: run on the TPU's own "
      "machine with --tpu_name=local"
    )


def check_fine_tuning_flags(config: modeling.BertConfig) -> None:
  """Compares vocabulary, casing and lengths with the model.

  Raises:
    ValueError: they are of another model, or too long for this one.
  """
  size = len(tokenization.load_vocab(FLAGS.vocab_file))
  # Configs may round the size up, to a multiple of 128 at most.
  if not size <= config.vocab_size < size + 128:
    raise ValueError(
      f"--vocab_file={FLAGS.vocab_file} has {size} tokens, the vocab_size of "
      f"--bert_config_file={FLAGS.bert_config_file} is {config.vocab_size}: "
      "they are of different models"
    )
  if FLAGS.max_seq_length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={FLAGS.max_seq_length} is above the config's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  tokenization.validate_case_matches_checkpoint(
    FLAGS.do_lower_case, FLAGS.init_checkpoint
  )


def evaluates_while_training() -> bool:
  """Tells whether training is interrupted by evaluations."""
  return bool(
    FLAGS.do_train and (FLAGS.eval_every_steps or FLAGS.eval_every_epochs)
  )


def batch_order(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
  """Returns the batches to predict rows in, by their indices.

  Args:
    lengths: int [N], tokens of each row.
    batch_size: rows of --max_seq_length per batch; of shorter rows, more.
  """
  if is_static():
    return feature_files.equal_batches(len(lengths), batch_size)
  return feature_files.batches_by_tokens(
    lengths, batch_size * FLAGS.max_seq_length
  )


def is_static() -> bool:
  """Tells whether all batches have to be of one shape."""
  return FLAGS.pad_to_max_length or devices.uses_tpu()


def best_metric(default: str, known: Iterable[str]) -> str:
  """Returns the name of the score that decides which weights are best.

  Args:
    default: without --best_metric; without "eval_".
    known: the scores there are, likewise.

  Raises:
    ValueError: there is no such score.
  """
  name = (FLAGS.best_metric or default).removeprefix("eval_")
  known = list(known)
  if name not in known:
    raise ValueError(
      f"--best_metric={name}: expected one of {', '.join(known)}"
    )
  return f"eval_{name}"


def model_settings(**others: Any) -> dict[str, Any]:
  """Returns what a model is bound to: its tokens, and what a program adds."""
  return {
    **others,
    "do_lower_case": FLAGS.do_lower_case,
    "vocab_file_sha256": files.hash_file(FLAGS.vocab_file),
  }


def _training_settings(split, names):
  """Returns what must not change when training goes on."""
  names = (
    "train_batch_size",
    "learning_rate",
    "warmup_proportion",
    "layerwise_lr_decay",
    "freeze_layers",
    *names,
  )
  return {
    "training_features": split.features.key,
    **{name: getattr(FLAGS, name) for name in names},
  }


def check_model_settings(folder: str, settings: dict[str, Any]) -> None:
  """Compares `model_settings` with those of the runs in a folder.

  Raises:
    ValueError: naming what differs.
  """
  models.check_settings(_settings_file(folder), settings)


def check_training_settings(
  folder: str, split: Split | None, *names: str
) -> None:
  """Compares data and flags with those of a training to go on with.

  Args:
    folder: of the run.
    split: what is to be trained on; None checks nothing.
    names: of flags of this program that have a part in it.

  Raises:
    ValueError: naming what differs.
  """
  if split and checkpoints.latest_checkpoint(folder):
    settings = _training_settings(split, names)
    models.check_settings(_training_file(folder), settings)


def write_settings(
  folder: str,
  config: modeling.BertConfig,
  strategy: tf.distribute.Strategy,
  of_model: dict[str, Any],
  split: Split | None,
  *names: str,
  of_prediction: Mapping[str, Any],
) -> None:
  """Leaves in the run's folder what later runs in it must agree with.

  A run that trains also leaves what its predictions depend on besides the
  weights, so that export_saved_model.py can answer as the run does.

  Args:
    folder: of the run.
    config: of the model.
    strategy: only its chief writes.
    of_model: from `model_settings`.
    split, names: see `check_training_settings`.
    of_prediction: flags of this program that change predictions, besides
      --max_seq_length.
  """
  models.write_config(folder, config, strategy)
  if not strategy.extended.should_checkpoint:
    return
  models.write_settings(_settings_file(folder), of_model)
  if split:
    settings = _training_settings(split, names)
    models.write_settings(_training_file(folder), settings)
    settings = {"max_seq_length": FLAGS.max_seq_length, **of_prediction}
    models.write_settings(os.path.join(folder, "prediction.json"), settings)


def _settings_file(folder):
  return os.path.join(folder, "settings.json")


def _training_file(folder):
  return os.path.join(folder, "training.json")


def fine_tune(
  run: Run,
  loss_fn: loop.LossFn,
  split: Split,
  parse: Callable[[tf.Tensor], loop.Features],
  metric: str,
  evaluate: Callable[[int], Mapping[str, float]],
) -> loop.TrainingResult:
  """Trains as the flags say, and restores the best weights if some are.

  Args:
    run: the model, and where to leave its checkpoints.
    loss_fn: see `loop.train`.
    split: what to train on.
    parse: from its serialized rows, string [B], to features.
    metric: decides which weights are best; from `best_metric`.
    evaluate: scores the model at a step.

  Returns:
    The `loop.TrainingResult`; its step is that of the weights.

  Raises:
    ValueError: not one batch is to be trained on.
  """
  num_rows, batch_size = len(split.features), FLAGS.train_batch_size
  plan = _make_plan(run.folder, num_rows, run.seed)
  history = _make_history(run, metric)
  with run.strategy.scope():
    optimizer = optimization.create_optimizer(
      run.model.trainable_variables,
      FLAGS.learning_rate,
      plan.num_train_steps,
      int(plan.num_train_steps * FLAGS.warmup_proportion),
      FLAGS.layerwise_lr_decay,
      _freeze_layers(),
      num_rows / batch_size,
    )
  source = feature_files.training_source(
    split.features, parse, batch_size, run.seed, split.describe
  )
  result = loop.train(
    run.strategy, run.model, optimizer, loss_fn, source, plan, evaluate, history
  )
  if not history or result.signal:
    return result
  loop.wait_for_workers(run.strategy)
  best = model_selection.restore_best(
    run.folder, loop.model_variables(run.model)
  )
  if best is None:
    return result
  print(f"weights from the best evaluation: {history.summary()}")
  return result._replace(step=best)


def _make_plan(folder, num_rows, seed):
  batch_size, epochs = FLAGS.train_batch_size, FLAGS.num_train_epochs
  # Truncated, and in this order of operations: the original's.
  num_train_steps = int(num_rows / batch_size * epochs)
  if not num_train_steps:
    raise ValueError(
      f"{num_rows} training examples are less than one batch in "
      f"--num_train_epochs={epochs}: lower --train_batch_size={batch_size}"
    )
  every = FLAGS.eval_every_steps
  if FLAGS.eval_every_epochs:
    every = max(1, round(num_rows / batch_size * FLAGS.eval_every_epochs))
  return dataclasses.replace(
    models.training_plan(folder, num_train_steps),
    eval_every_steps=every,
    seed=seed,
  )


def _make_history(run, metric):
  if not evaluates_while_training():
    return None
  return model_selection.History(
    run.folder,
    metric,
    FLAGS.early_stopping_patience,
    writes=run.strategy.extended.should_checkpoint,
  )


def _freeze_layers() -> int | str:
  value = FLAGS.freeze_layers
  if value == "gradual":
    return value
  if not value.isdecimal():
    raise ValueError(
      f"--freeze_layers={value}: expected a number of layers, or gradual"
    )
  return int(value)
