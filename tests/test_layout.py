"""The house rules that a machine can check: walls, flags and sizes."""

import ast
import pathlib
import subprocess
import sys

import pytest

import paths

# A file imports its own folder and what stands to the right of it here.
ORDER = ["programs", "cli", "export", "tasks", "inputs", "training", "weights"]
ORDER += ["heads", "encoders", "vocabularies", "nouns", "data"]
ROOT = dict.fromkeys(("modeling", "tokenization", "optimization"), "nouns")
ROOT["heads"] = "heads"
FOLDERS = [".", "serving", *ORDER[1:]]
FILES = [p for f in FOLDERS for p in sorted((paths.ROOT / f).glob("*.py"))]
FILES = [path.relative_to(paths.ROOT) for path in FILES]
# What needs Beam, which is optional, and what computes with TensorFlow.
HEAVY = ("pretraining_pipeline", "tensorflow_engine")


def place_of(path):
  return path.parent.name or ROOT.get(path.stem, "programs")


def task_of(path):
  return path.stem.replace("glue", "classification").split("_")[0]


def may_import(path, target):
  here, there = place_of(path), place_of(target)
  if (path.stem, target.stem) == ("modeling", "conversion"):
    return True  # BertModel.from_checkpoint, when it is called.
  if here == "serving":  # It answers without the code that trains.
    light = there in ("serving", "data", "tasks", "vocabularies")
    return light or target.stem == "tokenization"
  if there == "serving":
    return here in ("programs", "export")
  if here != there:
    return ORDER.index(here) < ORDER.index(there)
  if here == "tasks":  # Of one task, or of all.
    return task_of(target) in (task_of(path), "metrics", "plots")
  # One program is made of the others' recipes.
  is_multitask = path.name == "run_multitask.py"
  return is_multitask or here not in ("programs", "nouns")


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_keeps_the_house_rules(path):
  text = (paths.ROOT / path).read_text(encoding="utf-8")
  place = place_of(path)
  assert text.count("\n") <= (350 if place == "programs" else 700)
  for node in ast.walk(ast.parse(text)):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      assert node.end_lineno - node.lineno < 60, node.name
    if isinstance(node, (ast.Import, ast.ImportFrom)):
      folder = getattr(node, "module", None) or ""
      for name in (alias.name for alias in node.names):
        target = pathlib.Path(folder, f"{name}.py")
        assert target not in FILES or may_import(path, target), target
        reads_flags = (folder, name) in (("absl", "flags"), ("", "argparse"))
        assert place in ("programs", "cli") or not reads_flags


def test_what_works_without_tensorflow_does_not_load_it():
  light = [
    p for p in FILES if p.parent.name in ("data", "serving", "vocabularies")
  ]
  names = [str(p)[:-3].replace("/", ".") for p in light if p.stem not in HEAVY]
  code = f"import sys, bert, tokenization, {', '.join(names)}; "
  code += "sys.exit('tensorflow' in sys.modules)"
  subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)


def test_no_large_file_is_tracked():
  listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=paths.ROOT)
  tracked = map(paths.ROOT.joinpath, listing.decode().split("\0")[:-1])
  large = [path for path in tracked if path.stat().st_size > 200_000]
  assert all(path.parent == paths.ROOT / "models" / "mini" for path in large)
