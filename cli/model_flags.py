"""Settings of the model, its texts and its training; without TensorFlow."""

import dataclasses

from cli import devices, flag_values
from vocabularies import vocabulary_table

_model = flag_values.group("Model")
_data = flag_values.group("Data")
_training = flag_values.group("Training")

MODEL = (
  "The model's folder, which stands for its config, vocabulary, casing and "
  "weights: an unpacked release, the --output_dir of a training (its best "
  "weights, if they were kept), or a folder of Hugging Face's, KerasHub's or "
  "TF-Hub's."
)
INPUT_FILE = (
  "UTF-8 text, one input a line: files or globs, by commas, .gz and .xz too; "
  "or - for the standard input."
)
_CONFIG = "The bert_config.json of the model: its architecture."


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(flag_values.Settings):
  """The settings of programs that train a model."""

  model: str | None = _model(None, MODEL)
  bert_config_file: str | None = _model(None, _CONFIG, unless="model")
  init_checkpoint: str | None = _model(
    None,
    "Weights to start from: the prefix of a TF1 checkpoint, a folder with one "
    "in it, such as an unpacked release, or what another library wrote: see "
    "docs/checkpoints.md. Unused once --output_dir has its own.",
  )
  word_vectors: str | None = _model(
    None,
    "A file in word2vec's text format, whose vectors replace those of the same "
    "words at the start of a training.",
  )
  output_dir: str = _model(
    None,
    "The folder for checkpoints, TensorBoard events and results.",
    required=True,
  )
  report: bool = _model(
    True,
    "Whether to write output_dir/report.html: curves, scores, mistakes.",
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings(flag_values.Settings):
  """How texts become inputs of a model."""

  vocab_file: str = _model(None, vocabulary_table.HELP, unless="model")
  do_lower_case: bool = _model(
    True,
    "Whether to lower-case the text and strip accents: True for uncased "
    "models, False for cased ones.",
  )
  max_seq_length: int = _data(128, "Most tokens per input.", least=3)
  pad_to_max_length: bool = _data(
    False,
    "Whether to pad every batch to --max_seq_length, as a TPU needs it; slower "
    "and to the same effect.",
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(flag_values.Settings):
  """The settings of every training."""

  do_train: bool = _training(False, "Whether to train.")
  learning_rate: float = _training(
    5e-5,
    "The rate that warm-up aims at; it decays linearly to zero.",
    least=0.0,
  )
  train_batch_size: int = _training(
    32,
    "Examples per update, over all devices and accumulation steps.",
    least=1,
  )
  gradient_accumulation_steps: int = _training(
    1,
    "Parts that a batch is computed in, one after the other; more parts take "
    "less memory and make the same update, but for the masks of dropout.",
    least=1,
  )
  recompute: bool = _training(
    False,
    "Whether to keep only the input of every encoder layer for the backward "
    "pass, which computes the rest again: less memory and the same update, in "
    "more time.",
  )
  save_checkpoints_steps: int = _training(
    1000, "Steps from one checkpoint to the next.", least=1
  )
  keep_checkpoint_max: int = _training(
    5,
    "How many of the newest checkpoints to keep; 0 keeps all. To resume, 1 is "
    "enough. Each has three times the size of the weights, which it holds with "
    "the two moments of Adam.",
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
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceSettings(devices.DeviceSettings, TextSettings):
  """The settings of programs that apply a model to text."""

  model: str | None = _model(None, MODEL)
  bert_config_file: str | None = _model(None, _CONFIG, unless="model")
  init_checkpoint: str = _model(
    None,
    "The weights: the prefix of a TF1 checkpoint, a folder with one in it, "
    "such as an unpacked release or the output of a training, or a folder of "
    "Hugging Face's.",
    unless="model",
  )
  input_file: str = _data("-", INPUT_FILE)
  batch_size: int = _data(
    32, "Inputs of --max_seq_length per batch; of shorter ones, more.", least=1
  )
  output_file: str | None = flag_values.group("Output")(
    None, "The file to write; default the standard output."
  )
