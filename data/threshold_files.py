"""Files of thresholds that were tuned, each with the weights it was tuned for.

A file holds {"weights": a checksum, "thresholds": {name: number}}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
import os
import sys
from typing import NamedTuple

from data import files

OF_LABELS = "thresholds.json"  # A multi-label classifier's, by label.
OF_NO_ANSWER = "null_score_diff_threshold.json"  # SQuAD 2.0's.


class Tuned(NamedTuple):
  """The thresholds of a file, in the order in which they were asked for."""

  path: str
  values: list[float]


def write(path: str, weights: str, values: Mapping[str, float]) -> None:
  """Writes thresholds, tuned for the weights of this checksum."""
  files.write_json(path, {"weights": weights, "thresholds": values})
  print(f"wrote {path}")


def read(
  folders: Iterable[str],
  file_name: str,
  names: Sequence[str],
  identify_weights: Callable[[], str],
) -> Tuned | None:
  """Reads the first file that was tuned for the weights; None without one.

  A line on standard error says which other file is not used. A ValueError names
  one that does not hold a number for each name.

  Args:
    identify_weights: returns the checksum of the weights in use.
  """
  paths = [os.path.join(folder, file_name) for folder in dict.fromkeys(folders)]
  for path in filter(files.exists, paths):
    content = files.read_json(path)
    found = content.get("thresholds")
    found = found if isinstance(found, dict) else {}
    values = [found.get(name) for name in names]
    # A bool is no number, and nothing exceeds NaN.
    if not all(type(v) in (int, float) and not math.isnan(v) for v in values):
      raise ValueError(
        f"{path}: expected thresholds with a number for each of "
        f"{', '.join(names)}; delete it and evaluate again"
      )
    if content.get("weights") == identify_weights():
      return Tuned(path, values)
    print(
      f"note: {path} was tuned for other weights and is not used",
      file=sys.stderr,
    )
  return None
