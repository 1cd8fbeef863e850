"""report.html: whole, readable in a browser, never in the way of results."""

import json
import re

import numpy as np
import pytest

from bert.cli import run_report, shared_flags
from bert.report import metrics, plots
from bert.training import reporting
import browser


def test_curves_of_what_was_trained_and_evaluated():
  points = [
    {"step": 20, "loss": 1.5, "span_loss": 1.5, "learning_rate": 0.0},
    {"step": 10, "loss": 2.5, "span_loss": 2.5, "learning_rate": 1e-4},
    {"step": 20, "eval/qa/f1": 80.0, "eval/qa/exact_match": 0.0},
    {"step": 20, "eval/accuracy": 0.5, "eval/f1": 0.5, "eval/loss": 1.75},
  ]
  text = run_report.draw_curves(points)
  charts = {
    chart.partition("</figcaption>")[0]: chart
    for chart in text.split("<figcaption>")[1:]
  }
  assert list(charts) == ["Losses", "Scores", "Scores above 1", "Learning rate"]
  assert "<title>loss: 10, 2.5</title>" in charts["Losses"]
  assert "<title>eval/loss: 20, 1.75</title>" in charts["Losses"]
  assert "span_loss" not in text  # It equals the loss.
  assert "<title>eval/accuracy: 20, 0.5</title>" in charts["Scores"]
  assert "<title>eval/f1: 20, 0.5</title>" in charts["Scores"]
  assert "<title>eval/qa/f1: 20, 80</title>" in charts["Scores above 1"]
  assert "<title>eval/qa/exact_match: 20, 0</title>" in charts["Scores above 1"]
  assert run_report.draw_curves([]) == ""


def test_scores_are_beside_the_losses():
  points = [{"step": s, "loss": 9.0 / s, "learning_rate": 0.1} for s in (1, 2)]
  scores = {"eval/loss": 5.0, "eval/f1": 0.5, "eval/recall": 0.4}
  points += [{"step": 2, **scores, "gradient_norm": 1.0}]
  text = run_report.draw_curves(points, ["f1"])
  first, *others = text.split("<figcaption>")[1:]
  assert first.startswith("Losses and scores<")
  assert "<title>eval/loss: 2, 5</title>" in first
  assert "<title>eval/f1: 2, 0.5</title>" in first
  assert "recall" not in first and "<title>eval/recall: 2, 0.4" in others[0]
  assert others[1].startswith("Learning rate and gradient norm<")
  assert len(others) == 2
  both = run_report.draw_curves(points).split("<figcaption>")[1]
  assert "eval/f1" in both and "eval/recall" in both


def test_many_losses_leave_the_scores_beside_their_sum():
  names = ["masked_lm_loss", "next_sentence_loss"]
  values = dict(zip(["loss", *names], (5.0, 4.0, 1.0), strict=True))
  points = [{"step": s, **values, "accuracy": 0.4} for s in (1, 2)]
  scores = {f"eval/{name}": value + 1 for name, value in values.items()}
  points += [{"step": 2, **scores, "eval/accuracy": 0.5}]
  text = run_report.draw_curves(points, ["accuracy"])
  first, second, third = text.split("<figcaption>")[1:]
  assert first.startswith("Losses and scores<") and "masked_lm" not in first
  assert "<title>eval/accuracy: 2, 0.5</title>" in first
  assert "<title>eval/loss: 2, 6</title>" in first
  assert second.startswith("Parts of the loss<")
  assert second.count("</svg> ") == 4
  assert third.startswith("Scores<") and "eval/" not in third


def test_yardsticks_are_lines_beside_their_curves():
  """Those of the evaluation, where a chart has both."""
  points = [{"step": s, "a_loss": 9.0 / s, "a_accuracy": 0.3} for s in (1, 2)]
  points += [{"step": 2, "eval/a_loss": 5.0, "eval/a_accuracy": 0.5}]
  guesses = {
    "a_loss": ("word frequencies", 6.0),
    "eval/a_loss": ("word frequencies", 9.5),
    "a_accuracy": ("the larger class", 0.25),
    "b_accuracy": ("nothing", 0.1),
  }
  first, second = run_report.draw_curves(points, ["a_accuracy"], guesses).split(
    "<figcaption>"
  )[1:]
  assert ">word frequencies: 9.5<" in first and first.count("level-name") == 1
  assert ">the larger class: 0.25<" in second
  assert second.count("level-name") == 1
  # The axis reaches to them.
  assert ">10</text>" in first and ">0.25</text>" not in first


def test_the_scores_of_a_run_are_at_the_top_of_its_report(tmp_path):
  settings = shared_flags.ModelSettings(output_dir=str(tmp_path))
  scores = {"f1": 0.84, "loss": 0.3, "f1_threshold": 2.0, "accuracy": 0.9}
  run_report.write(settings, 0.0, "tagging", {}, scores=scores)
  top = (tmp_path / "report.html").read_text().partition("<nav>")[0]
  assert re.findall(r"<dd>([^<]*)<", top) == ["0.84", "0.9"]


def test_curves_up_to_a_step(tmp_path, capsys):
  path = tmp_path / "curves.jsonl"
  assert reporting.read_curves(str(tmp_path)) == []
  path.write_text('{"step": 1, "loss": NaN}\n{"step": 5, "loss": 2.0}\n')
  assert [p["step"] for p in reporting.read_curves(str(tmp_path), 4)] == [1]
  path.write_text('{"step": 1}\n{"ste')
  assert reporting.read_curves(str(tmp_path)) == []
  assert f"note: {path} is not read, damaged" in capsys.readouterr().err


def write(folder, sections):
  settings = shared_flags.ModelSettings(output_dir=str(folder))
  run_report.write(settings, 0.0, "tagging", sections, "eval_f1 0.9")


def test_a_failure_is_told_and_nothing_more(tmp_path, capsys):
  def fail():
    raise MemoryError("no\nroom")

  with run_report.report_errors_as_notes():
    fail()
  (tmp_path / "file").write_text("")
  write(tmp_path / "file" / "folder", {})
  errors = capsys.readouterr().err.splitlines()
  assert errors[0] == "note: missing in report.html: MemoryError('no\\nroom')"
  assert len(errors) == 2 and "NotADirectoryError" in errors[1]


@pytest.mark.skipif(
  not browser.is_installed(), reason="needs chromium and chromedriver"
)
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_readable_in_a_browser(tmp_path, dark):
  points = [
    {"step": s, "loss": 9.0 / s, "gradient_norm": 1.0} for s in range(1, 90)
  ]
  lines = "".join(json.dumps(point) + "\n" for point in points)
  (tmp_path / "curves.jsonl").write_text(lines)
  (tmp_path / "a file%.txt").write_text("found")
  bad = "<script>document.title = 'bad'</script><img src=x onerror=alert(1)>"
  rows = [[bad * 3, "x" * 300, f"{i}", 0.5] for i in range(3)]
  names = [f"label {i}" for i in range(20)]
  pairs = np.divmod(np.arange(400), 20)
  wide = plots.confusions(
    metrics.Confusion(*pairs, 1000 + np.arange(400)), names
  )
  labels = ["a few words " * 20, "not_equivalent", "not_equivalent", 0.5]
  sections = {"Mistakes": plots.table("abcd", rows), "Confusion": wide}
  write(tmp_path, sections | {"Texts": plots.table("abcd", [labels])})
  address = (tmp_path / "report.html").as_uri()
  with browser.Browser(address, width=390, dark=dark) as page:
    assert page.faults() == []
    assert page.script("return document.title") == f"Report: {tmp_path.name}"
    assert page.script("return document.documentElement.scrollWidth") <= 390
    shown = page.script("return document.body.innerText")
    assert bad * 3 in shown and "; eval_f1 0.9" in shown
    for title in ("Losses", "Mistakes", "Confusion", "Settings", "Versions"):
      assert title in shown
    code = "return getComputedStyle(document.querySelector(arguments[0]))"
    ground = page.script(f"{code}.backgroundColor", "body")
    assert ground == ("rgb(22, 24, 28)" if dark else "rgb(255, 255, 255)")
    line = page.script(f"{code}.stroke", "path.line")
    assert line == ("rgb(86, 180, 233)" if dark else "rgb(0, 114, 178)")
    count = "return document.querySelectorAll('svg circle title').length"
    assert page.script(count) == 2 * 89
    widths = "return [...document.querySelectorAll('td')].filter("
    widths += "cell => /^a few/.test(cell.innerText)).map(c => c.offsetWidth)"
    [width] = page.script(widths)
    assert width > 180
    page.click("table a")
    page.wait("document.body.innerText === 'found'")


def test_the_page_needs_nothing_else(tmp_path):
  write(tmp_path, {})
  text = (tmp_path / "report.html").read_text()
  assert "://" not in text and "src=" not in text and "url(" not in text
  assert "default-src 'none'" in text
