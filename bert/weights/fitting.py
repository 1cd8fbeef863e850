"""Compares the names and shapes of stored weights with those of a model."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
import re
from typing import NamedTuple

# The state of a training, beside its model: by Google's names, by Keras's keys.
_TRAINING_STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|beta[12]_power|(current_)?loss_scale"
  r"|good_steps|teacher_projection)$"
)
_KERAS_STATE = re.compile(
  r"(^|/)(global_step|save_counter)\b|\.OPTIMIZER_SLOT|(^|/)optimizer/"
  r"|^(keras_api/)?metrics/|^(train|eval|validation)_"
)
# The variables whose shapes show the fields of a config, and which axis does.
_SHOWN_BY_SHAPE = (
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
  stored: Mapping[str, tuple[int, ...]],
  expected: Mapping[str, tuple[int, ...]],
  optional: Callable[[str], bool],
  whose: str = "the model",
) -> Loaded:
  """Compares stored shapes with those expected; both are by name.

  A ValueError lists the misfits, and names `source` and `whose` shapes are
  expected. A name may be in only one of both if it is `optional`, or if it is
  stored and the state of a training.
  """
  missing = sorted(set(expected) - set(stored))
  unused = sorted(set(stored) - set(expected))
  unused = [name for name in unused if not is_training_state(name, stored)]
  faults = [
    [f"- {name}" for name in missing if not optional(name)],
    [f"+ {name}" for name in unused if not optional(name)],
    [
      f"{name}: shape {stored[name]}, {whose}'s is {expected[name]}"
      for name in sorted(set(expected) & set(stored))
      if stored[name] != expected[name]
    ],
  ]
  if any(faults):
    lines = "; ".join(filter(None, (listing(kind, 3) for kind in faults)))
    cause = _likely_cause(expected, stored, whose)
    raise ValueError(f"{source} does not fit {whose}{cause}: {lines}")
  return Loaded(missing, unused)


def is_training_state(name: str, names: Container[str] = ()) -> bool:
  """Returns whether a variable is the optimizer's, or a step, at Google."""
  # Slots of any optimizer are named after their variable: <name>/adam_m,
  # <name>/LAMB_1. No other name continues that of another variable.
  is_slot = name.rpartition("/")[0] in names
  return is_slot or bool(_TRAINING_STATE.search(name))


def is_foreign_state(name: str) -> bool:
  """Returns whether a variable is state of a training at Google or Keras."""
  return is_training_state(name) or bool(_KERAS_STATE.search(name))


def _likely_cause(expected, stored, whose) -> str:
  """Says in which fields of the config a checkpoint and a model differ."""
  ours, theirs = fields_of(expected), fields_of(stored)
  differing = [
    f"{field} is {theirs[field]}, {whose}'s {ours[field]}"
    for field in theirs
    if ours.get(field, theirs[field]) != theirs[field]
  ]
  if differing and theirs["num_hidden_layers"]:
    return f" (its {', its '.join(differing)})"
  is_bert = [
    any(name.startswith("bert/") for name in shapes)
    for shapes in (stored, expected)
  ]
  is_other = is_bert == [False, True]
  return " (it is not a BERT with Google's names)" if is_other else ""


def fields_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
  """Returns the fields of a config that shapes show, by Google's names."""
  layers = map(re.compile(r"bert/encoder/layer_\d+/").match, shapes)
  fields = {}
  for field, name, axis in _SHOWN_BY_SHAPE:
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
