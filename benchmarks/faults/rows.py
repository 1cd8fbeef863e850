"""A row of the table of faults, and how it is filled."""

import sys
import time


class Row:
  """What became of the rounds of one kind of fault.

  Attributes:
    kind: of fault.
    rounds: how often it was made to happen.
    lost: rounds after which something that had been saved was gone.
    recovered: rounds after which the same command went on there and came to the
      end of a run that nothing interrupted, and left no temporary file.
    remarks: what is counted besides, by name.
  """

  def __init__(self, kind: str):
    self.kind, self.rounds, self.lost, self.recovered = kind, 0, 0, 0
    self.remarks: dict[str, int] = {}
    self._start = time.monotonic()

  def note(self, remark: str) -> None:
    """Counts a remark."""
    self.remarks[remark] = self.remarks.get(remark, 0) + 1

  def complain(self, fault: str) -> None:
    """Prints the fault, for whoever has to find its cause."""
    print(f"{self.kind}: round {self.rounds}: {fault}", file=sys.stderr)

  def as_dict(self) -> dict[str, object]:
    """Returns the row as JSON values."""
    seconds = round(time.monotonic() - self._start)
    return {
      **{name: getattr(self, name) for name in COLUMNS},
      "remarks": self.remarks,
      "seconds": seconds,
    }


COLUMNS = ("kind", "rounds", "lost", "recovered")


def as_table(rows: list[dict]) -> str:
  """Returns rows, as `Row.as_dict` makes them, as a table in Markdown."""
  titles = [*COLUMNS, "of them", "seconds"]
  lines = [" | ".join(titles), " | ".join("---" for _ in titles)]
  for row in rows:
    remarks = ", ".join(f"{n} {name}" for name, n in row["remarks"].items())
    cells = [*(row[name] for name in COLUMNS), remarks, row["seconds"]]
    lines.append(" | ".join(map(str, cells)))
  return "\n".join(f"| {line} |" for line in lines)
