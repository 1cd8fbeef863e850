"""Compares the names and shapes of stored weights with a model's.

Here stands, too, which variables are the state of a training: names that every
reader skips, as no model has them.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
import re
from typing import NamedTuple

# Names of variables that a training stores with its model, as the optimizers of
# TensorFlow 1 and ours name them: Adam's slots, the step, the loss scale of
# training in float16, and a student's projection to the size of its teacher.
_TRAINING_STATE = re.compile(
  r"/adam_[mv]$|(^|/)(global_step|beta[12]_power|(current_)?loss_scale"
  r"|good_steps|teacher_projection)$"
)
# The same in the checkpoints of objects that Keras 2 and 3 write.
_KERAS_STATE = re.compile(
  r"(^|/)(global_step|save_counter)\b|\.OPTIMIZER_SLOT|(^|/)optimizer/"
  r"|^(keras_api/)?metrics/|^(train|eval|validation)_"
)
# A field of a config, the variable whose shape shows it, and the axis.
_SHOWN_BY_SHAPE = (
  ("vocab_size", "bert/embeddings/word_embeddings", 0),
  ("max_position_embeddings", "bert/embeddings/position_embeddings", 0),
  ("type_vocab_size", "bert/embeddings/token_type_embeddings", 0),
  ("hidden_size", "bert/encoder/layer_0/output/dense/kernel", 1),
  ("intermediate_size", "bert/encoder/layer_0/output/dense/kernel", 0),
  ("embedding_size", "bert/embeddings/word_embeddings", 1),
)


class Differences(NamedTuple):
  """Names that only a model or only a checkpoint has; loading skips them."""

  missing: list[str]  # In the model only; they keep their values.
  unused: list[str]  # In the checkpoint only.


def compare(
  source: str,
  stored: Mapping[str, tuple[int, ...]],
  expected: Mapping[str, tuple[int, ...]],
  optional: Callable[[str], bool],
  whose: str = "the model",
) -> Differences:
  """Compares the shapes in a checkpoint with a model's, name by name.

  Args:
    source: names the checkpoint in messages.
    stored: the shapes in the checkpoint.
    expected: the shapes of the model.
    optional: returns whether a name may be missing in one of the two.
    whose: names the model in messages.

  Returns:
    The names that only one of the two has, without the state of a training.

  Raises:
    ValueError: lists variables that are missing (-), are not used (+), or have
      another shape, and says in which fields the configs seem to differ.
  """
  missing = sorted(set(expected) - set(stored))
  unused = sorted(set(stored) - set(expected))
  unused = [name for name in unused if not is_training_state(name, stored)]

  lacking = [f"- {name}" for name in missing if not optional(name)]
  superfluous = [f"+ {name}" for name in unused if not optional(name)]
  misshapen = [
    f"{name}: shape {stored[name]}, {whose}'s is {expected[name]}"
    for name in sorted(set(expected) & set(stored))
    if stored[name] != expected[name]
  ]

  # A wrong config makes hundreds of faults: three of each kind are enough.
  faults = [faults for faults in (lacking, superfluous, misshapen) if faults]
  if faults:
    lines = "; ".join(listing(kind, 3) for kind in faults)
    cause = _likely_cause(expected, stored, whose)
    raise ValueError(f"{source} does not fit {whose}{cause}: {lines}")
  return Differences(missing, unused)


def is_training_state(name: str, names: Container[str] = ()) -> bool:
  """Returns whether a variable, by Google's name, is the optimizer's or a step.

  `names` are the names of all variables, which tell a slot from a weight.
  """
  # Slots of any optimizer are named after their variable: <name>/adam_m,
  # <name>/LAMB_1. No other name continues that of another variable.
  is_slot = name.rpartition("/")[0] in names
  return is_slot or bool(_TRAINING_STATE.search(name))


def is_foreign_state(name: str) -> bool:
  """Returns whether a variable is state of a training, by Google or Keras."""
  return is_training_state(name) or bool(_KERAS_STATE.search(name))


def _likely_cause(expected, stored, whose) -> str:
  """Says in which fields of the config a checkpoint and a model differ."""
  ours = fields_of(expected)
  theirs = fields_of(stored)
  differing = [
    f"{field} is {theirs[field]}, {whose}'s {ours[field]}"
    for field in theirs
    if ours.get(field, theirs[field]) != theirs[field]
  ]
  if differing and theirs["num_hidden_layers"]:
    return f" (its {', its '.join(differing)})"

  # Without common fields: perhaps the checkpoint is of another library.
  if _has_bert(expected) and not _has_bert(stored):
    return " (it is not a BERT with Google's names)"
  return ""


def _has_bert(names: Iterable[str]) -> bool:
  return any(name.startswith("bert/") for name in names)


def fields_of(shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
  """Returns the fields of a config that shapes show, by Google's names."""
  fields = {}
  for field, name, axis in _SHOWN_BY_SHAPE:
    if len(shape := shapes.get(name, ())) > axis:
      fields[field] = int(shape[axis])

  # BERT has no such field; only a narrower word table needs it.
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)

  layers = map(re.compile(r"bert/encoder/layer_\d+/").match, shapes)
  fields["num_hidden_layers"] = len({match[0] for match in layers if match})
  return fields


def listing(faults: Iterable[str], most: int = 10) -> str:
  """Returns the first faults as a line of text, and how many more there are."""
  # Names come from files: a line must stay one line, and short.
  lines = [fault if fault.isprintable() else repr(fault) for fault in faults]
  lines = [f"{line:.300}" for line in sorted(lines)]
  if len(lines) > most:
    lines[most:] = [f"and {len(lines) - most} more"]
  return "; ".join(lines)
