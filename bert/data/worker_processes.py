"""Applies a function to tasks in several processes, results in order.

A process of loky imports the module of the function only, not the program: that
one may have imported TensorFlow, which takes seconds and much memory.
"""

import collections
from collections.abc import Callable, Iterable, Iterator
import contextlib
import functools
import itertools
from multiprocessing import resource_tracker
import os
import signal
import threading
import time
from typing import Any

import loky

# Tasks of a process whose results are not yet taken: one to work on, and the
# next one, for which it then need not wait.
_AHEAD = 2

_get_function: Callable[[], Callable[[Any], Any]]  # In a worker process.


def map_in_order(
  make_function: Callable[[], Callable[[Any], Any]],
  tasks: Iterable[Any],
  num_processes: int,
  memory_flags: str = "--num_processes",
) -> Iterator[Any]:
  """Yields the results of the tasks, which are read as needed, in their order.

  Args:
    make_function: is pickled and called once in each process; returns what maps
      a task to its result.
    tasks: are pickled, one by one, not far ahead of the results.
    num_processes: there are no more processes than tasks or cores; 1 is this
      process.
    memory_flags: the flags that save memory, for the error.

  Raises:
    OSError: a process died.
  """
  num_processes = min(num_processes, loky.cpu_count())
  if num_processes == 1:
    yield from map(make_function(), tasks)
    return

  # The pool starts all of its processes at once: no more than it needs.
  tasks = iter(tasks)
  first_tasks = list(itertools.islice(tasks, num_processes))
  if not first_tasks:
    return
  num_processes = len(first_tasks)
  tasks = itertools.chain(first_tasks, tasks)
  pool = loky.ProcessPoolExecutor(
    num_processes, initializer=_start, initargs=(make_function, os.getpid())
  )

  # The oldest result is waited for, also if later ones are there: this keeps
  # the order, and bounds how many results are in memory.
  pending: collections.deque[loky.Future] = collections.deque()
  try:
    for task in tasks:
      with _blocked_interrupt():
        pending.append(pool.submit(_work, task))
      if len(pending) >= _AHEAD * num_processes:
        yield pending.popleft().result()
    while pending:
      yield pending.popleft().result()
  except loky.BrokenProcessPool:
    raise OSError(
      f"a worker process died, probably out of memory: lower {memory_flags}"
    ) from None
  finally:
    # The caller may stop early, by an error or Ctrl-C.
    pool.shutdown(kill_workers=True)


@contextlib.contextmanager
def _blocked_interrupt() -> Iterator[None]:
  """Delays Ctrl-C; processes that are started meanwhile never get it.

  One whose parent ends while it is started would print a traceback.
  """
  # The first process also starts this helper of multiprocessing, which would
  # end the delay: so it is started before.
  resource_tracker.ensure_running()
  mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(make_function, parent) -> None:
  """Prepares a worker process."""
  # The function is made at the first task, once: an error in making it is then
  # the error of a task, which reaches the caller.
  global _get_function
  _get_function = functools.cache(make_function)
  threading.Thread(
    target=_exit_after_parent, args=(parent,), daemon=True
  ).start()


def _work(task: Any) -> Any:
  return _get_function()(task)


def _exit_after_parent(parent: int) -> None:
  """Ends this process when its parent has ended, even by a kill."""
  while os.getppid() == parent:
    time.sleep(1)
  os._exit(1)
