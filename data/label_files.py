"""Files of labels: one a line, in the order of the outputs of a head."""

from collections.abc import Sequence

from data import files, tables


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

  They are those of an earlier run at `path`, else those given, in the order of
  the head that training starts from, else that head's; a ValueError if none is
  known, or they differ.

  Args:
    labels, head: () if not known.
    origin: of labels, for a message.
    is_ordered: whether the user gave the order, so that no other will do.
    flag: one that gives labels, for a message.
  """
  arrange = tuple if is_ordered else sorted
  if files.exists(path):
    known = read(path)
    if labels and arrange(labels) != arrange(known):
      raise ValueError(
        f"{path} has the labels {tables.list_names(known)}; {origin} are "
        f"{tables.list_names(labels)}: use another --output_dir"
      )
    return tuple(known)
  labels, head = tuple(labels or head), tuple(head)
  if not labels:
    raise ValueError(
      f"no {path} and no training file: the labels are unknown; pass "
      f"{flag and f'{flag}, or '}the --output_dir of a training, or "
      "--init_checkpoint with one"
    )
  if not head or labels == head:
    return labels
  if arrange(labels) != arrange(head):
    raise ValueError(
      f"--init_checkpoint has a head for the labels {tables.list_names(head)}; "
      f"those of this task are {tables.list_names(labels)}: start from a "
      "checkpoint without a head"
    )
  print(f"labels in the order of --init_checkpoint: {', '.join(head)}")
  return head
