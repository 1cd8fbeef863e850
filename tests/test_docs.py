"""README and docs: links, paths, commands and Python, checked as printed."""

import ast
import contextlib
import functools
import io
import pathlib
import re
import runpy
import shlex
import subprocess
from xml.etree import ElementTree

import pytest

from bert import heads
from bert.encoders import encoder_table
import paths
import program_flags
import tiny_models

README = paths.ROOT / "README.md"
CONTRIBUTING = paths.ROOT / "CONTRIBUTING.md"
INDEX = paths.ROOT / "docs" / "index.md"
DOCS = sorted((paths.ROOT / "docs").glob("*.md"))
PAGES = [README, *DOCS, CONTRIBUTING]
PAGES += [paths.ROOT / "CHANGELOG.md", paths.ROOT / "SECURITY.md"]
# Flags of Apache Beam, to which create_pretraining_data_beam.py passes them on,
# of tensorboard, of Slurm and of Google Cloud; and what messages call a flag.
OTHER_FLAGS = set(
  "runner extra_package project region temp_location flink_master "
  "spark_master_url job_endpoint logdir array mem flagfile helpfull nodes "
  "dask_client_address exclusive time signal requeue zone version name".split()
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n.*?^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(
  r"\bpython ((?:\w+/)*\w+\.py|-m bert(?:\.\w+)+)(?![\w/])(.*)"
)
_FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9_]*)(?![\w-])")


def read(page: pathlib.Path) -> str:
  return page.read_text(encoding="utf-8")


def prose(page: pathlib.Path) -> str:
  return _FENCED.sub("", read(page))


def blocks(page: pathlib.Path, language: str) -> list[str]:
  """Returns the code blocks of a page in a language ("" for plain text)."""
  return [
    code for name, code in _FENCED.findall(read(page)) if name == language
  ]


def anchors(page: pathlib.Path) -> set[str]:
  """Returns the anchors that GitHub gives to the headings of a page."""
  headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
  words = (re.sub(r"[^\w\- ]", "", text.lower()) for text in headings)
  return {text.replace(" ", "-") for text in words}


def links(page: pathlib.Path) -> list[tuple[pathlib.Path, str]]:
  """Returns the file and the anchor of every link to a file of ours."""
  found = re.findall(r"\]\((?![a-z]+:)([^)\s#]*)#?([^)\s]*)\)", prose(page))
  return [((page.parent / n).resolve() if n else page, a) for n, a in found]


def commands(page: pathlib.Path) -> list[tuple[str, list[str]]]:
  """Returns program and arguments of every command, in blocks and in prose."""
  # A command in the docstring of a page's Python is not a command of the page.
  text = _PYTHON.sub("", read(page))
  text = re.sub(r"\\\n\s*", " ", text)
  found = []
  for program, rest in _COMMAND.findall(text):
    if program.startswith("-m "):  # A module of the package, run by its name.
      program = f"{program[3:].replace('.', '/')}.py"
    # Inline code, or a comment, ends the command.
    found.append((program, shlex.split(re.split(r"[`|]| #", rest)[0])))
  return found


COMMANDS = [
  pytest.param(program, arguments, id=f"{page.stem}-{program}")
  for page in PAGES
  for program, arguments in commands(page)
]


@functools.cache
def script_flags(script: pathlib.Path) -> set[str]:
  """Returns the flags of a script that uses argparse, and of its siblings."""
  names = set()
  for path in script.parent.glob("*.py"):
    for node in ast.walk(ast.parse(read(path))):
      if isinstance(node, ast.Constant) and isinstance(node.value, str):
        names.update(re.findall(r"^--(\w+)$", node.value))
  return names


@pytest.fixture(scope="module")
def declared():
  """The flags of every program of ours, by its path: name -> absl flag."""
  programs = {program for p in COMMANDS for program in p.values[:1]}
  names = sorted(p for p in programs if "/" not in p or p.startswith("bert/"))
  return {name: program_flags.declared_flags(name) for name in names}


def test_the_readme_has_what_the_patterns_look_for():
  """Else a pattern that finds nothing would pass every test below."""
  text = read(README)
  assert len(links(README)) > 40 and len(our_paths(README)) > 10
  assert len({*_FLAG.findall(text)}) > 10 and len(COMMANDS) > 100


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
  for target, anchor in links(page):
    assert target.exists(), target
    assert not anchor or anchor in anchors(target), f"{target}#{anchor}"


def test_every_page_is_in_the_index():
  linked = {target for target, _ in links(INDEX)}
  assert {*DOCS} - {INDEX} <= linked
  assert INDEX in {target for target, _ in links(README)}


def test_every_page_is_in_the_menu_of_the_site():
  menu = read(paths.ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
  names = re.findall(r"[\w/]+\.md", menu)
  assert len(names) == len({*names})
  assert {page.name for page in DOCS} <= {*names}


def test_the_readme_quotes_the_picture_of_the_demo():
  """Both are made by one run of `make demo` (examples/draw_demo.py)."""
  picture = read(paths.ROOT / "docs" / "demo.svg")
  (table,) = [b for b in blocks(README, "") if "before pre-training" in b]
  trained, frequent = re.findall(r"([\d.]+)%", table)[1:]
  assert f"on other text: {trained}<" in picture
  assert f"most frequent token: {frequent}<" in picture


def our_paths(page: pathlib.Path) -> list[str]:
  """Returns what looks like a path into one of our folders."""
  found = re.findall(r"(?<![\w./$])(\w+/[\w/*.]+\.\w+)", read(page))
  # Not those that a command of the page has made here, or is just making.
  listing = subprocess.check_output(
    ["git", "ls-files"], cwd=paths.ROOT, text=True
  )
  folders = {path.split("/")[0] for path in listing.splitlines() if "/" in path}
  return [path for path in found if path.split("/")[0] in folders]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_of_ours_exist(page):
  for path in our_paths(page):
    assert list(paths.ROOT.glob(path)), path


def test_every_format_of_weights_names_its_test():
  """The table of docs/checkpoints.md: a file, or that of the row above."""
  page = read(paths.ROOT / "docs" / "checkpoints.md")
  table = page.partition("| writer | years |")[2].partition("\n\n")[0]
  rows = table.splitlines()[2:]
  assert len(rows) > 15
  for row in rows:
    cell = row.rsplit(" | ", 1)[1]
    named = re.findall(r"`(tests/[\w/]+\.py)`", cell)
    assert named or cell.startswith(("the same file", "likewise")), row
    for path in named:
      assert re.search("^def test_", read(paths.ROOT / path), re.M), path


def test_drawings_are_those_of_the_script():
  script = runpy.run_path(str(paths.ROOT / "examples" / "make_drawings.py"))
  for name, draw in script["DRAWINGS"].items():
    assert read(paths.ROOT / "docs" / name) == draw()


def test_the_picture_of_the_demo_is_a_file_of_its_own(monkeypatch):
  monkeypatch.syspath_prepend(str(paths.ROOT / "examples"))
  script = runpy.run_path(str(paths.ROOT / "examples" / "draw_demo.py"))
  picture = script["draw"]([(0, 0.0), (10, 50.0)], {"other text": 32.25})
  # Nothing in it is HTML, and it starts where the first point is.
  elements = ElementTree.fromstring(picture)
  names = {element.tag.rpartition("}")[2] for element in elements.iter()}
  assert names == {"svg", "title", "style", "text", "path"}
  assert "other text: 32.2<" in picture


def test_the_drawing_names_models_of_ours():
  names = re.findall(r"\b[A-Z]\w*Model\b", read(paths.ROOT / "docs/model.svg"))
  assert len(names) > 3
  declared = re.findall(r"(?m)^class (\w+)", read(paths.ROOT / "heads.py"))
  assert set(names) <= set(declared)


def test_the_tree_names_every_program_and_folder():
  tree = next(b for b in blocks(CONTRIBUTING, "") if "modeling.py " in b)
  named, folders = set(), []
  for line in tree.splitlines():
    name = line.split()[0].rstrip("/")
    if line.startswith(" "):
      name = f"{folders[-1]}/{name}"
    elif line.split()[0].endswith("/"):
      folders.append(name)
    named.add(name)
  listing = subprocess.run(
    ["git", "ls-files", "*.py"], cwd=paths.ROOT, capture_output=True, check=True
  )
  tracked = [pathlib.Path(n) for n in listing.stdout.decode().splitlines()]
  assert {path.parts[0] for path in tracked} <= named
  assert {str(p.parent) for p in tracked if p.match("bert/*/*.py")} <= named
  assert all((paths.ROOT / name).exists() for name in named)


def test_git_ignores_what_commands_of_the_readme_write():
  folders, outputs = {"output_dir", "export_dir", "output"}, []
  for _, arguments in commands(README):
    for argument in arguments:
      name, _, path = argument.removeprefix("--").partition("=")
      if name in folders | {"output_file", "index_file"}:
        outputs.append(f"{path}/file" if name in folders else path)
  assert "parts_model/file" in outputs
  # What other pages write.
  outputs += ["vocab.txt", "examples.tfrecord", "pretrained/file", "mrpc/file"]
  outputs += ["train.txt", "eval.txt", "own.npy.json", "demo_output/vocab.txt"]
  outputs += ["parts_mini/file", "parts_export/file", "site/index.html"]
  # pip install .
  outputs += ["build/lib/bert.py", "bert.egg-info/PKG-INFO"]
  command = ["git", "check-ignore", "--no-index", *outputs]
  result = subprocess.run(
    command, cwd=paths.ROOT, capture_output=True, text=True
  )
  assert result.stdout.splitlines() == outputs


@pytest.mark.parametrize("program, arguments", COMMANDS)
def test_commands_have_flags_that_exist_and_all_that_are_needed(
  program, arguments, declared
):
  path = paths.ROOT / program
  assert path.is_file()
  # $BERT may be cased, which only --model finds out.
  assert not any("=$BERT/" in argument for argument in arguments)
  given = {}
  for argument in arguments:
    name, _, value = argument.removeprefix("--").partition("=")
    if name == "flagfile":
      assert (paths.ROOT / value).is_file()
    elif argument.startswith("--") and name not in OTHER_FLAGS:
      given[name] = value if "=" in argument else None
  if program not in declared:
    assert given.keys() <= script_flags(path)
    return
  assert given.keys() <= declared[program].keys()
  for name, value in given.items():
    flag = declared[program][name]
    assert value is not None or flag.boolean, name
    if value not in (None, "..."):
      flag.parser.parse(value)
  if len(given) > 1 and "..." not in arguments:
    required = {
      name
      for name, flag in declared[program].items()
      if not all(validator.checker(None) for validator in flag.validators)
    }
    assert required <= given.keys()


@pytest.mark.parametrize("page", [README, *DOCS], ids=lambda page: page.stem)
def test_flags_in_prose_exist_somewhere(page, declared):
  known = set(OTHER_FLAGS).union(*declared.values())
  for program, _ in commands(page):
    if program not in declared:
      known |= script_flags(paths.ROOT / program)
  text = re.sub(r"no flag is called --\w+", "", read(page))
  assert set(_FLAG.findall(text)) <= known


def test_programs_that_use_a_model_take_it_with_model(declared):
  """As docs/checkpoints.md says; an export is no model to start from."""
  programs = [name for name in declared if "/" not in name]
  lacking = [name for name in programs if "model" not in declared[name]]
  assert lacking == ["predict.py"] and len(programs) == 17


def run_python(page: pathlib.Path) -> str:
  """Runs the page's Python in the current folder; returns what it prints."""
  output = io.StringIO()
  with contextlib.redirect_stdout(output):
    for code in blocks(page, "python"):
      exec(compile(code, str(page), "exec"), {})
  return output.getvalue()


def test_python_of_the_encoder(tmp_path, monkeypatch):
  folder = tmp_path / "uncased"
  tiny_models.write_trained(folder, make=heads.PretrainingModel)
  monkeypatch.chdir(tmp_path)
  printed = run_python(paths.ROOT / "docs" / "features.md")
  assert printed == "(1, 7, 16)\n(1, 16)\n"


def test_python_of_a_fourth_encoder(monkeypatch):
  monkeypatch.setattr(encoder_table, "ENCODERS", {**encoder_table.ENCODERS})
  printed = run_python(paths.ROOT / "docs" / "encoders.md")
  assert printed == "(1, 4, 16)\n"


def test_python_of_the_search(tmp_path, monkeypatch):
  page = paths.ROOT / "docs" / "search.md"
  (tmp_path / "try" / "vectors").mkdir(parents=True)
  tiny_models.write_masked_lm(tmp_path / "try" / "vectors")
  tiny_models.write_modules(tmp_path / "try" / "vectors")
  lines = next(b for b in blocks(page, "") if "Mix flour" in b)
  (tmp_path / "try" / "texts.txt").write_text(lines)
  monkeypatch.chdir(tmp_path)
  for row in run_python(page).splitlines():
    score, number, text = row.split(maxsplit=2)
    assert -1 <= float(score) <= 1.001
    assert lines.splitlines()[int(number) - 1] == text


@pytest.mark.slow  # Exports a model: ten seconds.
@pytest.mark.parametrize("page", [README])
def test_python_of_an_export(page, tmp_path, monkeypatch):
  (folder,) = {*re.findall(r'bert\.load\("(\w+)"\)', read(page))}
  tiny_models.write_trained(tmp_path)
  tiny_models.run_export(tmp_path, folder, format="saved_model")
  monkeypatch.chdir(tmp_path)
  assert "'label': " in run_python(page)


def test_the_page_of_a_new_task_shows_its_files_as_they_are():
  page = paths.ROOT / "docs" / "new_task.md"
  names = ("relatedness", "relatedness_model", "run_relatedness")
  folder = paths.ROOT / "tests" / "new_task"
  # After a change of a file, copy it into the page.
  assert blocks(page, "python") == [read(folder / f"{n}.py") for n in names]


def test_answers_of_the_hour_with_bert(monkeypatch):
  monkeypatch.chdir(paths.ROOT)  # It reads models/mini.
  page = paths.ROOT / "docs" / "reading.md"
  assert run_python(page) == "".join(blocks(page, "text"))
