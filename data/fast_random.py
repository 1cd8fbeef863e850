"""The numbers of Python's `random`, drawn without its checks."""

from collections.abc import Iterable
import random

_LONGEST_CACHED_SHUFFLE = 1024


class Generator(random.Random):
  """Draws the same numbers as `random.Random`, at least twice as fast.

  Its integers are `getrandbits` until one is small enough, since Python 3.2.
  """

  def below(self, limit: int) -> int:
    """Returns randint(0, limit - 1)."""
    bits = limit.bit_length()
    drawn = self.getrandbits(bits)
    while drawn >= limit:
      drawn = self.getrandbits(bits)
    return drawn

  def shuffle(self, items: list) -> None:
    """Shuffles a list in place."""
    getrandbits = self.getrandbits
    for last, bits in _shuffle_steps(len(items)):
      drawn = getrandbits(bits)
      while drawn > last:
        drawn = getrandbits(bits)
      items[last], items[drawn] = items[drawn], items[last]


def _shuffle_steps(length: int) -> Iterable[tuple[int, int]]:
  """Returns the index to be filled and the bits to draw for it, last first."""
  if length <= _LONGEST_CACHED_SHUFFLE:
    return _CACHED_SHUFFLE[_LONGEST_CACHED_SHUFFLE - length :]
  return ((last, (last + 1).bit_length()) for last in range(length - 1, 0, -1))


_CACHED_SHUFFLE = [
  (last, (last + 1).bit_length())
  for last in range(_LONGEST_CACHED_SHUFFLE - 1, 0, -1)
]
