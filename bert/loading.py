"""Answers texts from Python with a trained model.

  import bert

  model = bert.load("sms_model")
  model("win a prize")

The folder is an export or the output of a training. An export of --format=onnx
needs only onnxruntime and numpy; the others need TensorFlow. `load_encoder`
loads the encoder alone, a Keras layer.
"""

from collections.abc import Iterator, Sequence
import operator
import os
from typing import TYPE_CHECKING, Any
import warnings

import numpy as np

from bert.data import file_search, hub, imports, messages, progress
from bert.inputs import batch_order
from bert.serving import answer_maker, export_card, exported_model
from bert.vocabularies import vocabulary_table

if TYPE_CHECKING:
  from bert import modeling
  from bert.export import trained_models

Answer = dict[str, Any]

# Inputs that are read and sorted by length together; as in extract_features.py,
# so that vectors are computed in the same batches.
_BLOCK = 4096
_MOST_SILENT = 10_000  # With more inputs, a call shows how far it is.


class Model:
  """A trained model; `load` makes it.

  Several threads may call one model. A model is pickled as its folder, which
  must be there with the same weights where the pickle is opened.

  Attributes:
    task: a key of `bert.serving.answers.MAKERS`.
    labels: their names; () for a task without labels.
    inputs: the names of the texts that it takes, in the order of a pair.
    max_seq_length: the most tokens of an input.
    engine: the library that computes, such as "onnxruntime".
    folder: of the model, as `load` got it.
    strips_marks: whether lower-casing strips accents and vowel signs.
    prompts: of a model of vectors: what may precede every text, by name.
  """

  def __init__(
    self,
    model: exported_model.ExportedModel,
    folder: str,
    threads: int = 0,
    engine: str = "",
  ):
    """Keeps a model and the arguments of `load` that made it."""
    self._model = model
    self.task: str = model.card.kind
    self.labels: tuple[str, ...] = model.card.labels
    self.inputs: tuple[str, ...] = model.card.inputs
    self.max_seq_length: int = model.card.max_seq_length
    self.engine: str = model.engine_name or "tensorflow"
    self.folder = folder
    self.strips_marks: bool = model.maker.strips_marks
    self.prompts: dict[str, str] = model.card.settings.get("prompts") or {}

    # A pickle may be opened where another folder is the current one.
    if os.path.exists(folder):
      folder = os.path.abspath(folder)
    self._source = folder, threads, engine

  @property
  def weights_sha256(self) -> str:
    """The SHA-256 of the weights; "" if an earlier export does not state it."""
    return self._model.weights_sha256

  def __repr__(self) -> str:
    labels = f"labels={messages.list_names(self.labels)}, " * bool(self.labels)
    return (
      f"<bert.Model task={self.task}, {labels}max_seq_length="
      f"{self.max_seq_length}, engine={self.engine}, "
      f"folder={hub.name_of(self.folder)}>"
    )

  def __reduce__(self):
    return _load_again, (*self._source, self.weights_sha256)

  def __call__(
    self, texts: Any, prompt_name: str | None = None
  ) -> Answer | list[Answer]:
    """Answers one input, or a list of inputs.

    Args:
      texts: an input or several. An input is a text; a tuple of texts, such as
        (question, context); or a dict of texts by the names of `inputs`, with
        choices as a list or a tuple. Several inputs come as a list, another
        sequence, a NumPy array or a pandas Series.
      prompt_name: only for models of vectors: the name of the prompt to put
        before every text, such as "query". None: the model's default.

    Returns:
      An answer, as predict.py writes it, but without the index. A list of
      answers if `texts` are several inputs, or none.

    Raises:
      ValueError: the model does not take this input; the message has its
        number.
    """
    inputs, are_several = self._list_inputs(texts)
    answers = []
    for requests in self._read_blocks(inputs, prompt_name):
      answers += self._model.answer(requests)
    return answers if are_several else answers[0]

  def predict_proba(self, texts: Any) -> np.ndarray:
    """Computes the probabilities of `labels`, of a classifier.

    Args:
      texts: as `__call__` takes them: N inputs.

    Returns:
      Float32 [N, labels], not rounded; [labels] if `texts` is one input. Those
      of a model with one label for each text add up to 1.

    Raises:
      ValueError: the model is for another task, or does not take an input.
    """
    compute = getattr(self._model.maker, "probabilities", None)
    if not self.labels or not compute:
      raise ValueError(
        f"predict_proba: {self.folder} is a model for {self.task}; expected a "
        "classifier with labels, as run_classifier.py trains them"
      )
    inputs, are_several = self._list_inputs(texts)

    # The empty array is for no inputs.
    shares = [np.zeros([0, len(self.labels)], np.float32)]
    for requests in self._read_blocks(inputs):
      shares.append(compute(requests, self._model.outputs(requests)))
    joined = np.concatenate(shares)
    return joined if are_several else joined[0]

  def encode(
    self, texts: Any, batch_size: int = 32, prompt_name: str | None = None
  ) -> np.ndarray:
    """Computes vectors of texts, with a model of vectors.

    Those of a folder of sentence-transformers are bit for bit the vectors that
    extract_features.py writes as npz with --precision=float32, because the
    texts are in the same batches. In another batch, which other texts in the
    call or another `batch_size` make, float32 adds up in another order: the
    last of its seven digits may differ.

    Args:
      texts: as `__call__` takes them: N inputs.
      batch_size: the batch size for inputs of the full length. Batches of
        shorter inputs contain more of them.
      prompt_name: as for `__call__`.

    Returns:
      Float32 [N, H]; [H] if `texts` is one input.

    Raises:
      ValueError: the model is for another task or does not take an input, or
        a vector is not finite.
    """
    if self.task != "features":
      raise ValueError(
        f"encode: {self.folder} is a model for {self.task}, not vectors; "
        "run_embedding.py trains a model of vectors"
      )
    if operator.index(batch_size) < 1:
      raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
    inputs, are_several = self._list_inputs(texts)

    # Without an input the model computes one all the same: that of a text says
    # how long vectors are.
    if not inputs:
      return self.encode([""], prompt_name=prompt_name)[:0]

    blocks = []
    for requests in self._read_blocks(inputs, prompt_name):
      # A text that is too long for vectors is truncated: it is one row.
      rows = [row for request in requests for row in request.rows]
      batches = batch_order.make_batches(
        np.array([len(row.input_ids) for row in rows]),
        batch_size,
        self.max_seq_length,
        is_static=False,
      )
      blocks.append(self._model.vectors(rows, batches))
    vectors = np.concatenate(blocks)

    # A comparison with NaN is always false: a search would never find such a
    # text, and no message would say so.
    damaged = np.flatnonzero(~np.isfinite(vectors).all(-1))
    if len(damaged):
      number = damaged[0]
      raise ValueError(
        f"inputs[{number}]: the model's vector of {inputs[number]!r:.80} holds "
        "NaN or infinity: its weights are damaged"
      )
    return vectors if are_several else vectors[0]

  def _list_inputs(self, texts) -> tuple[list[Any], bool]:
    """Returns the inputs, and whether they came as several."""
    if getattr(texts, "ndim", 1) != 1 and not isinstance(texts, str):
      raise ValueError(
        f"inputs: {type(texts).__name__} of {texts.ndim} dimensions; expected "
        "one dimension: a text, a tuple or a dict for each input"
      )

    # Arrays of NumPy and Series of pandas have `tolist`.
    are_several = False
    if not isinstance(texts, str | bytes | tuple | dict):
      if hasattr(texts, "tolist"):
        texts = texts.tolist()
      are_several = isinstance(texts, Sequence)
    inputs = list(texts) if are_several else [texts]

    # A cell of a table without a value is NaN, None or another object.
    for number, text in enumerate(inputs):
      if not isinstance(text, str | tuple | dict):
        raise ValueError(
          f"inputs[{number}] is {type(text).__name__} "
          f"({messages.shorten(repr(text))}), expected str, a tuple or a dict "
          f"with {', '.join(self.inputs)}"
        )
    return inputs, are_several

  def _read_blocks(
    self, inputs: list[Any], prompt_name: str | None = None
  ) -> Iterator[list[answer_maker.Encoded]]:
    """Yields the requests of inputs, block by block, and shows progress."""
    # The prompt holds for this call alone: `with_prompt` returns a copy.
    maker = self._model.maker
    if prompt_name is not None:
      maker = maker.with_prompt(prompt_name)

    total = len(inputs)
    bar = progress.Progress(total)
    for first in range(0, total, _BLOCK):
      # The maker takes tuples and dicts; a lone text is a tuple of one.
      block = [
        (text,) if isinstance(text, str) else text
        for text in inputs[first : first + _BLOCK]
      ]
      yield maker.encode_all(block, first)

      # The caller has computed the block when it asks for the next one.
      done = first + len(block)
      if total > _MOST_SILENT and bar.is_due():
        speed = f"{bar.units_per_second(done):,.1f} texts/s"
        line = f"{done:,} of {total:,} texts  {speed}  ETA {bar.eta(done)}"
        bar.print_line(line, done)
    progress.clear()


def load(
  folder: str | os.PathLike, threads: int = 0, engine: str = ""
) -> Model:
  """Loads a trained model, from an export or from the output of a training.

  Args:
    folder: the --export_dir of export_saved_model.py, or the --output_dir of a
      program that trains for a task, or an encoder of sentence vectors; or its
      name on the Hugging Face Hub.
    threads: only for an export: how many cores compute a batch; 0: all.
    engine: only for an export: the library that computes, as --engine of
      predict.py; "" lets the export decide.

  Raises:
    ValueError: the folder is something else, or damaged.
    ImportError: names the package that this model needs.
  """
  folder = hub.find(os.fspath(folder))
  names = file_search.list_folder(folder)

  # An export holds all that it needs, and runs without the training's code.
  if export_card.FILE in names or engine:
    model = exported_model.ExportedModel(folder, threads, engine)
    return Model(model, folder, threads, engine)

  # Everything else is built from its weights: the output of a training, which
  # has its flags in settings.json, or an encoder of sentence vectors.
  vocab_file = vocabulary_table.find([folder])
  is_encoder = exported_model.makes_vectors(folder)
  is_trained = "settings.json" in names and vocab_file
  has_tokens = vocab_file or "tokenizer.json" in names
  if not is_trained and not (is_encoder and has_tokens):
    raise ValueError(_describe(folder, names))

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
  model = exporting.in_memory(folder, str(vocab_file), trained)
  return Model(model, folder)


def _load_again(folder, threads, engine, weights_sha256):
  """Loads a model that was pickled; a ValueError if its folder has another."""
  model = load(folder, threads, engine)
  if model.weights_sha256 != weights_sha256:
    raise ValueError(
      f"{folder}: its weights are not those of the model that was pickled: "
      "they were trained further, or replaced"
    )
  return model


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
