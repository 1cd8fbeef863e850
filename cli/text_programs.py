"""Flags, weights and lines of the programs that apply a model to text."""

from collections.abc import Callable, Iterator, Sequence
import shlex
import sys
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from cli import devices, model_folder, shared_flags, task_settings
from data import files, progress
from inputs import text_inputs
import tokenization
from training import loop, prediction
from vocabularies import vocabulary_table
from weights import checkpoints


class TextModel(NamedTuple):
  """A model with its weights, and the tokenizer of its texts."""

  config: Any  # A `modeling.EncoderConfig`.
  tokenizer: tokenization.FullTokenizer
  model: keras.Model
  strategy: tf.distribute.Strategy

  def make_predictor(
    self, compute: Callable[..., dict[str, tf.Tensor]]
  ) -> prediction.Predictor:
    """Makes a predictor of compute(model, batch)."""
    return prediction.Predictor(self.strategy, self.model, compute)


def open_model(
  settings: shared_flags.InferenceSettings,
  make_model: Callable[[Any, str], keras.Model],
  tokens: Sequence[str] = (),
  head: str = "",
  head_name: str = "",
) -> TextModel:
  """Makes the model of the flags and loads its weights, before any tensor.

  Args:
    make_model: takes the config and the dtype policy.
    tokens: those that the vocabulary must have.
    head: see `load_weights`.
    head_name: its name for users.
  """
  strategy = make_strategy(settings)
  config = task_settings.read_config(settings)
  tokenizer = vocabulary_table.make_tokenizer(
    settings.vocab_file, settings.do_lower_case, tokens
  )
  with strategy.scope():
    model = make_model(config, settings.compute_dtype)
  load_weights(settings, loop.model_variables(model), head, head_name)
  return TextModel(config, tokenizer, model, strategy)


def make_strategy(
  settings: shared_flags.InferenceSettings,
) -> tf.distribute.Strategy:
  """Makes the distribution strategy of the flags; call it before any tensor."""
  if settings.distribution == "multi_worker":
    raise ValueError(
      "--distribution=multi_worker: this program works on one host; give each "
      "host a part of the input, and pass --distribution=mirrored for all of "
      "its devices"
    )
  devices.check_tpu_paths(settings)
  return devices.make_strategy(settings, says_so=False)


def load_weights(
  settings: shared_flags.InferenceSettings,
  variables: dict[str, tf.Variable],
  head: str = "",
  head_name: str = "",
) -> None:
  """Loads --init_checkpoint; only the layers of the encoder have to match.

  Args:
    head: the name prefix of a head that the checkpoint must have, if any.
    head_name: its name for users.
  """
  start = model_folder.open(settings.init_checkpoint, settings.bert_config_file)
  if head:
    missing = set(variables) - set(start.weights.shapes)
    missing = sorted(name for name in missing if name.startswith(head))
    if missing:
      raise ValueError(
        f"--init_checkpoint={settings.init_checkpoint} has no {head_name}, it "
        f"lacks {', '.join(missing)}: give one that was pre-trained and not "
        "fine-tuned since"
      )
  checkpoints.assign(start.weights, variables, checkpoints.is_above_layers)
  # The standard output may be the program's result.
  print(
    f"weights from {start.source}, {devices.describe(settings)}",
    file=sys.stderr,
  )


def batching(settings: shared_flags.InferenceSettings) -> text_inputs.Batching:
  """Returns how inputs are put into batches."""
  return text_inputs.Batching(
    lambda lengths: task_settings.batch_order(
      settings, lengths, settings.batch_size
    ),
    settings.max_seq_length
    if task_settings.uses_fixed_shapes(settings)
    else None,
  )


def export_command(settings: shared_flags.InferenceSettings, task: str) -> str:
  """Returns the command that exports the model of the flags, to serve it."""
  names = ("model", "bert_config_file", "init_checkpoint", "vocab_file")
  if settings.model:
    names = names[:1]
  given = [f"--{name}={getattr(settings, name)}" for name in names]
  if not (settings.model or settings.do_lower_case):
    given.append("--do_lower_case=false")
  given += [f"--task={task}", f"--export_dir={task}_export"]
  return shlex.join(["python", "export_saved_model.py", *given])


class Lines:
  """The lines of --input_file, and how many have been processed.

  Attributes:
    count: lines read so far.
  """

  def __init__(
    self,
    settings: shared_flags.InferenceSettings,
    texts: Sequence[str] | None = None,
  ):
    self._input_file = settings.input_file
    self._texts, self._paths = texts or [], []
    if not texts and self._input_file == files.STANDARD_INPUT:
      self._paths = [files.STANDARD_INPUT]
    elif not texts:
      self._paths = files.expand_patterns(self._input_file, "input_file")
      files.check_is_no_input(settings.output_file, self._paths)
    elif self._input_file != files.STANDARD_INPUT:
      raise ValueError(
        f"--text and --input_file={self._input_file} are both given: give one"
      )
    self.count = self._bytes = 0
    self._total = files.known_size(self._paths) or 0
    self.start()

  def start(self) -> None:
    """Measures the speed from now on."""
    self._progress = progress.Progress(self._total)
    self._lines = progress.Progress(0)

  def __iter__(self) -> Iterator[text_inputs.InputLine]:
    """Yields the lines once."""
    for text in self._texts:
      yield text_inputs.InputLine(self.count, text, "--text")
      self.count += 1
    for path in self._paths:
      name = "standard input" if path == files.STANDARD_INPUT else path
      for number, text in enumerate(files.read_lines(path), 1):
        text = text.removeprefix("\ufeff") if number == 1 else text
        yield text_inputs.InputLine(self.count, text, f"{name}:{number}")
        self.count += 1
        self._bytes += len(text.encode()) + 1

  def is_typed(self) -> bool:
    """Returns whether a user types the lines and waits for answers."""
    return self._paths == [files.STANDARD_INPUT] and sys.stdin.isatty()

  def check_not_empty(self) -> None:
    """Raises a ValueError if there was no line."""
    if not self.count:
      raise ValueError(f"--input_file={self._input_file}: the input is empty")

  def report(self) -> None:
    """Prints progress and the time left, every few seconds.

    Call it when the lines read so far have been processed.
    """
    if self._progress.is_due():
      eta = f"  ETA {self._progress.eta(self._bytes)}" if self._total else ""
      line = f"{self.count:,} lines  {self.speed()}{eta}"
      self._progress.print_line(line, self._bytes)

  def speed(self) -> str:
    """Returns the mean speed so far, in words."""
    return f"{self._lines.units_per_second(self.count):,.1f} lines/s"
