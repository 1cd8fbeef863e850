"""Measures the structure of a checkout: sizes, imports, reach.

  python benchmarks/structure.py [FOLDER ...]
  python benchmarks/structure.py --reached run_classifier.py

The first prints one column a folder (by default this checkout), such as those
of two git worktrees, the second lists what a program can import.
"""

import argparse
from collections.abc import Iterable
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))

import house

REACHED = [
  pathlib.Path(f"{name}.py")
  for name in ("run_classifier", "create_vocab", "heads", "modeling")
]
# What a learner reads for one training step.
STEP_FILES = [
  pathlib.Path(f"{name}.py")
  for name in (
    "run_pretraining",
    "bert/training/step",
    "modeling",
    "optimization",
  )
]


def reach(path: pathlib.Path, root: pathlib.Path = ROOT) -> set[pathlib.Path]:
  """Returns the file and all that it can import, directly or not."""
  reached, waiting = set(), [path]
  while waiting:
    path = waiting.pop()
    if path not in reached:
      reached.add(path)
      waiting += house.imports_of(path, root)
  return reached


def count_lines(paths: Iterable[pathlib.Path], root: pathlib.Path) -> int:
  """Counts the lines of files, as `wc -l` does."""
  return sum((root / path).read_bytes().count(b"\n") for path in paths)


def count_code(paths: Iterable[pathlib.Path], root: pathlib.Path) -> int:
  """Counts the lines of code of files."""
  texts = ((root / path).read_text(encoding="utf-8") for path in paths)
  return sum(len(house.lines_of_code(text)) for text in texts)


def is_upward(path: pathlib.Path, target: pathlib.Path) -> bool:
  """Returns whether an import is against `house.ORDER`."""
  here, there = house.place_of(path), house.place_of(target)
  return {here, there} <= set(house.ORDER) and house.ORDER.index(
    here
  ) > house.ORDER.index(there)


def measure(root: pathlib.Path) -> dict[str, int]:
  """Returns the figures of a checkout, by name."""
  files = house.product_files(root)
  core = [p for p in files if house.place_of(p) not in ("contrib", "examples")]
  tests = [path.relative_to(root) for path in (root / "tests").rglob("*.py")]
  graph = {path: set(house.imports_of(path, root)) for path in files}
  edges = [(path, target) for path in files for target in graph[path]]
  return {
    "product lines": count_lines(files, root),
    "lines of code": count_code(files, root),
    "lines of code without contrib/ and examples/": count_code(core, root),
    "lines of tests": count_lines(tests, root),
    **{f"files that {p} reaches": len(reach(p, root)) for p in REACHED},
    "imports upward": sum(is_upward(*edge) for edge in edges),
    "files in circles": len({p for p, to in edges if p in reach(to, root)}),
    # Older checkouts have other files.
    "lines for one training step": count_lines(
      [path for path in STEP_FILES if (root / path).is_file()], root
    ),
    "files above 380 lines of code": sum(
      count_code([p], root) > 380 for p in files
    ),
    "files with more than 14 own imports": sum(
      len(targets) > 14 for targets in graph.values()
    ),
    "bytes of README.md": (root / "README.md").stat().st_size,
  }


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("folders", nargs="*", type=pathlib.Path, default=[ROOT])
  parser.add_argument("--reached", metavar="PROGRAM", type=pathlib.Path)
  options = parser.parse_args()
  if options.reached:
    print(*sorted(reach(options.reached, options.folders[0])), sep="\n")
    return
  columns = [measure(folder) for folder in options.folders]
  rows = [
    [f"{figure:46}", *(f"{column[figure]:>7,}" for column in columns)]
    for figure in columns[0]
  ]
  print(*map(" ".join, rows), sep="\n")


if __name__ == "__main__":
  main()
