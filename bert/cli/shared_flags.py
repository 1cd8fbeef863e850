"""Settings that several programs share; they do not need TensorFlow."""

from collections.abc import Sequence
import dataclasses
import os
from typing import Any

from bert.cli import devices, flag_texts, typed_flags
from bert.data import file_search, files, path_checks, remote, text_files
from bert.vocabularies import vocabulary_table

_model = typed_flags.group("Model")
_data = typed_flags.group("Data")
_training = typed_flags.group("Training")
_evaluation = typed_flags.group("Evaluation and prediction")

MOST_STEPS = 10**9  # A year of 30 a second.
_CONFIG = "The bert_config.json of the model: its architecture."


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(StartSettings):
  """The settings of programs that train a model."""

  model: str | None = _model(None, flag_texts.MODEL, path="model")
  bert_config_file: str | None = _model(
    None, _CONFIG, unless="model", path="file"
  )
  init_checkpoint: str | None = _model(
    None,
    "Weights to start from, unless --output_dir has its own: the prefix or the "
    "folder of a checkpoint, or what another library wrote.",
    path="checkpoint",
  )
  output_dir: str = _model(
    typed_flags.REQUIRED,
    "The folder for checkpoints, TensorBoard events and results.",
    path="new_folder",
  )
  report: bool = _model(
    True, "Whether to write output_dir/report.html: curves, scores, mistakes."
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(typed_flags.Settings):
  """How texts become inputs of a model."""

  vocab_file: str = _model(
    None,
    vocabulary_table.HELP,
    unless="model",
    path="file",
    decides=("features",),
  )
  do_lower_case: bool = _model(
    True,
    "Whether to lower-case and strip accents: False for cased models.",
    decides=("features", "model"),
  )
  max_seq_length: int = _data(
    128, "Most tokens per input.", least=3, decides=("features", "answers")
  )
  pad_to_max_length: bool = _data(
    False,
    "Whether to pad every batch to --max_seq_length, as TPUs need: slower.",
  )

  @property
  def pads_fully(self) -> bool:
    """Whether every batch has the full length."""
    return self.pad_to_max_length


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(ModelSettings):
  """The settings of every training."""

  do_train: bool = _training(False, "Whether to train.")
  learning_rate: float = _training(
    5e-5,
    "The rate that warm-up aims at; it decays linearly to 0.",
    least=0.0,
    decides=("training",),
  )
  train_batch_size: int = _training(
    32,
    "Examples per update, over all devices and accumulation steps.",
    least=1,
    decides=("training",),
  )
  gradient_accumulation_steps: int = _training(
    1,
    "Parts that a batch is computed in, one after another: less memory and the "
    "same update, but for dropout.",
    least=1,
  )
  recompute: bool = _training(
    False,
    "Whether to recompute layers in the backward pass: less memory, slower.",
  )
  iterations_per_loop: int = _training(
    1000,
    "Most steps per call of the compiled loop, which takes seconds at most.",
    least=1,
  )
  save_checkpoints_steps: int = _training(
    1000, "Steps from one checkpoint to the next.", least=1
  )
  keep_checkpoint_max: int = _training(
    5,
    "How many of the newest checkpoints to keep, each three times the size of "
    "the weights; 0 keeps all. If the flag is not given, a fine-tuning keeps "
    "only the last one when it is complete.",
    least=0,
  )
  eval_every_steps: int = _training(
    0,
    "Steps from one evaluation during training to the next; 0 for none.",
    least=0,
  )
  seed: int = _training(
    12345,
    "Decides the initial weights, the order of the examples and the dropout.",
    least=0,
    most=2**31 - 1,
    decides=("training",),
  )

  def check(self) -> None:
    """Refuses a run without anything to do, too."""
    known = self.flags_by_name()
    asked = ("do_train", "do_eval", "do_predict")
    work = [name for name in asked if name in known]
    if not any(getattr(self, name) for name in work):
      *names, last = [f"--{name}=true" for name in work]
      raise ValueError(f"nothing to do: pass {', '.join(names)} or {last}")
    super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceSettings(devices.DeviceSettings, TextSettings, StartSettings):
  """The settings of programs that apply a model to text."""

  model: str | None = _model(None, flag_texts.MODEL, path="model")
  bert_config_file: str | None = _model(
    None, _CONFIG, unless="model", path="file"
  )
  init_checkpoint: str = _model(
    None,
    "The weights: a checkpoint, its folder, or a folder of Hugging Face's.",
    unless="model",
    path="checkpoint",
  )
  input_file: str = _data("-", flag_texts.INPUT_FILE, path="input")
  text_column: str | None = _data(None, flag_texts.TEXT_COLUMN)
  batch_size: int = _data(
    32, "Inputs of --max_seq_length per batch; of shorter ones, more.", least=1
  )
  output_file: str | None = typed_flags.group("Output")(
    None, "The file to write; default the standard output.", path="new_files"
  )

  @property
  def reads_standard_input(self) -> bool:
    """Whether the lines come from a pipe or from the keyboard."""
    return self.input_file == files.STANDARD_INPUT

  def check(self) -> None:
    """Refuses inputs that exclude each other, too, and to write over one."""
    if self.distribution == "multi_worker":
      raise ValueError(
        "--distribution=multi_worker: this program works on one host; give "
        "each host a part of the input, and pass --distribution=mirrored for "
        "all of its devices"
      )
    path = self.input_file
    is_file = not self.reads_standard_input
    if is_file and getattr(self, "text", ()):
      raise ValueError(
        f"--text and --input_file={path} are both given: give one"
      )
    if is_file and not remote.is_remote(path):
      inputs = file_search.expand_patterns(path, "input_file")
      file_search.check_is_no_input(self.output_file, inputs)
    super().check()
    if is_file and not remote.is_remote(path):
      text_files.check(inputs, self.text_column)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(
  devices.DeviceSettings, TrainingSettings, TextSettings, ModelSettings
):
  """The settings of every fine-tuning program."""

  num_train_epochs: float = _training(
    3.0, "Times to go through the training data.", least=0.0, most=1e6
  )
  layerwise_lr_decay: float = _training(
    1.0,
    "A layer's learning rate is that of the one above it times this.",
    least=0.0,
    decides=("training",),
  )
  bias_correction: bool = _training(
    False,
    "Whether Adam corrects the bias of its moments, as other libraries do and "
    "BERT does not: smaller first updates, steadier on little data.",
    decides=("training",),
  )
  warmup_proportion: float = _training(
    0.1,
    "Share of the steps in which the rate rises.",
    least=0.0,
    most=1.0,
    decides=("training",),
  )
  max_train_examples: int | None = _training(
    None, "Trains on the first examples only, this many; default all.", least=1
  )
  teacher: str | None = _training(
    None,
    "A trained model to learn from, too: the --output_dir of a run of the same "
    "program with the same labels and vocabulary; not of choices and vectors.",
    path="model",
  )
  # The defaults are those with which DistilBERT learned SQuAD.
  distillation_alpha: float = _training(
    0.5,
    "With --teacher: the share of the task's loss.",
    least=0.0,
    most=1.0,
    needs="teacher",
    decides=("training",),
  )
  distillation_temperature: float = _training(
    2.0,
    "With --teacher: what logits are divided by.",
    least=0.1,
    most=100.0,
    needs="teacher",
    decides=("training",),
  )
  freeze_layers: str = _training(
    "0",
    "How many of the lowest layers to freeze, with the embeddings; or "
    "'gradual': first trains the head, then one more layer every epoch.",
    decides=("training",),
  )
  eval_every_epochs: float = _evaluation(
    0.0,
    "Epochs from one evaluation during training to the next; 0 for none. With "
    "this or --eval_every_steps, the weights of the best one are used.",
    least=0.0,
  )
  best_metric: str | None = _evaluation(
    None, "The score that decides which weights are best."
  )
  early_stopping_patience: int = _evaluation(
    0,
    "Evaluations in a row without a better score after which training ends; 0 "
    "trains to the end.",
    least=0,
    needs=("eval_every_epochs", "eval_every_steps"),
  )
  do_predict: bool = _evaluation(False, "Whether to predict, after training.")
  predict_batch_size: int = _evaluation(
    8, "Inputs of --max_seq_length per batch of a prediction.", least=1
  )

  @property
  def evaluates_in_training(self) -> bool:
    """Whether training is interrupted by evaluations."""
    steps, epochs = self.eval_every_steps, self.eval_every_epochs
    return self.do_train and bool(steps or epochs)

  def check(self) -> None:
    """Refuses evaluations that contradict each other, too, and far TPUs."""
    devices.check_tpu_paths(self)
    if self.do_train and devices.uses_tpu_elsewhere(self):
      raise ValueError(
        "--distribution=tpu: another machine's TPU cannot take the training "
        "data: run on the TPU's own machine with --tpu_name=local"
      )
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
  """The settings of programs that evaluate apart from predicting."""

  do_eval: bool = _evaluation(False, "Whether to evaluate, after training.")
  eval_batch_size: int = _evaluation(
    8, "Inputs of --max_seq_length per batch of an evaluation.", least=1
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitSettings(typed_flags.Settings):
  """The settings of programs that can evaluate on a part of their one file."""

  eval_share: float = _data(
    0.0,
    "The share of the training data, such as 0.1, to evaluate on instead of "
    "another file: drawn by --seed, the same of each label.",
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

  text_column: str | None = _data(None, "Column of the text: name or number.")
  text_pair_column: str | None = _data(
    None, "The column of a second text, if any."
  )
  label_column: str | None = _data(None, "The column of the label.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings(ColumnSettings):
  """The settings of programs that learn from such tables."""

  id_column: str | None = _data(
    None, "The column of the id that predictions repeat."
  )
  header: str = _data(
    "auto", "Whether files have a header.", choices=("auto", "yes", "no")
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(SplitSettings, EvaluationSettings):
  """The settings of programs with three data files."""

  data_dir: str | None = _data(None, "The folder of files train, dev and test.")
  train_file: str | None = _data(None, "Replaces the train file of --data_dir.")
  eval_file: str | None = _data(None, "Replaces the dev file of --data_dir.")
  predict_file: str | None = _data(
    None, "Replaces the test file of --data_dir."
  )

  @property
  def data_kinds(self) -> list[str]:
    """The data that the flags ask for: some of train, eval and predict."""
    evaluates = self.do_eval or self.evaluates_in_training
    asked = {
      # A file to split is read for both.
      "train": self.do_train or (evaluates and self.eval_share),
      "eval": evaluates and not self.eval_share,
      "predict": self.do_predict,
    }
    return [kind for kind, is_asked in asked.items() if is_asked]


def find_data_files(
  settings: DataSettings, endings: Sequence[str], predicts: bool = True
) -> dict[str, str]:
  """Returns the paths of the data files by purpose: train, eval or predict."""
  folder, paths = settings.data_dir or "", {}
  for kind in settings.data_kinds:
    if kind == "predict" and not predicts:
      continue
    path, names = getattr(settings, f"{kind}_file"), file_search.SPLITS[kind]
    if path:
      path_checks.check(f"{kind}_file", "file", path)
    elif not folder:
      share = ", or --eval_share" if kind == "eval" else ""
      is_split = kind == "train" and not settings.do_train
      name = "eval_share" if is_split else f"do_{kind}"
      raise ValueError(f"--{name} needs --{kind}_file or --data_dir{share}")
    paths[kind] = path or file_search.find_one(folder, names, endings)
    if not paths[kind]:
      raise ValueError(
        f"--data_dir={folder}: no file for --do_{kind}; expected "
        f"{' or '.join(names)}, ending in {', '.join(endings)}, with or "
        f"without .gz or .xz after it; {file_search.describe_missing(folder)}"
      )
  return paths


def choose_metric(best_metric: str | None, known: Sequence[str]) -> str:
  """Returns the score that decides which weights are best, or the first."""
  name = (best_metric or known[0]).removeprefix("eval_")
  if name not in known:
    raise ValueError(
      f"--best_metric={name}: expected one of {', '.join(known)}"
    )
  return name
