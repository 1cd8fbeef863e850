"""Benchmarks: one calls private functions of the loop, one makes a table."""

import importlib.util
import math
import sys

import pytest

import paths


@pytest.fixture
def load(monkeypatch):
  """Imports a benchmark under a name that no package has."""
  folder = paths.ROOT / "benchmarks"
  monkeypatch.syspath_prepend(str(folder))

  def load(name):
    spec = importlib.util.spec_from_file_location(
      f"benchmark_{name}", folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module

  return load


@pytest.mark.slow
def test_an_update_of_fine_tuning(load):
  memory = load("memory")
  workload = memory.Workload("tiny", 2, 8, "float32", recompute=False)
  assert math.isfinite(memory.make_step(workload).run())


def test_a_table_of_curves(load):
  """Means and deviations of two seeds, at those steps that both have."""
  table = load("pretraining_curves").table
  runs = [{100: [7.0, 0.1, 0.5], 300: [5.0, 0.2, 0.5]}, {100: [6.0, 0.2, 0.7]}]
  assert list(table({"tiny": runs})) == [
    "| model | steps | masked-LM loss | its accuracy | next sentence |",
    "|---|---|---|---|---|",
    "| tiny | 100 | 6.50 ± 0.71 | 0.150 ± 0.071 | 0.600 ± 0.141 |",
  ]
