"""The flags of export_saved_model.py, and the objects made from them."""

from typing import Any

from absl import flags

from export import exporting
from export import signatures
from export import trained_models
import tokenization

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Declares the flags of this program."""
  for name, text in (
    (
      "model_dir",
      "The --output_dir of run_classifier.py, run_squad.py, run_tagging.py or "
      "run_multiple_choice.py.",
    ),
    (
      "init_checkpoint",
      "Instead of --model_dir: weights that were pre-trained, to make vectors "
      "or guess masked words; with --bert_config_file.",
    ),
    ("bert_config_file", "With --init_checkpoint: the model's architecture."),
  ):
    flags.DEFINE_string(name, None, text)
  for name, text in (
    ("vocab_file", "The vocab.txt of the model."),
    ("export_dir", "The folder to write; must not exist."),
  ):
    flags.DEFINE_string(name, None, text, required=True)
  flags.DEFINE_bool(
    "do_lower_case",
    True,
    "With --init_checkpoint: whether the model is an uncased one.",
  )
  flags.DEFINE_enum(
    "format",
    "saved_model",
    exporting.FORMATS,
    "saved_model: TensorFlow's, with tokenizer and answers. litert, onnx: from "
    "ids to numbers, one input of --max_seq_length at a time.",
  )
  flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Most tokens per input; default 128, for questions 384.",
    lower_bound=8,
  )
  _define_answer_flags()


def _define_answer_flags():
  defaults = signatures.AnswerSettings()
  for name, text in (
    ("max_query_length", "Most tokens of a question."),
    ("doc_stride", "Tokens from one window of a context to the next."),
    ("n_best_size", "Starts and ends to combine in a window."),
    ("max_answer_length", "Most tokens of an answer."),
  ):
    flags.DEFINE_integer(name, getattr(defaults, name), text, lower_bound=1)
  flags.DEFINE_bool(
    "version_2_with_negative", False, "Whether questions may have no answer."
  )
  flags.DEFINE_float(
    "null_score_diff_threshold",
    None,
    "The odds above which a question has no answer; default what "
    "run_squad.py found out, else 0.",
  )
  flags.DEFINE_enum(
    "task",
    None,
    [trained_models.FEATURES, trained_models.FILL_MASK],
    "With --init_checkpoint; default fill_mask if it has the head for it.",
  )
  flags.DEFINE_integer(
    "layer", -1, "Of features: 0 is the lowest layer, -1 the highest."
  )
  flags.DEFINE_enum(
    "pooling",
    "mean",
    ["cls", "mean", "max"],
    "Of features: how a text's vector is made of those of its tokens.",
  )
  flags.DEFINE_integer(
    "top_k", 5, "Of fill_mask: guesses for each mask.", lower_bound=1
  )


def load_model() -> trained_models.TrainedModel:
  """Loads the model of the flags.

  Raises:
    ValueError: flags are missing, or do not fit the model.
  """
  if bool(FLAGS.model_dir) == bool(FLAGS.init_checkpoint):
    raise ValueError("pass either --model_dir or --init_checkpoint")
  if FLAGS.model_dir:
    return trained_models.load_output_dir(FLAGS.model_dir, FLAGS.vocab_file)
  if not FLAGS.bert_config_file:
    raise ValueError("--init_checkpoint needs --bert_config_file")
  tokenization.validate_case_matches_checkpoint(
    FLAGS.do_lower_case, FLAGS.init_checkpoint
  )
  return trained_models.load_pretrained(
    FLAGS.init_checkpoint,
    FLAGS.bert_config_file,
    FLAGS.do_lower_case,
    FLAGS.task,
  )


def check_flags(trained: trained_models.TrainedModel, length: int) -> None:
  """Compares the flags with the model; a ValueError says what is wrong."""
  config = trained.config
  size = len(tokenization.load_vocab(FLAGS.vocab_file))
  # Configs may round the size up, to a multiple of 128 at most.
  if not size <= config.vocab_size < size + 128:
    raise ValueError(
      f"--vocab_file={FLAGS.vocab_file} has {size} tokens, the model's "
      f"vocab_size is {config.vocab_size}: they are of different models"
    )
  if length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={length} is above the model's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  layers = config.num_hidden_layers
  if not -layers <= FLAGS.layer < layers:
    raise ValueError(
      f"--layer={FLAGS.layer}: the model has {layers} layers; expected a "
      f"number from {-layers} to {layers - 1}"
    )
  is_answering = trained.kind == trained_models.QUESTION_ANSWERING
  if is_answering and length < FLAGS.max_query_length + 4:
    raise ValueError(
      f"--max_seq_length={length}: expected more than --max_query_length="
      f"{FLAGS.max_query_length} and 3"
    )


def answer_settings(threshold: float | None) -> signatures.AnswerSettings:
  """Returns how to find answers.

  Args:
    threshold: that training found out, if it did.
  """
  names = signatures.AnswerSettings._fields
  values = {name: getattr(FLAGS, name) for name in names}
  if values["null_score_diff_threshold"] is None:
    values["null_score_diff_threshold"] = threshold or 0.0
  return signatures.AnswerSettings(**values)


def make_head(
  trained: trained_models.TrainedModel,
) -> tuple[signatures.Head, dict[str, Any]]:
  """Makes what is exported, and says what shapes its answers."""
  is_answering = trained.kind == trained_models.QUESTION_ANSWERING
  length = FLAGS.max_seq_length or min(
    384 if is_answering else 128, trained.config.max_position_embeddings
  )
  check_flags(trained, length)
  answers = answer_settings(trained.null_score_diff_threshold)
  head = exporting.make_head(
    trained,
    FLAGS.vocab_file,
    length,
    answers,
    FLAGS.layer,
    FLAGS.pooling,
    FLAGS.top_k,
  )
  if is_answering:
    return head, answers._asdict()
  if trained.kind == trained_models.FEATURES:
    return head, {"layer": FLAGS.layer, "pooling": FLAGS.pooling}
  return head, {}
