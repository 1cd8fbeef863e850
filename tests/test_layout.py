"""The house rules that a machine can check: walls, flags and sizes."""

import ast
import pathlib
import subprocess
import sys

import pytest

import paths

# A file imports its own folder and what stands to the right of it here. Apart
# from it stands `serving`, which answers without the code that trains.
ORDER = "programs cli export tasks inputs training weights heads".split()
ORDER += ["encoders", "nouns", "data"]
NOUNS = ("modeling", "tokenization", "optimization")
TASKS = ("classification", "squad", "tagging", "multiple_choice", "masked")
SOURCES = sorted(
  path.relative_to(paths.ROOT)
  for folder in (*ORDER[1:], "serving", ".")
  for path in (paths.ROOT / folder).glob("*.py")
)


def place_of(path: pathlib.Path) -> str:
  """Returns the folder of a file; of one in the root, what it is."""
  if path.parent.name:
    return path.parent.name
  if path.stem in NOUNS:
    return "nouns"
  return path.stem if path.stem in ORDER else "programs"


def task_of(path: pathlib.Path) -> str | None:
  """Returns the task that a file of tasks/ is of; None: of all of them."""
  stem = path.stem.replace("glue", "classification")  # Its tables of tasks.
  return next(filter(stem.startswith, TASKS), None)


def parse(path: pathlib.Path) -> ast.Module:
  return ast.parse((paths.ROOT / path).read_text(encoding="utf-8"))


def imports(path: pathlib.Path) -> set[str]:
  """Returns what a file imports: modules of ours as paths, others as names."""
  found = set()
  for node in ast.walk(parse(path)):
    if isinstance(node, ast.Import):
      found.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      found.update(f"{node.module}/{alias.name}" for alias in node.names)
  return found


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_imports_go_to_the_right(path):
  place = place_of(path)
  for name in imports(path):
    target = pathlib.Path(f"{name}.py")
    if target not in SOURCES:
      continue
    there = place_of(target)
    if place == "serving":
      allowed = there in ("serving", "data", "tasks") or name == "tokenization"
    elif there == "serving":
      allowed = place in ("programs", "export")
    elif there == place == "tasks":
      allowed = task_of(target) in (None, task_of(path))
    elif there == place:
      allowed = place not in ("programs", "nouns")
    else:
      allowed = ORDER.index(place) < ORDER.index(there)
    assert allowed, f"{path} imports {target}"


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_libraries_see_no_flags(path):
  if place_of(path) not in ("programs", "cli"):
    assert not {"absl/flags", "absl/app", "argparse"} & imports(path)


# What needs Beam, which is optional, and what computes with TensorFlow.
HEAVY = ("pretraining_pipeline", "signature_loader", "tensorflow_engine")


def test_what_works_without_tensorflow_does_not_load_it():
  light = [p for p in SOURCES if p.parent.name in ("data", "serving")]
  light = [p for p in light if p.stem not in HEAVY]
  names = [".".join(path.with_suffix("").parts) for path in light]
  code = f"import sys, bert, tokenization, {', '.join(names)}; "
  code += "sys.exit('tensorflow' in sys.modules)"
  subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_files_and_functions_stay_small(path):
  lines = (paths.ROOT / path).read_text(encoding="utf-8").splitlines()
  assert len(lines) <= (350 if place_of(path) == "programs" else 700)
  for node in ast.walk(parse(path)):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      assert node.end_lineno - node.lineno < 60, node.name


def test_no_large_file_is_tracked():
  listing = subprocess.run(
    ["git", "ls-files", "-z"], cwd=paths.ROOT, capture_output=True, check=True
  )
  tracked = listing.stdout.decode().split("\0")[:-1]
  large = [n for n in tracked if (paths.ROOT / n).stat().st_size > 200_000]
  assert not large
