"""Exports a trained BERT for predict.py, TensorFlow Serving and others.

  python export_saved_model.py --model=/tmp/mrpc \\
    --export_dir=/tmp/mrpc_export

Lengths, strides and thresholds are those of the training; flags override them.
"""

from absl import flags

from cli import model_folder
from cli import program
from serving import export_card


def define_flags() -> None:
  """Declares the flags of this program."""
  model_folder.define_folder_flag()
  for name, text in (
    (
      "model_dir",
      f"The --output_dir of {export_card.TRAINING_PROGRAMS}.",
    ),
    (
      "init_checkpoint",
      "Instead of --model_dir: weights that were pre-trained, to make vectors "
      "or guess masked words; with --bert_config_file.",
    ),
    ("bert_config_file", "With --init_checkpoint: the model's architecture."),
  ):
    flags.DEFINE_string(name, None, text)
  flags.DEFINE_string(
    "vocab_file",
    None,
    "The vocabulary of the model; default the one in its folder.",
  )
  flags.DEFINE_string(
    "export_dir", None, "The folder to write; new or empty.", required=True
  )
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "With --init_checkpoint: whether the model is an uncased one.",
  )
  flags.DEFINE_enum(
    "format",
    "saved_model",
    export_card.FORMATS,
    "saved_model: for TensorFlow Serving and predict.py. onnx: for predict.py "
    "without TensorFlow, the fastest on CPUs; Transformers only. litert: takes "
    "one input of --max_seq_length at a time.",
  )
  flags.DEFINE_enum(
    "task",
    None,
    ["features", "fill_mask"],
    "With --init_checkpoint; default fill_mask if it has the head for it.",
  )
  _define_overrides()
  _define_quantization()


def _define_overrides():
  program.group("Predictions; by default as in the training")
  for name, least, text in (
    ("max_seq_length", 8, "Most tokens per input; 128 with --init_checkpoint."),
    ("doc_stride", 1, "Tokens from one window of a text to the next."),
    ("max_query_length", 1, "Most tokens of a question."),
    ("n_best_size", 1, "Starts and ends to combine in a window."),
    ("max_answer_length", 1, "Most tokens of an answer."),
    ("top_k", 1, "Of fill_mask: guesses for each mask; default 5."),
  ):
    flags.DEFINE_integer(name, None, text, lower_bound=least)
  for name, text in (
    ("version_2_with_negative", "Whether questions may have no answer."),
    ("whole_word_answers", "Whether an answer is widened to whole words."),
    ("by_character", "Of taggers: whether every character is a word."),
  ):
    flags.DEFINE_bool(name, None, text)
  flags.DEFINE_float(
    "null_score_diff_threshold",
    None,
    "The odds above which a question has no answer; default the best threshold "
    "that run_squad.py found, else its flag.",
  )
  flags.DEFINE_enum(
    "window_pooling",
    None,
    ["mean", "max"],
    "Of classifiers: how the logits of a text's windows become its own.",
  )
  flags.DEFINE_integer(
    "layer", None, "Of features: 0 is the lowest layer, -1 the highest."
  )
  flags.DEFINE_enum(
    "pooling",
    None,
    ["cls", "mean", "max"],
    "Of features: how a text's vector is made of those of its tokens; default "
    "mean.",
  )


def _define_quantization():
  flags.DEFINE_enum(
    "quantize",
    "none",
    ["none", "int8"],
    "Of onnx: computes the encoder's products with numbers of this type. Needs "
    "--eval_file, on which the export is compared with the model.",
  )
  flags.DEFINE_string(
    "eval_file",
    None,
    "With --quantize: labelled examples, in the form that the model's program "
    "takes as --eval_file; for features and fill_mask texts, one a line.",
  )
  flags.DEFINE_integer(
    "max_eval_examples",
    500,
    "With --quantize: examples to compare, evenly spread over --eval_file.",
    lower_bound=1,
  )
  for name, default, text in (
    ("text_column", None, "text"),
    ("text_pair_column", None, "second text"),
    ("label_column", None, "label"),
    ("label_separator", ",", "character between labels"),
  ):
    text = f"Of --eval_file: the {text}, as in run_classifier.py."
    flags.DEFINE_string(name, default, text)
  for name, default, text in (("token", 0, "word"), ("tag", -1, "tag")):
    text = f"Of --eval_file: the column of the {text}, as in run_tagging.py."
    flags.DEFINE_integer(f"{name}_column", default, text)
  flags.DEFINE_float(
    "max_score_drop",
    0.01,
    "With --quantize: the largest loss of a score (0 to 1) with which the "
    "export is kept.",
  )


if __name__ == "__main__":
  program.start(define_flags)

# isort: split
import dataclasses
import os
import time

from absl import logging

from cli import flag_values
from cli import run_summary
from cli import squad_settings
from data import files
from export import exporting
from export import prediction_settings
from export import quantization
from export import trained_models
from vocabularies import vocabulary_table

_PREDICTION_FLAGS = (
  *("max_seq_length", "doc_stride", "window_pooling", "by_character"),
  *("layer", "pooling", "top_k", "max_query_length", "max_answer_length"),
  *("n_best_size", "version_2_with_negative", "null_score_diff_threshold"),
  "whole_word_answers",
)


def read_settings() -> flag_values.Settings:
  """Reads the flags; --model becomes --model_dir if it was fine-tuned."""
  model_folder.find_files()
  settings = flag_values.read()
  folder = settings.model
  if folder and files.exists(os.path.join(folder, "settings.json")):
    if settings.init_checkpoint == model_folder.find_weights(folder):
      return dataclasses.replace(
        settings, model_dir=folder, init_checkpoint=None
      )
  return settings


def find_vocabulary(settings: flag_values.Settings) -> str:
  """Returns the path of the vocabulary."""
  if bool(settings.model_dir) == bool(settings.init_checkpoint):
    raise ValueError("pass one of --model, --model_dir and --init_checkpoint")
  if not (settings.model_dir or settings.model or settings.bert_config_file):
    raise ValueError("--init_checkpoint needs --bert_config_file")
  if settings.vocab_file:
    return settings.vocab_file
  folder = settings.model_dir or os.path.dirname(settings.init_checkpoint)
  path = vocabulary_table.find([folder])
  if not path:
    raise ValueError(f"{folder}: holds no vocabulary; pass --vocab_file")
  return path


def load_model(
  settings: flag_values.Settings, vocab_file: str
) -> trained_models.TrainedModel:
  """Loads the model to export."""
  if settings.model_dir:
    # --model stands for --bert_config_file, too.
    config = settings.bert_config_file and not settings.model
    if settings.task or config:
      name = "bert_config_file" if config else "task"
      raise ValueError(
        f"--{name} is for weights without a task; {settings.model_dir} has one"
      )
    return trained_models.load_output_dir(settings.model_dir, vocab_file)
  config = model_folder.read_config(settings)
  start = model_folder.open(settings.init_checkpoint, settings.bert_config_file)
  return trained_models.load_pretrained(
    start.weights,
    config,
    settings.do_lower_case,
    settings.task,
  )


def make_score_check(
  settings: flag_values.Settings,
) -> quantization.ScoreCheck | None:
  """Returns the check of a quantized export; None for others."""
  if settings.quantize == "none":
    for field in dataclasses.fields(quantization.ScoreCheck):
      if flags.FLAGS[field.name].present:
        raise ValueError(f"--{field.name} needs --quantize=int8")
    return None
  if settings.format != "onnx":
    raise ValueError(f"--quantize={settings.quantize} needs --format=onnx")
  if not settings.eval_file:
    raise ValueError(
      f"--quantize={settings.quantize} needs --eval_file: examples on which "
      "the export is compared with the model"
    )
  return quantization.ScoreCheck(
    settings.eval_file,
    settings.max_eval_examples,
    settings.max_score_drop,
    settings.text_column,
    settings.text_pair_column,
    settings.label_column,
    settings.label_separator,
    settings.token_column,
    settings.tag_column,
  )


def main() -> None:
  logging.set_verbosity(logging.ERROR)  # Saving logs every step.
  start = time.monotonic()
  settings = read_settings()
  check = make_score_check(settings)
  model_folder.check_free("export_dir", settings.export_dir)
  vocab_file = find_vocabulary(settings)
  if settings.whole_word_answers:
    squad_settings.check_whole_words(vocab_file)
  trained = load_model(settings, vocab_file)
  model_folder.check_vocabulary(vocab_file, trained.config)
  given = {name: getattr(settings, name) for name in _PREDICTION_FLAGS}
  given = {name: value for name, value in given.items() if value is not None}
  prediction = prediction_settings.override(
    trained.kind, trained.config, trained.prediction, given
  )
  trained = dataclasses.replace(trained, prediction=prediction)
  print(f"weights from {trained.weights}")
  if prediction.get("document_context"):
    print("note: trained with --document_context, but texts are tagged alone")
  names = prediction_settings.names(trained.kind)
  print("  ".join(f"{name} {prediction[name]}" for name in names))
  result = exporting.write(
    settings.export_dir, trained, vocab_file, settings.format, check
  )
  command = f"python predict.py --export_dir={settings.export_dir} --serve"
  run_summary.print_end(
    start,
    f"wrote {settings.export_dir}; {result}",
    command="" if settings.format == "litert" else command,
  )


if __name__ == "__main__":
  program.run_program(main)
