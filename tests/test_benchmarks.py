"""A benchmark still makes updates: it calls private functions of the loop."""

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
