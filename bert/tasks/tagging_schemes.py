"""Entities as tags of words: IOB1, IOB2 (BIO), IOBES, BMES, BILOU, BMEWO."""

from collections.abc import Iterable, Mapping, Sequence
import re
from typing import NamedTuple

# The prefixes of each scheme, besides O: of the first word of an entity, of a
# word in its middle, of the last word, and of an only word. IOB1 and IOB2 have
# two: IOB2 begins every entity with B, IOB1 only one that follows another of
# its type.
SCHEMES = {
  "iob1": "BI",
  "iob2": "BI",
  "iobes": "BIES",
  "bmes": "BMES",
  "bilou": "BILU",
  "bmewo": "BMEW",
}
_PREFIXES = "".join(sorted(set("".join(SCHEMES.values()))))
_STARTS, _ENDS = set("BSUW"), set("ELSUWO")
NO_SCHEME = "none"  # Labels that mark no entities, such as parts of speech.


class Entity(NamedTuple):
  """Consecutive words that name one thing, such as a person."""

  type: str  # "" where tags have none.
  start: int  # Its first word.
  end: int  # The word after its last one.


def find_entities(tags: Iterable[str]) -> list[Entity]:
  """Reads the entities of a sentence from its tags, as `conlleval` does.

  A new entity starts at B or S, after E, S or O, and where the type changes;
  other prefixes are ignored. So any tags can be read, in any of the schemes; U
  and W are other names of S, and L of E.

  >>> find_entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"])
  ... # doctest: +NORMALIZE_WHITESPACE
  [Entity(type='PER', start=0, end=2), Entity(type='LOC', start=3, end=4),
   Entity(type='LOC', start=4, end=5)]
  """
  entities: list[Entity] = []
  last_prefix = "O"
  last_type = ""
  for index, tag in enumerate(tags):
    prefix, _, type = tag.partition("-")
    is_new = prefix in _STARTS or last_prefix in _ENDS
    if prefix != "O":
      if is_new or type != last_type:
        entities.append(Entity(type, index, index + 1))
      else:
        entities[-1] = entities[-1]._replace(end=index + 1)
    last_prefix = prefix
    last_type = type
  return entities


def convert_tags(tags: Sequence[str], scheme: str) -> tuple[str, ...]:
  """Writes the entities of tags in a scheme; NO_SCHEME leaves tags as they are.

  >>> convert_tags(["I-PER", "I-PER", "B-PER", "O", "I-LOC"], "bmes")
  ('B-PER', 'E-PER', 'S-PER', 'O', 'S-LOC')
  """
  if scheme == NO_SCHEME:
    return tuple(tags)

  converted = ["O"] * len(tags)
  last = Entity("", -1, -1)  # Touches none.
  for entity in find_entities(tags):
    suffix = f"-{entity.type}" if entity.type else ""
    prefixes = _prefixes(scheme, entity, last)
    converted[entity.start : entity.end] = [p + suffix for p in prefixes]
    last = entity
  return tuple(converted)


def _prefixes(scheme: str, entity: Entity, last: Entity) -> str:
  """Returns a letter for each word of an entity; `last` is the one before."""
  length = entity.end - entity.start
  if scheme == "iob1":
    touches = last.end == entity.start and last.type == entity.type
    return ("B" if touches else "I") + "I" * (length - 1)
  if scheme == "iob2":
    return "B" + "I" * (length - 1)
  first, middle, end, only = SCHEMES[scheme]
  return only if length == 1 else first + middle * (length - 2) + end


def fits(tag: str, scheme: str) -> bool:
  """Returns whether a scheme has a tag.

  >>> fits("B-LOC", "iob2"), fits("E-LOC", "iob2"), fits("O-LOC", "iob2")
  (True, False, False)
  """
  if scheme == NO_SCHEME:
    return bool(tag)
  return bool(re.fullmatch(rf"O|[{SCHEMES[scheme]}](-.+)?", tag))


def describe(scheme: str) -> str:
  """Describes the tags of a scheme for an error message.

  >>> describe("iob2")
  'O, or B- or I- and a type'
  """
  if scheme == NO_SCHEME:
    return "a label"
  prefixes = " or ".join(f"{prefix}-" for prefix in SCHEMES[scheme])
  return f"O, or {prefixes} and a type"


def detect(tags: Mapping[str, str], is_iob1: bool) -> str:
  """Returns the scheme of tags; NO_SCHEME if not one is a prefix and a type.

  `tags` has the location of each. `is_iob1` says whether their order is of IOB1
  and not of IOB2. If only some are of a scheme, a ValueError gives the location
  of one that is not.
  """
  any_scheme = rf"O|[{_PREFIXES}](-.*)?"
  wrong = [tag for tag in tags if not re.fullmatch(any_scheme, tag)]
  if wrong and not any(re.match(f"[{_PREFIXES}]-", tag) for tag in tags):
    return NO_SCHEME
  if wrong:
    raise ValueError(
      f"{tags[wrong[0]]}: the tag {wrong[0][:99]!r} is outside of every scheme:"
      f" expected O, or one of {', '.join(f'{p}-' for p in _PREFIXES)} and a "
      "type (--tag_scheme=none takes all tags as they are)"
    )

  # The first that has most of the prefixes: E or S alone are of IOBES.
  prefixes = {tag[0] for tag in tags}
  candidates = [scheme for scheme in SCHEMES if scheme != "iob1"]
  best = max(candidates, key=lambda scheme: len(prefixes & {*SCHEMES[scheme]}))
  return "iob1" if is_iob1 and best == "iob2" else best


def label_scheme(scheme: str) -> str:
  """Returns the scheme of the labels that a model learns from tags.

  IOB1 has no label of its own for the first word of an entity.
  """
  return "iob2" if scheme == "iob1" else scheme


def labels_of(tags: Iterable[str], scheme: str) -> list[str]:
  """Returns O and, for each type of some tags, all tags of a scheme, by name.

  >>> labels_of(["O", "I-PER"], "iob2")
  ['O', 'B-PER', 'I-PER']
  """
  types = sorted({tag.partition("-")[2] for tag in tags if tag != "O"})
  return ["O"] + [
    f"{prefix}-{type}" if type else prefix
    for type in types
    for prefix in SCHEMES[scheme]
  ]


def scheme_of_labels(labels: Sequence[str]) -> str:
  """Returns the scheme that all labels of a model make up, or NO_SCHEME.

  >>> scheme_of_labels(["O", "B-LOC", "I-LOC"]), scheme_of_labels(["DT", "NN"])
  ('iob2', 'none')
  """
  for scheme in map(label_scheme, SCHEMES):
    if set(labels) == set(labels_of(labels, scheme)) != {"O"}:
      return scheme
  return NO_SCHEME
