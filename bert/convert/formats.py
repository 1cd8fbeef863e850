"""Opens a model in whatever format it is, by `open_model` alone."""

from collections.abc import Mapping
import dataclasses
import functools
import importlib
import os
import re
from typing import Any

import tensorflow as tf

from bert import modeling
from bert.convert import (
  huggingface,
  models,
  onnx_files,
  sentence_dense,
  tokenizer_files,
  weight_files,
)
from bert.data import files, label_files, run_files
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints, fitting


def _open_with(name: str, source: Any) -> models.ModelFolder:
  """Opens a folder, or weights, by a module of `contrib`, found by its name."""
  return importlib.import_module(f"bert.contrib.{name}").open_model(source)


# The files, of weights or of their index, that mark a library's folder, and
# what opens it.
_LIBRARIES = {
  **{
    name: functools.partial(huggingface.open_folder, marker=name)
    for name in weight_files.BY_FILE
  },
  "model.weights.h5": functools.partial(_open_with, "keras_hub"),
  "model.weights.json": functools.partial(_open_with, "keras_hub"),
  "params_shapes.json": functools.partial(_open_with, "gpt"),
}
# Whole models of Keras 2, by any name but those of parts of other libraries'.
_KERAS_2 = re.compile(r"(?!tf_model-)(?!.*\.weights\.h5$).*\.(h5|hdf5)")
# Every checkpoint of TensorFlow 2 has it: a SavedModel's, Model Garden's.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_ELECTRA_NAMES = (
  ("^electra/", "bert/"),
  ("/embeddings_project/", "/embeddings/project/"),
)
# What another folder has of its own, in a settings.json: how the names of these
# settings begin, for held_out is held_out_lines, too.
_OF_FOLDER = ("vocab_file_sha256", "do_lower_case", "held_out", "eval_share")
# What stands beside an encoder of vectors has a format of its own.
read_dense = sentence_dense.read
# Fields of a config that shapes do not show.
_UNSEEN_FIELDS = (
  "encoder_type",
  "is_bidirectional",
  "has_embedding_norm",
  "hidden_act",
  "layer_norm_epsilon",
  "num_attention_heads",
)


def open_model(
  path: str, bert_config_file: str | None = None
) -> models.ModelFolder:
  """Opens a model: Google's, or one of another library.

  The path is a prefix of a checkpoint, one of its files, a folder (a release,
  the output of a training, another library's), or the file of weights in it. A
  ValueError says that there is no model, or a choice of several; or that a file
  is damaged, or does not fit the others.
  """
  folder = _open_path(path)

  # A config that states all fields needs no bert_config.json; a given one must
  # agree with it.
  if not bert_config_file and (not folder.config or folder.assumed):
    bert_config_file = _beside(folder, "bert_config.json")
  if bert_config_file:
    config = read_config(bert_config_file)
    if folder.config:
      _check_config(folder, bert_config_file, config)
    folder = dataclasses.replace(folder, config=config, assumed=())
  return _add_files(folder)


def _open_path(path: str) -> models.ModelFolder:
  """Opens a checkpoint, a folder, or the file of weights in one."""
  parent, name = os.path.split(path)
  parent = parent or "."

  # A file by which a library is known stands for its folder.
  if files.exists(path):
    if name in _LIBRARIES:
      return _LIBRARIES[name](parent)
    if name == "saved_model.pb":
      return _open_path(parent)
    if _KERAS_2.fullmatch(name):
      return _open_with("keras2", path)
    if name.endswith(".onnx"):
      return onnx_files.open_file(path)
    if name.endswith((".safetensors", ".h5", ".json")):
      raise ValueError(f"{path}: one file of a model folder: pass the folder")
  huggingface.refuse_other_files(path, [name])

  # A folder with such a file, or a checkpoint; with both it is not known which
  # one is meant.
  paths = (os.path.join(path, name) for name in _LIBRARIES)
  if not (weights := next(filter(files.exists, paths), None)):
    return _open_checkpoint(path)
  newest = checkpoints.latest_checkpoint(path)
  # In the years of these formats, releases were converted in their own folders.
  if weights.endswith(("/pytorch_model.bin", "/tf_model.h5")) and not newest:
    newest = next(iter(checkpoints.find_indices(path)), None)
  if newest:
    raise ValueError(
      f"{path}: several checkpoints, name one: {newest} or {weights}"
    )
  return _open_path(weights)


def _open_checkpoint(path: str) -> models.ModelFolder:
  """Opens a checkpoint of TensorFlow's: Google's, Model Garden's, ELECTRA's.

  A folder without one may hold an ONNX file.
  """
  try:
    prefix = checkpoints.find_checkpoint(path)
  except ValueError:
    if found := onnx_files.find(path):
      return onnx_files.open_file(found)
    if tf.io.gfile.isdir(path):
      entries = tf.io.gfile.listdir(path)
      huggingface.refuse_other_files(path, entries)
      if len(of_keras := [*filter(_KERAS_2.fullmatch, entries)]) == 1:
        return _open_path(os.path.join(path, of_keras[0]))
    raise

  # Whose checkpoint it is shows in the names of its variables.
  weights = checkpoints.open_weights(prefix)
  if _OBJECT_GRAPH in weights.shapes:
    return _open_with("object_checkpoints", weights)
  folder = os.path.dirname(prefix) or "."
  if "electra/embeddings/word_embeddings" in weights.shapes:
    return _open_electra(weights, folder)
  _refuse_hub_module(prefix, weights.shapes)

  # The best weights of a run are in a folder of their own.
  return models.ModelFolder(weights, (folder, *files.above(folder, "best")))


def _open_electra(
  weights: checkpoints.Weights, folder: str
) -> models.ModelFolder:
  """Opens a discriminator's checkpoint of google-research/electra."""
  variables, unread = {}, []
  for name, shape in weights.shapes.items():
    # The discriminator's head, the generator and slots are not BERT's.
    if not name.startswith("electra/") or fitting.is_training_state(name):
      unread.append(name)
      continue

    google = models.rename(name, _ELECTRA_NAMES)
    load = functools.partial(weights.read, name)
    variables[google] = models.StoredVariable(load, shape)
  return models.ModelFolder(
    models.make_weights(weights.source, variables, unread),
    (folder,),
    library="google-research/electra",
  )


def _refuse_hub_module(prefix: str, shapes) -> None:
  """Refuses a module of TF1's hub if it may be a wrong export; says which."""
  # The checkpoint is MODULE/variables/variables.
  folder = os.path.dirname(os.path.realpath(os.path.dirname(prefix)))
  if not files.exists(os.path.join(folder, "tfhub_module.pb")):
    return

  # The width and the numbers of layers of google/small_bert. Only the name of
  # its folder tells version 1 from version 2.
  width = shapes.get("bert/embeddings/word_embeddings", ())[1:]
  layers = sum(name.endswith("/intermediate/dense/bias") for name in shapes)
  is_small = layers in (2, 4, 6, 8, 10) or "small" in folder
  if width == (768,) and is_small and not folder.endswith(("/2", "_2")):
    raise ValueError(
      f"{folder}: version 1 of google/small_bert with H=768 holds wrong "
      "weights (tensorflow/hub issue 661): if it is version 2, name its folder "
      "2; or take the checkpoint of google-research/bert"
    )


def _check_config(folder, path, config) -> None:
  """Compares the fields of a config file that shapes do not show."""
  for name in _UNSEEN_FIELDS:
    given = getattr(config, name, None)
    expected = getattr(folder.config, name, None)
    is_same = given == expected
    if name == "hidden_act":  # One function may have several names.
      functions = modeling.ACTIVATIONS
      is_same = functions[str(given)] == functions[str(expected)]

    # What was only assumed may be corrected.
    if not is_same and name not in folder.assumed:
      raise ValueError(
        f"{path}: {name} is {given!r}, that of the weights in {folder.source} "
        f"is {expected!r}: correct it, or leave out this config"
      )


def _add_files(folder: models.ModelFolder) -> models.ModelFolder:
  """Adds what files beside the weights say."""
  # The files of another library have been read: they count most.
  casing = folder.do_lower_case
  problem = folder.problem
  recorded = folder.recorded
  labels = folder.labels
  if casing is None:
    stated = filter(None, map(tokenizer_files.read_casing, folder.folders))
    casing = next((value for value, _ in stated), None)

  # The settings.json of a training says which task its head has.
  if folder.library == models.GOOGLE:
    runs = map(run_files.read_settings, folder.folders)
    run = next(filter(None, runs), {})
    problem = run.get("problem")
    recorded = _read_record(folder, run)
  if not labels and (path := _beside(folder, "labels.txt")):
    labels = tuple(label_files.read(path))
  return dataclasses.replace(
    folder,
    vocab_file=folder.vocab_file or vocabulary_table.find(folder.folders),
    do_lower_case=casing,
    problem=problem,
    labels=labels,
    recorded=recorded,
  )


def _read_record(
  folder: models.ModelFolder, run: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns what a training recorded beside its weights; {} if it did not."""
  # An editor's settings.json says nothing of a vocabulary.
  if "vocab_file_sha256" not in run:
    return {}
  settings = {n: x for n, x in run.items() if not n.startswith(_OF_FOLDER)}
  path = _beside(folder, models.PREDICTION)
  answers = files.read_json(path) if path else {}
  return {models.SETTINGS: settings, models.PREDICTION: answers}


def _beside(folder: models.ModelFolder, name: str) -> str | None:
  """Returns the path of a file in the folders of a model, if it is there."""
  paths = (os.path.join(parent, name) for parent in folder.folders)
  return next(filter(files.exists, paths), None)


def read_config(path: str) -> modeling.EncoderConfig:
  """Reads a bert_config.json, or a config.json of Hugging Face's of a BERT."""
  # Google's files have no model_type, and another "gelu".
  fields = files.read_json(path)
  if "model_type" in fields:
    return huggingface.to_bert_config(path, fields)
  return checkpoints.read_config(path)
