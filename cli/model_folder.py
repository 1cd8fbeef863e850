"""The one door for models: the files of a folder, whoever wrote them.

`open` is asked once, at the start of a program, about a Google release, the
--output_dir of a training run, or a model of another library. Everything behind
it sees a `ModelFolder`:

  start = model_folder.open(settings.init_checkpoint, settings.bert_config_file)
  checkpoints.assign(start.weights, variables, checkpoints.is_above_layers)
"""

import dataclasses
import os
import sys
from typing import Any

from absl import flags

from cli import program
from data import files
import tokenization
from vocabularies import vocabulary_table

FLAGS = flags.FLAGS

# The flags that --model sets unless they are given, and the names that their
# files may have; the weights are searched for in the folder.
_FILES = {
  "bert_config_file": ("bert_config.json", "config.json"),
  "vocab_file": (
    *vocabulary_table.NAMES,
    os.path.join("assets", "vocab.txt"),  # Of a SavedModel.
    os.path.join("assets", "tokenizer", "vocabulary.txt"),  # KerasHub's.
  ),
  "init_checkpoint": (),
}


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """A model and the files that belong to it, whoever wrote them."""

  source: str  # The prefix of a checkpoint, or another library's folder.
  folders: tuple[str, ...]  # Where the files beside the weights are.
  config: Any  # A `modeling.EncoderConfig`; None if no file holds one.
  vocab_file: str | None
  do_lower_case: bool | None  # None if no file says it.
  problem: str | None  # The task of its head, if a file says it.
  labels: tuple[str, ...]  # Of its head; empty if unknown.
  weights: Any  # `checkpoints.Weights`, by Google's names, read lazily.


def open(path: str, bert_config_file: str | None = None) -> ModelFolder:
  """Opens a model: a checkpoint, a folder with one, or another library's.

  Args:
    path: --init_checkpoint, or the folder of --model: a prefix, a release, the
      output of a training, or a folder of another library.
    bert_config_file: its config, if that is not beside the weights.

  Raises:
    ValueError: there is no model, a file is damaged, or the config is not that
      of the weights.
  """
  from encoders import encoder_table  # Slow: TensorFlow.
  from weights import checkpoints
  from weights import conversion
  from weights import formats

  source = checkpoints.find_checkpoint(find_weights(path))
  reader, folders = checkpoints.open_reader(source), formats.folders_of(source)
  config = reader.config if reader else None
  found = bert_config_file
  if not found and (not config or reader.assumed):
    paths = (os.path.join(folder, "bert_config.json") for folder in folders)
    found = next(filter(files.exists, paths), None)
  if found:
    stated = encoder_table.read_config(found)
    if config:
      reader.check_config(found, stated)
    config = stated
  casings = [reader.do_lower_case] if reader else []
  casings += [(_read_stated_casing(folder) or (None,))[0] for folder in folders]
  stated = [casing for casing in casings if casing is not None]
  problem, labels = conversion.read_problem(source)
  return ModelFolder(
    source,
    tuple(folders),
    config,
    vocabulary_table.find(folders),
    stated[0] if stated else None,
    problem,
    tuple(labels),
    checkpoints.open_weights(source),
  )


def define_folder_flag(*replaced: str) -> None:
  """Declares --model, without which the flags it replaces are required."""
  flags.DEFINE_string(
    "model",
    None,
    "The model's folder, which stands for its config, vocabulary, casing and "
    "weights: an unpacked release, the --output_dir of a training (its best "
    "weights, if they were kept), or a folder of Hugging Face's, KerasHub's or "
    "TF-Hub's.",
  )
  program.require_unless("model", *replaced)


def find_files() -> None:
  """Sets the flags that --model stands for, and --do_lower_case.

  `flag_values.read` calls it.

  Raises:
    ValueError: the folder lacks a file, or --do_lower_case contradicts what the
      files beside the weights or the vocabulary say.
  """
  # The --model of create_vocab.py is no folder.
  if "model" not in FLAGS or not {"vocab_file", "input"} & set(FLAGS):
    return
  if "input" in FLAGS:  # Of convert_checkpoint.py, which finds what is beside.
    if FLAGS.input and FLAGS.model:
      raise ValueError("--input and --model are the same: give one")
    FLAGS.input = FLAGS.input or find_weights(FLAGS.model)
    return
  if FLAGS.model:
    for name, choices in _FILES.items():
      if name in FLAGS and not FLAGS[name].value:
        setattr(FLAGS, name, _find_file(FLAGS.model, name, choices))
  if "do_lower_case" in FLAGS:
    names = ("model", "model_dir", *_FILES)
    paths = [FLAGS[name].value for name in names if name in FLAGS]
    _follow_casing(list(filter(None, paths)))


def _find_file(folder: str, flag: str, choices: tuple[str, ...]) -> str | None:
  if not choices:
    return find_weights(folder)
  paths = filter(files.exists, (os.path.join(folder, n) for n in choices))
  if flag == "bert_config_file":
    return next(filter(_is_of_bert, paths), None)  # See `read_config`.
  found = next(paths, None)
  if not found:
    hint = f"pass --{flag}"
    if files.exists(os.path.join(folder, "tokenizer.json")):
      hint = f"`python convert_checkpoint.py --input={folder} --output=...` "
      hint += "writes one of its tokenizer.json"
    raise ValueError(f"--model={folder}: holds no {choices[0]}: {hint}")
  if flag == "vocab_file" and found == os.path.join(folder, "vocab.txt"):
    size = vocabulary_table.size_of(found)
    if added := vocabulary_table.added_tokens(folder, size):
      raise ValueError(
        f"{found}: lacks the token {added[0]!r} that was added later ("
        f"{len(added)} in all): `python convert_checkpoint.py --input={folder} "
        "--output=...` writes one vocabulary of all"
      )
  return found


def find_weights(folder: str) -> str:
  """Returns what --init_checkpoint is for --model: the best weights, if any."""
  best = os.path.join(folder, "best")
  return best if files.exists(os.path.join(best, "checkpoint")) else folder


def _is_of_bert(path: str) -> bool:
  """Tells whether a config is Google's, or Hugging Face's of a BERT."""
  contents = files.read_json(path)
  is_keras_hub = "class_name" in contents
  return not is_keras_hub and contents.get("model_type", "bert") == "bert"


def _follow_casing(paths: list[str]) -> None:
  """Sets --do_lower_case to what a file next to one of the paths says."""
  flag = FLAGS["do_lower_case"]
  for path in paths:
    for folder in (path, os.path.dirname(path) or "."):
      stated = _read_casing(folder)
      if stated is None:
        continue
      value, source = stated
      if flag.value == value:
        return
      if flag.present:
        raise ValueError(
          f"--do_lower_case={flag.value}: {source} says {value}: leave out the "
          "flag"
        )
      print(f"--do_lower_case={value}, as {source} says", file=sys.stderr)
      FLAGS.do_lower_case = value
      return


def _read_stated_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the casing that a file in a folder states, and that file."""
  path = os.path.join(folder, "settings.json")
  try:
    value = files.read_json_if_any(path).get("do_lower_case")
  except ValueError:
    if files.exists(os.path.join(folder, "bert_config.json")):
      raise
    value = None  # It may be an editor's.
  if isinstance(value, bool):
    return value, path
  return vocabulary_table.read_casing(folder)


def _read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the casing of a folder's model and its source; None: unknown."""
  if stated := _read_stated_casing(folder):
    return stated
  if folder != FLAGS.model or not FLAGS.vocab_file:
    return None
  if FLAGS.vocab_file.startswith(os.path.join(folder, "assets")):
    value = _open_weights(folder).do_lower_case
    if value is not None:
      return value, folder
  is_cased = tokenization.is_cased(
    vocabulary_table.load_vocab(FLAGS.vocab_file)
  )
  return None if is_cased is None else (not is_cased, FLAGS.vocab_file)


def _open_weights(path: str):
  """Returns the `readers.Reader` of weights; None if they are Google's."""
  from weights import checkpoints  # Slow: TensorFlow.

  return checkpoints.open_reader(checkpoints.find_checkpoint(path))


def read_config(settings):
  """Reads the `BertConfig` of --bert_config_file, or of the weights of --model.

  Raises:
    ValueError: there is none, or it is damaged.
  """
  from encoders import encoder_table  # Slow: TensorFlow.

  if settings.bert_config_file:
    return encoder_table.read_config(settings.bert_config_file)
  reader = _open_weights(settings.init_checkpoint)
  if not (reader and reader.config):
    raise ValueError(
      f"--model={settings.model}: holds no bert_config.json: pass "
      "--bert_config_file"
    )
  for field in reader.assumed:
    value = getattr(reader.config, field)
    print(f"not in {settings.model}, taken: {field}={value!r}", file=sys.stderr)
  return reader.config


def check_free(flag: str, path: str) -> None:
  """Raises a ValueError if the folder to write is not empty, or a file."""
  import tensorflow as tf  # Slow.

  if tf.io.gfile.exists(path) and (
    not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path)
  ):
    raise ValueError(
      f"--{flag}={path}: is there already; name a folder that is new or empty"
    )
  if os.path.ismount(path):  # What is written takes its place at the end.
    raise ValueError(f"--{flag}={path}: a mount point; name a folder in it")


def check_vocabulary(path: str, config) -> None:
  """Raises a ValueError if a vocabulary and a config differ in size."""
  size = vocabulary_table.size_of(path)
  if not vocabulary_table.fits(size, config.vocab_size):
    raise ValueError(
      f"--vocab_file={path} has {size} tokens, the vocab_size of the model's "
      f"config is {config.vocab_size}: they are of different models"
    )


def fit_vocabulary(settings, config):
  """Sets the vocab_size of a config to pre-train to that of --vocab_file."""
  if not settings.vocab_file:
    return config
  size = vocabulary_table.size_of(settings.vocab_file)
  if settings.init_checkpoint:
    check_vocabulary(settings.vocab_file, config)
  if vocabulary_table.fits(size, config.vocab_size):
    return config
  print(
    f"vocab_size: {size}, the tokens of {settings.vocab_file}, instead of the "
    f"{config.vocab_size} of {settings.bert_config_file}"
  )
  return dataclasses.replace(config, vocab_size=size)
