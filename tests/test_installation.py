"""What pip installs of this folder, and that it works elsewhere."""

import email
import pathlib
import shutil
import subprocess
import sys
import tomllib
import zipfile

import numpy
import pytest

import paths


def test_all_folders_are_packages():
  settings = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())
  found = [path.parent.name for path in paths.ROOT.glob("*/__init__.py")]
  assert settings["tool"]["setuptools"]["packages"] == sorted(found)


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
  code = "import bert, heads, os, serving; from export import exporting; "
  code += "bert.load; from tasks import plots; plots.page('a run', '', {}); "
  code += "f = os.path.dirname(serving.__file__); print(sorted(os.listdir(f)))"
  listed = run(python, "-c", code, env={"PYTHONPATH": str(site)})
  for name in ("page.html", "page.css", "page.js", "favicon.svg"):
    assert repr(name) in listed
  run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", ".", str(source))
  (wheel,) = tmp_path.glob("*.whl")
  with zipfile.ZipFile(wheel) as archive:
    (name,) = (n for n in archive.namelist() if n.endswith("/METADATA"))
    facts = email.message_from_bytes(archive.read(name))
  lines = (paths.ROOT / "requirements.txt").read_text().splitlines()
  needed = [n for n in facts.get_all("Requires-Dist") if "extra" not in n]
  lines = [line for line in lines if not line.startswith("#")]
  packages = {line.partition(">")[0] for line in lines}
  assert {n.partition("<")[0].partition(">")[0] for n in needed} == packages
