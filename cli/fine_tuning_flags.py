"""Flags of all programs that fine-tune; they do not need TensorFlow."""

from absl import flags

from cli import devices
from cli import models
from cli import program
from vocabularies import vocabulary_table


def define_flags(max_seq_length: int) -> None:
  """Declares the flags of every fine-tuning program."""
  models.define_model_flags()
  flags.DEFINE_string("vocab_file", None, vocabulary_table.HELP)
  program.require_unless("model", "vocab_file")
  models.define_text_flags(max_seq_length)
  models.define_training_flags()
  _define_training_flags()
  _define_selection_flags()
  devices.define_device_flags()


def _define_training_flags():
  flags.DEFINE_bool("do_train", False, "Whether to train.")
  for name, default, text in (
    ("num_train_epochs", 3.0, "Times to go through the training data."),
    (
      "layerwise_lr_decay",
      1.0,
      "Factor between the learning rates of a layer and the one above it; the "
      "head has the full rate.",
    ),
  ):
    flags.DEFINE_float(name, default, text, lower_bound=0.0)
  flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the steps in which the rate rises.",
    lower_bound=0.0,
    upper_bound=1.0,
  )
  flags.DEFINE_integer(
    "max_train_examples",
    None,
    "Trains on the first examples only, this many, to try something out; by "
    "default on all.",
    lower_bound=1,
  )
  flags.DEFINE_string(
    "freeze_layers",
    "0",
    "How many of the lowest layers to freeze, with the embeddings; or "
    "'gradual': trains only the head at first, and one more layer from the top "
    "after every epoch.",
  )


def _define_selection_flags():
  program.group("Evaluation and prediction")
  flags.DEFINE_float(
    "eval_every_epochs",
    0.0,
    "Epochs from one evaluation during training to the next, instead of "
    "--eval_every_steps; 0 for none. With either, the weights of the best "
    "evaluation are kept in output_dir/best and used from then on.",
    lower_bound=0.0,
  )
  flags.DEFINE_string(
    "best_metric", None, "The score that decides which weights are best."
  )
  flags.DEFINE_integer(
    "early_stopping_patience",
    0,
    "Evaluations in a row without a better score after which training ends; 0 "
    "to go on to the end.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "predict_batch_size",
    8,
    "Inputs of --max_seq_length per batch of a prediction.",
    lower_bound=1,
  )


def define_data_flags() -> None:
  """Declares the flags of the three data files and of what to do."""
  program.group("Data")
  for name, text in (
    ("data_dir", "A folder with files called train, dev and test."),
    ("train_file", "What to train on, instead of the file in --data_dir."),
    ("eval_file", "What to evaluate on, instead of that in --data_dir."),
    ("predict_file", "What to predict, instead of that in --data_dir."),
  ):
    flags.DEFINE_string(name, None, text)
  define_evaluation_flags()


def define_evaluation_flags() -> None:
  """Declares the flags of what to do after training."""
  program.group("Evaluation and prediction")
  flags.DEFINE_bool("do_eval", False, "Whether to evaluate, after training.")
  flags.DEFINE_integer(
    "eval_batch_size",
    8,
    "Inputs of --max_seq_length per batch of an evaluation.",
    lower_bound=1,
  )
  flags.DEFINE_bool("do_predict", False, "Whether to predict, after that.")
