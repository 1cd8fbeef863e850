"""The output folder of a training: claimed, filled, and read again."""

import collections
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import os
import pathlib
import re
import shutil
import tempfile

import keras
import tensorflow as tf

from bert import modeling
from bert.cli import model_folder, shared_flags
from bert.data import atomic, files, hub, remote, sbert_files
from bert.training import model_selection, same_run
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints

_EXPORT = "export.json"  # As bert/serving/export_card.py, an upper place, says.
# These files say what the model of a folder is.
_MODEL_FILES = {
  "bert_config.json",
  "held_out.jsonl",
  hub.RECORD,
  "labels.txt",
  "prediction.json",
  "settings.json",
  "tokenizer_config.json",
  "training.json",
  *vocabulary_table.NAMES,
  *sbert_files.WRITTEN,
}
# Features, curves and temporary files, which a run makes before any result.
_MADE_EARLY = re.compile(r"\.tf_record|^events\.out|^curves\.jsonl$|^\.")


@contextlib.contextmanager
def claim(
  settings: shared_flags.TrainingSettings,
  config: modeling.EncoderConfig,
  strategy: tf.distribute.Strategy,
) -> Iterator[None]:
  """Makes the output folder and keeps other runs out while the body runs.

  A run that fails before it has weights or results leaves only features, and
  the curves of a training. A ValueError says that the folder cannot be written
  or is of another config, an OSError that another process is training in it.

  Args:
    settings: have --output_dir, and whether the run trains.
    config: of the run's model.
    strategy: says which worker is the chief, which alone claims the folder.
  """
  folder = settings.output_dir
  if re.search(r"[*?\[\\]", folder):
    raise ValueError(
      f"--output_dir={folder}: TensorFlow reads no checkpoint from a "
      "path with *, ?, [ or \\ in it; choose another"
    )

  # Whatever loads a folder takes an export in it, and not its checkpoints.
  if settings.do_train and files.exists(os.path.join(folder, _EXPORT)):
    raise ValueError(
      f"--output_dir={folder}: holds an export ({_EXPORT}), which would answer "
      "in place of what is trained here: choose another folder"
    )

  is_chief = strategy.extended.should_checkpoint
  with contextlib.ExitStack() as stack:
    # A run that cannot write its results must fail now, not after hours.
    try:
      if not remote.is_remote(folder):
        stack.enter_context(_new_folder(folder))
        # Without a name, so that nothing is left behind.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
      raise ValueError(
        f"--output_dir={folder}: not a folder that can be written: "
        f"{error.strerror}"
      ) from error

    # Two trainings would overwrite each other's checkpoints.
    if settings.do_train and is_chief:
      stack.enter_context(atomic.claim_folder(folder))
    same_run.check_config(folder, config)

    # The stack unwinds backwards: this cleans before an empty folder goes.
    if is_chief and not remote.is_remote(folder):
      stack.enter_context(_removing_early_files(folder, settings.do_train))
    if is_chief:
      model_folder.record_commit(settings)
    yield


@contextlib.contextmanager
def _new_folder(folder: str) -> Iterator[None]:
  """Makes missing folders; those that are empty in the end are removed."""
  parents = [pathlib.Path(folder), *pathlib.Path(folder).parents]
  made = [path for path in parents if not path.exists()]
  try:
    os.makedirs(folder, exist_ok=True)
    yield
  finally:
    with contextlib.suppress(OSError):  # It is not empty.
      for path in made:
        path.rmdir()


@contextlib.contextmanager
def _removing_early_files(folder: str, trains: bool) -> Iterator[None]:
  """Removes new files that say what a folder's model is, if a run made none.

  Args:
    folder: the output folder.
    trains: whether the run has claimed the folder for a training.
  """
  before = set(os.listdir(folder))
  try:
    yield
  except SystemExit:  # A signal stopped a training, which saved a checkpoint.
    raise
  except BaseException:  # Ctrl-C, too.
    _remove_early_files(folder, before, trains)
    raise


def _remove_early_files(folder: str, before: set[str], trains: bool) -> None:
  # All workers of a refused run remove the folder if it is empty, and another
  # one may have been faster.
  names = os.listdir(folder) if os.path.exists(folder) else []
  new = {name for name in names if not _MADE_EARLY.search(name)} - before
  if not new.issubset(_MODEL_FILES):
    return

  # The new files may be those of a training that has begun meanwhile.
  if new and not trains:
    with atomic.locked(folder) as is_ours:
      if is_ours is False:
        return
  for name in new:
    path = os.path.join(folder, name)
    if os.path.isdir(path):  # That of a pooling.
      shutil.rmtree(path)
    else:
      files.remove(path)


def remove_scores(folder: str, stem: str) -> None:
  """Removes the file that `metrics.write_metrics` made, if there is one."""
  files.remove(os.path.join(folder, f"{stem}_metrics.json"))


def local_folder(
  folder: str, strategy: tf.distribute.Strategy
) -> contextlib.AbstractContextManager[str]:
  """Opens a local folder for this worker: the output folder if it may."""
  if strategy.extended.should_checkpoint and not remote.is_remote(folder):
    return contextlib.nullcontext(folder)
  return tempfile.TemporaryDirectory()


def begins_anew(settings: shared_flags.TrainingSettings) -> bool:
  """Returns whether a run is a training that finds no checkpoint of its own."""
  has_checkpoint = checkpoints.latest_checkpoint(settings.output_dir)
  return settings.do_train and not has_checkpoint


def check_evaluations(settings: shared_flags.FineTuningSettings) -> None:
  """Raises a ValueError if flags, or best weights, contradict evaluations."""
  if not settings.do_train:
    return

  best = model_selection.best_step(settings.output_dir)
  if best is not None and begins_anew(settings):
    raise ValueError(
      f"--output_dir={settings.output_dir}: a training would begin anew, for "
      f"its checkpoints are gone, and delete the best weights, of step {best}: "
      "move the folder best away, or choose another --output_dir"
    )
  if best is not None and not settings.evaluates_in_training:
    raise ValueError(
      f"--output_dir={settings.output_dir}: its best weights, of step {best}, "
      "would be used instead of those of a training without evaluations: pass "
      "--eval_every_epochs or --eval_every_steps, or move the folder best away"
    )


def load_weights_of_run(
  settings: shared_flags.TrainingSettings,
  model: keras.Model,
  unused: tuple[str, ...] = (),
) -> int:
  """Loads the weights to start a training from, or the trained ones.

  Without --do_train, prefers the run's best weights, and none may be missing
  but those with one of `unused` in their names, which no score depends on.
  Returns the number of updates behind the weights.
  """
  folder = settings.output_dir
  variables = checkpoints.model_variables(model)
  if settings.do_train:
    return load_weights(settings, variables)

  # In this order: the best weights of the run, its last ones, other weights.
  step = model_selection.restore_best(folder, variables)
  if step is not None:
    print(f"weights from the best evaluation, at step {step}")
    return step
  if checkpoints.latest_checkpoint(folder):
    return load_weights(settings, variables)

  if not settings.init_checkpoint:
    raise ValueError(
      f"--output_dir={folder} holds no trained model: pass --do_train=true, or "
      "--init_checkpoint with one"
    )

  # Without training, a head with random weights would answer at random.
  if not model.uses_pooler:
    unused = ("/pooler/", *unused)
  missing = sorted(
    name
    for name in set(variables) - set(settings.open_model().weights.shapes)
    if not any(part in name for part in unused)
  )
  if missing:
    raise ValueError(
      f"--init_checkpoint={settings.init_checkpoint} is not trained for this "
      f"task, it lacks {', '.join(missing)}: pass --do_train=true"
    )
  return load_weights(settings, variables)


def load_weights(
  settings: shared_flags.TrainingSettings, variables: Mapping[str, tf.Variable]
) -> int:
  """Loads the newest checkpoint in --output_dir, or else --init_checkpoint.

  That may lack this head's variables, and have another's; both are printed.
  Returns the number of updates behind the weights.
  """
  folder = settings.output_dir
  # A training also reads the moments of Adam, and skips a checkpoint in which
  # they are damaged: so must this, or it would load another step's weights.
  step = checkpoints.restore(folder, variables, reads_all=settings.do_train)
  if step is not None:
    print(f"weights from {checkpoints.saved_prefix(folder, step)}")
    return step

  if not settings.init_checkpoint:
    print("no checkpoint given: the weights are random")
    return 0

  # Heads may differ, but all layers of the encoder must be there.
  weights = settings.open_model().weights
  loaded = checkpoints.assign(weights, variables, checkpoints.is_above_layers)
  print(f"weights from {weights.source}")
  for title, names in (
    ("not in it, they start with random values", loaded.missing),
    ("in it, but not used", loaded.unused),
  ):
    if names:
      print(f"  {title}: {', '.join(_join_heads(names))}")
  return 0


def _join_heads(names: Sequence[str]) -> list[str]:
  """Counts the variables of a head that has more than two.

  >>> _join_heads(["cls/a/bias", "cls/b/bias", "cls/c/kernel", "output_bias"])
  ['3 variables of the pre-training heads', 'output_bias']
  """
  heads = collections.Counter(name.partition("/")[0] for name in names)

  # The keys of a dict: in the order of the names, each once.
  lines = {}
  for name in names:
    head = name.partition("/")[0]
    is_long = heads[head] > 2 and head != "bert"
    owner = "the pre-training heads" if head == "cls" else head
    lines[f"{heads[head]} variables of {owner}" if is_long else name] = None
  return list(lines)


def trained_folder(settings: shared_flags.TrainingSettings) -> str:
  """Returns the folder of the training whose weights a run predicts with."""
  if not starts_elsewhere(settings):
    return settings.output_dir
  folders = settings.open_model().folders
  return next(filter(same_run.is_of_training, folders), settings.output_dir)


def starts_elsewhere(settings: shared_flags.TrainingSettings) -> bool:
  """Returns whether a run predicts with the weights of --init_checkpoint."""
  folder = settings.output_dir
  # Weights in the output folder come first; a training starts or resumes there.
  is_own = settings.do_train or model_selection.best_step(folder) is not None
  return bool(
    settings.init_checkpoint
    and not is_own
    and not checkpoints.latest_checkpoint(folder)
  )
