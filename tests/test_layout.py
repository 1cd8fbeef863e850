"""The house rules that a machine can check: floors, flags and sizes."""

import ast
import subprocess

import pytest

import paths

# A file may import the floors below its own; on floors 1 and 2, its neighbours.
# Floor 0 imports no sibling; a program (floor 3) is imported by nobody.
FLOORS = {
  "modeling.py": 0,
  "optimization.py": 0,
  "tokenization.py": 0,
  "heads.py": 1,
  "convert_checkpoint.py": 3,
  "create_pretraining_data.py": 3,
  "create_pretraining_data_beam.py": 3,
  "create_vocab.py": 3,
  "export_saved_model.py": 3,
  "extract_features.py": 3,
  "fill_mask.py": 3,
  "predict.py": 3,
  "run_classifier.py": 3,
  "run_multiple_choice.py": 3,
  "run_pretraining.py": 3,
  "run_squad.py": 3,
  "run_tagging.py": 3,
}
PROGRAM = 3
SOURCES = sorted(path.name for path in paths.ROOT.glob("*.py"))


def parse(name: str) -> ast.Module:
  return ast.parse((paths.ROOT / name).read_text(encoding="utf-8"))


def imports(name: str) -> set[str]:
  found = set()
  for node in ast.walk(parse(name)):
    if isinstance(node, ast.Import):
      found.update(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      found.add(node.module or "")
  return found


def functions(name: str) -> list[tuple[str, int]]:
  return [
    (node.name, node.end_lineno - node.lineno + 1)
    for node in ast.walk(parse(name))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
  ]


def test_every_source_file_has_a_floor():
  assert SOURCES == sorted(FLOORS)


@pytest.mark.parametrize("name", SOURCES)
def test_imports_go_down_the_floors(name):
  siblings = {f"{found}.py" for found in imports(name)} & set(FLOORS)
  allowed = FLOORS[name] if FLOORS[name] in (1, 2) else FLOORS[name] - 1
  assert not [sibling for sibling in siblings if FLOORS[sibling] > allowed]


@pytest.mark.parametrize("name", SOURCES)
def test_libraries_see_no_flags(name):
  if FLOORS[name] < FLOORS["cli/common_flags.py"]:
    text = (paths.ROOT / name).read_text(encoding="utf-8")
    assert "FLAGS" not in text
    assert not {"absl", "absl.flags", "argparse"} & imports(name)


@pytest.mark.parametrize("name", SOURCES)
def test_files_and_functions_stay_small(name):
  lines = len((paths.ROOT / name).read_text(encoding="utf-8").splitlines())
  assert lines <= (200 if FLOORS[name] == PROGRAM else 700)
  for function, length in functions(name):
    assert length <= (40 if function == "main" else 60), function


@pytest.mark.parametrize("name", SOURCES)
def test_readme_names_every_source_file(name):
  assert name in (paths.ROOT / "README.md").read_text(encoding="utf-8")


def test_no_large_file_is_tracked():
  listing = subprocess.run(
    ["git", "ls-files", "-z"], cwd=paths.ROOT, capture_output=True, check=True
  )
  tracked = listing.stdout.decode().split("\0")[:-1]
  large = [n for n in tracked if (paths.ROOT / n).stat().st_size > 200_000]
  assert not large
