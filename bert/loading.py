"""Answers texts from Python with a trained model.

  import bert

  model = bert.load("sms_model")
  model("win a prize")

The folder is an export or the output of a training. An export of --format=onnx
needs only onnxruntime and numpy; the others need TensorFlow. `load_encoder`
loads the encoder alone, a Keras layer.
"""

import os
from typing import TYPE_CHECKING, Any
import warnings

from bert.data import file_search, hub, imports
from bert.serving import export_card, exported_model
from bert.vocabularies import vocabulary_table

if TYPE_CHECKING:
  from bert import modeling
  from bert.export import trained_models

Answer = dict[str, Any]


class Model:
  """A trained model; `load` makes it.

  Attributes:
    task: a key of `bert.serving.answers.MAKERS`.
    labels: their names; () for a task without labels.
    inputs: the names of the texts that it takes, in the order of a pair.
    strips_marks: whether lower-casing strips accents and vowel signs.
    prompts: of a model of vectors: what may precede every text, by name.
  """

  def __init__(self, model: exported_model.ExportedModel):
    self._model = model
    self.task: str = model.card.kind
    self.labels: tuple[str, ...] = model.card.labels
    self.inputs: tuple[str, ...] = model.card.inputs
    self.strips_marks: bool = model.maker.strips_marks
    self.prompts: dict[str, str] = model.card.settings.get("prompts") or {}

  @property
  def weights_sha256(self) -> str:
    """The SHA-256 of the weights; "" if an earlier export does not state it."""
    return self._model.weights_sha256

  def __call__(
    self, texts: Any, prompt_name: str | None = None
  ) -> Answer | list[Answer]:
    """Answers one input, or a list of them, which gives a list.

    An input is a text; a tuple of texts, such as (question, context); or a
    dict of texts by the names of `inputs`, choices as a list or a tuple. An
    answer is what predict.py writes, without the index. A ValueError says
    which input is not one that the model takes.

    `prompt_name` is that of a prompt, such as "query", that a model of vectors
    has for what comes before every text; without it, its default.
    """
    inputs = texts if isinstance(texts, list) else [texts]
    for number, text in enumerate(inputs):
      if not isinstance(text, str | tuple | dict):
        raise ValueError(
          f"inputs[{number}] is {type(text).__name__}, expected str, a tuple or"
          f" a dict with {', '.join(self.inputs)}"
        )
    maker = self._model.maker
    maker = maker if prompt_name is None else maker.with_prompt(prompt_name)
    requests = maker.encode_all(
      (text,) if isinstance(text, str) else text for text in inputs
    )
    found = self._model.answer(requests)
    return found if inputs is texts else found[0]


def load(
  folder: str | os.PathLike, threads: int = 0, engine: str = ""
) -> Model:
  """Loads a trained model; an ImportError says which package it needs.

  A ValueError says that the folder is something else, or damaged.

  Args:
    folder: the --export_dir of export_saved_model.py, or the --output_dir of a
      program that trains for a task, or an encoder of sentence vectors; or its
      name on the Hugging Face Hub.
    threads: of an export: cores that compute a batch; 0: all of them.
    engine: of an export: as --engine of predict.py.
  """
  folder = hub.find(os.fspath(folder))
  found = file_search.list_folder(folder)
  if export_card.FILE in found or engine:
    return Model(exported_model.ExportedModel(folder, threads, engine))
  vocab_file = vocabulary_table.find([folder])
  is_encoder = exported_model.makes_vectors(folder)
  is_trained = "settings.json" in found and vocab_file
  has_tokens = vocab_file or "tokenizer.json" in found
  if not is_trained and not (is_encoder and has_tokens):
    raise ValueError(_describe(folder, found))
  imports.import_tensorflow()  # It takes seconds.
  from bert.cli import inference_settings, model_folder
  from bert.export import exporting

  trained = None
  if is_encoder:
    settings = inference_settings.InferenceSettings(model=folder)
    settings = model_folder.find_files(settings)
    trained = load_pretrained(settings, "features")
    vocab_file = settings.vocab_file
  return Model(exporting.in_memory(folder, str(vocab_file), trained))


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
  weights, do_lower_case = settings.open_model().weights, settings.do_lower_case
  trained = trained_models.load_pretrained(weights, config, do_lower_case, kind)
  if "normalize" not in trained_models.setting_names(trained.kind):
    return trained
  flags = sbert_flags.read(settings)
  model_folder.check_length(flags.get("max_seq_length", 0), config)
  return trained_models.override(trained, flags)


def load_encoder(
  path: str | os.PathLike, dtype: str | None = None, name: str = "bert"
) -> "modeling.BertModel":
  """Makes an encoder with the weights of a model, without its heads.

  Warns if it has no pooler, which then starts at random. A ValueError says that
  there is no model, or that its weights do not fit its config.

  Args:
    path: a checkpoint, or a folder: Google's, Hugging Face's and others; or a
      name on the Hugging Face Hub.
    dtype: see `modeling.BertModel`.
    name: the layer's; two encoders in one Keras model need different ones.
  """
  imports.import_tensorflow()
  from bert.cli import model_folder

  folder = model_folder.open_model(hub.find(os.fspath(path)))
  encoder, missing = model_folder.make_encoder(folder, dtype, name)
  source, config = folder.source, folder.config
  if missing:
    warnings.warn(f"{source} lacks {', '.join(missing)}", stacklevel=2)
  if folder.assumed:
    taken = ", ".join(f"{n}={getattr(config, n)!r}" for n in folder.assumed)
    warnings.warn(f"{source} does not state, taken: {taken}", stacklevel=2)
  return encoder


def _describe(folder, found):
  """Describes a folder that cannot be loaded, and the way out."""
  state = file_search.describe_missing(folder)
  cure = "; expected the --export_dir of export_saved_model.py or the "
  cure += "--output_dir of a program that trains for a task"
  if {"bert_config.json", "config.json"} & set(found):
    command = export_card.export_command(hub.name_of(folder), "features")
    cure = ": a model without a task; train it with run_classifier.py or "
    cure += f"another program, or let `{command}` make it one of vectors"
  return f"{folder}: {state}{cure}"
