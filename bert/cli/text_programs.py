"""Model, lines and batches of the programs that apply a model to text."""

from collections.abc import Callable, Iterator, Sequence
import functools
import os
import sys
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert import tokenization
from bert.cli import devices, inference_settings, model_folder, program
from bert.data import file_search, progress, text_files
from bert.inputs import batch_order, text_inputs
from bert.training import prediction
from bert.vocabularies import lost_letters, vocabulary_table
from bert.weights import checkpoints


class TextModel(NamedTuple):
  """A model with its weights, and the tokenizer of its texts."""

  config: Any  # A `modeling.EncoderConfig`.
  tokenizer: tokenization.FullTokenizer
  model: keras.Model
  strategy: tf.distribute.Strategy
  settings: inference_settings.InferenceSettings

  def make_predict(
    self,
    predict: prediction.Predict,
    forward: prediction.Forward = prediction.DEFAULT_FORWARD,
    of_tokens: bool = False,
  ) -> text_inputs.Predict:
    """Makes a `text_inputs.predict` that takes rows alone.

    Args:
      predict: makes the predictions of a batch from what `forward` returns.
      forward: calls the model on a batch.
      of_tokens: whether predictions are [B, S, ...]; their padding is cut off.
    """
    # A TPU compiles each shape anew: there, all batches have the full length.
    length = self.settings.max_seq_length
    is_static = devices.uses_fixed_shapes(self.settings)
    return functools.partial(
      text_inputs.predict,
      prediction.Predictor(self.strategy, self.model, predict, forward),
      lambda lengths: batch_order.make_batches(
        lengths, self.settings.batch_size, length, is_static
      ),
      width=length if is_static else None,
      of_tokens=of_tokens,
    )


def open_model(
  settings: inference_settings.InferenceSettings,
  make_model: Callable[[Any, str], keras.Model],
  tokens: Sequence[str] = (),
) -> TextModel:
  """Makes the model of the flags and loads its weights, before any tensor.

  Args:
    settings: the flags, of which `model_folder.find_files` has found the files.
    make_model: takes the config and a Keras dtype policy.
    tokens: more tokens that the tokenizer does not split, such as "[MASK]".

  Raises:
    ValueError: the files of the model do not fit together.
  """
  settings = devices.choose_precision(settings)
  strategy = devices.make_strategy(settings, says_so=False)

  # The vocabulary and the lengths must fit the config.
  config = model_folder.read_checked_config(settings)
  tokenizer = vocabulary_table.make_tokenizer(
    settings.vocab_file, settings.do_lower_case, tokens
  )

  # Each device gets a copy of the variables. The layers of the encoder must all
  # be in the checkpoint; parts above them may be missing.
  with strategy.scope(), checkpoints.values_follow():
    model = make_model(config, settings.compute_dtype)
  start = settings.open_model()
  variables = checkpoints.model_variables(model)
  checkpoints.check_masked_lm(start.weights, variables)
  checkpoints.assign(start.weights, variables, checkpoints.is_above_layers)

  # A note, which goes to the standard error: the standard output may be the
  # program's result.
  progress.note(f"weights from {start.source}, {devices.describe(settings)}")
  return TextModel(config, tokenizer, model, strategy, settings)


def export_command(
  settings: inference_settings.InferenceSettings, task: str, **flags: Any
) -> str:
  """Returns the command that exports the model; flags of None are left out."""
  names = ["bert_config_file", "init_checkpoint", "vocab_file", "do_lower_case"]
  names.append("strip_accents")

  # --model is shorter. But a folder with settings.json was trained for a task,
  # and as --model it would be exported for that task.
  folder = settings.folder
  if folder and "settings.json" not in file_search.list_folder(folder):
    names = ["model", *(name for name in names if name in settings.given)]

  flags = {name: getattr(settings, name) for name in names} | flags
  if "vocab_file" in flags:
    flags["vocab_file"] = vocabulary_table.source_of(settings.vocab_file)
  flags |= {"max_seq_length": settings.max_seq_length, "task": task}
  flags["export_dir"] = f"{task}_export"
  if settings.do_lower_case:
    flags["do_lower_case"] = None  # The default.
  return program.command("export_saved_model.py", **flags)


class Lines:
  """The lines of --input_file, or texts, and how many have been read."""

  def __init__(
    self,
    settings: inference_settings.InferenceSettings,
    texts: Sequence[str] = (),
  ):
    """Finds the files, and reads nothing yet.

    Args:
      settings: --input_file and --text_column.
      texts: given on the command line, instead of --input_file.
    """
    path = settings.input_file
    self._input_file = path
    self._texts = texts
    self._is_piped = settings.reads_standard_input
    self._paths = [] if texts else [path]

    # Only files have columns: a pipe's lines are read as plain text.
    if settings.text_column and (texts or self._is_piped):
      raise ValueError(
        "--text_column needs --input_file=<a file of JSON Lines, CSV or TSV>"
      )

    # The settings have checked the files of this machine; remote ones are
    # checked now that TensorFlow is imported.
    if not self._is_piped:
      self._paths = file_search.expand_patterns(path, "input_file")
      remote = [path for path in self._paths if not os.path.exists(path)]
      text_files.check(remote, settings.text_column)

    # Whether a user types the lines and waits for answers.
    self.is_typed = self._is_piped and not texts and sys.stdin.isatty()
    self._settings = settings

    # The lines and bytes that have been read. Without a known size, as of a
    # pipe, progress has no end to estimate.
    self.count = 0
    self._bytes = 0
    self._progress = progress.Progress(text_files.known_size(self._paths) or 0)

  def __iter__(self) -> Iterator[text_inputs.InputLine]:
    """Yields the lines once; the input must not be empty."""
    if self._paths and not self._is_piped:
      # A wrong --do_lower_case shows in the letters that the tokenizer strips.
      lost_letters.report_file(
        self._paths[0],
        self._settings.vocab_file,
        self._settings.do_lower_case,
        self._settings.text_column,
      )

    # The clock starts anew: loading the model took time since `__init__`.
    self._progress = progress.Progress(self._progress.total)
    for text in self._texts:
      yield text_inputs.InputLine(self.count, text, "--text")
      self.count += 1

    for path in self._paths:
      name = "standard input" if self._is_piped else path
      rows = text_files.read(path, self._settings.text_column)
      for number, text in enumerate(rows, 1):
        # Editors on Windows put a byte order mark before the first line.
        text = text.removeprefix("\ufeff") if number == 1 else text
        yield text_inputs.InputLine(self.count, text, f"{name}:{number}")
        self.count += 1
        self._bytes += len(text.encode()) + 1

    if not self.count:
      raise ValueError(f"--input_file={self._input_file}: the input is empty")

  def report(self) -> None:
    """Prints progress, if it is time, when the lines so far are processed."""
    if self._progress.is_due():
      total = self._progress.total
      eta = f"  ETA {self._progress.eta(self._bytes)}" if total else ""
      line = f"{self.count:,} lines  {self.speed()}{eta}"
      self._progress.print_line(line, self._bytes)

  def speed(self) -> str:
    """Returns the mean speed so far, in words."""
    return f"{self._progress.units_per_second(self.count):,.1f} lines/s"
