"""Opens a model in whatever format it is: the one function of this folder."""

import dataclasses
import importlib
import os

import tensorflow as tf

from convert import (
  huggingface,
  keras_hub,
  object_checkpoints,
  readers,
  relatives,
  tokenizer_files,
)
from data import files, label_files
from encoders import config_files
import modeling
from vocabularies import vocabulary_table
from weights import checkpoints

# The file of weights that marks a library's folder, and its reader.
_LIBRARIES = {
  huggingface.WEIGHTS: huggingface,
  keras_hub.WEIGHTS: keras_hub,
}
# The same of modules in contrib, which are imported when such a file is met.
_CONTRIB = {"params_shapes.json": "contrib.gpt"}


def open_model(
  path: str, bert_config_file: str | None = None
) -> readers.ModelFolder:
  """Opens a model: Google's, or one of another library.

  Args:
    path: a prefix of a checkpoint, one of its files, or a folder: an unpacked
      release, the output of a training, a SavedModel, or a folder of Hugging
      Face's, KerasHub's or OpenAI's, or the file of weights in it.
    bert_config_file: the config, if that is not beside the weights.

  Raises:
    ValueError: there is no model, or a choice of several; or a file is damaged,
      or does not fit the others.
    OSError: a file cannot be read.
  """
  folder = _open_weights(path)
  found, paths = bert_config_file, _beside(folder, "bert_config.json")
  if not found and paths and (not folder.config or folder.assumed):
    found = paths[0]
  config = read_config(found) if found else folder.config
  if found and folder.config:
    readers.check_config(folder, found, config)
  return _add_files(folder, config, () if found else folder.assumed)


def _open_weights(path: str) -> readers.ModelFolder:
  parent, name = os.path.split(path)
  if files.exists(path):
    if library := _library_of(name):
      return library.open_folder(parent or ".")
    if name == "saved_model.pb":
      return _open_weights(parent or ".")
    if name.endswith((".safetensors", ".h5", ".json")):
      raise ValueError(
        f"{path}: this is one file of a model folder: pass the folder"
      )
  huggingface.refuse_pickles(path, [name])
  if not (weights := _find_weights(path)):
    return _open_checkpoint(path)
  if newest := checkpoints.latest_checkpoint(path):
    raise ValueError(
      f"{path}: several checkpoints, name one: {newest} or its {weights}"
    )
  return _library_of(weights).open_folder(path.rstrip("/"))


def _library_of(name: str):
  """Returns the module that reads folders with a file of that name, if any."""
  if name in _CONTRIB:
    return importlib.import_module(_CONTRIB[name])
  return _LIBRARIES.get(name)


def _find_weights(path: str) -> str | None:
  """Returns the name of the weights in another library's folder, if it is one.

  Weights in several files have an index instead of it.
  """
  for name, library in _LIBRARIES.items():
    if any(files.exists(os.path.join(path, n)) for n in (name, library.INDEX)):
      return name
  found = (n for n in _CONTRIB if files.exists(os.path.join(path, n)))
  return next(found, None)


def _open_checkpoint(path: str) -> readers.ModelFolder:
  """Opens a checkpoint of TensorFlow's: Google's, Model Garden's, ELECTRA's."""
  try:
    prefix = checkpoints.find_checkpoint(path)
  except ValueError:
    if tf.io.gfile.isdir(path):
      huggingface.refuse_pickles(path, sorted(tf.io.gfile.listdir(path)))
    raise
  weights = checkpoints.open_weights(prefix)
  if object_checkpoints.GRAPH in weights.shapes:
    return object_checkpoints.open_checkpoint(weights)
  folder = os.path.dirname(prefix) or "."
  if "electra/embeddings/word_embeddings" in weights.shapes:
    return relatives.open_electra(weights, folder)
  object_checkpoints.refuse_hub_module(prefix, weights.shapes)
  # The best weights of a run are in a folder of their own.
  is_best = os.path.basename(folder) == "best"
  parents = [os.path.dirname(folder) or "."] if is_best else []
  return readers.ModelFolder(prefix, (folder, *parents), weights)


def _add_files(folder, config, assumed) -> readers.ModelFolder:
  """Adds the config, and what files beside the weights say."""
  casing, problem, labels = folder.do_lower_case, folder.problem, folder.labels
  if casing is None:
    found = map(tokenizer_files.read_casing, folder.folders)
    casing = next((value for value, _ in filter(None, found)), None)
  if folder.library == readers.GOOGLE:
    runs = map(tokenizer_files.read_run_settings, folder.folders)
    problem = next((run.get("problem") for run in runs if run), None)
  if not labels and (paths := _beside(folder, "labels.txt")):
    labels = tuple(label_files.read(paths[0]))
  return dataclasses.replace(
    folder,
    config=config,
    assumed=assumed,
    vocab_file=folder.vocab_file or vocabulary_table.find(folder.folders),
    do_lower_case=casing,
    problem=problem,
    labels=labels,
  )


def _beside(folder: readers.ModelFolder, name: str) -> list[str]:
  """Returns the paths of a file in the folders of a model."""
  paths = (os.path.join(parent, name) for parent in folder.folders)
  return list(filter(files.exists, paths))


def read_config(path: str) -> modeling.EncoderConfig:
  """Reads a bert_config.json, or a config.json of Hugging Face's of a BERT.

  Raises:
    ValueError: with the path and the fault, if it is not a valid config.
  """
  fields = files.read_json(path)
  if "model_type" in fields:
    return huggingface.to_bert_config(path, fields)
  return config_files.read_config(path)
