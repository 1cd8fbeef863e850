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

  `make_function` is pickled and called once in each process, of which there are
  no more than tasks or cores; num_processes=1 is this process. If one dies, an
  OSError names the flags that save memory.
  """
  num_processes = min(num_processes, loky.cpu_count())
  if num_processes == 1:
    yield from map(make_function(), tasks)
    return
  tasks = iter(tasks)
  first = list(itertools.islice(tasks, num_processes))
  if not first:
    return
  # The pool starts all of its processes at once.
  num_processes, tasks = len(first), itertools.chain(first, tasks)
  pool = loky.ProcessPoolExecutor(
    num_processes, initializer=_start, initargs=(make_function, os.getpid())
  )
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
    pool.shutdown(kill_workers=True)


@contextlib.contextmanager
def _blocked_interrupt() -> Iterator[None]:
  """Delays Ctrl-C; processes that are started meanwhile never get it.

  One whose parent ends while it is started would print a traceback.
  """
  resource_tracker.ensure_running()  # Starting it would end the delay.
  mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _start(make_function, parent) -> None:
  global _get_function
  _get_function = functools.cache(make_function)  # Made at the first task.
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
