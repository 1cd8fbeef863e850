"""A trained model from the folder of its training: head, labels, weights."""

from collections.abc import Mapping
import dataclasses
import os
from typing import Any

import keras

from data import files
from encoders import encoder_table
from export import prediction_settings
import heads
import modeling
from serving import answers
from tasks import feature_tagger
import tokenization
from training import model_selection
from weights import checkpoints

_MASKED_LM = "cls/predictions/transform/dense/kernel"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
  """A model with its weights and its task."""

  kind: str  # A key of `answers.MAKERS`.
  config: modeling.EncoderConfig
  model: keras.layers.Layer
  do_lower_case: bool
  labels: tuple[str, ...] = ()
  thresholds: tuple[float, ...] = ()  # For each label of a multi_label one.
  has_text_pair: bool = True  # Whether a classifier learned from pairs.
  # See `prediction_settings`.
  prediction: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  weights: str = ""  # The folder and step they are from.


def load_output_dir(folder: str, vocab_file: str) -> TrainedModel:
  """Loads the output of a run_*.py program: its best weights, or the newest.

  Args:
    folder: its --output_dir.
    vocab_file: is compared with the one that was used.

  Raises:
    ValueError: the folder is not that of a training, or has another vocabulary.
  """
  settings = files.read_json_if_any(os.path.join(folder, "settings.json"))
  kind = settings.get("problem")
  if kind not in {*answers.MAKERS} - {answers.FEATURES, answers.FILL_MASK}:
    found = f"its problem is {kind}" if kind else "no settings.json with one"
    raise ValueError(
      f"{folder}: {found}; expected the --output_dir of "
      f"{answers.TRAINING_PROGRAMS}"
    )
  needed = ["vocab_file_sha256", "do_lower_case"]
  if settings.get("feature_based"):
    needed += ["feature_layers", "lstm_size"]
  if missing := [name for name in needed if name not in settings]:
    raise ValueError(
      f"{folder}: damaged: its settings.json lacks {', '.join(missing)}"
    )
  if settings["vocab_file_sha256"] != files.hash_file(vocab_file):
    raise ValueError(
      f"{vocab_file} is not the one that {folder} was trained with"
    )
  config = encoder_table.read_config(os.path.join(folder, "bert_config.json"))
  prediction = prediction_settings.read(folder, kind, settings)
  labels, thresholds = prediction_settings.read_labels(folder, kind)
  model = _make_model(kind, config, labels, settings)
  variables = checkpoints.model_variables(model)
  choice, step = "best", model_selection.restore_best(folder, variables)
  if step is None:
    choice, step = "newest", checkpoints.restore(folder, variables)
  if step is None:
    raise ValueError(f"{folder}: no checkpoint there")
  return TrainedModel(
    kind,
    config,
    model,
    settings["do_lower_case"],
    labels,
    thresholds,
    prediction.pop("has_text_pair", True),
    prediction,
    settings,
    f"{folder}, {choice} weights, step {step}",
  )


def _make_model(kind, config, labels, settings):
  name = answers.MAKERS[kind].head
  if name == heads.SpanModel.__name__:
    return heads.SpanModel(config)
  if not settings.get("feature_based"):
    return getattr(heads, name)(config, max(1, len(labels)))
  layers, mixed = feature_tagger.read_feature_layers(
    settings["feature_layers"], config.num_hidden_layers
  )
  return feature_tagger.FeatureTaggerModel(
    config, len(labels), "float32", layers, mixed, settings["lstm_size"]
  )


def load_pretrained(
  weights: checkpoints.Weights,
  config: modeling.BertConfig,
  do_lower_case: bool,
  kind: str | None = None,
) -> TrainedModel:
  """Loads weights without a task of their own.

  Args:
    weights: of an opened model.
    kind: FEATURES or FILL_MASK; None: whatever the weights are good for.

  Raises:
    ValueError: they do not fit, have no masked-LM head, or it is a causal one.
  """
  tokenization.validate_case_matches_checkpoint(do_lower_case, weights.source)
  has_head = _MASKED_LM in weights.shapes
  kind = kind or (answers.FILL_MASK if has_head else answers.FEATURES)
  make, needed = encoder_table.make_encoder, ("bert/",)
  if kind == answers.FILL_MASK:
    make, needed = heads.PretrainingModel, ("bert/", "cls/predictions/")
    if encoder_table.is_causal(config):
      raise ValueError(
        "--task=fill_mask: the guesses of a causal model cannot be exported; "
        "fill_mask.py makes them"
      )
    if not has_head:
      raise ValueError(
        f"--init_checkpoint={weights.source} has no masked-LM head: give one "
        "that was pre-trained and not fine-tuned since"
      )
  model = make(config)
  checkpoints.assign(
    weights,
    checkpoints.model_variables(model),
    optional=lambda name: not name.startswith(needed) or "/pooler/" in name,
  )
  longest = config.max_position_embeddings
  length = min(prediction_settings.DEFAULTS["max_seq_length"], longest)
  return TrainedModel(
    kind,
    config,
    model,
    do_lower_case,
    prediction={**prediction_settings.DEFAULTS, "max_seq_length": length},
    weights=weights.source,
  )
