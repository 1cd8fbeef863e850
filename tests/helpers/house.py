"""Measures the structure of a checkout: sizes, imports, reach.

  python tests/helpers/house.py [FOLDER ...]
  python tests/helpers/house.py --reached run_classifier.py

The first prints one column a folder (by default this checkout), such as those
of two git worktrees, the second lists what a program can import. Imports are
read from the source, those inside functions included.
"""

import argparse
import ast
from collections.abc import Iterable, Iterator
import io
import pathlib
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A file imports its own folder and those to the right of it.
ORDER = ["contrib", "programs", "cli", "export", "tasks", "training", "inputs"]
ORDER += ["convert", "weights", "heads", "encoders", "vocabularies", "nouns"]
ORDER += ["report", "data"]
NOUNS = ("modeling", "tokenization", "optimization")
# Files that are made of programs or of contrib/, and stand elsewhere.
CONTRIB_FILES = ("run_distillation.py", "run_multitask.py", "bert/sklearn.py")
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


def place_of(path: pathlib.Path) -> str:
  """Returns the place in ORDER, or "serving", of a path below the root."""
  if path.as_posix() in CONTRIB_FILES:
    return "contrib"
  if path.parts[0] == "bert":
    # bert/model.py answers from Python as predict.py does from the shell.
    return path.parts[1] if len(path.parts) > 2 else "programs"
  if path.parent.name:
    return path.parts[0]
  if path.stem in NOUNS:
    return "nouns"
  return "heads" if path.stem == "heads" else "programs"


def product_files(root: pathlib.Path = ROOT) -> list[pathlib.Path]:
  """Returns the .py files that users run or import, relative."""
  others = {"tests", "benchmarks", "requirements"}
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
      module = getattr(node, "module", None) or ""
      for alias in node.names:
        target = _find_module(f"{module}.{alias.name}".lstrip("."), root)
        if target and target not in found:
          found.add(target)
          yield target


def _find_module(name: str, root: pathlib.Path) -> pathlib.Path | None:
  """Returns the file of a module of this project; None of another."""
  path = pathlib.Path(name.replace(".", "/"))
  choices = [path.with_suffix(".py"), path / "__init__.py"]
  if path.parts[0] == "bert" and len(path.parts) == 2:
    # The programs and the nouns of the root belong to the package.
    choices.append(pathlib.Path(f"{path.name}.py"))
  return next((p for p in choices if (root / p).is_file()), None)


def holds_only_records(path: pathlib.Path, root: pathlib.Path = ROOT) -> bool:
  """Returns whether a module only names fields: NamedTuples and constants.

  Whoever imports one depends on no behaviour by it.
  """
  kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
  body = ast.parse((root / path).read_text(encoding="utf-8")).body
  classes = [node for node in body if isinstance(node, ast.ClassDef)]
  others = [
    node for node in body if not isinstance(node, (*kinds, ast.ClassDef))
  ]
  has_methods = any(
    isinstance(node, ast.FunctionDef) for c in classes for node in c.body
  )
  return not others and not has_methods


def reach(path: pathlib.Path, root: pathlib.Path = ROOT) -> set[pathlib.Path]:
  """Returns the file and all that it can import, directly or not."""
  reached, waiting = set(), [path]
  while waiting:
    path = waiting.pop()
    if path not in reached:
      reached.add(path)
      waiting += imports_of(path, root)
  return reached


def count_lines(paths: Iterable[pathlib.Path], root: pathlib.Path) -> int:
  """Counts the lines of files, as `wc -l` does."""
  return sum((root / path).read_bytes().count(b"\n") for path in paths)


# What a line may hold besides the tokens that make it a line of code.
_NO_CODE = {
  tokenize.COMMENT,
  tokenize.NL,
  tokenize.NEWLINE,
  tokenize.INDENT,
  tokenize.DEDENT,
  tokenize.ENDMARKER,
}
_DOCUMENTED = (
  ast.Module,
  ast.ClassDef,
  ast.FunctionDef,
  ast.AsyncFunctionDef,
)


def lines_of_code(text: str) -> set[int]:
  """Returns the numbers of the lines that hold code, from 1.

  Explanation is free: docstrings, comments and blank lines do not count.
  """
  code = set()
  for token in tokenize.generate_tokens(io.StringIO(text).readline):
    if token.type not in _NO_CODE:
      code |= set(range(token.start[0], token.end[0] + 1))
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
      code -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
  return code


def count_code(paths: Iterable[pathlib.Path], root: pathlib.Path) -> int:
  """Counts the lines of code of files."""
  texts = ((root / path).read_text(encoding="utf-8") for path in paths)
  return sum(len(lines_of_code(text)) for text in texts)


def is_upward(path: pathlib.Path, target: pathlib.Path) -> bool:
  """Returns whether an import is against ORDER."""
  here, there = place_of(path), place_of(target)
  return {here, there} <= set(ORDER) and ORDER.index(here) > ORDER.index(there)


def measure(root: pathlib.Path) -> dict[str, int]:
  """Returns the figures of a checkout, by name."""
  files = product_files(root)
  core = [p for p in files if place_of(p) not in ("contrib", "examples")]
  tests = [path.relative_to(root) for path in (root / "tests").rglob("*.py")]
  graph = {path: set(imports_of(path, root)) for path in files}
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
