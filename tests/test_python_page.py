"""docs/python.md: every public name, and its examples, run as printed."""

import ast
import importlib
import importlib.util
import pydoc
import re
import shlex
import subprocess
import sys

import pytest

import bert
import paths
import program_flags

PAGE = (paths.ROOT / "docs" / "python.md").read_text(encoding="utf-8")
# Its blocks in their order: languages and contents.
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
# Two modules have the names of libraries, so `from bert import *` skips them.
PUBLIC = {*bert.__all__, "keras", "sklearn"}


def parts_of(language):
  return [content for name, content in BLOCKS if name == language]


def lacks_a_package(code):
  """Whether Python code imports a package that is not installed."""
  nodes = list(ast.walk(ast.parse(code)))
  names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
  names |= {n.module for n in nodes if isinstance(n, ast.ImportFrom)}
  packages = {name.split(".")[0] for name in names}
  return any(importlib.util.find_spec(name) is None for name in packages)


def test_the_page_has_every_public_name_and_no_other():
  table = PAGE.partition("\n## All public names\n")[2].partition("\n## ")[0]
  named = re.findall(r"^\| \[`bert\.(\w+)`\]", table, re.MULTILINE)
  assert sorted(named) == sorted(bert.__all__)
  assert len(named) == len(set(named))

  # What the examples use is public, too.
  for code in parts_of("python") + parts_of("py"):
    for node in ast.walk(ast.parse(code)):
      if isinstance(node, ast.ImportFrom) and node.module == "bert":
        assert {alias.name for alias in node.names} <= PUBLIC
    used = re.findall(r"\bbert\.(\w+)", code)
    assert {*used} <= PUBLIC


def test_every_program_that_trains_is_public():
  programs = {
    path.stem
    for path in paths.ROOT.glob("*.py")
    if re.search(r"^run = ", path.read_text(encoding="utf-8"), re.MULTILINE)
  }
  assert programs == {name for name in bert.__all__ if name.startswith("run_")}


@pytest.mark.parametrize("name", bert.__all__)
def test_a_public_name_has_a_description(name):
  value = getattr(bert, name)
  if name.startswith("run_"):
    assert f"Runs {name}.py with these flags." in value.run.__doc__
  elif name != "Answer":  # The type of a dict.
    assert value.__doc__


def test_names_are_found_before_their_modules_are_imported():
  code = """
import sys, bert
assert {'load', 'Index', 'Result'} <= set(dir(bert)), dir(bert)
assert not {'numpy', 'bert.model', 'bert.modeling'} & set(sys.modules)
from bert import *
assert bert.modeling is modeling and run_squad.run and Result is bert.Result
"""
  subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, check=True)
  with pytest.raises(AttributeError, match="'bert' has no attribute 'lod'"):
    bert.lod  # noqa: B018


def test_help_shows_the_public_names_without_tensorflow():
  code = "import pydoc, sys, bert; print(pydoc.plain(pydoc.render_doc(bert)))"
  code += "; assert 'tensorflow' not in sys.modules"
  command = [sys.executable, "-c", code]
  shown = subprocess.run(
    command, cwd=paths.ROOT, capture_output=True, text=True, check=True
  ).stdout
  for line in (
    "    class Model(builtins.object)",
    "    class Index(builtins.object)",
    "    class Result(builtins.object)",
    "    load(folder: ",
    "    load_encoder(path: ",
    "    Answer = dict[str, typing.Any]",
  ):
    assert f"\n{line}" in shown
  # Only public names are described, and a run says its flags.
  assert "importlib" not in shown
  run = pydoc.plain(pydoc.render_doc(bert.run_classifier.run))
  assert "--learning_rate=5e-05" in run


@pytest.mark.slow  # Trains fourteen small models: two minutes.
def test_examples_run_as_printed(tmp_path, monkeypatch):
  """Also those of pandas and datasets, where these are installed."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "models").mkdir()
  (tmp_path / "models" / "mini").symlink_to(paths.ROOT / "models" / "mini")
  (table,) = [b for b in parts_of("") if b.startswith("Body,Queue\n")]
  (tmp_path / "tickets.csv").write_text(table)

  # Programs print with a `print` of their own.
  printed = []
  names = {"print": lambda *values: printed.append(" ".join(map(str, values)))}
  for language, content in BLOCKS:
    if language == "python" and not lacks_a_package(content):
      printed.clear()
      exec(compile(content, "docs/python.md", "exec"), names)
    elif language == "text":
      assert printed == content.splitlines()

  # The first example is a command in other words.
  (command,) = parts_of("sh")
  words = shlex.split(command.replace("\\\n", " "))
  words[1] = str(paths.ROOT / words[1])
  program_flags.succeed([*words, "--output_dir=of_the_command"])
  found, wanted = (
    paths.contents(tmp_path / name) for name in ("tickets", "of_the_command")
  )
  assert "eval_results.txt" in wanted
  assert paths.differences(found, wanted) == []
