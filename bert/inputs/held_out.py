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
# What an example is drawn by: its labels, and what no other part may have.
Description = tuple[Collection[str], Hashable]


def draw(labels: Sequence[Any], share: float, seed: int) -> list[int]:
  """Draws a share of things, by their numbers; of each label about that share.

  >>> drawn = draw(["ham"] * 80 + ["spam"] * 20, 0.1, seed=1)
  >>> len(drawn), sum(number >= 80 for number in drawn)
  (10, 2)
  """
  random = np.random.default_rng(seed)
  shuffled = random.permutation(len(labels)).tolist()
  order = sorted(shuffled, key=labels.__getitem__)
  # Every tenth thing, if the share is a tenth, from a random one on.
  places = np.floor(np.arange(len(order) + 1) * share + random.random())
  return sorted(order[i] for i in np.flatnonzero(np.diff(places)))


def draw_of_each(
  labels: Sequence[Sequence[str]], share: float, seed: int
) -> list[int]:
  """Draws about a share of the things of each label, at least one, not all.

  A thing with several labels is drawn only from others with all of them.

  >>> draw_of_each([["a"], ["a"], ["b"], ["b"]], 0.2, seed=1)
  [0, 2]
  """
  members: dict[tuple[str, ...], list[int]] = {}
  for number, names in enumerate(labels):
    members.setdefault(tuple(names), []).append(number)
  random, drawn = np.random.default_rng(seed), []
  for names, numbers in sorted(members.items()):
    if len(numbers) == 1 and len(names) == 1:
      raise ValueError(
        f"--eval_share={share}: only one text has the label {names[0]!r}: "
        "expected one to train on and one to evaluate on"
      )
    count = min(max(1, round(share * len(numbers))), len(numbers) - 1)
    drawn += random.permutation(numbers)[:count].tolist()
  return sorted(drawn)


def split(
  data: feature_sets.FeatureSet,
  share: float,
  seed: int,
  describe: Callable[[Any], Description],
  draw: Callable[[Sequence[Any], float, int], list[int]] = draw,
  **others: Any,
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Splits a training set; returns what to train and what to evaluate on.

  Examples with the same second value of `describe` stay together; `draw` takes
  the labels of all that do; `others` are fields of the set to evaluate on.
  """
  groups: dict[bytes, tuple[list[int], set[str]]] = {}
  for number, example in enumerate(data.read()):
    labels, group = describe(example)
    text = repr(group).encode("utf-8", "surrogatepass")
    numbers, found = groups.setdefault(
      hashlib.blake2b(text, digest_size=16).digest(), ([], set())
    )
    numbers.append(number)
    found.update(labels)
  members, kinds = zip(*groups.values(), strict=True)
  drawn = set(draw([sorted(kind) for kind in kinds], share, seed))
  parts: tuple[list[int], list[int]] = ([], [])
  for index, numbers in enumerate(members):
    parts[index in drawn].extend(numbers)
  if not all(parts):
    raise ValueError(
      f"--eval_share={share}: {', '.join(data.paths)} has {len(members):,} "
      "different examples, too few to train on some and to evaluate on others"
    )
  fields = ({}, {"kind": "eval", "name": "held-out examples", **others})
  train, held_out = (
    dataclasses.replace(
      data,
      source={**data.source, "eval_share": [share, seed, number]},
      numbers=frozenset(numbers),
      **fields[number],
    )
    for number, numbers in enumerate(parts)
  )
  return train, held_out


def write(folder: str, data: Any) -> None:
  """Writes the examples of a set that was held out as JSON Lines, if it was."""
  if getattr(data, "numbers", None) is None or data.kind == "train":
    return
  path = os.path.join(folder, _NAME)
  rows = (json.dumps(e._asdict(), ensure_ascii=False) for e in data.examples())
  files.write_lines(path, rows)
  print(f"wrote {path}: {len(data.numbers):,} examples to evaluate on")
