"""A trained model from the folder of its training: head, labels, weights."""

from collections.abc import Mapping
import dataclasses
import functools
import importlib
import os
import sys
from typing import Any

import keras

from bert import heads, modeling
from bert.data import files, hub, label_files, text_prompts
from bert.encoders import encoder_table
from bert.serving import answers
from bert.tasks import classification_problems, classification_results
from bert.training import model_selection, same_run
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints

_THRESHOLD = "null_score_diff_threshold"
_ROUNDING = 1e-5  # The scores of a model and its export differ by less.
# Settings of models that were only pre-trained.
_DEFAULTS = {"layer": -1, "pooling": "mean", "normalize": False, "top_k": 5}
_MASKED_LM = "cls/predictions/transform/dense/kernel"


@dataclasses.dataclass(frozen=True)
class TrainedModel:
  """A model with its weights and its task."""

  kind: str  # As `answers.find_maker` takes it.
  config: modeling.EncoderConfig
  model: keras.layers.Layer
  do_lower_case: bool
  labels: tuple[str, ...] = ()
  thresholds: tuple[float, ...] = ()  # For each label of a multi_label one.
  has_text_pair: bool = True  # Whether a classifier learned from pairs.
  # The settings on which answers depend besides labels: see `setting_names`.
  answer_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # settings.json of the training, and the columns of its files.
  training_settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  weights: str = ""  # The folder and step they are from.


def setting_names(kind: str) -> list[str]:
  """Lists the settings of a kind of model."""
  return ["max_seq_length", *answers.find_maker(kind).settings]


def describe_settings(settings: Mapping[str, Any]) -> str:
  """Lists settings for people, without what is off or unset.

  >>> describe_settings({"top_k": 5, "doc_stride": None, "by_character": True})
  'top_k 5  by_character'
  """
  # From prompts only the names: their texts may be long.
  active = {
    name: ", ".join(value) if isinstance(value, dict) else value
    for name, value in settings.items()
    if value is not None and value is not False
  }
  return "  ".join(n if v is True else f"{n} {v}" for n, v in active.items())


# The settings that flags of export_saved_model.py may replace, of all makers.
SETTINGS = {name for kind in answers.MAKERS for name in setting_names(kind)}


def load_output_dir(folder: str, vocab_file: str) -> TrainedModel:
  """Loads a fine-tuned model from the output folder of its training.

  Args:
    folder: the --output_dir. Its best weights are taken, or the newest ones if
      the training kept no best ones.
    vocab_file: the vocabulary of the training.

  Raises:
    ValueError: the folder is not that of a training, a file in it is missing or
      damaged, or the vocabulary is another one.
  """
  # Small files are checked first: the weights take longer to read.
  settings, head = _read_training(folder)
  recorded = settings["vocab_file_sha256"]
  vocabulary_table.check_digest(vocab_file, recorded, folder)
  config = checkpoints.read_config(os.path.join(folder, "bert_config.json"))
  answer_settings = _read_answer_settings(folder, settings, config)

  # The head has an output for each label. A task without labels, such as
  # questions, has a fixed number of outputs.
  kind = settings["problem"]
  maker = answers.find_maker(kind)
  labels = ()
  if maker.has_labels:
    labels = tuple(label_files.read(os.path.join(folder, "labels.txt")))
  with checkpoints.values_follow():
    model = head.from_training(config, len(labels), settings)
  weights = _restore(folder, model)

  # If a text may have several labels, each label has a threshold.
  thresholds = ()
  if maker.has_thresholds:
    tuned = _read_tuned(folder, model, label_files.LABEL_THRESHOLDS, labels)
    thresholds = tuned or [classification_problems.UNTUNED] * len(labels)

  # The odds that a question has no answer have a threshold, too. A tuned one
  # equals the odds of some question of the evaluation, which is answered: an
  # export rounds differently and could put that question on the other side.
  if _THRESHOLD in answer_settings:
    names = [_THRESHOLD]
    tuned = _read_tuned(folder, model, label_files.ANSWER_THRESHOLD, names)
    if tuned:
      answer_settings[_THRESHOLD] = tuned[0] + _ROUNDING

  # What --calibrate fitted divides the logits.
  if "temperature" in maker.settings:
    answer_settings["temperature"] = _divide_by_temperature(folder, model)

  return TrainedModel(
    kind=kind,
    config=config,
    model=model,
    do_lower_case=settings["do_lower_case"],
    labels=labels,
    thresholds=tuple(thresholds),
    has_text_pair=answer_settings["has_text_pair"],
    answer_settings=answer_settings,
    training_settings=settings | {"columns": answer_settings["columns"]},
    weights=weights,
  )


def _read_tuned(folder, model, file_name, names) -> list[float] | None:
  """Returns the thresholds that an evaluation tuned for a model's weights.

  None if there are none, or if they were tuned for other weights.
  """
  identify = functools.partial(same_run.identify_weights, model)
  tuned = label_files.read_tuned([folder], file_name, names, identify)
  return tuned.values if tuned else None


def _divide_by_temperature(folder, model) -> float | None:
  """Divides a classifier's head by the temperature of its weights, if any.

  So every format and engine gives logits that are divided, and needs no code
  for it. The checkpoint stays as it was trained.
  """
  identify = functools.partial(same_run.identify_weights, model)
  temperature = classification_results.read_temperature([folder], identify)
  if temperature:
    for variable in (model.output_weights, model.output_bias):
      variable.assign(variable / temperature)
  return temperature


def _read_training(folder) -> tuple[dict[str, Any], type[heads.HeadModel]]:
  """Reads the settings of a training, and finds the class of its model."""
  path = os.path.join(folder, "settings.json")
  settings = files.read_json_if_any(path)
  problem_name = str(settings.get("problem", ""))
  if not answers.is_trained(problem_name):
    fault = "no settings.json with one"
    if problem_name:
      fault = f"its problem is {problem_name}"
    raise ValueError(
      f"{folder}: {fault}; expected the --output_dir of run_classifier.py, "
      "run_squad.py, run_tagging.py or run_multiple_choice.py"
    )

  # By its name, as `answers` must not import TensorFlow.
  module, _, name = answers.find_maker(problem_name).head.rpartition(".")
  head = getattr(importlib.import_module(module), name)
  allowed = {"vocab_file_sha256": (str,), "do_lower_case": (bool,)}
  with checkpoints.naming_damage(path):
    files.check_values(settings, {**allowed, **head.recorded})

  # So that the card of an export names the model of the Hub.
  settings |= files.read_json_if_any(os.path.join(folder, hub.RECORD))
  return settings, head


def _restore(folder: str, model: heads.HeadModel) -> str:
  """Loads a training's weights; returns which, in words."""
  variables = checkpoints.model_variables(model)
  # The best weights, if the training kept any.
  choice, step = "best", model_selection.restore_best(folder, variables)
  if step is None:
    choice, step = "newest", checkpoints.restore(folder, variables)
  if step is None:
    raise ValueError(f"{folder}: no checkpoint there")
  return f"{folder}, {choice} weights, step {step}"


def _read_answer_settings(folder, settings, config) -> dict[str, Any]:
  """Reads what answers depend on, and the columns of the training's files."""
  path = os.path.join(folder, "prediction.json")
  if not files.exists(path):
    # Predictions and scores have the settings of their model beside them.
    indices = (
      checkpoints.find_indices(folder, *best) for best in ((), ("best",))
    )
    if not any(indices):
      raise ValueError(
        f"{folder}: scores or predictions of a model, without its weights: "
        "expected the folder of the training, --model of that run"
      )
    raise ValueError(
      f"{path}: no such file, so how the model answers is not known (it was "
      "converted from one that does not say): a run_*.py --do_predict with "
      f"--model={folder} takes --max_seq_length and the like"
    )
  problem_name = settings["problem"]
  takes_pairs = config.type_vocab_size > 1

  # Defaults, then prediction.json, which may be changed after the training,
  # then the settings that belong to the training itself.
  answer_settings = {"has_text_pair": takes_pairs, "columns": {}}
  answer_settings |= files.read_json_if_any(path)
  names = settings.keys() & setting_names(problem_name)
  answer_settings |= {name: settings[name] for name in names}

  with checkpoints.naming_damage(path):
    allowed = {"has_text_pair": (bool,), "columns": (dict,)}
    files.check_values(answer_settings, allowed)
    answers.check_settings(
      problem_name, answer_settings, config.max_position_embeddings
    )
    if answer_settings["has_text_pair"] and not takes_pairs:
      raise ValueError(
        "has_text_pair is true, but the model has one segment (type_vocab_size "
        "is 1): expected false"
      )
  return answer_settings


def load_pretrained(
  weights: checkpoints.Weights,
  config: modeling.EncoderConfig,
  do_lower_case: bool,
  kind: str | None = None,
) -> TrainedModel:
  """Loads a model that was only pre-trained, to make vectors or guesses.

  Args:
    weights: by Google's names.
    config: of the encoder.
    do_lower_case: whether texts are lower-cased.
    kind: `answers.FEATURES` or `answers.FILL_MASK`. None: FILL_MASK if the
      weights have the head of masked words.

  Raises:
    ValueError: the weights lack variables of this kind, or do not fit the
      config.
  """
  if not kind:
    has_head = _MASKED_LM in weights.shapes
    kind = answers.FILL_MASK if has_head else answers.FEATURES

  # The class of the model, and the beginnings of its variables' names.
  make, needed = encoder_table.make_encoder, ("bert/",)
  if kind == answers.FILL_MASK:
    make, needed = heads.PretrainingModel, ("bert/", "cls/predictions/")
    if not config.is_bidirectional:
      raise ValueError(
        "--task=fill_mask: this model reads from left to right: only "
        "fill_mask.py makes its guesses"
      )
    checkpoints.check_masked_lm(weights, [_MASKED_LM])

  _note_heads(weights)

  # All weights are needed but for the pooler, which neither kind reads.
  with checkpoints.values_follow():
    model = make(config, "float32")
  checkpoints.assign(
    weights,
    checkpoints.model_variables(model),
    optional=lambda name: not name.startswith(needed) or "/pooler/" in name,
  )

  # No training has said how such a model answers.
  return TrainedModel(
    kind=kind,
    config=config,
    model=model,
    do_lower_case=do_lower_case,
    has_text_pair=config.type_vocab_size > 1,
    answer_settings={
      **_DEFAULTS,
      **dict.fromkeys(("dense", *text_prompts.PREPARATION)),
      "max_seq_length": min(128, config.max_position_embeddings),
    },
    weights=weights.source,
  )


def _note_heads(weights: checkpoints.Weights) -> None:
  """Says which heads are left out."""
  # The head of a task is no use without the settings of its training.
  for name in ("output_weights", "cls/squad/output_weights"):
    if name in weights.shapes:
      print(
        f"note: {weights.source} has the head of a task, {name}, which is left "
        "out: how it answers is said by the folder of a training, or by what "
        "convert_checkpoint.py makes of a Hugging Face classifier",
        file=sys.stderr,
      )


def add_dense(trained: TrainedModel, dense: heads.VectorDense) -> TrainedModel:
  """Adds the layer that the vectors of a model of features go through."""
  settings = {**trained.answer_settings, "dense": dense.describe()}
  model = heads.VectorModel(trained.model, dense)
  return dataclasses.replace(trained, model=model, answer_settings=settings)


def override(trained: TrainedModel, values: Mapping[str, Any]) -> TrainedModel:
  """Replaces settings of predictions; a ValueError if one does not fit.

  Args:
    trained: a model.
    values: by the names of flags, which are those of the settings.
  """
  kind = trained.kind
  config = trained.config

  names = setting_names(kind)
  for name in values:
    if name not in names:
      raise ValueError(
        f"--{name}={values[name]}: a model of the kind {kind} has only "
        f"{', '.join(names)}"
      )

  # What a setting may be depends on the model, or on another setting.
  settings = {**trained.answer_settings, **values}
  layers = config.num_hidden_layers
  if not -layers <= settings.get("layer", 0) < layers:
    raise ValueError(
      f"--layer={settings['layer']}: expected {-layers} to {layers - 1}"
    )
  if settings.get("pooling") == "cls" and not config.is_bidirectional:
    raise ValueError(
      "--pooling=cls: the first token of this model sees no other: use mean"
    )
  if _THRESHOLD in values and not settings["version_2_with_negative"]:
    raise ValueError(f"--{_THRESHOLD}: this model answers every question")
  answers.check_settings(kind, settings, config.max_position_embeddings)

  return dataclasses.replace(trained, answer_settings=settings)
