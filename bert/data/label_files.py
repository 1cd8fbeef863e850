"""Files of labels, and of thresholds that were tuned for certain weights.

Labels stand one a line, in the order of the outputs of a head. Thresholds are
{"weights": a checksum, "thresholds": {name: number}}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
import os
from typing import Any, NamedTuple

from bert.data import files, progress

LABEL_THRESHOLDS = "thresholds.json"  # A multi-label classifier's, by label.
ANSWER_THRESHOLD = "null_score_diff_threshold.json"  # SQuAD 2.0's.


def write(path: str, labels: Sequence[str]) -> None:
  """Writes labels, one a line; a ValueError if `read` would not return them."""
  written = set()
  for label in labels:
    is_line = label and label == label.strip() and not set(label) & set("\r\n")
    fault = f"{path}: cannot hold the label {label[:99]!r}"
    if not is_line or label.startswith("\ufeff"):
      raise ValueError(f"{fault}: expected a line, without space around it")
    if label in written:
      raise ValueError(f"{fault} twice")
    written.add(label)
  files.write_lines(path, labels)


def read(path: str) -> list[str]:
  """Reads labels, one a line, in the order of their numbers."""
  lines = {}
  for number, line in enumerate(files.read_lines(path), 1):
    label = (line.removeprefix("\ufeff") if number == 1 else line).strip()
    if not label:
      raise ValueError(f"{path}:{number}: a blank line; expected a label")
    if label in lines:
      place = f"{path}:{number}: the label {label[:99]!r}"
      raise ValueError(f"{place} is on line {lines[label]} too")
    lines[label] = number
  if not lines:
    raise ValueError(f"{path}: holds no label; expected one a line")
  return list(lines)


class Tuned(NamedTuple):
  """The thresholds of a file, in the order in which they were asked for."""

  path: str
  values: list[float]


def write_thresholds(
  path: str, weights: str, values: Mapping[str, float]
) -> None:
  """Writes thresholds, tuned for the weights of this checksum."""
  files.write_json(path, {"weights": weights, "thresholds": values})
  print(f"wrote {path}")


def read_thresholds(
  folders: Iterable[str],
  file_name: str,
  names: Sequence[str],
  identify_weights: Callable[[], str],
) -> Tuned | None:
  """Reads the first file that was tuned for the weights; None without one.

  A line on standard error says which other file is not used. A ValueError names
  one that does not hold a number for each name.
  """
  paths = [os.path.join(folder, file_name) for folder in dict.fromkeys(folders)]
  for path in filter(files.exists, paths):
    content = files.read_json(path)
    found = content.get("thresholds")
    found = found if isinstance(found, dict) else {}
    values: list[Any] = [found.get(name) for name in names]
    # A bool is no number, and nothing exceeds NaN.
    if not all(type(v) in (int, float) and not math.isnan(v) for v in values):
      raise ValueError(
        f"{path}: expected thresholds with a number for each of "
        f"{', '.join(names)}; delete it and evaluate again"
      )
    if content.get("weights") == identify_weights():
      return Tuned(path, values)
    progress.note(f"note: {path} was tuned for other weights and is not used")
  return None
