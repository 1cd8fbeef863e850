"""What pip installs of this folder, and that it works elsewhere."""

import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import numpy
import pytest

import paths


def test_all_folders_are_packages():
  settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
  found = [path.parent.name for path in paths.ROOT.glob("*/__init__.py")]
  assert settings["tool"]["setuptools"]["packages"] == sorted(found)


def package_of(requirement):
  return re.match(r"[\w-]+", requirement)[0]


@pytest.mark.slow  # pip builds in an environment of its own.
@pytest.mark.parametrize("editable", [True, False])
def test_pip_installs_what_a_notebook_needs(tmp_path, editable):
  """Also for a notebook beside a clone that is named `bert`, as the module."""
  source = shutil.copytree(
    paths.ROOT,
    tmp_path / "bert",
    ignore=shutil.ignore_patterns(".*", "tests", "docs", "benchmarks"),
  )

  def run(*command, **options):
    result = subprocess.run(
      command, cwd=tmp_path, capture_output=True, text=True, **options
    )
    assert result.returncode == 0, result.stderr
    return result.stdout

  run(sys.executable, "-m", "venv", "venv")
  python = str(tmp_path / "venv" / "bin" / "python")
  arguments = ["-e", str(source)] if editable else [str(source)]
  run(python, "-m", "pip", "install", "-q", "--no-deps", *arguments)
  # TensorFlow itself is that of the tests: it has 600 MB.
  site = pathlib.Path(numpy.__file__).parent.parent
  code = "import bert, heads, os, serving; from bert.export import exporting; "
  code += (
    "bert.load; from bert.tasks import plots; plots.page('a run', '', {}); "
  )
  code += "f = os.path.dirname(serving.__file__); print(sorted(os.listdir(f)))"
  listed = run(python, "-c", code, env={"PYTHONPATH": str(site)})
  for name in ("page.html", "page.css", "page.js", "favicon.svg"):
    assert repr(name) in listed
  code = "from importlib import metadata; print(*metadata.requires('bert'), "
  code += "sep='\\n')"
  needed = run(python, "-c", code).splitlines()
  lines = (paths.ROOT / "requirements.txt").read_text().splitlines()
  needed = [line for line in needed if "extra ==" not in line]
  lines = [line for line in lines if not line.startswith("#")]
  assert set(map(package_of, needed)) == set(map(package_of, lines))
