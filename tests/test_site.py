"""`make docs` builds the site of docs/ without a warning."""

import subprocess
import sys

import pytest

import paths


@pytest.mark.slow
def test_the_site_has_every_page_and_docstring(tmp_path):
  pytest.importorskip("mkdocs", reason="needs requirements/docs.txt")
  pytest.importorskip("mkdocstrings", reason="needs requirements/docs.txt")
  command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
  subprocess.run(
    [*command, f"--site-dir={tmp_path}"], cwd=paths.ROOT, check=True
  )
  names = {path.stem for path in (paths.ROOT / "docs").glob("*.md")}
  assert names <= {path.stem for path in tmp_path.glob("*.html")}
  reference = (tmp_path / "reference.html").read_text(encoding="utf-8")
  assert 'id="modeling.BertModel"' in reference
  # Files of code have no page: their names stay in the text.
  assert ".py)" not in (tmp_path / "index.html").read_text(encoding="utf-8")
  contributing = (tmp_path / "CONTRIBUTING.html").read_text(encoding="utf-8")
  assert 'href="decisions.html"' in contributing
