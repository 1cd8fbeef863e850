"""Trains 1,000 updates beside the original, and draws how far it stays away.

  python benchmarks/trajectory.py --svg=docs/trajectory.svg

The original, with TensorFlow 1.15, pre-trained a small BERT without dropout
for 1,000 updates, and kept its batches, all its losses, and its weights after
0, 1, 10, 100 and 1,000 updates: ../shared/golden/trajectory. This script starts
from the same weights, takes the same batches, and prints for each mark

  distance = |ours - the original's| / |the original's|

of all weights as one vector but the key biases, whose gradient is 0 but for
rounding. Beside it stands the distance of the original from itself, which ran
again on another processor, and again from a start one unit in the last place
away. Takes about a minute for each of the two models that it trains: the plain
one of modeling.py and the one of bert/encoders/compiled.py, which programs use.
"""

import argparse
from collections.abc import Mapping
import os
import pathlib
import sys
import tempfile
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
import tensorflow as tf

from bert import heads, modeling, optimization, run_pretraining
from bert.encoders import compiled, encoder_table
from bert.inputs import training_input
from bert.training import loop, reporting, training_plan
from bert.weights import checkpoints

GOLDEN = ROOT.parent / "shared" / "golden" / "trajectory"
MODELS = {"plain": modeling.BertModel, "compiled": compiled.BertModel}
MARKS = (1, 10, 100, 1000)
BATCH_SIZE = 16
LEARNING_RATE = 1e-3
CONFIG = modeling.BertConfig(
  vocab_size=2000,
  hidden_size=64,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=256,
  max_position_embeddings=64,
  type_vocab_size=2,
  hidden_dropout_prob=0.0,
  attention_probs_dropout_prob=0.0,
)

# The original from itself, as ../shared/golden/README.md has it.
ITSELF = {
  "another processor": (2.7e-8, 3.9e-7, 1.2e-6, 1.5e-6),
  "one unit in the last place": (8.8e-8, 3.0e-7, 1.2e-6, 1.4e-6),
}


class Trajectory(NamedTuple):
  """What a training of 1,000 updates leaves."""

  losses: np.ndarray  # [updates]: masked words and next sentence, added up.
  distances: dict[int, float]  # From the original, by the mark.
  largest: float  # The largest difference of a loss from the original's.


def train(folder: str, model_class: type, device: str = "") -> Trajectory:
  """Makes the original's 1,000 updates, and compares at every mark.

  Args:
    folder: an empty one, for checkpoints and curves.
    model_class: one of MODELS.
    device: of TensorFlow, such as "gpu:0"; "": the one it chooses.
  """
  golden = np.load(GOLDEN / "weights.npz")
  # The heads' model makes the encoder that this table names.
  classes = encoder_table.EncoderClasses(modeling.BertConfig, model_class)
  programs_own = encoder_table.ENCODERS["transformer"]
  encoder_table.ENCODERS["transformer"] = classes
  try:
    with tf.device(device):
      task = _make_task(folder, golden)
      distances = {}
      for mark in MARKS:
        # A loop ends with the mark, and the next one resumes from its weights.
        # A call of one update at a time keeps the loss of each.
        plan = training_plan.TrainingPlan(
          folder, mark, BATCH_SIZE, iterations_per_loop=1
        )
        task = task._replace(plan=plan)
        loop.train(tf.distribute.get_strategy(), {"": task}, plan)
        distances[mark] = _distance(folder, mark, golden)
  finally:
    encoder_table.ENCODERS["transformer"] = programs_own

  losses = np.array([point["loss"] for point in reporting.read_curves(folder)])
  largest = float(np.abs(losses - golden["losses"][:, 0]).max())
  return Trajectory(losses, distances, largest)


def _make_task(folder, golden) -> training_plan.TrainingTask:
  """Makes model, optimizer and input, with the original's first weights."""
  model = heads.PretrainingModel(CONFIG)
  for name, variable in checkpoints.model_variables(model).items():
    variable.assign(golden[f"0/{name}"])
  variables = model.trainable_variables
  optimizer = optimization.AdamWeightDecayOptimizer(
    variables,
    # Constant, where programs have warm-up and decay.
    rate_at=lambda step: tf.constant(LEARNING_RATE),
    rate_scales=[1.0] * len(variables),
    first_steps=[0] * len(variables),
    corrects_bias=False,
  )
  plan = training_plan.TrainingPlan(folder, MARKS[0], BATCH_SIZE)
  return training_plan.TrainingTask(
    model, optimizer, run_pretraining.loss, _make_input(), plan
  )


def _make_input() -> training_input.TrainingInput:
  """Reads the original's rows in its order."""
  table = {
    name: tf.constant(
      value.astype(np.float32 if name == "masked_lm_weights" else np.int32)
    )
    for name, value in np.load(GOLDEN / "batches.npz").items()
  }
  count = len(table["input_ids"])

  def rows(skip):
    numbers = tf.data.Dataset.range(skip, count)
    return numbers.map(lambda i: (i, tf.strings.as_string(i)))

  def parse(serialized):
    row = tf.strings.to_number(serialized, tf.int32)
    return {name: tf.gather(value, row) for name, value in table.items()}

  return training_input.TrainingInput(
    rows=rows,
    parse=parse,
    describe_row=lambda row: f"row {row}",
    find_fault=lambda: None,
  )


def _distance(folder: str, mark: int, golden: Mapping[str, np.ndarray]):
  """Compares a checkpoint with the original's weights after as many updates."""
  ours = dict(checkpoints.read(f"{folder}/model.ckpt-{mark}"))
  difference, size = 0.0, 0.0
  for key in golden.keys():
    step, _, name = key.partition("/")
    if step == str(mark) and not name.endswith("key/bias"):
      theirs = golden[key].astype(np.float64)
      difference += np.sum((ours[name] - theirs) ** 2)
      size += np.sum(theirs**2)
  return float(np.sqrt(difference / size))


def make_table(runs: Mapping[str, Trajectory]) -> str:
  """Writes the distances as a table in Markdown."""
  rows = [
    ["updates", *(f"{mark:,}" for mark in MARKS)],
    ["---"] * (1 + len(MARKS)),
  ]
  for name, distances in ITSELF.items():
    rows.append([f"the original, {name}", *(f"{d:.1e}" for d in distances)])
  for name, run in runs.items():
    distances = [f"{run.distances[mark]:.1e}" for mark in MARKS]
    rows.append([f"this project, {name} model", *distances])
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)


# The picture: two axes above each other, in pixels.
_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _GAP = 70, 20, 50
_STYLE = """
  svg { background: #fff }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .tick { fill: #59636e; font-size: 11px }
  .grid { stroke: #d1d9e0; fill: none }
  .original { stroke: #8c959f; fill: none; stroke-width: 3 }
  .again { stroke: #8c959f; fill: none; stroke-dasharray: 2 3 }
  .plain { stroke: #bc4c00; fill: none }
  .compiled { stroke: #0969da; fill: none }
  .dot { fill: #0969da; opacity: .25 }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117 }
    text { fill: #f0f6fc }
    .tick { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .plain { stroke: #f0883e }
    .compiled { stroke: #4493f8 }
    .dot { fill: #4493f8 }
  }
"""


class _Axes(NamedTuple):
  """A pair of axes, which places numbers on the picture."""

  top: float
  x: tuple[float, float]  # The numbers at the left and right ends.
  y: tuple[float, float]  # At the bottom and top.

  def path(self, kind: str, xs, ys) -> str:
    """Draws a line through points."""
    points = [
      f"{a:.1f} {b:.1f}" for a, b in zip(*self._places(xs, ys), strict=True)
    ]
    return f'<path class="{kind}" d="M{" L".join(points)}"/>'

  def dots(self, kind: str, xs, ys, radius: float) -> str:
    """Draws a dot for each point."""
    circle = '<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>'
    places = zip(*self._places(xs, ys), strict=True)
    return "".join(circle.format(kind, a, b, radius) for a, b in places)

  def grid(self, title: str, x_ticks: dict, y_ticks: dict) -> str:
    """Draws lines at numbers, each with its text, and the title above."""
    drawn = f'<text x="{_LEFT}" y="{self.top - 12}">{title}</text>'
    right, bottom = _WIDTH - _RIGHT, self.top + _HEIGHT
    for number, text in y_ticks.items():
      _, [y] = self._places([self.x[0]], [number])
      drawn += f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
      drawn += (
        f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" '
        f'text-anchor="end">{text}</text>'
      )
    for number, text in x_ticks.items():
      [x], _ = self._places([number], [self.y[0]])
      drawn += (
        f'<text class="tick" x="{x:.1f}" y="{bottom + 16}" '
        f'text-anchor="middle">{text}</text>'
      )
    return drawn

  def _places(self, xs, ys):
    across = (np.asarray(xs) - self.x[0]) / (self.x[1] - self.x[0])
    up = (np.asarray(ys) - self.y[0]) / (self.y[1] - self.y[0])
    width = _WIDTH - _LEFT - _RIGHT
    return _LEFT + across * width, self.top + (1 - up) * _HEIGHT


def draw(runs: Mapping[str, Trajectory]) -> str:
  """Draws the losses, and below them the distances, both axes logarithmic."""
  theirs = np.load(GOLDEN / "weights.npz")["losses"][:, 0]
  steps = np.arange(1, len(theirs) + 1)
  lowest, highest = np.floor(theirs.min()), np.ceil(theirs.max())
  upper = _Axes(_GAP, (0, len(theirs)), (lowest, highest))
  drawn = upper.grid(
    "Loss: the original (wide, grey) and this project (thin)",
    {step: f"{step:,}" for step in range(0, len(theirs) + 1, 200)},
    {n: f"{n:g}" for n in np.arange(lowest, highest + 1)},
  )
  drawn += upper.path("original", steps, theirs)
  drawn += upper.path("compiled", steps, runs["compiled"].losses)

  lower = _Axes(2 * _GAP + _HEIGHT + 30, (0, 3), (-8, -5))
  drawn += lower.grid(
    "Distance of the weights (lines; dotted: the original from itself), and of"
    " each loss (dots)",
    {power: f"{10**power:,}" for power in range(4)},
    {power: f"1e{power}" for power in range(-8, -4)},
  )
  apart = np.abs(runs["compiled"].losses - theirs)
  shown = apart > 1e-8  # Equal losses have no logarithm.
  drawn += lower.dots(
    "dot", np.log10(steps[shown]), np.log10(apart[shown]), 1.3
  )
  for distances in ITSELF.values():
    drawn += lower.path("again", np.log10(MARKS), np.log10(distances))
  for name, run in runs.items():
    heights = [run.distances[mark] for mark in MARKS]
    drawn += lower.path(name, np.log10(MARKS), np.log10(heights))
  height = lower.top + _HEIGHT + 30
  return (
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
    'role="img"><title>1,000 updates beside the original</title>'
    f"<style>{_STYLE}</style>\n{drawn}</svg>\n"
  )


def main() -> None:
  parser = argparse.ArgumentParser(description="See the top of the file.")
  parser.add_argument("--svg", type=pathlib.Path, help="where to draw")
  parser.add_argument(
    "--device", default="", help="of TensorFlow, such as gpu:0"
  )
  arguments = parser.parse_args()
  if not GOLDEN.is_dir():
    sys.exit(f"{GOLDEN}: not there, and nothing else has the original's run")

  runs = {}
  for name, model_class in MODELS.items():
    print(f"training the {name} model", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
      runs[name] = train(folder, model_class, arguments.device)
  print(make_table(runs))
  for name, run in runs.items():
    print(f"largest difference of a loss, {name} model: {run.largest:.1e}")
  if arguments.svg:
    arguments.svg.write_text(draw(runs), encoding="utf-8")
    print(f"wrote {arguments.svg}")


if __name__ == "__main__":
  main()
