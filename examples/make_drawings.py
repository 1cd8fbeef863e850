"""Draws docs/model.svg and docs/data.svg, in light and dark.

python examples/make_drawings.py
"""

import html
import pathlib

FOLDER = pathlib.Path(__file__).parent.parent / "docs"
_STYLE = """
  svg { background: #fff }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
  .small { font-size: 11px; fill: #59636e }
  .left { text-anchor: start }
  rect { fill: #f6f8fa; stroke: #8c959f; rx: 6px }
  .main { fill: #ddf4ff; stroke: #0969da }
  .frame { fill: none; stroke-dasharray: 5 4 }
  path { fill: none; stroke: #59636e; stroke-width: 1.4; marker-end: url(#tip) }
  #tip path { fill: #59636e; stroke: none }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117 }
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    rect { fill: #151b23; stroke: #656c76 }
    .main { fill: #0c2d6b; stroke: #4493f8 }
    .frame { fill: none }
    path { stroke: #9198a1 }
    #tip path { fill: #9198a1 }
  }
"""


def box(x, y, width, title, note="", kind=""):
  """Draws a box, 40 high, with a title and a smaller note below it.

  Args:
    x: of its left edge, in the units of the page.
    y: of its top.
    width: of the box.
    title: its first line; alone, it stands in the middle.
    note: its second line.
    kind: a class of `_STYLE`, such as "main".
  """
  frame = f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="40"/>'
  middle = x + width / 2
  if not note:
    return frame + write(middle, y + 25, title)
  lines = write(middle, y + 17, title) + write(middle, y + 33, note, "small")
  return frame + lines


def write(x, y, text, kind=""):
  """Writes a line of text.

  Args:
    x: of its middle; with the class "left", of its beginning.
    y: of the line on which letters stand.
    text: the words.
    kind: classes of `_STYLE`.
  """
  return f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>'


def arrow(*points):
  """Draws a line through points (x, y), with a tip at the last one."""
  return f'<path d="M{" L".join(f"{x} {y}" for x, y in points)}"/>'


def page(width, height, title, parts):
  """Returns an SVG file.

  Args:
    width: of the page; viewers scale it.
    height: of the page.
    title: read aloud to people who do not see the picture.
    parts: what `box`, `write` and `arrow` return.
  """
  tip = '<path d="M0 0 L8 4 L0 8 z"/>'
  marker = 'id="tip" viewBox="0 0 8 8" refX="7" refY="4" orient="auto"'
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    f'role="img"><title>{title}</title><style>{_STYLE}</style>'
    f"<defs><marker {marker}>{tip}</marker></defs>{chr(10).join(parts)}</svg>\n"
  )


_POOLED_MODELS = "PretrainingModel, ClassifierModel"


def draw_model():
  """Draws BERT from the ids up, by our names and by the paper's."""
  x = 150
  wide = 380
  middle = x + wide // 2

  # The layers, one box above the other.
  rows = [  # Top, title, note; from the bottom, as in the papers.
    (640, "input_ids, segment_ids, input_mask", "[CLS] text [SEP] pair [SEP]"),
    (560, "Embeddings", "word + segment + position, LayerNorm, dropout"),
    (450, "SelfAttention: query, key, value", "multi-head attention, N heads"),
    (380, "ResidualOutput", "dense, dropout, Add & Norm"),
    (310, "Intermediate", "feed-forward: dense to 4 H, GELU"),
    (240, "ResidualOutput", "dense to H, dropout, Add & Norm"),
  ]
  parts = [
    box(x, y, wide, title, note, "main" if y < 640 else "")
    for y, title, note in rows
  ]
  tops = [y for y, *_ in rows]
  for lower, upper in zip(tops, tops[1:], strict=False):
    parts.append(arrow((middle, lower), (middle, upper + 42)))

  # The residuals: around self-attention, and around the feed-forward part.
  for start, end in ((520, 400), (368, 260)):
    side = x + wide + 24
    parts.append(
      arrow((middle, start), (side, start), (side, end), (x + wide + 2, end))
    )

  # A frame around the parts of one layer, of which there are L.
  parts.append('<rect class="frame" x="110" y="222" width="470" height="286"/>')
  parts.append(write(600, 350, "EncoderLayer", "left"))
  parts.append(write(600, 368, "x L: bert/encoder/layer_0 ...", "small left"))

  # The two outputs of the encoder: every token, and the pooled [CLS].
  parts.append(arrow((middle, 240), (middle, 192)))
  parts.append(box(x, 150, wide, "sequence_output", "[B, S, H]: every token"))
  parts.append(arrow((200, 150), (120, 122)))
  pooled = "dense, tanh of [CLS]: [B, H]"
  parts.append(box(20, 80, 200, "Pooler", pooled, "main"))

  heads = [  # Left, width, where its arrow begins, title, note.
    (20, 200, (120, 80), "next sentence, classes", _POOLED_MODELS),
    (260, 160, (middle, 150), "masked words", "PretrainingModel"),
    (440, 160, (middle, 150), "start and end", "SpanModel"),
    (620, 160, (middle, 150), "tag of each token", "TaggerModel"),
  ]
  for left, width, start, title, note in heads:
    parts.append(box(left, 10, width, title, note))
    parts.append(arrow(start, (left + width // 2, 52)))

  return page(
    800, 700, "BERT: layers by their names here and in the paper", parts
  )


def draw_data():
  """Draws the way of the data through the programs."""
  steps = [  # Column, row, title, note, whether it is a program.
    (0, 0, "text", "a sentence a line", False),
    (0, 1, "create_vocab.py", "or a released vocabulary", True),
    (0, 2, "vocab.txt", "", False),
    (1, 0, "create_pretraining_data.py", "masks words, pairs sentences", True),
    (1, 1, "records", "*.tfrecord", False),
    (1, 2, "run_pretraining.py", "masked words, next sentence", True),
    (2, 2, "checkpoint", "Google's format; or a release", False),
    (2, 1, "run_classifier.py, ...", "fine-tuning", True),
    (2, 0, "examples of the task", "TSV, JSON, CoNLL", False),
    (3, 1, "output folder", "weights, labels, report.html", False),
    (3, 2, "export_saved_model.py", "SavedModel, LiteRT, ONNX", True),
    (3, 3, "predict.py, bert.load, page", "answers", True),
  ]

  # A grid of boxes of 220 x 40: 35 between columns, 40 between rows.
  place = {}
  parts = []
  for column, row, title, note, is_program in steps:
    x, y = 15 + 255 * column, 20 + 80 * row
    place[column, row] = (x, y)
    parts.append(box(x, y, 220, title, note, "main" if is_program else ""))

  # Arrows, as points from the upper left corner of the box they come from.
  down = [(110, 40), (110, 78)]
  up = [(110, 0), (110, -38)]
  right = [(220, 20), (253, 20)]
  around = [(220, 20), (237, 20), (237, -128), (253, -128)]
  for way, boxes in (
    (down, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (3, 1), (3, 2)]),
    (up, [(2, 2)]),
    (right, [(0, 0), (1, 2), (2, 1)]),
    (around, [(0, 2)]),
  ):
    for column_and_row in boxes:
      x, y = place[column_and_row]
      parts.append(arrow(*((x + dx, y + dy) for dx, dy in way)))

  return page(1020, 330, "From texts to answers: files and programs", parts)


DRAWINGS = {"model.svg": draw_model, "data.svg": draw_data}

if __name__ == "__main__":
  for name, draw in DRAWINGS.items():
    FOLDER.joinpath(name).write_text(draw(), encoding="utf-8")
    print(f"wrote {FOLDER / name}")
