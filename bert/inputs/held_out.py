"""Examples of the training data that are held out to evaluate on."""

from collections.abc import Callable, Collection, Hashable, Sequence
import dataclasses
import hashlib
import json
import os
from typing import Any

import numpy as np

from bert.data import files
from bert.inputs import feature_sets

_NAME = "held_out.jsonl"
# The labels of an example, and its group. All examples of a group are trained
# on, or all are held out.
Description = tuple[Collection[str], Hashable]


def draw(labels: Sequence[Any], share: float, seed: int) -> list[int]:
  """Draws a share of things; of each label about that share.

  Args:
    labels: one per thing, of any type that can be sorted.
    share: from 0 to 1.
    seed: of the draw.

  Returns:
    The numbers of the drawn things, ascending.

  >>> drawn = draw(["ham"] * 80 + ["spam"] * 20, 0.1, seed=1)
  >>> len(drawn), sum(number >= 80 for number in drawn)
  (10, 2)
  """
  # Things of one label become neighbours, in random order among themselves:
  # Python's sort is stable.
  random = np.random.default_rng(seed)
  shuffled = random.permutation(len(labels)).tolist()
  order = sorted(shuffled, key=lambda number: labels[number])

  # Every tenth thing, if the share is a tenth, from a random one on. `places`
  # counts in steps of the share; a thing at which it reaches the next whole
  # number is drawn.
  places = np.floor(np.arange(len(order) + 1) * share + random.random())
  return sorted(order[i] for i in np.flatnonzero(np.diff(places)))


def draw_of_each(
  labels: Sequence[Sequence[str]], share: float, seed: int
) -> list[int]:
  """Draws about a share of the things of each label, at least one, not all.

  A thing with several labels is drawn from the things with the same labels.

  Args:
    labels: a list of names per thing.
    share: from 0 to 1.
    seed: of the draw.

  Returns:
    The numbers of the drawn things, ascending.

  >>> draw_of_each([["a"], ["a"], ["b"], ["b"]], 0.2, seed=1)
  [0, 2]
  """
  # The same labels in the same order make a group of their own.
  members: dict[tuple[str, ...], list[int]] = {}
  for number, names in enumerate(labels):
    members.setdefault(tuple(names), []).append(number)

  # Sorted: the draw shall not depend on the label that comes first in the data.
  random = np.random.default_rng(seed)
  drawn = []
  for names, numbers in sorted(members.items()):
    if len(numbers) == 1 and len(names) == 1:
      raise ValueError(
        f"--eval_share={share}: only one text has the label {names[0]!r}: "
        "expected one to train on and one to evaluate on"
      )

    # A group of one with several labels is always trained on.
    count = min(max(1, round(share * len(numbers))), len(numbers) - 1)
    drawn += random.permutation(numbers)[:count].tolist()
  return sorted(drawn)


def split(
  data: feature_sets.FeatureSet,
  share: float,
  seed: int,
  describe: Callable[[Any], Description],
  draw: Callable[[Sequence[Any], float, int], list[int]] = draw,
  **fields: Any,
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Splits a training set in a set to train and a set to evaluate on.

  Args:
    data: the set, whose examples are read once.
    share: of the examples to hold out.
    seed: of the draw.
    describe: the labels of an example, and its group, which stays together.
    draw: takes the labels of each group.
    **fields: of the set to evaluate on.
  """
  # By a digest of each group, so that memory does not hold all texts.
  groups: dict[bytes, tuple[list[int], set[str]]] = {}
  for number, example in enumerate(data.read()):
    labels, group = describe(example)
    text = repr(group).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=16).digest()
    numbers, labels_of_group = groups.setdefault(digest, ([], set()))
    numbers.append(number)
    labels_of_group.update(labels)

  # A group has the labels of all its examples.
  labels = [sorted(labels) for _, labels in groups.values()]
  drawn = set(draw(labels, share, seed))
  train: list[int] = []
  held_out: list[int] = []
  for index, (numbers, _) in enumerate(groups.values()):
    if index in drawn:
      held_out += numbers
    else:
      train += numbers

  # The share was too small, or all examples are of one group.
  if not train or not held_out:
    raise ValueError(
      f"--eval_share={share}: {', '.join(data.paths)} has {len(groups):,} "
      "different examples, too few to train on some and to evaluate on others"
    )

  # The source decides the key of the features, so each part has its own.
  def make_part(part: int, numbers: list[int], **fields: Any):
    source = {**data.source, "eval_share": [share, seed, part]}
    return dataclasses.replace(
      data, source=source, numbers=frozenset(numbers), **fields
    )

  fields = {"kind": "eval", "name": "held-out examples", **fields}
  return make_part(0, train), make_part(1, held_out, **fields)


def write(folder: str, data: Any) -> None:
  """Writes the examples of a set that was held out as JSON Lines, if it was."""
  if getattr(data, "numbers", None) is None or data.kind == "train":
    return

  # The lines show a user which examples the scores are of.
  path = os.path.join(folder, _NAME)
  rows = (json.dumps(e._asdict(), ensure_ascii=False) for e in data.examples())
  files.write_lines(path, rows)
  print(f"wrote {path}: {len(data.numbers):,} examples to evaluate on")
