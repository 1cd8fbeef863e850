"""Functions applied in other processes; Python's own serve as examples."""

import functools
import operator
import subprocess
import sys
from unittest import mock

import loky
import pytest

from bert.data import worker_processes
import paths

# Makes the function text -> text.split(",").
MAKE_SPLIT = functools.partial(operator.methodcaller, "split", ",")


@pytest.mark.parametrize("num_processes", [1, 3])
def test_results_are_in_the_order_of_the_tasks(num_processes):
  tasks = [f"{i},{i * i}" for i in range(50)]
  results = worker_processes.map_in_order(
    MAKE_SPLIT, iter(tasks), num_processes
  )
  assert list(results) == [[str(i), str(i * i)] for i in range(50)]


def test_tasks_are_read_only_a_little_ahead():
  read = []

  def read_tasks():
    for number in range(100):
      read.append(number)
      yield str(number)

  results = worker_processes.map_in_order(MAKE_SPLIT, read_tasks(), 2)
  assert next(results) == ["0"]
  assert len(read) <= 4
  results.close()


@pytest.mark.parametrize(
  ("num_tasks", "started"), [(0, []), (2, [2]), (9, [5])]
)
def test_no_more_processes_than_tasks_or_cores(monkeypatch, num_tasks, started):
  class Pool:
    def __init__(self, num_processes, **_):
      sizes.append(num_processes)

    def submit(self, work, task):
      return mock.Mock(result=lambda: task.split(","))

    def shutdown(self, kill_workers):
      pass

  sizes = []
  monkeypatch.setattr(loky, "ProcessPoolExecutor", Pool)
  monkeypatch.setattr(loky, "cpu_count", lambda: 5)
  results = worker_processes.map_in_order(MAKE_SPLIT, ["a"] * num_tasks, 100000)
  assert list(results) == [["a"]] * num_tasks
  assert sizes == started


def test_workers_do_not_import_the_program():
  assert "pytest" in sys.modules
  make = functools.partial(functools.partial, eval)
  code = "sorted(__import__('sys').modules)"
  (modules,) = worker_processes.map_in_order(make, [code], 2)
  assert not {"pytest", "tensorflow"} & set(modules)


@pytest.mark.parametrize("num_processes", [1, 2])
@pytest.mark.parametrize(
  ("make", "error"),
  [
    (MAKE_SPLIT, AttributeError),
    (functools.partial(operator.itemgetter), TypeError),
  ],
)
def test_errors_of_the_function_are_raised_here(num_processes, make, error):
  with pytest.raises(error):
    list(worker_processes.map_in_order(make, [3], num_processes))


# In a process of its own, as users have it: one that had run thousands of tests
# and sent itself this signal died of a segmentation fault once, for a reason
# that 3,000 more trials did not show.
INTERRUPTED = """
import functools, operator, signal
import loky
from bert.data import worker_processes

submit = loky.ProcessPoolExecutor.submit

def interrupt(*arguments):
  signal.raise_signal(signal.SIGINT)
  future = submit(*arguments)
  print("submitted")
  return future

loky.ProcessPoolExecutor.submit = interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
  list(worker_processes.map_in_order(
    functools.partial(operator.methodcaller, "split", ","), ["a"], 2))
except KeyboardInterrupt:
  print("interrupted")
"""


def test_ctrl_c_waits_until_the_workers_are_started():
  done = subprocess.run(
    [sys.executable, "-c", INTERRUPTED],
    cwd=paths.ROOT,
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stdout, done.stderr) == (
    0,
    "submitted\ninterrupted\n",
    "",
  )
