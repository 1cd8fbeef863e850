"""Charts and tables: numbers at their places, text that cannot act."""

import re

import numpy as np
import pytest

from tasks import metrics, plots


def places(svg):
  return [
    (float(x), float(y), title)
    for x, y, title in re.findall(
      r'cx="([\d.]+)" cy="([\d.]+)" r="3"><title>([^<]*)<', svg
    )
  ]


def test_points_are_where_the_axes_say():
  svg = plots.line_chart(
    "Losses", ("step", "nats"), {"loss": [(0, 2.0), (50, 1.0), (100, 0.0)]}
  )
  # From (56, 220), the corner of the axes, to (394, 8).
  assert places(svg) == [
    (56, 8, "loss: 0, 2"),
    (225, 114, "loss: 50, 1"),
    (394, 220, "loss: 100, 0"),
  ]
  assert 'd="M56.0 8.0L225.0 114.0L394.0 220.0"' in svg
  shown = re.findall(r'class="(end|middle)">([^<]*)<', svg)
  assert [n for kind, n in shown if kind == "end"] == "0 0.5 1 1.5 2".split()
  assert [n for kind, n in shown if kind == "middle"] == (
    "0 20 40 60 80 100".split()
  )
  assert ">step</text>" in svg and ">nats</text>" in svg
  assert "<figcaption>Losses</figcaption>" in svg


def test_what_is_not_finite_is_left_out():
  nan, inf = float("nan"), float("inf")
  svg = plots.line_chart(
    "c", ("x", "y"), {"a": [(0, nan), (1, 3), (2, inf)], "b": [(1, nan)]}
  )
  assert [title for *_, title in places(svg)] == ["a: 1, 3"]
  assert "</svg> b" not in svg
  assert plots.line_chart("c", ("x", "y"), {"b": [(1, nan)]}) == ""
  assert plots.line_chart("c", ("x", "y"), {}) == ""


@pytest.mark.parametrize(
  ("value", "other"),
  [
    *((value, value) for value in (0.0, -3.0, 1e-30, 1e30)),
    (0.21924703649019628, 0.21924703649019631),
  ],
)
def test_a_line_of_one_value(value, other):
  svg = plots.line_chart("c", ("x", "y"), {"a": [(1, value), (2, other)]})
  assert [x for x, *_ in places(svg)] == [56, 394]
  assert places(svg)[0][1] == places(svg)[1][1]
  assert "nan" not in svg


def test_many_points_are_averaged_and_dots_are_not():
  points = [(x, x % 2) for x in range(1000)]
  svg = plots.line_chart("c", ("x", "y"), {"a": points})
  assert len(places(svg)) == 200
  assert places(svg)[0][2] == "a: 4, 0.4"
  svg = plots.line_chart("c", ("x", "y"), {"a": points}, joined=False)
  assert len(places(svg)) == 1000 and 'class="line c0" d="M56' not in svg


def test_more_lines_than_colours_are_in_several_charts():
  series = {f"n{i}": [(0, i), (1, i)] for i in range(7)}
  svg = plots.line_chart("c", ("x", "y"), series)
  assert svg.count("<figure>") == 2
  assert "</svg> n5" in svg.split("<figure>")[1]
  assert "</svg> n6" in svg.split("<figure>")[2]


def test_tables():
  cells = ["a", 1234, 0.5, plots.Shaded(3, 0.75), plots.Link("f", "f%20.txt")]
  text = plots.table(["text", "n", "p", "s", "file"], [cells])
  assert re.findall("<td.*?</td>", text) == [
    '<td dir="auto">a</td>',
    '<td class="n">1,234</td>',
    '<td class="n">0.5000</td>',
    '<td class="n" style="--share:0.75">3</td>',
    '<td><a href="f%20.txt">f</a></td>',
  ]
  assert plots.table(["text"], []) == ""
  scores = plots.score_table(["c", "F1"], [["a", 50.0]], best=100.0)
  assert 'style="--share:0.5">50.0000<' in scores


def test_matrix_is_shaded_by_row():
  found = metrics.Confusion(*np.array([[0, 0], [0, 1], [3, 1]]))
  text = plots.confusions(found, ["ham", "spam"])
  cells = re.findall(r'--share:([\d.]+)">(\d+)<', text)
  assert cells == [("0.75", "3"), ("0.25", "1"), ("0", "0"), ("0", "0")]


def test_hostile_text_is_only_text():
  bad = '<script>alert("1")</script>\'&'
  table = plots.table([bad], [[bad], [plots.Link(bad, bad)]])
  chart = plots.line_chart(bad, (bad, bad), {bad: [(1, 2)]})
  page = plots.page(bad, bad, {bad: table + chart, "empty": ""})
  assert "<script" not in page and 'alert("' not in page and "'&" not in page
  assert page.count("&lt;script&gt;") == 15
  assert "empty" not in page


def test_half_a_character_can_be_written():
  page = plots.page("a\ud800b", "", {})
  assert "<h1>a?b</h1>" in page and page.encode()


def test_long_text_is_shortened():
  text = plots.table(["t"], [["x" * 400], ["y" * 401]])
  assert f">{'x' * 400}<" in text and f">{'y' * 400}…<" in text
