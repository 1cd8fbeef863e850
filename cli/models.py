"""Flags of the model and its training, its weights and its output folder."""

from collections.abc import Iterator
import contextlib
import importlib
import json
import os
import re
import tempfile
from typing import Any

from absl import flags

from cli import flag_values
from cli import model_folder
from cli import program
from data import atomic
from data import files
from data import remote
from vocabularies import vocabulary_table

# Settings that are digests of files, and the error when they differ.
_DIGESTS = {
  "vocab_file_sha256": "the vocabulary was another",
  "training_features": (
    "the training data, or a flag that shapes its features, was another"
  ),
  "evaluation_features": (
    "the evaluation data, or a flag that shapes its features, was another"
  ),
}


def define_model_flags() -> None:
  """Declares the flags of programs with a model."""
  program.group("Model")
  model_folder.define_folder_flag("bert_config_file")
  flags.DEFINE_string(
    "bert_config_file",
    None,
    "The bert_config.json of the model: its architecture.",
  )
  flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Weights to start from: the prefix of a TF1 checkpoint, a folder with one "
    "in it, such as an unpacked release, or what another library wrote: see "
    "docs/checkpoints.md. Unused once --output_dir has its own.",
  )
  flags.DEFINE_string(
    "word_vectors",
    None,
    "A file in word2vec's text format, whose vectors replace those of the same "
    "words at the start of a training.",
  )
  flags.DEFINE_string(
    "output_dir",
    None,
    "The folder for checkpoints, TensorBoard events and results.",
    required=True,
  )
  flags.DEFINE_bool(
    "report",
    True,
    "Whether to write output_dir/report.html: curves, scores, mistakes.",
  )


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


def define_training_flags() -> None:
  """Declares the flags of programs that train."""
  program.group("Training")
  flags.DEFINE_float(
    "learning_rate",
    5e-5,
    "The rate that warm-up aims at; it decays linearly to zero.",
    lower_bound=0.0,
  )
  flags.DEFINE_integer(
    "train_batch_size",
    32,
    "Examples per update, over all devices and accumulation steps.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "gradient_accumulation_steps",
    1,
    "Parts that a batch is computed in, one after the other; more parts take "
    "less memory and make the same update, but for the masks of dropout.",
    lower_bound=1,
  )
  flags.DEFINE_bool(
    "recompute",
    False,
    "Whether to keep only the input of every encoder layer for the backward "
    "pass, which computes the rest again: less memory and the same update, in "
    "more time.",
  )
  flags.DEFINE_integer(
    "save_checkpoints_steps",
    1000,
    "Steps from one checkpoint to the next.",
    lower_bound=1,
  )
  flags.DEFINE_integer(
    "keep_checkpoint_max",
    5,
    "How many of the newest checkpoints to keep; 0 keeps all. To resume, 1 is "
    "enough. Each has three times the size of the weights, which it holds with "
    "the two moments of Adam.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "eval_every_steps",
    0,
    "Steps from one evaluation during training to the next; 0 for none.",
    lower_bound=0,
  )
  flags.DEFINE_integer(
    "seed",
    12345,
    "Decides the initial weights, the order of the examples and the dropout.",
    lower_bound=0,
    upper_bound=2**31 - 1,
  )


@contextlib.contextmanager
def claim_output_dir(
  settings: flag_values.Settings, config, strategy
) -> Iterator[None]:
  """Makes the output folder and keeps other runs out while the body runs.

  Enter it before anything is written to the folder.

  Raises:
    ValueError: the folder's model has another config, or the folder cannot be
      written.
    OSError: another process is training in it.
  """
  folder = settings.output_dir
  if re.search(r"[*?\[\\]", folder):
    raise ValueError(
      f"--output_dir={folder}: TensorFlow reads no checkpoint from a "
      "path with *, ?, [ or \\ in it; choose another"
    )
  try:
    if not remote.is_remote(folder):
      os.makedirs(folder, exist_ok=True)
      # Without a name, so that nothing is left behind.
      tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    raise ValueError(
      f"--output_dir={folder}: not a folder that can be written: "
      f"{error.strerror}"
    ) from error
  with contextlib.ExitStack() as stack:
    if settings.do_train and strategy.extended.should_checkpoint:
      stack.enter_context(atomic.claim_folder(folder))
    _check_config(folder, config)
    yield


def _check_config(folder, config):
  """Compares a config with that of the model in a folder, if there is one."""
  path = os.path.join(folder, "bert_config.json")
  if files.exists(path):
    from encoders import encoder_table

    ours, theirs = (
      json.loads(either.to_json_string())
      for either in (config, encoder_table.read_config(path))
    )
    listing = ", ".join(
      f"{name}: {theirs.get(name)}, not {ours.get(name)}"
      for name in theirs | ours
      if theirs.get(name) != ours.get(name)
    )
    if listing:
      raise ValueError(
        f"--output_dir={folder} belongs to another model ({listing}): choose "
        f"another folder, or pass --bert_config_file={path}"
      )


def write_config(folder: str, config, strategy, vocab_file: str | None) -> None:
  """Writes config and vocabulary to --output_dir, so that --model can name it.

  Call it when the checkpoint is known to fit.
  """
  if not strategy.extended.should_checkpoint:
    return
  path = os.path.join(folder, "bert_config.json")
  if not files.exists(path):
    files.write_text(path, config.to_json_string())
  if vocab_file:
    vocabulary_table.copy(vocab_file, folder)


def check_settings(path: str, settings: dict[str, Any]) -> None:
  """Compares settings with an earlier run's, read from a JSON file."""
  earlier = files.read_json_if_any(path)
  settings = json.loads(json.dumps(settings))  # Tuples become lists.
  # What an older version of the program did not record is not compared.
  both = filter(earlier.__contains__, settings)
  differing = [name for name in both if earlier[name] != settings[name]]
  if differing:
    listing = ", ".join(
      _DIGESTS.get(k) or f"{k}: {_change(k, earlier[k], settings[k])}"
      for k in differing
    )
    raise ValueError(
      f"{path}: the runs in this folder had other settings ({listing}); use "
      "them again or choose another folder"
    )


def _change(key: str, earlier: Any, value: Any) -> str:
  """Describes a change of what may be a setting of one task of several."""
  name = key.rpartition(".")[2]
  return _DIGESTS.get(name) or f"{show(earlier)}, not {show(value)}"


def show(value: Any) -> str:
  """Returns a flag's value as a command line has it."""
  if isinstance(value, list):
    return ",".join(map(str, value)) or "none"
  return "none" if value is None else str(value)


def load_weights(settings: flag_values.Settings, variables) -> int:
  """Loads the newest checkpoint in --output_dir, or else --init_checkpoint.

  --init_checkpoint may lack the variables of this head, and those of another
  head are ignored; both are printed.

  Returns:
    The number of updates behind the weights; 0 for --init_checkpoint.
  """
  from weights import checkpoints

  if settings.word_vectors and not settings.do_train:
    raise ValueError(
      "--word_vectors: only a training starts with them; leave out the flag, "
      "or pass --do_train=true"
    )
  folder = settings.output_dir
  # The step at which training resumes depends on the slots, too.
  step = checkpoints.restore(folder, variables, settings.do_train)
  if step is not None:
    print(f"weights from {checkpoints.saved_prefix(folder, step)}")
    return step
  if not settings.init_checkpoint:
    print("no checkpoint given: the weights are random")
    _use_word_vectors(settings, variables)
    return 0
  start = model_folder.open(settings.init_checkpoint, settings.bert_config_file)
  loaded = checkpoints.assign(
    start.weights, variables, checkpoints.is_above_layers
  )
  print(f"weights from {start.source}")
  for title, names in (
    ("not in it, start at random", loaded.missing),
    ("in it, not used", loaded.unused),
  ):
    if names:
      print(f"  {title}: {', '.join(names)}")
  _use_word_vectors(settings, variables)
  return 0


def _use_word_vectors(settings, variables):
  """Puts the vectors of --word_vectors into the word embeddings."""
  if settings.word_vectors:
    word_vectors = importlib.import_module("contrib.word_vectors")
    variable = variables["bert/embeddings/word_embeddings"]
    word_vectors.use(settings.word_vectors, settings.vocab_file, variable)


@contextlib.contextmanager
def private_folder(folder: str, strategy) -> Iterator[str]:
  """Yields a local folder that no other worker writes to.

  It is the output folder unless that is remote or another worker's: workers
  make their own feature files at the same time, without waiting.
  """
  if strategy.extended.should_checkpoint and not remote.is_remote(folder):
    yield folder
  else:
    with tempfile.TemporaryDirectory() as temporary:
      yield temporary


def write_eval_results(
  folder: str, step: int, results, name: str = "eval_results.txt"
) -> None:
  """Prints scores and writes them to a file, sorted by name."""
  import numpy as np

  # The original printed float32 digits.
  scores = {name: np.float32(value) for name, value in results.items()}
  lines = [
    f"{name} = {value!s}"
    for name, value in sorted({**scores, "global_step": step}.items())
  ]
  path = os.path.join(folder, name)
  files.write_text(path, "\n".join(lines) + "\n")
  print("\n".join([f"wrote {path}:", *(f"  {line}" for line in lines)]))
