"""Functions applied in other processes; Python's own serve as examples."""

import pytest

from data import worker_processes
from data.worker_processes import Maker

# operator.methodcaller("split", ",") is the function text -> text.split(",").
SPLIT = Maker("operator", "methodcaller", ("split", ","))


@pytest.mark.parametrize("num_processes", [1, 3])
def test_results_are_in_the_order_of_the_tasks(num_processes):
  tasks = [f"{i},{i * i}" for i in range(50)]
  results = worker_processes.map_in_order(SPLIT, iter(tasks), num_processes)
  assert list(results) == [[str(i), str(i * i)] for i in range(50)]


def test_tasks_and_results_may_be_larger_than_pipes():
  tasks = [f"{i}," * 100_000 for i in range(8)]
  results = worker_processes.map_in_order(SPLIT, tasks, 2)
  for i, result in enumerate(results):
    assert result == [str(i)] * 100_000 + [""]


def test_tasks_are_read_only_a_little_ahead():
  read = []

  def read_tasks():
    for number in range(100):
      read.append(number)
      yield str(number)

  results = worker_processes.map_in_order(SPLIT, read_tasks(), 2)
  assert next(results) == ["0"]
  assert len(read) <= 4
  results.close()


@pytest.mark.parametrize("num_processes", [1, 2])
def test_errors_of_the_function_are_raised_here(num_processes):
  results = worker_processes.map_in_order(SPLIT, ["a,b", 3], num_processes)
  assert next(results) == ["a", "b"]
  with pytest.raises(AttributeError, match="split"):
    next(results)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_function_that_cannot_be_made_is_an_error(num_processes):
  maker = Maker("operator", "itemgetter", ())
  with pytest.raises(TypeError):
    list(worker_processes.map_in_order(maker, ["a"], num_processes))


def test_a_process_that_dies_is_an_error():
  dying = Maker("os", "_exit", (3,))
  with pytest.raises(OSError, match="a worker process died"):
    list(worker_processes.map_in_order(dying, ["a"], 2))
