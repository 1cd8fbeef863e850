"""The house rules that a machine can check: walls, flags and sizes."""

import ast
import subprocess
import sys
import textwrap

import pytest

import house
import paths

FILES = [p for p in house.product_files() if p.parts[0] != "examples"]
# Files that open one to write to it, each under a temporary name, and those to
# which they hand an open file.
WRITERS = {
  "bert/data/atomic.py",  # Makes the temporary names.
  "bert/data/files.py",  # `open_for_writing`, for those that have one.
  "bert/data/vector_index.py",  # Appends to the part of an index.
  "bert/inputs/feature_files.py",  # In `replace_all_on_success`.
  "bert/export/onnx_graph.py",  # In a folder that gets its name at the end.
}
# Files that need Beam, which is optional, or compute with TensorFlow.
HEAVY = ("pretraining_pipeline", "tensorflow_engine")


def task_of(path):
  return path.stem.split("_")[0]


def may_import(path, target):
  here, there = house.place_of(path), house.place_of(target)
  if here == "serving":  # It answers without the code that trains.
    light = there in ("serving", "data", "report", "tasks", "vocabularies")
    return light or target.stem == "tokenization"
  if there == "serving":
    return here in ("programs", "export", "contrib")
  if there == "convert" and here not in ("convert", "contrib"):
    return str(path) in ("bert/cli/model_folder.py", "convert_checkpoint.py")
  if here != there:
    return house.ORDER.index(here) < house.ORDER.index(there)
  if here == "tasks":  # A task imports no other task.
    return task_of(target) == task_of(path)
  return here not in ("programs", "nouns") or target.stem in (
    "__init__",
    "calls",
    "loading",
    "results",
    "model",
    "searching",
  )


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_keeps_the_house_rules(path):
  text = (paths.ROOT / path).read_text(encoding="utf-8")
  place = house.place_of(path)
  is_program = len(path.parts) == 1 and place in ("programs", "contrib")
  code = house.lines_of_code(text)
  assert len(code) <= (260 if is_program else 380), "lines of code in the file"
  targets = list(house.imports_of(path))
  counted = [t for t in targets if not house.holds_only_records(t)]
  assert len(counted) <= 14, "files of this project that it imports"
  wrong = [target for target in targets if not may_import(path, target)]
  assert not wrong, "imports that the order of the folders forbids"
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      body = code.intersection(range(node.lineno, node.end_lineno + 1))
      assert len(body) <= 45, f"lines of code in {node.name}"
    if place not in ("contrib", "programs", "cli"):
      found = imported_packages(node) & {"absl", "argparse"}
      assert not found, "only programs and bert/cli read flags"
    assert not reads_flags(node) or str(path) in FLAG_READERS
    assert not opens_to_write(node) or str(path) in WRITERS


def imported_packages(node):
  """Names the packages that a statement imports, of any spelling."""
  if isinstance(node, ast.ImportFrom):
    return {(node.module or "").partition(".")[0]}
  names = node.names if isinstance(node, ast.Import) else []
  return {alias.name.partition(".")[0] for alias in names}


# They parse the flags; the name of a program's settings stands for their
# values. An error asks whether there are several workers.
FLAG_READERS = ("bert/cli/typed_flags.py", "bert/cli/program.py")


def reads_flags(node):
  """Returns whether this is the name FLAGS, of whatever object."""
  return "FLAGS" in (getattr(node, "attr", ""), getattr(node, "id", ""))


def opens_to_write(node):
  """Returns whether this is a call of open() with a mode such as "wb"."""
  if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "open":
    return False
  modes = node.args[1:2] + [k.value for k in node.keywords if k.arg == "mode"]
  return any(set("wxa+") & {*getattr(mode, "value", "")} for mode in modes)


@pytest.mark.parametrize(
  ("line", "expected"),
  [
    ("from absl import app, flags", {"absl"}),
    ("import absl.flags", {"absl"}),
    ("import argparse, json", {"argparse", "json"}),
    ("from . import flags", {""}),
  ],
)
def test_packages_are_found_in_every_spelling(line, expected):
  assert imported_packages(ast.parse(line).body[0]) == expected


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ('open(path, "wb")', True),
    ('open(path, mode="x")', True),
    ('open(path, "r+b", buffering=0)', True),
    ('open(path, "rb")', False),
    ("open(path)", False),
    ('files.open(path, "w")', False),
  ],
)
def test_files_that_are_opened_to_write_are_found(text, expected):
  assert opens_to_write(ast.parse(text).body[0].value) == expected


def test_explanations_do_not_count_as_lines_of_code():
  text = """\
  '''Says what it holds.

  In two lines.
  '''

  # A reason.
  def f(x):
    '''Returns it.'''
    y = '''one
    two'''

    return x  # A comment beside code.
  """
  assert house.lines_of_code(textwrap.dedent(text)) == {7, 9, 10, 12}


def test_a_checkout_is_measured_without_the_files_that_it_lacks(
  tmp_path, load_benchmark
):
  structure = load_benchmark("structure")
  for path in (*structure.REACHED, "README.md"):
    (tmp_path / path).write_text("pass\n")  # One line of code in each file.
  figures = structure.measure(tmp_path)
  assert figures["product lines"] == len(structure.REACHED)
  assert figures["lines for one training step"] == 1  # modeling.py's line.


def test_what_works_without_tensorflow_does_not_load_it():
  folders = ("data", "report", "serving", "vocabularies")
  light = [p for p in FILES if p.parent.name in folders]
  names = [str(p)[:-3].replace("/", ".") for p in light if p.stem not in HEAVY]
  names += ["bert.tasks.classification_tasks", "bert.tasks.squad_features"]
  names += ["bert.tasks.multiple_choice", "bert.cli.model_folder"]
  results = (p for p in FILES if p.match("tasks/*_results.py"))
  names += [f"bert.tasks.{p.stem}" for p in results]
  code = f"import sys, bert, tokenization, {', '.join(names)}; "
  code += "sys.exit(bool({'huggingface_hub', 'tensorflow'} & {*sys.modules}))"
  subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)


def test_no_large_file_is_tracked():
  listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=paths.ROOT)
  tracked = map(paths.ROOT.joinpath, listing.decode().split("\0")[:-1])
  large = [path for path in tracked if path.stat().st_size > 200_000]
  assert all(path.parent == paths.ROOT / "models" / "mini" for path in large)
