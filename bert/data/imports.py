"""Imports TensorFlow without what it logs, and packages that are optional."""

from collections.abc import Iterator
import contextlib
import importlib
import os
import signal
import sys
import tempfile
import threading
from typing import Any

# Hides TensorFlow's own log if set before the import. Errors that matter to
# users reach Python as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# With "1", oneDNN lays out the weights of a product with a bias at the first
# call, and keeps them for all later ones: right only if they never change. It
# reads the variable once.
PACKS_WEIGHTS = "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"

# The process in which TensorFlow has computed first; None before.
_process: int | None = None

# What pip takes to install them, if not -r requirements/<package>.txt.
_REQUIREMENTS = {
  "huggingface_hub": "-r requirements.txt",
  "onnxruntime": "-r requirements/onnx.txt",
  "tensorflow_text": "-r requirements.txt",
  "waitress": "-r requirements.txt",
}


def find_extra(name: str, attribute: str) -> Any:
  """Returns an attribute of a module of `bert.contrib`; None without one.

  Extras are found by their names: no other folder has an import of them.
  """
  if not name.isidentifier():
    return None
  module_name = f"bert.contrib.{name}"
  try:
    module = importlib.import_module(module_name)
  except ModuleNotFoundError as error:
    if error.name != module_name:
      raise  # It is there, and lacks another module.
    return None
  return getattr(module, attribute, None)


def import_tensorflow(packs_weights: bool = False) -> None:
  """Imports TensorFlow and hides what its libraries write to standard error.

  No environment variable hides all of these lines about CUDA and the processor.
  They are shown if the import fails, and always with TF_CPP_MIN_LOG_LEVEL=0.

  Args:
    packs_weights: whether oneDNN may keep weights; only for a process that does
      not train. See `weights_are_packed`.
  """
  if "tensorflow" not in sys.modules:
    os.environ[PACKS_WEIGHTS] = str(int(packs_weights))
  with contextlib.ExitStack() as stack:
    stack.enter_context(delayed_interrupts())
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] not in ("0", "1"):
      with contextlib.suppress(OSError):  # There is no folder for the lines.
        stack.enter_context(_hidden_unless_it_fails())
    import tensorflow  # noqa: F401


def check_process() -> None:
  """Call it before TensorFlow computes; a RuntimeError after a fork.

  Its threads are not in a process that was forked, and it waits for them
  without an end.
  """
  global _process
  _process = _process or os.getpid()
  if _process != os.getpid():
    raise RuntimeError(
      "this process was forked from one in which TensorFlow has computed, and "
      "would wait for its threads forever: start it with "
      'multiprocessing.get_context("spawn"), or use an export of --format=onnx'
    )


def weights_are_packed() -> bool:
  """Returns whether an operation may keep the first weights that it gets.

  Then each set of weights needs a tf.function of its own.
  """
  return os.environ.get(PACKS_WEIGHTS) == "1"


@contextlib.contextmanager
def delayed_interrupts() -> Iterator[None]:
  """Lets Ctrl-C raise KeyboardInterrupt only when the body has ended.

  Within the import of an extension module it would become an ImportError, which
  looks like a broken installation.
  """
  # Python lets only the main thread set handlers; another handler than Python's
  # own is somebody's who wants to know at once.
  interrupts: list[int] = []
  is_main = threading.current_thread() is threading.main_thread()
  handler = signal.getsignal(signal.SIGINT)
  if not is_main or handler is not signal.default_int_handler:
    yield
    return

  signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
  try:
    yield
  finally:
    signal.signal(signal.SIGINT, handler)
  if interrupts:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _hidden_unless_it_fails() -> Iterator[None]:
  """Hides what is written to standard error; shows it at an error."""
  # The lines come from C++ and go to the descriptor 2: replacing sys.stderr
  # would not catch them.
  with tempfile.TemporaryFile() as log:
    if sys.stderr:  # None if it was closed; then `dup` fails.
      sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(log.fileno(), 2)
    has_failed = True
    try:
      yield
      has_failed = False
    finally:
      os.dup2(stderr, 2)
      os.close(stderr)
      if has_failed:
        log.seek(0)
        os.write(2, log.read())


def load(package: str, use: str, install: str | None = None) -> Any:
  """Imports a package; an ImportError says what for, and the cure.

  Call it before any work: a program then ends before it, with one line.

  Args:
    package: its name at imports.
    use: what needs it: a flag, or kinds of files.
    install: what pip takes to install it, if that is not in the table.
  """
  try:
    return importlib.import_module(package)
  except ImportError as error:
    usual = f"-r requirements/{package}.txt"
    install = install or _REQUIREMENTS.get(package, usual)
    raise ImportError(
      f"{package} is needed for {use} ({error}): pip install {install}"
    ) from None
