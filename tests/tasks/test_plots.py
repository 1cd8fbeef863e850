"""Pictures: what is in them, and how they become files."""

import logging
import os
import sys
import warnings

import numpy as np
import pytest

from data import files
from tasks import plots

pytest.importorskip("matplotlib", reason="requirements/plots.txt")
PNG = b"\x89PNG\r\n\x1a\n"


def numbered(count):
  return [f"label {number}" for number in range(count)]


@pytest.fixture
def figures(monkeypatch):
  """Catches figures where they would be written."""
  caught = []
  monkeypatch.setattr(
    plots, "_write_png", lambda _, figure: caught.append(figure)
  )
  return caught


def test_what_is_drawn(figures):
  plots.write_confusion_matrix(
    "c.png", np.array([[3, 1], [0, 1000]]), ["ham", "spam"]
  )
  matrix, scale = figures[0].axes
  assert matrix.images[0].get_array().tolist() == [[0.75, 0.25], [0, 1]]
  cells = [(*text.get_position(), text.get_text()) for text in matrix.texts]
  assert cells == [(0, 0, "3"), (1, 0, "1"), (0, 1, "0"), (1, 1, "1000")]
  for axis, title in (matrix.xaxis, "predicted"), (matrix.yaxis, "true"):
    assert axis.get_label_text() == title
    assert [t.get_text() for t in axis.get_ticklabels()] == ["ham", "spam"]
  assert scale.get_ylabel() == "share of the true label"


def test_label_that_is_never_true_has_an_empty_row(figures):
  plots.write_confusion_matrix("c.png", np.array([[0, 0], [1, 1]]), "ab")
  shares = figures[0].axes[0].images[0].get_array()
  assert shares.tolist() == [[0, 0], [0.5, 0.5]]


@pytest.mark.parametrize(
  ("labels", "largest", "counts", "inches", "names"),
  [
    (2, 9, 4, 2.0, 2),
    (10, 99, 100, 5.0, 10),
    (10, 1_000_000, 100, 9.0, 10),
    (20, 99, 400, 10.0, 20),
    (21, 99, 0, 4.62, 21),
    (50, 99, 0, 11.0, 50),
    (300, 99, 0, 30.0, 100),
  ],
)
def test_size_grows_with_labels(
  figures, labels, largest, counts, inches, names
):
  confusion = np.full((labels, labels), largest)
  plots.write_confusion_matrix("c.png", confusion, numbered(labels))
  axes = figures[0].axes[0]
  assert len(axes.texts) == counts
  assert figures[0].get_size_inches() == pytest.approx([inches, inches])
  assert len(axes.get_yticks()) == len(axes.get_xticks()) == names


def test_png_appears_whole(tmp_path, monkeypatch):
  path = tmp_path / "new" / "c.png"
  plots.write_confusion_matrix(str(path), np.eye(2, dtype=int), "ab")
  assert path.read_bytes().startswith(PNG)
  assert os.listdir(path.parent) == ["c.png"]

  def fail(*_):
    raise OSError("disk full")

  before = path.read_bytes()
  monkeypatch.setattr(files, "open_for_writing", fail)
  with pytest.raises(OSError, match="disk full"):
    plots.write_confusion_matrix(str(path), np.ones((2, 2), int), "ab")
  assert path.read_bytes() == before


def test_remote_path():
  path = "ram://plots/c.png"
  plots.write_confusion_matrix(path, np.eye(2, dtype=int), "ab")
  with files.open_bytes(path) as file:
    assert file.read().startswith(PNG)


def test_any_name_is_drawn_in_silence(tmp_path, caplog):
  path = tmp_path / "c.png"
  # The second is no valid formula; few fonts have the first or the third.
  names = ["好评", "$\\nothing$", "\U00012000", "x" * 500]
  with warnings.catch_warnings(), caplog.at_level(logging.WARNING):
    warnings.simplefilter("error")
    plots.write_confusion_matrix(str(path), np.eye(4, dtype=int), names)
  assert path.read_bytes().startswith(PNG)
  assert not caplog.records


def test_long_name_is_shortened(figures):
  names = ["x" * 40, "y" * 41]
  plots.write_confusion_matrix("c.png", np.eye(2, dtype=int), names)
  shown = [t.get_text() for t in figures[0].axes[0].get_xticklabels()]
  assert shown == ["x" * 40, "y" * 39 + "…"]


def test_only_installed_fonts_are_asked_for(monkeypatch):
  import matplotlib
  import matplotlib.font_manager

  monkeypatch.setattr(
    matplotlib.font_manager, "get_font_names", lambda: ["Arial", "SimHei"]
  )
  monkeypatch.setitem(matplotlib.rcParams, "font.family", ["serif"])
  assert plots._font_families() == ["serif", "SimHei"]


def test_no_state_of_the_process_changes(tmp_path, monkeypatch):
  import matplotlib

  def state():
    backend = matplotlib.get_backend(auto_select=False)
    return backend, list(warnings.filters)

  before = state()
  # An import of pyplot, which keeps figures, would now fail.
  monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
  plots.write_confusion_matrix(
    str(tmp_path / "c.png"), np.eye(2, dtype=int), "ab"
  )
  assert state() == before


def test_without_matplotlib_the_cure_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  with pytest.raises(ImportError, match="-r requirements/plots.txt"):
    plots.write_confusion_matrix(
      str(tmp_path / "c.png"), np.eye(2, dtype=int), "ab"
    )
  assert not os.listdir(tmp_path)
