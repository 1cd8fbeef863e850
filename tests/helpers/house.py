"""Measures the structure of a checkout: sizes, imports, reach.

  python tests/helpers/house.py [FOLDER ...]

prints one column a folder (by default this checkout), such as those of two git
worktrees. Imports are read from the source, those inside functions included.
"""

import ast
from collections.abc import Iterator
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A file imports its own folder and those to the right of it.
ORDER = ["contrib", "programs", "cli", "export", "tasks", "training", "inputs"]
ORDER += ["convert", "weights", "heads", "encoders", "vocabularies", "nouns"]
ORDER += ["data"]
NOUNS = ("modeling", "tokenization", "optimization")
# Programs of the root that are made of contrib/.
CONTRIB_PROGRAMS = ("run_multitask",)
REACHED = ("run_classifier", "create_vocab", "heads", "modeling")
# What a learner reads for one training step.
STEP_FILES = ("run_pretraining", "training/step", "modeling", "optimization")


def place_of(path: pathlib.Path) -> str:
  """Returns the place in ORDER, or "serving", of a path below the root."""
  if path.parent.name:
    return path.parts[0]
  if path.stem in NOUNS:
    return "nouns"
  if path.stem in CONTRIB_PROGRAMS:
    return "contrib"
  return "heads" if path.stem == "heads" else "programs"


def product_files(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
  """Returns the .py files that are neither tests nor benchmarks, relative."""
  others = {"tests", "benchmarks"}
  paths = (path.relative_to(root) for path in root.rglob("*.py"))
  return sorted(
    path
    for path in paths
    if path.parts[0] not in others
    and not any(part.startswith(".") for part in path.parts)
  )


def imports_of(
  path: pathlib.Path, root: pathlib.Path = ROOT
) -> Iterator[pathlib.Path]:
  """Yields the project's files that a file imports, once each."""
  found = set()
  for node in ast.walk(ast.parse((root / path).read_text(encoding="utf-8"))):
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      folder = (getattr(node, "module", None) or "").replace(".", "/")
      for name in (alias.name for alias in node.names):
        target = pathlib.Path(folder, f"{name.replace('.', '/')}.py")
        if (root / target).is_file() and target not in found:
          found.add(target)
          yield target


def reach(path: pathlib.Path, root: pathlib.Path = ROOT) -> set[pathlib.Path]:
  """Returns the file and all that it can import, directly or not."""
  reached, waiting = set(), [path]
  while waiting:
    path = waiting.pop()
    if path not in reached:
      reached.add(path)
      waiting += imports_of(path, root)
  return reached


def count_lines(paths, root: pathlib.Path = ROOT) -> int:
  """Counts the lines of files, as `wc -l` does."""
  return sum((root / path).read_bytes().count(b"\n") for path in paths)


def measure(root: pathlib.Path) -> dict[str, int]:
  """Returns the figures of a checkout, by name."""
  files = product_files(root)
  core = [p for p in files if p.parts[0] not in ("contrib", "examples")]
  tests = [path.relative_to(root) for path in (root / "tests").rglob("*.py")]
  graph = {path: set(imports_of(path, root)) for path in files}
  upward = [
    (path, target)
    for path, targets in graph.items()
    for target in targets
    if {place_of(path), place_of(target)} <= set(ORDER)
    and ORDER.index(place_of(path)) > ORDER.index(place_of(target))
  ]
  circular = [
    path
    for path, targets in graph.items()
    if any(path in reach(target, root) for target in targets)
  ]
  step = [pathlib.Path(f"{name}.py") for name in STEP_FILES]
  return {
    "product lines": count_lines(files, root),
    "product lines without contrib/ and examples/": count_lines(core, root),
    "lines of tests": count_lines(tests, root),
    **{
      f"files that {name}.py reaches": len(
        reach(pathlib.Path(f"{name}.py"), root)
      )
      for name in REACHED
    },
    "imports upward": len(upward),
    "files in circles": len(circular),
    "lines for one training step": count_lines(
      [path for path in step if (root / path).is_file()], root
    ),
    "files above 500 lines": sum(count_lines([p], root) > 500 for p in files),
    "files with more than 12 own imports": sum(
      len(targets) > 12 for targets in graph.values()
    ),
    "bytes of README.md": (root / "README.md").stat().st_size,
  }


if __name__ == "__main__":
  columns = [
    measure(pathlib.Path(folder).resolve()) for folder in sys.argv[1:] or [ROOT]
  ]
  for figure in columns[0]:
    print(f"{figure:46}", *(f"{column[figure]:>7,}" for column in columns))
