"""Shows pages from outside docs/ on the site that `make docs` builds.

Pages are written for GitHub, where a link is the path from one file to another.
On the site CONTRIBUTING.md and its like stand beside the pages of docs/, and
files of code do not exist: their names stay, without a link.

mkdocs calls the two functions (a hook) with arguments by these names. griffe,
by which mkdocstrings reads docstrings, calls the class (an extension).
mkdocs.yml names this file for both.
"""

import os
import pathlib
import re

import griffe
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The pages, by their paths from the root, which they keep on the site.
PAGES = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES += ("models/mini/README.md",)
# [text](path#anchor), but no picture and no address such as https://...
_LINK = re.compile(r"(?<!!)\[([^][]+)\]\((?![a-z]+:)([^)\s#]+)(#[^)\s]*)?\)")
# Lines that are indented by two, after a blank line: an example in a docstring.
_EXAMPLE = re.compile(r"(?<=\n\n)(?:  .*\n?)+")


def on_files(files, config):
  """Adds the pages from outside docs/.

  mkdocs calls it once, when it has listed the files of docs/.

  Args:
    files: the list, to which the pages are added.
    config: the content of mkdocs.yml.

  Returns:
    The list.
  """
  # Generated: mkdocs reads other files from docs/ only.
  for page in PAGES:
    text = (ROOT / page).read_text(encoding="utf-8")
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, config, files):
  """Makes the links of a page links of the site.

  mkdocs calls it for every page, before it becomes HTML.

  Args:
    markdown: the text of the page.
    page: says the path of its file, from docs/ or from the root.
    config: the content of mkdocs.yml; unused.
    files: all files of the site.

  Returns:
    The text with other links.
  """
  name = page.file.src_uri
  folder = "" if name in PAGES else "docs"

  def relink(link):
    # The path of the file from the root of the repository, and on the site,
    # where docs/ is the root.
    text, target, anchor = link.groups("")
    path = os.path.normpath(os.path.join(folder, os.path.dirname(name), target))
    on_site = path if path in PAGES else path.removeprefix("docs/")

    # The site has no files of code: `mkdocs build --strict` refuses links to
    # them, so only their names stay.
    if files.get_file_from_path(on_site) is None:
      return text
    there = os.path.relpath(on_site, os.path.dirname(name) or ".")
    return f"[{text}]({there}{anchor})"

  return _LINK.sub(relink, markdown)


class IndentedExamples(griffe.Extension):
  """Shows examples as code: docstrings indent them by two, Markdown by four.

  griffe calls `on_object` for every module, class and function that it reads.
  """

  def on_object(self, *, obj, **_):
    if obj.docstring:
      obj.docstring.value = _EXAMPLE.sub(
        lambda example: re.sub(r"(?m)^  ", "    ", example[0]),
        obj.docstring.value,
      )
