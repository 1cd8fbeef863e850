"""Shows pages from outside docs/ on the site that `make docs` builds.

Pages are written for GitHub, where a link is the path from one file to another.
On the site CONTRIBUTING.md and its like stand beside the pages of docs/, and
files of code do not exist: their names stay, without a link.

mkdocs calls the two functions (a hook), and mkdocstrings the class (an
extension), when it reads docstrings. mkdocs.yml names all three.
"""

import os
import pathlib
import re

import griffe
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES += ("models/mini/README.md",)
# [text](path#anchor), but no picture and no address such as https://...
_LINK = re.compile(r"(?<!!)\[([^][]+)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
# Lines that are indented by two, after a blank line: an example in a docstring.
_EXAMPLE = re.compile(r"(?<=\n\n)(?:  .*\n?)+")


def on_files(files, config):
  """Adds the pages from outside docs/."""
  for page in PAGES:
    text = (ROOT / page).read_text(encoding="utf-8")
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, config, files):
  """Makes the links of a page those of the site."""
  name = page.file.src_uri
  folder = "" if name in PAGES else "docs"

  def relink(link):
    text, target, anchor = link.groups("")
    # The file from the root of the repository, and where the site has it.
    path = os.path.normpath(os.path.join(folder, os.path.dirname(name), target))
    on_site = path if path in PAGES else path.removeprefix("docs/")
    if files.get_file_from_path(on_site) is None:
      return text
    there = os.path.relpath(on_site, os.path.dirname(name) or ".")
    return f"[{text}]({there}{anchor})"

  return _LINK.sub(relink, markdown)


class IndentedExamples(griffe.Extension):
  """Shows examples as code: docstrings indent them by two, Markdown by four."""

  def on_object(self, *, obj, **_):
    if obj.docstring:
      obj.docstring.value = _EXAMPLE.sub(
        lambda example: re.sub(r"(?m)^  ", "    ", example[0]),
        obj.docstring.value,
      )
