"""Flags of the programs that apply a model to text."""

from absl import flags

from cli import model_folder
from cli import program
from vocabularies import vocabulary_table


def define_inference_flags(input_file: str | None) -> None:
  """Declares the flags of programs that apply a model to text.

  Args:
    input_file: the default; None to require one.
  """
  program.group("Model")
  model_folder.define_folder_flag(
    "bert_config_file", "init_checkpoint", "vocab_file"
  )
  for name, text in (
    (
      "bert_config_file",
      "The bert_config.json of the model: its architecture.",
    ),
    (
      "init_checkpoint",
      "The weights: the prefix of a TF1 checkpoint, a folder with one in it, "
      "such as an unpacked release or the output of a training, or a folder of "
      "Hugging Face's.",
    ),
    ("vocab_file", vocabulary_table.HELP),
  ):
    flags.DEFINE_string(name, None, text)
  define_text_flags(max_seq_length=128)
  flags.DEFINE_string(
    "input_file",
    input_file,
    "UTF-8 text, one input a line: files or globs, by commas, .gz and .xz too; "
    "or - for the standard input.",
    required=input_file is None,
  )
  flags.DEFINE_integer(
    "batch_size",
    32,
    "Inputs of --max_seq_length per batch; of shorter ones, more.",
    lower_bound=1,
  )


def define_text_flags(max_seq_length: int) -> None:
  """Declares the flags that say how texts become inputs of a model."""
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Whether to lower-case the text and strip accents: True for uncased "
    "models, False for cased ones.",
  )
  program.group("Data")
  flags.DEFINE_integer(
    "max_seq_length", max_seq_length, "Most tokens per input.", lower_bound=3
  )
  flags.DEFINE_bool(
    "pad_to_max_length",
    False,
    "Whether to pad every batch to --max_seq_length, as a TPU needs it; slower "
    "and to the same effect.",
  )
