"""A trained model from the folder of its training: head, labels, weights."""

from collections.abc import Mapping
import dataclasses
import json
import os
from typing import Any

import keras

from data import files
from data import label_files
import heads
import modeling
from tasks import classification
from tasks import classification_results
from training import loop
from training import model_selection
from weights import checkpoints

QUESTION_ANSWERING = "question_answering"
TAGGING = "tagging"
MULTIPLE_CHOICE = "multiple_choice"
FEATURES = "features"
FILL_MASK = "fill_mask"
KINDS = (
  *classification.PROBLEMS,
  QUESTION_ANSWERING,
  TAGGING,
  MULTIPLE_CHOICE,
)
_MASKED_LM = "cls/predictions/transform/dense/kernel"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
  """A model with its weights and what they were trained for."""

  kind: str  # One of KINDS, FEATURES or FILL_MASK.
  config: modeling.BertConfig
  model: keras.layers.Layer
  do_lower_case: bool
  labels: tuple[str, ...] = ()
  thresholds: tuple[float, ...] = ()  # Of a multi_label problem.
  marks_entities: bool = False  # Of tagging.
  # The odds above which there is no answer, if they were found out.
  null_score_diff_threshold: float | None = None
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  weights: str = ""  # Where they are from.


def read_json(path: str) -> dict[str, Any]:
  """Reads a JSON object; {} if there is no such file.

  Raises:
    ValueError: it is something else.
  """
  if not files.exists(path):
    return {}
  try:
    content = json.loads("\n".join(files.read_lines(path)))
  except ValueError as error:
    raise ValueError(f"{path}: not a JSON file: {error}") from None
  if not isinstance(content, dict):
    raise ValueError(f"{path}: expected a JSON object")
  return content


def load_output_dir(folder: str, vocab_file: str) -> TrainedModel:
  """Loads what a run_*.py program left: the best weights, else the newest.

  Args:
    folder: its --output_dir.
    vocab_file: is compared with the one that was used.

  Raises:
    ValueError: the folder is none of ours, or of another vocabulary.
  """
  settings = read_json(os.path.join(folder, "settings.json"))
  kind = settings.get("problem")
  if kind not in KINDS:
    found = f"its problem is {kind}" if kind else "no settings.json with one"
    raise ValueError(
      f"--model_dir={folder}: {found}; expected the --output_dir of "
      "run_classifier.py, run_squad.py, run_tagging.py or "
      "run_multiple_choice.py"
    )
  if settings["vocab_file_sha256"] != files.hash_file(vocab_file):
    raise ValueError(
      f"--vocab_file={vocab_file} is not the one that {folder} was trained with"
    )
  config = modeling.BertConfig.from_json_file(
    os.path.join(folder, "bert_config.json")
  )
  labels = _read_labels(folder, kind)
  model = _make_model(kind, config, labels, settings)
  variables = loop.model_variables(model)
  step = model_selection.restore_best(folder, variables)
  is_best = step is not None
  if not is_best:
    step = checkpoints.restore(folder, variables)
  if step is None:
    raise ValueError(f"--model_dir={folder}: no checkpoint there")
  found = read_json(os.path.join(folder, "null_score_diff_threshold.json"))
  return TrainedModel(
    kind,
    config,
    model,
    settings["do_lower_case"],
    labels,
    _read_thresholds(folder, kind, labels),
    settings.get("label_scheme", "none") != "none",
    found.get("eval_best_f1_threshold"),
    settings,
    f"{folder}, {'best' if is_best else 'newest'} weights, step {step}",
  )


def _read_labels(folder, kind):
  if kind in ("regression", QUESTION_ANSWERING, MULTIPLE_CHOICE):
    return ()
  return tuple(label_files.read(os.path.join(folder, "labels.txt")))


def _read_thresholds(folder, kind, labels):
  if kind != "multi_label":
    return ()
  path = os.path.join(folder, "thresholds.json")
  found = classification_results.read_thresholds(path, labels)
  return tuple([0.5] * len(labels) if found is None else map(float, found))


def _make_model(kind, config, labels, settings):
  if kind == QUESTION_ANSWERING:
    return heads.SpanModel(config)
  if kind != TAGGING:
    return heads.ClassifierModel(config, max(1, len(labels)))
  if not settings.get("feature_based"):
    return heads.TaggerModel(config, len(labels))
  layers = settings["feature_layers"]
  return heads.FeatureTaggerModel(
    config,
    len(labels),
    layers=None if layers == ["mix"] else list(map(int, layers)),
    lstm_size=settings["lstm_size"],
  )


def load_pretrained(
  path: str, config_file: str, do_lower_case: bool, kind: str | None = None
) -> TrainedModel:
  """Loads weights without a task of their own.

  Args:
    path: see `checkpoints.find_checkpoint`.
    config_file: the bert_config.json.
    do_lower_case: a property of the model.
    kind: FEATURES or FILL_MASK; None: whatever the weights are good for.

  Raises:
    ValueError: they do not fit, or have no masked-LM head.
  """
  config = modeling.BertConfig.from_json_file(config_file)
  prefix = checkpoints.find_checkpoint(path)
  has_head = _MASKED_LM in checkpoints.read_shapes(prefix)
  if kind is None:
    kind = FILL_MASK if has_head else FEATURES
  if kind == FILL_MASK and not has_head:
    raise ValueError(
      f"--init_checkpoint={path} has no masked-LM head: give one that was "
      "pre-trained and not fine-tuned since"
    )
  make = heads.PretrainingModel if kind == FILL_MASK else modeling.BertModel
  model = make(config)
  checkpoints.load(
    prefix,
    loop.model_variables(model),
    optional=lambda name: not name.startswith("bert/") or "/pooler/" in name,
  )
  return TrainedModel(kind, config, model, do_lower_case, weights=prefix)
