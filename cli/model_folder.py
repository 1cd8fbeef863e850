"""The one door for models: the files of a folder, whoever wrote them.

`open` is asked once, at the start of a program, about a Google release, the
--output_dir of a training run, or a model of another library. Everything behind
it sees a `convert.readers.ModelFolder`:

  start = model_folder.open(settings.init_checkpoint, settings.bert_config_file)
  checkpoints.assign(start.weights, variables, checkpoints.is_above_layers)
"""

import dataclasses
import os
import sys

from absl import flags

from convert import tokenizer_files
from data import files
from vocabularies import vocabulary_table

FLAGS = flags.FLAGS

# The flags that --model sets unless they are given, and the names that their
# files may have; the weights are searched for in the folder.
_FILES = {
  "bert_config_file": ("bert_config.json", "config.json"),
  "vocab_file": (
    *vocabulary_table.NAMES,
    os.path.join("assets", "vocab.txt"),  # A SavedModel's.
    os.path.join("assets", "tokenizer", "vocabulary.txt"),  # KerasHub's.
  ),
  "init_checkpoint": (),
}


def open(path: str, bert_config_file: str | None = None):
  """Opens a model: a checkpoint, a folder with one, or another library's.

  Args:
    path: --init_checkpoint: a prefix, a release, the output of a training, or a
      folder of another library. `find_weights` makes it of --model.
    bert_config_file: its config, if that is not beside the weights.

  Returns:
    A `convert.readers.ModelFolder`: config, vocabulary, casing, labels, and
    weights by Google's names, which are read when they are asked for.

  Raises:
    ValueError: there is no model, a file is damaged, or the config is not that
      of the weights.
  """
  from convert import formats  # Slow: TensorFlow.

  return formats.open_model(path, bert_config_file)


def find_files() -> None:
  """Sets the flags that --model replaces, and --do_lower_case.

  Call it before the flags are read.

  Raises:
    ValueError: the folder lacks a file, or --do_lower_case contradicts what the
      files beside the weights or the vocabulary say.
  """
  # The --model of create_vocab.py is no folder.
  if "model" not in FLAGS or not {"vocab_file", "input"} & set(FLAGS):
    return
  if "input" in FLAGS:  # convert_checkpoint.py finds the other files.
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
    tokens = tokenizer_files.read_vocabulary(folder)
    if added := tokens[vocabulary_table.size_of(found) :]:
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
  """Returns whether a config is Google's, or Hugging Face's of a BERT."""
  contents = files.read_json(path)
  is_keras_hub = "class_name" in contents
  return not is_keras_hub and contents.get("model_type", "bert") == "bert"


def _follow_casing(paths: list[str]) -> None:
  """Sets --do_lower_case to what a file next to one of the paths says."""
  flag = FLAGS["do_lower_case"]
  for path in paths:
    for folder in (path, os.path.dirname(path) or "."):
      stated = tokenizer_files.read_casing(folder) or _guess_casing(folder)
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


def _guess_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the casing that the weights or the vocabulary of --model show."""
  if folder != FLAGS.model or not FLAGS.vocab_file:
    return None
  if FLAGS.vocab_file == os.path.join(folder, "assets", "vocab.txt"):
    value = open(folder).do_lower_case
    if value is not None:
      return value, folder
  is_cased = vocabulary_table.is_cased(
    vocabulary_table.load_vocab(FLAGS.vocab_file)
  )
  return None if is_cased is None else (not is_cased, FLAGS.vocab_file)


def read_config(settings):
  """Reads the config of --bert_config_file, or of the weights of --model.

  Raises:
    ValueError: it is missing or damaged.
  """
  if settings.bert_config_file:
    from convert import formats  # Slow: TensorFlow.

    return formats.read_config(settings.bert_config_file)
  folder = open(settings.init_checkpoint)
  if not folder.config:
    raise ValueError(
      f"--model={settings.model}: holds no bert_config.json: pass "
      "--bert_config_file"
    )
  for field in folder.assumed:
    value = getattr(folder.config, field)
    print(f"not in {settings.model}, taken: {field}={value!r}", file=sys.stderr)
  return folder.config


def check_free(flag: str, path: str) -> None:
  """Raises a ValueError if the folder to write is not empty, or a file."""
  import tensorflow as tf  # Slow.

  if tf.io.gfile.exists(path) and (
    not tf.io.gfile.isdir(path) or tf.io.gfile.listdir(path)
  ):
    raise ValueError(
      f"--{flag}={path}: is there already; name a folder that is new or empty"
    )
  if os.path.ismount(path):  # The new folder takes its place at the end.
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
