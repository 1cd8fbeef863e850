"""The settings on which a trained model's answers depend besides its labels.

They are those of its training, and flags override them.
"""

from collections.abc import Mapping
import os
from typing import Any

from data import files, label_files
from encoders import encoder_table
import modeling
from serving import answers
from tasks import classification, classification_results, squad_results

_FILE = "prediction.json"
_ROUNDING = 1e-5  # Scores differ by less.
# The settings of models that were only pre-trained.
DEFAULTS = {"max_seq_length": 128, "layer": -1, "pooling": "mean", "top_k": 5}
ALL_NAMES = {"max_seq_length"}.union(
  *(maker.settings for maker in answers.MAKERS.values())
)


def names(kind: str) -> list[str]:
  """Lists the settings of a kind of model."""
  return ["max_seq_length", *answers.MAKERS[kind].settings]


def read(folder: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
  """Reads the settings that `names` lists, and others, from a run's files.

  Args:
    settings: of settings.json.
  """
  path = os.path.join(folder, _FILE)
  prediction = {"by_character": False}  # Older runs lack it.
  prediction |= files.read_json_if_any(path)
  prediction |= {n: settings[n] for n in names(kind) if n in settings}
  tuned = squad_results.read_threshold(folder)
  if tuned is not None:
    # It is the odds of one question, which an export rounds differently.
    prediction["null_score_diff_threshold"] = tuned + _ROUNDING
  missing = [name for name in names(kind) if name not in prediction]
  if missing:
    raise ValueError(
      f"{path} lacks {', '.join(missing)}: an earlier version wrote it; add "
      "the values of the training's flags, as in "
      '{"max_seq_length": 128, "doc_stride": null, "window_pooling": "mean"}'
    )
  return prediction


def read_labels(
  folder: str, kind: str
) -> tuple[tuple[str, ...], tuple[float, ...]]:
  """Reads the labels and their thresholds; () for a kind without them."""
  labels = thresholds = ()
  if answers.MAKERS[kind].has_labels:
    labels = tuple(label_files.read(os.path.join(folder, "labels.txt")))
  if answers.MAKERS[kind].has_thresholds:
    tuned = classification_results.read_thresholds(folder, labels)
    thresholds = (0.5,) * len(labels) if tuned is None else tuned.tolist()
  return labels, tuple(thresholds)


def override(
  kind: str,
  config: modeling.EncoderConfig,
  prediction: Mapping[str, Any],
  values: Mapping[str, Any],
) -> dict[str, Any]:
  """Returns the settings of a model's predictions with other values of flags.

  Raises:
    ValueError: the kind of model has no such setting, or it is out of range.
  """
  for name in values:
    if name not in names(kind):
      raise ValueError(
        f"--{name}: a model of the kind {kind} has no such setting; "
        f"it has {', '.join(names(kind))}"
      )
  found = {**prediction, **values}
  length, layers = found["max_seq_length"], config.num_hidden_layers
  if length > config.max_position_embeddings:
    raise ValueError(
      f"--max_seq_length={length} is above the model's "
      f"max_position_embeddings of {config.max_position_embeddings}"
    )
  if not -layers <= found.get("layer", 0) < layers:
    raise ValueError(
      f"--layer={found['layer']}: the model has {layers} layers; expected a "
      f"number from {-layers} to {layers - 1}"
    )
  if found.get("pooling") == "cls" and encoder_table.is_causal(config):
    raise ValueError(
      "--pooling=cls: the first token of a causal model sees no other: use mean"
    )
  threshold = "null_score_diff_threshold"
  if threshold in values and not found["version_2_with_negative"]:
    raise ValueError(f"--{threshold}: this model answers every question")
  if "window_pooling" in names(kind):
    classification.check_doc_stride(found["doc_stride"], length)
  return found
