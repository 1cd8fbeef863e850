"""The structure of the source: places, imports, and lines of code.

Imports are read from the source, those inside functions included;
benchmarks/structure.py makes a report of it.
"""

import ast
from collections.abc import Iterator
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
  """Returns the .py files of ours that users run or import, relative."""
  # Not all files below the root: users keep projects of their own there.
  paths = [*root.glob("*.py")]
  for folder in ("bert", "docs", "examples"):
    paths += (root / folder).rglob("*.py")
  return sorted(path.relative_to(root) for path in paths)


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
