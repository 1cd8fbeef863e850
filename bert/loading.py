"""Loads a trained model, which answers texts from Python.

  import bert

  model = bert.load("sms_model")
  model("win a prize")

The folder is an export or the output of a training. An export of --format=onnx
needs only onnxruntime and numpy; the others need TensorFlow. `load_encoder`
loads the encoder alone, a Keras layer.
"""

import operator
import os
from typing import TYPE_CHECKING, Any
import warnings

from bert import model
from bert.data import file_search, hub, imports
from bert.serving import export_card, exported_model
from bert.vocabularies import vocabulary_table

if TYPE_CHECKING:
  from bert import modeling
  from bert.export import trained_models


def load(
  folder: str | os.PathLike, threads: int = 0, engine: str = ""
) -> model.Model:
  """Loads a trained model, from an export or from the output of a training.

  Args:
    folder: the --export_dir of export_saved_model.py, or the --output_dir of a
      program that trains for a task, or an encoder of sentence vectors; or its
      name on the Hugging Face Hub.
    threads: only for an export: how many cores compute a batch; 0: all.
    engine: only for an export: the library that computes, as --engine of
      predict.py; "" lets the export decide.

  Raises:
    ValueError: the folder is something else, or damaged; or there are too many
      threads.
    ImportError: names the package that this model needs.
  """
  # ONNX Runtime would take any number, and end the process at a million.
  if not 0 <= operator.index(threads) <= exported_model.MOST_THREADS:
    raise ValueError(
      f"threads is {threads}, expected 0, for all cores, to "
      f"{exported_model.MOST_THREADS}"
    )
  if not isinstance(engine, str):
    raise TypeError(f"engine is {type(engine).__name__}, expected str")
  folder = hub.find(os.fsdecode(folder))
  names = file_search.list_folder(folder)

  # An export holds all that it needs, and runs without the training's code.
  if export_card.FILE in names or engine:
    exported = exported_model.ExportedModel(folder, threads, engine)
    return model.Model(exported, folder, threads, engine)

  # Everything else is built from its weights: the output of a training, which
  # has its flags in settings.json, or an encoder of sentence vectors.
  vocab_file = vocabulary_table.find([folder])
  is_encoder = exported_model.makes_vectors(folder)
  is_trained = "settings.json" in names and vocab_file
  has_tokens = vocab_file or "tokenizer.json" in names
  if not is_trained and not (is_encoder and has_tokens):
    raise ValueError(_describe(folder, names))

  imports.check_process()
  imports.import_tensorflow()  # It takes seconds.
  from bert.cli import inference_settings, model_folder
  from bert.export import exporting

  # An encoder of vectors states in files of sentence-transformers how its
  # vectors are made; `find_files` reads the paths of its files.
  trained = None
  if is_encoder:
    settings = inference_settings.InferenceSettings(model=folder)
    settings = model_folder.find_files(settings)
    trained = load_pretrained(settings, "features")
    vocab_file = settings.vocab_file
  exported = exporting.in_memory(folder, str(vocab_file), trained)
  return model.Model(exported, folder)


def load_again(
  folder: str,
  threads: int,
  engine: str,
  weights_sha256: str,
  answers_sha256: str = "",
) -> model.Model:
  """Loads a model that was pickled.

  Args:
    folder: of the model, as for `load`.
    threads: likewise.
    engine: likewise.
    weights_sha256: of the model that was pickled.
    answers_sha256: of what else its answers depend on; "" in pickles of an
      earlier version.

  Raises:
    ValueError: the folder has other weights now, or answers otherwise.
  """
  loaded = load(folder, threads, engine)
  if loaded.weights_sha256 != weights_sha256:
    raise ValueError(
      f"{folder}: its weights are not those of the model that was pickled: "
      "they were trained further, or replaced"
    )
  if answers_sha256 not in ("", loaded.answers_sha256):
    raise ValueError(
      f"{folder}: it does not answer as the model that was pickled: its "
      "settings, labels or vocabulary were replaced"
    )
  return loaded


def load_pretrained(
  settings: Any, kind: str | None = None
) -> "trained_models.TrainedModel":
  """Loads weights that no task was learned with, as `export` takes them.

  Args:
    settings: the flags of a program, of which `model_folder.find_files` has
      found the files of --model; what they state of vectors is followed.
    kind: "features" or "fill_mask"; default what the weights have a head for.
  """
  from bert.cli import model_folder, sbert_flags
  from bert.export import trained_models

  config = model_folder.read_config(settings)
  trained = trained_models.load_pretrained(
    settings.open_model().weights, config, settings.do_lower_case, kind
  )

  # Only a model of vectors has settings such as pooling and normalize.
  if "normalize" not in trained_models.setting_names(trained.kind):
    return trained

  flags = sbert_flags.read(settings)
  model_folder.check_length(flags.get("max_seq_length", 0), config)
  if dense := flags.pop("dense", None):
    trained = trained_models.add_dense(trained, dense)
  return trained_models.override(trained, flags)


def load_encoder(
  path: str | os.PathLike, dtype: str | None = None, name: str = "bert"
) -> "modeling.BertModel":
  """Makes an encoder with the weights of a model, without its heads.

  Warns if the model has no pooler, which then starts at random.

  Args:
    path: a checkpoint, or a folder in the format of Google, Hugging Face or
      another library; or a name on the Hugging Face Hub.
    dtype: a Keras dtype policy; see `modeling.BertModel`.
    name: of the layer; two encoders in one Keras model need different names.

  Raises:
    ValueError: there is no model, or its weights do not fit its config.
  """
  imports.check_process()
  imports.import_tensorflow()
  from bert.cli import model_folder

  folder = model_folder.open_model(hub.find(os.fspath(path)))
  encoder, missing = model_folder.make_encoder(folder, dtype, name)

  # stacklevel=2: the warning shows the caller's line.
  if missing:
    warnings.warn(f"{folder.source} lacks {', '.join(missing)}", stacklevel=2)
  if folder.assumed:
    taken = ", ".join(
      f"{n}={getattr(folder.config, n)!r}" for n in folder.assumed
    )
    warnings.warn(
      f"{folder.source} does not state, taken: {taken}", stacklevel=2
    )
  return encoder


def _describe(folder, names):
  """Describes a folder that cannot be loaded, and the way out."""
  state = file_search.describe_missing(folder)
  cure = "; expected the --export_dir of export_saved_model.py or the "
  cure += "--output_dir of a program that trains for a task"

  # A config without what a training leaves: a pre-trained model.
  if {"bert_config.json", "config.json"} & set(names):
    command = export_card.export_command(hub.name_of(folder), "features")
    cure = ": a model without a task; train it with run_classifier.py or "
    cure += f"another program, or let `{command}` make it one of vectors"
  return f"{folder}: {state}{cure}"
