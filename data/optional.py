"""Imports packages that only some work needs."""

import importlib
from typing import Any

# What pip takes to install them.
_REQUIREMENTS = {
  "jieba": "--use-pep517 -r requirements/jieba.txt",
  "keras_hub": "-r requirements/keras_hub.txt",
  "onnx": "-r requirements/onnx.txt",
  "onnxruntime": "-r requirements/onnx.txt",
  "sentencepiece": "-r requirements/sentencepiece.txt",
  "waitress": "-r requirements/serving.txt",
}


def load(package: str, use: str) -> Any:
  """Imports a package; an ImportError says what for, and the cure.

  Call it before any work: a program then ends before it, with one line.

  Args:
    use: what needs it: a flag, or kinds of files.
  """
  try:
    return importlib.import_module(package)
  except ImportError as error:
    cure = f"pip install {_REQUIREMENTS[package]}"
    raise ImportError(
      f"{package} is needed for {use} ({error}): {cure}"
    ) from None
