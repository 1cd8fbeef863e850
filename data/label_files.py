"""Files of labels: one a line, in the order of the outputs of a head."""

from collections.abc import Sequence

from data import files


def write(path: str, labels: Sequence[str]) -> None:
  """Writes labels for `read`, one a line, whole or not at all.

  Raises:
    ValueError: a label could not be read back, or occurs twice.
    OSError: the file cannot be written.
  """
  written = set()
  for label in labels:
    if not label or label != label.strip() or "\n" in label:
      raise ValueError(
        f"{path}: cannot hold the label {label[:99]!r}: expected text on one"
        " line, without space around it"
      )
    if label in written:
      raise ValueError(f"{path}: cannot hold the label {label[:99]!r} twice")
    written.add(label)
  files.write_text(path, "".join(f"{label}\n" for label in labels))


def read(path: str) -> list[str]:
  """Reads labels, one a line, in the order of their numbers.

  Raises:
    ValueError: a line is blank or there twice, or the file is empty.
    OSError: the file cannot be read.
  """
  lines = {}
  for number, line in enumerate(files.read_lines(path), 1):
    label = (line.removeprefix("\ufeff") if number == 1 else line).strip()
    if not label:
      raise ValueError(f"{path}:{number}: a blank line; expected a label")
    if label in lines:
      raise ValueError(
        f"{path}:{number}: the label {label[:99]!r} is on line {lines[label]}"
        " too"
      )
    lines[label] = number
  if not lines:
    raise ValueError(f"{path}: holds no label; expected one a line")
  return list(lines)
