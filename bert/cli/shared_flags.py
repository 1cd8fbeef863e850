"""Settings that several programs share; they do not need TensorFlow."""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any

from bert.cli import devices, flag_texts, typed_flags
from bert.data import file_search, messages, path_checks
from bert.vocabularies import vocabulary_table

# The groups under which --help lists the flags.
_model = typed_flags.group("Model")
_data = typed_flags.group("Data")
_training = typed_flags.group("Training")
_evaluation = typed_flags.group("Evaluation and prediction")

# Steps that no training reaches: a year at 30 steps a second.
MOST_STEPS = 10**9


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartSettings(typed_flags.Settings):
  """The settings of programs that start from a model."""

  model: str | None = None
  # These two are not flags; `model_folder.find_files` sets them. `folder` is
  # that of --model: if the user gave a name of the Hub, `model` becomes
  # owner/name@commit. `open_model()` returns a `convert.models.ModelFolder`,
  # which it opens at the first call. Its type here is `Any`: `typed_flags`
  # evaluates the types of all fields, and that module would load TensorFlow.
  folder: str | None = None
  open_model: Any = dataclasses.field(default=None, compare=False, repr=False)
  # Not every program has these flags.
  bert_config_file: str | None = None
  init_checkpoint: str | None = None
  # It decides the kind of the vocabulary: `model_folder.with_kind`.
  strip_accents: bool | None = _model(
    None, flag_texts.STRIP_ACCENTS + " With --model the program finds it out."
  )

  def initial_labels(self) -> tuple[str, ...]:
    """Returns the labels of the head in --init_checkpoint, () if not known."""
    if not self.init_checkpoint:
      return ()
    model = self.open_model()
    # The labels may be of a head that is not read, such as DistilBERT's.
    return model.labels if "output_weights" in model.weights.shapes else ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(StartSettings):
  """The settings of programs that train a model."""

  # What a training starts from: --model stands for the two flags after it.
  model: str | None = _model(None, flag_texts.MODEL, path="model")
  bert_config_file: str | None = _model(
    None, flag_texts.CONFIG, unless="model", path="file"
  )
  init_checkpoint: str | None = _model(
    None,
    "Weights to start from: a checkpoint's prefix, its folder, or a model of "
    "another library. Ignored if --output_dir already has a checkpoint.",
    path="checkpoint",
  )

  # What a program leaves behind.
  output_dir: str = _model(
    typed_flags.REQUIRED,
    "The folder that the program writes to: checkpoints, results, TensorBoard "
    "events. If it has a checkpoint, training resumes from it.",
    path="new_folder",
  )
  report: bool = _model(
    True,
    "Whether to write output_dir/report.html, a page with curves, scores and "
    "mistakes.",
  )

  @property
  def run_dirs(self) -> list[str]:
    """The folders of the runs: --output_dir, or one in it for each of --seeds.

    Only run_classifier.py has --seeds.
    """
    seeds = getattr(self, "seeds", ())
    folders = [os.path.join(self.output_dir, f"seed-{seed}") for seed in seeds]
    return folders or [self.output_dir]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(typed_flags.Settings):
  """How texts become inputs of a model.

  `decides` names what a flag changes: flags of "features" are recorded with the
  rows that were made of texts, flags of "model" and "answers" with the trained
  model. See `typed_flags.Flag`.
  """

  vocab_file: str = _model(
    None,
    vocabulary_table.HELP,
    unless="model",
    path="file",
    decides=("features",),
  )
  do_lower_case: bool = _model(
    True,
    "Whether to lower-case the text and strip accents. Pass false for a cased "
    "model. With --model the program finds it out.",
    decides=("features", "model"),
  )
  max_seq_length: int = _data(
    128,
    "The maximum number of tokens of an input, with [CLS] and [SEP]. Longer "
    "texts are truncated.",
    least=3,
    decides=("features", "answers"),
  )
  # It decides nothing: the answers are the same, only slower.
  pad_to_max_length: bool = _data(
    False,
    "Whether to pad every batch to --max_seq_length. TPUs need it; elsewhere "
    "it is slower.",
  )

  @property
  def vocabulary_digest(self) -> str:
    """A digest of what the vocabulary makes of texts."""
    return vocabulary_table.digest(self.vocab_file)

  @property
  def pads_fully(self) -> bool:
    """Whether every batch has the full length."""
    return self.pad_to_max_length


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(ModelSettings):
  """The settings of every training."""

  # The updates.
  do_train: bool = _training(False, "Whether to train.")
  learning_rate: float = _training(
    5e-5,
    "The learning rate that warm-up rises to. It then falls linearly to 0 at "
    "the last step.",
    least=0.0,
    decides=("training",),
  )
  train_batch_size: int = _training(
    32,
    "Examples per update, over all devices and all "
    "--gradient_accumulation_steps together.",
    least=1,
    decides=("training",),
  )

  # How an update is computed. These flags trade memory and time; apart from
  # dropout masks and rounding, the update is the same.
  gradient_accumulation_steps: int = _training(
    1,
    "Computes each batch in this many parts, one after another. This needs "
    "less memory; the update is the same except for the dropout masks.",
    least=1,
  )
  recompute: bool = _training(
    False,
    "Whether to compute the layers again in the backward pass (gradient "
    "checkpointing): less memory, but slower.",
  )
  iterations_per_loop: int = _training(
    1000,
    "The maximum number of steps in one call of the compiled loop. The program "
    "makes fewer if a call would take more than a few seconds.",
    least=1,
  )

  # What interrupts the training.
  save_checkpoints_steps: int = _training(
    1000, "The number of steps between two checkpoints.", least=1
  )
  keep_checkpoint_max: int = _training(
    5,
    "How many of the newest checkpoints to keep while the program trains; 0 "
    "keeps all. Each is three times as large as the weights. A complete "
    "fine-tuning then deletes all but the last, unless you pass the flag.",
    least=0,
  )
  eval_every_steps: int = _training(
    0,
    "Evaluates each time this many steps of training are complete; 0: never "
    "during training.",
    least=0,
  )

  # All random choices derive from it, so that a run can be repeated.
  seed: int = _training(
    12345,
    "Decides the initial weights, the order of the examples and the dropout "
    "masks. With the same seed, a run on the same machine gives the same "
    "result.",
    least=0,
    most=2**31 - 1,
    decides=("training",),
  )

  def check(self) -> None:
    """Refuses a run without anything to do, too."""
    # Not every program has all three.
    flags = self.flags_by_name()
    work = [n for n in ("do_train", "do_eval", "do_predict") if n in flags]
    if not any(getattr(self, name) for name in work):
      *names, last = [f"--{name}=true" for name in work]
      raise ValueError(f"nothing to do: pass {', '.join(names)} or {last}")

    self.check_split()
    super().check()

  def check_split(self, replicas: int = 1) -> None:
    """Refuses a batch that cannot be split, once the devices are known, too."""
    if self.do_train:
      messages.check_split(
        self.train_batch_size, replicas, self.gradient_accumulation_steps
      )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(
  devices.DeviceSettings, TrainingSettings, TextSettings, ModelSettings
):
  """The settings of every fine-tuning program."""

  # The length of the training, and the learning rate on the way.
  num_train_epochs: float = _training(
    3.0, "How many times to go through the training data.", least=0.0, most=1e6
  )
  layerwise_lr_decay: float = _training(
    1.0,
    "Each layer's learning rate is the learning rate of the layer above times "
    "this number. 1 gives all layers the same.",
    least=0.0,
    decides=("training",),
  )
  bias_correction: bool = _training(
    False,
    "Whether Adam corrects the bias of its moments. BERT does not, other "
    "libraries do. The first updates are then smaller, and training on a few "
    "thousand examples is steadier. Recommended for new projects.",
    decides=("training",),
  )
  warmup_proportion: float = _training(
    0.1,
    "The share of the steps in which the learning rate rises (warm-up).",
    least=0.0,
    most=1.0,
    decides=("training",),
  )

  # For a quick trial, or to see how much data a task needs.
  max_train_examples: int | None = _training(
    None,
    "Trains only on this many examples, the first of the file. Default: all.",
    least=1,
  )

  # Distillation: a small model learns from the logits of a large one (Hinton et
  # al., 2015, https://arxiv.org/abs/1503.02531).
  teacher: str | None = _training(
    None,
    "A trained model to learn from as well (distillation): the --output_dir of "
    "a run of the same program with the same labels and vocabulary. Not in "
    "run_multiple_choice.py and run_embedding.py.",
    path="model",
  )
  # The defaults are those with which DistilBERT learned SQuAD.
  distillation_alpha: float = _training(
    0.5,
    "With --teacher: the weight of the task's loss; the loss of the teacher "
    "gets the rest to 1.",
    least=0.0,
    most=1.0,
    needs="teacher",
    decides=("training",),
  )
  distillation_temperature: float = _training(
    2.0,
    "With --teacher: both models' logits are divided by this number before "
    "they are compared.",
    least=0.1,
    most=100.0,
    needs="teacher",
    decides=("training",),
  )

  # Gradual unfreezing: Howard and Ruder, 2018, section 3.3 of ULMFiT,
  # https://arxiv.org/abs/1801.06146.
  freeze_layers: str = _training(
    "0",
    "How many of the lowest layers keep their weights, together with the "
    "embeddings; or 'gradual': the head is trained first, and one more layer "
    "every epoch.",
    decides=("training",),
  )

  # Evaluations during the training, which choose the best weights.
  eval_every_epochs: float = _evaluation(
    0.0,
    "Evaluates each time this many epochs of training are complete, for "
    "example 0.5 or 1; 0: never during training. With this flag or "
    "--eval_every_steps, the weights with the best score are used.",
    least=0.0,
  )
  best_metric: str | None = _evaluation(
    None,
    "The score that decides which weights are best. Default: the main score of "
    "the task.",
  )
  early_stopping_patience: int = _evaluation(
    0,
    "Ends training after this many evaluations in a row without a better "
    "score; 0 trains to the end.",
    least=0,
    needs=("eval_every_epochs", "eval_every_steps"),
  )

  # What follows the training.
  do_predict: bool = _evaluation(False, "Whether to predict, after training.")
  predict_batch_size: int = _evaluation(
    8,
    "The batch size of a prediction for inputs of full length. Batches of "
    "shorter inputs contain more of them.",
    least=1,
  )

  @property
  def evaluates_in_training(self) -> bool:
    """Whether training is interrupted by evaluations."""
    steps, epochs = self.eval_every_steps, self.eval_every_epochs
    return self.do_train and bool(steps or epochs)

  def check(self) -> None:
    """Refuses evaluations that contradict each other, too."""
    if self.eval_every_steps and self.eval_every_epochs:
      raise ValueError(
        "--eval_every_steps and --eval_every_epochs: pass only one"
      )
    super().check()

  @property
  def labels_file(self) -> str:
    """The path of the run's labels."""
    return os.path.join(self.output_dir, "labels.txt")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(FineTuningSettings):
  """The settings of programs that evaluate apart from predicting.

  run_squad.py instead scores its predictions, if the file has the answers.
  """

  do_eval: bool = _evaluation(False, "Whether to evaluate, after training.")
  eval_batch_size: int = _evaluation(
    8,
    "The batch size of an evaluation for inputs of full length. Batches of "
    "shorter inputs contain more of them.",
    least=1,
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSettings(typed_flags.Settings):
  """The settings of programs that can evaluate on a part of their one file."""

  eval_share: float = _data(
    0.0,
    "Holds out this share of the training data, for example 0.1, and evaluates "
    "on it; no other file is needed. --seed decides the rows, and each label "
    "keeps its share.",
    least=0.0,
    most=0.9,
  )

  def check(self) -> None:
    """Refuses a file to evaluate on besides a share, too."""
    if self.eval_share and getattr(self, "eval_file", None):
      raise ValueError("--eval_share and --eval_file: pass only one")
    super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSettings(typed_flags.Settings):
  """Where texts and labels are in tables of the user's own."""

  text_column: str | None = _data(
    None, "The column of the text: its name, or its number from 0."
  )
  text_pair_column: str | None = _data(
    None, "The column of the second text, if there is one."
  )
  label_column: str | None = _data(None, "The column of the label.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(ColumnSettings):
  """The settings of programs that learn from such tables."""

  id_column: str | None = _data(
    None, "The column of an id that the predictions repeat."
  )
  header: str = _data(
    "auto",
    "Whether the first row of the files has the names of the columns.",
    choices=("auto", "yes", "no"),
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(SplitSettings, EvaluationSettings):
  """The settings of programs with three data files."""

  # A folder with the usual names, or a flag for each file, which comes first.
  # They have no `path`: only files that the run reads must be there, and
  # `find_data_files` or `classifier_tasks.check_files` looks at these alone.
  data_dir: str | None = _data(
    None, "The folder with the files train, dev and test."
  )
  train_file: str | None = _data(
    None, "The file to train on, instead of train in --data_dir."
  )
  eval_file: str | None = _data(
    None, "The file to evaluate on, instead of dev in --data_dir."
  )
  predict_file: str | None = _data(
    None, "The file to predict, instead of test in --data_dir."
  )

  @property
  def data_kinds(self) -> list[str]:
    """The data that the flags ask for: some of train, eval and predict."""
    evaluates = self.do_eval or self.evaluates_in_training

    asked = {
      # The file that --eval_share splits is read to train and to evaluate.
      "train": self.do_train or (evaluates and self.eval_share),
      "eval": evaluates and not self.eval_share,
      "predict": self.do_predict,
    }
    return [kind for kind, is_asked in asked.items() if is_asked]


def find_data_files(
  settings: DataSettings, endings: Sequence[str], predicts: bool = True
) -> dict[str, str]:
  """Finds the data files that the flags ask for.

  Args:
    settings: --data_dir and the three flags of single files, which come first.
    endings: of the files that a folder may hold, such as ".tsv".
    predicts: False leaves out the file to predict.

  Returns:
    The paths by purpose: "train", "eval" or "predict".
  """
  folder = settings.data_dir or ""
  paths = {}
  for kind in settings.data_kinds:
    if kind == "predict" and not predicts:
      continue
    path = getattr(settings, f"{kind}_file")
    if path:
      path_checks.check(f"{kind}_file", "file", path)
    elif not folder:
      # An evaluation on a share reads the training file, though nothing trains.
      share = ", or --eval_share" if kind == "eval" else ""
      is_split = kind == "train" and not settings.do_train
      name = "eval_share" if is_split else f"do_{kind}"
      raise ValueError(f"--{name} needs --{kind}_file or --data_dir{share}")

    # A folder may call the file to evaluate dev, valid or val.
    names = file_search.SPLITS[kind]
    paths[kind] = path or file_search.find_one(folder, names, endings)
    if not paths[kind]:
      raise ValueError(
        f"--data_dir={folder}: no file for --do_{kind}; expected "
        f"{' or '.join(names)}, ending in {', '.join(endings)}, with or "
        f"without .gz or .xz after it; {file_search.describe_missing(folder)}"
      )
  return paths


def choose_metric(best_metric: str | None, names: Sequence[str]) -> str:
  """Returns the score that decides which weights are best.

  It is --best_metric, with or without "eval_" before it, or else the first of
  the names that a task's scores have.
  """
  name = (best_metric or names[0]).removeprefix("eval_")
  if name not in names:
    raise ValueError(
      f"--best_metric={name}: expected one of {', '.join(names)}"
    )
  return name
