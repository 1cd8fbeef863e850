"""What pip installs of this folder, and that it works elsewhere."""

import ast
import collections
import importlib
from importlib import metadata
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import numpy
from packaging import requirements, utils
import pytest

import bert
from bert import __main__ as bert_main
from bert import modeling
import house
import paths

# What a user's own folder may hold; none of it may be taken for ours.
FOREIGN = ["data.py", "modeling.py", "tokenization.py", "tasks/__init__.py"]
# Trains an encoder that an installation holds, and answers with the result.
USE = """
import pathlib, sys
import bert
from bert import modeling, optimization, run_classifier, tokenization

package = pathlib.Path(bert.__file__).parent
for module in (modeling, optimization, run_classifier, tokenization):
  assert pathlib.Path(module.__file__).parent == package
answer = bert.load("trained")("good film")
assert answer["label"] in ("bad", "good"), answer
print(bert.load_encoder("trained").config.hidden_size)
"""

# Asks a type checker what it knows.
TYPED = """
import bert
from bert import modeling, run_classifier, tokenization

reveal_type(bert.load("x"))
reveal_type(run_classifier.run(model="x", output_dir="y"))
reveal_type(modeling.BertConfig)
reveal_type(tokenization.FullTokenizer)
"""

# Imports every module; whatever looks up a name or connects ends it.
OFFLINE = """
import importlib, pathlib, sys

def refuse(event, arguments):
  if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
    sys.exit(f"{event}{arguments}")

sys.addaudithook(refuse)
sys.path.insert(0, ".")
files = [*pathlib.Path("bert").rglob("*.py"), *pathlib.Path().glob("*.py")]
for path in sorted(files):
  if not path.stem.startswith("__"):
    importlib.import_module(".".join(path.with_suffix("").parts))
print(len(files))
"""


def test_a_wheel_holds_every_program_and_noun():
  settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
  wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
  found = {path.name for path in paths.ROOT.glob("*.py")} | {"configs"}
  assert wheel["force-include"] == {name: f"bert/{name}" for name in found}


def test_a_noun_imported_by_its_old_name_is_a_copy():
  """In a clone `import modeling` works, and makes classes of its own."""
  old = importlib.import_module("modeling")
  config = old.BertConfig(vocab_size=7)
  assert not isinstance(config, modeling.BertConfig)
  assert old.__file__ == modeling.__file__
  # A model takes the config of its own copy alone, and says so.
  with pytest.raises(TypeError, match="bert.modeling.BertConfig, not a model"):
    modeling.BertModel(config)


def test_programs_are_listed_with_a_line_each():
  command = [sys.executable, "-m", "bert"]
  shown = subprocess.run(
    command, cwd=paths.ROOT, capture_output=True, text=True, check=True
  ).stdout
  listed = dict(line.split(maxsplit=1) for line in shown.splitlines()[1:])
  nouns = {"heads", "modeling", "optimization", "tokenization"}
  assert listed.keys() == {p.stem for p in paths.ROOT.glob("*.py")} - nouns
  assert listed["predict"] == (
    "Answers texts with an exported model, as JSON lines or on a web page."
  )


def test_a_pager_may_close_before_the_list_ends():
  command = f"{sys.executable} -m bert | head -n 1"
  result = subprocess.run(
    command, shell=True, cwd=paths.ROOT, capture_output=True, text=True
  )
  assert result.stdout.startswith("usage: bert PROGRAM")
  assert result.stderr == ""


def test_a_program_that_is_none_is_named():
  command = [sys.executable, "-m", "bert", "run_classifer"]
  result = subprocess.run(
    command, cwd=paths.ROOT, capture_output=True, text=True
  )
  assert result.returncode == 1
  assert result.stderr.startswith(
    "bert: error: no program is called 'run_classifer'; expected one of"
  )


def test_the_version_is_that_of_the_distribution():
  settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
  assert settings["project"]["version"] == bert.__version__


def package_of(requirement):
  return re.match(r"[\w-]+", requirement)[0].replace("_", "-")


def read_requirements(name):
  """Yields the requirements of a file, and of those that it includes."""
  path = paths.ROOT / name
  for line in path.read_text().splitlines():
    if line.startswith("-r "):
      yield from read_requirements(path.parent / line[3:])
    elif line and not line.startswith("#"):
      yield requirements.Requirement(line)


def test_the_lock_has_a_file_of_each_package_in_a_version_that_is_allowed():
  """If not: `make lock`."""
  text = (paths.ROOT / "requirements" / "lock.txt").read_text()
  lines = [line for line in text.splitlines() if not line.startswith("#")]
  locked = {}
  for line in lines:
    assert re.fullmatch(r"[a-z0-9-]+==\S+ --hash=sha256:[0-9a-f]{64}", line)
    name, version = line.split()[0].split("==")
    locked[name] = version
  assert len(locked) == len(lines)
  for needed in read_requirements("requirements/dev.txt"):
    version = locked[utils.canonicalize_name(needed.name)]
    assert needed.specifier.contains(version), f"{needed}: {version}"


def imported_packages():
  """Returns the files that import a package of others, by its name."""
  found = collections.defaultdict(set)
  for path in house.product_files():
    for node in ast.walk(ast.parse((paths.ROOT / path).read_text())):
      names = []
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
      for name in names:
        found[name.partition(".")[0]].add(str(path))
  ours = {path.stem for path in house.product_files()} | {"bert", ""}
  return {
    name: files
    for name, files in found.items()
    if name not in ours | sys.stdlib_module_names
  }


def test_a_requirement_names_every_package_that_is_imported():
  """Another one's requirement may do without it some day."""
  named = {
    utils.canonicalize_name(needed.name)
    for path in (paths.ROOT / "requirements").glob("*.txt")
    if path.stem not in ("lock", "bench", "tpu-compile")
    for needed in read_requirements(path)
  }
  distributions = metadata.packages_distributions()
  for name, files in imported_packages().items():
    # mkdocstrings[python] brings it, and calls docs/root_pages.py with it.
    if name != "griffe":
      found = map(utils.canonicalize_name, distributions[name])
      assert not named.isdisjoint(found), f"{name}, which {files} import"


REPORT = {
  "environment": {
    "python_version": "3.11",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
  },
  "install": [
    {
      "metadata": {"name": name, "version": version},
      "download_info": {"archive_info": {"hashes": {"sha256": digest}}},
    }
    for name, version, digest in (
      ("typing_extensions", "4.1", "ab"),
      ("Keras", "3", "cd"),
    )
  ],
}


def test_the_lock_is_written_of_the_report_of_pip(tmp_path):
  script = shutil.copy(paths.ROOT / "requirements" / "write_lock.py", tmp_path)
  (tmp_path / "report.json").write_text(json.dumps(REPORT))
  command = [sys.executable, script, tmp_path / "report.json"]
  subprocess.run(command, check=True)
  head, _, lines = (tmp_path / "lock.txt").read_text().rpartition("allow.\n")
  assert "# For CPython 3.11 on Linux x86_64; elsewhere install " in head
  assert lines == (
    "keras==3 --hash=sha256:cd\ntyping-extensions==4.1 --hash=sha256:ab\n"
  )


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
  """Returns a new environment's folder, with a built wheel installed.

  What the wheel requires is that of the tests: TensorFlow alone has 600 MB.
  """
  folder = tmp_path_factory.mktemp("installed")
  pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
  build = [*pip, "wheel", "--no-deps", "--wheel-dir", str(folder)]
  subprocess.run([*build, str(paths.ROOT)], check=True)
  command = [sys.executable, "-m", "venv", str(folder / "venv")]
  subprocess.run(command, check=True)
  (wheel,) = folder.glob("bert_tf2-*.whl")
  python = folder / "venv" / "bin" / "python"
  site = next((folder / "venv").glob("lib/python*/site-packages"))
  before = {path.name for path in site.iterdir()}
  subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel])
  added = {path.name for path in site.iterdir()} - before
  assert {name for name in added if "dist-info" not in name} == {"bert"}
  ours = pathlib.Path(numpy.__file__).parent.parent
  (site / "of_the_tests.pth").write_text(f"{ours}\n")
  return folder / "venv"


@pytest.fixture
def folder(tmp_path):
  """Returns a user's folder with modules that are named as ours."""
  for name in FOREIGN:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("raise ImportError('not ours')\n")
  return tmp_path


@pytest.mark.slow  # pip builds in an environment of its own.
def test_a_wheel_works_beside_modules_of_the_same_names(environment, folder):
  def run(*command):
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout

  python = str(environment / "bin" / "python")
  configs = next(environment.glob("lib/python*/site-packages/bert/configs"))
  rows = [
    f"{w} film{' film' * n}\t{w}" for n in range(20) for w in ("bad", "good")
  ]
  (folder / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
  (folder / "vocab.txt").write_text(
    "\n".join(
      ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"film good bad".split()]
    )
  )
  run(
    str(environment / "bin" / "bert"),
    "run_classifier",
    "--task_name=file",
    "--train_file=train.tsv",
    "--eval_share=0.2",
    "--do_train",
    "--do_eval",
    "--vocab_file=vocab.txt",
    f"--bert_config_file={configs / 'bert_tiny.json'}",
    "--train_batch_size=4",
    "--num_train_epochs=1.25",  # 32 texts give 8 steps.
    "--output_dir=trained",
  )
  assert run(python, "-c", USE) == "128\n"
  code = (
    "from importlib import metadata; print(*metadata.requires('bert-tf2'), "
  )
  needed = run(python, "-c", code + "sep='\\n')").splitlines()
  lines = (paths.ROOT / "requirements.txt").read_text().splitlines()
  needed = [line for line in needed if "extra ==" not in line]
  lines = [line for line in lines if not line.startswith("#")]
  assert set(map(package_of, needed)) == set(map(package_of, lines))
  served = next(environment.glob("lib/python*/site-packages/bert/serving"))
  for name in ("page.html", "page.css", "page.js", "favicon.svg"):
    assert (served / name).is_file()

  # It lists the programs that a clone lists, and no other file of the package.
  listed = run(str(environment / "bin" / "bert"))
  assert listed == bert_main.describe_programs() + "\n"


@pytest.mark.slow  # Needs the environment, too.
def test_type_checkers_know_the_names_of_a_wheel(environment, tmp_path):
  """The file py.typed says that the package has annotations."""
  (tmp_path / "use.py").write_text(TYPED)
  (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "basic"}')
  checker = pathlib.Path(sys.executable).parent / "basedpyright"
  python = environment / "bin" / "python"
  command = [checker, "--pythonpath", python, "use.py"]
  result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
  assert result.returncode == 0, result.stdout
  shown = re.findall(r'information: Type of ".*" is "(.*)"', result.stdout)
  assert shown == ["Model", "Result", "type[BertConfig]", "type[FullTokenizer]"]


@pytest.mark.slow
def test_no_import_reaches_the_network():
  """With everything of requirements/dev.txt, as the tests have it."""
  result = subprocess.run(
    [sys.executable, "-c", OFFLINE],
    cwd=paths.ROOT,
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  assert int(result.stdout.split()[-1]) > 150
