"""What --model stands for: the files of a folder, and the casing of its text.

The folder is an unpacked Google release, the --output_dir of a training run, or
a Hugging Face model.
"""

import dataclasses
import os
import sys

from absl import flags

from cli import program
from data import files
import tokenization

FLAGS = flags.FLAGS

# The flags that --model sets unless they are given, and the names that their
# files may have; the weights are searched for in the folder.
_FILES = {
  "bert_config_file": ("bert_config.json", "config.json"),
  "vocab_file": ("vocab.txt",),
  "init_checkpoint": (),
}


def define_folder_flag(*replaced: str) -> None:
  """Declares --model.

  Args:
    *replaced: the flags that are required unless --model is given.
  """
  flags.DEFINE_string(
    "model",
    None,
    "A folder with config, vocabulary and weights, instead of a flag for each: "
    "an unpacked release, the --output_dir of a training (its best weights, if "
    "they were kept), or a folder of Hugging Face's.",
  )
  program.require_unless("model", *replaced)


def find_files() -> None:
  """Sets the flags that --model stands for, and --do_lower_case.

  `flag_values.read` calls it.

  Raises:
    ValueError: the folder lacks a file, or --do_lower_case contradicts what the
      files beside the weights or the vocabulary say.
  """
  if "model" not in FLAGS:
    return
  if FLAGS.model:
    for name, choices in _FILES.items():
      if name in FLAGS and not FLAGS[name].value:
        setattr(FLAGS, name, _find_file(FLAGS.model, name, choices))
  if "do_lower_case" in FLAGS:
    paths = [FLAGS.model, *(FLAGS[n].value for n in _FILES if n in FLAGS)]
    _follow_casing(list(filter(None, paths)))


def _find_file(folder: str, flag: str, choices: tuple[str, ...]) -> str:
  if not choices:
    best = os.path.join(folder, "best")
    return best if files.exists(os.path.join(best, "checkpoint")) else folder
  paths = [os.path.join(folder, name) for name in choices]
  found = next(filter(files.exists, paths), None)
  if not found:
    raise ValueError(
      f"--model={folder}: holds no {' or '.join(choices)}: pass --{flag}"
    )
  return found


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


def _read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the casing of a folder's model and its source; None: unknown."""
  path = os.path.join(folder, "settings.json")
  if files.exists(path):
    value = files.read_json(path).get("do_lower_case")
    if isinstance(value, bool):
      return value, path
  path = os.path.join(folder, "tokenizer_config.json")
  if files.exists(path):
    from weights import huggingface  # Slow: TensorFlow.

    value = huggingface.read_do_lower_case(folder)
    return None if value is None else (value, path)
  if folder != FLAGS.model or not FLAGS.vocab_file:
    return None
  is_cased = tokenization.is_cased(tokenization.load_vocab(FLAGS.vocab_file))
  return not is_cased, FLAGS.vocab_file


def fit_vocabulary(settings, config):
  """Sets the vocabulary size of a config to pre-train to that of --vocab_file.

  Args:
    settings: of the program.
    config: the `modeling.EncoderConfig` of --bert_config_file.

  Raises:
    ValueError: the sizes differ, but the weights of --init_checkpoint have one.
  """
  if not settings.vocab_file:
    return config
  size = len(tokenization.load_vocab(settings.vocab_file))
  # Configs may round the size up, at most to a multiple of 128.
  if size <= config.vocab_size < size + 128:
    return config
  if settings.init_checkpoint:
    raise ValueError(
      f"--vocab_file={settings.vocab_file} has {size} tokens, the vocab_size "
      f"of --bert_config_file={settings.bert_config_file} is "
      f"{config.vocab_size}: they are of different models"
    )
  print(
    f"vocab_size: {size}, the tokens of {settings.vocab_file}, instead of the "
    f"{config.vocab_size} of {settings.bert_config_file}"
  )
  return dataclasses.replace(config, vocab_size=size)
