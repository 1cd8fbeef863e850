"""Charts and tables: numbers at their places, text that cannot act."""

import re

import numpy as np
import pytest

from bert.report import charts, metrics, plots


def places(svg):
  return [
    (float(x), float(y), title)
    for x, y, title in re.findall(
      r'cx="([\d.]+)" cy="([\d.]+)" r="3"><title>([^<]*)<', svg
    )
  ]


def draw(lines, **options):
  return charts.line_chart("x", charts.Scale("c", "y", lines), **options)


def test_points_are_where_the_axes_say():
  lines = {"loss": [(0, 2.0), (50, 1.0), (100, 0.0)]}
  svg = charts.line_chart("step", charts.Scale("Losses", "nats", lines))
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


def test_axes_end_near_the_data():
  svg = draw({"loss": [(1, 1.21), (112, 0.1)]})
  # 112 and 1.21 are at the ends, not 120 or 150, nor 1.4.
  assert places(svg)[0][1] == 8 and places(svg)[1][0] == 394
  shown = re.findall(r'class="(end|middle)">([^<]*)<', svg)
  assert [n for kind, n in shown if kind == "middle"] == "0 50 100".split()
  assert [n for kind, n in shown if kind == "end"] == "0 0.5 1".split()


def test_a_smoothed_line_over_its_points():
  wave = {"loss": [(x, 1 + x % 2) for x in range(100)]}
  svg = draw(wave, smoothed=["loss"])
  raw = re.search(r'class="raw c0" d="M([^"]*)"', svg)[1].split("L")
  smooth = re.search(r'class="line c0" d="M56[^"]*"', svg)[0].split("L")
  assert len(raw) == len(smooth) == 100 == len(places(svg))
  heights = [float(place.strip('"').split()[-1]) for place in smooth[1:]]
  spread = max(y for _, y, _ in places(svg)) - min(y for _, y, _ in places(svg))
  assert max(heights) - min(heights) < spread / 4
  assert 'class="dot ' in svg and 'class="dot c0"' not in svg
  few = draw({"a": [(1, 2)]}, smoothed=["a"])
  assert "raw" not in few


def test_a_second_scale_at_the_right():
  def draw_both(left, right):
    left = charts.Scale("Losses", "loss", left)
    return charts.line_chart("step", left, charts.Scale("Scores", "f", right))

  left, right = {"loss": [(0, 0), (10, 2)]}, {"f1": [(0, 0.5), (10, 1.0)]}
  svg = draw_both(left, right)
  assert svg.count("<figure>") == 1 and "Losses and scores<" in svg
  assert "</svg> f1 →<" in svg and "</svg> loss<" in svg
  assert places(svg) == [
    (56, 220, "loss: 0, 0"),
    (364, 8, "loss: 10, 2"),
    (56, 220, "f1: 0, 0.5"),
    (364, 8, "f1: 10, 1"),
  ]
  assert re.findall(r'class="start">([^<]*)<', svg)[0] == "0.5"
  right = {f"score {i}": [(0, i)] for i in range(6)}
  assert draw_both(left, right).count("<figure>") == 2
  assert draw_both({}, right).count("<figure>") == 1
  assert draw_both({}, {}) == ""


def test_scores_are_large_at_the_top():
  page = plots.page("a", "b", {"Part": "c"}, {"macro_f1": 0.84321, "f1": 71.0})
  top = page.partition("<nav>")[0]
  assert "<dt>macro f1</dt><dd>0.843</dd>" in top and "<dd>71</dd>" in top
  assert '<dl class="tiles">' not in plots.page("a", "b", {"Part": "c"})


def test_what_is_not_finite_is_left_out():
  nan, inf = float("nan"), float("inf")
  svg = draw({"a": [(0, nan), (1, 3), (2, inf)], "b": [(1, nan)]})
  assert [title for *_, title in places(svg)] == ["a: 1, 3"]
  assert "</svg> b" not in svg
  assert draw({"b": [(1, nan)]}) == ""
  assert draw({}) == ""


@pytest.mark.parametrize(
  ("value", "other"),
  [
    *((value, value) for value in (0.0, -3.0, 1e-30, 1e30)),
    (0.21924703649019628, 0.21924703649019631),
  ],
)
def test_a_line_of_one_value(value, other):
  svg = draw({"a": [(1, value), (2, other)]})
  assert [x for x, *_ in places(svg)] == [56, 394]
  assert places(svg)[0][1] == places(svg)[1][1]
  assert "nan" not in svg


def test_many_points_are_averaged_and_dots_are_not():
  points = [(x, x % 2) for x in range(1000)]
  svg = draw({"a": points})
  assert len(places(svg)) == 200
  assert places(svg)[0][2] == "a: 4, 0.4"
  svg = draw({"a": points}, joined=False)
  assert len(places(svg)) == 1000 and 'class="line c0" d="M56' not in svg


def test_more_lines_than_colours_are_in_several_charts():
  series = {f"n{i}": [(0, i), (1, i)] for i in range(7)}
  svg = draw(series)
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
  assert 'style="--share:0.125">50.0000<' in scores


def test_scores_that_differ_have_shades_that_differ():
  text = plots.score_table(["label", "F1"], [["LOC", 0.84], ["PER", 0.73]])
  first, second = map(float, re.findall(r"--share:([\d.]+)", text))
  assert first - second > 0.2


def test_matrix_is_shaded_by_row():
  found = metrics.Confusion(*np.array([[0, 0], [0, 1], [3, 1]]))
  text = plots.confusions(found, ["ham", "spam"])
  cells = re.findall(r'--share:([\d.]+)">(\d+)<', text)
  assert cells == [("0.75", "3"), ("0.25", "1"), ("0", "0"), ("0", "0")]


def test_hostile_text_is_only_text():
  bad = '<script>alert("1")</script>\'&'
  table = plots.table([bad], [[bad], [plots.Link(bad, bad)]])
  scale = charts.Scale(bad, bad, {bad: [(1, 2)]})
  chart = charts.line_chart(bad, scale)
  page = plots.page(bad, bad, {bad: table + chart, "empty": ""})
  assert "<script" not in page and 'alert("' not in page and "'&" not in page
  # Title, h1, summary, link to the section, h2; in the table the header, the
  # text, the link's text and address; in the chart the caption, the key, the
  # label, the names of two axes and the title of the point.
  assert page.count("&lt;script&gt;") == 15
  assert "empty" not in page


def test_half_a_character_can_be_written():
  page = plots.page("a\ud800b", "", {})
  assert "<h1>a?b</h1>" in page and page.encode()


def test_long_text_is_shortened():
  text = plots.table(["t"], [["x" * 400], ["y" * 401]])
  assert f">{'x' * 400}<" in text and f">{'y' * 400}…<" in text
