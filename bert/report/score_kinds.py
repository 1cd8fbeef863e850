"""The kinds of numbers that runs report, which the ends of their names say."""

from typing import NamedTuple


class Kind(NamedTuple):
  """What names with an ending stand for, and where they are shown."""

  ending: str
  is_better_if_lower: bool = False
  chart: str = "Scores"  # Its title in report.html.
  says_how_good: bool = True  # Whether it may be large at the top of a report.
  is_of_step: bool = False  # A mean over steps would say nothing.
  place: int = 3  # In a line about a training: losses, speed, rate, scores.


KINDS = (
  Kind("loss", True, "Losses", says_how_good=False, place=0),
  Kind("_error", True, "Losses"),
  Kind("perplexity", True, "Perplexity"),
  Kind("temperature", says_how_good=False),
  Kind("_threshold", chart="Thresholds", says_how_good=False),
  Kind("_per_second", place=1),
  Kind("learning_rate", chart="Learning rate", is_of_step=True, place=2),
  Kind("gradient_norm", chart="Gradient norm", is_of_step=True, place=4),
  Kind(""),  # All others.
)


def find(name: str) -> Kind:
  """Returns the kind of a number.

  >>> find("eval/masked_lm_loss").is_better_if_lower
  True
  """
  return next(kind for kind in KINDS if name.endswith(kind.ending))
