"""Times updates of this checkout beside those of another one. Linux only.

  git worktree add /tmp/old main~20
  python benchmarks/versions.py --baseline=/tmp/old

BERT-Base, the model of run_classifier.py on 32 x 13 tokens (SST-2's average)
and that of run_pretraining.py on 16 x 128; and pre-training of the mini model
on 64 x 64. Each turn is five updates.
"""

import argparse
import functools
import importlib.util
import pathlib
import sys

import contest

SHAPES = {
  "finetuning": ("base", 32, 13),
  "pretraining": ("base", 16, 128),
  "mini": ("mini", 64, 64),
}
UPDATES = 5  # Of a turn.


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--baseline", help="root of the other checkout")
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--kinds", type=contest.split, default=list(SHAPES))
  parser.add_argument(
    "--precisions", type=contest.split, default=contest.PRECISIONS
  )
  arguments = parser.parse_args()
  if not arguments.baseline:
    print("skipped: no other checkout; pass --baseline")
    return
  roots = {"this checkout": str(contest.ROOT), "baseline": arguments.baseline}
  for kind in arguments.kinds:
    contestants = {
      name: contest.Contestant(
        functools.partial(make_updates, root), "tensorflow", {}
      )
      for name, root in roots.items()
    }
    for precision in arguments.precisions:
      group = kind, precision, contestants
      timings = contest.time_group(*group, kind, arguments.rounds)
      contest.print_table(*group, timings)


def make_updates(root: str, kind: str, precision: str) -> contest.Turn:
  """Makes a checkout's updates, as its own benchmarks do."""
  sys.path.insert(0, root)
  model, size, length = SHAPES[kind]
  if kind == "finetuning":
    memory = load_benchmark(root, "memory")
    workload = memory.Workload(model, size, length, precision, recompute=False)
    update = memory.make_step(workload).run
  else:
    training = load_benchmark(root, "training")
    config_file = str(contest.ROOT / "configs" / f"bert_{model}.json")
    workload = training.Workload(config_file, size, length, 20)
    update = training.prepare(f"{contest.OURS} {precision}", workload)
  return contest.Turn(
    lambda: [update() for _ in range(UPDATES)][-1], UPDATES * size
  )


def load_benchmark(root: str, name: str):
  """Imports a benchmark of a checkout; `training` is also a package."""
  path = pathlib.Path(root, "benchmarks", f"{name}.py")
  spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  return module


if __name__ == "__main__":
  main()
