"""Several runs in one process: their memory, threads, and runs within runs."""

import asyncio
from concurrent import futures
import gc
import json
import subprocess
import sys

import pytest
from tensorflow.python.framework import func_graph, ops

from bert import run_classifier, run_tagging
import paths
import program_flags
import tiny


@pytest.fixture(name="given")
def write_classifier(tmp_path):
  return tiny.classifier_flags(tmp_path)


@pytest.fixture(name="tagging")
def write_tagger(tmp_path):
  (tmp_path / "tags").mkdir()
  return program_flags.read_command(
    tiny.prepare("run_tagging", tmp_path / "tags")
  )


# Runs a program for each line of standard input, and prints the memory.
RUNS = """
import importlib, json, sys
for line in sys.stdin:
  program, flags = json.loads(line)
  importlib.import_module(f"bert.{program}").run(**flags)
  with open("/proc/self/status") as file:
    [used] = [l.split()[1] for l in file if l.startswith("VmRSS")]
  print("resident", int(used) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("case", ["mini", "programs"])
def test_runs_do_not_grow_by_more_than_50_mb(case, given, tagging, tmp_path):
  """Without `calls._kept_state`, each run of models/mini takes 160 MB more."""
  runs = [("run_classifier", given), ("run_tagging", tagging)] * 4
  if case == "mini":
    for name in ("bert_config_file", "vocab_file", "max_seq_length"):
      del given[name]
    runs = [("run_classifier", {**given, "model": "models/mini"})] * 8
  lines = [
    json.dumps([program, {**flags, "output_dir": str(tmp_path / f"out-{n}")}])
    for n, (program, flags) in enumerate(runs)
  ]
  output = subprocess.run(
    [sys.executable, "-c", RUNS],
    input="\n".join(lines),
    capture_output=True,
    text=True,
    check=True,
    cwd=paths.ROOT,
  ).stdout
  sizes = [
    int(line.split()[1])
    for line in output.splitlines()
    if line.startswith("resident ")
  ]
  assert len(sizes) == 8
  # The allocator takes and returns some tens of MB from run to run.
  assert max(sizes[2:]) < sizes[1] + 100
  assert (sizes[7] - sizes[1]) / 6 < 25, sizes


def count_graphs():
  """Counts the graphs of updates; earlier tests may have left some."""
  gc.collect()
  graphs = (o for o in gc.get_objects() if isinstance(o, func_graph.FuncGraph))
  return sum(g.name in ("train_steps", "forward_backward") for g in graphs)


def test_no_graph_of_a_run_remains(given):
  before, graphs = set(ops.gradient_registry.list()), count_graphs()
  run_classifier.run(**given)
  assert count_graphs() <= graphs
  assert set(ops.gradient_registry.list()) == before


@pytest.mark.slow
def test_two_threads_take_turns(given, tagging, tmp_path):
  """Each leaves the bytes of a run without the other one."""
  with futures.ThreadPoolExecutor() as pool:
    first = pool.submit(
      run_classifier.run, **{**given, "output_dir": tmp_path / "first"}
    )
    second = pool.submit(
      run_tagging.run, **{**tagging, "output_dir": tmp_path / "second"}
    )
  paths.assert_same(
    first.result().output_dir, run_classifier.run(**given).output_dir
  )
  paths.assert_same(
    second.result().output_dir, run_tagging.run(**tagging).output_dir
  )


@pytest.mark.slow
def test_a_run_within_a_run_and_within_a_loop_of_asyncio(
  given, tagging, tmp_path
):
  """Notebooks run cells in such a loop; `on_log` may call anything."""
  inner = []

  def log(values):
    if "eval/accuracy" in values and not inner:
      inner.append(run_tagging.run(**tagging))

  async def cell():
    return run_classifier.run(**given, on_log=log)

  outer = asyncio.run(cell())
  given |= {"output_dir": tmp_path / "alone"}
  paths.assert_same(outer.output_dir, run_classifier.run(**given).output_dir)
  tagging |= {"output_dir": tmp_path / "tags" / "alone"}
  paths.assert_same(inner[0].output_dir, run_tagging.run(**tagging).output_dir)


def test_flags_of_a_file(given, tmp_path):
  """What the file says wins over `do_eval` by default."""
  path = tmp_path / "flags.txt"
  path.write_text("--num_train_epochs=1\n--do_eval=false\n")
  del given["num_train_epochs"], given["do_eval"]
  result = run_classifier.run(**given, flagfile=path)
  assert (result.scores, result.history[-1]["step"]) == ({}, 3)
