"""Runs a program that trains from Python, as its command line would.

  from bert import run_classifier

  result = run_classifier.run(
    train_file="tickets.csv", model="models/mini", eval_share=0.1,
    output_dir="tickets",
  )

The arguments are the flags. `main` of the program reads them as it reads those
of a command line, so there is one way: the same settings, checks and folders.
Only the end differs: what a program prints as an error is raised.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import contextvars
import csv
import gc
import inspect
import os
import pathlib
import random
import re
import signal
import threading
from typing import Any

import numpy as np

from bert import results
from bert.cli import program, shared_flags, typed_flags
from bert.data import (
  data_rows,
  file_search,
  files,
  imports,
  messages,
  progress,
)

# Data from memory, and the flag of the file that is made of them.
_FROM_MEMORY = {
  "train_data": "train_file",
  "eval_data": "eval_file",
  "predict_data": "predict_file",
}
# Initial weights come from random states that the whole process has, so runs
# take turns. One that `on_log` starts belongs to the run that calls it.
_TURN = threading.RLock()
# What a run does by default: what it has data for.
_WORK = {
  "do_train": ("train_file", "data_dir", "input_file", "tasks_file"),
  "do_eval": (
    "eval_file",
    "eval_share",
    "data_dir",
    "eval_input_file",
    "tasks_file",
  ),
  "do_predict": ("predict_file",),
}


def make_run(
  main: Callable[[], Any],
  settings_class: type[typed_flags.Settings],
  **defaults: Any,
) -> Callable[..., results.Result]:
  """Makes the function that runs a program from Python.

  Args:
    main: of the program; reads its settings by `settings_class.read`.
    settings_class: the settings, which are the arguments of the function.
    **defaults: flags that a command line must give, and a call need not.
  """

  def run(*, on_log: Callable[[dict[str, float]], Any] | None = None, **flags):
    if on_log is not None and not callable(on_log):
      raise TypeError(f"on_log is {type(on_log).__name__}, expected a function")
    given = {**defaults, **{k: v for k, v in flags.items() if v is not None}}
    return _run(main, settings_class, given, on_log)

  run.__doc__ = _describe(main.__module__, settings_class)
  run.__module__ = main.__module__
  run.__signature__ = _make_signature(settings_class, defaults)  # pyright: ignore
  return run


def _make_signature(settings_class, defaults) -> inspect.Signature:
  """Returns the flags as arguments, which editors then complete."""
  flags = settings_class.flags_by_name()
  named = {name: flag.default for name, flag in flags.items()}
  named |= dict.fromkeys(_data_arguments(settings_class))
  named |= {"on_log": None, **defaults}

  # A call must give what a command line must, but for the defaults here.
  nothing = inspect.Parameter.empty
  by_name = inspect.Parameter.KEYWORD_ONLY
  parameters = [
    inspect.Parameter(
      name,
      by_name,
      default=nothing if default is typed_flags.REQUIRED else default,
    )
    for name, default in named.items()
  ]
  return inspect.Signature(parameters, return_annotation=results.Result)


def _describe(name, settings_class) -> str:
  """Returns the docstring of a `run`."""
  # Only some programs take rows from memory.
  from_memory = ""
  if names := _data_arguments(settings_class):
    from_memory = (
      f"\n{', '.join(names)}: rows in memory instead of files: a list of\n"
      "dicts, a pandas DataFrame or a datasets.Dataset. They are written to\n"
      "output_dir, and read from there.\n"
    )

  introduction = (
    f"Runs {name.rpartition('.')[2]}.py with these flags.\n\n"
    "do_train, do_eval and do_predict are true where their data are given.\n"
    "None stands for a flag that is not given.\n"
    f"{from_memory}\n"
    "on_log: a function that gets what TensorBoard gets, a dict: step, loss\n"
    "and so on.\n\n"
    "If another thread has a run, this one waits until that one has ended.\n\n"
    "Returns a `bert.results.Result`. Raises a ValueError or TypeError if\n"
    "an argument is wrong, and KeyboardInterrupt after Ctrl-C, when a\n"
    "checkpoint is saved: the same call then continues."
  )
  return typed_flags.describe_flags(settings_class, True, introduction)


def _data_arguments(settings_class) -> dict[str, str]:
  """Returns the arguments of data from memory, and the flags of their files."""
  flags = settings_class.flags_by_name()
  return {n: flag for n, flag in _FROM_MEMORY.items() if flag in flags}


def _run(main, settings_class, given: dict[str, Any], on_log) -> results.Result:
  """Runs a program with the flags given, among them data from memory."""
  data = {
    name: given.pop(name)
    for name in _data_arguments(settings_class)
    if name in given
  }
  for name in data:
    flag = _FROM_MEMORY[name]
    if flag in given:
      raise ValueError(f"{name} and {flag}: pass only one")
    # The name will be another one; wrong flags are found before it is known.
    given[flag] = f"{name}.jsonl"
  given = {**_find_work(settings_class, given), **given}
  _check_values(settings_class, given)
  values = typed_flags.parse_values(settings_class, given)
  typed_flags.check_missing(settings_class, values)
  output_dir = str(values["output_dir"].value)

  # Before `_TURN`: a fork may have left it to a thread that is not here.
  imports.check_process()
  with contextlib.ExitStack() as stack:
    stack.enter_context(_TURN)
    if data:
      written = stack.enter_context(_written(output_dir, data))
      values = typed_flags.parse_values(settings_class, {**given, **written})

    name = f"{main.__module__.rpartition('.')[2]}.py"
    stack.enter_context(_set(typed_flags.VALUES, values))
    stack.enter_context(_set(program.CALLED, name))
    stack.enter_context(_errors_for_python())
    # Before the import of what trains: wrong flags are found at once.
    settings_class.read().check()

    from bert.training import reporting

    stack.enter_context(_set(reporting.ON_LOG, on_log))
    stack.enter_context(_kept_state())
    before = results.list_files(output_dir)
    main()
    return results.Result(
      output_dir,
      results.read_scores(output_dir, before),
      not issubclass(settings_class, shared_flags.FineTuningSettings),
    )


def _find_work(settings_class, given) -> dict[str, bool]:
  """Returns do_train, do_eval and do_predict where their data are given.

  They come first on the command line: what the call or --flagfile says wins.
  """
  flags = settings_class.flags_by_name()
  return {
    name: True
    for name, sources in _WORK.items()
    if name in flags and any(given.get(source) for source in sources)
  }


def _check_values(settings_class, given: Mapping[str, Any]) -> None:
  """Raises an error for values that a command line cannot spell."""
  known = (str, int, float, os.PathLike, np.generic)
  # A wrong name is the graver mistake: it is found when they are parsed.
  for name in given.keys() & settings_class.flags_by_name().keys():
    value = given[name]
    elements = value if isinstance(value, (list, tuple)) else [value]
    for element in elements:
      if not isinstance(element, known):
        raise TypeError(
          f"{name} is {type(element).__name__}, expected text, a number, a "
          "bool, a path, or a list of these"
        )


@contextlib.contextmanager
def _written(folder: str, data: Mapping[str, Any]) -> Iterator[dict[str, str]]:
  """Writes data to the output folder; gives the flags of their files.

  A run that fails before it has written anything else leaves none of them.
  """
  if os.path.isfile(folder):
    raise ValueError(f"--output_dir={folder}: a file; expected a folder")

  # The folders that this makes, and what was in the last one.
  parents = [pathlib.Path(folder), *pathlib.Path(folder).parents]
  made = [path for path in parents if not path.exists()]
  before = set(file_search.list_folder(folder))

  new = set()
  flags = {}
  try:
    for name, rows in data.items():
      path, is_new = data_rows.write(folder, name, rows)
      flags[_FROM_MEMORY[name]] = path
      if is_new:
        new.add(os.path.basename(path))
    yield flags
  except Exception as error:
    # Has the run written anything? Then the data belong to it, and stay.
    if set(file_search.list_folder(folder)) <= before | new:
      for name in new:
        files.remove(os.path.join(folder, name))
      with contextlib.suppress(OSError):  # It is not empty, or remote.
        for path in made:
          path.rmdir()

    if isinstance(error, ValueError):
      raise ValueError(_name_rows(str(error), flags)) from error
    raise


def _name_rows(text: str, flags: Mapping[str, str]) -> str:
  """Names rows in memory where a message has lines of the files made of them.

  >>> _name_rows("out/t.jsonl:3: no key", {"train_file": "out/t.jsonl"})
  'train_data[2]: no key'
  """
  for name, flag in _FROM_MEMORY.items():
    if flag in flags:
      path = re.escape(flags[flag])
      text = re.sub(
        rf"{path}:(\d+)", lambda m, n=name: f"{n}[{int(m[1]) - 1}]", text
      )
      text = text.replace(flags[flag], name)
  return text


@contextlib.contextmanager
def _set(variable: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
  """Gives a context variable a value while the body runs."""
  token = variable.set(value)
  try:
    yield
  finally:
    variable.reset(token)


@contextlib.contextmanager
def _errors_for_python() -> Iterator[None]:
  """Raises what a program would print, in the types that Python has for it."""
  try:
    yield
  except SystemExit as end:
    # The training's own exit, `loop.Stopped`, has the signal that ended it. Any
    # other one comes from a function of the caller, such as `on_log`.
    number = getattr(end, "signal_number", None)
    if number is None:
      raise

    # From here on the caller's own handler takes the signal.
    if number == signal.SIGINT:
      raise KeyboardInterrupt from None
    signal.raise_signal(number)
    raise
  except OSError as error:
    # A path that a flag names is a wrong value; a full disk is not.
    line = program.describe_error(error)
    if not line.startswith("--"):
      raise
    raise ValueError(line) from error
  except Exception as error:
    # TensorFlow has an exception of its own for a lack of memory.
    shortage = messages.describe_shortage(error)
    if shortage is None or isinstance(error, MemoryError):
      raise
    raise MemoryError(shortage) from error


@contextlib.contextmanager
def _kept_state() -> Iterator[None]:
  """Restores what a training sets for the whole process.

  On GPUs, the determinism of operations stays on: TensorFlow has no way back.
  """
  from keras.src.backend.common import global_state
  import tensorflow as tf
  from tensorflow.python.eager import context
  from tensorflow.python.framework import ops

  # Each would change the numbers of a run, or the names of its variables.
  is_within_other = tf.distribute.has_strategy() or tf.get_current_name_scope()
  if is_within_other or not tf.executing_eagerly():
    raise ValueError(
      "called within a tf.function, a graph, a scope of tf.distribute or a "
      "name scope: call it outside of them"
    )

  # Neither library has a public way to read its seeds.
  tf_random = context.context()
  tf_seeds = {n: getattr(tf_random, n, None) for n in ("_seed", "_rng")}
  keras_seeds = {
    name: global_state.get_global_attribute(name)
    for name in ("global_random_seed", "global_seed_generator")
  }

  # What a training seeds, silences, switches and registers beside them.
  python, numpy = random.getstate(), np.random.get_state()
  longest_cell = csv.field_size_limit()
  level = tf.get_logger().level
  tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
  gradients = set(ops.gradient_registry.list())
  try:
    yield
  finally:
    progress.clear()  # An error in the middle leaves the line of a terminal.

    random.setstate(python)
    np.random.set_state(numpy)
    csv.field_size_limit(longest_cell)
    for name, value in tf_seeds.items():
      setattr(tf_random, name, value)
    for name, value in keras_seeds.items():
      global_state.set_global_attribute(name, value)

    tf.get_logger().setLevel(level)
    tf.config.experimental.enable_tensor_float_32_execution(tf32)

    # TensorFlow keeps the gradients of each traced `tf.custom_gradient`, and so
    # all graphs of the run, for ever: 160 MB of models/mini.
    for name in set(ops.gradient_registry.list()) - gradients:
      if name.startswith("CustomGradient-"):
        del ops.gradient_registry._registry[name]

    # The graphs also refer to themselves: without this, the next run would need
    # memory for both.
    gc.collect()
