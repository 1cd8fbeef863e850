"""Applies a function to tasks in several processes, results in order.

A process is started afresh and imports only the function's own module: not the
program, which may have imported TensorFlow, with its seconds, its memory and
its threads that no fork survives. The same file is what runs in them.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from concurrent import futures
import contextlib
import importlib
import os
import pickle
import queue
import subprocess
import sys
from typing import Any, NamedTuple

# Tasks handed out per process and not yet taken back: one to work on, one so
# that a slow one does not make the others wait.
_AHEAD = 2


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
  maker: Maker, tasks: Iterable[Any], num_processes: int
) -> Iterator[Any]:
  """Yields the results of the tasks, in their order.

  Args:
    maker: of the function, whose outcome may depend on nothing but the task.
    tasks: read as they are needed.
    num_processes: 1 works in this process.

  Raises:
    OSError: a process died.
    Exception: what the function raised.
  """
  if num_processes == 1:
    yield from map(maker.make(), tasks)
    return
  with contextlib.ExitStack() as stack:
    idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
    for _ in range(num_processes):
      idle.put(stack.enter_context(_Process(maker)))
    # A thread waits for each process; it needs no CPU of its own.
    pool = stack.enter_context(futures.ThreadPoolExecutor(num_processes))

    def work(task):
      process = idle.get()
      try:
        return process.call(task)
      finally:
        idle.put(process)

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


class _Process:
  """A process that answers one task at a time."""

  def __init__(self, maker: Maker):
    self._process = subprocess.Popen(
      [sys.executable, os.path.abspath(__file__)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      # Ctrl-C is for the parent; at its end the pipe ends, and so does this.
      start_new_session=True,
    )
    with contextlib.suppress(OSError):  # If it is dead, `call` says so.
      self._send(maker)

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._process.kill()
    self._process.communicate()

  def _send(self, message):
    pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
    self._process.stdin.flush()

  def call(self, task):
    try:
      self._send(task)
      is_good, result = pickle.load(self._process.stdout)
    except (OSError, EOFError, pickle.UnpicklingError):
      raise OSError(
        "a worker process died, probably for want of memory: lower "
        "--num_processes"
      ) from None
    if not is_good:
      raise result
    return result


def serve() -> None:
  """Answers tasks from standard input until it ends."""
  source, target = sys.stdin.buffer, sys.stdout.buffer
  sys.stdout = sys.stderr  # What is printed must not get among the results.
  function = None
  while True:
    try:
      message = pickle.load(source)
    except EOFError:
      return
    try:
      if function is None:
        function = message.make()
        continue
      result = True, function(message)
    except Exception as error:  # Raised again where it can be reported.
      result = False, error
    pickle.dump(result, target, pickle.HIGHEST_PROTOCOL)
    target.flush()


if __name__ == "__main__":
  # Pickles name the class by its module, not by __main__.
  importlib.import_module("worker_processes").serve()
