"""What a run returns: its curves, its model, and how a notebook shows it."""

import json
import pathlib

import pytest

from bert import results
import browser

POINTS = [
  {"step": 1, "loss": 0.7, "learning_rate": 1e-3},
  {"step": 2, "loss": 0.5, "learning_rate": 5e-4},
  {"step": 2, "eval/accuracy": 0.75},
]
SCORES = {"eval_accuracy": 0.75, "eval_<b>loss": 0.5}


def make_result(folder, lines):
  folder.mkdir(exist_ok=True)
  (folder / "curves.jsonl").write_text("".join(f"{line}\n" for line in lines))
  return results.Result(str(folder), SCORES)


def test_curves_of_a_run_and_of_its_seeds(tmp_path):
  lines = list(map(json.dumps, POINTS))
  result = make_result(tmp_path, lines)
  assert result.history == POINTS
  assert repr(result) == (
    f"<Result in {tmp_path}: eval_accuracy 0.75, eval_<b>loss 0.5>"
  )
  make_result(tmp_path / "seed-7", lines[:1])
  assert result.history[3:] == [
    {"step": 1, "seed-7/loss": 0.7, "seed-7/learning_rate": 1e-3}
  ]


def test_a_result_stays_where_it_was_when_the_folder_changes(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  result = make_result(pathlib.Path("out"), list(map(json.dumps, POINTS)))
  assert repr(result).startswith("<Result in out: ")
  (tmp_path / "other" / "out").mkdir(parents=True)
  monkeypatch.chdir(tmp_path / "other")
  assert result.history == POINTS


@pytest.mark.parametrize("line", ['{"step": "x"}', "[1]", "{}", "{", "\0"])
def test_damaged_curves_are_no_curves(tmp_path, capfd, line):
  result = make_result(tmp_path, [json.dumps(POINTS[0]), line])
  assert result.history == []
  assert "curves.jsonl is not read, damaged" in capfd.readouterr().err
  assert "eval_accuracy" in result._repr_html_()


def test_a_folder_that_is_gone_or_has_several_models(tmp_path):
  gone = results.Result(str(tmp_path / "gone"), {})
  assert gone.history == []
  assert repr(gone) == f"<Result in {tmp_path}/gone: no scores>"
  assert "<iframe" in gone._repr_html_()
  with pytest.raises(ValueError, match="gone: no such folder"):
    gone.load()
  make_result(tmp_path / "seed-1", [])
  with pytest.raises(ValueError, match="it holds seed-1; expected"):
    results.Result(str(tmp_path), {}).load()


@pytest.mark.skipif(
  not browser.is_installed(), reason="needs chromium and chromedriver"
)
def test_a_notebook_shows_scores_and_the_first_curve(tmp_path):
  """Both within the frame, and nothing of them outside of it."""
  result = make_result(tmp_path, map(json.dumps, POINTS))
  path = tmp_path / "notebook.html"
  path.write_text(f"<!doctype html><p>before</p>{result._repr_html_()}")
  with browser.Browser(f"file://{path}") as page:
    page.wait("document.querySelector('iframe').contentDocument.body.innerText")
    found = page.script(
      "const frame = document.querySelector('iframe');"
      "const inner = frame.contentDocument;"
      "const bottom = (q) => "
      "  inner.querySelector(q).getBoundingClientRect().bottom;"
      "return [document.body.innerText.trim(), frame.clientHeight,"
      "  bottom('table'), bottom('svg'),"
      "  [...inner.querySelectorAll('td')].map((x) => x.innerText)]"
    )
  text, height, table, curve, cells = found
  assert text == "before"
  assert 0 < table < height and 0 < curve < height
  assert cells == ["eval_accuracy", "0.7500", "eval_<b>loss", "0.5000"]
