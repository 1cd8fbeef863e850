"""Compares the names and shapes of stored weights with those of a model."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
import re
from typing import Any, NamedTuple

# The state of a training, beside its model. Slots of any optimizer are named
# after their variable: <name>/adam_m, <name>/LAMB_1.
_TRAINING_STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|beta[12]_power|(current_)?loss_scale"
  r"|good_steps)$"
)
_LISTED_FAULTS = 3  # For each kind.
# The variables whose shapes show the fields of a config, and which axis does.
SHOWN_BY_SHAPE = (
  ("vocab_size", "bert/embeddings/word_embeddings", 0),
  ("max_position_embeddings", "bert/embeddings/position_embeddings", 0),
  ("type_vocab_size", "bert/embeddings/token_type_embeddings", 0),
  ("hidden_size", "bert/encoder/layer_0/output/dense/kernel", 1),
  ("intermediate_size", "bert/encoder/layer_0/output/dense/kernel", 0),
  ("embedding_size", "bert/embeddings/word_embeddings", 1),
)


class Loaded(NamedTuple):
  """The names that loading skips."""

  missing: list[str]  # In the model only; they keep their values.
  unused: list[str]  # In the checkpoint only.


def compare(
  source: str,
  shapes: Mapping[str, tuple[int, ...]],
  variables: Mapping[str, Any],
  optional: Callable[[str], bool],
) -> Loaded:
  """Compares stored shapes with variables; see `checkpoints.assign`.

  Raises:
    ValueError: they differ in more than optional names.
  """
  missing = sorted(set(variables) - set(shapes))
  unused = sorted(set(shapes) - set(variables))
  unused = [name for name in unused if not is_training_state(name, shapes)]
  ours = {name: tuple(variable.shape) for name, variable in variables.items()}
  faults = [
    [f"- {name}" for name in missing if not optional(name)],
    [f"+ {name}" for name in unused if not optional(name)],
    [
      f"{name}: shape {shapes[name]}, the model's is {ours[name]}"
      for name in sorted(set(ours) & set(shapes))
      if shapes[name] != ours[name]
    ],
  ]
  if any(faults):
    listings = (listing(found, _LISTED_FAULTS) for found in faults)
    lines = "; ".join(filter(None, listings))
    cause = _likely_cause(ours, shapes)
    raise ValueError(f"{source} does not fit the model{cause}: {lines}")
  return Loaded(missing, unused)


def is_training_state(name: str, names: Container[str]) -> bool:
  """Returns whether a variable is the optimizer's, or a step."""
  # Only slots have a name that continues that of another variable.
  is_slot = name.rpartition("/")[0] in names
  return is_slot or bool(_TRAINING_STATE.search(name))


def _likely_cause(
  ours: Mapping[str, tuple], theirs: Mapping[str, tuple]
) -> str:
  """Says in which fields of the config a checkpoint and a model differ."""
  expected, found = fields_of(ours), fields_of(theirs)
  differing = [
    f"{field} is {found[field]}, the model's {expected[field]}"
    for field in found
    if expected.get(field, found[field]) != found[field]
  ]
  if differing and found["num_hidden_layers"]:
    return f" (its {', its '.join(differing)})"
  is_bert = any(name.startswith("bert/") for name in theirs)
  if not is_bert and any(name.startswith("bert/") for name in ours):
    return " (it is not a BERT with Google's names)"
  return ""


def fields_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
  """Returns the fields of a config that shapes show, by Google's names."""
  layers = map(re.compile(r"bert/encoder/layer_\d+/").match, shapes)
  fields = {}
  for field, name, axis in SHOWN_BY_SHAPE:
    if len(shape := shapes.get(name, ())) > axis:
      fields[field] = int(shape[axis])
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)
  fields["num_hidden_layers"] = len({match[0] for match in layers if match})
  return fields


def listing(faults: Iterable[str], most: int = 10) -> str:
  """Returns the first faults as a line of text."""
  shown = [fault if fault.isprintable() else repr(fault) for fault in faults]
  shown = [f"{fault:.300}" for fault in sorted(shown)]
  more = [f"and {len(shown) - most} more"] * (len(shown) > most)
  return "; ".join(shown[:most] + more)
