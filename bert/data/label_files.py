"""Files of labels, and of numbers that were tuned for certain weights.

Labels stand one a line, in the order of the outputs of a head. Those of a run
are chosen here from its folder, its data or its first weights. Thresholds are
{"weights": a checksum, "thresholds": {name: number}}, and a temperature is
{"weights": a checksum, "softmax": {"temperature": number}}.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import math
import os
import re
from typing import Any, NamedTuple

from bert.data import file_search, files, messages, progress

LABEL_THRESHOLDS = "thresholds.json"  # A multi-label classifier's, by label.
ANSWER_THRESHOLD = "null_score_diff_threshold.json"  # SQuAD 2.0's.
TEMPERATURE = "temperature.json"  # A single-label classifier's.
TUNED = (LABEL_THRESHOLDS, ANSWER_THRESHOLD, TEMPERATURE)
# As bert/weights/checkpoints.py, which needs TensorFlow, names them.
_CHECKPOINT = re.compile(r"model\.ckpt-\d+\.index")


def write(path: str, labels: Sequence[str]) -> None:
  """Writes labels, one a line; a ValueError if `read` would not return them."""
  # `read` strips lines and drops a byte-order mark: a label with either would
  # come back as another one.
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
      fault = f"{place} is on line {lines[label]} too"
      raise ValueError(f"{fault}; expected each label once")
    lines[label] = number

  if not lines:
    raise ValueError(f"{path}: holds no label; expected one a line")
  return list(lines)


class Tuned(NamedTuple):
  """The numbers of a file, in the order in which they were asked for."""

  path: str
  values: list[float]


def write_tuned(
  path: str,
  weights: str,
  values: Mapping[str, float],
  field: str = "thresholds",
) -> None:
  """Writes numbers and the weights that they were tuned for.

  Args:
    path: of the new file.
    weights: a checksum of the weights.
    values: by name, such as the threshold of each label.
    field: what holds them in the file.
  """
  files.write_json(path, {"weights": weights, field: values})
  print(f"wrote {path}")


def read_tuned(
  folders: Iterable[str],
  file_name: str,
  names: Sequence[str],
  identify_weights: Callable[[], str],
  field: str = "thresholds",
) -> Tuned | None:
  """Reads the first file that was tuned for the weights; None without one.

  A line on standard error names each file that is not used.

  Args:
    folders: where to look, the best one first. The same folder may come twice.
    file_name: `LABEL_THRESHOLDS`, `ANSWER_THRESHOLD` or `TEMPERATURE`.
    names: whose numbers are needed, in this order.
    identify_weights: computes the checksum of the weights. It is called only if
      there is a file, since it reads all weights.
    field: what holds them in the file.

  Raises:
    ValueError: a file does not hold a number for each name.
  """
  paths = [os.path.join(folder, file_name) for folder in dict.fromkeys(folders)]
  for path in filter(files.exists, paths):
    content = files.read_json(path)
    numbers = content.get(field)
    if not isinstance(numbers, dict):
      numbers = {}

    # A bool is no number, and nothing exceeds NaN.
    values: list[Any] = [numbers.get(name) for name in names]
    if not all(type(v) in (int, float) and not math.isnan(v) for v in values):
      raise ValueError(
        f"{path}: expected {field} with a number for each of "
        f"{', '.join(names)}; delete it and evaluate again"
      )

    # A training that went on since then has changed the weights.
    if content.get("weights") == identify_weights():
      return Tuned(path, values)
    progress.note(f"note: {path} was tuned for other weights and is not used")
  return None


def are_of_weights(path: str) -> bool:
  """Returns whether a file of labels has the order of the weights beside it.

  A user may also write the file before the training. But a run that only
  evaluated other weights, or ended before it had any, has left one, too.
  """
  if not files.exists(path):
    return False
  names = file_search.list_folder(os.path.dirname(path) or ".")
  has_weights = "best" in names or any(map(_CHECKPOINT.fullmatch, names))
  return has_weights or "settings.json" not in names


def choose(
  path: str,
  labels: Sequence[str],
  *,
  origin: str,
  head: Sequence[str] = (),
  is_ordered: bool = False,
  flag: str = "",
) -> tuple[str, ...]:
  """Returns the labels of a run, in the order of the outputs of its model.

  The labels of an earlier run at `path` count most, if its weights have learned
  this order. Else `labels` count, put into the order of `head` if there is one,
  and without them `head` itself.

  Args:
    path: the file of labels in the output folder.
    labels: given by the user, or found in the data; may be empty.
    origin: where `labels` come from, for messages.
    head: the labels of the weights that training starts from; empty if they
      have no head.
    is_ordered: the user gave `labels` in this order: the same labels in another
      order are an error.
    flag: a flag that gives labels, for messages.

  Raises:
    ValueError: no labels are known, or they differ.
  """
  arrange = tuple if is_ordered else sorted
  if are_of_weights(path) or (files.exists(path) and not (labels or head)):
    earlier = read(path)
    if labels and arrange(labels) != arrange(earlier):
      raise ValueError(
        f"{path} has the labels {messages.list_names(earlier)}; {origin} are "
        f"{messages.list_names(labels)}: use another --output_dir"
      )
    return tuple(earlier)

  labels = tuple(labels or head)
  head = tuple(head)
  if not labels:
    raise ValueError(
      f"no {path} and no training file: the labels are unknown; pass "
      f"{flag and f'{flag}, or '}the --output_dir of a training, or "
      "--init_checkpoint with one"
    )

  # The outputs of a head keep their labels: only the order may have to change.
  if not head or labels == head:
    return labels
  if arrange(labels) != arrange(head):
    raise ValueError(
      "--init_checkpoint has a head for the labels "
      f"{messages.list_names(head)}; those of this task are "
      f"{messages.list_names(labels)}: start from a checkpoint without a head"
    )
  print(f"labels in the order of --init_checkpoint: {', '.join(head)}")
  return head
