"""Draws docs/demo.svg, how a model learns to guess words during `make demo`.

  make demo
  python examples/draw_demo.py

reads demo_output/ and writes the picture. The line is the accuracy on the text
that the model trains on. The dotted lines are two accuracies on other text: the
trained model's, and the accuracy of always guessing the most frequent token.
"""

import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

import pretrain_pydoc

from bert.report import charts

STYLE = FOLDER.parent / "bert" / "report" / "report.css"
TITLE = "Masked words guessed right during the demo"
LEGEND = "The line: on the text that the model trains on"


def draw(trained: list[tuple[float, float]], levels: dict[str, float]) -> str:
  """Returns the picture as an SVG file that needs no other file.

  Args:
    trained: steps, and the percentage of masked words guessed right in the
      batches before each.
    levels: percentages to compare with, by name.
  """
  scale = charts.Scale(TITLE, "% guessed right", {"training": trained}, levels)
  figure = charts.line_chart("training step", scale)

  # A figure has a title and a legend in HTML, around the SVG of the axes. A
  # picture in a Markdown page is the SVG alone: the title becomes text in it.
  # Nothing can hover over a picture either, so the points are left out.
  axes = figure[figure.rindex("<svg") :].removesuffix("</figure>")
  axes = re.sub(r"<circle.*?</circle>", "", axes)
  _, _, body = axes.partition(">")
  style = STYLE.read_text(encoding="utf-8")
  style += "svg { background: var(--back); font-family: system-ui, sans-serif }"
  return (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -40 420 300" '
    f'width="630" height="450" role="img"><title>{TITLE}</title>\n'
    f"<style>{style}</style>\n"
    f'<text x="210" y="-22" class="middle name">{TITLE}</text>\n'
    f'<text x="210" y="-6" class="middle">{LEGEND}</text>\n{body}\n'
  )


def main() -> None:
  folder = pathlib.Path("demo_output")
  curves = folder / "pretrained" / "curves.jsonl"
  if not curves.is_file():
    sys.exit(f"{curves} is missing: run `make demo` first")
  rows = [json.loads(line) for line in curves.read_text().splitlines()]
  trained = [(row["step"], 100 * row["masked_lm_accuracy"]) for row in rows]

  # The demo evaluates at the end, on a tenth of the manual held out for this.
  lines = (folder / "pretrained" / "eval_results.txt").read_text().splitlines()
  scores = dict(line.split(" = ") for line in lines)
  _, frequency, _ = pretrain_pydoc.frequency_baseline(folder)
  levels = {
    "on other text": 100 * float(scores["masked_lm_accuracy"]),
    "most frequent token": 100 * frequency,
  }

  path = FOLDER.parent / "docs" / "demo.svg"
  path.write_text(draw(trained, levels), encoding="utf-8")
  print(f"wrote {path}")


if __name__ == "__main__":
  main()
