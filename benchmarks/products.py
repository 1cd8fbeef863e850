"""Times the matrix products of BERT-Base alone, in TensorFlow and PyTorch.

  python benchmarks/products.py
  python benchmarks/products.py --isa=avx2 --rows=416

Where a library is slow, this says whether its products are. The sizes are those
of the dense layers, for batches of 32 x 13 and 32 x 128 tokens: forward, then
the gradients of the inputs and of the weights. The two take turns, each in a
process of its own; GFLOP/s are medians of the rounds, and the ratio is the
median of the ratios of the rounds. One minute.
"""

import argparse
from collections.abc import Callable
import itertools
import statistics
import sys
import time
from typing import Any

import contest

SHAPES = {"H to H": (768, 768), "H to I": (768, 3072), "I to H": (3072, 768)}
PASSES = ("forward", "inputs", "weights")
LIBRARIES = ("tensorflow", "torch")
SECONDS = 0.2  # How long a turn takes.


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--rows", type=contest.split, default=["416", "4096"])
  parser.add_argument("--rounds", type=int, default=5)
  contest.add_limits(parser)
  options = contest.parse(parser)
  if not contest.is_installed("torch"):
    return 0

  print(f"on {contest.describe_machine()}")
  print("\n| product | TensorFlow | PyTorch | ours is |\n|---|---|---|---|")
  processes = {name: contest.start_process() for name in LIBRARIES}
  work = itertools.product(
    options.precisions, options.rows, SHAPES.items(), PASSES
  )
  for precision, rows, (title, shape), which in work:
    arguments = int(rows), *shape, which, precision
    turns = [
      [
        processes[name].submit(measure, name, *arguments).result()
        for name in LIBRARIES
      ]
      for _ in range(options.rounds)
    ]
    ours, theirs = (statistics.median(x) for x in zip(*turns, strict=True))
    ratio = statistics.median(a / b for a, b in turns)
    name = f"{precision}, {rows} rows, {title}, {which}"
    print(f"| {name} | {ours:.0f} | {theirs:.0f} | {ratio:.2f} |", flush=True)
  for process in processes.values():
    process.shutdown()
  return 0


def measure(
  library: str, rows: int, inner: int, columns: int, which: str, precision: str
) -> float:
  """Returns the GFLOP/s of a product; runs in the process of its library.

  Args:
    library: "tensorflow" or "torch".
    rows, inner, columns: of x, [rows, inner], and y, [inner, columns].
    which: of PASSES: x y, its gradient by y^T, or x^T by its gradient.
    precision: of the numbers.
  """
  multiply = PRODUCTS[library](rows, inner, columns, which, precision)
  multiply()  # The first one packs, or chooses a kernel.
  count, start = 0, time.perf_counter()
  while (seconds := time.perf_counter() - start) < SECONDS:
    multiply()
    count += 1
  return count * 2 * rows * inner * columns / seconds / 1e9


def make_tensorflow(
  rows: int, inner: int, columns: int, which: str, precision: str
) -> Callable[[], Any]:
  """Makes the product as a graph has it."""
  import tensorflow as tf

  x, y, upstream = (
    tf.cast(tf.random.normal(shape), precision)
    for shape in ((rows, inner), (inner, columns), (rows, columns))
  )
  products = {
    "forward": lambda: tf.matmul(x, y),
    "inputs": lambda: tf.matmul(upstream, y, transpose_b=True),
    "weights": lambda: tf.matmul(x, upstream, transpose_a=True),
  }
  return tf.function(products[which])


def make_torch(
  rows: int, inner: int, columns: int, which: str, precision: str
) -> Callable[[], Any]:
  """Makes the product as its dense layer has it, with [columns, inner]."""
  import torch

  kind = getattr(torch, precision)
  x, y, upstream = (
    torch.randn(shape, dtype=kind)
    for shape in ((rows, inner), (columns, inner), (rows, columns))
  )
  products = {
    "forward": lambda: torch.nn.functional.linear(x, y),
    "inputs": lambda: upstream @ y,
    "weights": lambda: upstream.T @ x,
  }
  return products[which]


PRODUCTS = {"tensorflow": make_tensorflow, "torch": make_torch}


if __name__ == "__main__":
  sys.exit(main())
