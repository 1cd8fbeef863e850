"""Applies a function to tasks in several processes, results in order.

Each process starts anew and imports only the module of the function, not that
of the program, which may have imported TensorFlow: that takes seconds and much
memory, and its threads do not survive a fork.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import functools
import gc
import importlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from typing import Any, NamedTuple

# Tasks sent to a process whose results are not yet taken: one to work on, and
# the next one, for which it then need not wait.
_AHEAD = 2
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def serve_command(module: str) -> list[str]:
  """Returns the command that calls `serve` of a module of data/."""
  # The root replaces the working folder, where a file may be named as a module
  # of Python.
  code = f"import sys; sys.path[0] = {ROOT!r}; from data import {module}; "
  return [sys.executable, "-c", f"{code}{module}.serve()"]


class Maker(NamedTuple):
  """How to make the function in another process: by name, with arguments."""

  module: str
  name: str
  arguments: tuple[Any, ...]

  def make(self) -> Callable[[Any], Any]:
    """Makes the function here."""
    module = importlib.import_module(self.module)
    return getattr(module, self.name)(*self.arguments)


def map_in_order(
  maker: Maker,
  tasks: Iterable[Any],
  num_processes: int,
  memory_flags: str = "--num_processes",
) -> Iterator[Any]:
  """Yields the results of the tasks, in their order.

  Args:
    maker: of the function, whose outcome may depend on nothing but the task.
    tasks: read as they are needed.
    num_processes: 1 works in this process.
    memory_flags: what to lower if the memory is too small, for error messages.

  Raises:
    OSError: a process died.
    Exception: what the function raised.
  """
  if num_processes == 1:
    yield from map(maker.make(), tasks)
    return
  with contextlib.ExitStack() as stack:
    # Otherwise each garbage collection looks at all objects of the program,
    # among them TensorFlow's, which takes 0.2 s.
    gc.freeze()
    stack.callback(gc.unfreeze)
    processes = [
      stack.enter_context(_Process(maker, memory_flags))
      for _ in range(num_processes)
    ]
    ready: queue.SimpleQueue[_Process] = queue.SimpleQueue()
    for process in _AHEAD * processes:
      ready.put(process)
    # A thread waits for each task; it needs no CPU of its own.
    pool = futures.ThreadPoolExecutor(_AHEAD * num_processes)
    stack.enter_context(pool)

    def work(task):
      process = ready.get()
      try:
        return process.call(task)
      finally:
        ready.put(process)

    pending: collections.deque[futures.Future] = collections.deque()
    try:
      for task in tasks:
        pending.append(pool.submit(work, task))
        if len(pending) >= _AHEAD * num_processes:
          yield pending.popleft().result()
      while pending:
        yield pending.popleft().result()
    finally:
      for future in pending:
        future.cancel()
      # The threads of the pool wait for answers that nobody needs any more.
      for process in processes:
        process.kill()


class _Process:
  """A process that answers tasks in the order in which they are sent."""

  def __init__(self, maker: Maker, memory_flags: str):
    self._memory_flags = memory_flags
    self._process = subprocess.Popen(
      serve_command("worker_processes"),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      # Ctrl-C is for the parent; at its end the pipe ends, and so does this.
      start_new_session=True,
    )
    self._sending, self._receiving = threading.Lock(), threading.Lock()
    with contextlib.suppress(OSError):  # If it is dead, `call` says so.
      self._send(maker)

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self.kill()
    self._process.communicate()

  def kill(self):
    """Ends the process; calls that wait for it end in an error."""
    self._process.kill()

  def _send(self, message):
    pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
    self._process.stdin.flush()

  def call(self, task):
    """Sends a task, maybe while another is worked on; returns its result."""
    try:
      with self._sending:
        self._send(task)
        self._receiving.acquire()  # Before another task can be sent.
      try:
        is_good, result = pickle.load(self._process.stdout)
      finally:
        self._receiving.release()
    except (OSError, EOFError, pickle.UnpicklingError):
      raise OSError(
        "a worker process died, probably out of memory: lower "
        f"{self._memory_flags}"
      ) from None
    if not is_good:
      raise result
    return result


def serve() -> None:
  """Answers tasks from standard input until it ends."""
  source, target = sys.stdin.buffer, sys.stdout.buffer
  sys.stdout = sys.stderr  # What is printed must not get among the results.
  try:
    make = functools.cache(pickle.load(source).make)
    while True:
      answer = _answer(make, pickle.load(source))
      pickle.dump(answer, target, pickle.HIGHEST_PROTOCOL)
      del answer
      target.flush()
  except (EOFError, pickle.UnpicklingError):
    return
  except BrokenPipeError:
    os._exit(1)  # Whoever asked has ended: nothing is left to be flushed to.


def _answer(make, task):
  try:
    return True, make()(task)
  except Exception as error:  # Raised again where it can be reported.
    return False, error
