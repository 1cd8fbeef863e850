"""Runs a program with no dropout in its head, where no flag can set it to 0.

  python without_dropout.py PROGRAM.py --flag=...

Its masks are not the same on one device as on two.
"""

import pathlib
import runpy
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert.cli import program  # noqa: E402, F401  Quietens TensorFlow's log.

# isort: split
from bert import modeling

if __name__ == "__main__":
  modeling.dropout = lambda x, rate, seed: x
  sys.argv = sys.argv[1:]
  runpy.run_path(sys.argv[0], run_name="__main__")
